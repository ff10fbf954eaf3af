"""One trigger at work: claim → decide → run → complete → settle, a group at a time, on one thread.

The pipeline thread is the only one that touches the trigger's buffer, history and timers. It takes as many messages as handlers
are free, asks the history once for completions and next claims together, settles, hands work to the handlers and collects
results; a completion never waits for a next message. Source: architecture.md "Triggers"; rules TR-28 to TR-46, TR-49, TR-50,
TR-58, TR-66, TR-67.

Every delivery is at any time in exactly one of these: the buffer, `_claiming`, the desk's `running`, `_held` (decided again
later), `_late` (it came although demand was taken back), or settled.
"""

from __future__ import annotations

import logging
import threading
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import dataclass, replace

from jmsclient.clock import Bell, Clock
from jmsclient.destination import Destination, ReadAheadClosePolicy
from jmsclient.errors import ConnectionLostError, IllegalStateError, JmsClientError, MessageFormatError
from jmsclient.events import emit
from jmsclient.history.contract import new_token, stored_id
from jmsclient.history.entries import Claim, Reply, State
from jmsclient.intake import Intake
from jmsclient.message import Content, Message
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import RELEASE, RETRY, Arrival
from jmsclient.trigger.counters import Counters
from jmsclient.trigger.decision import (
    AskResolver,
    Decision,
    Duplicate,
    InDoubt,
    InProgress,
    New,
    classify,
)
from jmsclient.trigger.declaration import Declaration
from jmsclient.trigger.desk import Desk
from jmsclient.trigger.failing import Failing, SendCopy
from jmsclient.trigger.handlers import LAST_MOMENT, Call, Handlers, Send
from jmsclient.trigger.holding import Held
from jmsclient.trigger.in_doubt import InDoubtMessages
from jmsclient.trigger.leases import Leases
from jmsclient.trigger.monitor import REASON as RETRY_FAILURE
from jmsclient.trigger.monitor import Monitor
from jmsclient.trigger.outage import Outage
from jmsclient.trigger.resolving import Resolving
from jmsclient.trigger.retry import Retries
from jmsclient.trigger.suspension import Suspension
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
    ) -> None:
        """`call` runs the handler, `send` what it gathered, `send_copy` a dead-lettered copy; `bell` is rung by the intake;
        `on_failed` is called when the pipeline ended without being told to (`error` says why), `on_recovered` when the monitor
        said True (default: `resume`)."""
        self.declaration = declaration
        self.error: BaseException | None = None
        self._delayed_release = capabilities.delayed_release
        self._clock = clock
        self._worker = worker
        self._bell = bell
        self._intake = intake
        self._on_failed = on_failed
        self._claiming: dict[str, Work] = {}
        self._ready: list[Work] = []
        self._desk = Desk(declaration, intake, clock)
        self._held = Held(self._desk)
        self._leases = Leases(self._desk)
        self._suspension = Suspension(self._desk)
        self._outage = Outage(self._desk, self._suspension, decided=self._decided)
        self._monitor = Monitor(self._desk, self._suspension, bell, recovered=on_recovered or (lambda: self.resume("monitor")))
        self._in_doubt = InDoubtMessages(self._desk, run=self._new, moved_on=self._moved_on)
        self._failing = Failing(
            self._desk,
            send_copy=send_copy,
            error_destination=declaration.error_destination or provider_error_destination,
            rejects=capabilities.reject == "dead_letter",
            park=self._in_doubt.park,
        )
        self._retries = Retries(
            self._desk,
            self._leases,
            start=self._ready.append,
            redeliver=self._failing.redeliver,
            suspend=self._suspend,
            worker=worker,
        )
        self._resolving = Resolving(
            self._desk,
            start=self._ready.append,
            claim=lambda work: self._claim(work, take_over=True),
            decided=self._decided,
            in_doubt=lambda work, reason: self._in_doubt.carry_out(work, reason, self._failing),
            suspend=self._suspend,
        )
        self._handlers = Handlers(declaration, call, send, bell)
        self._thread = threading.Thread(target=self._run, name=f"jmsclient-{declaration.name}-pipeline", daemon=True)
        self._busy = 0
        self._late: list[Arrival] = []
        self._stopping = False
        self._resumed_by: str | None = None
        self._stop_deadline: float | None = None
        self._cancelled_at: float | None = None
        self._unfinished = 0
        self._finished = 0
        self._finished_at_stop = 0
        self._released_at_stop = 0
        self._discarded_at_stop = 0
        self._warned_no_id = False

    @property
    def counters(self) -> Counters:
        """TR-65."""
        return self._desk.counters

    @property
    def suspended(self) -> str | None:
        """Why it takes no messages now; None: it does."""
        return self._suspension.reason

    # -- from any thread --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._handlers.begin()
        self._thread.start()

    def stop(self, deadline: float | None) -> None:
        """Begin to stop: no new handler starts (but for taken messages under DELIVER_ALL); running ones have until `deadline`
        (monotonic; None: no limit). May be called again with an earlier deadline, also from a signal handler."""
        self._stop_deadline = deadline
        self._stopping = True
        self._bell.ring()

    def resume(self, actor: str) -> None:
        """End a suspension that used-up retries began (TR-59); without one, nothing happens."""
        self._resumed_by = actor
        self._bell.ring()

    def join(self) -> TriggerReport:
        """Wait until it has stopped."""
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
        try:
            while not self._ended():
                self.step()
            self._desk.settle()
        except BaseException as error:  # noqa: BLE001  kept in `error`, which stop() reports
            self.error = error
            emit(
                "trigger",
                "pipeline_failed",
                f"trigger {self.declaration.name!r} stopped: {type(error).__name__}: {error}",
                level=logging.ERROR,
                trigger=self.declaration.name,
            )
        finally:
            self._give_back_all()
            self._handlers.stop(0.0 if self._desk.running else 1.0)
            if self.error is not None:
                self._on_failed()

    def step(self) -> None:
        """One turn: everything that is due now, one call to the history, then wait for the bell or the next due time."""
        if self._intake.ended:
            raise self._intake.closed_error or ConnectionLostError("the provider closed the receiver")
        now = self._clock.monotonic()
        if self._stopping and not self._desk.stopping:
            self._begin_to_stop()
        self._collect(now)
        self._watch(now)
        self._take(now)
        self._outage.exchange(now)
        self._desk.settle()
        self._dispatch()
        if not self._handlers.finished and not self._could_take() and not self._ended():
            self._bell.wait(self._pause())

    def _ended(self) -> bool:
        if not self._stopping:
            return False
        if self._stop_deadline is not None and self._clock.monotonic() >= self._stop_deadline:
            return self._past_the_grace(self._clock.monotonic())
        waiting = (self._desk.ledger is not None and self._desk.ledger.pressing) or self._intake.buffered > 0
        return self._desk.stopping and not self._desk.running and not self._claiming and not waiting

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
        due += self._outage.due() + self._monitor.due()
        if self._cancelled_at is not None:
            due.append(self._cancelled_at + LAST_MOMENT)
        elif self._stopping and self._stop_deadline is not None:
            due.append(self._stop_deadline)
        return max(0.0, min(due) - self._clock.monotonic()) if due else None

    # -- taking and claiming ----------------------------------------------------------------------------------------

    def _take(self, now: float) -> None:
        """As many messages as handlers are free: held ones that are due first, then the buffer's."""
        if self._suspension:
            return
        free = self._free()
        arrivals = self._held.take(now, free)
        behind_head = self.declaration.serial and len(self._held) > 0
        if free > len(arrivals) and not behind_head:
            arrivals += self._intake.take(free - len(arrivals))
        for arrival in arrivals:
            if self._desk.stopping and not arrival.settled:  # it came although demand was taken back
                self._late.append(arrival)
            else:
                self._consider(arrival)

    def _free(self) -> int:
        """Handlers that could take one more message."""
        capacity = self.declaration.concurrency * self.declaration.micro_batch
        if self.declaration.serial:
            capacity -= len(self._retries.waiting())  # it keeps its order while one waits
        return capacity - self._busy - len(self._ready) - len(self._claiming)

    def _could_take(self) -> bool:
        """Another turn would take a message: what this turn took was settled without a handler."""
        behind_head = self.declaration.serial and len(self._held) > 0
        return not self._suspension and not behind_head and self._intake.buffered > 0 and self._free() > 0

    def _consider(self, arrival: Arrival) -> None:
        """Claim what is to be checked by the history; decide the rest at once."""
        declaration = self.declaration
        message = Message.received(arrival.content, arrival.delivery_count, _refuse_acknowledge, arrival)
        try:
            key = history_id(arrival.content)
        except MessageFormatError as error:
            work = Work(arrival, message, None, None, new_token())
            self._desk.keep(work)
            self._failing.failed(work, error)
            return
        checked = self._desk.ledger is not None and (arrival.persistent or declaration.non_persistent == "check")
        if checked and key is None:
            self._tell_no_id(message)
        if not checked or key is None:
            work = Work(arrival, message, key[0] if key else None, key[1] if key else None, new_token())
            self._decided(work, self._classify(work, None, has_history=False))
            return
        work = Work(arrival, message, key[0], key[1], new_token())
        self._claim(work, take_over=declaration.options.abandoned == "retry" or declaration.in_doubt == "run")

    def _claim(self, work: Work, *, take_over: bool) -> None:
        assert self._desk.ledger is not None
        if self._outage.decides:
            self._outage.decide(work)
            return
        declaration = self.declaration
        self._claiming[work.token] = work
        command = Claim(
            **self._desk.key(work),
            lease=declaration.lease,
            history_ttl=declaration.history_ttl,
            delivery_count=work.arrival.delivery_count,
            take_over=take_over,
            owner=self._worker,
        )
        self._desk.ledger.add(command, lambda reply: self._claim_answered(work, reply), lambda: self._claim_unanswered(work))

    def _claim_unanswered(self, work: Work) -> None:
        del self._claiming[work.token]
        self._outage.unclaimed(work)

    def _claim_answered(self, work: Work, reply: Reply) -> None:
        del self._claiming[work.token]
        if not reply.done:
            if work.question is not None:  # the resolver said NEW, and somebody else was faster (TR-55)
                work.question = None
                self._decided(work, self._classify(work, reply, has_history=True, has_resolver=False))
            else:
                self._decided(work, self._classify(work, reply, has_history=True))
            return
        self._leases.begin(work, reply)
        if reply.entry is not None and reply.entry.state is State.PROCESSING:
            self._desk.counters.abandoned += 1
        self._decided(work, New(reply.attempt))

    def _classify(self, work: Work, reply: Reply | None, *, has_history: bool, has_resolver: bool | None = None) -> Decision:
        work.entry = reply.entry if reply else None
        return classify(
            work.arrival.delivery_count,
            work.entry,
            has_history=has_history,
            has_resolver=self.declaration.resolver is not None if has_resolver is None else has_resolver,
            cautious=reply.cautious if reply else False,
            retry_abandoned=self.declaration.options.abandoned == "retry",
        )

    # -- carrying the decision out ----------------------------------------------------------------------------------

    def _decided(self, work: Work, decision: Decision) -> None:
        match decision:
            case New():
                self._new(work)
            case Duplicate(unfinished=True):
                work.token = work.entry.token if work.entry else work.token
                work.claimed = True
                self._desk.keep(work)
                self._failing.dead_letter(work, "unfinished", None)
            case Duplicate():
                self._desk.counters.duplicate += 1
                self._desk.tell("duplicate", work, logging.INFO, "was processed before: acknowledged, not run")
                self._desk.accept(work)
            case InDoubt(reason=reason):
                self._in_doubt.carry_out(work, reason, self._failing)
            case InProgress(until=until):
                self._in_progress(work, until)
            case AskResolver():
                self._resolving.ask(work, decision)

    def _new(self, work: Work) -> None:
        self._desk.keep(work)
        if work.arrival.delivery_count > self.declaration.max_deliveries:  # TR-58
            self._desk.tell("delivery_limit", work, logging.ERROR, f"was delivered {work.arrival.delivery_count} times: not run")
            self._failing.dead_letter(work, "delivery_limit", None)
            return
        self._desk.counters.new += 1
        self._desk.tell("new", work, logging.DEBUG, f"is New: attempt {work.attempt}")
        work.question = None
        work.started = self._clock.monotonic()
        self._ready.append(work)

    def _moved_on(self, work: Work, reply: Reply) -> None:
        """The entry changed between decision and parking: decide again, without asking the resolver a second time (TR-56)."""
        decision = self._classify(work, reply, has_history=True, has_resolver=False)
        settled = isinstance(decision, Duplicate | InProgress)
        self._decided(work, decision if settled else InProgress(MOVED_ON_PAUSE))

    def _in_progress(self, work: Work, until: float) -> None:
        self._desk.counters.in_progress += 1
        if self.declaration.in_progress == "in_doubt":
            self._in_doubt.carry_out(work, "in_progress", self._failing)
            return
        delay = min(until, self.declaration.options.in_progress_delay)
        self._desk.drop(work)
        if self._delayed_release and not self.declaration.serial:
            self._desk.leave(work.arrival, replace(RELEASE, delay=delay))
            return
        self._held.add(work.arrival, delay)

    def _suspend(self, why: str) -> None:
        self._suspension.begin(RETRY_FAILURE, f"retries are used up ({why})")

    # -- results of handlers and resolvers --------------------------------------------------------------------------

    def _collect(self, now: float) -> None:
        finished = self._handlers.finished
        while finished:
            work = finished.popleft()
            self._busy -= 1
            if self._cancelled_at is not None and isinstance(work.error, CancelledError):
                self._unfinished += 1
                self._desk.tell("cancelled", work, logging.WARNING, "was cancelled at the end of the grace period: given back")
                self._desk.give_back(work, RETRY)
            elif work.question is not None:
                self._resolving.answered(work)
            elif work.error is not None:
                self._failed(work, work.error)
            else:
                self._finished += 1
                self._desk.complete(work, "done")

    def _failed(self, work: Work, error: BaseException) -> None:
        if not self._retries.plan(work, error):
            self._finished += 1
            self._failing.failed(work, error)

    # -- what falls due ---------------------------------------------------------------------------------------------

    def _watch(self, now: float) -> None:
        """Whatever the time has come for."""
        if self._resumed_by is not None:
            actor, self._resumed_by = self._resumed_by, None
            self._suspension.end(RETRY_FAILURE, f"says the {actor}", actor=actor)
        self._monitor.watch(now)
        self._leases.watch(now)
        self._retries.watch(now)
        self._resolving.watch(now)
        held = self._held.due()
        if held and held[0] <= now and not self._stopping and not self._suspension:
            self._intake.start()

    # -- settling and starting --------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        if not self._ready:
            return
        ready = self._ready.copy()
        self._ready.clear()
        self._intake.handing_over([work.arrival for work in ready if work.question is None and not work.retries])
        self._busy += len(ready)
        self._handlers.start(ready)

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

    # -- telling ----------------------------------------------------------------------------------------------------

    def _tell_no_id(self, message: Message) -> None:
        self._desk.counters.no_id += 1
        if not self._warned_no_id:  # once, not once a message (D05)
            self._warned_no_id = True
            emit(
                "trigger",
                "no_id",
                f"trigger {self.declaration.name!r}: a message has neither a uuid property nor a message id; "
                "such messages are run without duplicate detection",
                level=logging.WARNING,
                trigger=self.declaration.name,
            )


def history_id(content: Content) -> tuple[str, str] | None:
    """The id a history knows a message by, and where it came from (TR-32): the `uuid` property if it is a non-empty scalar,
    else JMSMessageID, else None. Raises MessageFormatError where the properties cannot be decoded."""
    uuid = content.properties().get("uuid")
    if isinstance(uuid, str | int | float) and not isinstance(uuid, bool) and str(uuid).strip():
        return stored_id(str(uuid)), "uuid"
    return (stored_id(content.message_id), "JMSMessageID") if content.message_id else None


def _refuse_acknowledge(message: Message) -> None:
    raise IllegalStateError(f"{message!r}: the trigger acknowledges when its handler has ended (TR-28)")
