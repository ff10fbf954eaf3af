"""An exception that a signal handler raises on the main thread at a random moment: what the tests of IF-40 have in common.

A strike that hits a finaliser, or a callback of the collector, is swallowed: Python reports it and goes on. So each is repeated
until the test says that it is over; a loop that waits for ever would otherwise never be left. The timer is also the one that bounds
the time of a test: a file that strikes marks its tests `GUARDED`, so that what hangs is seen without it (`ending.py`).
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

GUARDED = pytest.mark.timeout(120, method="thread")
SWALLOWED = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
AGAIN = 1.0
ENOUGH = 20
"""So many strikes show something."""


class Struck(Exception):  # noqa: N818  it is what the handler raises, no error
    """Raised by the signal handler."""


class Lightning:
    """Strikes once it is armed; main thread only."""

    def __init__(self, shortest: float, longest: float, raises: type[BaseException] = Struck) -> None:
        self._between = (shortest, longest)
        self._raises = raises
        self._armed = False

    def arm(self) -> None:
        """Strike at a random moment from now, and again each second until disarmed."""
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(*self._between), AGAIN)

    def disarm(self) -> None:
        self._armed = False  # a plain store, before which no signal handler runs
        signal.setitimer(signal.ITIMER_REAL, 0)

    def hits(self, call: Callable[[], object]) -> bool:
        """Call it under fire; whether it was struck, be it at the last moment. What it raises itself is raised, without fire."""
        try:
            try:
                self.arm()
                call()
            finally:
                self.disarm()
        except self._raises:
            self.disarm()
            return True
        return False

    def strike(self, number: int, frame: FrameType | None) -> None:
        if self._armed and not isinstance(sys.exc_info()[1], self._raises):  # whoever has caught it is about to disarm
            raise self._raises


@contextmanager
def lightning(shortest: float = 0.00005, longest: float = 0.002, raises: type[BaseException] = Struck) -> Iterator[Lightning]:
    """Strikes between `shortest` and `longest` seconds after each `arm`."""
    own = Lightning(shortest, longest, raises)
    before = signal.signal(signal.SIGALRM, own.strike)
    try:
        yield own
    finally:
        own.disarm()
        signal.signal(signal.SIGALRM, before)


class Season:
    """How long a test strikes: its seconds; on a busy machine, which strikes less, until there were enough or its patience ends."""

    def __init__(self, seconds: float, patience: float = 30.0) -> None:
        self._ends = time.monotonic() + seconds
        self._at_last = self._ends + patience

    def lasts(self, strikes: int, enough: int = ENOUGH) -> bool:
        now = time.monotonic()
        return now < self._ends or (strikes <= enough and now < self._at_last)
