"""Owns the messages of a ScriptedBackend: lists in memory, in order. Must not know threads or links; time is an argument.

Source: the settlement table of rules.md (T12 to T14): what is given back returns to its place.
"""

from __future__ import annotations

from bisect import insort

from jmsclient.message import PlainContent


class Held:
    """One message of the backend. `delivery_count` is what its next delivery says (-1: unknown, and stays so)."""

    __slots__ = ("address", "barred", "content", "delivery_count", "due", "number")

    def __init__(self, address: str, number: int, content: PlainContent, delivery_count: int) -> None:
        self.address = address
        self.number = number
        self.content = content
        self.delivery_count = delivery_count
        self.barred: set[int] = set()
        self.due = 0.0


class Queues:
    """Waiting messages by address. Not thread-safe: the backend's lock guards it."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Held]] = {}
        self._number = 0

    def put(self, address: str, content: PlainContent, delivery_count: int = 1) -> None:
        """Append a message."""
        self._number += 1
        self._waiting.setdefault(address, []).append(Held(address, self._number, content, delivery_count))

    def take(self, address: str, receiver: int, count: int, now: float) -> list[Held]:
        """Up to `count` messages that this receiver may have at this monotonic time, from the head on."""
        taken: list[Held] = []
        left: list[Held] = []
        for held in self._waiting.get(address, ()):
            fits = len(taken) < count and held.due <= now and receiver not in held.barred
            (taken if fits else left).append(held)
        if taken:
            self._waiting[address] = left
        return taken

    def give_back(self, held: Held, *, counted: bool, due: float = 0.0, barred: int | None = None) -> None:
        """Return a message to its place; `counted` raises its delivery count, `barred` keeps it from that receiver."""
        if counted and held.delivery_count > 0:
            held.delivery_count += 1
        held.due = due
        if barred is not None:
            held.barred.add(barred)
        insort(self._waiting.setdefault(held.address, []), held, key=lambda one: one.number)

    def contents(self, address: str) -> list[PlainContent]:
        """What waits there, head first."""
        return [held.content for held in self._waiting.get(address, ())]

    def drop(self, address: str) -> None:
        """Delete a queue with all that waits there."""
        self._waiting.pop(address, None)

    def visible_after(self, address: str, number: int, count: int, now: float) -> list[Held]:
        """Up to `count` messages behind the one of that number that a receiver could take now; they stay."""
        waiting = self._waiting.get(address, ())
        return [held for held in waiting if held.number > number and held.due <= now][:count]

    def next_due(self, now: float) -> float | None:
        """The monotonic time at which the next delayed message falls due."""
        return min((held.due for waiting in self._waiting.values() for held in waiting if held.due > now), default=None)
