"""Where an SQL history gets its connections, and what SQLite and PostgreSQL are told differently.

Owns connections and transactions; must not know what an entry means. Takes the application's own: a SQLAlchemy Engine, or a call
that makes a DB-API connection (sqlite3, psycopg). Nothing of them is imported here. Source: rules TR-43, TR-49.
"""

from __future__ import annotations

import contextlib
import os
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jmsclient.errors import ConfigurationError, HistoryUnavailableError, IllegalStateError

DRIVERS = {"sqlite3": "sqlite", "psycopg": "postgresql", "psycopg2": "postgresql"}
EXPECTED = "a SQLAlchemy Engine, or a function that makes a connection of sqlite3 or psycopg"


MARK = "jmsclient_handler"
NO_SAVEPOINT = ("3B001", "25P01")
"""What PostgreSQL says where there is none of that name, or no transaction."""
NO_TABLE = "42P01"
GONE = (
    "; its tables are not there: make them (jmsclient.history.sql_tables.schema has their text), or start one with create=True; if "
    "they were dropped, what was processed is no longer known, and what is delivered again would run again"
)


class Result:
    """Rows of a query, or how many rows a statement changed."""

    __slots__ = ("count", "rows")

    def __init__(self, rows: Sequence[Any], count: int) -> None:
        self.rows = rows
        self.count = count


def driver_of(connection: Any) -> str:
    """`sqlite3`, `psycopg` or `psycopg2`: of a DB-API connection, or of the one below a SQLAlchemy Connection. Raises
    ConfigurationError."""
    name = type(below(connection)).__module__.partition(".")[0]
    if name not in DRIVERS:
        raise ConfigurationError(
            f"an SQL history on {type(connection).__module__}.{type(connection).__name__}: expected {EXPECTED}"
        )
    return name


def below(connection: Any) -> Any:
    """The driver's own connection."""
    if hasattr(connection, "exec_driver_sql"):  # SQLAlchemy's
        return connection.connection.driver_connection
    return connection


def run(connection: Any, statement: str, values: Sequence[Any] = ()) -> Result:
    """One statement, its values marked by `?`, on any of these connections, inside whatever transaction it is in."""
    if driver_of(connection) != "sqlite3":
        statement = statement.replace("?", "%s")
    if hasattr(connection, "exec_driver_sql"):
        result = connection.exec_driver_sql(statement, tuple(values))
        return Result(result.fetchall() if result.returns_rows else (), result.rowcount)
    cursor = connection.cursor()
    try:
        cursor.execute(statement, tuple(values))
        return Result(cursor.fetchall() if cursor.description is not None else (), cursor.rowcount)
    finally:
        cursor.close()


def errors_of(connection: Any) -> tuple[type[BaseException], ...]:
    """What the driver, and SQLAlchemy around it, raise."""
    found: list[type[BaseException]] = [sys.modules[driver_of(connection)].Error, OSError]
    if hasattr(connection, "exec_driver_sql"):
        found.append(sys.modules["sqlalchemy.exc"].SQLAlchemyError)
    return tuple(found)


class Source(ABC):
    """Connections for transactions. Thread-safe; a transaction belongs to the thread that began it."""

    @contextmanager
    def transaction(self, *, wait: float | None = None, writes: bool = True) -> Iterator[Any]:
        """A connection in a transaction of its own, which is committed at the end and rolled back by an exception. SQLite's write
        lock is waited for `wait` seconds (None: as the connection has it). Raises HistoryUnavailableError where the database fails;
        what the block raises passes."""
        connection = self._connect()
        whole = False
        try:
            with unavailable(connection):
                self._begin(connection)
                if driver_of(connection) == "sqlite3":
                    begin_sqlite(connection, wait, writes)
            yield connection
            with unavailable(connection):
                self._commit(connection)
            whole = True
        finally:
            self._end(connection, whole)

    @abstractmethod
    def close(self) -> None:
        """Let go of what waits for the next transaction."""

    @abstractmethod
    def _connect(self) -> Any: ...

    @abstractmethod
    def _begin(self, connection: Any) -> None: ...

    @abstractmethod
    def _commit(self, connection: Any) -> None: ...

    @abstractmethod
    def _end(self, connection: Any, whole: bool) -> None:
        """Keep it for the next, if it is `whole`; else roll back and let it go."""


class DriverSource(Source):
    """Connections that `connect` makes. Those of PostgreSQL are used again; those of SQLite belong to a thread and are not."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._make = connect
        self._idle: deque[Any] = deque()
        self._process = os.getpid()

    def close(self) -> None:
        while self._idle:
            self._close(self._idle.pop())

    def _connect(self) -> Any:
        if self._process != os.getpid():  # a fork's child: the parent's connections are the parent's
            self._idle, self._process = deque(), os.getpid()
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        try:
            connection = self._make()
        except Exception as error:  # the application's own call, which knows no error of ours
            raise HistoryUnavailableError(f"the history's database cannot be connected to: {error}") from error
        driver_of(connection)
        return connection

    def _begin(self, connection: Any) -> None:
        if driver_of(connection) != "sqlite3" and connection.autocommit:
            connection.autocommit = False

    def _commit(self, connection: Any) -> None:
        if getattr(connection, "autocommit", None) is True:  # of sqlite3, whose commit() then does nothing
            run(connection, "COMMIT")
        else:
            connection.commit()

    def _end(self, connection: Any, whole: bool) -> None:
        if whole and driver_of(connection) != "sqlite3":
            self._idle.append(connection)
            return
        if not whole:
            with contextlib.suppress(*errors_of(connection)):
                connection.rollback()
        self._close(connection)

    def _close(self, connection: Any) -> None:
        with contextlib.suppress(*errors_of(connection)):
            connection.close()


class EngineSource(Source):
    """Connections of a SQLAlchemy Engine, from the engine's pool."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def close(self) -> None:
        """The engine is the application's."""

    def _connect(self) -> Any:
        try:
            connection = self._engine.connect()
        except sys.modules["sqlalchemy.exc"].SQLAlchemyError as error:
            raise HistoryUnavailableError(f"the history's database cannot be connected to: {error}") from error
        driver_of(connection)
        return connection

    def _begin(self, connection: Any) -> None:
        connection.begin()

    def _commit(self, connection: Any) -> None:
        connection.commit()

    def _end(self, connection: Any, whole: bool) -> None:
        with contextlib.suppress(*errors_of(connection)):
            connection.close()  # rolls back what was not committed


def open_source(source: Any) -> Source:
    """Raises ConfigurationError for what gives no connections."""
    if hasattr(source, "dialect") and hasattr(source, "connect"):
        return EngineSource(source)
    if callable(source):
        return DriverSource(source)
    raise ConfigurationError(f"SqlHistory({source!r}): expected {EXPECTED}")


def begin_sqlite(connection: Any, wait: float | None, writes: bool) -> None:
    """Take the file's one write lock at once: whoever reads first and writes later may be refused by SQLite, whatever it waits."""
    raw = below(connection)
    if wait is not None:
        raw.execute(f"PRAGMA busy_timeout = {int(wait * 1000)}")
    if raw.in_transaction:  # begun by the driver itself, and nothing was done in it yet
        raw.execute("COMMIT")
    raw.execute("BEGIN IMMEDIATE" if writes else "BEGIN")


def mark(connection: Any) -> None:
    """So that `check_mark` can tell whether it is still this transaction: it would look the same if it had ended and the driver had
    begun another."""
    run(connection, f"SAVEPOINT {MARK}")


def check_mark(connection: Any) -> None:
    """Raises IllegalStateError where the transaction that `mark` was called in has ended."""
    try:
        run(connection, f"RELEASE SAVEPOINT {MARK}")
    except errors_of(connection) as error:
        raw = _raw(error)
        if _code(raw) in NO_SAVEPOINT or "no such savepoint" in str(raw):
            raise IllegalStateError(
                "the handler committed or rolled back the history's transaction, so that it could not be recorded together with "
                "what the handler did: to have all of it rolled back, raise"
            ) from error
        raise


def _raw(error: BaseException) -> BaseException:
    """The driver's, below SQLAlchemy's."""
    return getattr(error, "orig", None) or error


def _code(raw: BaseException) -> str | None:
    """What PostgreSQL says."""
    return getattr(raw, "sqlstate", None) or getattr(raw, "pgcode", None)


@contextmanager
def unavailable(connection: Any) -> Iterator[None]:
    """What the database raises inside is a history that does not answer."""
    try:
        yield
    except errors_of(connection) as error:
        raw = _raw(error)
        gone = "jmsclient_" in str(raw) and (_code(raw) == NO_TABLE or "no such table" in str(raw))
        raise HistoryUnavailableError(f"the history's database: {type(error).__name__}: {error}{GONE if gone else ''}") from error
