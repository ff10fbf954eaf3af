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
import threading
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jmsclient.clock import Bell, Clock
from jmsclient.destination import Destination, ReadAheadClosePolicy
from jmsclient.errors import ConnectionLostError, JmsClientError
from jmsclient.events import emit, wanted
from jmsclient.intake import Intake
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import RELEASE, RETRY, Arrival
from jmsclient.trigger.carrying_out import CarryingOut
from jmsclient.trigger.counters import Counters
from jmsclient.trigger.deciding import Deciding
from jmsclient.trigger.declaration import Declaration
from jmsclient.trigger.desk import QUIET, Desk
from jmsclient.trigger.failing import SendCopy
from jmsclient.trigger.handlers import LAST_MOMENT, Call, Handlers, Send
from jmsclient.trigger.holding import Held
from jmsclient.trigger.leases import Leases
from jmsclient.trigger.monitor import REASON as RETRY_FAILURE
from jmsclient.trigger.monitor import Monitor
from jmsclient.trigger.recording import UnrecordedError
from jmsclient.trigger.retry import Retries
from jmsclient.trigger.stand_in import StandIn
from jmsclient.trigger.suspension import APPLICATION, Suspension
from jmsclient.trigger.transaction import Transaction
from jmsclient.trigger.work import Work

MOVED_ON_PAUSE = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerReport:
    """What became of a trigger's messages when it stopped. `unfinished` handlers outlasted the grace period: their messages are
    not acknowledged and come back."""

    trigger: str
    finished: int
    released: int
    discarded: int
    unfinished: int

    @classmethod
    def of_all(cls, reports: Sequence[TriggerReport]) -> TriggerReport:
        """The sum of those of one trigger."""
        return cls(
            trigger=reports[0].trigger,
            finished=sum(one.finished for one in reports),
            released=sum(one.released for one in reports),
            discarded=sum(one.discarded for one in reports),
            unfinished=sum(one.unfinished for one in reports),
        )


def _nobody(_: str) -> None:
    """There is no other lane to tell."""


class Pipeline:
    """The engine of one trigger. `start` and `stop` from any thread; everything else is the pipeline thread's."""

    def __init__(
        self,
        declaration: Declaration,
        *,
        call: Call,
        send: Send,
        send_copy: SendCopy,
        capabilities: Capabilities,
        clock: Clock,
        worker: str,
        bell: Bell,
        intake: Intake,
        on_failed: Callable[[], None],
        on_recovered: Callable[[], None] | None = None,
        provider_error_destination: Destination | None = None,
        counters: Counters | None = None,
        transaction: Transaction | None = None,
        on_suspended: Callable[[str], None] = _nobody,
        on_set_completed: Callable[[], None] | None = None,
        carries_out: bool = True,
        stand_in: StandIn | None = None,
    ) -> None:
        """`call` runs the handler, `send` what it gathered, `send_copy` a dead-lettered copy; `bell` is rung by the intake;
        `on_failed` is called when the pipeline ended without being told to (`error` says why), `on_recovered` when the monitor
        said True (default: `resume`); `counters` go on from an earlier pipeline's; `transaction`
        is the lane's, `on_suspended` is told why where used-up retries suspend it,
        `on_set_completed` that a set of its join may be complete; `carries_out`: it looks for decided copies;
        `stand_in` stands in while a handler runs on its own thread (None: handlers have threads of their own)."""
        self.declaration = declaration
        self.error: BaseException | None = None
        self._clock = clock
        self._bell = bell
        self._intake = intake
        self._on_failed = on_failed
        self._ready: list[Work] = []
        self._desk = Desk(declaration, intake, clock, counters)
        self._held = Held(self._desk)
        self._carrying_out = CarryingOut(self._desk, looks=carries_out)
        self._leases = Leases(self._desk)
        self._suspension = Suspension(self._desk)
        self._desk.around_head = self._suspension.around
        self._monitor = Monitor(self._desk, self._suspension, bell, recovered=on_recovered or (lambda: self.resume("monitor")))
        self._deciding = Deciding(
            self._desk,
            self._held,
            self._leases,
            self._suspension,
            start=self._ready.append,
            suspend=self._suspend,
            send_copy=send_copy,
            capabilities=capabilities,
            provider_error_destination=provider_error_destination,
            worker=worker,
            set_completed=on_set_completed or self.look,
        )
        self._claiming = self._deciding.claiming
        self._outage = self._deciding.outage
        self._failing = self._deciding.failing
        self._resolving = self._deciding.resolving
        self._retries = Retries(
            self._desk,
            self._leases,
            start=self._ready.append,
            redeliver=self._failing.redeliver,
            suspend=self._suspend,
            worker=worker,
        )
        self._stand_in = stand_in
        may_be_inline = stand_in is not None and transaction is None
        self._handlers = Handlers(declaration, call, send, bell, transaction, may_be_inline=may_be_inline)
        self._turn = threading.Lock()  # held by whoever takes a turn: the pipeline's thread, but for inline handlers; the stand-in
        self._in_handler = False
        self._over = False
        self._stopped = clock.bell()
        self._transacted = transaction is not None
        self._on_suspended = on_suspended
        if transaction is not None:
            self._desk.commit = transaction.settle_now
        self._thread = threading.Thread(target=self._run, name=f"jmsclient-{declaration.name}-pipeline", daemon=True)
        self._busy = 0
        self._late: list[Arrival] = []
        self._stopping = False
        self._lingers = False
        self._gone = clock.bell()
        self._asked: deque[tuple[str, str]] = deque()
        self._stop_deadline: float | None = None
        self._cancelled_at: float | None = None
        self._unfinished = 0
        self._finished = 0
        self._finished_at_stop = 0
        self._released_at_stop = 0
        self._discarded_at_stop = 0

    @property
    def counters(self) -> Counters:
        """TR-65."""
        return self._desk.counters

    @property
    def suspended(self) -> str | None:
        """Why it takes no messages now; None: it does."""
        return self._suspension.reason

    @property
    def busy(self) -> int:
        """Messages that handlers have now."""
        return len(self._desk.running)

    def deadline(self, timeout: float) -> float | None:
        """So many seconds from now, on this pipeline's clock."""
        return self._clock.deadline(timeout)

    @property
    def alive(self) -> bool:
        """Its thread runs."""
        return self._thread.is_alive() and not self._over

    # -- from any thread --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._handlers.begin()
        self._thread.start()
        if self._handlers.inline and self._stand_in is not None:
            self._stand_in.add(self._stand_in_turn, self.declaration.lease / 6)

    def _ring(self) -> None:
        """There is something to do, whoever does it now."""
        self._bell.ring()
        if self._in_handler and self._stand_in is not None:
            self._stand_in.ring()

    def stop(self, deadline: float | None) -> None:
        """Begin to stop: no new handler starts (but for taken messages under DELIVER_ALL); running ones have until `deadline`
        (monotonic; None: no limit). May be called again, also from a signal handler; the earliest deadline holds."""
        self._lingers = False
        self._begin_stop(deadline)

    def detach(self, deadline: float | None) -> None:
        """Begin to stop, but outlive `deadline`: then the receiver is closed and the provider has everything back, while handlers
        that still run keep their leases, and their `complete` counts (TR-61). `wait_until_gone` returns when that is so."""
        self._lingers = True
        self._begin_stop(deadline)

    def wait_until_gone(self) -> bool:
        """After `detach`: until nothing runs any more, or its deadline; True if handlers still run."""
        self._gone.wait()
        self._gone.ring()  # for whoever else waits
        return bool(self._desk.running) and self.alive

    def _begin_stop(self, deadline: float | None) -> None:
        earlier = self._stop_deadline
        if earlier is None or (deadline is not None and deadline < earlier):
            self._stop_deadline = deadline
        self._stopping = True
        self._ring()

    def suspend(self, actor: str) -> None:
        """Fetch nothing from now on; what is buffered is still run (TR-59)."""
        self._asked.append(("suspend", actor))
        self._ring()

    def look(self) -> None:
        """Look for decided copies at once."""
        self._asked.append(("look", ""))
        self._ring()

    def suspend_too(self, why: str) -> None:
        """Retries are used up in another lane of the trigger."""
        self._asked.append((RETRY_FAILURE, why))
        self._ring()

    def resume(self, actor: str) -> None:
        """End a suspension that used-up retries or the application began (TR-59); without one, nothing happens."""
        self._asked.append(("resume", actor))
        self._ring()

    def join(self) -> TriggerReport:
        """Wait until it has stopped."""
        if self._thread.ident is not None:
            self._stopped.wait()
            self._stopped.ring()
        if not self._desk.running:
            self._thread.join()
        report = self._intake.close(self._clock.monotonic() + 5.0)
        return TriggerReport(
            trigger=self.declaration.name,
            finished=self._finished - self._finished_at_stop,
            released=self._released_at_stop + report.released,
            discarded=self._discarded_at_stop + report.discarded,
            unfinished=len(self._desk.running) + self._unfinished,
        )

    # -- the loop ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._turn:
            try:
                while not self._over and not self._ended():
                    self.step()
                if not self._over:
                    self._desk.settle()
            except BaseException as error:  # noqa: BLE001  kept in `error`, which stop() reports
                self._broken(error)
            finally:
                self._finish()

    def _broken(self, error: BaseException) -> None:
        self.error = error
        emit(
            "trigger",
            "pipeline_failed",
            f"trigger {self.declaration.name!r} stopped: {type(error).__name__}: {error}",
            level=logging.ERROR,
            trigger=self.declaration.name,
        )

    def _finish(self) -> None:
        """The end, once: by the pipeline's thread, or by the stand-in where that is in a handler which outlasts the grace."""
        if self._over:
            return
        self._over = True
        self._give_back_all()
        if self._stand_in is not None:
            self._stand_in.remove(self._stand_in_turn)
        self._handlers.stop(0.0 if self._desk.running else 1.0)
        self._gone.ring()
        if self.error is not None:
            self._on_failed()
        self._stopped.ring()

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

    def step(self) -> None:
        """One turn: everything that is due now, one call to the history, then wait for the bell or the next due time."""
        if self._intake.ended and not self._desk.detached:
            raise self._intake.closed_error or ConnectionLostError("the provider closed the receiver")
        now = self._clock.monotonic()
        self._desk.heard = wanted("trigger", QUIET)
        if self._stopping and not self._desk.stopping:
            self._begin_to_stop()
        self._collect(now)
        self._watch(now)
        self._take(now)
        self._outage.exchange(now)
        self._desk.settle()
        self._dispatch()
        if not self._over and not self._handlers.finished and not self._could_take() and not self._ended():
            self._bell.wait(self._pause())

    def _ended(self) -> bool:
        if not self._stopping:
            return False
        if self._stop_deadline is not None and self._clock.monotonic() >= self._stop_deadline:
            if not self._lingers:
                return self._past_the_grace(self._clock.monotonic())
            self._close_receiver()
        waiting = (self._desk.ledger is not None and self._desk.ledger.pressing) or self._intake.buffered > 0
        return self._desk.stopping and not self._desk.running and not self._claiming and not waiting

    def _close_receiver(self) -> None:
        """The grace is over and a handler still runs: the provider gets everything back, the handler goes on."""
        self._stop_deadline = None
        self._desk.settle()
        report = self._intake.close(self._clock.monotonic() + 5.0)
        self._released_at_stop += report.released
        self._discarded_at_stop += report.discarded
        self._desk.detached = True
        self._gone.ring()

    def _past_the_grace(self, now: float) -> bool:
        """Async handlers are cancelled, and have a last moment to come back in. True when that is over."""
        if self._cancelled_at is None:
            self._cancelled_at = now
            self._handlers.cancel()
        waiting = self._handlers.cancellable or self._handlers.finished
        return not waiting or now >= self._cancelled_at + LAST_MOMENT

    def _pause(self) -> float | None:
        """Seconds until something falls due; None: nothing will."""
        due = self._leases.due() + self._retries.due() + self._resolving.due() + self._held.due()
        due += self._outage.due() + self._monitor.due() + self._carrying_out.due()
        if self._cancelled_at is not None:
            due.append(self._cancelled_at + LAST_MOMENT)
        elif self._stopping and self._stop_deadline is not None:
            due.append(self._stop_deadline)
        return max(0.0, min(due) - self._clock.monotonic()) if due else None

    # -- taking -----------------------------------------------------------------------------------------------------

    def _take(self, now: float) -> None:
        """As many messages as handlers are free: decided copies and held ones that are due first, then the buffer's."""
        if self._withheld():
            return
        if self._carrying_out and not self._desk.stopping:
            for arrival in self._carrying_out.take(self._free()):
                self._deciding.consider_parked(arrival)
        free = self._free()
        arrivals = self._held.take(now, free)
        if free > len(arrivals) and not self._behind_head():
            arrivals += self._intake.take(free - len(arrivals))
        for arrival in arrivals:
            if self._desk.stopping and not arrival.settled:  # it came although demand was taken back
                self._late.append(arrival)
            else:
                self._deciding.consider(arrival)

    def _free(self) -> int:
        """Handlers that could take one more message."""
        declaration = self.declaration
        if declaration.serial and any(work.error is not None for work in self._desk.running.values()):
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
        """A serial trigger waits behind the message it holds (TR-67)."""
        return self.declaration.serial and len(self._held) > 0

    def _could_take(self) -> bool:
        """Another turn would take a message: what this turn took was settled without a handler."""
        if self._withheld() or self._free() <= 0:
            return False
        buffered = self._intake.buffered > 0 and not self._behind_head()
        return buffered or (bool(self._carrying_out) and not self._desk.stopping)

    def _suspend(self, why: str) -> None:
        self._suspension.begin(RETRY_FAILURE, f"retries are used up ({why})")
        self._on_suspended(why)

    # -- results of handlers and resolvers --------------------------------------------------------------------------

    def _collect(self, now: float) -> None:
        finished = self._handlers.finished
        while finished:
            item = finished.popleft()
            self._busy -= 1
            if isinstance(item, Work):
                self._ended_as(item)
            else:
                for work in item.works:
                    self._ended_as(work)

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
            self._finished += 1
            self._desk.complete(work, "done")

    def _unrecorded(self, work: Work, error: UnrecordedError) -> None:
        """Its handler's transaction is rolled back, or in doubt: the message comes again, and then the entry says which (TR-36)."""
        self._finished += 1
        if error.lease_lost:
            self._desk.lease_lost(work)
            return
        self._desk.tell("not_recorded", work, logging.ERROR, f"ran in a transaction that failed: {error}", error=error.__cause__)
        self._failing.redeliver(work, error)

    def _failed(self, work: Work, error: BaseException) -> None:
        if self._transacted and self._failing.transaction_failed(work, error):
            self._finished += 1
        elif not self._retries.plan(work, error):
            self._finished += 1
            self._failing.failed(work, error)

    # -- what falls due ---------------------------------------------------------------------------------------------

    def _watch(self, now: float) -> None:
        """Whatever the time has come for."""
        while self._asked:
            what, actor = self._asked.popleft()
            if what == RETRY_FAILURE:
                self._suspension.begin(RETRY_FAILURE, f"retries are used up in another of its lanes ({actor})")
            elif what == "look":
                self._carrying_out.look_now()
            elif what == "suspend":
                self._suspension.begin(APPLICATION, f"says the {actor}", actor=actor)
            else:
                for reason in (RETRY_FAILURE, APPLICATION):
                    self._suspension.end(reason, f"says the {actor}", actor=actor)
        self._monitor.watch(now)
        self._leases.watch(now)
        self._retries.watch(now)
        self._resolving.watch(now)
        self._carrying_out.watch(now)
        held = self._held.due()
        if held and held[0] <= now and not self._stopping and not self._suspension:
            self._intake.start()

    # -- settling and starting --------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        if not self._ready:
            return
        ready = self._ready.copy()
        self._ready.clear()
        shown = [work.arrival for work in ready if work.question is None and not work.retries and work.parked is None]
        self._intake.handing_over(shown)
        if not self._handlers.inline:
            self._busy += self._handlers.start(ready)
            return
        self._in_handler = True
        self._turn.release()
        try:
            self._busy += self._handlers.start(ready)
        finally:
            self._turn.acquire()
            self._in_handler = False

    # -- stopping ---------------------------------------------------------------------------------------------------

    def _begin_to_stop(self) -> None:
        """No more demand; kept messages go back uncounted; taken ones are run first under DELIVER_ALL (RA-16, TR-67)."""
        self._desk.stopping = True
        self._retries.interrupt()
        self._finished_at_stop = self._finished
        self._released_at_stop += len(self._held) + self._suspension.withhold()
        self._intake.settle(self._held.take_all(), RELEASE)
        policy = self.declaration.destination.read_ahead_close_policy
        if policy is ReadAheadClosePolicy.DELIVER_CURRENT:
            self._discarded_at_stop += self._intake.discard_taken()

    def _give_back_all(self) -> None:
        """The last word on every delivery this pipeline still has, whatever ended it (TR-66). Those that still run are left to
        the close of the receiver, which counts them."""
        try:
            self._desk.settle()
            unstarted = [work.arrival for work in (*self._claiming.values(), *self._ready)]
            unstarted += self._held.take_all() + self._late
            if unstarted:
                self._intake.settle(unstarted, RELEASE)
        except JmsClientError as error:
            emit("trigger", "give_back_failed", f"trigger {self.declaration.name!r}: {error}", level=logging.ERROR)
