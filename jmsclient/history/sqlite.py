"""A history in a SQLite file, shared by the threads and processes of one machine. Durable: messages may be parked in it.

Owns the rows; how an entry changes is `entries.apply`, what the file is and what time it is is `sqlite_file`. One IMMEDIATE
transaction an exchange, so that a claim is one atomic step among all (TR-38); each commit survives a power failure. Removed by
a sweeper when past history_ttl (TR-44). Source: rules TR-34, TR-38 to TR-44.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from jmsclient.clock import SYSTEM_CLOCK
from jmsclient.errors import HistoryUnavailableError, StoreError
from jmsclient.history.contract import DocumentHistory, ParkedMessage
from jmsclient.history.entries import Command, Entry, Park, Reply, State, Stored, apply
from jmsclient.history.sqlite_file import BUSY_TIMEOUT, BootClock, check_file, connect, prepare
from jmsclient.history.sweeper import Sweeper

SWEPT_AT_ONCE = 500
"""Rows that a sweep deletes before it lets others write."""

_COLUMNS = (
    "state, token, fencing_token, lease_until, attempt, started_at, updated_at, expires_at, made_over, left_by, "
    "outcome, reason, owner, body_hash, copies, version, decision, decided_by, decided_at"
)
_KEY = "namespace = ? AND trigger_id = ? AND source = ? AND id = ?"
_SELECT = f"SELECT {_COLUMNS} FROM entries WHERE {_KEY}"  # noqa: S608  constants
_WRITE = f"INSERT OR REPLACE INTO entries (namespace, trigger_id, source, id, {_COLUMNS}) VALUES ({', '.join('?' * 23)})"  # noqa: S608
_DELETE = f"DELETE FROM entries WHERE {_KEY}"  # noqa: S608
_PARK = "INSERT OR REPLACE INTO parked VALUES (?, ?, ?, ?, ?, ?, ?)"
_UNPARK = f"DELETE FROM parked WHERE {_KEY}"  # noqa: S608
_COPIES = """SELECT p.trigger_id, p.id, p.source, e.reason, p.delivery_count, p.parked_at, e.copies, e.owner, e.attempt, p.envelope,
        e.decision, e.decided_by, e.decided_at
    FROM parked p JOIN entries e USING (namespace, trigger_id, source, id)
    WHERE p.namespace = :namespace AND (p.trigger_id = :trigger OR :trigger IS NULL) AND {}
    ORDER BY p.parked_at, p.rowid LIMIT :limit"""
_UNDECIDED = _COPIES.format("(e.state = 'in_doubt' AND e.decision IS NULL OR e.state = 'processing' AND e.lease_until <= :now)")
_DECIDED = _COPIES.format("e.decision IS NOT NULL AND e.lease_until <= :now")
_EXPIRED = "SELECT namespace, trigger_id, source, id FROM entries WHERE expires_at <= ?"

Key = tuple[str, str, str, str]


class SqliteHistory(DocumentHistory):
    """Thread-safe: one connection and a lock, the file's own lock among processes; a fork's child gets a connection of its own.

    `clock` is the machine's. Raises StoreError or StoreFormatError for a file that cannot be used; then nothing was written.
    """

    durable = True

    def __init__(self, path: str | Path, *, namespace: str = "default", clock: BootClock | None = None) -> None:
        self.namespace = namespace
        self._path = Path(path).absolute()
        self._clock = clock or BootClock()
        self._lock = threading.Lock()  # guards the connection; held for one transaction
        self._closed = False
        check_file(self._path)
        try:
            self._connection = connect(self._path)
            try:
                self._offset = prepare(self._connection, self._path, self._clock)
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            raise StoreError(f"history {str(self._path)!r} cannot be opened: {error}") from error
        self._process = os.getpid()
        self._sweeper = Sweeper(SYSTEM_CLOCK, self.purge_expired)
        self._sweeper.watch(float("inf"))  # what earlier processes left is swept too

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        if not commands:
            return []
        with self._transaction() as connection:
            now = self._now()
            replies = [self._apply(connection, command, now) for command in commands]
        self._sweeper.watch(min(command.history_ttl for command in commands))
        return replies

    def lookup_many(self, trigger: str, ids: Iterable[tuple[str, str]]) -> list[Entry | None]:
        keys = [(self.namespace, trigger, source, id_) for id_, source in ids]
        with self._locked(time.monotonic() + BUSY_TIMEOUT) as connection:
            now = self._now()
            found = [_read(connection, key, now) for key in keys]
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
                for key in keys[start : start + SWEPT_AT_ONCE]:
                    removed += connection.execute(f"{_DELETE} AND expires_at <= ?", (*key, now)).rowcount
        return removed

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
            if self._process == os.getpid():
                self._connection.close()

    def __repr__(self) -> str:
        return f"SqliteHistory({str(self._path)!r}, namespace={self.namespace!r})"

    def _now(self) -> float:
        return self._clock.now() + self._offset

    def _apply(self, connection: sqlite3.Connection, command: Command, now: float) -> Reply:
        key = (self.namespace, command.trigger, command.source, command.id)
        before = _read(connection, key, now)
        after, reply = apply(before, command, now)
        if after is before:
            return reply
        if after is None:
            connection.execute(_DELETE, key)
        else:
            connection.execute(_WRITE, (*key, *_to_row(after)))
        if isinstance(command, Park) and (before is None or before.state is not State.IN_DOUBT):
            connection.execute(_PARK, (*key, now, command.delivery_count, command.envelope))
        elif before is not None and before.keeps_copy and (after is None or not after.keeps_copy):
            connection.execute(_UNPARK, key)
        return reply

    def _copies(self, query: str, trigger: str | None, limit: int) -> list[ParkedMessage]:
        now = self._now()
        asked = {"namespace": self.namespace, "trigger": trigger, "now": now, "limit": limit}
        with self._reading() as connection:
            rows = connection.execute(query, asked).fetchall()
        return [_parked(row, now) for row in rows]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """The time limit covers the wait for our own threads and for other processes."""
        deadline = time.monotonic() + BUSY_TIMEOUT
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
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise HistoryUnavailableError(f"history {str(self._path)!r}: busy for {BUSY_TIMEOUT:g} s")
        try:
            yield self._own_connection()
        except sqlite3.Error as error:
            raise HistoryUnavailableError(f"history {str(self._path)!r}: {error}") from error
        finally:
            self._lock.release()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for long reads: with a write-ahead log they hold up no writer."""
        if self._closed:
            raise HistoryUnavailableError(f"history {str(self._path)!r} is closed")
        try:
            with closing(connect(self._path)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise HistoryUnavailableError(f"history {str(self._path)!r}: {error}") from error

    def _own_connection(self) -> sqlite3.Connection:
        if self._closed:
            raise HistoryUnavailableError(f"history {str(self._path)!r} is closed")
        if self._process != os.getpid():  # SQLite's connections must not cross a fork; the parent's is let go, not closed
            _OF_PARENTS.append(self._connection)
            self._connection = connect(self._path)
            self._process = os.getpid()
        return self._connection


_OF_PARENTS: list[sqlite3.Connection] = []
"""Connections that a fork brought along: closing or collecting them would drop the parent's locks on the file."""


def _read(connection: sqlite3.Connection, key: Key, now: float) -> Stored | None:
    row = connection.execute(_SELECT, key).fetchone()
    if row is None:
        return None
    stored = _from_row(row)
    return stored if stored.expires_at > now else None


def _to_row(stored: Stored) -> tuple[Any, ...]:
    return (
        stored.state.value,
        stored.token,
        stored.fencing_token,
        stored.lease_until,
        stored.attempt,
        stored.started_at,
        stored.updated_at,
        stored.expires_at,
        None if stored.before is None else _to_json(stored.before),
        stored.by,
        stored.outcome,
        stored.reason,
        stored.owner,
        stored.body_hash,
        stored.copies,
        stored.version,
        stored.decision,
        stored.decided_by,
        stored.decided_at,
    )


_FIELDS = tuple(field.name for field in fields(Stored))  # in the order of _COLUMNS


def _from_row(row: Sequence[Any]) -> Stored:
    values = dict(zip(_FIELDS, row, strict=False))  # one of format 1 that an entry was made over ends with its version
    try:
        values["state"] = State(values["state"])
    except ValueError:  # of a version that this one does not know
        values["state"] = State.UNKNOWN
    if values["before"] is not None:
        values["before"] = _from_json(values["before"])
    return Stored(**values)


def _to_json(before: Stored) -> str:
    row = list(_to_row(before))
    row[13] = None if before.body_hash is None else before.body_hash.hex()
    return json.dumps(row)


def _from_json(text: str) -> Stored:
    row = json.loads(text)
    row[13] = None if row[13] is None else bytes.fromhex(row[13])
    return _from_row(row)


def _parked(row: Sequence[Any], now: float) -> ParkedMessage:
    trigger, id_, source, reason, delivery_count, parked_at, copies, owner, attempt, envelope, decision, by, decided_at = row
    return ParkedMessage(
        trigger=trigger,
        id=id_,
        source=source,
        reason=reason or "",
        delivery_count=delivery_count,
        age=max(0.0, now - parked_at),
        copies=copies,
        owner=owner,
        attempt=attempt,
        envelope=envelope,
        decision=decision,
        decided_by=by,
        decided=0.0 if decided_at is None else max(0.0, now - decided_at),
    )
