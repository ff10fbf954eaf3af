"""Owns what a settlement does to messages.

Must not know of sessions or threads. All under the broker's lock. Source: the settlement table (states.py), T12 to T15, IF-11 to
IF-14.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from jmsclient.clock import Clock
from jmsclient.transport.contract import RELEASE, RETRY, Arrival, Outcome, Verb
from jmsclient_embedded.aftermath import Aftermath
from jmsclient_embedded.entry import Delivery, Entry, Holder
from jmsclient_embedded.granting import Granting
from jmsclient_embedded.line import Line
from jmsclient_embedded.outlet import Outlet
from jmsclient_embedded.redirecting import Redirecting
from jmsclient_embedded.states import SETTLEMENT, State
from jmsclient_embedded.transaction import Transaction
from jmsclient_embedded.writing import Writing

LIMIT_REASON = "redelivery limit reached"
REJECTED_REASON = "dead-lettered by the consumer"


class Settling:
    """Settlements of a broker's messages."""

    def __init__(self, granting: Granting, writing: Writing, redirecting: Redirecting, clock: Clock, aftermath: Aftermath) -> None:
        self.stale = 0
        """Settlements that came too late and did nothing."""
        self._granting = granting
        self._writing = writing
        self._redirecting = redirecting
        self._clock = clock
        self._aftermath = aftermath
        self.gathered: deque[Arrival] = deque()
        """Accepted, of messages that are not stored, on lines that are lax. Appended to without the lock, by any thread."""

    def accept_gathered(self) -> None:
        """T12 for what was gathered: at the beginning of every step, so that nobody ever sees that it was late.

        Hot path: AUTO pays an append once a message, not a step.
        """
        gathered = self.gathered
        bare: list[Delivery] = []
        live: list[Entry] = []
        last: Holder | None = None
        for _ in range(len(gathered)):
            arrival = gathered.popleft()
            delivery = arrival if type(arrival) is Delivery and arrival.entry is None else None
            owner = delivery.owner if delivery is not None else _owner(arrival)
            if owner is None:
                self._tell_stale(arrival.receiver.outlet, 1)  # type: ignore[attr-defined]  # an embedded receiver
                continue
            if owner is not last:
                _accept(last, bare, live)
                last = owner
            # An exception of a signal handler may have had it handed over twice: then it is nobody's the second time.
            if delivery is not None:
                delivery.owner = None
                bare.append(delivery)
            else:
                arrival.tag.delivery = None
                live.append(arrival.tag)
        _accept(last, bare, live)

    def settle(self, outlet: Outlet, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        """One outcome for these; what is not this delivery any more is skipped, and counted as stale."""
        live: list[Entry] = []
        for arrival in arrivals:
            entry: Entry = arrival.tag
            if entry is not None and entry.delivery is arrival:
                live.append(entry)
            arrival.settled = True
        if len(live) > 1:
            live = list(dict.fromkeys(live))  # whoever names one twice settles it once
        if len(live) < len(arrivals):
            self._tell_stale(outlet, len(arrivals) - len(live))
        transaction = outlet.group.transaction
        if transaction is not None:  # what was acknowledged in it is settled; only its end says how
            live = [entry for entry in live if not transaction.holds(outlet.line, entry)]
        if live:
            self.settle_entries(outlet.line, live, outcome, transaction)

    def settle_entries(self, line: Line, live: list[Entry], outcome: Outcome, transaction: Transaction | None = None) -> None:
        """One outcome for messages that are in `receive`; an accept joins the transaction, where there is one."""
        if outcome.verb is Verb.ACCEPT:
            if transaction is not None:
                transaction.accept(line, live)
            else:
                self._writing.delete(live)
                line.queue.accept(live)
                if not line.lax:
                    self._granting.grant(line)  # the next of a unit of order may have become visible by that (IF-34)
        elif outcome.verb is Verb.DEAD_LETTER:
            self._reject(line, live, outcome)
        else:
            self.give_back(line, live, outcome)

    def pre_settle(self, outlet: Outlet, entries: list[Entry]) -> None:
        """DO-1: they were sent settled, and this is what the consumer said becomes of them."""
        settled = outlet.pre_settled
        assert settled is not None
        assert settled.outcome is not None
        if settled.outcome.verb is Verb.ACCEPT:  # at most once: gone when sent
            self._writing.delete(entries)
            outlet.line.queue.accept(entries)
        else:
            self._put_back(outlet.line, entries, settled.outcome, barred=True)

    def give_back(self, line: Line, entries: list[Entry], outcome: Outcome) -> None:
        """T13 or T14 by the verb, and T15 for those that reached the limit. One that is to be tried again waits as its queue or
        its session says (IF-14)."""
        if entries:
            self._put_back(line, entries, outcome, planned=bool(SETTLEMENT[outcome.verb].counted))
            self._granting.shown(line)

    def call_back(self, line: Line, entries: list[Entry]) -> None:
        """T13 for what nobody has seen, without granting it again: the destination is being paused."""
        self._put_back(line, entries, RELEASE)

    def give_back_together(self, parts: Iterable[tuple[Line, list[Entry], Outcome]], *, planned: bool) -> None:
        """All are back before the first is granted again: the order is the original one."""
        lines: dict[Line, None] = {}
        for line, entries, outcome in parts:
            if entries:
                self._put_back(line, entries, outcome, planned=planned)
                lines[line] = None
        for line in lines:
            self._granting.shown(line)

    def give_back_unsettled(self, holders: Sequence[Holder]) -> None:
        """Their owners are gone: handed over ones are counted (T14), others not (T13); never a delay (IF-14)."""
        parts: list[tuple[Line, list[Entry], Outcome]] = []
        for holder in holders:
            held = holder.entries()
            line = self._granting.lines.get(holder.queue.name)
            if line is not None:
                parts.append((line, [entry for entry in held if entry.delivery.handed_over], RETRY))
                parts.append((line, [entry for entry in held if not entry.delivery.handed_over], RELEASE))
        self.give_back_together(parts, planned=False)

    def _put_back(
        self, line: Line, entries: list[Entry], outcome: Outcome, *, planned: bool = False, barred: bool | None = None
    ) -> None:
        rule = SETTLEMENT[outcome.verb]
        counted = bool(rule.counted)
        if not counted:
            self._writing.unmark(entries)
        exceeded = line.queue.give_back(
            entries,
            counted=counted,
            now=self._clock.monotonic(),
            delay=outcome.delay,
            planned=planned,
            barred=rule.barred if barred is None else barred,
        )
        for entry in entries:
            entry.marked = False
        if counted:
            self._writing.count([entry for entry in entries if entry.state is not State.GONE])
        if exceeded:
            reason = f"{LIMIT_REASON}: {outcome.reason}" if outcome.reason else LIMIT_REASON
            self._redirecting.dead_letter(line, exceeded, reason, outcome.properties)

    def _reject(self, line: Line, entries: list[Entry], outcome: Outcome) -> None:
        seen = [entry for entry in entries if entry.delivery.handed_over]
        unseen = [entry for entry in entries if not entry.delivery.handed_over]
        line.queue.take_out(seen, counted=True)
        line.queue.take_out(unseen, counted=False)
        self._redirecting.dead_letter(line, entries, outcome.reason or REJECTED_REASON, outcome.properties)
        self._granting.shown(line)

    def _tell_stale(self, outlet: Outlet, number: int) -> None:
        self.stale += number
        name = outlet.line.queue.name
        text = f"{number} settlements on queue {name!r} came too late and did nothing"
        self._aftermath.tell("stale_settlement", text, queue=name, count=number)


def _owner(arrival: Arrival) -> Holder | None:
    """Whoever holds it by this very delivery."""
    entry: Entry = arrival.tag
    return entry.owner if entry.delivery is arrival else None


def _accept(owner: Holder | None, bare: list[Delivery], live: list[Entry]) -> None:
    """These, which leave the lists."""
    if owner is not None and bare:
        owner.queue.accept_bare(owner, bare)
        bare.clear()
    if owner is not None and live:
        owner.queue.accept(live)
        live.clear()
