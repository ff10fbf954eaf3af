"""Owns the messages in `send` of one queue: their transaction has not ended, or they are being stored.

Texts that were sent at once stay one object, of which entries are made only if somebody looks. It must not know what a queue
counts. Source: rules IF-13, T4 to T6. Not thread-safe: every call under the broker's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from jmsclient.message import Texts
from jmsclient_embedded.entry import Entry
from jmsclient_embedded.states import State


class Uncommitted:
    """See the module. `len` is the number of messages."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._texts: dict[int, Texts] = {}  # by the number of the first

    def __len__(self) -> int:
        return len(self._entries) + sum(map(len, self._texts.values()))

    def hold(self, entries: Iterable[Entry], *, transacted: bool) -> tuple[int, int]:
        """Nobody may see these yet; how many they are, and their bytes."""
        number = size = 0
        for entry in entries:
            entry.state = State.SEND
            entry.transacted = transacted
            self._entries[entry.sequence] = entry
            number += 1
            size += entry.size
        return number, size

    def release(self, entries: Sequence[Entry]) -> int:
        """They leave `send`; their bytes."""
        if len(self._entries) == len(entries):  # nearly always
            self._entries.clear()
        else:
            for entry in entries:
                del self._entries[entry.sequence]
        size = 0
        for entry in entries:
            if entry.transacted:
                entry.transacted = False
            size += entry.size
        return size

    def renumber(self, entries: Iterable[Entry], next_sequence: Callable[[], int]) -> None:
        """Each takes the next place in the order."""
        for entry in entries:
            del self._entries[entry.sequence]
            entry.sequence = next_sequence()
            self._entries[entry.sequence] = entry

    def hold_texts(self, texts: Texts) -> None:
        """They have their numbers already."""
        self._texts[texts.first] = texts

    def release_texts(self, texts: Texts) -> list[Entry] | None:
        """They leave `send`; the entries that were made of them, or None if nobody looked."""
        if self._texts.pop(texts.first, None) is not None:
            return None
        made = [self._entries[sequence] for sequence in range(texts.first, texts.first + len(texts))]
        self.release(made)
        return made

    def entries(self) -> Iterator[Entry]:
        """All of them; texts are entries from here on."""
        for texts in self._texts.values():
            self.hold(entries_of(texts), transacted=False)
        self._texts.clear()
        return iter(self._entries.values())


def entries_of(texts: Texts) -> list[Entry]:
    """Of texts that are being stored, or were."""
    return [Entry(number, content, stored=True) for number, content in enumerate(texts, texts.first)]
