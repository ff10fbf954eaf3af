"""Decisions about parked copies, carried out by a running worker (TR-34): run once, through the same pipeline, never lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jmsclient import Delivery, Message, Status, TransientError, Worker
from jmsclient.envelope import encode
from jmsclient.events import Event
from jmsclient.history import Claim, DocumentHistory, State, open_history
from jmsclient.message import MessageKind, PlainContent
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Verb
from jmsclient.trigger import carrying_out

Q = "queue:///orders"
Until = Callable[..., None]


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying_out, "LOOK_INTERVAL", 0.03)


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=pytest.mark.real)])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DocumentHistory]:
    urls = {"memory": lambda: "memory:", "sqlite": lambda: f"sqlite:{tmp_path / 'history.db'}"}
    url = urls.get(request.param, lambda: request.getfixturevalue("redis_url"))()
    with open_history(url, namespace=tmp_path.name) as opened:
        yield opened


def park(history: DocumentHistory, id: str = "1", body: str = "tea", *, delivery_count: int = 2) -> None:  # noqa: A002
    """What a worker left that died in its handler, parked by another."""
    content = PlainContent(kind=MessageKind.TEXT, body=body, message_id=f"ID:{id}", destination=Q, properties={"uuid": id})
    assert history.claim(Q, id, token=f"owner of {id}", source="uuid", lease=0.0).claimed
    history.park(Q, id, token="parker", source="uuid", envelope=encode(content), reason="abandoned", delivery_count=delivery_count)


def state(history: DocumentHistory, id: str = "1") -> State | None:  # noqa: A002
    entry = history.lookup(Q, id, source="uuid")
    return None if entry is None else entry.state


def test_tr34_new_runs_the_stored_copy_with_its_own_id(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event]
) -> None:
    ran: list[Any] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, concurrency=2)
    def book(message: Message, delivery: Delivery) -> None:
        entry = delivery.history_entry
        assert entry is not None
        ran.append((message.message_id, message.text, message.properties["uuid"], delivery.delivery_count, delivery.attempt))
        assert (delivery.status, entry.decided_by, entry.decision) == (Status.NEW, "ada", "new")
        delivery.send("queue:///invoices", "bill")

    park(history)
    with worker:
        counters = worker.triggers[Q].pipeline.counters
        backend.deliver(Q, [Message("late copy", properties={"uuid": "1"})])
        until(lambda: backend.settlements)  # acknowledged: the parked copy stands for it
        history.decide(Q, "1", Status.NEW, "ada")
        until(lambda: state(history) is State.COMPLETED)
        until(lambda: counters.completed == 1)
        assert (counters.decided, counters.new) == (1, 1)
        backend.deliver(Q, [Message("another copy", properties={"uuid": "1"})])
        until(lambda: counters.duplicate == 1)
    assert ran == [("ID:1", "tea", "1", 2, 2)]
    assert [one.body() for one in backend.waiting("queue:///invoices")] == ["bill"]
    assert (history.in_doubt(Q), history.decided(Q)) == ([], [])
    (said,) = [one for one in events if one.name == "decision"]
    assert (said.fields["by"], said.fields["answer"], said.fields["id"]) == ("ada", "new", "1")
    assert worker.triggers == {}


def test_tr34_duplicate_settles_it_and_nothing_runs(backend: ScriptedBackend, history: DocumentHistory, until: Until) -> None:
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q)
    def book(body: str) -> None:
        raise AssertionError("it was decided to be a Duplicate")

    park(history)
    history.decide(Q, "1", Status.DUPLICATE, "ada")
    with worker:
        until(lambda: state(history) is State.COMPLETED)
    entry = history.lookup(Q, "1", source="uuid")
    assert entry is not None
    assert (entry.outcome, entry.decided_by) == ("decided: duplicate", "ada")
    assert history.decided(Q) == []


def test_tr34_of_two_workers_one_runs_it(backend: ScriptedBackend, history: DocumentHistory, until: Until) -> None:
    ran: list[str] = []

    def make() -> Worker:
        worker = Worker(backend.url, history=history)

        @worker.trigger(Q, concurrency=4)
        def book(body: str) -> None:
            ran.append(body)

        return worker

    for number in range(30):
        park(history, str(number), str(number))
    with make() as one, make() as other:
        for number in range(30):
            history.decide(Q, str(number), Status.NEW, "ada")
        until(lambda: len(ran) >= 30)
        until(lambda: sum(w.triggers[Q].pipeline.counters.completed for w in (one, other)) == 30)
    assert sorted(ran) == sorted(str(number) for number in range(30))
    assert history.decided(Q) == []


def test_tr34_a_decided_copy_is_retried_like_any_other(backend: ScriptedBackend, history: DocumentHistory, until: Until) -> None:
    attempts: list[int] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, max_retries=1, retry_interval=0.01)
    def book(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) == 1:
            raise TransientError("busy")

    park(history)
    history.decide(Q, "1", Status.NEW, "ada")
    with worker:
        until(lambda: state(history) is State.COMPLETED)
    assert attempts == [2, 3]


def test_tr34_a_stop_during_its_retry_leaves_it_to_the_next_worker(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    ran: list[int] = []

    def make() -> Worker:
        worker = Worker(backend.url, history=history)

        @worker.trigger(Q, max_retries=1, retry_interval=60.0)
        def book(delivery: Delivery) -> None:
            ran.append(delivery.attempt)
            if len(ran) == 1:
                raise TransientError("busy")

        return worker

    park(history)
    history.decide(Q, "1", Status.NEW, "ada")
    with make() as worker:
        until(lambda: worker.triggers[Q].pipeline.counters.retrying == 1)
    assert state(history) is State.RETRYING
    with make():
        until(lambda: state(history) is State.COMPLETED)
    assert ran == [2, 3]


@pytest.mark.parametrize("on_error", ["redeliver", "dead_letter"])
def test_tr34_tr45_what_fails_again_and_has_nowhere_to_go_is_parked_again(
    history: DocumentHistory, until: Until, on_error: Any
) -> None:
    worker = Worker(history=history)

    @worker.trigger(Q, on_error=on_error)
    def book(body: str) -> None:
        raise ValueError("no")

    park(history)
    history.decide(Q, "1", Status.NEW, "ada")
    with ScriptedBackend(capabilities=Capabilities(drain="yes", reject="dead_letter", release_without_count=True)) as backend:
        worker.url = backend.url
        with worker:
            until(lambda: worker.triggers[Q].pipeline.counters.parked == 1)
            (one,) = history.in_doubt(Q)
            assert (one.reason, one.decision, one.attempt) == ("failed", None, 2)
            assert backend.settlements == []


def test_tr45_an_error_destination_gets_it_and_it_is_completed(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, error_destination="queue:///errors")
    def book(body: str) -> None:
        raise ValueError("no")

    park(history)
    history.decide(Q, "1", Status.NEW, "ada")
    with worker:
        until(lambda: state(history) is State.COMPLETED)
    (copy,) = backend.waiting("queue:///errors")
    assert (copy.body(), copy.properties()["JMS_jmsclient_error_type"]) == ("tea", "ValueError")


def test_tr58_a_person_that_says_new_outranks_the_delivery_limit(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    worker = Worker(backend.url, history=history)
    worker.trigger(Q, max_deliveries=3)(lambda: None)
    park(history, delivery_count=99)
    history.decide(Q, "1", Status.NEW, "ada")
    with worker:
        until(lambda: state(history) is State.COMPLETED)


def test_tr36_a_run_that_was_abandoned_is_parked_again_or_the_resolvers(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    def die_with_it() -> None:
        park(history)
        history.decide(Q, "1", Status.NEW, "ada")
        claim = Claim(trigger=Q, id="1", source="uuid", token="dead", lease=0.0, decided=True)
        assert history.exchange([claim])[0].done

    die_with_it()
    ran: list[int] = []
    plain = Worker(backend.url, history=history)
    plain.trigger(Q, in_doubt="acknowledge")(lambda: None)  # whatever the policy: the history has the only copy
    with plain:
        until(lambda: plain.triggers[Q].pipeline.counters.parked == 1)
    (one,) = history.in_doubt(Q)
    assert (one.reason, one.decision) == ("abandoned", None)
    history.decide(Q, "1", Status.NEW, "ada")
    claim = Claim(trigger=Q, id="1", source="uuid", token="dead again", lease=0.0, decided=True)
    assert history.exchange([claim])[0].done
    resolving = Worker(backend.url, history=history)

    @resolving.trigger(Q, resolver=lambda request: Status.NEW)
    def book(delivery: Delivery) -> None:
        ran.append(delivery.attempt)

    with resolving:
        until(lambda: state(history) is State.COMPLETED)
    assert ran == [4]


def test_tr34_it_waits_while_no_handler_is_free_and_while_suspended(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    go_on, ran = threading.Event(), list[str]()
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q)
    def book(body: str) -> None:
        ran.append(body)
        assert go_on.wait(60)

    park(history)
    with worker:
        backend.deliver(Q, "first")
        until(lambda: ran == ["first"])
        history.decide(Q, "1", Status.NEW, "ada")
        until(lambda: bool(worker.triggers[Q].pipeline._carrying_out))
        assert ran == ["first"]
        go_on.set()
        until(lambda: state(history) is State.COMPLETED)
    assert ran == ["first", "tea"]
    assert [one.outcome.verb for one in backend.settlements] == [Verb.ACCEPT]


def test_tr49_without_its_history_a_copy_stays_where_it_is(
    backend: ScriptedBackend, until: Until, switchable: Callable[..., Any]
) -> None:
    history = open_history("memory:")
    failing = switchable(history)
    ran: list[str] = []
    worker = Worker(backend.url, history=failing)

    @worker.trigger(Q, history_unavailable="run")
    def book(body: str) -> None:
        ran.append(body)

    park(history)
    failing.off = Claim
    with worker:
        backend.deliver(Q, "other")
        until(lambda: ran == ["other"])  # decided without the history
        history.decide(Q, "1", Status.NEW, "ada")
        failing.off = None
        until(lambda: state(history) is State.COMPLETED)
    assert ran == ["other", "tea"]


def test_a_copy_that_cannot_be_read_is_told_once_and_left(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event]
) -> None:
    worker = Worker(backend.url, history=history)
    worker.trigger(Q)(lambda: None)
    history.park(Q, "broken", token="parker", source="uuid", envelope=b"not one", reason="abandoned")
    park(history, "2")
    history.decide(Q, "broken", Status.NEW, "ada")
    history.decide(Q, "2", Status.NEW, "ada")
    with worker:
        until(lambda: state(history, "2") is State.COMPLETED)
        history.exchange([])
    assert [one.name for one in events].count("parked_unreadable") == 1
    assert [one.id for one in history.decided(Q)] == ["broken"]


def test_tr32_each_copy_without_an_id_is_parked_under_one_of_its_own_and_can_be_decided(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q)
    def book(body: str) -> None:
        ran.append(body)

    for body in ("a", "b"):
        history.park(
            Q,
            f"none:{body}",
            source="made-up",
            token=body,
            envelope=encode(PlainContent(kind=MessageKind.TEXT, body=body, message_id=None, destination=Q)),
            reason="resolver",
        )
    history.decide(Q, "none:b", Status.NEW, "ada")
    with worker:
        until(lambda: history.lookup(Q, "none:b", source="made-up").state is State.COMPLETED)  # type: ignore[union-attr]
    assert ran == ["b"]
    assert [one.id for one in history.in_doubt(Q)] == ["none:a"]
