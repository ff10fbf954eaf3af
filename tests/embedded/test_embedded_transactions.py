"""Transactions of the embedded broker (IF-28, T4 to T6, T12, T14; R04, R05, S10): on the transport, and through sessions."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection
from jmsclient import connect as connect_public
from jmsclient.destination import Queue
from jmsclient.errors import (
    IllegalStateError,
    ResourceAllocationError,
    StoreError,
    TransactionInDoubtError,
    TransactionRolledBackError,
    UnsupportedFeatureError,
)
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Outcome, Verb
from jmsclient_embedded.invariants import check

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


# -- what a commit and a rollback do -------------------------------------------------------------------------------------


def test_t4_t5_what_is_sent_is_invisible_until_the_commit(client: Client, tx: Client) -> None:
    tx.send("a", "b")
    found = client.stats()
    assert (found.messages_current, found.messages_pending, found.messages_received) == (0, 2, 0)
    assert found.pending_by_kind.uncommitted_sent == 2
    assert client.shown() == [("send+transaction", 0)] * 2
    assert client.bodies() == []
    _, sink = client.receiver(demand=5)
    tx.commit()
    sink.wait(2)
    assert client.stats().messages_received == 2


def test_t6_a_rollback_leaves_nothing(client: Client, tx: Client) -> None:
    tx.send("a")
    tx.rollback()
    tx.commit()
    found = client.stats()
    assert (found.messages_current, found.messages_pending, found.messages_received) == (0, 0, 0)


def test_t5_the_order_is_that_of_commits_then_of_sends(client: Client, connect: Connect) -> None:
    first, second = connect(transacted=True), connect(transacted=True)
    first.send("1a")
    second.send("2a")
    client.send("plain")
    first.send("1b")
    second.send("2b")
    second.commit()
    first.commit()
    assert client.bodies() == ["plain", "2a", "2b", "1a", "1b"]


def test_t5_a_committed_message_may_be_unborn_or_prior(client: Client, tx: Client) -> None:
    tx.send("a", content("b", priority=9), content("unborn", delivery_time=time.time() + 1000))
    tx.commit()
    assert client.bodies() == ["b", "a"]
    assert client.stats().pending_by_kind.unborn == 1


def test_t12_received_is_uncommitted_until_the_commit(client: Client, tx: Client) -> None:
    client.send("a", "b")
    accept(tx, 1)
    found = client.stats()
    assert (found.messages_current, found.messages_pending) == (1, 1)
    assert found.pending_by_kind.uncommitted_received == 1
    assert client.admin.messages("q", state="receive+transaction")[0].message_id is not None
    tx.commit()
    assert client.numbers() == (1, 0)
    assert client.stats().messages_acknowledged == 1


def test_if_28_rollback_gives_back_what_was_accepted_in_its_place_counted(client: Client, tx: Client) -> None:
    client.send("a", "b", "c")
    accept(tx, 2)
    tx.rollback()
    assert client.bodies() == ["a", "b", "c"]
    assert [count for _, count in client.shown()] == [1, 1, 0]


def test_if_28_what_was_not_accepted_stays_as_it_is(client: Client, tx: Client) -> None:
    client.send("a", "b")
    receiver, arrivals = tx.take(2, hand_over=True)
    receiver.settle(arrivals[:1], ACCEPT)
    tx.rollback()
    assert [(state, count) for state, count in client.shown()] == [("visible", 1), ("receive+transaction", 1)]
    receiver.settle(arrivals[1:], ACCEPT)
    tx.commit()
    assert client.numbers() == (1, 0)


def test_if_28_other_outcomes_take_effect_at_once(client: Client, tx: Client) -> None:
    client.send("a", "b", "c")
    receiver, arrivals = tx.take(3, hand_over=True)
    receiver.settle(arrivals[:1], RELEASE)
    receiver.settle(arrivals[1:2], RETRY)
    receiver.settle(arrivals[2:], Outcome(verb=Verb.DEAD_LETTER))
    tx.session.flush(None)
    assert client.bodies() == ["a", "b"]
    assert client.bodies("DLQ") == ["c"]
    tx.rollback()
    assert client.bodies() == ["a", "b"]


def test_if_28_several_queues_in_one_transaction(client: Client, tx: Client) -> None:
    client.send("in1", queue="q1")
    client.send("in2", queue="q2")
    for end, left, out in ((tx.rollback, 1, 0), (tx.commit, 0, 1)):
        accept(tx, 1, "q1")
        accept(tx, 1, "q2")
        tx.send("out", queue="q3")
        end()
        assert [client.numbers(queue) for queue in ("q1", "q2")] == [(left, 0)] * 2
        assert len(client.bodies("q3")) == out


def test_if_28_the_next_transaction_starts_empty(client: Client, tx: Client) -> None:
    tx.send("a")
    tx.commit()
    tx.commit()
    tx.rollback()
    assert client.bodies() == ["a"]


def test_if_31_a_rollback_and_a_close_free_the_quota(client: Client, connect: Connect) -> None:
    client.admin.create_queue("q", messages_maximum=2)
    for end in ("rollback", "close", "lose"):
        tx = connect(transacted=True)
        tx.send("a", "b")
        with pytest.raises(ResourceAllocationError):
            client.send("c", room=0)
        if end == "rollback":
            tx.rollback()
        elif end == "close":
            tx.session.close(None)
        else:
            tx.transport.lose()
        assert client.numbers() == (0, 0)


# -- how a session ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["session", "transport", "lost"])
def test_if_14_close_and_crash_roll_back_without_delay(timed: Client, connect: Connect, url: str, how: str) -> None:
    timed.admin.create_queue("q", redelivery_delay=100.0)
    timed.send("a", "b")
    tx = connect(url, timed.clock, transacted=True)
    receiver, arrivals = tx.take(2)
    arrivals[0].handed_over = True
    receiver.settle(arrivals[:1], ACCEPT)
    tx.send("c")
    if how == "session":
        tx.session.close(None)
    elif how == "transport":
        tx.transport.close(None)
    else:
        tx.transport.lose()
    assert timed.shown() == [("visible", 1), ("visible", 0)]
    assert timed.bodies() == ["a", "b"]


def test_if_9_what_a_closed_consumer_received_stays_in_the_transaction(client: Client, tx: Client) -> None:
    client.send("a", "b")
    receiver, arrivals = tx.take(2, hand_over=True)
    receiver.settle(arrivals[:1], ACCEPT)
    receiver.close(None)
    assert client.numbers() == (0, 2)
    tx.commit()
    assert client.numbers() == (0, 1)
    tx.session.close(None)
    assert client.shown() == [("visible", 1)]


def test_a_closed_session_takes_no_more_sends(client: Client, tx: Client) -> None:
    """T4: a send that meets the close must not stay in `send` for ever."""
    sender = tx.session.open_sender(Queue("q"), None)
    tx.broker.steps.ask(lambda: tx.broker.closing.close_group(tx.session.group, lambda: None))
    with pytest.raises(IllegalStateError):
        sender.send([content("a")], room_deadline=None, confirm_timeout=5)
    with pytest.raises(IllegalStateError):
        tx.receiver("q")
    assert [one.name for one in client.admin.destinations()] in ([], ["q"])
    check(client.broker)


def test_s04_commit_and_rollback_need_a_transacted_session(client: Client) -> None:
    for call in (client.commit, client.rollback):
        with pytest.raises(IllegalStateError, match="not transacted"):
            call()
    client.send("a")
    assert client.bodies() == ["a"]


def test_if_25_no_settled_deliveries_in_a_transaction(tx: Client) -> None:
    with pytest.raises(UnsupportedFeatureError):
        tx.receiver(pre_settled=True)


def test_settling_twice_in_a_transaction_counts_once(client: Client, tx: Client) -> None:
    """IF-40: an exception between handing a settlement over and marking it leads to a second one."""
    client.send("a")
    receiver, arrivals = tx.take(1, hand_over=True)
    receiver.settle(arrivals, ACCEPT)
    arrivals[0].settled = False
    receiver.settle(arrivals, ACCEPT)
    arrivals[0].settled = False
    receiver.settle(arrivals, RETRY)
    tx.commit()
    found = client.stats()
    assert (found.messages_acknowledged, found.messages_current, found.messages_pending) == (1, 0, 0)


# -- when an operator comes in between -----------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["retry", "release", "dead_letter"])
def test_if_35_a_commit_without_a_message_that_was_taken_out_of_it_is_rolled_back(client: Client, tx: Client, outcome: str) -> None:
    """IF-28: all of it or nothing; the message may be at work elsewhere by now."""
    client.send("a", "b")
    accept(tx, 2)
    tx.send("out", queue="out")
    (owner,) = {one.owner for one in client.admin.messages("q")}
    assert client.admin.recover_stuck(client.admin.messages("q")[0].message_id or "", outcome) == 1
    other, taken = client.take(1) if outcome != "dead_letter" else (None, [])
    with pytest.raises(TransactionRolledBackError, match="management"):
        tx.commit()
    assert client.numbers("out") == (0, 0)
    if other is not None:
        assert taken[0].content.body() == "a"
        assert client.numbers() == (1, 1)
        other.settle(taken, ACCEPT)
        client.session.flush(None)
    else:
        assert client.bodies("DLQ") == ["a"]
    assert client.bodies() == ["b"]
    assert owner is not None
    tx.commit()  # the next one starts empty


def test_if_35_a_commit_goes_through_where_an_operator_accepted_it_before(client: Client, tx: Client) -> None:
    client.send("a", "b")
    accept(tx, 2)
    tx.send("out", queue="out")
    client.admin.recover_stuck(client.admin.messages("q")[0].message_id or "", "accept")
    tx.commit()
    assert client.numbers("out") == (1, 0)
    assert client.numbers() == (0, 0)
    assert client.stats().messages_acknowledged == 2


def test_if_35_a_rollback_leaves_alone_what_was_taken_out_of_it(client: Client, tx: Client) -> None:
    client.send("a", "b")
    accept(tx, 2)
    client.admin.recover_stuck(client.admin.messages("q")[0].message_id or "", "retry")
    other, taken = client.take(1, hand_over=True)
    tx.rollback()
    assert client.numbers() == (1, 1)
    other.settle(taken, ACCEPT)
    client.session.flush(None)
    assert client.bodies() == ["b"]


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
        written.append((len(changes.inserts), len(changes.deletes)))
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
        assert go_on.wait(10)
        write(changes)

    monkeypatch.setattr(store, "write", slow)
    committing = Background(tx.commit)
    assert begun.wait(10)
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
        assert go_on.wait(10)
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


@pytest.fixture
def connection(url: str, client: Client) -> Any:
    with connect_public(url) as connection:
        yield connection


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
