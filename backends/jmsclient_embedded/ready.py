"""Owns the order in which visible messages of one queue are taken: by priority, then by sequence number.

Pure. Must not know of owners. Ten priorities, each a deque of new messages in order of their sequence number and, beside it, a
heap of those that came back. The next message is the smaller head of the two, so that what comes back takes its original place
without a search (T13, T14). A new message that nothing distinguishes waits as its bare content: it becomes an entry when it is
taken, or when somebody looks at it. Texts that came together wait together, and become contents when they are taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import cast

from jmsclient.message import PlainContent, Texts
from jmsclient_embedded.entry import Entry
from jmsclient_embedded.selection import cut
from jmsclient_embedded.settings import PRIORITIES
from jmsclient_embedded.states import State

HANDFUL = 16
"""Texts that are made at once where fewer are asked for: one by one, each would cost twice as much."""


class Ready:
    """What can be taken."""

    __slots__ = ("_bare", "_mask", "_new", "_plain", "_returned", "stores")

    def __init__(self) -> None:
        self._mask = 0  # a bit for each priority that has something
        self._plain = True  # none of what is here expires or is barred to anybody
        self._bare = False  # some of `_new` are contents, or texts
        self._new: tuple[deque[Entry | PlainContent | Texts], ...] = tuple(deque() for _ in range(PRIORITIES))
        self._returned: tuple[list[tuple[int, Entry]], ...] = tuple([] for _ in range(PRIORITIES))
        self.stores = False
        """Contents that wait here and are persistent have rows in the store."""

    def __bool__(self) -> bool:
        return bool(self._mask)

    def put(self, entry: Entry) -> None:
        """At its place."""
        level = entry.priority
        new = self._new[level]
        if not new or new[-1].sequence < entry.sequence:
            new.append(entry)
        else:
            heappush(self._returned[level], (entry.sequence, entry))
        self._mask |= 1 << level
        if entry.expires_at is not None or entry.barred is not None:
            self._plain = False

    def put_new(self, entries: Iterable[Entry]) -> None:
        """At their places, one after the other: some that do not expire, that nobody has had."""
        new, mask = self._new, self._mask
        for entry in entries:
            level = entry.priority
            line = new[level]
            if not line or line[-1].sequence < entry.sequence:
                line.append(entry)
            else:
                heappush(self._returned[level], (entry.sequence, entry))
            mask |= 1 << level
        self._mask = mask

    def put_last(self, contents: Iterable[PlainContent]) -> None:
        """Visible messages that do not expire, whose sequence numbers are higher than all that are here, in order."""
        new, mask = self._new, self._mask
        for content in contents:
            level = content.priority
            new[level].append(content)
            mask |= 1 << level
        self._mask = mask
        self._bare = True

    def put_texts(self, texts: Texts) -> bool:
        """The same for texts that came together; False where something of higher numbers is here already."""
        new = self._new[texts.priority]
        if new and new[-1].sequence > texts.first:
            return False
        new.append(texts)
        self._mask |= 1 << texts.priority
        self._bare = True
        return True

    def _entries(self) -> tuple[deque[Entry], ...]:
        """The new ones, because somebody looks at them: none waits bare any more."""
        if self._bare:
            self._bare = False
            for new in self._new:
                entries: list[Entry] = []
                for one in new:
                    if isinstance(one, Texts):
                        entries += map(self._entry, one.take(one.left))
                    else:
                        entries.append(self._entry(one) if isinstance(one, PlainContent) else one)
                new.clear()
                new.extend(entries)
        return cast(tuple[deque[Entry], ...], self._new)

    def _entry(self, content: PlainContent) -> Entry:
        entry = Entry(content.sequence, content, stored=self.stores and content.persistent)
        entry.state = State.VISIBLE
        return entry

    def take(self, most: int, number: int, wall: float) -> tuple[Sequence[Entry | PlainContent], list[Entry]]:
        """Up to `most` for the receiver with this number, and those that were found expired on the way.

        Hot path: one loop, and a short one where all that is here is new, of one priority, and free for everybody.
        """
        if self._plain and self._mask:
            level = self._mask.bit_length() - 1
            new = self._new[level]
            if self._mask == 1 << level and not self._returned[level]:
                granted: list[Entry | PlainContent] = []
                while new and len(granted) < most:
                    first = new.popleft()
                    if type(first) is Texts:
                        granted += first.take(most - len(granted))
                        if first.left:
                            new.appendleft(first)
                    else:
                        granted.append(first)  # type: ignore[arg-type]  # no texts
                if not new:
                    self._mask = 0
                return granted, []
        granted = []
        expired: list[Entry] = []
        barred: list[Entry] = []
        while self._mask and len(granted) < most:
            level = self._mask.bit_length() - 1
            new, returned = self._new[level], self._returned[level]
            while len(granted) < most:
                head = new[0] if new else None
                if type(head) is Texts:
                    new.popleft()
                    new.extendleft(reversed(head.take(head.left)))
                    head = new[0]
                if returned and (head is None or returned[0][0] < head.sequence):
                    entry: Entry | PlainContent | Texts = heappop(returned)[1]
                elif head is not None:
                    entry = new.popleft()
                else:
                    break
                if type(entry) is PlainContent:
                    granted.append(entry)
                    continue
                assert type(entry) is Entry
                if entry.expires_at is not None and entry.expires_at <= wall:
                    expired.append(entry)
                elif entry.barred is not None and number in entry.barred:
                    barred.append(entry)
                else:
                    granted.append(entry)
            if not new and not returned:
                self._mask &= ~(1 << level)
        if not self._mask:
            self._plain = True
        for entry in barred:
            self.put(entry)
        return granted, expired

    def take_bare(self, most: int) -> list[PlainContent]:
        """`take`, as long as what comes next waits bare and is free for everybody; nothing where it does not."""
        mask = self._mask
        level = mask.bit_length() - 1
        if not mask or not self._plain or self.stores or mask != 1 << level or self._returned[level]:
            return []
        new = self._new[level]
        granted: list[PlainContent] = []
        while new and len(granted) < most:
            first = new[0]
            if type(first) is Texts:
                if most - len(granted) < HANDFUL < first.left:
                    new.extendleft(reversed(first.take(HANDFUL)))
                    continue
                granted += first.take(most - len(granted))
                if first.left:
                    break
            elif type(first) is PlainContent:
                granted.append(first)
            else:
                break
            new.popleft()
        if not new:
            self._mask = 0
        return granted

    def remove(self, entries: Collection[Entry]) -> None:
        """Take these out of the middle."""
        everything = self._entries()
        levels: dict[int, set[int]] = {}
        for entry in entries:
            levels.setdefault(entry.priority, set()).add(entry.sequence)
        for level, sequences in levels.items():
            new, returned = everything[level], self._returned[level]
            if len(sequences) * 8 < len(new):
                cut(new, returned, sequences)
            else:  # one walk instead of many searches
                keep = [entry for entry in new if entry.sequence not in sequences]
                new.clear()
                new.extend(keep)
                returned[:] = [one for one in returned if one[0] not in sequences]
                heapify(returned)
            if not new and not returned:
                self._mask &= ~(1 << level)

    def __iter__(self) -> Iterator[Entry]:
        """In the order in which they would be taken. Sorts what came back."""
        everything = self._entries()
        for level in reversed(range(PRIORITIES)):
            new, returned = everything[level], self._returned[level]
            if returned:
                yield from sorted((*new, *(entry for _, entry in returned)), key=lambda entry: entry.sequence)
            else:
                yield from new

    def in_any_order(self) -> Iterator[Entry]:
        """Cheaper: as they lie."""
        for new, returned in zip(self._entries(), self._returned, strict=True):
            yield from new
            yield from (entry for _, entry in returned)

    def new_in_order(self) -> Iterator[list[int]]:
        """The sequence numbers of new messages, priority by priority, as they wait (for the checker)."""
        for new in self._entries():
            yield [entry.sequence for entry in new]
