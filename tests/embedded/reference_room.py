"""A reference model of quotas and topics: who waits for room, and who gets a copy. Source: IF-31, T1 to T3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .reference_place import Message, Place, Session


@dataclass(eq=False)
class Room:
    """A quota: how much the places that share it may hold, and who waits, first come first."""

    messages_maximum: int
    bytes_maximum: int
    fifo: bool = True
    members: list[Place] = field(default_factory=list)
    waiters: list[Waiter] = field(default_factory=list)

    def fits_ever(self, message: Message) -> bool:
        return 0 not in (self.messages_maximum, self.bytes_maximum) and not 0 <= self.bytes_maximum < message.size

    def must_wait(self) -> bool:
        return self.fifo and not all(one.held_back for one in self.waiters)

    def fitting(self, messages: Sequence[Message]) -> int:
        """How many of these, from the first on, fit now."""
        there = [one for place in self.members for one in place.messages]
        number, size = len(there), sum(one.size for one in there)
        for index, message in enumerate(messages):
            number, size = number + 1, size + message.size
            if not self.fits_ever(message) or 0 <= self.messages_maximum < number or 0 <= self.bytes_maximum < size:
                return index
        return len(messages)


@dataclass(eq=False)
class Waiter:
    """A send that waits for room."""

    place: Place
    session: Session
    left: list[Message]
    deadline: float | None
    entered: int = 0
    ended: str = ""
    """`entered`, `timeout`, `closed`, `lost` or `repointed`; empty: it waits."""

    @property
    def held_back(self) -> bool:
        """It may not enter whatever room there is: nobody stands behind it."""
        return self.place.paused("insertion")


@dataclass(eq=False)
class TopicModel:
    flags: set[str] = field(default_factory=set)
    subscriptions: list[Place] = field(default_factory=list)
    wants: dict[Place, str | None] = field(default_factory=dict)
    """The colour that a subscription selects."""
