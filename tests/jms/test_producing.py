"""What a producer makes and sends (api.md "Producing"; RA-2 persistence, IF-30, IF-32; S04 wrong states)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import (
    ConfigurationError,
    Connection,
    IllegalStateError,
    Message,
    MessageConsumer,
    MessageFormatError,
    MessageKind,
    MessageProducer,
    UnsupportedFeatureError,
)

Put = Callable[..., list[str]]


@pytest.fixture
def producer(connection: Connection) -> MessageProducer:
    return connection.create_session().create_producer("Q")


@pytest.fixture
def consumer(connection: Connection) -> MessageConsumer:
    return connection.create_session().create_consumer("Q")


def got(consumer: MessageConsumer) -> Message:
    message = consumer.receive(10)
    assert message is not None
    return message


@pytest.mark.parametrize(
    ("body", "kind", "read"),
    [
        ("text", MessageKind.TEXT, "text"),
        (b"bytes", MessageKind.BYTES, b"bytes"),
        (bytearray(b"bytes"), MessageKind.BYTES, b"bytes"),
        ({"a": 1, "b": b"x"}, MessageKind.MAP, {"a": 1, "b": b"x"}),
        ([1, "two"], MessageKind.STREAM, [1, "two"]),
        (None, MessageKind.MESSAGE, None),
    ],
    ids=lambda value: str(value),
)
def test_the_body_makes_the_kind(producer: Any, consumer: MessageConsumer, body: Any, kind: MessageKind, read: Any) -> None:
    producer.send(body)
    message = got(consumer)
    assert (message.kind, message.body) == (kind, read)


def test_headers_and_properties_arrive(producer: MessageProducer, consumer: MessageConsumer) -> None:
    sent = producer.send("x", properties={"n": 1}, correlation_id="c", reply_to="topic:///R", type="T", priority=7)
    message = got(consumer)
    assert sent == message.message_id
    assert sent.startswith("ID:")
    assert (dict(message.properties), message.correlation_id, message.type, message.priority) == ({"n": 1}, "c", "T", 7)
    assert str(message.reply_to) == "topic:///R"
    assert str(message.destination) == "queue:///Q"
    assert abs((message.timestamp or 0) - time.time()) < 5


@pytest.mark.parametrize(
    ("flag", "given", "persistent"),
    [
        ("APP", None, True),
        ("APP", False, False),
        ("QDEF", False, False),
        ("NON", True, False),
        ("NON", None, False),
        ("PERS", False, True),
    ],
)
def test_ra2_the_destinations_persistence_wins(
    connection: Connection, consumer: MessageConsumer, flag: str, given: bool | None, persistent: bool
) -> None:
    connection.create_session().create_producer(f"queue:///Q?persistence={flag}").send("x", persistent=given)
    assert got(consumer).persistent is persistent


def test_a_message_may_be_sent_again_and_what_the_send_says_wins(producer: MessageProducer, consumer: MessageConsumer) -> None:
    message = Message({"a": 1}, properties={"p": 1, "q": 1}, correlation_id="old")
    first = producer.send(message, properties={"p": 2}, correlation_id="new")
    assert message.message_id == first
    second = producer.send(message)
    one, two = got(consumer), got(consumer)
    assert (dict(one.properties), one.correlation_id, one.message_id) == ({"p": 2, "q": 1}, "new", first)
    assert (dict(two.properties), two.correlation_id, two.message_id) == ({"p": 1, "q": 1}, "old", second)
    forwarded = producer.send(one)
    again = got(consumer)
    assert (again.body, again.message_id) == ({"a": 1}, forwarded)


def test_what_is_changed_after_the_send_is_not_sent(producer: MessageProducer, consumer: MessageConsumer) -> None:
    body = {"a": 1}
    message = Message(body)
    producer.send(message)
    body["a"] = 2
    message.body["a"] = 3  # type: ignore[index, call-overload]
    message.set_property("late", True)
    received = got(consumer)
    assert (received.body, dict(received.properties)) == ({"a": 1}, {})


def test_time_to_live(producer: MessageProducer, consumer: MessageConsumer) -> None:
    producer.send("x", time_to_live=60)
    expiration = got(consumer).expiration
    assert expiration is not None
    assert 55 < expiration - time.time() < 65
    producer.send("y")
    assert got(consumer).expiration is None


def test_ra11_an_expired_message_is_never_handed_over(connection: Connection, producer: MessageProducer) -> None:
    consumer = connection.create_session().create_consumer("Q")
    producer.send("short", time_to_live=0.05)
    producer.send("long")
    time.sleep(0.1)
    assert got(consumer).text == "long"


def test_if30_a_delay_needs_the_capability(connection: Connection, producer: MessageProducer) -> None:
    if connection.capabilities.delayed_delivery:
        assert producer.send("later", delivery_delay=0.01)
    else:
        with pytest.raises(UnsupportedFeatureError, match="delivery_delay"):
            producer.send("later", delivery_delay=1.0)
        with pytest.raises(UnsupportedFeatureError, match="delivery_delay"):
            connection.create_session().create_producer("Q", delivery_delay=1.0)


def test_destinations_of_a_send(connection: Connection) -> None:
    session = connection.create_session()
    anywhere = session.create_producer()
    with pytest.raises(ConfigurationError, match="no destination"):
        anywhere.send("x")
    anywhere.send("x", destination="OTHER")
    assert session.create_consumer("OTHER").receive(10) is not None
    fixed = session.create_producer("Q")
    fixed.send("x", destination="queue:///Q")
    with pytest.raises(IllegalStateError, match="another"):
        fixed.send("x", destination="OTHER")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"priority": 10}, ConfigurationError),
        ({"priority": True}, ConfigurationError),
        ({"time_to_live": -1}, ConfigurationError),
        ({"delivery_delay": float("nan")}, ConfigurationError),
        ({"properties": {"no good": 1}}, MessageFormatError),
        ({"properties": {"ok": [1]}}, MessageFormatError),
    ],
    ids=lambda value: str(value),
)
def test_bad_values_send_nothing(producer: Any, consumer: MessageConsumer, given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        producer.send("x", **given)
    assert consumer.receive(0.05) is None


def test_send_many_keeps_the_order_beyond_one_batch(producer: MessageProducer, connection: Connection) -> None:
    ids = producer.send_many(str(number) for number in range(1000))
    assert len(set(ids)) == 1000
    consumer = connection.create_session().create_consumer("Q")
    assert [got(consumer).text for _ in range(1000)] == [str(number) for number in range(1000)]


def test_a_closed_producer_refuses(producer: MessageProducer) -> None:
    producer.close()
    producer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send("x")
