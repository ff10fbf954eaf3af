"""Owns what may be opened as a history file, its tables, and its time. Must not know what an entry means.

Time is the boot clock (it rises while the machine sleeps, and nobody can set it) plus an offset that is written to the file once a
boot: the wall clock's time at that moment, or the last time known where that is later. So times of two boots compare, leases end
with their boot, and between boots history_ttl goes on by the wall clock (TR-43). Source: TR-43, and "Bad input" of the first issue:
a file that is not ours is left as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path

from jmsclient.errors import StoreError, StoreFormatError
from jmsclient.history.contract import OPERATION_TIMEOUT

APPLICATION_ID = 0x4A4D5348  # "JMSH"
FORMAT = 2
HEADER_SIZE = 100
SHARED_BYTES = 0x40000002, 510
"""Where in its file an SQLite that has it open holds a shared lock, and how long that is; the same of a log's shared memory."""
SHARED_MEMORY_BYTES = 128, 1

_SCHEMA = (
    """CREATE TABLE entries (
        namespace TEXT NOT NULL, trigger_id TEXT NOT NULL, source TEXT NOT NULL, id TEXT NOT NULL,
        state TEXT NOT NULL, token TEXT NOT NULL, fencing_token INTEGER NOT NULL, lease_until REAL, attempt INTEGER NOT NULL,
        started_at REAL NOT NULL, updated_at REAL NOT NULL, expires_at REAL NOT NULL, made_over TEXT, left_by TEXT,
        outcome TEXT, reason TEXT, owner TEXT, body_hash BLOB, copies INTEGER NOT NULL, version INTEGER NOT NULL,
        decision TEXT, decided_by TEXT, decided_at REAL,
        PRIMARY KEY (namespace, trigger_id, source, id)) WITHOUT ROWID""",
    """CREATE TABLE parked (
        namespace TEXT NOT NULL, trigger_id TEXT NOT NULL, source TEXT NOT NULL, id TEXT NOT NULL,
        parked_at REAL NOT NULL, delivery_count INTEGER NOT NULL, envelope BLOB NOT NULL,
        PRIMARY KEY (namespace, trigger_id, source, id))""",
    "CREATE TABLE boot (boot_id TEXT NOT NULL, clock_offset REAL NOT NULL)",
)
_FROM_FORMAT_1 = tuple(f"ALTER TABLE entries ADD COLUMN {one}" for one in ("decision TEXT", "decided_by TEXT", "decided_at REAL"))


class BootClock:
    """The machine's time since its start, and which start that was."""

    def __init__(self) -> None:
        try:
            self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            self.boot_id = ""  # a system that does not tell its boots apart: one wall clock for all of them

    def now(self) -> float:
        """Seconds since the boot."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) if self.boot_id else time.time()

    def wall(self) -> float:
        """Seconds since 1970; asked once a boot."""
        return time.time()


def check_file(path: Path) -> None:
    """Refuse what cannot be a history of ours, looking only. Raises StoreError or StoreFormatError."""
    folder = path.parent
    if not folder.is_dir():
        raise StoreError(f"history {str(path)!r}: the directory {str(folder)!r} does not exist; create it first")
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise StoreError(f"history {str(path)!r} is not a regular file; choose another name")
    for place in (folder, path):
        if place.exists() and (not os.access(place, os.W_OK) or not place.stat().st_mode & 0o222):
            raise StoreError(f"history {str(path)!r}: {str(place)!r} is read-only; make it writable or choose another file")
    if not path.exists() or not path.stat().st_size:
        return
    try:
        application, version = _said_by_its_header(path)
    except sqlite3.DatabaseError as error:
        if not os.access(path, os.R_OK):
            raise StoreError(f"history {str(path)!r} cannot be read: {error}") from error
        raise StoreFormatError(
            f"history {str(path)!r} is not an SQLite file; it is left as it is, choose another name ({error})"
        ) from error
    _check_format(path, application, version)


def _said_by_its_header(path: Path) -> tuple[int, int]:
    """Its application_id and user_version, without a lock or a change. Raises sqlite3.DatabaseError.

    By SQLite, never by a file of Python's: closing that would drop every lock that this process has on the file, those of other
    histories on it included. Then the next process to leave takes itself for the last one and removes the write-ahead log, and what
    is written here afterwards is lost."""
    if path.stat().st_size < HEADER_SIZE:
        raise sqlite3.DatabaseError("it is shorter than a header")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        return tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))


def _check_format(path: Path, application: int, version: int) -> None:
    if application != APPLICATION_ID:
        raise StoreFormatError(f"history {str(path)!r} is an SQLite file of another program; it is left as it is")
    if version > FORMAT:
        raise StoreFormatError(
            f"history {str(path)!r} has format {version}, this version of jmsclient knows up to {FORMAT}; use a newer jmsclient"
        )


def connect(path: Path, wait: float = OPERATION_TIMEOUT) -> sqlite3.Connection:
    """A connection that waits so many seconds for others, and whose commits survive a power failure."""
    connection = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


class HeldThroughForks:
    """Files that this process has connections to. A forked child takes the locks on them that SQLite takes itself to have there:
    it remembers its parent's, which the system does not give to a child.

    Without them the parent, or whoever comes after it, takes itself for alone when it closes or opens the file: the write-ahead log
    is removed or begun anew under the child, and what that writes is lost. They are held until the child ends."""

    def __init__(self) -> None:
        self._paths: list[Path] = []  # one for each; append and remove are atomic: no lock
        self._held: list[int] = []
        os.register_at_fork(after_in_child=self._hold)

    def add(self, path: Path) -> None:
        """A connection was opened."""
        self._paths.append(path)

    def remove(self, path: Path) -> None:
        """It was closed."""
        self._paths.remove(path)

    def _hold(self) -> None:
        for path in set(self._paths):
            self._lock(path, *SHARED_BYTES)
            self._lock(path.with_name(f"{path.name}-shm"), *SHARED_MEMORY_BYTES)

    def _lock(self, path: Path, start: int, length: int) -> None:
        with contextlib.suppress(OSError):  # the file is gone: there is nothing to hold
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._held.append(file)  # never closed: that would drop every lock on it
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, length, start)


held_through_forks = HeldThroughForks()


def prepare(connection: sqlite3.Connection, path: Path, clock: BootClock) -> float:
    """Make the tables of a new file and write down a new boot; returns the clock's offset. Safe among processes.

    The tables are committed before the journal becomes a write-ahead log, so that the file's own header says whose it is.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        else:
            _check_format(path, application, version)
            if version < FORMAT:
                for statement in _FROM_FORMAT_1:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {FORMAT}")
        offset = _offset(connection, clock)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    _log_ahead(connection)
    return offset


def _offset(connection: sqlite3.Connection, clock: BootClock) -> float:
    row = connection.execute("SELECT boot_id, clock_offset FROM boot").fetchone()
    if row is not None and row[0] == clock.boot_id:
        return float(row[1])
    last = connection.execute("SELECT max(updated_at) FROM entries").fetchone()[0] or 0.0
    now = max(last, clock.wall())
    offset = now - clock.now()
    connection.execute("DELETE FROM boot")
    connection.execute("INSERT INTO boot VALUES (?, ?)", (clock.boot_id, offset))
    # Whoever held a lease is gone with its boot.
    connection.execute("UPDATE entries SET lease_until = ? WHERE lease_until IS NULL OR lease_until > ?", (now, now))
    return offset


def _log_ahead(connection: sqlite3.Connection) -> None:
    """The switch needs the file for itself for a moment, and SQLite does not always wait for that."""
    end = time.monotonic() + OPERATION_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.01)
