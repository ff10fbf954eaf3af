"""A history in a SQLite file, shared by the threads and processes of one machine. Durable: messages may be parked in it.

Owns the rows; how an entry changes is `entries.apply`, what the file is and what time it is is `sqlite_file`. One IMMEDIATE
transaction an exchange, so that a claim is one atomic step among all (TR-38); each commit survives a power failure. Removed by
a sweeper when past history_ttl (TR-44). Source: rules TR-34, TR-38 to TR-44.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from jmsclient.clock import SYSTEM_CLOCK
from jmsclient.errors import HistoryUnavailableError, StoreError
from jmsclient.history.contract import OPERATION_TIMEOUT, DocumentHistory, ParkedMessage
from jmsclient.history.entries import Command, Entry, Join, Park, Reply, Stored, apply, copy_change
from jmsclient.history.rows import COLUMNS, Key, from_row, parked_of, to_row
from jmsclient.history.sqlite_file import BootClock, check_file, connect, held_through_forks, prepare
from jmsclient.history.sweeper import Sweeper

SWEPT_AT_ONCE = 500
"""Rows that a sweep deletes before it lets others write."""

_KEY = "namespace = ? AND trigger_id = ? AND source = ? AND id = ?"
_SELECT = f"SELECT {COLUMNS} FROM entries WHERE {_KEY}"  # noqa: S608  constants
_WRITE = f"INSERT OR REPLACE INTO entries (namespace, trigger_id, source, id, {COLUMNS}) VALUES ({', '.join('?' * 23)})"  # noqa: S608
_DELETE = f"DELETE FROM entries WHERE {_KEY}"  # noqa: S608
_PARK = "INSERT OR REPLACE INTO parked VALUES (?, ?, ?, ?, ?, ?, ?)"
_COPY = f"SELECT envelope FROM parked WHERE {_KEY}"  # noqa: S608
_ADD = f"UPDATE parked SET envelope = ? WHERE {_KEY}"  # noqa: S608
_UNPARK = f"DELETE FROM parked WHERE {_KEY}"  # noqa: S608
_COPIES = """SELECT p.trigger_id, p.id, p.source, e.reason, p.delivery_count, p.parked_at, e.copies, e.owner, e.attempt, p.envelope,
        e.decision, e.decided_by, e.decided_at
    FROM parked p JOIN entries e USING (namespace, trigger_id, source, id)
    WHERE p.namespace = :namespace AND (p.trigger_id = :trigger OR :trigger IS NULL) AND {}
    ORDER BY p.parked_at, p.rowid LIMIT :limit"""
_UNDECIDED = _COPIES.format("(e.state = 'in_doubt' AND e.decision IS NULL OR e.state = 'processing' AND e.lease_until <= :now)")
_DECIDED = _COPIES.format("e.decision IS NOT NULL AND e.lease_until <= :now")
_EXPIRED = "SELECT namespace, trigger_id, source, id FROM entries WHERE expires_at <= ?"


class SqliteHistory(DocumentHistory):
    """Thread-safe: one connection and a lock, the file's own lock among processes; a fork's child gets a connection of its own.

    `clock` is the machine's. Raises StoreError or StoreFormatError for a file that cannot be used; then nothing was written.
    """

    durable = True

    def __init__(
        self,
        path: str | Path,
        *,
        namespace: str = "default",
        clock: BootClock | None = None,
        operation_timeout: float = OPERATION_TIMEOUT,
    ) -> None:
        self.namespace = namespace
        self._timeout = operation_timeout
        self._path = Path(path).absolute()
        self._clock = clock or BootClock()
        self._lock = threading.Lock()  # guards the connection; held for one transaction
        self._closed = False
        check_file(self._path)
        try:
            self._connection = connect(self._path, operation_timeout)
            try:
                self._offset = prepare(self._connection, self._path, self._clock)
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            raise StoreError(f"history {str(self._path)!r} cannot be opened: {error}") from error
        held_through_forks.add(self._path)
        self._process = os.getpid()
        self._sweeper = Sweeper(SYSTEM_CLOCK, self.purge_expired)
        self._sweeper.watch(float("inf"))  # what earlier processes left is swept too

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        if not commands:
            return []
        with self._transaction() as connection:
            replies = self._apply_all(connection, commands)
        self._sweeper.watch(min(command.history_ttl for command in commands))
        return replies

    def lookup_many(self, trigger: str, ids: Iterable[tuple[str, str]]) -> list[Entry | None]:
        keys = [(self.namespace, trigger, source, id_) for id_, source in ids]
        with self._locked(time.monotonic() + self._timeout) as connection:
            now = self._now()
            found = _read_all(connection, keys, now)
        return [None if stored is None else stored.seen(now) for stored in found]

    def in_doubt(self, trigger: str | None = None) -> list[ParkedMessage]:
        return self._copies(_UNDECIDED, trigger, -1)

    def decided(self, trigger: str | None = None, *, limit: int = 100) -> list[ParkedMessage]:
        return self._copies(_DECIDED, trigger, limit)

    def purge_expired(self) -> int:
        with self._reading() as connection:
            now = self._now()
            keys: list[Key] = connection.execute(_EXPIRED, (now,)).fetchall()
        removed = 0
        for start in range(0, len(keys), SWEPT_AT_ONCE):
            with self._transaction() as connection:
                removed += _delete_all(connection, keys[start : start + SWEPT_AT_ONCE], now)
        return removed

    @property
    def swept(self) -> int:
        return self._sweeper.removed

    def statistics(self) -> dict[str, int]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT state, count(*) FROM entries WHERE namespace = ? AND expires_at > ? GROUP BY state",
                (self.namespace, self._now()),
            ).fetchall()
        return dict(rows)

    def close(self) -> None:
        self._sweeper.close()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            held_through_forks.remove(self._path)
            if self._process == os.getpid():
                self._connection.close()

    def __repr__(self) -> str:
        return f"SqliteHistory({str(self._path)!r}, namespace={self.namespace!r})"

    def _now(self) -> float:
        return self._clock.now() + self._offset

    def _apply_all(self, connection: sqlite3.Connection, commands: Iterable[Command]) -> list[Reply]:
        now = self._now()
        return [self._apply(connection, command, now) for command in commands]

    def _apply(self, connection: sqlite3.Connection, command: Command, now: float) -> Reply:
        key = (self.namespace, command.trigger, command.source, command.id)
        before = _read(connection, key, now)
        after, reply = apply(before, command, now)
        if after is before:
            return reply
        if after is None:
            connection.execute(_DELETE, key)
        else:
            connection.execute(_WRITE, (*key, *to_row(after)))
        match copy_change(before, after, command), command:
            case "put", Park():
                connection.execute(_PARK, (*key, now, command.delivery_count, command.envelope))
            case "put", Join():
                connection.execute(_PARK, (*key, now, -1, command.frame))
            case "add", Join():
                (copy,) = connection.execute(_COPY, key).fetchone()
                connection.execute(_ADD, (copy + command.frame, *key))
            case "drop", _:
                connection.execute(_UNPARK, key)
        return reply

    def _copies(self, query: str, trigger: str | None, limit: int) -> list[ParkedMessage]:
        now = self._now()
        asked = {"namespace": self.namespace, "trigger": trigger, "now": now, "limit": limit}
        with self._reading() as connection:
            rows = connection.execute(query, asked).fetchall()
        return [parked_of(row, now) for row in rows]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """The time limit covers the wait for our own threads and for other processes."""
        deadline = time.monotonic() + self._timeout
        with self._locked(deadline) as connection:
            try:
                connection.execute(f"PRAGMA busy_timeout = {max(1, int((deadline - time.monotonic()) * 1000))}")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _locked(self, deadline: float) -> Iterator[sqlite3.Connection]:
        held: list[bool] = []
        try:
            # One call acquires and notes it: an exception of a signal handler comes before both or after both.
            held.extend(map(self._lock.acquire, (True,), (max(0.0, deadline - time.monotonic()),)))
            if not held[0]:
                raise HistoryUnavailableError(f"history {str(self._path)!r}: busy for {self._timeout:g} s")
            yield self._own_connection()
        except sqlite3.Error as error:
            raise HistoryUnavailableError(f"history {str(self._path)!r}: {error}") from error
        finally:
            if held == [True]:
                self._lock.release()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for long reads: with a write-ahead log they hold up no writer."""
        if self._closed:
            raise HistoryUnavailableError(f"history {str(self._path)!r} is closed")
        try:
            with closing(connect(self._path, self._timeout)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise HistoryUnavailableError(f"history {str(self._path)!r}: {error}") from error

    def _own_connection(self) -> sqlite3.Connection:
        if self._closed:
            raise HistoryUnavailableError(f"history {str(self._path)!r} is closed")
        if self._process != os.getpid():  # SQLite's connections must not cross a fork; the parent's is let go, not closed
            _OF_PARENTS.append(self._connection)
            self._connection = connect(self._path, self._timeout)
            self._process = os.getpid()
        return self._connection


_OF_PARENTS: list[sqlite3.Connection] = []
"""Connections that a fork brought along: closing or collecting them would drop the parent's locks on the file."""


def _delete_all(connection: sqlite3.Connection, keys: Iterable[Key], now: float) -> int:
    """Those that have expired; how many that were."""
    return sum(connection.execute(f"{_DELETE} AND expires_at <= ?", (*key, now)).rowcount for key in keys)


def _read_all(connection: sqlite3.Connection, keys: Iterable[Key], now: float) -> list[Stored | None]:
    return [_read(connection, key, now) for key in keys]


def _read(connection: sqlite3.Connection, key: Key, now: float) -> Stored | None:
    row = connection.execute(_SELECT, key).fetchone()
    if row is None:
        return None
    stored = from_row(row)
    return stored if stored.expires_at > now else None
