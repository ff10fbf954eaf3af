"""Owns the SQLite file of a durable broker: its schema, reading it at start, one transaction a batch.

Must not know of queues' states or threads: the broker calls it from one thread at a time. WAL with synchronous=FULL: when
`write` returns, the batch survives kill -9 and power loss. Source: issue on the embedded store; rule IF-11.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from jmsclient.errors import MessageFormatError, StoreError, StoreFormatError
from jmsclient.message import Content
from jmsclient_embedded import rows
from jmsclient_embedded.hand_over import HandOverJournal
from jmsclient_embedded.store_file import APPLICATION_ID, FORMAT, StoreLock, check_file, check_format

_SCHEMA = """
BEGIN IMMEDIATE;
PRAGMA application_id = {application};
PRAGMA user_version = {format};
CREATE TABLE store (id BLOB NOT NULL);
INSERT INTO store VALUES (x'{identity}');
CREATE TABLE queues (name TEXT PRIMARY KEY, settings TEXT NOT NULL);
CREATE TABLE messages (
    sequence INTEGER PRIMARY KEY, queue TEXT NOT NULL, count INTEGER NOT NULL,
    content BLOB NOT NULL, id TEXT, destination TEXT, priority INTEGER, timestamp REAL
);
COMMIT;
"""
_FROM_BEFORE_3 = f"""
BEGIN IMMEDIATE;
ALTER TABLE messages RENAME COLUMN envelope TO content;
ALTER TABLE messages ADD COLUMN id TEXT;
ALTER TABLE messages ADD COLUMN destination TEXT;
ALTER TABLE messages ADD COLUMN priority INTEGER;
ALTER TABLE messages ADD COLUMN timestamp REAL;
PRAGMA user_version = {FORMAT};
COMMIT;
"""

Place: TypeAlias = tuple[str, int, str | None, int | None]
"""What many rows of a batch have in common: (queue, count, destination, priority)."""
Row: TypeAlias = tuple[int, str | bytes, str | None, float | None]
"""The rest of a row: (sequence, content, id, timestamp)."""
Definition: TypeAlias = Mapping[str, object]
"""What `definitions.py` makes of a destination, quota or subscription: JSON values by name."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One row as it is loaded. `interrupted`: it had been handed over when the last process ended without closing (T14)."""

    sequence: int
    queue: str
    count: int
    content: Content
    interrupted: bool


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


class Store:
    """An open store file, locked for this process. Raises StoreError, StoreFormatError or StoreInUseError when made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        check_file(path)
        self._lock = StoreLock(path)
        self._lock.take()
        try:
            self._connection = self._open()
            try:
                identity = self._connection.execute("SELECT id FROM store").fetchone()[0]
                self.journal = HandOverJournal(path, identity)
                self._merge_journal()
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            self._lock.release()
            raise StoreFormatError(f"store {str(path)!r} cannot be opened: {error}") from error
        except BaseException:
            self._lock.release()
            raise

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        try:
            # The schema is written with a rollback journal, so that the file's own header says whose it is; then WAL.
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                connection.executescript(_SCHEMA.format(application=APPLICATION_ID, format=FORMAT, identity=uuid.uuid4().hex))
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            check_format(self.path, application, version)
            if version < FORMAT:  # 1 and 2 have the same tables, what is new in them is added in one transaction
                connection.executescript(_FROM_BEFORE_3)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _merge_journal(self) -> None:
        """Put the counts of an unclean stop into the rows, then begin an empty journal."""
        raised = []
        for sequence, count in self.journal.read().items():
            row = self._connection.execute("SELECT count FROM messages WHERE sequence = ?", (sequence,)).fetchone()
            if row is not None and row[0] < count:
                raised.append((sequence, count))
        self._interrupted = {sequence for sequence, _ in raised}
        self.write(Changes(counts=dict(raised)))
        self.journal.start()

    def definitions(self) -> dict[str, Definition]:
        """What was made by administration, and subscriptions, by name. Raises StoreFormatError for a row that cannot be read."""
        try:
            return {name: json.loads(text) for name, text in self._connection.execute("SELECT name, settings FROM queues")}
        except ValueError as error:
            raise StoreFormatError(f"store {str(self.path)!r}: a definition cannot be read: {error}") from error

    def load(self) -> Iterator[StoredMessage]:
        """All messages in order of their sequence. Raises StoreFormatError for a row that cannot be read."""
        sequence: int | str = "?"  # of a row that SQLite itself gives up on
        try:
            for row in self._connection.execute("SELECT * FROM messages ORDER BY sequence"):
                sequence = row[0]
                yield StoredMessage(row[0], row[1], row[2], rows.read(*row[3:]), sequence in self._interrupted)
                sequence = "?"
        except (MessageFormatError, sqlite3.Error) as error:
            raise StoreFormatError(f"store {str(self.path)!r}: message {sequence} cannot be read: {error}") from error

    def write(self, changes: Changes) -> None:
        """All of it or nothing, safe on disk when it returns. Raises StoreError; the store is then as it was."""
        if not changes:
            return
        run = self._connection
        try:
            run.execute("BEGIN IMMEDIATE")
            for place, inserted in changes.inserts.items():
                _insert(run, place, inserted)
            if changes.counts:
                pairs = [(count, sequence) for sequence, count in changes.counts.items()]
                run.executemany("UPDATE messages SET count = ? WHERE sequence = ?", pairs)
            if changes.deletes:
                run.executemany("DELETE FROM messages WHERE sequence BETWEEN ? AND ?", _runs(changes.deletes))
            for name, definition in changes.definitions.items():
                if definition is None:
                    run.execute("DELETE FROM queues WHERE name = ?", (name,))
                else:
                    run.execute("INSERT OR REPLACE INTO queues VALUES (?, ?)", (name, json.dumps(definition)))
            run.execute("COMMIT")
        except (sqlite3.Error, OverflowError) as error:
            if run.in_transaction:
                run.execute("ROLLBACK")
            raise StoreError(f"store {str(self.path)!r} could not be written: {error}; nothing of the batch is stored") from error
        if changes.counts or changes.deletes:
            self.journal.forget(changes.counts, changes.deletes)

    def close(self) -> None:
        """Bring everything into the one file and let go of it. Idempotent."""
        try:
            self._connection.close()
            self.journal.close()
        finally:
            self._lock.release()

    def disown(self) -> None:
        """After a fork, in the child: the parent goes on with the files; close nothing but our copy of the lock."""
        self._lock.disown()
        self.journal.disown()


def _insert(run: sqlite3.Connection, place: Place, inserted: list[Row]) -> None:
    """Many by one statement, which takes what they have in common once: half of what a call for each costs."""
    at = 0
    for size, statement in _INSERT.items():
        while at + size <= len(inserted):
            run.execute(statement, (*place, *chain.from_iterable(inserted[at : at + size])))
            at += size


def _insertion(size: int) -> str:
    values = ", ".join(f"(?{at}, ?1, ?2, ?{at + 1}, ?{at + 2}, ?3, ?4, ?{at + 3})" for at in range(5, 5 + 4 * size, 4))
    return f"INSERT INTO messages VALUES {values}"  # noqa: S608  numbers of parameters


_INSERT = {size: _insertion(size) for size in (64, 8, 1)}


def _runs(sequences: list[int]) -> list[tuple[int, int]]:
    """The same, as the first and the last of those without a gap: what is consumed in order is one or two of them a batch, and
    SQLite deletes these without being called for each."""
    first, last = sequences[0], sequences[-1]
    if last - first + 1 == len(sequences) and sequences == list(range(first, last + 1)):  # nearly always
        return [(first, last)]
    runs: list[tuple[int, int]] = []
    ordered = iter(sorted(sequences))
    first = last = next(ordered)
    for sequence in ordered:
        if sequence > last + 1:
            runs.append((first, last))
            first = sequence
        last = sequence
    runs.append((first, last))
    return runs
