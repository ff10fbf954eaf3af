"""A history in the application's own database, so that what a handler did and that it is completed commit together (TR-36).

Owns the transitions on the tables of `sql_tables`; how an entry changes is `entries.apply`, where connections come from is
`sql_source`. A claim commits before the handler starts. `completed` is written, and its token checked, inside the handler's
transaction: an abandoned run has left nothing, so it is New by atomic take-over, and the effects of a late owner roll back. Also an
ordinary history for triggers whose handlers do not ask for its transaction. Source: rules TR-34, TR-36 to TR-46, TR-49.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jmsclient.clock import SYSTEM_CLOCK
from jmsclient.errors import ConfigurationError, HistoryUnavailableError, LeaseLostError
from jmsclient.history import sql_tables as tables
from jmsclient.history.contract import OPERATION_TIMEOUT, DocumentHistory, HistoryTransaction, ParkedMessage, stored_id
from jmsclient.history.entries import Command, Complete, Entry, Join, Park, Reply, Stored, apply, copy_change
from jmsclient.history.rows import Key, from_row, parked_of, to_row
from jmsclient.history.sql_source import check_mark, mark, open_source, run, unavailable
from jmsclient.history.sql_watchdog import Watchdog
from jmsclient.history.sqlite_file import BootClock
from jmsclient.history.sweeper import Sweeper

SWEPT_AT_ONCE = 500
"""Rows that a sweep deletes before it lets others write."""
ALL = 2**31 - 1
APART = (
    "SqlHistory: each connection of its source has a database of its own, as one to sqlite:///:memory: has, and what one writes "
    "no other sees; give it connections to a file, or use history='memory:', which is of one process and ends with it"
)


class SqlHistory(DocumentHistory):
    """Thread-safe. `source` is a SQLAlchemy Engine, or a function that makes a connection of sqlite3 or psycopg: to the database
    that the handlers write to. Its own calls take connections of their own, for `operation_timeout` seconds at most (TR-49).

    `create` makes the tables that are not there yet, when it is first used; without it they have to be there (`sql_tables.schema`
    has their text). Raises ConfigurationError for a source that gives no such connection, or, when it is first used, connections to
    a database each.
    """

    durable = True
    transactional = True

    def __init__(
        self,
        source: Any,
        *,
        namespace: str = "default",
        create: bool = True,
        clock: BootClock | None = None,
        operation_timeout: float = OPERATION_TIMEOUT,
    ) -> None:
        self.namespace = namespace
        self._source = open_source(source)
        self._times = tables.Times(clock or BootClock())
        self._create = create
        self._timeout = operation_timeout
        self._closed = False
        self._prepared = False
        self._to_be_seen = False
        """Nobody has looked yet whether the tables are there on another connection, which is not a matter of course."""
        self._watchdog = Watchdog(SYSTEM_CLOCK)
        self._sweeper = Sweeper(SYSTEM_CLOCK, self.purge_expired)

    # -- the contract -------------------------------------------------------------------------------------------------

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        if not commands:
            return []
        with self._own() as connection:
            tables.take_turns(connection, [self._key(command) for command in commands])
            now = self._times.now(connection)
            replies = [self._apply(connection, command, now) for command in commands]
        self._sweeper.watch(min(command.history_ttl for command in commands))
        return replies

    def lookup_many(self, trigger: str, ids: Iterable[tuple[str, str]]) -> list[Entry | None]:
        keys = [(self.namespace, trigger, source, id_) for id_, source in ids]
        with self._reading() as connection:
            now = self._times.now(connection)
            found = [self._read(connection, key, now) for key in keys]
        return [None if stored is None else stored.seen(now) for stored in found]

    def in_doubt(self, trigger: str | None = None) -> list[ParkedMessage]:
        return self._copies(tables.UNDECIDED, trigger, ALL)

    def decided(self, trigger: str | None = None, *, limit: int = 100) -> list[ParkedMessage]:
        return self._copies(tables.DECIDED, trigger, limit)

    def purge_expired(self) -> int:
        removed = 0
        while True:
            with self._own() as connection:
                now = self._times.now(connection)
                swept = run(connection, tables.PURGE, (now, SWEPT_AT_ONCE, now)).count
            removed += swept
            if swept < SWEPT_AT_ONCE:
                return removed

    def statistics(self) -> dict[str, int]:
        with self._reading() as connection:
            (namespace, *_) = tables.kept_text(connection, (self.namespace, "", "", ""))
            return dict(map(tuple, run(connection, tables.STATES, (namespace, self._times.now(connection))).rows))

    def close(self) -> None:
        self._closed = True
        self._sweeper.close()
        self._watchdog.close()
        self._source.close()

    # -- in the handler's transaction ---------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, completion: Complete | None) -> Iterator[HistoryTransaction]:
        self._prepare()
        self._check_open()
        with self._source.transaction() as connection:
            with unavailable(connection):
                mark(connection)
            yield HistoryTransaction(connection)
            with unavailable(connection):
                check_mark(connection)
            if completion is not None:
                with unavailable(connection):
                    self._complete(connection, completion)

    def complete_in(
        self,
        connection: Any,
        trigger: str,
        id: str,  # noqa: A002
        *,
        token: str,
        source: str = "JMSMessageID",
        outcome: str = "done",
        history_ttl: float = 86400.0,
    ) -> None:
        """Write *done* on the application's own open connection, in the transaction that it is in and that the application then
        commits. Raises LeaseLostError where another owner holds the entry: then it has to roll back. What the database raises
        passes."""
        completion = Complete(
            trigger=trigger, id=stored_id(id), source=source, token=token, outcome=outcome, history_ttl=history_ttl
        )
        self._complete(connection, completion)

    def _complete(self, connection: Any, completion: Complete) -> None:
        if self._create and not self._prepared and tables.missing(connection):  # nothing was asked of this history yet
            tables.create(connection)
        tables.take_turns(connection, [self._key(completion)])
        reply = self._apply(connection, completion, self._times.now(connection))
        if reply.lease_lost:
            raise LeaseLostError(
                f"trigger {completion.trigger!r}, id {completion.id!r}: another owner holds the entry; roll this transaction back"
            )

    # -- inside -------------------------------------------------------------------------------------------------------

    def _key(self, command: Command) -> Key:
        return (self.namespace, command.trigger, command.source, command.id)

    def _apply(self, connection: Any, command: Command, now: float) -> Reply:
        key = self._key(command)
        before = self._read(connection, key, now)
        after, reply = apply(before, command, now)
        if after is before:
            return reply
        kept = tables.kept_text(connection, key)
        if after is None:
            run(connection, tables.DELETE, kept)
        else:
            run(connection, tables.WRITE, (*kept, *to_row(after)))
        match copy_change(before, after, command), command:
            case "put", Park():
                run(connection, tables.PARK, (*kept, now, command.delivery_count, command.envelope))
            case "put", Join():
                run(connection, tables.PARK, (*kept, now, -1, command.frame))
            case "add", Join():
                copy = bytes(run(connection, tables.COPY, kept).rows[0][0])
                run(connection, tables.ADD, (copy + command.frame, *kept))
            case "drop", _:
                run(connection, tables.UNPARK, kept)
        return reply

    def _read(self, connection: Any, key: Key, now: float) -> Stored | None:
        rows = run(connection, tables.SELECT, tables.kept_text(connection, key)).rows
        if not rows:
            return None
        stored = from_row(rows[0])
        return stored if stored.expires_at > now else None

    def _copies(self, query: str, trigger: str | None, limit: int) -> list[ParkedMessage]:
        with self._reading() as connection:
            now = self._times.now(connection)
            namespace, name, *_ = tables.kept_text(connection, (self.namespace, trigger or "", "", ""))
            rows = run(connection, query, (namespace, name, name, now, limit)).rows
            given = [[tables.given_text(connection, text) for text in row[:3]] + list(row[3:]) for row in rows]
        return [parked_of(row, now) for row in given]

    @contextmanager
    def _own(self) -> Iterator[Any]:
        """A transaction of the history's own, within the time limit."""
        self._prepare()
        with self._within(writes=True) as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        """The same for questions: on SQLite they wait for no writer."""
        self._prepare()
        with self._within(writes=False) as connection:
            yield connection

    def _prepare(self) -> None:
        """Have the tables, and on SQLite the time, before a transaction that uses them: a table is made under a lock that others'
        transactions may be waiting behind, so nothing else is done under it."""
        if self._prepared:
            return
        with self._within(writes=True) as connection:
            if self._create and tables.missing(connection):
                tables.create(connection)
            self._to_be_seen = tables.may_be_of_one_connection(connection)
            self._times.now(connection)
        if self._to_be_seen and not self._seen_elsewhere():
            raise ConfigurationError(APART)
        self._to_be_seen = False
        self._prepared = True

    def _seen_elsewhere(self) -> bool:
        """Another thread sees the tables: SQLAlchemy gives each thread one connection to a database in memory. Raises
        HistoryUnavailableError."""
        found: list[bool | BaseException] = []

        def look() -> None:
            try:
                with self._within(writes=False) as connection:
                    found.append(not tables.missing(connection))
            except BaseException as error:  # noqa: BLE001  whoever waits raises it
                found.append(error)

        thread = threading.Thread(target=look, name="jmsclient-history-look", daemon=True)
        thread.start()
        thread.join()
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    @contextmanager
    def _within(self, *, writes: bool) -> Iterator[Any]:
        self._check_open()
        with (
            self._source.transaction(wait=self._timeout, writes=writes) as connection,
            self._watchdog.limit(connection, self._timeout + 1.0),
            unavailable(connection),
        ):
            tables.limit(connection, self._timeout)
            yield connection

    def _check_open(self) -> None:
        if self._closed:
            raise HistoryUnavailableError("the history in the database is closed")
