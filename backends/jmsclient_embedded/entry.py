"""Owns one message on one queue, and the owner that can hold it, as records. Must not know what happens to them.

Source: rules IF-8, IF-11. A million of them may wait: slots only, nothing that can be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from jmsclient.message import DEFAULT_PRIORITY, Content, PlainContent
from jmsclient.selector import Selector
from jmsclient.transport.contract import Arrival, Receiver
from jmsclient_embedded.selection import Selection
from jmsclient_embedded.settings import PRIORITIES
from jmsclient_embedded.states import TRANSACTION, State

if TYPE_CHECKING:
    from jmsclient_embedded.queue import MessageQueue
    from jmsclient_embedded.transaction import Transaction


class Holder:
    """An owner of messages: a receiver, or the session that inherited them from a closed one (IF-8, IF-9).

    `selection` is what a selector lets it have; None: anything. `transacted`: what it holds is part of a transaction, which is
    `transaction` unless that is being committed."""

    __slots__ = ("held", "name", "number", "queue", "selection", "transacted", "transaction")

    def __init__(
        self, queue: MessageQueue, number: int, name: str, selector: Selector | None = None, *, transacted: bool = False
    ) -> None:
        self.queue = queue
        self.number = number
        self.name = name
        self.transacted = transacted
        self.transaction: Transaction | None = None
        self.held: dict[int, Entry | Delivery] = {}
        self.selection = None if selector is None else Selection(selector, number)

    def entries(self) -> list[Entry]:
        """What it holds, because somebody looks at it: no delivery stands for an entry any more."""
        return [one if isinstance(one, Entry) else one.tag for one in self.held.values()]


class Entry:
    """One message on one queue. `count` is the number of hand-overs so far, `delivery` what its owner knows it by (opaque
    here), `stored` that it has a row in the store, `marked` that a hand-over not yet in the row is in the journal, `unit` its
    unit of order, `transacted` that it was sent in a transaction that has not ended."""

    __slots__ = (
        "barred",
        "content",
        "count",
        "delivery",
        "expires_at",
        "marked",
        "owner",
        "persistent",
        "priority",
        "sequence",
        "size",
        "state",
        "stored",
        "transacted",
        "unit",
    )

    def __init__(self, sequence: int, content: Content, *, count: int = 0, stored: bool = False) -> None:
        if type(content) is PlainContent:  # nearly every message; an attribute costs a third of a look-up by name
            priority: int | None = content.priority
            persistent, expires_at = content.persistent, content.expiration
            self.size = content.size
        else:
            priority, persistent, expires_at = map(content.header, ("priority", "persistent", "expiration"))
            self.size = getattr(content, "size", 0)
        self.sequence = sequence
        self.content = content
        if priority is None:
            priority = DEFAULT_PRIORITY
        self.priority = priority if 0 <= priority < PRIORITIES else min(max(priority, 0), PRIORITIES - 1)
        self.persistent = bool(persistent)
        self.expires_at: float | None = expires_at
        self.count = count
        self.stored = stored
        self.marked = False
        self.transacted = False
        self.state: State | None = None
        self.owner: Holder | None = None
        self.delivery: Any = None
        self.barred: frozenset[int] | None = None
        self.unit: str | None = None

    @property
    def shown_as(self) -> str:
        """The name of its state as people see it."""
        if self.state is None:
            return ""
        part_of_one = self.transacted if self.state is State.SEND else self.owner is not None and self.owner.transacted
        return self.state.value + (TRANSACTION if part_of_one else "")

    def __repr__(self) -> str:
        return f"<Entry {self.sequence} {self.shown_as} count={self.count}>"


class Delivery(Arrival):
    """The first delivery of a message that nothing distinguishes. It stands for the entry among what its owner holds, until
    somebody asks for that by `tag`, as nobody does where it is accepted at once. What an arrival does not have is the broker's,
    under its lock; so is `tag`.

    `entry` is None before that; `owner`, when it was accepted without one."""

    __slots__ = ("entry", "owner")
    entry: Entry | None
    owner: Holder | None

    @property
    def tag(self) -> Entry:
        if self.entry is None:
            assert isinstance(self.content, PlainContent)
            self.entry = entry = Entry(self.content.sequence, self.content)
            entry.state = State.GONE if self.owner is None else State.RECEIVE
            if self.owner is not None:
                entry.owner, entry.delivery = self.owner, self
                self.owner.held[entry.sequence] = entry
        return self.entry


def deliveries(contents: Iterable[PlainContent], receiver: Receiver, owner: Holder) -> list[Arrival]:
    """The first ones of these, to `owner`, which holds them from here on. Hot path: plain stores, as in `new_entries`."""
    made: list[Arrival] = []
    new, held = Delivery.__new__, owner.held
    for content in contents:
        delivery = new(Delivery)
        delivery.receiver = receiver
        delivery.content = content
        delivery.delivery_count = 1
        delivery.persistent = content.persistent
        delivery.size = content.size
        delivery.settled = delivery.count_derived = delivery.handed_over = False
        delivery.expires_at = delivery.locked_until = delivery.entry = None
        delivery.owner = owner
        held[content.sequence] = delivery
        made.append(delivery)
    return made


def stored(arrival: Arrival) -> bool:
    """Whether its message has a row in the store."""
    return type(arrival) is not Delivery and arrival.tag.stored is True


_PRIORITIES = frozenset(range(PRIORITIES))


def new_entries(contents: Iterable[Content], stored: Iterable[bool], next_sequence: Callable[[], int]) -> list[Entry]:
    """An entry for each, `stored` or not, numbered in order. Hot path of what is stored: plain stores, for a call of the
    constructor costs twice as much."""
    entries: list[Entry] = []
    new = Entry.__new__
    for content, has_row in zip(contents, stored, strict=True):
        if type(content) is not PlainContent or content.priority not in _PRIORITIES:
            entries.append(Entry(next_sequence(), content, stored=has_row))
            continue
        entry = new(Entry)
        entry.sequence = next_sequence()
        entry.content = content
        entry.priority = content.priority
        entry.persistent = content.persistent
        entry.size = content.size
        entry.expires_at = content.expiration
        entry.count = 0
        entry.stored = has_row
        entry.marked = entry.transacted = False
        entry.state = entry.owner = entry.delivery = entry.barred = entry.unit = None
        entries.append(entry)
    return entries
