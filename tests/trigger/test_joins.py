"""Joins: AND, OR and XOR by activation id; sets survive a restart, and what waits too long is parked (TR-63)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jmsclient import Delivery, Message, Status, TransientError, Worker
from jmsclient.errors import ConfigurationError
from jmsclient.events import Event
from jmsclient.history import DocumentHistory, State, open_history
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.contract import Verb
from jmsclient.trigger import carrying_out

from ..seen import verbs  # noqa: TID252  tests are no package that has a name

A, B = "queue:///orders", "queue:///payments"
J = "booking"
Until = Callable[..., None]


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying_out, "LOOK_INTERVAL", 0.05)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.real)])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DocumentHistory]:
    url = f"sqlite:{tmp_path / 'history.db'}" if request.param == "sqlite" else request.getfixturevalue("redis_url")
    with open_history(url, namespace=tmp_path.name) as opened:
        yield opened


def part(body: Any, uuid: str, activation: str | None = "x") -> Message:
    return Message(body, properties={"uuid": uuid} | ({} if activation is None else {"activation": activation}))


@dataclass
class Paid:
    amount: int


def test_tr63_and_runs_the_complete_set_once_in_the_order_declared(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    ran: list[Any] = []
    worker = Worker(backend.url, history=history)

    @worker.join([A, B], "and", "activation", name=J)
    def book(messages: list[Message], bodies: list[dict[str, Any]], delivery: Delivery) -> None:
        ran.append([(one.properties["uuid"], body) for one, body in zip(messages, bodies, strict=True)])
        delivery.send("queue:///done", str(delivery.attempt))

    with worker:
        backend.deliver(B, [part({"amount": 1}, "b1"), part({"amount": 2}, "b2", "y")])
        until(lambda: len(backend.settlements) == 2)  # acknowledged: the history has them
        assert ran == []
        backend.deliver(B, [part({"amount": 1}, "b1")])  # a second copy of a member
        until(lambda: worker.triggers[J].counters["duplicate"] == 1)
        backend.deliver(A, [part({"id": 7}, "a1")])
        until(lambda: len(backend.waiting("queue:///done")) == 1)
        backend.deliver(A, [part({"id": 7}, "a1")])
        until(lambda: worker.triggers[J].counters["duplicate"] == 2)
    assert ran == [[("a1", {"id": 7}), ("b1", {"amount": 1})]]
    assert set(verbs(backend)) == {Verb.ACCEPT}
    for uuid in ("a1", "b1", "b2"):
        entry = history.lookup(J, uuid, source="uuid")
        assert entry is not None
        assert entry.state is State.JOINED
    assert history.in_doubt(J) == []


def test_tr63_sets_survive_a_restart_and_a_handler_that_fails_for_now(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    attempts: list[int] = []

    def make() -> Worker:
        worker = Worker(backend.url, history=history)

        @worker.join(
            [A, B], "and", lambda message: str(message.properties["activation"]), name=J, max_retries=1, retry_interval=0.01
        )
        def book(messages: list[Message], delivery: Delivery) -> None:
            attempts.append(delivery.attempt)
            if len(attempts) == 1:
                raise TransientError("busy")

        return worker

    with make():
        backend.deliver(A, part("a", "a1"))
        until(lambda: len(backend.settlements) == 1)
    with make() as worker:
        backend.deliver(B, part("b", "b1"))
        until(lambda: worker.triggers[J].counters["completed"] == 2)  # the member, then the set
    assert attempts == [1, 2]


def test_tr63_an_expired_set_is_parked_and_can_be_run_as_it_is(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    ran: list[list[str]] = []
    worker = Worker(backend.url, history=history)

    @worker.join([A, B], "and", "activation", 0.1, name=J)
    def book(bodies: list[str]) -> None:
        ran.append(bodies)

    with worker:
        backend.deliver(A, part("alone", "a1"))
        until(lambda: [one.reason for one in history.in_doubt(J)] == ["join_expired"])
        backend.deliver(B, part("late", "b1"))
        until(lambda: sorted(one.reason for one in history.in_doubt(J)) == ["join_expired", "join_taken"])
        history.decide(J, "x", Status.NEW, "ada")
        until(lambda: ran == [["alone"]])
        history.decide(J, "b1", Status.DUPLICATE, "ada")
        until(lambda: history.in_doubt(J) == [] and history.decided(J) == [])
    assert ran == [["alone"]]


def test_tr63_a_second_message_for_a_taken_place_is_parked(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event]
) -> None:
    ran: list[list[str]] = []
    worker = Worker(backend.url, history=history)

    @worker.join([A, B], "and", "activation", name=J)
    def book(bodies: list[str]) -> None:
        ran.append(bodies)

    with worker:
        backend.deliver(A, [part("first", "a1"), part("second", "a2")])
        until(lambda: [(one.id, one.reason) for one in history.in_doubt(J)] == [("a2", "join_taken")])
        backend.deliver(B, part("b", "b1"))
        until(lambda: ran == [["first", "b"]])


def test_tr63_xor_runs_the_first_only(backend: ScriptedBackend, history: DocumentHistory, until: Until) -> None:
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.join([A, B], "xor", "activation", name=J)
    def book(body: str, delivery: Delivery) -> None:
        ran.append(body)

    with worker:
        backend.deliver(A, part("first", "a1"))
        until(lambda: ran == ["first"])
        backend.deliver(B, [part("second", "b1"), part("other", "b2", "y")])
        until(lambda: ran == ["first", "other"])
        until(lambda: len(backend.settlements) == 3)
    assert set(verbs(backend)) == {Verb.ACCEPT}
    assert history.in_doubt(J) == []


def test_tr63_or_runs_each(backend: ScriptedBackend, until: Until) -> None:
    ran: list[str] = []
    worker = Worker(backend.url, history="memory:")

    @worker.join([A, B], "or", "activation", name=J)
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        backend.deliver(A, part("a", "1"))
        backend.deliver(B, [part("b", "2", None), part("again", "1")])
        until(lambda: len(backend.settlements) == 3)
        assert worker.triggers[J].counters["duplicate"] == 1  # one history for all of its destinations
        assert worker.triggers[J].disable() == 0
        assert (backend.demand(A), backend.demand(B)) == (0, 0)
    assert sorted(ran) in (["a", "b"], ["again", "b"])


@pytest.mark.parametrize("kind", ["and", "xor"])
def test_tr63_a_message_without_activation_is_refused(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event], kind: Any
) -> None:
    worker = Worker(backend.url, history=history)

    def both(bodies: list[str]) -> None: ...

    def first(body: str) -> None: ...

    worker.join([A, B], kind, "activation", name=J, error_destination="queue:///errors")(both if kind == "and" else first)
    with worker:
        backend.deliver(A, part("a", "a1", None))
        until(lambda: len(backend.waiting("queue:///errors")) == 1)
        until(lambda: verbs(backend) == [Verb.ACCEPT])
    assert [one.name for one in events].count("no_activation") == 1


def test_tr36_a_worker_that_died_before_it_joined_joins_again(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    ran: list[list[str]] = []
    worker = Worker(backend.url, history=history)

    @worker.join([A, B], "and", "activation", name=J)
    def book(bodies: list[str]) -> None:
        ran.append(bodies)

    history.claim(J, "a1", source="uuid", token="dead", lease=0.0)
    with worker:
        backend.deliver(A, part("a", "a1"), delivery_count=2)
        backend.deliver(B, part("b", "b1"))
        until(lambda: ran == [["a", "b"]])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"history": "memory:"}, "must be durable"),
        ({"history": None}, "must be durable"),
        ({"transacted": True}, "cannot be transacted"),
        ({"batch": 2}, "cannot be transacted or a batch"),
    ],
)
@pytest.mark.parametrize("kind", ["and", "xor"])
def test_tr63_what_cannot_be_joined_is_refused(
    backend: ScriptedBackend, tmp_path: Path, kind: Any, settings: dict[str, Any], text: str
) -> None:
    worker = Worker(backend.url, history=f"sqlite:{tmp_path / 'history.db'}")

    def both(bodies: list[str]) -> None: ...

    def first(body: str) -> None: ...

    worker.join([A, B], kind, "activation", **settings)(both if kind == "and" else first)
    with pytest.raises(ConfigurationError, match=text):
        worker.start()
    worker.stop()


def test_tr63_a_join_is_checked_when_it_is_declared() -> None:
    worker = Worker()
    for destinations, kind, activation in (([A], "and", "x"), ([A, A], "or", "x"), ([A, B], "nor", "x"), ([A, B], "and", "")):
        with pytest.raises(ConfigurationError):
            worker.join(destinations, kind, activation)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="list"):
        worker.join([A, B], "and", "x")(lambda body: None)
