"""What only the SQL history has: the application's own connections, and the handler's own transaction (TR-36, TR-49)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy

from jmsclient import Delivery, TransientError, Worker
from jmsclient.errors import ConfigurationError, HistoryUnavailableError, LeaseLostError, UnsupportedFeatureError
from jmsclient.events import Event
from jmsclient.history import Complete, HistoryTransaction, SqlHistory, State, open_history
from jmsclient.history.sql_source import below, run
from jmsclient.history.sql_tables import schema
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.contract import Verb

from ..seen import verbs  # noqa: TID252  tests are no package that has a name
from .postgresql_program import PostgresqlProgram
from .redis_program import until

Q = "queue:///orders"
PLACES = [
    "sqlite3",
    "sqlite3-autocommit",
    "sqlalchemy-sqlite",
    *[pytest.param(kind, marks=pytest.mark.real) for kind in ("psycopg", "psycopg-autocommit", "sqlalchemy-psycopg")],
]


@pytest.fixture(params=PLACES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """What an application may give: an engine or a way to connect, to a database with a table of its own."""
    file = tmp_path / "shop.db"
    url = request.getfixturevalue("postgresql_url") if "psycopg" in request.param else ""
    found: Any = {
        "sqlite3": lambda: sqlite3.connect(file),
        "sqlite3-autocommit": lambda: sqlite3.connect(file, isolation_level=None),
        "psycopg": lambda: psycopg.connect(url),
        "psycopg-autocommit": lambda: psycopg.connect(url, autocommit=True),
    }.get(request.param)
    if found is None:
        address = f"sqlite:///{file}" if "sqlite" in request.param else url.replace("postgresql:", "postgresql+psycopg:")
        found = sqlalchemy.create_engine(address)
    with closing(connection(found)) as one:
        run(one, "CREATE TABLE IF NOT EXISTS effects (name TEXT)")
        one.commit()
    yield found
    if hasattr(found, "dispose"):
        found.dispose()


def connection(source: Any) -> Any:
    return source.connect() if hasattr(source, "connect") else source()


def effects(source: Any, name: str) -> int:
    with closing(connection(source)) as one:
        number = run(one, "SELECT count(*) FROM effects WHERE name = ?", (name,)).rows[0][0]
        one.rollback()
    return int(number)


def note(on: Any, name: str) -> None:
    run(on, "INSERT INTO effects (name) VALUES (?)", (name,))


def note_and_fail(on: Any, name: str) -> None:
    note(on, name)
    raise ZeroDivisionError


@pytest.fixture
def history(source: Any) -> Iterator[SqlHistory]:
    with SqlHistory(source, namespace=uuid4().hex) as opened:
        yield opened


# -- by itself --------------------------------------------------------------------------------------------------------


def test_tr36_the_entry_commits_with_the_applications_own_transaction(source: Any, history: SqlHistory) -> None:
    name = uuid4().hex
    claim = history.claim(Q, "1")
    with closing(connection(source)) as mine:
        if getattr(mine, "autocommit", False) is True or getattr(mine, "isolation_level", "") is None:
            run(mine, "BEGIN")
        note(mine, name)
        history.complete_in(mine, Q, "1", token=claim.token)
        run(mine, "ROLLBACK") if getattr(mine, "autocommit", False) is True else mine.rollback()
    assert effects(source, name) == 0
    assert history.lookup(Q, "1").state is State.PROCESSING  # type: ignore[union-attr]
    with history.transaction(Complete(trigger=Q, id="1", token=claim.token)) as transaction:
        note(transaction.connection, name)
    assert effects(source, name) == 1
    assert history.lookup(Q, "1").state is State.COMPLETED  # type: ignore[union-attr]


def test_tr36_the_effects_of_a_late_owner_roll_back(source: Any, history: SqlHistory) -> None:
    late, winner = uuid4().hex, uuid4().hex
    history.claim(Q, "1", token="late", lease=0.0)
    take_over = history.claim(Q, "1", token="winner", take_over=True)
    assert take_over.claimed
    with (
        pytest.raises(LeaseLostError, match=r"id '1': another owner holds the entry"),
        history.transaction(Complete(trigger=Q, id="1", token="late")) as transaction,
    ):
        note(transaction.connection, late)
    with history.transaction(Complete(trigger=Q, id="1", token="winner")) as transaction:
        note(transaction.connection, winner)
    assert (effects(source, late), effects(source, winner)) == (0, 1)


def test_tr36_what_a_handler_raises_rolls_back_and_passes(source: Any, history: SqlHistory) -> None:
    name = uuid4().hex
    history.claim(Q, "1", token="a")
    with (
        pytest.raises(ZeroDivisionError),
        history.transaction(Complete(trigger=Q, id="1", token="a")) as transaction,
    ):
        note_and_fail(transaction.connection, name)
    assert effects(source, name) == 0
    assert history.lookup(Q, "1").state is State.PROCESSING  # type: ignore[union-attr]


def test_tr36_the_tables_are_made_in_the_applications_transaction_where_nothing_was_asked_before(source: Any) -> None:
    with SqlHistory(source, namespace=uuid4().hex) as history, closing(connection(source)) as mine:
        history.complete_in(mine, Q, "1", token="a")
        mine.commit()
        assert history.lookup(Q, "1").state is State.COMPLETED  # type: ignore[union-attr]


def test_tr39_an_entry_that_is_gone_is_written_anew_in_the_transaction(source: Any, history: SqlHistory) -> None:
    with history.transaction(Complete(trigger=Q, id="1", token="a")):
        pass
    assert history.lookup(Q, "1").state is State.COMPLETED  # type: ignore[union-attr]


def test_entries_survive_the_history_and_another_one_reads_them(source: Any) -> None:
    namespace = uuid4().hex
    with SqlHistory(source, namespace=namespace) as first:
        first.claim(Q, "1", token="a")
        first.park(Q, "2", token="a", envelope=b"\x00\xff", reason="r")
    with SqlHistory(source, namespace=namespace, create=False) as second:
        assert second.lookup(Q, "1") is not None
        assert [one.envelope for one in second.in_doubt()] == [b"\x00\xff"]


@pytest.mark.parametrize("wrong", [None, "sqlite:shop.db", 5])
def test_what_gives_no_connections_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected a SQLAlchemy Engine, or a function that makes a connection"):
        SqlHistory(wrong)


def test_a_connection_of_another_database_is_refused() -> None:
    with SqlHistory(object) as history, pytest.raises(ConfigurationError, match=r"builtins\.object: expected a SQLAlchemy"):
        history.claim(Q, "1")


def test_a_database_that_cannot_be_reached_is_a_history_that_does_not_answer(tmp_path: Path) -> None:
    with (
        SqlHistory(lambda: sqlite3.connect(tmp_path / "no" / "shop.db")) as history,
        pytest.raises(HistoryUnavailableError, match="cannot be connected to"),
    ):
        history.claim(Q, "1")


@pytest.mark.parametrize(
    "source",
    [
        lambda: sqlite3.connect(":memory:"),
        lambda: sqlite3.connect(""),
        lambda: sqlite3.connect("file:a-name?mode=memory&cache=shared", uri=True),
        sqlalchemy.create_engine("sqlite:///:memory:"),
        sqlalchemy.create_engine("sqlite://"),
    ],
    ids=["in memory", "temporary", "shared while one is open", "of a thread", "of a thread, short"],
)
def test_connections_that_have_a_database_each_are_refused_with_what_to_do(source: Any) -> None:
    with SqlHistory(source) as history:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=r"a database of its own.*connections to a file, or use history='memory:'"):
                history.claim(Q, "1")
    with ScriptedBackend() as backend:
        worker = Worker(backend.url, history=SqlHistory(source))
        worker.trigger(Q)(lambda: None)
        with pytest.raises(ConfigurationError, match="a database of its own"):
            worker.start()
    if isinstance(source, sqlalchemy.Engine):
        source.dispose()


def test_a_database_in_memory_that_all_connections_share_serves() -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect("file:another-name?mode=memory&cache=shared", uri=True)

    static = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.StaticPool, connect_args={"check_same_thread": False})
    with closing(connect()):
        for source in (connect, static):
            with SqlHistory(source) as history:
                assert history.claim(Q, "1").claimed
                assert not history.claim(Q, "1").claimed
    static.dispose()


@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def test_tr53_tables_that_were_dropped_are_not_made_anew_while_it_runs_and_it_says_what_to_do(
    request: pytest.FixtureRequest, tmp_path: Path, dialect: str
) -> None:
    """What they knew is lost: what is delivered again would be New without a word, so somebody has to look first."""
    place = f"dropped_{uuid4().hex}"
    url = request.getfixturevalue("postgresql_url") if dialect == "postgresql" else ""

    def connect() -> Any:
        if dialect == "sqlite":
            return sqlite3.connect(tmp_path / "shop.db")
        return psycopg.connect(url, options=f"-c search_path={place}")

    def change(*statements: str) -> None:
        with closing(connect()) as mine:
            for statement in statements:
                run(mine, statement)
            mine.commit()

    if dialect == "postgresql":
        change(f"CREATE SCHEMA {place}")
    with SqlHistory(connect) as history:
        history.claim(Q, "1")
        change(*[f"DROP TABLE jmsclient_{name}" for name in ("entries", "parked", "clock")])
        for _ in range(2):
            with pytest.raises(HistoryUnavailableError, match=r"its tables are not there: make them .*sql_tables\.schema"):
                history.claim(Q, "1")
        change(*schema(dialect))
        assert history.claim(Q, "1").claimed
    if dialect == "postgresql":
        change(f"DROP SCHEMA {place} CASCADE")


def test_the_tables_may_be_the_applications_to_make(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with SqlHistory(lambda: sqlite3.connect(file), create=False) as history:
        with pytest.raises(HistoryUnavailableError, match="no such table"):
            history.claim(Q, "1")
        with closing(sqlite3.connect(file)) as mine:
            for statement in schema("sqlite"):
                mine.execute(statement)
            mine.commit()
        assert history.claim(Q, "1").claimed


def test_other_histories_have_no_transaction() -> None:
    with open_history("memory:") as history, pytest.raises(UnsupportedFeatureError, match="use an SqlHistory"):
        history.transaction(None)


def test_tr49_a_sqlite_database_that_another_holds_is_given_up_after_two_seconds(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with SqlHistory(lambda: sqlite3.connect(file, timeout=60)) as history, closing(sqlite3.connect(file)) as other:
        history.claim(Q, "1")
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with pytest.raises(HistoryUnavailableError, match="locked"):
            history.claim(Q, "2")
        assert 1.5 < time.monotonic() - started < 20.0  # the driver would wait for a minute
        other.rollback()
        assert history.claim(Q, "2").claimed


@pytest.mark.real
def test_tr49_a_server_that_stands_still_is_given_up_in_time_and_used_again(postgresql: PostgresqlProgram) -> None:
    with open_history(postgresql.url, namespace=uuid4().hex) as history:
        history.claim(Q, "1", token="a")
        postgresql.pause()
        try:
            started = time.monotonic()
            with pytest.raises(HistoryUnavailableError):
                history.complete(Q, "1", token="a")
            assert time.monotonic() - started < 20.0
        finally:
            postgresql.go_on()
        history.complete(Q, "1", token="a")
        assert not history.claim(Q, "1").claimed


@pytest.mark.parametrize("url", ["postgresql://u:s3cret@host:port/db", "postgres://:s3cret@host/db?unheard_of=1"])
def test_o09_a_postgresql_url_that_cannot_be_read_is_told_without_secrets(url: str) -> None:
    with pytest.raises((ConfigurationError, HistoryUnavailableError)) as raised, open_history(url) as history:
        history.claim(Q, "1")
    assert "s3cret" not in str(raised.value)


# -- of a trigger -----------------------------------------------------------------------------------------------------


@pytest.fixture
def backend() -> Iterator[ScriptedBackend]:
    with ScriptedBackend() as scripted:
        yield scripted
        assert scripted.violations == []


def test_tr36_a_handler_takes_the_transaction_by_annotation(backend: ScriptedBackend, source: Any, history: SqlHistory) -> None:
    name = uuid4().hex
    worker = Worker(backend.url, history=history)
    attempts: list[int] = []

    @worker.trigger(Q, max_retries=1, retry_interval=0.0)
    def book(body: str, transaction: HistoryTransaction, delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        note(transaction.connection, f"{name}/{body}")
        if delivery.attempt == 1:
            raise TransientError("once")
        delivery.send("queue:///bills", body)

    with worker:
        (id_,) = backend.deliver(Q, "one")
        until(lambda: Verb.ACCEPT in verbs(backend))
        backend.deliver(Q, "two")
        until(lambda: verbs(backend).count(Verb.ACCEPT) == 2)
        assert history.lookup(Q, id_).state is State.COMPLETED  # type: ignore[union-attr]
    assert attempts == [1, 2, 1, 2]
    assert (effects(source, f"{name}/one"), effects(source, f"{name}/two")) == (1, 1)
    assert [content.body() for content in backend.waiting("queue:///bills")] == ["one", "two"]


@pytest.mark.parametrize("how", ["commit", "rollback"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_tr36_a_handler_that_ends_the_transaction_has_failed(
    backend: ScriptedBackend, source: Any, history: SqlHistory, events: list[Event], how: str, goes_on: bool
) -> None:
    """Called completed, what it rolled back would be lost without a word."""
    name = uuid4().hex
    worker = Worker(backend.url, history=history)
    ran: list[str] = []

    @worker.trigger(Q, error_destination="queue:///errors")
    def book(body: str, transaction: HistoryTransaction) -> None:
        ran.append(body)
        note(transaction.connection, name)
        if getattr(transaction.connection, "isolation_level", "") is None:  # sqlite3's, whose commit() then does nothing
            run(transaction.connection, how)
        else:
            getattr(transaction.connection, how)()
        if goes_on:
            note(transaction.connection, f"{name}/more")

    with worker:
        (id_,) = backend.deliver(Q, "one")
        until(lambda: verbs(backend) == [Verb.ACCEPT])
    assert ran == ["one"]
    (failed,) = (event for event in events if event.name == "handler_failed")
    assert failed.fields["error_type"] == "IllegalStateError"
    assert len(backend.waiting("queue:///errors")) == 1
    entry = history.lookup(Q, id_)
    assert entry is not None
    assert (entry.state, entry.outcome) == (State.COMPLETED, "failed")
    assert effects(source, name) == (how == "commit")


def test_tr36_a_handler_may_have_savepoints(backend: ScriptedBackend, source: Any, history: SqlHistory) -> None:
    name = uuid4().hex
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q)
    def book(body: str, transaction: HistoryTransaction) -> None:
        note(transaction.connection, name)
        run(transaction.connection, "SAVEPOINT mine")
        note(transaction.connection, f"{name}/not")
        run(transaction.connection, "ROLLBACK TO SAVEPOINT mine")

    with worker:
        (id_,) = backend.deliver(Q, "one")
        until(lambda: verbs(backend) == [Verb.ACCEPT])
    entry = history.lookup(Q, id_)
    assert entry is not None
    assert (entry.state, entry.outcome) == (State.COMPLETED, "done")
    assert (effects(source, name), effects(source, f"{name}/not")) == (1, 0)


def test_tr36_an_abandoned_message_is_new(backend: ScriptedBackend, source: Any, history: SqlHistory, events: list[Event]) -> None:
    name = uuid4().hex
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q)
    def book(body: str, transaction: HistoryTransaction) -> None:
        note(transaction.connection, name)

    history.claim(Q, "ID:killed", lease=0.0)
    with worker:
        content = backend_message("ID:killed")
        backend.deliver(Q, content, delivery_count=2)
        until(lambda: Verb.ACCEPT in verbs(backend))
        assert worker.triggers[Q].pipeline.counters.abandoned == 1
    assert effects(source, name) == 1
    assert [event.fields["over"] for event in events if event.name == "claimed"] == ["processing"]


def backend_message(id_: str) -> Any:
    from jmsclient.message import MessageKind, PlainContent

    return PlainContent(kind=MessageKind.TEXT, body="one", message_id=id_)


class Overtaken(SqlHistory):
    """Another owner has each entry before the handler's transaction begins, as when a lease ends while a process stands still."""

    @contextmanager
    def transaction(self, completion: Complete | None) -> Iterator[HistoryTransaction]:
        assert completion is not None
        with self._own() as one:
            run(one, "UPDATE jmsclient_entries SET token = 'theirs' WHERE id = ?", (completion.id,))
        with super().transaction(completion) as transaction:
            yield transaction


class Unreachable(SqlHistory):
    """The handler's connection breaks before the first commit."""

    broken = 0

    def _complete(self, connection: Any, completion: Complete) -> None:
        if not self.broken:
            self.broken += 1
            raise (
                sqlite3.OperationalError("broken")
                if "sqlite" in str(type(below(connection)))
                else psycopg.OperationalError("broken")
            )
        super()._complete(connection, completion)


def test_tr36_tr39_a_message_that_was_taken_over_is_rolled_back_and_not_acknowledged(
    backend: ScriptedBackend, source: Any, events: list[Event]
) -> None:
    name = uuid4().hex
    with Overtaken(source, namespace=name) as history:
        worker = Worker(backend.url, history=history)

        @worker.trigger(Q, lease=600.0)
        def book(body: str, transaction: HistoryTransaction) -> None:
            note(transaction.connection, name)

        with worker:
            backend.deliver(Q, "one")
            until(lambda: Verb.RETRY in verbs(backend))
            lost = [event for event in events if event.name == "lease_lost"]
            assert lost[0].fields["trigger"] == Q
    assert Verb.ACCEPT not in verbs(backend)
    assert effects(source, name) == 0


def test_tr36_a_commit_that_fails_is_told_and_the_message_comes_again_as_new(
    backend: ScriptedBackend, source: Any, events: list[Event]
) -> None:
    name = uuid4().hex
    with Unreachable(source, namespace=name) as history:
        worker = Worker(backend.url, history=history)

        @worker.trigger(Q, lease=600.0)
        def book(body: str, transaction: HistoryTransaction) -> None:
            note(transaction.connection, name)

        with worker:
            backend.deliver(Q, "one")
            until(lambda: Verb.ACCEPT in verbs(backend))
            assert worker.triggers[Q].pipeline.counters.new == 2
    assert [verb for verb in verbs(backend) if verb is not Verb.ACCEPT] == [Verb.RETRY]
    assert effects(source, name) == 1
    (told,) = [event for event in events if event.name == "not_recorded"]
    assert told.fields["error_type"] == "HistoryUnavailableError"


@pytest.mark.real
def test_tr40_a_handler_on_postgresql_may_outlast_its_lease_because_it_is_renewed_meanwhile(
    backend: ScriptedBackend, postgresql_url: str
) -> None:
    name = uuid4().hex
    with open_history(postgresql_url, namespace=name) as history:
        assert isinstance(history, SqlHistory)
        worker = Worker(backend.url, history=history)
        alive: list[bool] = []

        @worker.trigger(Q, lease=1.5)
        def book(body: str, delivery: Delivery, transaction: HistoryTransaction) -> None:
            run(transaction.connection, "SELECT 1")
            end = time.monotonic() + 2.0
            while time.monotonic() < end:
                entry = history.lookup(Q, delivery.message.message_id or "")
                alive.append(entry is not None and entry.lease_alive)
                time.sleep(0.05)

        with worker:
            backend.deliver(Q, "one")
            until(lambda: Verb.ACCEPT in verbs(backend))
    assert all(alive)


async def of_the_loop(body: str, transaction: HistoryTransaction) -> None:
    """Async."""


def plain(body: str, transaction: HistoryTransaction) -> None:
    """Not async."""


@pytest.mark.parametrize(
    ("function", "history", "says"),
    [
        (plain, "memory:", "its handler takes a HistoryTransaction; give history=SqlHistory"),
        (plain, None, "its handler takes a HistoryTransaction; give history=SqlHistory"),
        (of_the_loop, SqlHistory(lambda: sqlite3.connect(":memory:")), "is for a plain function"),
    ],
)
def test_tr36_a_trigger_that_cannot_have_the_transaction_is_refused(
    backend: ScriptedBackend, function: Callable[..., Any], history: Any, says: str
) -> None:
    worker = Worker(backend.url, history=history)
    worker.trigger(Q)(function)
    with pytest.raises(ConfigurationError, match=says):
        worker.start()


def test_d09_tr44_the_tables_shrink_without_being_asked(source: Any, history: SqlHistory) -> None:
    for number in range(20):
        history.claim(Q, str(number), history_ttl=1.0)
    history.claim(Q, "long", history_ttl=600.0)
    history.park(Q, "parked", token="a", envelope=b"x", reason="r")
    assert entries(source, history) == 22
    until(lambda: entries(source, history) == 2)
    assert history.purge_expired() == 0
    assert history.claim(Q, "0").entry is None


def entries(source: Any, history: SqlHistory) -> int:
    with closing(connection(source)) as one:
        number = run(one, "SELECT count(*) FROM jmsclient_entries WHERE namespace = ?", (history.namespace,)).rows[0][0]
        one.rollback()
    return int(number)
