"""TestBroker: a broker of its own for one test, on any backend that has a URL."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from jmsclient.destination import Queue
from jmsclient.errors import ConnectionLostError, IllegalStateError, InvalidDestinationError, MessageFormatError
from jmsclient.message import Message
from jmsclient.testing import ScriptedBackend, TestBroker
from jmsclient.trigger.delivery import Delivery
from jmsclient.worker.worker import Worker


@pytest.fixture(params=["embedded", "scripted"])
def broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    if request.param == "embedded":
        with TestBroker() as broker:
            yield broker
        return
    with ScriptedBackend() as backend, TestBroker(url=backend.url) as broker:
        yield broker
    assert not backend.violations


def test_what_is_sent_is_received_with_its_headers(broker: TestBroker) -> None:
    sent = broker.send("orders", {"item": 7}, properties={"uuid": "u"}, correlation_id="c", reply_to="answers", type="t")
    message = broker.receive("queue:///orders")
    assert message is not None
    assert (message.message_id, message.body, message.delivery_count) == (sent, {"item": 7}, 1)
    assert (message.properties, message.correlation_id, message.reply_to, message.type) == (
        {"uuid": "u"},
        "c",
        Queue("answers"),
        "t",
    )
    assert broker.receive("orders", timeout=0) is None


def test_a_message_goes_with_its_own_headers(broker: TestBroker) -> None:
    broker.send("orders", Message("x", correlation_id="mine"), persistent=False)
    message = broker.receive("orders")
    assert message is not None
    assert (message.text, message.correlation_id, message.persistent) == ("x", "mine", False)


def test_ra_14_looking_changes_nothing(broker: TestBroker) -> None:
    for body in ("a", "b", "c"):
        broker.send("orders", body)
    for _ in range(3):
        assert [(message.text, message.delivery_count) for message in broker.messages("orders")] == [
            ("a", 1),
            ("b", 1),
            ("c", 1),
        ]
    assert broker.messages("empty") == []
    first = broker.receive("orders")
    assert first is not None
    assert (first.text, first.delivery_count) == ("a", 1)


def test_receive_waits_for_what_comes(broker: TestBroker) -> None:
    sender = threading.Timer(0.02, lambda: broker.send("orders", "late"))
    sender.start()
    message = broker.receive("orders", timeout=5)
    sender.join()
    assert message is not None
    assert message.text == "late"


def test_bad_arguments_are_refused_before_anything_happens(broker: TestBroker) -> None:
    with pytest.raises(InvalidDestinationError):
        broker.send("kafka:///x", "a")
    with pytest.raises(MessageFormatError):
        broker.send("orders", 7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout=-1"):
        broker.receive("orders", timeout=-1)
    assert broker.messages("orders") == []


def test_two_brokers_share_nothing() -> None:
    with TestBroker() as one, TestBroker() as other:
        assert one.url != other.url
        one.send("orders", "a")
        assert other.messages("orders") == []


def test_it_lives_inside_its_block_only() -> None:
    with ScriptedBackend() as backend:
        broker = TestBroker(url=backend.url)
        with pytest.raises(IllegalStateError, match="with block"):
            broker.messages("orders")
        with broker:
            broker.send("orders", "a")
        with pytest.raises(IllegalStateError, match="with block"):
            broker.send("orders", "a")


def test_a_broker_that_is_gone_says_so() -> None:
    with ScriptedBackend() as backend, TestBroker(url=backend.url) as broker:
        backend.lose_link()
        with pytest.raises(ConnectionLostError):
            broker.send("orders", "a")


class FakeWorker:
    def __init__(self, *, fails: bool = False) -> None:
        self.url: str | None = "amqp://real"
        self.fails = fails
        self.calls: list[tuple[str, str | None]] = []

    def start(self) -> None:
        self.calls.append(("start", self.url))
        if self.fails:
            raise RuntimeError("no history")

    def stop(self) -> None:
        self.calls.append(("stop", self.url))


def test_a_worker_runs_on_it_for_the_time_of_the_block() -> None:
    worker = FakeWorker()
    with ScriptedBackend() as backend, TestBroker(worker, url=backend.url) as broker:
        assert worker.calls == [("start", broker.url)]
    assert worker.calls == [("start", broker.url), ("stop", broker.url)]
    assert worker.url == "amqp://real"


def test_a_worker_that_cannot_start_leaves_nothing_open() -> None:
    worker = FakeWorker(fails=True)
    with ScriptedBackend() as backend, pytest.raises(RuntimeError, match="no history"), TestBroker(worker, url=backend.url):
        raise AssertionError("the block must not run")
    assert worker.url == "amqp://real"


def test_programs_that_use_the_testing_tools_need_no_pytest() -> None:
    code = "import sys, jmsclient.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=100).returncode == 0


def test_a_real_worker_answers_inside_the_block() -> None:
    worker = Worker("amqp://real")

    @worker.trigger("orders")
    def book(order: dict, delivery: Delivery) -> None:  # type: ignore[type-arg]
        delivery.send("invoices", {"item": order["item"]})

    with TestBroker(worker) as broker:
        broker.send("orders", {"item": 7})
        message = broker.receive("invoices")
    assert message is not None
    assert message.body == {"item": 7}
    assert worker.url == "amqp://real"
