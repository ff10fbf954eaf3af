"""New, Duplicate, In Doubt, in progress: what a delivery is found to be, and the way that leads it (TR-30 to TR-36, TR-58).

A delivery that a history checks is claimed first; what the claim says is decided by `classify` and carried out by the room whose
duty it is. Touched by the pipeline thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from jmsclient.destination import Destination
from jmsclient.errors import IllegalStateError, MessageFormatError
from jmsclient.events import emit
from jmsclient.history.contract import ParkedMessage
from jmsclient.history.entries import KNOWN, Reply, State
from jmsclient.message import Message
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import RELEASE, Arrival
from jmsclient.trigger.copies import Copies
from jmsclient.trigger.decision import AskResolver, Decision, Duplicate, InDoubt, InProgress, New, classify
from jmsclient.trigger.desk import QUIET, Desk
from jmsclient.trigger.failing import Failing
from jmsclient.trigger.holding import Held
from jmsclient.trigger.identity import body_hash, history_id
from jmsclient.trigger.in_doubt import InDoubtMessages
from jmsclient.trigger.joins import Joining, SetContent
from jmsclient.trigger.leases import Leases
from jmsclient.trigger.outage import Outage
from jmsclient.trigger.resolving import Resolving
from jmsclient.trigger.suspension import Suspension
from jmsclient.trigger.work import Work

MOVED_ON_PAUSE = 0.1
AT_ONCE = 64
"""So many are made before their claims go on their way."""


class Deciding:
    """`start` has work run, `start_all` several; `suspend` suspends the trigger, with a text that says why; the rest is what its
    rooms need.

    `claiming` is what waits for the answer to its claim, by token; `outage`, `failing` and `resolving` are those rooms.
    """

    def __init__(
        self,
        desk: Desk,
        held: Held,
        leases: Leases,
        suspension: Suspension,
        *,
        start: Callable[[Work], None],
        start_all: Callable[[Iterable[Work]], None],
        suspend: Callable[[str], None],
        copies: Copies,
        capabilities: Callable[[], Capabilities],
        provider_error_destination: Destination | None,
        set_completed: Callable[[], None],
    ) -> None:
        self.claiming: dict[str, Work] = {}
        self._desk = desk
        self._declaration = desk.declaration
        self._held = held
        self._leases = leases
        self._start = start
        self._start_all = start_all
        self._delays: Callable[[], bool] = lambda: capabilities().delayed_release
        self._warned_no_id = False
        self._new_token = desk.awaited.new_token
        self.outage = Outage(desk, suspension, decided=self.decided)
        self._in_doubt = InDoubtMessages(desk, run=self._new, moved_on=self._moved_on, delays=self._delays)
        self.failing = Failing(
            desk,
            copies=copies,
            error_destination=desk.declaration.error_destination or provider_error_destination,
            rejects=lambda: capabilities().reject == "dead_letter",
            park=self._in_doubt.park,
            later=self._later,
        )
        self.resolving = Resolving(
            desk,
            start=start,
            claim=lambda work: self.claim(work, take_over=True),
            decided=self.decided,
            in_doubt=lambda work, reason: self._in_doubt.carry_out(work, reason, self.failing),
            suspend=suspend,
        )

        spec = desk.declaration.join
        self._joining = (
            Joining(
                desk,
                spec,
                refuse=lambda work, reason: self.failing.dead_letter(work, reason, None),
                in_doubt=lambda work, reason: self._in_doubt.carry_out(work, reason, self.failing),
                failed=self.failing.failed,
                completed=set_completed,
            )
            if spec is not None and spec.gathers
            else None
        )
        declaration = desk.declaration  # looked at once, not once a message
        self._checks_persistent = desk.ledger is not None
        self._checks_all = desk.ledger is not None and declaration.non_persistent == "check"
        self._most = declaration.max_deliveries
        self._body_check = declaration.options.body_check
        self._says_run = declaration.in_doubt == "run"
        self._takes_over = (
            self._joining is not None or declaration.runs_abandoned or self._says_run
        )  # to join twice is to join once

    # -- claiming ---------------------------------------------------------------------------------------------------

    def consider(self, arrivals: Iterable[Arrival]) -> None:
        """Claim what is to be checked by the history, those that are alike together; decide the rest at once."""
        alike: list[Work] = []
        source, count = None, 0
        received, new_token = Message.received, self._new_token
        for arrival in arrivals:
            content, delivery_count = arrival.content, arrival.delivery_count
            message = received(content, delivery_count, _refuse_acknowledge, arrival)
            try:
                key = history_id(content)
            except MessageFormatError as error:
                self._refuse(Work(arrival, message, None, None, new_token()), error)
                continue
            checked = self._checks_all or (self._checks_persistent and arrival.persistent)
            if key is None or not checked:
                id_, source_of_id = key or (None, None)
                self._decide_unclaimed(Work(arrival, message, id_, source_of_id, new_token()), checked=checked)
                continue
            work = Work(arrival, message, key[0], key[1], new_token())
            if self._body_check:
                self._claim_checked(work)
                continue
            if work.source != source or delivery_count != count or len(alike) == AT_ONCE:
                if alike:
                    self._claim_alike(alike)
                alike, source, count = [], work.source, delivery_count
            alike.append(work)
        if alike:
            self._claim_alike(alike)

    def _refuse(self, work: Work, error: BaseException) -> None:
        """It has something that cannot be read, or the application's own function failed."""
        self._desk.keep(work)
        self.failing.failed(work, error)

    def _decide_unclaimed(self, work: Work, *, checked: bool) -> None:
        """Without the history: it is not to be asked, or cannot be, for there is no id."""
        if checked:
            self._tell_no_id(work.message)
            if self._declaration.options.strict:
                self._desk.keep(work)
                self.failing.dead_letter(work, "no_id", None)
                return
        self.decided(work, self._classify(work, None, has_history=False))

    def _claim_checked(self, work: Work) -> None:
        """With what stands for its body (TR-47)."""
        try:
            work.body_hash = body_hash(work.message, self._body_check)
        except BaseException as error:  # noqa: BLE001  a body that cannot be read, or the application's own function
            self._refuse(work, error)
            return
        self.claim(work, take_over=self._takes_over)

    def _claim_alike(self, works: Sequence[Work]) -> None:
        ledger = self._desk.ledger
        assert ledger is not None
        if self.outage.decides:
            for work in works:
                self._undecidable(work)
            return
        asked = self._desk.asking.claims(works, take_over=self._takes_over, despite_loss=self._says_run)
        self.claiming.update(zip(asked.tokens, works, strict=True))
        ledger.add_all(asked, works, self._claims_answered, self._claim_unanswered)

    def consider_parked(self, arrival: Arrival) -> None:
        """A stored copy that somebody decided about: claimed under the id that it is parked with."""
        parked: ParkedMessage = arrival.tag
        message = Message.received(arrival.content, arrival.delivery_count, _refuse_acknowledge, arrival)
        work = Work(arrival, message, parked.id, parked.source, self._new_token())
        work.parked = parked
        if parked.decision == "join":  # a set that is not complete, and has waited long enough
            self._in_doubt.carry_out(work, "join_expired", self.failing)
            return
        self.claim(work, take_over=self._declaration.runs_abandoned)

    def claim(self, work: Work, *, take_over: bool) -> None:
        assert self._desk.ledger is not None
        if self.outage.decides:
            self._undecidable(work)
            return
        self.claiming[work.token] = work
        said_to_run = work.question is not None or self._says_run  # TR-53
        command = self._desk.asking.claim(work, take_over=take_over, despite_loss=said_to_run, decided=work.parked is not None)
        self._desk.ledger.add(command, work, self._claim_answered, self._claim_unanswered)

    def _undecidable(self, work: Work) -> None:
        """Without its history a message is decided as `history_unavailable` says; a stored copy stays where it is."""
        if work.parked is not None:
            self._desk.give_back(work, RELEASE)
        else:
            self.outage.decide(work)

    def _claim_unanswered(self, work: Work) -> None:
        del self.claiming[work.token]
        if work.parked is not None:
            self._desk.give_back(work, RELEASE)
        else:
            self.outage.unclaimed(work)

    def _claims_answered(self, works: Sequence[Work], replies: Sequence[Reply]) -> None:
        """Of works that are alike, most often with one reply for all."""
        reply, desk, claiming = replies[0], self._desk, self.claiming
        one_for_all = replies.count(reply) == len(replies) and self._joining is None
        if one_for_all and reply is KNOWN and not desk.hears_duplicates:
            for work in works:
                del claiming[work.token]
            desk.counters.duplicate += len(works)
            desk.accept_all(works)
            return
        fresh = reply.done and reply.entry is None and works[0].arrival.delivery_count <= self._most
        if not one_for_all or not fresh or desk.heard:
            for work, own in zip(works, replies, strict=True):
                self._claim_answered(work, own)
            return
        running = desk.running
        for work in works:  # as nearly every message
            running[id(work)] = work  # first: another lane may look for it at any time (`Awaited.was_here`)
            del claiming[work.token]
        self._leases.begin_all(works, reply)
        desk.counters.new += len(works)
        self._start_all(works)

    def _claim_answered(self, work: Work, reply: Reply) -> None:
        if reply.done:
            self._desk.running[id(work)] = work  # first: another lane may look for it at any time (`Awaited.was_here`)
        del self.claiming[work.token]
        if reply is KNOWN and work.parked is None:
            work.entry = reply.entry
            self._duplicate(work)
            return
        if not reply.done:
            self._count_abandoned(work, reply)
            if work.parked is not None and reply.entry is None:  # settled, and forgotten, since it was found
                self._desk.give_back(work, RELEASE)
            elif work.question is not None:  # the resolver said NEW, and somebody else was faster (TR-55)
                work.question = None
                self.decided(work, self._classify(work, reply, has_history=True, has_resolver=False))
            else:
                self.decided(work, self._classify(work, reply, has_history=True))
            return
        self._leases.begin(work, reply)
        self._tell_claim(work, reply)
        self._count_abandoned(work, reply)
        if work.parked is not None:
            self._tell_decision(work)
        self.decided(work, New(reply.attempt))

    def _count_abandoned(self, work: Work, reply: Reply) -> None:
        """Its last run has not ended and its lease is over; once a delivery, however that is decided (TR-65)."""
        entry = reply.entry
        if entry is not None and entry.state is State.PROCESSING and not entry.lease_alive and work.question is None:
            self._desk.counters.abandoned += 1

    def _classify(self, work: Work, reply: Reply | None, *, has_history: bool, has_resolver: bool | None = None) -> Decision:
        work.entry = reply.entry if reply else None
        return classify(
            work.arrival.delivery_count,
            work.entry,
            has_history=has_history,
            has_resolver=self._declaration.resolver is not None if has_resolver is None else has_resolver,
            cautious=reply.cautious if reply else False,
            same_transaction=self._declaration.same_transaction,
            retry_abandoned=self._declaration.options.abandoned == "retry" or (self._joining is not None and work.parked is None),
            body_hash=work.body_hash,
        )

    # -- carrying the decision out ----------------------------------------------------------------------------------

    def decided(self, work: Work, decision: Decision) -> None:
        match decision:
            case New():
                self._new(work)
            case Duplicate(unfinished=True) if self.failing.copies(work):  # or two copies would be sent
                self._in_progress(work, self._declaration.options.in_progress_delay)
            case Duplicate(unfinished=True):
                work.token = work.entry.token if work.entry else work.token
                work.claimed = True
                self._desk.keep(work)
                self.failing.dead_letter(work, "unfinished", None)
            case Duplicate() if work.parked is not None and work.entry is not None and work.entry.state is State.IN_DOUBT:
                self._tell_decision(work)
                work.token = work.entry.token
                work.claimed = True
                self._desk.keep(work)
                self._desk.complete(work, "decided: duplicate")
            case Duplicate():
                self._duplicate(work)
            case InDoubt(reason=reason):
                self._in_doubt.carry_out(work, reason, self.failing)
            case InProgress(until=until):
                self._in_progress(work, until)
            case AskResolver():
                self.resolving.ask(work, decision)

    def _duplicate(self, work: Work) -> None:
        self._desk.counters.duplicate += 1
        if self._desk.hears_duplicates:
            self._desk.tell("duplicate", work, logging.INFO, "was processed before: acknowledged, not run")
        self._desk.accept(work)

    def _new(self, work: Work) -> None:
        self._desk.keep(work)
        if work.arrival.delivery_count > self._most and work.parked is None:  # TR-58; unless decided
            self._desk.tell("delivery_limit", work, logging.ERROR, f"was delivered {work.arrival.delivery_count} times: not run")
            self.failing.delivered_too_often(work)
            return
        self._desk.counters.new += 1
        if self._desk.heard:
            text = f"is New: attempt {work.attempt}" + (", the history lost what it may have known" if work.history_lost else "")
            over = work.entry.state.value if work.entry is not None else None  # TR-36: it may have run before, and is run again
            self._desk.tell("new", work, QUIET, text, claimed=work.claimed, history_lost=work.history_lost, over=over)
        if work.question is not None:
            work.question = None
        work.started = self._desk.clock.monotonic()
        if self._joining is not None and not isinstance(work.arrival.content, SetContent):
            self._joining.join(work)
            return
        self._start(work)

    def _moved_on(self, work: Work, reply: Reply) -> None:
        """The entry changed between decision and parking: decide again, without asking the resolver a second time (TR-56)."""
        if work.parked is not None:
            self._desk.give_back(work, RELEASE)
            return
        decision = self._classify(work, reply, has_history=True, has_resolver=False)
        settled = isinstance(decision, Duplicate | InProgress)
        self.decided(work, decision if settled else InProgress(MOVED_ON_PAUSE))

    def _in_progress(self, work: Work, until: float) -> None:
        if work.parked is not None:  # another worker has it
            self._desk.give_back(work, RELEASE)
            return
        self._desk.counters.in_progress += 1
        if self._declaration.in_progress == "in_doubt":
            self._in_doubt.carry_out(work, "in_progress", self.failing)
            return
        delay = min(until, self._declaration.options.in_progress_delay)
        self._desk.tell("in_progress", work, QUIET, f"runs elsewhere: decided again in {delay:.3g} s", delay=delay)
        self._later(work, delay)

    def _later(self, work: Work, delay: float) -> None:
        """Decide it again from the start, so many seconds later (TR-67)."""
        self._desk.drop(work)
        if self._delays() and not self._declaration.serial:
            self._desk.leave(work.arrival, replace(RELEASE, delay=delay))
            return
        self._held.add(work, delay)

    def _tell_claim(self, work: Work, reply: Reply) -> None:
        """What was there before it, and whether the store may have lost what was (TR-53)."""
        if not self._desk.heard:
            return
        over = reply.entry.state.value if reply.entry is not None else None
        self._desk.tell("claimed", work, QUIET, "is claimed", over=over, fencing_token=reply.fencing_token)

    def _tell_decision(self, work: Work) -> None:
        """What is carried out, and who decided it."""
        entry = work.entry
        assert entry is not None
        self._desk.counters.decided += 1
        text = f"was decided to be {entry.decision} by {entry.decided_by}: carried out"
        self._desk.tell("decision", work, logging.INFO, text, answer=entry.decision, by=entry.decided_by)

    def _tell_no_id(self, message: Message) -> None:
        self._desk.counters.no_id += 1
        if not self._warned_no_id:  # once, not once a message (D05)
            self._warned_no_id = True
            fate = "refused" if self._declaration.options.strict else "run without duplicate detection"
            emit(
                "trigger",
                "no_id",
                f"trigger {self._declaration.name!r}: a message has neither a uuid property nor a message id; "
                f"such messages are {fate}",
                level=logging.WARNING,
                trigger=self._declaration.name,
            )


def _refuse_acknowledge(message: Message) -> None:
    raise IllegalStateError(f"{message!r}: the trigger acknowledges when its handler has ended (TR-28)")
