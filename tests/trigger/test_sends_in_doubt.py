"""What a handler sent may or may not have arrived: its message is In Doubt, neither failed nor done (TR-36, TR-45)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from jmsclient import Delivery, Message, Status, Worker
from jmsclient.destination import Destination
from jmsclient.errors import ConnectionLostError, InvalidDestinationError, RequestTimeoutError, SendError
from jmsclient.events import Event
from jmsclient.history import open_history
from jmsclient.message import PlainContent
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.contract import Verb
from jmsclient.trigger.outbox import Line

Q = "queue:///orders"
Until = Callable[..., None]
LOST = SendError("the connection broke", in_doubt=("ID:1",))
UNSENT = SendError("the link is lost and was not back in time", unsent=("ID:1",))
UNSENT.__cause__ = ConnectionLostError("lost")


def message(body: str) -> Message:
    return Message(body, properties={"uuid": body})


@pytest.mark.parametrize("batch", [1, 2])
def test_tr36_a_send_in_doubt_makes_its_message_in_doubt(
    batch: int, backend: ScriptedBackend, until: Until, tmp_path: Path, events: list[Event]
) -> None:
    history = open_history(f"sqlite:{tmp_path / 'history.db'}")
    worker = Worker(backend.url, history=history)
    ran: list[str] = []

    def book(bodies: list[str], delivery: Delivery) -> None:
        ran.extend(bodies)
        delivery.send("queue:///invoices", bodies[0])

    def book_one(body: str, delivery: Delivery) -> None:
        book([body], delivery)

    def book_all(bodies: list[str], deliveries: list[Delivery]) -> None:
        book(bodies, deliveries[0])

    worker.trigger(Q, lease=0.2, batch=batch)(book_one if batch == 1 else book_all)
    backend.refuse_sends(LOST)
    names = ["m1", "m2"][:batch]
    with worker:
        backend.deliver(Q, [message(name) for name in names])
        until(lambda: len(history.in_doubt(Q)) == batch)
        backend.refuse_sends(None)
        assert backend.waiting("queue:///DLQ") == []
    assert ran == names, "it is not run again unless somebody says so"
    assert {(one.id, one.reason) for one in history.in_doubt(Q)} == {(name, "abandoned") for name in names}
    assert [one.name for one in events].count("send_in_doubt") == batch
    assert [one.outcome.verb for one in backend.settlements] == [Verb.RETRY] * batch + [Verb.ACCEPT] * batch


def test_tr36_a_resolver_is_asked_whether_what_was_sent_has_arrived(backend: ScriptedBackend, until: Until, tmp_path: Path) -> None:
    worker = Worker(backend.url, history=f"sqlite:{tmp_path / 'history.db'}")
    ran: list[int] = []

    @worker.trigger(Q, lease=0.2, resolver=lambda request: Status.NEW)
    def book(body: str, delivery: Delivery) -> None:
        ran.append(delivery.attempt)
        delivery.send("queue:///invoices", body)
        if len(ran) > 1:
            backend.refuse_sends(None)

    backend.refuse_sends(LOST)
    with worker:
        backend.deliver(Q, message("m1"))
        until(lambda: len(backend.waiting("queue:///invoices")) == 1)
    assert len(ran) == 2


@pytest.mark.parametrize("error", [UNSENT, ConnectionLostError("lost"), RequestTimeoutError("no answer to the attach")], ids=repr)
def test_tr45_a_provider_out_of_reach_is_no_failure_of_the_handler(
    error: Exception, backend: ScriptedBackend, until: Until, tmp_path: Path
) -> None:
    """Nothing was sent, but the handler did its work: to call it failed would be as wrong as to call it done."""
    history = open_history(f"sqlite:{tmp_path / 'history.db'}")
    worker = Worker(backend.url, history=history)
    ran: list[str] = []

    @worker.trigger(Q, lease=0.2)
    def book(body: str, delivery: Delivery) -> None:
        ran.append(body)
        delivery.send("queue:///invoices", body)

    backend.refuse_sends(error)
    with worker:
        backend.deliver(Q, message("m1"))
        until(lambda: [one.id for one in history.in_doubt(Q)] == ["m1"])
        assert worker.triggers[Q].counters["failed"] == 0
    assert ran == ["m1"]


def test_tr45_a_send_that_certainly_failed_is_a_failure(backend: ScriptedBackend, until: Until, tmp_path: Path) -> None:
    worker = Worker(backend.url, history=f"sqlite:{tmp_path / 'history.db'}")

    @worker.trigger(Q)
    def book(body: str, delivery: Delivery) -> None:
        delivery.send("queue:///invoices", body)

    backend.refuse_sends(SendError("no such queue", unsent=("ID:1",)))
    with worker:
        backend.deliver(Q, message("m1"))
        until(lambda: worker.triggers[Q].counters["failed"] == 1)


@pytest.mark.parametrize("partly", ["one of two destinations", "one of two messages"])
def test_tr45_what_was_sent_in_part_is_in_doubt_and_not_sent_again_unseen(
    partly: str, backend: ScriptedBackend, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[Event]
) -> None:
    """To run it again would send again what has arrived, to call it failed would say that nothing had."""
    history = open_history(f"sqlite:{tmp_path / 'history.db'}")
    worker = Worker(backend.url, history=history)
    send = Line.send

    def send_some(self: Line, destination: Destination, contents: Sequence[PlainContent]) -> None:
        if partly == "one of two messages":
            send(self, destination, contents[:1])
            ids = [str(one.message_id) for one in contents]
            raise SendError("it is full", confirmed=ids[:1], unsent=ids[1:])
        if destination.address.endswith("receipts"):
            raise InvalidDestinationError("receipts: no such queue")
        send(self, destination, contents)

    monkeypatch.setattr(Line, "send", send_some)

    @worker.trigger(Q, lease=0.2, on_error="redeliver")
    def book(body: str, delivery: Delivery) -> None:
        delivery.send("queue:///invoices", body)
        delivery.send("queue:///receipts" if partly == "one of two destinations" else "queue:///invoices", body)

    with worker:
        backend.deliver(Q, message("m1"))
        until(lambda: [one.id for one in history.in_doubt(Q)] == ["m1"])
        assert worker.triggers[Q].counters["failed"] == 0
    assert [one.body() for one in backend.waiting("queue:///invoices")] == ["m1"]
    assert [one.name for one in events].count("send_in_doubt") == 1
    history.close()
