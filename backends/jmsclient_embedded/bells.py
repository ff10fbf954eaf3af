"""Owns the bells that the broker's threads ring for each other once a batch: an `eventfd`, where the system has it.

A lock as bell wakes a thread that then waits for the interpreter, which whoever rang still has: two switches. To ring by a call of
the system lets go of the interpreter, so that the one that was woken gets on at once: a stored batch costs two such hand-overs each
way. Must not know who waits for what. Source: issue on the embedded store, "Scale and speed"; clock.Bell. Never on the main thread,
whose waits have to hear signals, and never by another clock than the system's: these have bells of their own.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading

from jmsclient.clock import Bell, Clock, SystemClock

_ENDLESS = 1e6
"""Seconds from which on a wait need not end: `poll` counts milliseconds in 32 bits."""
_local = threading.local()


class EventBell(Bell):
    """One waiter, any number of ringers, never the main thread. Raises OSError when made where there are too many open files."""

    __slots__ = ("_file", "_poll", "_rung")

    def __init__(self) -> None:
        assert sys.platform == "linux"
        self._file = -1
        self._file = os.eventfd(0)
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLIN)
        self._rung = False  # and nobody has heard it yet: no need to ring again

    def ring(self) -> None:
        if not self._rung:
            self._rung = True
            os.eventfd_write(self._file, 1)  # type: ignore[attr-defined,unused-ignore]  # Linux

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None and timeout < _ENDLESS and not self._poll.poll(max(0.0, timeout) * 1000.0):
            return False
        os.eventfd_read(self._file)  # type: ignore[attr-defined,unused-ignore]  # Linux
        self._rung = False  # whoever rings before this is seen by the waiter, which looks only now
        return True

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


def new_bell(clock: Clock) -> Bell:
    """A bell for a thread that waits by this clock, and is not the main one."""
    if type(clock) is SystemClock and hasattr(os, "eventfd"):
        with contextlib.suppress(OSError):
            return EventBell()
    return clock.bell()


def own_bell(clock: Clock) -> Bell:
    """A bell for the calling thread, the same each time where that is possible: it may have been rung for something else, so
    whoever waits looks whether what it waits for is there, and goes on waiting."""
    if type(clock) is not SystemClock or threading.get_ident() == threading.main_thread().ident:
        return clock.bell()
    bell: Bell | None = getattr(_local, "bell", None)
    if bell is None:
        bell = _local.bell = new_bell(clock)
    return bell
