"""Owns the messages of one queue that wait for a time: un-born ones by the wall clock, redelivery delays by the monotonic clock.

Pure: time comes in. Must not know what they become. Source: rules IF-2, IF-3; T8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush

from jmsclient_embedded.entry import Entry

_Heap = list[tuple[float, int, Entry]]


class Timetable:
    """What waits, soonest first."""

    __slots__ = ("delayed", "unborn")

    def __init__(self) -> None:
        self.unborn: _Heap = []
        self.delayed: _Heap = []

    def __bool__(self) -> bool:
        return bool(self.unborn or self.delayed)

    def until_birth(self, entry: Entry, birth: float) -> None:
        """It is born at `birth`, seconds since 1970."""
        heappush(self.unborn, (birth, entry.sequence, entry))

    def until(self, entry: Entry, due: float) -> None:
        """Its redelivery delay ends at monotonic `due`."""
        heappush(self.delayed, (due, entry.sequence, entry))

    def next_due(self) -> tuple[float | None, float | None]:
        """When the first is due: by the monotonic clock, by the wall clock."""
        return (self.delayed[0][0] if self.delayed else None, self.unborn[0][0] if self.unborn else None)

    def take_due(self, now: float, wall: float) -> list[Entry]:
        """What is due by monotonic `now` or by `wall`, each kind in order of its time."""
        due: list[Entry] = []
        for heap, time in ((self.delayed, now), (self.unborn, wall)):
            while heap and heap[0][0] <= time:
                due.append(heappop(heap)[2])
        return due

    def remove(self, entries: Collection[Entry]) -> None:
        """Take these out."""
        sequences = {entry.sequence for entry in entries}
        for heap in (self.delayed, self.unborn):
            keep = [one for one in heap if one[1] not in sequences]
            if len(keep) != len(heap):
                heap[:] = keep
                heapify(heap)

    def __iter__(self) -> Iterator[Entry]:
        for heap in (self.delayed, self.unborn):
            yield from (one[2] for one in sorted(heap, key=lambda one: one[:2]))
