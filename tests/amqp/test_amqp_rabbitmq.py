"""RabbitMQ 3.10 beyond what every broker is asked: queues that are there already and of another kind, limits, rights. R01, S03."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jmsclient
from jmsclient import AcknowledgeMode, Connection, events
from jmsclient.errors import ConfigurationError, SendError

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
PATIENCE = 20.0


@pytest.fixture
def connection(rabbitmq: Any) -> Iterator[Connection]:
    """One whose link is never lost."""
    lost: list[str] = []
    end = events.subscribe(lambda event: lost.append(event.text) if event.name == "link_lost" else None)
    with jmsclient.connect(rabbitmq.url) as one:
        yield one
    end()
    assert lost == []


@pytest.fixture(params=["classic", "quorum"])
def queue(request: pytest.FixtureRequest, rabbitmq: Any) -> str:
    name = f"live.{secrets.token_hex(6)}"
    if request.param == "quorum":
        rabbitmq.declare_quorum_queue(name)
    return name


def test_r01_a_recover_is_seen_on_either_kind_of_queue(connection: Connection, queue: str) -> None:
    """A quorum queue counts, but over AMQP 1.0 this version tells only "again"; a classic queue has no more to tell."""
    session = connection.create_session(AcknowledgeMode.CLIENT)
    session.create_producer(queue).send("again")
    consumer = session.create_consumer(queue)
    seen = []
    for _ in range(3):
        message = consumer.receive(PATIENCE)
        assert message is not None
        assert message.arrival.count_derived
        seen.append((message.delivery_count, message.redelivered))
        session.recover()
    assert seen == [(1, False), (2, True), (2, True)], "at least two, and marked as derived"
    message = consumer.receive(PATIENCE)
    assert message is not None
    message.acknowledge()


def test_r01_what_nobody_saw_comes_again_with_the_flag(connection: Connection, queue: str) -> None:
    session = connection.create_session()
    session.create_producer(queue).send_many(["a", "b"])
    with connection.create_session() as first:
        consumer = first.create_consumer(queue, prefetch=2)
        message = consumer.receive(PATIENCE)
        assert message is not None
        assert message.text == "a"
        end = time.monotonic() + PATIENCE
        while not consumer.read_ahead.buffered_messages:
            assert time.monotonic() < end
            time.sleep(0.005)
    message = session.create_consumer(queue).receive(PATIENCE)
    assert message is not None
    assert (message.text, message.delivery_count, message.redelivered) == ("b", 2, True)


def test_s03_the_limit_of_a_quorum_queue_is_reached_by_failed_attempts(connection: Connection, rabbitmq: Any) -> None:
    """(b): the broker counts by itself, what the client shows is 1, then 2 each time; (d): rejected goes there at once."""
    queue, dead = f"max3.{secrets.token_hex(6)}", f"dead.{secrets.token_hex(6)}"
    session = connection.create_session(AcknowledgeMode.CLIENT)
    dead_letters = session.create_consumer(dead)  # this makes the queue
    rabbitmq.declare_quorum_queue(queue, x_delivery_limit=2, x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    producer = session.create_producer(queue)
    producer.send("poison")
    consumer = session.create_consumer(queue)
    counts = []
    for _ in range(3):
        message = consumer.receive(PATIENCE)
        assert message is not None
        counts.append(message.delivery_count)
        session.recover()
    assert counts == [1, 2, 2]
    message = dead_letters.receive(PATIENCE)
    assert message is not None
    assert message.text == "poison"
    message.acknowledge()
    assert consumer.receive(0) is None


SECRET = "secret-of-the-poor"


def make_user(rabbitmq: Any, configure: str, write: str, read: str) -> str:
    """With these rights, by the names of queues and exchanges."""
    user = f"poor-{secrets.token_hex(4)}"
    name = f'<<"{user}">>'
    rabbitmq.evaluate(
        f'rabbit_auth_backend_internal:add_user({name},<<"{SECRET}">>,<<"tests">>),'
        f'rabbit_auth_backend_internal:set_permissions({name},<<"/">>,<<"{configure}">>,<<"{write}">>,<<"{read}">>,<<"tests">>).'
    )
    return user


def test_no_right_to_send(connection: Connection, rabbitmq: Any) -> None:
    """It ends the session at the first message: an error at once, each time, and consumers of the connection go on."""
    user, queue = make_user(rabbitmq, ".*", "^$", ".*"), f"live.{secrets.token_hex(4)}"
    lost: list[str] = []
    end = events.subscribe(lambda event: lost.append(event.text) if event.name.endswith("_lost") else None)
    with jmsclient.connect(rabbitmq.url, username=user, password=SECRET) as poor:
        consumer = poor.create_session().create_consumer(queue)
        producer = poor.create_session().create_producer(queue)
        for _ in range(3):
            with pytest.raises(SendError, match="has not the right"):
                producer.send("x")
        connection.create_session().create_producer(queue).send("another's")
        message = consumer.receive(PATIENCE)
        assert message is not None
        assert message.text == "another's"
    end()
    assert lost == []


def test_no_rights(connection: Connection, rabbitmq: Any) -> None:
    """It ends the session of a link that is not allowed; the error comes at once, says so, and the connection lives."""
    user, queue = make_user(rabbitmq, "^mine.*", ".*", "^mine.*"), f"mine.{secrets.token_hex(4)}"
    with jmsclient.connect(rabbitmq.url, username=user, password=SECRET) as poor:
        session = poor.create_session()
        attempts: list[Callable[[], object]] = [
            lambda: session.create_consumer("others"),
            lambda: session.create_producer("others").send("x"),
        ]
        for forbidden in attempts:
            with pytest.raises(ConfigurationError, match="right") as caught:
                forbidden()
            assert SECRET not in str(caught.value)
        session.create_producer(queue).send("mine")
        message = session.create_consumer(queue).receive(PATIENCE)
        assert message is not None
        assert message.text == "mine"
