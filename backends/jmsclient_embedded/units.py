"""Owns the units of order of one queue: which message of each is its head, and who waits behind it.

Pure. Must not know of states. Source: rule IF-34: the head must finish (acknowledged, committed, expired, moved) before the next of
its unit is visible; a head that comes back, or waits out its redelivery delay, is the head still.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush

from jmsclient_embedded.entry import Entry


class UnitsOfOrder:
    """Heads and followers, by the name of the unit."""

    __slots__ = ("_heads", "_waiting")

    def __init__(self) -> None:
        self._heads: dict[str, Entry] = {}
        self._waiting: dict[str, list[tuple[int, Entry]]] = {}

    def __bool__(self) -> bool:
        """Whether any message here has a unit."""
        return bool(self._heads)

    def admit(self, entry: Entry) -> bool:
        """It would be visible now: True where it may, as the head of its unit; False: it waits behind it."""
        unit = entry.unit
        if unit is None:
            return True
        head = self._heads.setdefault(unit, entry)
        if head is entry:
            return True
        heappush(self._waiting.setdefault(unit, []), (entry.sequence, entry))
        return False

    def finished(self, entry: Entry) -> Entry | None:
        """It left the queue: the one that is the head now and was waiting, if there is one."""
        unit = entry.unit
        if unit is None:
            return None
        if self._heads.get(unit) is not entry:
            return None
        del self._heads[unit]
        waiting = self._waiting.get(unit)
        if not waiting:
            return None
        following = heappop(waiting)[1]
        if not waiting:
            del self._waiting[unit]
        self._heads[unit] = following
        return following

    def remove(self, entries: Collection[Entry]) -> None:
        """Take these out of those that wait."""
        for unit in {entry.unit for entry in entries if entry.unit is not None}:
            gone = {entry.sequence for entry in entries if entry.unit == unit}
            waiting = self._waiting.get(unit)
            if waiting is None:
                continue
            waiting[:] = [one for one in waiting if one[0] not in gone]
            heapify(waiting)
            if not waiting:
                del self._waiting[unit]

    def head_of(self, unit: str) -> Entry | None:
        """The head of a unit."""
        return self._heads.get(unit)

    def heads(self) -> Iterator[tuple[str, Entry, int]]:
        """Each unit with its head and how many wait behind it."""
        for unit, head in self._heads.items():
            yield unit, head, len(self._waiting.get(unit, ()))

    def __iter__(self) -> Iterator[Entry]:
        """Those that wait, unit by unit, in order."""
        for waiting in self._waiting.values():
            yield from (entry for _, entry in sorted(waiting, key=lambda one: one[0]))
