"""One trigger at work: claim → decide → run → complete → settle, a group at a time, on one thread.

The pipeline thread is the only one that touches the trigger's buffer, history and timers. It takes as many messages as handlers
are free, asks the history once for completions and next claims together, settles, hands work to the handlers and collects
results; a completion never waits for a next message. Source: architecture.md "Triggers"; rules TR-28, TR-37, TR-57, TR-59,
TR-61, TR-62, TR-66, TR-67.

Every delivery is at any time in exactly one of these: the buffer (or the history, as a parked copy), `_claiming` (the history is
asked), the desk's `running`, `_held` (decided again later), `_late` (it came although demand was taken back), or settled.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError

from jmsclient.errors import ConnectionLostError
from jmsclient.events import wanted
from jmsclient.transport.contract import RETRY
from jmsclient.trigger.desk import QUIET
from jmsclient.trigger.handler_loop import LAST_MOMENT
from jmsclient.trigger.lifetime import Lifetime
from jmsclient.trigger.recording import UnrecordedError
from jmsclient.trigger.work import Work


class Pipeline(Lifetime):
    """The engine of one trigger. `start`, `stop`, `detach` and what is asked of it from any thread; everything else is the pipeline
    thread's."""

    def _run(self) -> None:
        self._turn.acquire()
        if not self._go_on():
            self._handlers.serve()

    def _go_on(self) -> bool:
        """On the thread that has the pipeline, and with it the turn: until it has ended, or (False) another thread has taken it."""
        try:
            while not self._over and not self._ended():
                if not self.step():
                    return False
            if not self._over:
                self._desk.settle()
        except BaseException as error:  # noqa: BLE001  kept in `error`, which stop() reports
            self._broken(error)
        try:
            self._finish()
        finally:
            self._turn.release()
        return True

    def step(self) -> bool:
        """One turn: everything that is due now, one call to the history, then wait for the bell or the next due time. False:
        another thread has taken the pipeline over."""
        if self._intake.ended and not self._desk.detached:
            raise self._intake.closed_error or ConnectionLostError("the provider closed the receiver")
        now = self._clock.monotonic()
        self._desk.heard = wanted("trigger", QUIET)
        self._desk.hears_duplicates = self._desk.heard or wanted("trigger", logging.INFO)
        if self._stopping and not self._desk.stopping:
            self._begin_to_stop()
        self._collect(now)
        self._watch(now)
        self._take(now)
        self._outage.exchange(now)
        self._desk.settle()
        if not self._dispatch():
            return False
        if not self._over and not self._handlers.finished and not self._could_take() and not self._ended():
            if not self._busy:
                self._handlers.rest()
            self._bell.wait(self._pause())
        return True

    def _pause(self) -> float | None:
        """Seconds until something falls due; None: nothing will."""
        due = self._leases.due() + self._retries.due() + self._resolving.due()
        able = not self._in_handler and self._free() > 0  # what nobody is free to take would have this wake up without an end
        due += self._held.due(able=able)
        due += self._outage.due() + self._monitor.due() + self._carrying_out.due() + self._waiting.due()
        if self._cancelled_at is not None:
            due.append(self._cancelled_at + LAST_MOMENT)
        elif self._stopping and self._stop_deadline is not None:
            due.append(self._stop_deadline)
        return max(0.0, min(due) - self._clock.monotonic()) if due else None

    def _stand_in_turn(self) -> float | None:
        """What is due while an inline handler runs, on the stand-in's thread; seconds until more is."""
        if not self._in_handler or not self._turn.acquire(blocking=False):
            return None
        try:
            if self._over or not self._in_handler or self._intake.ended != self._desk.detached:
                return None
            now = self._clock.monotonic()
            if self._stopping and not self._desk.stopping:
                self._begin_to_stop()
            self._watch(now)
            self._outage.exchange(now)
            self._desk.settle()
            if self._ended():
                self._finish()
            return self._pause()
        except BaseException as error:  # noqa: BLE001  as in _run
            self._broken(error)
            self._finish()
            return None
        finally:
            self._turn.release()

    # -- taking -----------------------------------------------------------------------------------------------------

    def _take(self, now: float) -> None:
        """As many messages as handlers are free: decided copies and held ones that are due first, then the buffer's."""
        if self._withheld():
            return
        if self._carrying_out and not self._desk.stopping:
            for arrival in self._carrying_out.take(self._free()):
                self._deciding.consider_parked(arrival)
        free = self._free()
        if free > 0:
            self._waiting.ask_again()
        arrivals = self._held.take(now, free)
        if free > len(arrivals) and not self._behind_head():
            arrivals += self._waiting.stamped(self._intake.take(free - len(arrivals)))
        if self._desk.stopping:  # what is not taken came although demand was taken back
            self._late += [arrival for arrival in arrivals if not arrival.settled]
            arrivals = [arrival for arrival in arrivals if arrival.settled]
        self._deciding.consider(arrivals)

    def _free(self) -> int:
        """Handlers that could take one more message."""
        declaration = self.declaration
        if declaration.serial:
            for work in self._desk.running.values():
                if work.error is not None or work.copying:
                    return 0  # it keeps its order: the one that failed may be tried again, or go back
        if declaration.batch > 1:
            calls = max(0, declaration.concurrency - self._busy)
            return calls * declaration.batch - len(self._ready) - len(self._claiming)
        capacity = declaration.concurrency * declaration.micro_batch
        return capacity - self._busy - len(self._ready) - len(self._claiming)

    def _withheld(self) -> bool:
        """Nothing is taken while suspended; a stop still runs what was taken ahead."""
        return self._suspension.withheld and not self._desk.stopping

    def _behind_head(self) -> bool:
        """A serial trigger waits behind the message it holds, or is about to give back (TR-62, TR-67)."""
        return self.declaration.serial and (self._desk.head_back or len(self._held) > 0)

    def _could_take(self) -> bool:
        """Another turn would take a message: what this turn took was settled without a handler."""
        if self._withheld() or self._free() <= 0:
            return False
        buffered = self._intake.buffered > 0 and not self._behind_head()
        return buffered or (bool(self._carrying_out) and not self._desk.stopping)

    # -- results of handlers and resolvers --------------------------------------------------------------------------

    def _collect(self, now: float) -> None:
        finished = self._handlers.finished
        well: list[Work] = []
        number = 0
        while finished:
            item = finished.popleft()
            number += 1
            if isinstance(item, Work) and item.error is None and not item.given_up and item.question is None:  # as nearly all
                well.append(item)
                continue
            self._ended_well(well)
            well = []
            for work in (item,) if isinstance(item, Work) else item.works:
                self._ended_as(work)
        self._ended_well(well)
        self._busy -= number
        if not self._busy:
            self._handlers.all_back()

    def _ended_well(self, works: list[Work]) -> None:
        if works:
            self._finished += len(works)
            self._desk.complete_all(works)

    def _ended_as(self, work: Work) -> None:
        if work.given_up:
            self._resolving.answered(work)
        elif self._cancelled_at is not None and isinstance(work.error, CancelledError):
            self._unfinished += 1
            self._desk.tell("cancelled", work, logging.WARNING, "was cancelled at the end of the grace period: given back")
            self._desk.give_back(work, RETRY)
        elif work.question is not None:
            self._resolving.answered(work)
        elif isinstance(work.error, UnrecordedError):
            self._unrecorded(work, work.error)
        elif work.error is not None:
            self._failed(work, work.error)
        else:
            self._ended_well([work])

    def _unrecorded(self, work: Work, error: UnrecordedError) -> None:
        """Its handler's transaction is rolled back, or in doubt: the message comes again, and then the entry says which (TR-36)."""
        self._finished += 1
        if error.lease_lost:
            self._desk.lease_lost(work)
            return
        self._desk.tell("not_recorded", work, logging.ERROR, f"ran in a transaction that failed: {error}", error=error.__cause__)
        self._failing.redeliver(work, error)

    def _failed(self, work: Work, error: BaseException) -> None:
        if (self._transacted and self._failing.transaction_failed(work, error)) or self._failing.send_in_doubt(work, error):
            self._finished += 1
        elif not self._retries.plan(work, error):
            self._finished += 1
            self._failing.failed(work, error)

    # -- what falls due ---------------------------------------------------------------------------------------------

    def _watch(self, now: float) -> None:
        """Whatever the time has come for."""
        self._do_what_is_asked()
        self._copies.watch()
        self._monitor.watch(now)
        self._leases.watch(now)
        self._retries.watch(now)
        self._resolving.watch(now)
        self._carrying_out.watch(now)
        self._waiting.watch(now)
        self._held.watch(now, withheld=self._withheld(), may_ask=not self._stopping and not self._suspension)

    # -- settling and starting --------------------------------------------------------------------------------------

    def _dispatch(self) -> bool:
        """Start what is ready. False: on this thread, and meanwhile another has taken the pipeline over."""
        if not self._ready:
            return True
        ready = self._ready.copy()
        self._ready.clear()
        shown = [work.arrival for work in ready if work.question is None and not work.retries and work.parked is None]
        self._intake.handing_over(shown)
        items = self._handlers.items(ready)
        self._busy += len(items)
        if self._handlers.quick:
            return self._handlers.run_here(items)
        if not self._handlers.inline:
            self._handlers.start(items)
            return True
        self._in_handler = True
        self._turn.release()
        try:
            self._handlers.start(items)
        finally:
            self._turn.acquire()
            self._in_handler = False
        return True
