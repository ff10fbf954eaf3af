"""Cases on the embedded broker: why a message is on the error destination (R09), and retries in place beside copies (TR-57)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from jmsclient import Delivery, Message, TransientError, Worker
from jmsclient.testing import TestBroker

Q = "queue:///orders"
DLQ = "queue:///DLQ"
Until = Callable[..., None]


def test_r09_a_message_at_its_redelivery_limit_says_why_it_is_on_the_error_destination() -> None:
    worker = Worker(history="memory:")

    @worker.trigger(Q, on_error="redeliver")
    def book(body: bytes, delivery: Delivery) -> None:
        if delivery.delivery_count == 1:
            raise ValueError("bad iban é\n" + "x" * 5000)
        raise KeyError("k")

    body = bytes(range(256)) * 4096
    url = f"embedded:r09-{secrets.token_hex(4)}?redelivery_limit=1"
    with TestBroker(worker, url=url) as broker:
        broker.send(Q, Message(body, properties={"a": 1}, correlation_id="c", reply_to="queue:///answers"))
        dead = broker.receive(DLQ)
        assert dead is not None
        said = dict(dead.properties)
        assert dead.body == body
        assert (said["a"], dead.correlation_id, str(dead.reply_to)) == (1, "c", "queue:///answers")
        assert said["JMS_jmsclient_original_destination"] == Q
        assert said["JMS_jmsclient_error_type"] == "KeyError"
        assert said["JMS_jmsclient_error_text"] == "'k'"
        assert said["JMS_jmsclient_deliveries"] == 2
        assert isinstance(said["JMS_jmsclient_failed_at"], float)
        assert all(name.replace("_", "a").isalnum() for name in said)
        # Moved back it fails again: what it says is replaced, not multiplied.
        broker.send(Q, Message(body, properties=said, correlation_id="c"))
        again = broker.receive(DLQ)
        assert again is not None
        assert set(again.properties) - {"JMS_jmsclient_reason"} == set(said) - {"JMS_jmsclient_reason"}
        assert again.properties["JMS_jmsclient_deliveries"] == 2


def test_r09_the_shortened_text_of_an_error_is_one_line() -> None:
    worker = Worker(history="memory:")

    @worker.trigger(Q, on_error="redeliver")
    async def book(body: str) -> None:
        raise ValueError("bad iban é\n" + "x" * 5000)

    with TestBroker(worker, url=f"embedded:r09-{secrets.token_hex(4)}?redelivery_limit=1") as broker:
        broker.send(Q, "a")
        dead = broker.receive(DLQ)
        assert dead is not None
        text = str(dead.properties["JMS_jmsclient_error_text"])
    assert text.startswith("bad iban é x")
    assert (len(text), text[-1]) == (500, "…")


def test_tr57_a_copy_waits_while_the_first_waits_for_its_retry_and_is_then_a_duplicate(until: Until) -> None:
    attempts: list[int] = []
    worker = Worker(history="memory:")

    @worker.trigger(Q, concurrency=2, max_retries=1, retry_interval=0.3, lease=1.0)
    async def book(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        await asyncio.sleep(0)
        if delivery.attempt == 1:
            raise TransientError("busy")

    with TestBroker(worker) as broker:
        counters = worker.triggers[Q].pipeline.counters
        broker.send(Q, "a", properties={"uuid": "1"})
        until(lambda: counters.retrying == 1)
        broker.send(Q, "a", properties={"uuid": "1"})
        until(lambda: counters.in_progress == 1)
        until(lambda: counters.duplicate == 1)
        until(lambda: broker.messages(Q) == [])
    assert attempts == [1, 2]
