"""Owns what one transaction of the store writes, and as which statements of SQL.

Pure: it must not know of files, threads or queues. Source: issue on the embedded store, "group commit". A statement costs about as
much as what it does to one row, so what can be is one: rows that have their place in common, and rows that leave in one run.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

Place: TypeAlias = tuple[str, int, str | None, int | None]
"""What many rows of a batch have in common: (queue, count, destination, priority)."""
Row: TypeAlias = tuple[int, str | bytes, str | None, float | None]
"""The rest of a row: (sequence, content, id, timestamp)."""
Definition: TypeAlias = Mapping[str, object]
"""What `definitions.py` makes of a destination, quota or subscription: JSON values by name."""


Statement: TypeAlias = tuple[str, tuple[object, ...]]
"""SQL, and the values in it."""

_DELETE = "DELETE FROM messages WHERE sequence BETWEEN ? AND ?"
_COUNT = "UPDATE messages SET count = ? WHERE sequence = ?"
_DEFINE = "INSERT OR REPLACE INTO queues VALUES (?, ?)"
_UNDEFINE = "DELETE FROM queues WHERE name = ?"


_INSERT = {
    size: f"INSERT INTO messages VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?)'] * size)}"  # noqa: S608  nothing but parameters
    for size in (64, 8, 1)
}
"""Of so many rows. What they have in common is given for each: Python 3.12.0 to 3.12.3 warn of a number in a `?`, at a cost."""


@dataclass(slots=True)
class Changes:
    """What one transaction writes."""

    inserts: dict[Place, list[Row]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    """sequence -> hand-overs"""
    deletes: list[int] = field(default_factory=list)
    definitions: dict[str, Definition | None] = field(default_factory=dict)
    """name -> definition, or None: it is gone"""

    def __bool__(self) -> bool:
        return bool(self.inserts or self.counts or self.deletes or self.definitions)

    def without(self, lost: Collection[int]) -> dict[Place, list[Row]]:
        """What is inserted but for these."""
        kept = {place: [row for row in rows if row[0] not in lost] for place, rows in self.inserts.items()}
        return {place: rows for place, rows in kept.items() if rows}

    def then(self, later: Changes) -> Changes:
        """These changes followed by later ones, as one."""
        inserts = {place: self.inserts.get(place, []) + later.inserts.get(place, []) for place in self.inserts | later.inserts}
        return Changes(
            inserts,
            {**self.counts, **later.counts},
            self.deletes + later.deletes,
            {**self.definitions, **later.definitions},
        )

    def statements(self) -> list[Statement]:
        """What is to be done, in this order, in one transaction."""
        todo: list[Statement] = []
        for place, inserted in self.inserts.items():
            todo += _insertions(place, inserted)
        todo += [(_COUNT, (count, sequence)) for sequence, count in self.counts.items()]
        if self.deletes:
            todo += [(_DELETE, run) for run in runs(self.deletes)]
        for name, definition in self.definitions.items():
            todo.append((_UNDEFINE, (name,)) if definition is None else (_DEFINE, (name, json.dumps(definition))))
        return todo


def _insertions(place: Place, inserted: list[Row]) -> Iterator[Statement]:
    queue, count, destination, priority = place
    at = 0
    for size, statement in _INSERT.items():
        while at + size <= len(inserted):
            rows = [(one[0], queue, count, one[1], one[2], destination, priority, one[3]) for one in inserted[at : at + size]]
            yield statement, tuple(chain.from_iterable(rows))
            at += size


def runs(sequences: list[int]) -> list[tuple[int, int]]:
    """The same, as the first and the last of those without a gap: what is consumed in order is one or two of them a batch, and
    SQLite deletes these without being called for each."""
    first, last = sequences[0], sequences[-1]
    if last - first + 1 == len(sequences) and sequences == list(range(first, last + 1)):  # nearly always
        return [(first, last)]
    found: list[tuple[int, int]] = []
    ordered = iter(sorted(sequences))
    first = last = next(ordered)
    for sequence in ordered:
        if sequence > last + 1:
            found.append((first, last))
            first = sequence
        last = sequence
    found.append((first, last))
    return found
