"""What is surprising about each broker, as docs/reference/brokers.md says it (IF-11, IF-18, IF-29; S03, R01)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import pytest

import jmsclient
from jmsclient import AcknowledgeMode, Connection
from jmsclient.destination import Queue
from jmsclient.transport.contract import ACCEPT, Outcome, Verb

from .conftest import Client, wait_for

amqp = pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the first test of a broker may have to fetch it
PATIENCE = 20.0


@pytest.fixture
def queue() -> Queue:
    return Queue(f"live.{secrets.token_hex(6)}")


def provider(connection: Connection) -> str:
    return connection.metadata.provider_name.lower()


def test_if_11_what_a_broken_connection_makes_of_the_count(
    url: str, queue: Queue, connect_to: Callable[..., Client], connection: Connection
) -> None:
    """Nobody saw these. One broker counts them, one cannot say, one does so now and then, one says only "again"."""
    first = connect_to(url)
    first.send("a", "b", to=queue, persistent=True)
    receiver, sink = first.receive(destination=queue)
    receiver.request(2)
    wait_for(sink, 2)
    amqp.cut(first.transport)
    again = connect_to(url)
    receiver, sink = again.receive(destination=queue)
    receiver.request(2)
    counts = [arrival.delivery_count for arrival in wait_for(sink, 2)]
    expected: dict[str, tuple[int, ...]] = {"apache qpid broker-j core": (2,), "activemq": (-1,), "rabbitmq": (2,)}
    assert all(count in expected.get(provider(connection), (1, 2)) for count in counts)
    assert sorted(sink.bodies) == ["a", "b"]
    receiver.settle(sink.arrivals, ACCEPT)


def test_s03_d_what_a_dead_letter_becomes(url: str, connect_to: Callable[..., Client], connection: Connection) -> None:
    """At once to the dead letter address, or counted and offered again until the queue's limit, or dropped."""
    queue, name = Queue(f"max3.{secrets.token_hex(6)}"), f"dead-{secrets.token_hex(4)}"
    client = connect_to(url)
    client.send(name, to=queue, persistent=True)
    seen = []
    receiver, sink = client.receive(destination=queue)
    for attempt in range(1, 5):
        receiver.request(1)
        if connection.capabilities.reject == "until_limit" and attempt <= 3:
            wait_for(sink, attempt)
        elif connection.capabilities.drain != "no":
            receiver.drain(client.deadline())
        elif attempt == 1:
            wait_for(sink, 1)
        if len(sink.arrivals) < attempt:
            break
        seen.append(sink.arrivals[-1].delivery_count)
        receiver.settle(sink.arrivals[-1:], Outcome(verb=Verb.DEAD_LETTER, reason="unreadable"))
        client.session.flush(client.deadline())
    assert seen == {"until_limit": [1, 2, 3]}.get(connection.capabilities.reject, seen[:1])
    dead = {"activemq": "ActiveMQ.DLQ", "rabbitmq": None}.get(provider(connection), "DLQ")
    if dead is not None:
        receiver, sink = client.receive(destination=Queue(dead))
        while name not in sink.bodies:
            receiver.request(1)
            wait_for(sink, len(sink.arrivals) + 1)
        receiver.settle(sink.arrivals, ACCEPT)


def test_the_common_order_of_both_kinds_is_kept_where_that_is_said(connection: Connection, queue: Queue) -> None:
    with connection.create_session() as session:
        producer = session.create_producer(queue)
        for number in range(20):
            producer.send(str(number), persistent=number % 3 == 0)
    consumer = connection.create_session().create_consumer(queue)
    found = [consumer.receive(PATIENCE) for _ in range(20)]
    numbers = [int(str(one.text)) for one in found if one is not None]
    assert sorted(numbers) == list(range(20))
    assert {int(str(one.text)) for one in found if one is not None and one.persistent} == set(range(0, 20, 3))
    if connection.capabilities.order_of_mixed_persistence:
        assert numbers == list(range(20))
    for kind in (0, 1, 2):
        assert [number for number in numbers if number % 3 == kind] == list(range(kind, 20, 3)), "each kind keeps its own"


def test_if_18_receive_0_asks_the_broker_where_it_can_be_asked(connection: Connection, queue: Queue) -> None:
    session = connection.create_session()
    consumer = session.create_consumer(queue, prefetch=0)
    assert consumer.receive(0) is None
    with connection.create_session() as other:
        other.create_producer(queue).send("there")
    message = consumer.receive(0)
    if connection.capabilities.drain == "yes":
        assert message is not None
    message = message or consumer.receive(PATIENCE)
    assert message is not None
    assert message.text == "there"


def test_a_failed_message_is_tried_again_by_the_word_that_the_broker_knows(url: str, queue: Queue) -> None:
    """Where it knows no "modified", which would end the session, it is released."""
    with jmsclient.connect(url) as connection:
        connection.create_session().create_producer(queue).send("poor")
        session = connection.create_session(AcknowledgeMode.CLIENT)
        consumer = session.create_consumer(queue)
        for _ in range(3):
            message = consumer.receive(PATIENCE)
            assert message is not None
            session.recover()
        message = consumer.receive(PATIENCE)
        assert message is not None
        message.acknowledge()
        assert consumer.receive(0.0) is None


def test_addresses_are_the_brokers_own(connection: Connection, queue: Queue) -> None:
    """The name is the user's everywhere; what it becomes on the wire, and back in a reply-to, is the backend's."""
    session = connection.create_session()
    session.create_producer(queue).send("x", reply_to=Queue("live.back"))
    message = session.create_consumer(queue).receive(PATIENCE)
    assert message is not None
    assert (message.destination, message.reply_to) == (queue, Queue("live.back"))
    product: Any = connection.transport.present.product  # type: ignore[attr-defined]
    prefix = "/queue/" if provider(connection) == "rabbitmq" else ""
    assert product.naming.address(queue) == prefix + queue.name
