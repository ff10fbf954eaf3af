"""Retries in place: a handler raised TransientError, and the same work is to be tried again before its message is settled.

Before the pause the entry becomes `retrying` with its lease kept, so that a copy elsewhere waits, and a worker that dies here
leaves a message that is New, not In Doubt; the next attempt claims it again by the same token. A stop interrupts the pause: the
message goes back as planned redelivery. Touched by the pipeline thread only. Rules TR-45, TR-46, TR-57.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from datetime import timedelta

from jmsclient.errors import TransientError, in_words
from jmsclient.history.entries import Reply, State
from jmsclient.trigger.desk import Desk
from jmsclient.trigger.leases import Leases
from jmsclient.trigger.work import Work

TOGETHER = 0.001
"""Seconds: what is due within them is run together, so that a batch stays one."""


class Retries:
    """`start` has work run again; `redeliver` gives it back as a planned redelivery because of an error;
    `suspend` suspends the trigger, with a text that says why.

    `Work.retry_at` is when a pause is over: None where work does not wait for a retry, infinite while the history is asked.
    """

    def __init__(
        self,
        desk: Desk,
        leases: Leases,
        *,
        start: Callable[[Work], None],
        redeliver: Callable[[Work, BaseException], None],
        suspend: Callable[[str], None],
    ) -> None:
        self._desk = desk
        self._leases = leases
        self._start = start
        self._redeliver = redeliver
        self._suspend = suspend
        self._most = desk.declaration.max_retries

    def waiting(self) -> list[Work]:
        """What is between two attempts."""
        if not self._most:
            return []
        return [work for work in self._desk.running.values() if work.retry_at is not None]

    def due(self) -> list[float]:
        return [work.retry_at for work in self.waiting() if work.retry_at is not None]

    def plan(self, work: Work, error: BaseException) -> bool:
        """Plan a retry, or the redelivery that stands for it where the trigger stops, or suspends with all retries used up.
        False: `error` is to be handled as any other."""
        if not isinstance(error, TransientError):
            return False
        desk = self._desk
        used_up = work.retries >= self._most
        if used_up and desk.declaration.on_retry_failure == "throw":
            return False
        if used_up or desk.stopping:
            self._redeliver(work, error)
            if used_up and not desk.stopping:
                self._suspend(in_words(error))
            return True
        work.retries += 1
        work.retry_at = math.inf
        work.renew_until = None
        desk.counters.retrying += 1
        pause = _pause(error, desk.declaration.retry_interval)
        text = f"failed for now ({in_words(error)}): retry {work.retries} of {self._most} in {pause:g} s"
        desk.tell("retrying", work, logging.WARNING, text, error=error)

        def wait() -> None:
            work.retry_at = desk.clock.monotonic() + pause

        desk.release(work, State.RETRYING, wait, lease=desk.declaration.lease)
        return True

    def watch(self, now: float) -> None:
        """Begin the attempts that are due."""
        for work in self.waiting():
            if work.retry_at is not None and work.retry_at <= now + TOGETHER:
                if work.claimed:
                    work.retry_at = math.inf
                    self._claim(work, take_over=False)
                else:
                    work.attempt += 1
                    self._run(work)

    def interrupt(self) -> None:
        """The trigger stops: what waits goes back, to be New again."""
        for work in self.waiting():
            assert work.error is not None
            self._redeliver(work, work.error)

    def _claim(self, work: Work, *, take_over: bool) -> None:
        desk = self._desk
        assert desk.ledger is not None
        # Not confirmed, it is asked again: the token is the one that this work has had all along.
        desk.ledger.add(desk.asking.claim(work, take_over=take_over, despite_loss=take_over), work, self._claimed)

    def _claimed(self, work: Work, reply: Reply) -> None:
        if reply.done:
            work.attempt += 1
            self._leases.begin(work, reply)
            if not self._desk.stopping:
                self._run(work)
        elif reply.entry is None:  # the store lost it and is cautious; but this run of it is known to have ended
            self._claim(work, take_over=True)
        else:
            self._desk.lease_lost(work)

    def _run(self, work: Work) -> None:
        work.retry_at = None
        work.error = None
        work.started = self._desk.clock.monotonic()
        self._start(work)


def _pause(error: TransientError, retry_interval: float) -> float:
    """Seconds; the error's own where it says any. It is the application's, so it may say anything."""
    own: object = error.retry_after
    if isinstance(own, timedelta):
        own = own.total_seconds()
    if isinstance(own, bool) or not isinstance(own, int | float) or not math.isfinite(own):
        return retry_interval
    return max(0.0, own)
