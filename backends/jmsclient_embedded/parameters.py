"""Owns what an embedded: URL may say: the store, the template of queues made on first use, the broker's own pauses at start.

Must not know of brokers. Source: api.md, "Connections"; RA-1, IF-13; "The three pauses", at start.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from jmsclient.errors import ConfigurationError
from jmsclient.options import DefaultReadAhead, seconds
from jmsclient_embedded.pauses import Pause
from jmsclient_embedded.settings import QueueSettings

_TEMPLATE = {one.name: one for one in fields(QueueSettings) if one.name != "quota"}
_PAUSES = {f"{pause.value}_paused": pause for pause in Pause}
_SCAN = "expiration_scan"
ALLOWED = ("store", "private", "attach", _SCAN, *_PAUSES, *_TEMPLATE)
_TRUE_FALSE = {"true": True, "false": False, "default": None}
_YES_NO = {"yes": True, "no": False}
_READ_AHEAD = {one.value: one for one in DefaultReadAhead if one is not DefaultReadAhead.UNKNOWN}


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerParameters:
    """`store`: the absolute path of the store file, None: in memory; `defaults`: of queues made on first use; `startup`: the
    broker's pauses at start, None: as each destination says; `private`: it ends with its last connection although it is in
    memory, as a test's broker should; `attach`: where another process holds the store, connect to that; `scan_interval`: seconds
    between two looks for what has expired (IF-33), 0: none."""

    store: Path | None = None
    private: bool = False
    attach: bool = field(default=False, compare=False)
    defaults: QueueSettings = field(default_factory=QueueSettings)
    startup: dict[Pause, bool | None] = field(default_factory=lambda: dict.fromkeys(Pause))
    scan_interval: float = 30.0


def parse_parameters(parameters: Mapping[str, str]) -> BrokerParameters:
    """From the part behind `?`. Raises ConfigurationError that names the parameter and what is allowed."""
    for name in parameters:
        if name not in ALLOWED:
            raise ConfigurationError(f"unknown parameter {name!r} of an embedded: URL; allowed: {', '.join(ALLOWED)}")
    store = parameters.get("store")
    return BrokerParameters(
        store=None if store is None else _path(store),
        private=_yes_or_no("private", parameters.get("private", "no")),
        attach=_attach(parameters.get("attach", "no"), store),
        defaults=_template(parameters),
        startup={pause: _true_or_false(name, parameters.get(name, "default")) for name, pause in _PAUSES.items()},
        scan_interval=_seconds(_SCAN, parameters.get(_SCAN, "30")),
    )


def _template(parameters: Mapping[str, str]) -> QueueSettings:
    given = {name: _READERS[name](name, parameters[name]) for name in _TEMPLATE if name in parameters}
    return QueueSettings(**given)  # type: ignore[arg-type]  # checked by QueueSettings itself


def _path(text: str) -> Path:
    """One path a file, whatever links lead to it: its lock and its socket lie beside it."""
    if not text.strip():
        raise ConfigurationError("store='': expected the path of a file, such as embedded:?store=shop.db")
    try:
        found = Path(text).resolve()
        if found.is_symlink():  # Python 3.13 and later follow a ring of links without complaint
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return found
    except (OSError, RuntimeError, ValueError) as error:  # a ring of links, a character that no path has
        raise ConfigurationError(f"store={text!r}: expected the path of a file ({error})") from error


def _yes_or_no(name: str, text: str) -> bool:
    found = _YES_NO.get(text.lower())
    if found is None:
        raise ConfigurationError(f"{name}={text!r}: expected yes or no")
    return found


def _attach(text: str, store: str | None) -> bool:
    attach = _yes_or_no("attach", text)
    if attach and store is None:
        raise ConfigurationError("attach=yes without a store: only a store is shared between processes; add store=FILE")
    return attach


def _true_or_false(name: str, text: str) -> bool | None:
    if text.lower() not in _TRUE_FALSE:
        raise ConfigurationError(f"{name}={text!r}: expected true, false or default")
    return _TRUE_FALSE[text.lower()]


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"{name}={text!r}: expected a whole number, or -1 for none") from None


def _seconds(name: str, text: str) -> float:
    found = _number(name, text)
    seconds(name, found)
    return found


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{name}={text!r}: expected a number") from None


def _word(name: str, text: str) -> str | None:
    if not text.strip():
        raise ConfigurationError(f"{name} is empty: expected a word, or none")
    return None if text.lower() == "none" else text


def _read_ahead(name: str, text: str) -> DefaultReadAhead:
    found = _READ_AHEAD.get(text.lower())
    if found is None:
        raise ConfigurationError(f"{name}={text!r}: expected one of {', '.join(_READ_AHEAD)}")
    return found


_BY_TYPE: dict[str, Callable[[str, str], object]] = {
    "int": _whole,
    "float": _number,
    "float | None": _number,
    "bool | None": _true_or_false,
    "DefaultReadAhead": _read_ahead,
}
_READERS = {name: _BY_TYPE.get(str(one.type), _word) for name, one in _TEMPLATE.items()}
