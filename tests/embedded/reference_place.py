"""A reference model of one destination (or subscription): what a patient person with a notebook would write down.

Plain lists, walked from the beginning each time; no indexes, no batches, no threads. Which receiver gets a message is the broker's
choice, so it is read from what arrived; that it may have it, that it is the first it may have, and that nothing waits which
somebody wants, is checked. Source: rules.md, "States of a message", T4 to T17; IF-7, IF-13 to IF-15, IF-33, IF-34.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jmsclient.transport.administration import DestinationStatistics, PendingByKind
from jmsclient.transport.contract import Arrival
from jmsclient_embedded.settings import QueueSettings

UNHELD = ("visible", "ordered", "delayed", "paused")


@dataclass(eq=False)
class Message:
    """One message on one place."""

    id: str
    priority: int
    persistent: bool
    size: int
    colour: str
    group: str
    expires_at: float | None
    birth: float | None
    sequence: int = 0
    stored: bool = False
    """It has a row in the store: it outlives the process."""
    unit: str | None = None
    count: int = 0
    state: str = "new"
    due: float | None = None
    """When its redelivery delay ends, by the monotonic clock."""
    in_transaction: bool = False
    """Sent in one that has not ended."""
    owner: Taker | None = None
    arrival: Arrival | None = None
    barred: list[Taker] = field(default_factory=list)

    def copy(self) -> Message:
        return Message(self.id, self.priority, self.persistent, self.size, self.colour, self.group, self.expires_at, self.birth)

    @property
    def handed_over(self) -> bool:
        return self.arrival is not None and self.arrival.handed_over

    @property
    def shown_as(self) -> str:
        part_of_one = self.in_transaction if self.state == "send" else self.owner is not None and self.owner.session.transacted
        return self.state + ("+transaction" if part_of_one else "")


@dataclass(eq=False)
class Session:
    """One session: what it received and accepted, and what it sent, in a transaction that has not ended."""

    name: str
    transacted: bool
    connection: int
    takers: list[Taker] = field(default_factory=list)
    sent: list[tuple[Place, list[Message]]] = field(default_factory=list)
    accepted: list[Message] = field(default_factory=list)
    broken: bool = False
    """Somebody else settled what it had accepted: it cannot be committed any more."""


@dataclass(eq=False)
class Taker:
    """One receiver. `arrived` gives everything that its sink was given."""

    name: str
    place: Place
    session: Session
    colour: str | None
    arrived: Callable[[], Sequence[Arrival]]
    pre_settled: bool = False
    """At most once: what it is sent is gone (DO-1)."""
    demand: int = 0
    seen: int = 0
    open: bool = True

    def next_id(self) -> str | None:
        """The message that arrived next and is not in the books yet."""
        arrived = self.arrived()
        return None if self.seen >= len(arrived) else str(arrived[self.seen].content.message_id)

    def may_have(self, message: Message) -> bool:
        return self not in message.barred and (self.colour is None or self.colour == message.colour)

    @property
    def shown_as(self) -> str:
        """The owner of what it holds: the session, when it is closed (IF-9)."""
        return self.name if self.open else self.session.name


@dataclass(eq=False)
class Place:
    """A queue, or one subscription of a topic."""

    name: str
    settings: QueueSettings
    stored: bool = True
    messages: list[Message] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    above: tuple[set[str], ...] = ()
    takers: list[Taker] = field(default_factory=list)
    heads: dict[str, Message] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    gone: bool = False

    def paused(self, what: str) -> bool:
        return any(what in flags for flags in (self.flags, *self.above))

    def add_to(self, what: str, number: int) -> None:
        self.numbers[what] = self.numbers.get(what, 0) + number

    # -- in and out ---------------------------------------------------------------------------------------------------

    def enter(self, messages: Sequence[Message], wall: float) -> None:
        """T5, T7: they are the place's from now on."""
        for one in messages:
            self.messages.append(one)
            self.add_to("messages_received", 1)
            self.add_to("bytes_received", one.size)
            one.in_transaction = False
            one.unit = one.group if self.settings.unit_of_order is not None else None
            if one.birth is not None and one.birth > wall:
                one.state = "delayed"
            else:
                self.show(one)

    def show(self, message: Message) -> None:
        """Nothing but a pause or its unit of order keeps it from being visible."""
        message.due = None
        if self.paused("insertion"):
            message.state = "paused"
            return
        message.state = "visible"
        if message.unit is not None and self.heads.setdefault(message.unit, message) is not message:
            message.state = "ordered"
        self.numbers["messages_high"] = max(self.numbers.get("messages_high", 0), len(self.current))
        self.numbers["bytes_high"] = max(self.numbers.get("bytes_high", 0), sum(one.size for one in self.current))

    def leave(self, messages: Sequence[Message], how: str) -> None:
        """They are gone; whoever waited behind them may come (IF-34)."""
        for one in messages:
            self.messages.remove(one)
            one.state, one.owner, one.arrival = "gone", None, None
            self.add_to(how, 1)
            self.add_to("bytes_removed", one.size)
        for one in messages:
            if one.unit is not None and self.heads.get(one.unit) is one:
                del self.heads[one.unit]
                behind = [other for other in self.in_state("ordered") if other.unit == one.unit]
                if behind:
                    first = min(behind, key=lambda other: other.sequence)
                    first.state = "visible"
                    self.heads[one.unit] = first

    # -- what there is --------------------------------------------------------------------------------------------------

    def in_state(self, *states: str) -> list[Message]:
        return [one for one in self.messages if one.state in states]

    @property
    def current(self) -> list[Message]:
        return self.in_state("visible", "ordered")

    @property
    def visible(self) -> list[Message]:
        """In the order in which they are taken: by priority, then as they were sent."""
        return sorted(self.in_state("visible"), key=lambda one: (-one.priority, one.sequence))

    def described(self) -> list[tuple[object, ...]]:
        """Each message as administration shows it: the visible ones in order, then the others."""
        others = [one for one in self.messages if one.state != "visible"]
        return [
            (
                one.id,
                one.shown_as,
                None if one.owner is None else one.owner.shown_as,
                one.count + one.handed_over,
                one.priority,
                one.persistent,
                one.size,
            )
            for one in (*self.visible, *others)
        ]

    def statistics(self, blocked: int) -> DestinationStatistics:
        pending = [one for one in self.messages if one.state not in ("visible", "ordered")]
        held = self.in_state("receive")
        transacted = [one for one in held if one.owner is not None and one.owner.session.transacted]
        delayed = self.in_state("delayed")
        kinds = PendingByKind(
            unborn=sum(one.due is None for one in delayed),
            uncommitted_sent=len(self.in_state("send")),
            uncommitted_received=len(transacted),
            unacknowledged=len(held) - len(transacted),
            redelivery_delay=sum(one.due is not None for one in delayed),
            paused=len(self.in_state("paused")),
        )
        insertion = self.paused("insertion")
        counted: dict[str, Any] = dict(self.numbers)
        return DestinationStatistics(
            messages_current=len(self.current),
            messages_pending=len(pending),
            bytes_current=sum(one.size for one in self.current),
            bytes_pending=sum(one.size for one in pending),
            consumers_current=len(self.takers),
            pending_by_kind=kinds,
            blocked_senders=blocked,
            production_paused=self.paused("production"),
            insertion_paused=insertion,
            consumption_paused=self.paused("consumption"),
            **counted,
        )
