"""Transacted triggers: a session, a window and a transaction for each handler; commit → completed, rollback → retrying.

TR-37, TR-46, TR-62."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jmsclient import Delivery, IllegalStateError, Message, Session, TransientError, Worker
from jmsclient.errors import ConfigurationError, TransactionInDoubtError, TransactionRolledBackError, UnsupportedFeatureError
from jmsclient.events import Event
from jmsclient.history import State, open_history
from jmsclient.testing import ScriptedBackend, TestBroker
from jmsclient.transport.capabilities import Capabilities
from jmsclient.trigger.transaction import Transaction

Q = "queue:///orders"
OUT = "queue:///invoices"
Until = Callable[..., None]


def bodies(broker: TestBroker, queue: str) -> list[Any]:
    return [message.body for message in broker.messages(queue)]


def test_tr62_what_a_handler_sends_and_its_acknowledge_are_one_transaction(until: Until) -> None:
    history = open_history("memory:")
    inside: list[tuple[list[Any], State | None]] = []
    worker = Worker(history=history)

    with TestBroker() as broker:
        worker.url = broker.url

        @worker.trigger(Q, transacted=True)
        def book(body: str, session: Session, delivery: Delivery) -> None:
            session.create_producer(OUT).send(f"{body} by session")
            delivery.send(OUT, f"{body} by delivery")
            entry = history.lookup(Q, str(delivery.message.properties["uuid"]), source="uuid")
            inside.append((bodies(broker, OUT), entry.state if entry else None))

        with worker:
            for number in "12":
                broker.send(Q, number, properties={"uuid": number})
                until(lambda number=number: worker.triggers[Q].counters["completed"] == int(number))
        assert inside == [([], State.PROCESSING), (["1 by session", "1 by delivery"], State.PROCESSING)]
        assert bodies(broker, OUT) == ["1 by session", "1 by delivery", "2 by session", "2 by delivery"]
        assert bodies(broker, Q) == []


def test_tr46_a_handler_that_raised_leaves_nothing_of_what_it_sent(until: Until) -> None:
    history = open_history("memory:")
    attempts: list[int] = []
    worker = Worker(history=history)

    @worker.trigger(Q, transacted=True, on_error="redeliver")
    def book(body: str, session: Session, delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        session.create_producer(OUT).send(f"attempt {delivery.attempt}")
        if delivery.attempt == 1:
            raise ValueError("no")
        if delivery.attempt == 2:
            session.rollback()

    with TestBroker(worker) as broker:
        broker.send(Q, "a", properties={"uuid": "1"})
        until(lambda: worker.triggers[Q].counters["completed"] == 1)
        assert bodies(broker, OUT) == ["attempt 3"]
        assert bodies(broker, Q) == []
    assert attempts == [1, 2, 3]


def test_tr57_retries_in_place_are_transactions_of_their_own(until: Until) -> None:
    worker = Worker(history="memory:")

    @worker.trigger(Q, transacted=True, max_retries=1, retry_interval=0.01)
    def book(session: Session, delivery: Delivery) -> None:
        session.create_producer(OUT).send(f"attempt {delivery.attempt}")
        if delivery.attempt == 1:
            raise TransientError("busy")

    with TestBroker(worker) as broker:
        broker.send(Q, "a")
        until(lambda: worker.triggers[Q].counters["completed"] == 1)
        assert bodies(broker, OUT) == ["attempt 2"]


def test_tr45_duplicates_and_dead_letters_are_committed_too(until: Until, tmp_path: Path) -> None:
    history = open_history(f"sqlite:{tmp_path / 'history.db'}")
    history.complete(Q, "done", source="uuid", token="earlier")
    history.claim(Q, "doubt", source="uuid", lease=0.0)
    worker = Worker(history=history)

    @worker.trigger(Q, transacted=True)
    def book(body: str, session: Session) -> None:
        session.create_producer(OUT).send("lost")
        raise ValueError("no")

    with TestBroker(worker) as broker:
        for uuid in ("done", "doubt", "bad"):
            broker.send(Q, uuid, properties={"uuid": uuid})
        until(lambda: worker.triggers[Q].counters["completed"] == 1)
        until(lambda: bodies(broker, Q) == [])
        assert bodies(broker, "queue:///DLQ") == ["bad"]
        assert bodies(broker, OUT) == []
        counters = worker.triggers[Q].counters
        assert (counters["duplicate"], counters["parked"], counters["dead_lettered"]) == (1, 1, 1)
        worker.stop()
        assert bodies(broker, Q) == []
    history.close()


def test_tr62_each_handler_has_a_session_and_a_window_of_its_own(backend: ScriptedBackend, until: Until) -> None:
    sessions: set[int] = set()
    together = threading.Barrier(3)
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q, transacted=True, concurrency=3, prefetch=2)
    def book(session: Session) -> None:
        sessions.add(id(session))
        together.wait(60)

    with worker:
        until(lambda: backend.demand(Q) == 6)  # three windows
        backend.deliver(Q, [str(number) for number in range(6)])
        until(lambda: len(backend.settlements) == 6)
        assert worker.triggers[Q].counters["new"] == 6
        assert worker.triggers[Q].reset_counters()["completed"] <= 6
    assert len(sessions) == 3


@pytest.mark.parametrize("concurrency", [1, 3])
def test_tr59_used_up_retries_suspend_all_of_it_and_a_disable_closes_all(
    backend: ScriptedBackend, until: Until, concurrency: int
) -> None:
    ready = threading.Event()
    ran: list[str] = []
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q, transacted=True, concurrency=concurrency, prefetch=2, on_retry_failure="suspend")
    def book(body: str) -> None:
        if not ready.is_set():
            raise TransientError("busy")
        ran.append(body)

    with worker:
        trigger = worker.triggers[Q]
        backend.deliver(Q, "1")
        until(lambda: trigger.state == "suspended")
        until(lambda: backend.demand(Q) == 0)
        ready.set()
        trigger.resume()
        until(lambda: ran == ["1"])
        assert trigger.disable() == 0
        assert backend.demand(Q) == 0
        trigger.enable()
        until(lambda: backend.demand(Q) == 2 * concurrency)


@pytest.mark.parametrize(
    ("error", "state", "event"),
    [
        (TransactionInDoubtError("no answer"), State.PROCESSING, "commit_in_doubt"),
        (TransactionRolledBackError("undone"), State.RETRYING, "commit_rolled_back"),
    ],
)
def test_tr37_a_commit_in_doubt_stays_processing_and_one_undone_is_planned_again(
    until: Until, events: list[Event], monkeypatch: pytest.MonkeyPatch, error: Exception, state: State, event: str
) -> None:
    history = open_history("memory:")
    commits: list[int] = []
    genuine = Transaction._commit

    def commit(self: Transaction) -> None:
        commits.append(1)
        if len(commits) == 1:
            raise error
        genuine(self)

    monkeypatch.setattr(Transaction, "_commit", commit)
    worker = Worker(history=history)
    ran: list[int] = []

    @worker.trigger(Q, transacted=True, lease=30.0)
    def book(delivery: Delivery) -> None:
        ran.append(delivery.attempt)

    with TestBroker(worker) as broker:
        broker.send(Q, "a", properties={"uuid": "1"})
        until(lambda: any(one.name == event for one in events))
        entry = history.lookup(Q, "1", source="uuid")
        assert entry is not None
        if state is State.PROCESSING:
            assert entry.state is state
            assert worker.triggers[Q].pipeline.busy == 0
        else:
            until(lambda: history.lookup(Q, "1", source="uuid").state is state)  # type: ignore[union-attr]
    assert ran == [1]


def test_a_handlers_session_is_the_triggers(until: Until) -> None:
    refused: list[str] = []
    worker = Worker(history="memory:")

    @worker.trigger(Q, transacted=True)
    def book(session: Session) -> None:
        for call in (session.commit, session.close):
            with pytest.raises(IllegalStateError, match="when its handler has ended"):
                call()
            refused.append(call.__name__)

    with TestBroker(worker) as broker:
        broker.send(Q, "a")
        until(lambda: worker.triggers[Q].counters["completed"] == 1)
    assert refused == ["commit", "close"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_tr48_a_batch_is_one_transaction(until: Until, asynchronous: bool) -> None:
    worker = Worker(history="memory:")
    sizes: list[int] = []

    def book(messages: list[Message], session: Session) -> None:
        sizes.append(len(messages))
        session.create_producer(OUT).send(str(len(messages)))
        if len(sizes) == 1:
            raise TransientError("busy")

    async def book_async(messages: list[Message], session: Session) -> None:
        book(messages, session)

    worker.trigger(Q, transacted=True, batch=3, max_retries=1, retry_interval=0.01)(book_async if asynchronous else book)
    with TestBroker() as broker:
        for number in range(3):
            broker.send(Q, str(number))
        worker.url = broker.url
        with worker:
            until(lambda: worker.triggers[Q].counters["completed"] == 3)
        assert bodies(broker, OUT) == [str(size) for size in sizes[1:]]
        assert bodies(broker, Q) == []


def test_tr62_a_session_without_a_transaction_and_a_provider_without_them_are_refused() -> None:
    worker = Worker()

    def book(session: Session) -> None: ...

    with pytest.raises(ConfigurationError, match="transacted=True"):
        worker.trigger(Q)(book)
    with ScriptedBackend(capabilities=Capabilities(drain="yes", reject="dead_letter")) as backend:
        worker.url = backend.url
        worker.trigger(Q, transacted=True)(book)
        with pytest.raises(UnsupportedFeatureError, match="no transactions"):
            worker.start()


def test_tr37_of_a_commit_that_happened_unseen_a_second_copy_is_in_doubt(
    backend: ScriptedBackend, until: Until, tmp_path: Path
) -> None:
    """As after a kill between commit and `completed`: the message is gone, its effects are there."""
    history = open_history(f"sqlite:{tmp_path / 'history.db'}")
    worker = Worker(backend.url, history=history)
    ran: list[str] = []

    @worker.trigger(Q, transacted=True, lease=0.1)
    def book(body: str, delivery: Delivery) -> None:
        ran.append(body)
        delivery.send(OUT, body)

    with worker:
        backend.refuse_commits(TransactionInDoubtError("no answer"), applied=True)
        backend.deliver(Q, Message("a", properties={"uuid": "1"}))
        until(lambda: [one.body() for one in backend.waiting(OUT)] == ["a"])
        backend.refuse_commits(None)
        backend.deliver(Q, Message("a", properties={"uuid": "1"}))
        until(lambda: [one.reason for one in history.in_doubt(Q)] == ["abandoned"])
    assert ran == ["a"]
    history.close()
