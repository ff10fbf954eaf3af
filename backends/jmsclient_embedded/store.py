"""Owns the SQLite file of a durable broker: its schema, reading it at start, one transaction a batch.

Must not know of queues' states or threads: the broker calls it from one thread at a time. WAL with synchronous=FULL: when
`write` returns, the batch survives kill -9 and power loss. Source: issue on the embedded store; rule IF-11.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jmsclient.errors import MessageFormatError, StoreError, StoreFormatError
from jmsclient.message import Content
from jmsclient_embedded import rows
from jmsclient_embedded.changes import Changes, Definition
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


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One row as it is loaded. `interrupted`: it had been handed over when the last process ended without closing (T14)."""

    sequence: int
    queue: str
    count: int
    content: Content
    interrupted: bool


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
            todo = changes.statements()
            if len(todo) == 1:  # nearly always: a transaction of its own
                run.execute(*todo[0])
            else:
                run.execute("BEGIN IMMEDIATE")
                for statement, values in todo:
                    run.execute(statement, values)
                run.execute("COMMIT")
        except Exception as error:  # whatever it is: the store's thread goes on, and whoever waits hears of it
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
