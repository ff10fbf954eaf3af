"""What DUPS_OK has handed over and not acknowledged yet: one settlement for many (IF-39).

An exception from a signal handler may strike between any two steps; the next flush completes what it left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from jmsclient.clock import Clock
from jmsclient.jms.acknowledgement import settle_by_receiver
from jmsclient.transport.contract import ACCEPT, Arrival

GATHER_TIME = 0.05
"""Seconds that DUPS_OK gathers acknowledges at most (IF-39)."""


class Gathered:
    """DUPS_OK: acknowledges of one consumer that wait to go out together (IF-39). `limit` in messages. `later(due, call)` is how
    the keeper is asked to flush what is due.

    One thread adds, any thread flushes, one at a time: two would settle the same messages twice, and the provider would take the
    second for one that comes too late. The lists are exchanged by plain stores, between which CPython neither switches threads nor
    runs signal handlers; what a struck flush leaves in `_going` goes out with the next one.
    """

    __slots__ = ("__weakref__", "_arrivals", "_clock", "_flushing", "_going", "_later", "_limit", "_timed")

    def __init__(self, limit: int, clock: Clock, later: Callable[[float, Callable[[], object]], None]) -> None:
        self._limit = max(1, limit)
        self._clock = clock
        self._later = later
        self._arrivals: list[Arrival] = []
        self._going: list[Arrival] = []
        self._timed = False
        self._flushing = threading.RLock()  # guards `_going`; a signal handler may flush while its thread does

    def add(self, arrival: Arrival) -> None:
        """Acknowledge it soon: at once where the limit is reached, else within `GATHER_TIME`."""
        self._arrivals.append(arrival)
        if len(self._arrivals) >= self._limit:
            self.flush()
        elif not self._timed:
            self._later(self._clock.monotonic() + GATHER_TIME, self._due)
            self._timed = True  # after the call: struck in between, it is asked for twice, which does no harm

    def _due(self) -> None:
        self._timed = False
        self.flush()

    def flush(self) -> None:
        """Hand every acknowledge over to the provider."""
        with self._flushing:
            self._flush()

    def _flush(self) -> None:
        while self._arrivals or self._going:
            if not self._going:
                fresh: list[Arrival] = []
                self._going, self._arrivals = self._arrivals, fresh
            going = self._going
            if going:
                settle_by_receiver(going, ACCEPT)
                if self._going is going:
                    self._going = []

    def __len__(self) -> int:
        return len(self._arrivals) + len(self._going)
