"""That every test ends, whatever it does: what pytest-timeout leaves open.

Its timer by SIGALRM needs the main thread to run Python again, and a test may lose the signal. Its timer by a thread says nothing
of what hangs under pytest-xdist. And a failure ends either, so that nothing bounds the end of the fixtures, which hang easily then.
So there is a watch below it that needs no Python (faulthandler): it writes all stacks to the real stderr and ends the process, one
failed test under pytest-xdist (`processes.py`). It strikes when a test has had its own time and `GRACE`.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import Any

import pytest

try:
    from pytest_timeout import is_debugging
except ImportError:  # without pytest-timeout nothing calls the hooks below
    is_debugging = lambda: False  # noqa: E731

GRACE = 60.0
"""Seconds more than its own limit that a test has before its process is ended; twice as many for the end of the process."""

_STDERR = pytest.StashKey[int]()
_LIMIT = pytest.StashKey[Any]()
_ENDED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(
        sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
    )  # what is written is not captured yet


def pytest_unconfigure(config: pytest.Config) -> None:
    """The process has to end as well, which a thread that a test left may keep it from; one of several waits for the others."""
    if not is_debugging() and not hasattr(config, "workerinput"):
        faulthandler.dump_traceback_later(2 * GRACE, file=config.stash[_STDERR], exit=True)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Set the watch; in place of the timer of pytest-timeout where that would be a thread, which ends the process as well."""
    if is_debugging():
        return None
    item.stash[_LIMIT] = settings
    item.stash[_ENDED] = False
    alone = settings.method == "thread"
    faulthandler.dump_traceback_later(settings.timeout + (0.0 if alone else GRACE), file=item.config.stash[_STDERR], exit=True)
    return True if alone else None


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    item.stash[_ENDED] = True
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Set both anew where a failure ended them."""
    settings = item.stash.get(_LIMIT, None)
    if settings is not None and item.stash[_ENDED] and not settings.func_only:
        item.config.pluginmanager.hook.pytest_timeout_set_timer(item=item, settings=settings)
