"""Owns which visible messages of a queue a receiver with a selector may have, in their order.

Pure: no time, nothing waits. A message is judged once, when it becomes visible (again, when it comes back, because its delivery
count may have changed), not once for each time somebody asks; a receiver without a selector costs nothing here. What is not
selected stays on its queue, in its place. Source: Jakarta Messaging 3.1 section 3.8; rule RA-8. Under the broker's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from jmsclient.selector import Selector

if TYPE_CHECKING:
    from jmsclient_embedded.entry import Entry

_SLACK = 64
"""Places of messages that others took, kept at least before they are cleared away."""


class Selection:
    """What waits for the receiver with this number."""

    __slots__ = ("_number", "_order", "_selector", "_waiting")

    def __init__(self, selector: Selector, number: int) -> None:
        self._selector = selector
        self._number = number
        self._waiting: dict[int, Entry] = {}
        self._order: list[tuple[int, int]] = []  # priority (highest first), sequence; some may wait no more

    @property
    def waiting(self) -> set[int]:
        """The sequence numbers of what waits (for the checker)."""
        return set(self._waiting)

    def wants(self, entry: Entry) -> bool:
        """Whether the receiver may have it and selects it."""
        if entry.barred is not None and self._number in entry.barred:
            return False
        return self._selector(entry.content, entry.count + 1)

    def offer(self, entry: Entry) -> None:
        """It became visible."""
        if self.wants(entry):
            self._waiting[entry.sequence] = entry
            heappush(self._order, _place(entry))

    def withdraw(self, entries: Iterable[Entry]) -> None:
        """They are visible no more."""
        for entry in entries:
            self._waiting.pop(entry.sequence, None)
        if len(self._order) > 2 * len(self._waiting) + _SLACK:
            self._order = [_place(entry) for entry in self._waiting.values()]
            heapify(self._order)

    def take(self, most: int, wall: float) -> tuple[list[Entry], list[Entry]]:
        """Up to `most` of what waits, and what was found expired on the way."""
        granted: list[Entry] = []
        expired: list[Entry] = []
        while self._waiting and len(granted) < most:
            entry = self._waiting.pop(heappop(self._order)[1], None)
            if entry is not None:
                over = entry.expires_at is not None and entry.expires_at <= wall
                (expired if over else granted).append(entry)
        return granted, expired


def _place(entry: Entry) -> tuple[int, int]:
    return (-entry.priority, entry.sequence)


def cut(ready: deque[Entry], returned: list[tuple[int, Entry]], sequences: set[int]) -> None:
    """Take messages out of the middle of a queue's one priority: `ready` in order, `returned` a heap. Empties `sequences`.

    What stands at the head costs no search. A search in `ready` is a bisection.
    """
    while ready and ready[0].sequence in sequences:
        sequences.discard(ready.popleft().sequence)
    while returned and returned[0][0] in sequences:
        sequences.discard(heappop(returned)[0])
    for sequence in tuple(sequences):
        index = _index(ready, sequence)
        if index is not None:
            del ready[index]
            sequences.discard(sequence)
    if sequences:
        returned[:] = [one for one in returned if one[0] not in sequences]
        heapify(returned)
        sequences.clear()


def _index(ready: deque[Entry], sequence: int) -> int | None:
    low, high = 0, len(ready)
    while low < high:
        middle = (low + high) // 2
        if ready[middle].sequence < sequence:
            low = middle + 1
        else:
            high = middle
    return low if low < len(ready) and ready[low].sequence == sequence else None
