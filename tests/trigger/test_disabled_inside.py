"""A trigger that is disabled, or a worker that is stopped, while a handler runs, be it by that handler (TR-61, TR-37, O01)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import Delivery, IllegalStateError, Session, TriggerOptions, Worker
from jmsclient.events import Event
from jmsclient.history import open_history
from jmsclient.testing import TestBroker

Q = "queue:///orders"
OUT = "queue:///invoices"
Until = Callable[..., None]


@pytest.mark.parametrize("sends", ["nothing", "by delivery", "by session", "is awaited"])
def test_tr61_what_a_disable_rolled_back_is_new_again_and_no_failure(until: Until, events: list[Event], sends: str) -> None:
    history = open_history("memory:")
    attempts: list[int] = []
    worker = Worker(history=history)

    def disable_and_enable() -> None:
        trigger = worker.triggers[Q]
        trigger.disable(grace=0.0)
        trigger.enable()

    def book(body: str, session: Session, delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            disable_and_enable()
        if sends == "by delivery":
            delivery.send(OUT, body)
        elif sends == "by session":
            session.create_producer(OUT).send(body)

    async def book_awaited(body: str) -> None:
        attempts.append(len(attempts) + 1)
        if len(attempts) == 1:
            disable_and_enable()

    with TestBroker() as broker:
        worker.url = broker.url
        soon = TriggerOptions(in_progress_delay=0.02)
        worker.trigger(Q, transacted=True, options=soon)(book_awaited if sends == "is awaited" else book)
        with worker:
            broker.send(Q, "a", properties={"uuid": "a"})
            until(lambda: attempts == [1, 2] and not broker.messages(Q))
        assert attempts == [1, 2]
        assert [message.body for message in broker.messages(OUT)] == (["a"] if sends.startswith("by") else [])
        assert not broker.messages("queue:///DLQ")
    names = [one.name for one in events]
    assert "commit_rolled_back" in names
    assert not {"handler_failed", "rollback_failed"} & set(names)


@pytest.mark.parametrize("mode", ["serial", "threads", "async", "transacted"])
def test_o01_a_handler_that_stops_its_own_worker_is_told_what_to_call(until: Until, mode: str) -> None:
    told: list[str] = []
    worker = Worker(history="memory:", grace=600.0)  # what it would have waited for itself

    def stop() -> None:
        with pytest.raises(IllegalStateError, match="request_stop") as caught:
            worker.stop()
        told.append(str(caught.value))
        worker.request_stop()

    def book(body: str) -> None:
        stop()

    async def book_awaited(body: str) -> None:
        stop()

    settings: dict[str, dict[str, Any]] = {"threads": {"concurrency": 2}, "transacted": {"transacted": True}}
    with TestBroker() as broker:
        worker.url = broker.url
        worker.trigger(Q, **settings.get(mode, {}))(book_awaited if mode == "async" else book)
        broker.send(Q, "a")
        report = worker.run()
        assert report.clean
        assert len(told) == 1
        assert not broker.messages(Q)


def test_o01_a_handler_may_stop_another_worker(until: Until) -> None:
    stopped = threading.Event()
    with TestBroker() as broker:
        other = Worker(broker.url)
        other.trigger("queue:///other")(lambda: None)
        worker = Worker(broker.url)

        @worker.trigger(Q)
        def book(body: str) -> None:
            assert other.stop().clean
            stopped.set()

        with other, worker:
            broker.send(Q, "a")
            assert stopped.wait(30.0)
