"""The tables of an SQL history and its statements, for SQLite and PostgreSQL, and the time of each.

Must not know what an entry means. PostgreSQL: the server's clock. SQLite: the machine's boot clock plus an offset that is kept in
the database, as in a history file (TR-43). Writers of one entry take turns: SQLite has one writer anyway; on PostgreSQL they take
an advisory lock that ends with their transaction, because a row that is not there yet cannot be locked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from jmsclient.history.rows import COLUMNS, Key
from jmsclient.history.sql_source import driver_of, run
from jmsclient.history.sqlite_file import BootClock

NAMES = ("jmsclient_entries", "jmsclient_entries_expire", "jmsclient_parked", "jmsclient_clock")
_KEY = "namespace = ? AND trigger_id = ? AND source = ? AND id = ?"
_NAMES = f"namespace, trigger_id, source, id, {COLUMNS}"
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS.split(", "))
SELECT = f"SELECT {COLUMNS} FROM jmsclient_entries WHERE {_KEY}"  # noqa: S608  constants, as all below
WRITE = (
    f"INSERT INTO jmsclient_entries ({_NAMES}) VALUES ({', '.join('?' * 23)}) "  # noqa: S608
    f"ON CONFLICT (namespace, trigger_id, source, id) DO UPDATE SET {_UPDATES}"
)
DELETE = f"DELETE FROM jmsclient_entries WHERE {_KEY}"  # noqa: S608
PARK = (
    "INSERT INTO jmsclient_parked (namespace, trigger_id, source, id, parked_at, delivery_count, envelope) "
    "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (namespace, trigger_id, source, id) DO UPDATE SET "
    "parked_at = excluded.parked_at, delivery_count = excluded.delivery_count, envelope = excluded.envelope"
)
COPY = f"SELECT envelope FROM jmsclient_parked WHERE {_KEY}"  # noqa: S608
ADD = f"UPDATE jmsclient_parked SET envelope = ? WHERE {_KEY}"  # noqa: S608
UNPARK = f"DELETE FROM jmsclient_parked WHERE {_KEY}"  # noqa: S608
_COPIES = """SELECT p.trigger_id, p.id, p.source, e.reason, p.delivery_count, p.parked_at, e.copies, e.owner, e.attempt, p.envelope,
        e.decision, e.decided_by, e.decided_at
    FROM jmsclient_parked p JOIN jmsclient_entries e USING (namespace, trigger_id, source, id)
    WHERE p.namespace = ? AND (? = '' OR p.trigger_id = ?) AND {} ORDER BY p.parked_at, p.trigger_id, p.id LIMIT ?"""
UNDECIDED = _COPIES.format("(e.state = 'in_doubt' AND e.decision IS NULL OR e.state = 'processing' AND e.lease_until <= ?)")
DECIDED = _COPIES.format("e.decision IS NOT NULL AND e.lease_until <= ?")
PURGE = """DELETE FROM jmsclient_entries WHERE (namespace, trigger_id, source, id) IN
    (SELECT namespace, trigger_id, source, id FROM jmsclient_entries WHERE expires_at <= ? LIMIT ?) AND expires_at <= ?"""
STATES = "SELECT state, count(*) FROM jmsclient_entries WHERE namespace = ? AND expires_at > ? GROUP BY state"
_LOCK = """SELECT pg_advisory_xact_lock(name) FROM
    (SELECT DISTINCT hashtextextended(key, 5064) AS name FROM unnest(?::text[]) AS key ORDER BY 1) AS names"""
_LIMITS = "SELECT set_config('lock_timeout', ?, true), set_config('statement_timeout', ?, true)"


def schema(dialect: str) -> list[str]:
    """The statements that make the tables on `sqlite` or `postgresql`, for those who make their tables themselves."""
    blob = "BYTEA" if dialect == "postgresql" else "BLOB"
    key = "namespace TEXT NOT NULL, trigger_id TEXT NOT NULL, source TEXT NOT NULL, id TEXT NOT NULL"
    primary = "PRIMARY KEY (namespace, trigger_id, source, id)"
    return [
        f"""CREATE TABLE IF NOT EXISTS jmsclient_entries ({key},
        state TEXT NOT NULL, token TEXT NOT NULL, fencing_token BIGINT NOT NULL, lease_until DOUBLE PRECISION,
        attempt INTEGER NOT NULL, started_at DOUBLE PRECISION NOT NULL, updated_at DOUBLE PRECISION NOT NULL,
        expires_at DOUBLE PRECISION NOT NULL, made_over TEXT, left_by TEXT, outcome TEXT, reason TEXT, owner TEXT,
        body_hash {blob}, copies INTEGER NOT NULL, version INTEGER NOT NULL, decision TEXT, decided_by TEXT,
        decided_at DOUBLE PRECISION, {primary})""",
        "CREATE INDEX IF NOT EXISTS jmsclient_entries_expire ON jmsclient_entries (expires_at)",
        f"""CREATE TABLE IF NOT EXISTS jmsclient_parked ({key}, parked_at DOUBLE PRECISION NOT NULL,
        delivery_count INTEGER NOT NULL, envelope {blob} NOT NULL, {primary})""",
        "CREATE TABLE IF NOT EXISTS jmsclient_clock (boot_id TEXT NOT NULL, clock_offset DOUBLE PRECISION NOT NULL)",
    ]


def missing(connection: Any) -> bool:
    """Whether tables have to be made. Locks nothing."""
    if driver_of(connection) != "sqlite3":
        asked = " OR ".join(f"to_regclass('{name}') IS NULL" for name in NAMES)
        return bool(run(connection, f"SELECT {asked}").rows[0][0])
    there = {name for (name,) in run(connection, "SELECT name FROM sqlite_master").rows}
    return not there.issuperset(NAMES)


def create(connection: Any) -> None:
    """Make what is not there yet. Safe among processes."""
    postgresql = driver_of(connection) != "sqlite3"
    if postgresql:
        run(connection, "SELECT pg_advisory_xact_lock(5064)")
    for statement in schema("postgresql" if postgresql else "sqlite"):
        run(connection, statement)


def may_be_of_one_connection(connection: Any) -> bool:
    """The database is no file, and ends with its connection, unless it is one that several share."""
    return driver_of(connection) == "sqlite3" and not run(connection, "PRAGMA database_list").rows[0][2]


class Times:
    """The store's time on a connection in a transaction: seconds."""

    def __init__(self, clock: BootClock) -> None:
        self._clock = clock
        self._offset: float | None = None

    def now(self, connection: Any) -> float:
        if driver_of(connection) != "sqlite3":
            return float(run(connection, "SELECT extract(epoch FROM clock_timestamp())").rows[0][0])
        if self._offset is None:
            self._offset = self._known_offset(connection)
        return self._clock.now() + self._offset

    def _known_offset(self, connection: Any) -> float:
        rows = run(connection, "SELECT boot_id, clock_offset FROM jmsclient_clock").rows
        if rows and rows[0][0] == self._clock.boot_id:
            return float(rows[0][1])
        last = run(connection, "SELECT max(updated_at) FROM jmsclient_entries").rows[0][0] or 0.0
        now = max(float(last), self._clock.wall())
        run(connection, "DELETE FROM jmsclient_clock")
        run(connection, "INSERT INTO jmsclient_clock VALUES (?, ?)", (self._clock.boot_id, now - self._clock.now()))
        # Whoever held a lease is gone with its boot.
        run(connection, "UPDATE jmsclient_entries SET lease_until = ? WHERE lease_until IS NULL OR lease_until > ?", (now, now))
        return now - self._clock.now()


def limit(connection: Any, seconds: float) -> None:
    """No statement of this transaction may take longer than the time limit (TR-49)."""
    if driver_of(connection) != "sqlite3":
        milliseconds = str(max(1, int(seconds * 1000)))
        run(connection, _LIMITS, (milliseconds, milliseconds))


def take_turns(connection: Any, keys: Iterable[Key]) -> None:
    """Wait until nobody else writes these entries, until the end of the transaction."""
    if driver_of(connection) != "sqlite3":
        run(connection, _LOCK, (["\x1f".join(kept_text(connection, key)) for key in keys],))


def kept_text(connection: Any, key: Sequence[str]) -> Key:
    """A key as this database can keep it: PostgreSQL has no text with a NUL in it."""
    if driver_of(connection) == "sqlite3" or not any("\0" in part or "\\" in part for part in key):
        return tuple(key)  # type: ignore[return-value]
    return tuple(part.replace("\\", "\\\\").replace("\0", "\\0") for part in key)  # type: ignore[return-value]


def given_text(connection: Any, text: str) -> str:
    """What `kept_text` was made of."""
    if driver_of(connection) == "sqlite3" or "\\" not in text:
        return text
    return re.sub(r"\\(.)", lambda found: "\0" if found[1] == "0" else found[1], text)
