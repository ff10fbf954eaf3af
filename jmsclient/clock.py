"""Time, and waiting for it, as something that can be handed in.

Durations and deadlines use `monotonic`, delivery time and expiry `wall` (IF-2, IF-3). A `Bell` is how a thread waits here: a
bare lock, because a `Condition` breaks when a signal handler raises inside it (IF-40), and because ringing is one C call.
`jmsclient.testing.ManualClock` is the same face moved by hand.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod

LONGEST_WAIT = min(threading.TIMEOUT_MAX, 9_223_372_036.0)
SIGNAL_INTERVAL = 1.0
"""Seconds that the main thread waits at most without looking for signals."""


class Bell(ABC):
    """One waiter, any number of ringers. A ring before the wait is kept; several rings count as one."""

    @abstractmethod
    def ring(self) -> None:
        """Wake the waiter, or let its next wait return at once. Any thread, signal handlers included; never blocks."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> bool:
        """Wait until rung: True. False when `timeout` seconds passed (None: for ever; 0 or less: only look)."""


class Clock(ABC):
    """Where the time comes from. Thread-safe."""

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds that only rise, from an arbitrary start."""

    @abstractmethod
    def wall(self) -> float:
        """Seconds since 1970, as people set them; may jump."""

    @abstractmethod
    def bell(self) -> Bell:
        """A new bell whose `wait` measures its timeout on this clock."""

    def deadline(self, timeout: float | None) -> float | None:
        """The monotonic time `timeout` seconds from now, or None for 'no deadline' (IF-1)."""
        if timeout is None or timeout > LONGEST_WAIT:
            return None
        return self.monotonic() + timeout

    def left(self, deadline: float | None) -> float | None:
        """Seconds left until a deadline (0.0 when it has passed), or None where there is none."""
        return None if deadline is None else max(0.0, deadline - self.monotonic())


class SystemBell(Bell):
    """A lock that is held while nobody has rung."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        if self._lock.locked():  # else it is rung already, and that ring serves; to look costs a tenth of the error below
            try:
                self._lock.release()
            except RuntimeError:  # somebody rang in between
                pass

    def wait(self, timeout: float | None = None) -> bool:
        if threading.get_ident() == threading.main_thread().ident:
            return self._wait_hearing_signals(timeout)
        if timeout is None or timeout > LONGEST_WAIT:
            return self._lock.acquire()
        return self._lock.acquire(timeout=timeout) if timeout > 0 else self._lock.acquire(blocking=False)

    def _wait_hearing_signals(self, timeout: float | None) -> bool:
        """A signal that arrives after the interpreter last looked for one and before the lock waits does not interrupt the wait, so
        its handler would run only when somebody rings. Looking again each second bounds that."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = SIGNAL_INTERVAL if end is None else min(SIGNAL_INTERVAL, end - time.monotonic())
            if left <= 0:
                return self._lock.acquire(blocking=False)
            if self._lock.acquire(timeout=left):
                return True


class SystemClock(Clock):
    """The operating system's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def deadline(self, timeout: float | None) -> float | None:
        return None if timeout is None or timeout > LONGEST_WAIT else time.monotonic() + timeout  # once a send: no second call

    def bell(self) -> Bell:
        return SystemBell()


SYSTEM_CLOCK = SystemClock()


def checked_timeout(value: float | None, name: str = "timeout") -> float | None:
    """A timeout as the public calls take it: None for ever, 0 no wait, seconds otherwise (IF-1).

    Raises ValueError, naming what was given, for negative numbers, NaN and what is no number, before anything else happened.
    """
    if value is None or (type(value) is float and 0.0 <= value <= LONGEST_WAIT):  # nearly every call ends here
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}={value!r}: expected seconds as a number >= 0, or None for no limit")
    if value > LONGEST_WAIT:  # before isnan, which cannot take an int of any size
        return None
    if math.isnan(value) or value < 0:
        raise ValueError(f"{name}={value!r}: expected seconds >= 0, or None for no limit")
    return float(value)
