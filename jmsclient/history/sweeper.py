"""Owns the thread that removes what is past its history_ttl from a store without an expiry of its own, read or not (TR-44, D09).

Must not know what a history is: it calls a method now and then. It keeps no history alive: one that nobody refers to ends its
sweeper.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from weakref import WeakMethod

from jmsclient.clock import Bell, Clock

LONGEST_INTERVAL = 600.0
SHORTEST_INTERVAL = 0.05
DUTY = 20
"""A pause is at least so many times as long as the sweep before it: sweeping never takes more than a twentieth of a core."""

_logger = logging.getLogger(__name__)


class Sweeper:
    """Calls `sweep`, a bound method, every min(600 s, shortest history_ttl / 2) once `watch` was called. Thread-safe."""

    def __init__(self, clock: Clock, sweep: Callable[[], int]) -> None:
        self._clock = clock
        self._bell = bell = clock.bell()
        self._sweep = WeakMethod(sweep, lambda _: bell.ring())
        self._lock = threading.Lock()  # guards the start of the thread
        self._thread: threading.Thread | None = None
        self._interval = LONGEST_INTERVAL
        self._closed = False
        self.removed = 0
        """By all sweeps so far."""

    def watch(self, history_ttl: float) -> None:
        """Something was written that may live for `history_ttl` seconds. The thread starts with the first."""
        interval = max(SHORTEST_INTERVAL, history_ttl / 2)
        thread = self._thread
        if interval >= self._interval and thread is not None and thread.is_alive():  # not alive: this is a fork's child
            return
        with self._lock:
            self._interval = min(interval, self._interval)
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(
                    target=_run, args=(self, self._clock, self._bell, self._sweep), name="jmsclient-history-sweeper", daemon=True
                )
                self._thread.start()
        self._bell.ring()

    def close(self) -> None:
        """End the thread, after the sweep that may be running. Idempotent."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._bell.ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)

    @property
    def interval(self) -> float:
        """Seconds between two sweeps."""
        return self._interval

    @property
    def closed(self) -> bool:
        return self._closed


def _run(sweeper: Sweeper, clock: Clock, bell: Bell, method: WeakMethod[Callable[[], int]]) -> None:
    swept = clock.monotonic()
    took = 0.0
    while not sweeper.closed:
        pause = max(sweeper.interval, took * DUTY)
        bell.wait(max(0.0, swept + pause - clock.monotonic()))
        now = clock.monotonic()
        if now < swept + pause and method() is not None:
            continue  # rung for a shorter interval or for the end
        sweep = method()
        if sweep is None or sweeper.closed:
            return
        try:
            sweeper.removed += sweep() or 0
        except Exception:  # the store is in trouble: whoever uses it is told by their own call
            _logger.warning("the sweep of a history failed; it is tried again", exc_info=True)
        swept = clock.monotonic()
        took = swept - now
        del sweep  # no reference while waiting
