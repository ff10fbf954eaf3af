"""Owns time that a test moves by hand. Must not know what waits on it. Source: rules IF-1 to IF-3; style.md, Tests.

A waiting thread looks at the manual time every millisecond of real time, so that `advance` needs no list of waiters and a waiter
that is interrupted leaves nothing behind.
"""

from __future__ import annotations

import threading

from jmsclient.clock import LONGEST_WAIT, Bell, Clock

LOOK_INTERVAL = 0.001
"""Seconds of real time between two looks of a waiting thread."""


class ManualClock(Clock):
    """A clock that stands still until it is moved. Thread-safe.

    `monotonic` starts at `monotonic` seconds and `wall` at `wall` seconds since 1970.
    """

    def __init__(self, *, monotonic: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._lock = threading.Lock()  # guards the two times and the number of waiters; never held while waiting
        self._monotonic = monotonic
        self._wall = wall
        self._waiters = 0

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> float:
        return self._wall

    def bell(self) -> Bell:
        return ManualBell(self)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks. Raises ValueError for a negative number: time does not run back."""
        if not seconds >= 0:
            raise ValueError(f"advance({seconds!r}): expected seconds >= 0; jump_wall moves the wall clock back")
        with self._lock:
            self._monotonic += seconds
            self._wall += seconds

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator does; no time passes (IF-2, IF-3)."""
        with self._lock:
            self._wall += seconds

    @property
    def waiters(self) -> int:
        """Threads that wait on this clock with a time-out right now: what `advance` can wake."""
        return self._waiters

    def _waiting(self, change: int) -> None:
        with self._lock:
            self._waiters += change


class ManualBell(Bell):
    """A bell whose time-outs pass when its clock is moved."""

    __slots__ = ("_clock", "_lock")

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:  # already rung: the ring that is there serves
            pass

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None or timeout > LONGEST_WAIT:
            return self._lock.acquire()
        if timeout <= 0:
            return self._lock.acquire(blocking=False)
        deadline = self._clock.monotonic() + timeout
        self._clock._waiting(1)
        try:
            while not self._lock.acquire(timeout=LOOK_INTERVAL):
                if self._clock.monotonic() >= deadline:
                    return self._lock.acquire(blocking=False)
            return True
        finally:
            self._clock._waiting(-1)
