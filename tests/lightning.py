"""An exception that a signal handler raises on the main thread at a random moment: what the tests of IF-40 have in common.

A strike that hits a finaliser, or a callback of the collector, is swallowed: Python reports it and goes on. So each is repeated
until the test says that it is over; a loop that waits for ever would otherwise never be left. The timer is also the one that bounds
the time of a test: a file that strikes marks its tests `GUARDED`, so that a thread sees what hangs.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

GUARDED = pytest.mark.timeout(120, method="thread")
SWALLOWED = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
AGAIN = 1.0


class Struck(Exception):  # noqa: N818  it is what the handler raises, no error
    """Raised by the signal handler."""


class Lightning:
    """Strikes once it is armed; main thread only."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._between = (shortest, longest)
        self._armed = False

    def arm(self) -> None:
        """Strike at a random moment from now, and again each second until disarmed."""
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(*self._between), AGAIN)

    def disarm(self) -> None:
        self._armed = False  # a plain store, before which no signal handler runs
        signal.setitimer(signal.ITIMER_REAL, 0)

    def strike(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            raise Struck


@contextmanager
def lightning(shortest: float = 0.00005, longest: float = 0.002) -> Iterator[Lightning]:
    """Strikes between `shortest` and `longest` seconds after each `arm`."""
    own = Lightning(shortest, longest)
    before = signal.signal(signal.SIGALRM, own.strike)
    try:
        yield own
    finally:
        own.disarm()
        signal.signal(signal.SIGALRM, before)
