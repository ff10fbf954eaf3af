"""A worker on the embedded broker: delays, error destination, counts, kept and taken (TR-28, TR-45, TR-64, TR-67, O01)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jmsclient import Delivery, Message, Worker, connect
from jmsclient.events import Event
from jmsclient.history import State, open_history
from jmsclient.testing import TestBroker

Q = "queue:///orders"
Until = Callable[..., None]
When = Callable[[Callable[[], Any], Callable[[], Any]], None]


def test_tr45_a_failed_message_is_on_the_queues_error_destination_and_completed_in_the_history(
    tmp_path: Path, until: Until
) -> None:
    history = open_history(f"sqlite:{tmp_path / 'history.db'}")
    worker = Worker(history=history)

    @worker.trigger(Q)
    def book(body: bytes) -> None:
        raise ValueError("bad iban é\n" + "x" * 5000)

    with TestBroker(worker) as broker:
        body = bytes(range(256)) * 4096
        broker.send(Q, Message(body, properties={"uuid": "1", "a": 1}, correlation_id="c", reply_to="queue:///answers"))
        dead = broker.receive("queue:///DLQ")
        assert dead is not None
        assert dead.body == body
        assert (dead.properties["a"], dead.correlation_id, str(dead.reply_to)) == (1, "c", "queue:///answers")
        assert dead.properties["JMS_jmsclient_error_type"] == "ValueError"
        text = str(dead.properties["JMS_jmsclient_error_text"])
        assert "\n" not in text
        assert len(text) <= 500
        until(lambda: worker.triggers[Q].pipeline.counters.completed == 1)
        assert broker.messages(Q) == []
    entry = history.lookup(Q, "1", source="uuid")
    assert entry is not None
    assert (entry.state, entry.outcome) == (State.COMPLETED, "failed")
    history.close()


def test_tr67_a_copy_in_progress_waits_at_the_broker_and_is_then_a_duplicate(until: Until) -> None:
    history = open_history("memory:")
    claim = history.claim(Q, "1", source="uuid", token="somebody", lease=2.0)
    ran: list[str] = []
    worker = Worker(history=history)

    @worker.trigger(Q, concurrency=2)
    def book(body: str) -> None:
        ran.append(body)

    with TestBroker(worker) as broker:
        broker.send(Q, "copy", properties={"uuid": "1"})
        broker.send(Q, "other", properties={"uuid": "2"})
        until(lambda: ran == ["other"])
        history.complete(Q, "1", source="uuid", token=claim.token)
        until(lambda: worker.triggers[Q].pipeline.counters.duplicate == 1)
        until(lambda: broker.messages(Q) == [])
    assert ran == ["other"]


@pytest.mark.parametrize(("policy", "ran_all"), [("DELIVER_ALL", True), ("DELIVER_CURRENT", False)])
def test_o01_taken_messages_end_as_the_close_policy_says(policy: str, ran_all: bool, until: Until, when: When) -> None:
    started, go_on = threading.Event(), threading.Event()
    ran: list[str] = []
    worker = Worker()

    @worker.trigger(f"{Q}?readAheadAllowed=YES&readAheadClosePolicy={policy}")
    def book(body: str) -> None:
        started.set()
        assert go_on.wait(60)
        ran.append(body)

    with TestBroker() as broker:
        worker.url = broker.url
        with connect(broker.url) as connection:
            producer = connection.create_session().create_producer(Q, persistent=False)
            producer.send_many(["1", "2", "3", "4", "5"])
        worker.start()
        assert started.wait(30)
        until(lambda: broker.messages(Q) == [])
        pipeline = worker.triggers[Q].pipeline
        when(lambda: pipeline._stopping, go_on.set)
        (report,) = worker.stop(30.0).triggers
        assert ran == (["1", "2", "3", "4", "5"] if ran_all else ["1"])
        assert report.discarded == (0 if ran_all else 4)
        assert broker.messages(Q) == []


def test_tr28_with_a_history_nothing_is_taken_ahead_unless_bypassed(until: Until) -> None:
    """TR-64: every buffered message of a checking trigger is still held by the broker."""
    started, go_on = threading.Event(), threading.Event()
    worker = Worker(history="memory:")

    @worker.trigger(f"{Q}?readAheadAllowed=YES")
    def book(delivery: Delivery) -> None:
        started.set()
        assert go_on.wait(60)

    with TestBroker() as broker:
        worker.url = broker.url
        with connect(broker.url) as connection:
            connection.create_session().create_producer(Q, persistent=False).send_many(["1", "2", "3"])
        worker.start()
        assert started.wait(30)
        go_on.set()
        until(lambda: worker.triggers[Q].pipeline.counters.completed == 3)
        assert worker.triggers[Q].pipeline._intake.counters.taken == 0
        worker.stop()


def test_if39_a_taken_message_whose_handler_failed_is_gone_and_said_to_be(until: Until, events: list[Event]) -> None:
    worker = Worker()

    @worker.trigger(f"{Q}?readAheadAllowed=YES", on_error="redeliver")
    def book(body: str) -> None:
        raise ValueError("no")

    with TestBroker(worker) as broker:
        with connect(broker.url) as connection:
            connection.create_session().create_producer(Q, persistent=False).send("1")
        until(lambda: any(one.name == "taken_message_gone" for one in events))
        assert broker.messages(Q) == []


def test_a_dead_pipeline_ends_the_run_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()

    @worker.trigger(Q)
    def book(body: str) -> None: ...

    with TestBroker() as broker:
        worker.url = broker.url

        def fail(self: object, now: float) -> None:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr("jmsclient.trigger.pipeline.Pipeline._take", fail)
        report = worker.run()
    assert not report.clean
    assert "a fault of ours" in str(report.errors[0])
