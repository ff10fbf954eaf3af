"""Transactions with a store, and through sessions of the public API (IF-28, R04, S08, S10)."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection
from jmsclient.errors import (
    IllegalStateError,
    StoreError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsclient.transport.contract import ACCEPT

from .conftest import Background, Client, Connect, content, until


@pytest.fixture
def tx(connect: Connect, client: Client) -> Client:
    """A transacted client of the same broker."""
    return connect(transacted=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


def accept(client: Client, number: int, queue: str = "q") -> None:
    receiver, arrivals = client.take(number, queue, hand_over=True)
    receiver.settle(arrivals, ACCEPT)


# -- with a store --------------------------------------------------------------------------------------------------------


def rows(file: Path) -> list[str]:
    with sqlite3.connect(file) as connection:
        found = connection.execute("SELECT queue FROM messages ORDER BY sequence").fetchall()
    connection.close()
    return [one for (one,) in found]


def test_if_28_a_commit_is_one_transaction_of_the_store(connect: Connect, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"embedded:?store={file}"
    client, tx = connect(url), connect(url, transacted=True)
    client.send("in1", "in2")
    accept(tx, 2)
    tx.send("out1", content("not stored", persistent=False), queue="out")
    tx.send("out2", queue="out2")
    assert rows(file) == ["q", "q"]
    store = client.broker.store
    assert store is not None
    written = []
    write = store.write

    def record(changes: Any) -> None:
        written.append((sum(map(len, changes.inserts.values())), len(changes.deletes)))
        write(changes)

    monkeypatch.setattr(store, "write", record)
    tx.commit()
    assert written == [(2, 2)]
    assert rows(file) == ["out", "out2"]
    assert client.bodies("out") == ["out1", "not stored"]


def test_if_28_a_full_disk_fails_the_commit_and_everything_comes_back(
    connect: Connect, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"embedded:?store={file}"
    client, tx = connect(url), connect(url, transacted=True)
    client.send("in1", "in2", "in3")
    accept(tx, 2)
    tx.send("out", queue="out")
    store = client.broker.store
    assert store is not None

    def full(changes: Any) -> None:
        raise StoreError("no space left")

    monkeypatch.setattr(store, "write", full)
    with pytest.raises(TransactionRolledBackError, match="no space left"):
        tx.commit()
    monkeypatch.undo()
    assert client.numbers("out") == (0, 0)
    assert client.bodies() == ["in1", "in2", "in3"]
    assert [count for _, count in client.shown()] == [1, 1, 0]
    accept(tx, 3)
    tx.send("out", queue="out")
    tx.commit()
    assert rows(file) == ["out"]
    assert (client.numbers(), client.numbers("out")) == ((0, 0), (1, 0))


def test_if_28_while_it_is_written_it_belongs_to_the_commit(connect: Connect, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever becomes of the session meanwhile: its close does not give back what is being committed."""
    url = f"embedded:?store={file}"
    client, tx = connect(url), connect(url, transacted=True)
    client.send("in")
    accept(tx, 1)
    tx.send("out", queue="out")
    store = client.broker.store
    assert store is not None
    write, begun, go_on = store.write, threading.Event(), threading.Event()

    def slow(changes: Any) -> None:
        begun.set()
        assert go_on.wait(60)
        write(changes)

    monkeypatch.setattr(store, "write", slow)
    committing = Background(tx.commit)
    assert begun.wait(30)
    (owner,) = {one.owner for one in client.admin.messages("q")}
    with pytest.raises(IllegalStateError, match="being committed"):
        client.admin.recover_stuck(str(owner))
    tx.transport.lose()
    assert client.numbers() == (0, 1)
    go_on.set()
    committing.result()
    until(lambda: client.numbers() == (0, 0))
    assert client.numbers("out") == (1, 0)
    assert rows(file) == ["out"]


def test_s08_a_commit_that_is_not_answered_in_time_is_in_doubt(
    connect: Connect, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IF-28: neither success nor rolled back; the next transaction starts empty."""
    url = f"embedded:?store={file}"
    client, tx = connect(url), connect(url, transacted=True)
    tx.send("out", queue="out")
    store = client.broker.store
    assert store is not None
    write, go_on = store.write, threading.Event()

    def slow(changes: Any) -> None:
        assert go_on.wait(60)
        write(changes)

    monkeypatch.setattr(store, "write", slow)
    with pytest.raises(TransactionInDoubtError):
        tx.session.commit(client.clock.deadline(0.1))
    go_on.set()
    tx.commit()
    until(lambda: client.numbers("out") == (1, 0))


def test_if_11_a_rollback_is_stored_with_its_count(connect: Connect, file: Path) -> None:
    url = f"embedded:?store={file}"
    client, tx = connect(url), connect(url, transacted=True)
    client.send("a")
    accept(tx, 1)
    tx.rollback()
    tx.transport.close(None)
    client.transport.close(None)
    assert connect(url).shown() == [("visible", 1)]


def test_t4_uncommitted_sends_are_not_in_the_store(connect: Connect, file: Path) -> None:
    url = f"embedded:?store={file}"
    tx = connect(url, transacted=True)
    tx.send("a")
    assert rows(file) == []
    tx.transport.close(None)
    again = connect(url)
    assert again.admin.destinations() == []


# -- through sessions of the public API ----------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 1, 10])
def test_r04_first_run_through_a_transacted_session(client: Client, connection: Connection, prefetch: int) -> None:
    client.send(*map(str, range(1, 13)))
    with connection.create_session(AcknowledgeMode.TRANSACTED) as session:
        consumer = session.create_consumer("q", prefetch=prefetch)

        def take(number: int) -> list[tuple[str | None, int]]:
            got = [consumer.receive(5) for _ in range(number)]
            return [(message.text, message.delivery_count) for message in got if message is not None]

        assert take(4) == [(str(one), 1) for one in range(1, 5)]
        session.commit()
        take(3)
        session.rollback()
        assert take(8) == [(str(one), 2 if one < 8 else 1) for one in range(5, 13)]
        session.commit()
    assert client.numbers() == (0, 0)
    assert client.stats().messages_acknowledged == 12


@pytest.mark.parametrize("prefetch", [0, 10])
def test_r04_second_run_priority_beats_redelivery(client: Client, connection: Connection, prefetch: int) -> None:
    client.send("a", "b")
    with connection.create_session(AcknowledgeMode.TRANSACTED) as session:
        consumer = session.create_consumer("q", prefetch=prefetch)
        assert [consumer.receive(5) is not None for _ in range(2)] == [True, True]
        session.rollback()
        if prefetch:
            consumer.quiesce()
            while consumer.receive_no_wait() is not None:
                pass
            session.rollback()
            consumer.close()
            consumer = session.create_consumer("q", prefetch=0)
        client.send(content("c", priority=9))
        got = [consumer.receive(5) for _ in range(3)]
        assert [message.text for message in got if message is not None] == ["c", "a", "b"]
        session.commit()


def test_s10_through_sessions(client: Client, connection: Connection) -> None:
    """S10 with the public API: both calls succeed, the receive finds nothing, after the resume all four are there once."""
    admin = connection.administration
    client.send("m4")
    t1, t2 = (connection.create_session(AcknowledgeMode.TRANSACTED) for _ in range(2))
    consumer = t2.create_consumer("q", prefetch=0)
    assert consumer.receive(5) is not None
    t1.create_producer("q").send_many(["m1", "m2"])
    with connection.create_session() as session:
        session.create_producer("q", delivery_delay=0.1).send("m3")
    admin.pause_insertion("q")
    t1.commit()
    until(lambda: admin.statistics("q").pending_by_kind.unborn == 0)
    t2.rollback()
    assert consumer.receive(0.1) is None
    assert client.numbers() == (0, 4)
    admin.resume_insertion("q")
    assert client.numbers() == (4, 0)
    bodies = client.bodies()
    assert sorted(map(str, bodies)) == ["m1", "m2", "m3", "m4"]
    assert bodies.index("m1") < bodies.index("m2")
    got = consumer.receive(5)
    assert got is not None
    assert (got.text, got.delivery_count) == ("m4", 2)
    for one in (t1, t2):
        one.close()
