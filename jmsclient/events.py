"""Things worth telling: one line to `logging` and one record to whoever listens.

An event has a name that never changes, a sentence for people, and fields for machines. Never a body, never a secret; one event
a fault however long it lasts. Listeners (a journal, a test) get every event, whatever the log level.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """`name` such as `lease_lost`, `area` the room it happened in, `text` one sentence, `fields` scalars by name."""

    name: str
    area: str
    text: str
    level: int = logging.INFO
    fields: dict[str, Any] = field(default_factory=dict)


Listener = Callable[[Event], None]
_changing = threading.Lock()  # held only while the tuple is replaced
_listeners: tuple[Listener, ...] = ()  # replaced whole, so that emitting needs no lock
_loggers: dict[str, logging.Logger] = {}  # `getLogger` takes a lock each time


def subscribe(listener: Listener) -> Callable[[], None]:
    """Have `listener` called with every event, on the thread that emits it; returns the call that ends it.

    A listener must not block and must not raise; what it raises is logged and does not reach the emitting thread.
    """
    global _listeners
    with _changing:
        _listeners = (*_listeners, listener)
    subscribed = True

    def unsubscribe() -> None:
        global _listeners
        nonlocal subscribed
        with _changing:
            if subscribed:
                subscribed = False
                left = list(_listeners)
                left.remove(listener)
                _listeners = tuple(left)

    return unsubscribe


def emit(area: str, name: str, text: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Tell it: a record of logger `jmsclient.<area>` with the fields as `extra`, and a call to each listener."""
    logger = _loggers.get(area) or _logger(area)
    if logger.isEnabledFor(level):
        logger.log(level, "%s", text, extra={"event": name, **{f"jms_{key}": value for key, value in fields.items()}})
    if _listeners:
        event = Event(name=name, area=area, text=text, level=level, fields=fields)
        for listener in _listeners:
            try:
                listener(event)
            except Exception:
                logger.exception("an event listener failed on %s", name)


def wanted(area: str, level: int) -> bool:
    """Whether anybody would hear an event: asked first where making its text costs something once a message."""
    return bool(_listeners) or (_loggers.get(area) or _logger(area)).isEnabledFor(level)


def _logger(area: str) -> logging.Logger:
    return _loggers.setdefault(area, logging.getLogger(f"jmsclient.{area}"))
