"""From `MODULE:WORKER` to the worker. Every way in which that can go wrong says what was given and what to do."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType

from jmsclient.errors import ConfigurationError, JmsClientError
from jmsclient.worker import Worker


def load_worker(address: str, app_dir: str) -> Worker:
    """Import `MODULE` from `app_dir` (or wherever Python finds it) and return its `WORKER`, which may be a dotted path.

    Raises ConfigurationError where there is no such module, attribute or worker, or where the module fails to import; what the
    module raises on purpose (JmsClientError) passes through.
    """
    name, colon, path = address.partition(":")
    if not colon or not name or not path:
        raise ConfigurationError(f"{address!r}: expected MODULE:WORKER, such as app:worker for `worker = Worker(…)` in app.py")
    if not os.path.isdir(app_dir):
        raise ConfigurationError(f"--app-dir {app_dir!r}: there is no such folder; give the one that {name}.py is in")
    found: object = _import(name, app_dir)
    module = found
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigurationError(f"{address!r}: module {name!r} has no {path!r}; {_workers_of(module)}") from None
    if not isinstance(found, Worker):
        raise ConfigurationError(f"{address!r} is a {type(found).__name__}, expected a jmsclient.Worker; {_workers_of(module)}")
    return found


def _import(name: str, app_dir: str) -> ModuleType:
    sys.path.insert(0, os.path.abspath(app_dir))
    try:
        return importlib.import_module(name)
    except JmsClientError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"there is no module {name!r} in {os.path.abspath(app_dir)}; give --app-dir the folder that it is in"
            ) from error
        raise ConfigurationError(_import_failed(name, error)) from error
    except Exception as error:
        raise ConfigurationError(_import_failed(name, error)) from error


def _import_failed(name: str, error: Exception) -> str:
    """The error and the line of the application's own code that it came from."""
    if isinstance(error, SyntaxError):
        return f"module {name!r} cannot be imported: {error.msg} ({error.filename}, line {error.lineno})"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"module {name!r} cannot be imported: {type(error).__name__}: {error} ({last.filename}, line {last.lineno})"


def _workers_of(module: object) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Worker)]
    return f"its workers: {', '.join(names)}" if names else "there is no Worker in it: add `worker = Worker(…)`"
