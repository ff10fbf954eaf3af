"""The leases of what a trigger runs: begun by a claim, renewed every third of their time while the work is the trigger's own.

Touched by the pipeline thread only. Rules TR-39, TR-40.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from jmsclient.history.entries import Renew, Reply
from jmsclient.trigger.desk import Desk
from jmsclient.trigger.work import Work


class Leases:
    """`Work.renew_at` is when the next renewal is due: None where there is none, infinite while one is under way."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lease = desk.declaration.lease
        self._max_run_time = desk.declaration.options.max_run_time
        self._first = math.inf
        """No renewal is due before; perhaps none is then, for its work has ended."""

    def begin(self, work: Work, reply: Reply) -> None:
        """A claim was made: what the reply says of it, and when it has to be renewed."""
        work.entry = reply.entry
        if reply.attempt > work.attempt:
            work.attempt = reply.attempt
        self.begin_all([work], reply)

    def begin_all(self, works: Sequence[Work], reply: Reply) -> None:
        """Claims were made, all with this reply."""
        now = self._desk.clock.monotonic()
        until, renew_at, fencing_token = now + self._lease, now + self._lease / 3, reply.fencing_token
        for work in works:
            work.claimed = True
            work.fencing_token = fencing_token
            work.lease_until = until
            work.renew_at = renew_at
            work.started = now
        if self._max_run_time is not None:
            for work in works:
                work.renew_until = now + self._max_run_time
        if reply.cautious and reply.entry is None:  # TR-53
            for work in works:
                work.history_lost = True
        self._first = min(self._first, renew_at)

    def watch(self, now: float) -> None:
        """Renew what is due."""
        if now < self._first:
            return
        self._first = math.inf
        for work in self._desk.running.values():
            if work.renew_at is not None:
                if work.renew_at <= now:
                    self._renew(work, now)
                elif work.renew_at < self._first:
                    self._first = work.renew_at

    def due(self) -> list[float]:
        return [] if self._first == math.inf else [self._first]

    def _renew_at(self, work: Work, at: float) -> None:
        work.renew_at = at
        if at < self._first:
            self._first = at

    def _renew(self, work: Work, now: float) -> None:
        if work.renew_until is not None and now >= work.renew_until:
            work.renew_at = None
            return
        desk = self._desk
        assert desk.ledger is not None
        work.renew_at = math.inf

        def answered(work: Work, reply: Reply) -> None:
            if work.renew_at is None:  # it has finished meanwhile
                return
            if not reply.lease_lost:
                work.lease_until = desk.clock.monotonic() + self._lease
                self._renew_at(work, now + self._lease / 3)
                return
            work.renew_at = None
            desk.tell("lease_lost", work, logging.WARNING, "was taken over by another owner while its handler runs")

        desk.ledger.add(Renew(**desk.asking.key(work), lease=self._lease, history_ttl=desk.declaration.history_ttl), work, answered)
