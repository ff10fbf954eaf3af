"""What real brokers do with it: one table of tests, asked by capability, over every broker (IF-29, S01, S03, C12)."""

from __future__ import annotations

import hashlib
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jmsclient
from jmsclient import AcknowledgeMode, Connection
from jmsclient.destination import Queue
from jmsclient.errors import (
    ConfigurationError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsClientError,
    ResourceAllocationError,
    SendError,
    TransactionRolledBackError,
    UnsupportedFeatureError,
)
from jmsclient.message import Message, MessageKind
from jmsclient.transport.contract import ACCEPT

from ..lightning import lightning  # noqa: TID252  tests are no package that has a name
from .conftest import Client, wait_for

amqp = pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the first test of a broker may have to fetch it

BROKERS = ["artemis", "broker_j", "classic", "rabbitmq"]
PATIENCE = 20.0


@pytest.fixture(params=BROKERS, scope="module")
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with jmsclient.connect(url, client_id=f"live-{secrets.token_hex(4)}") as one:
        yield one


@pytest.fixture
def queue() -> str:
    return f"queue:///live.{secrets.token_hex(6)}"


@pytest.fixture
def topic(connection: Connection) -> str:
    """One that exists where topics have to."""
    number = secrets.randbelow(20)
    return f"topic:///topic.{number}"


def needs(connection: Connection, *capabilities: str) -> bool:
    """Whether it has them all; a test then goes on, or checks that the lack is named."""
    return all(getattr(connection.capabilities, one) for one in capabilities)


def bodies(consumer: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        message = consumer.receive(PATIENCE)
        assert message is not None, f"only {found} came"
        found.append(message.body)
    return found


# -- who is there -------------------------------------------------------------------------------------------------------


def test_if_29_the_product_decides_the_capabilities(connection: Connection) -> None:
    product = connection.metadata.provider_name.lower()
    rows = {
        "apache-activemq-artemis": {"transactions": True, "reject": "dead_letter", "drain": "yes", "delayed_delivery": True},
        "apache qpid broker-j core": {"transactions": True, "reject": "until_limit", "drain": "yes", "delayed_delivery": False},
        "activemq": {"transactions": True, "reject": "dead_letter", "drain": "may_miss", "shared_subscriptions": False},
        "rabbitmq": {"transactions": False, "selectors": False, "browse": False, "drain": "no", "delivery_count": "derived"},
    }
    assert product in rows
    for name, value in rows[product].items():
        assert getattr(connection.capabilities, name) == value, name


def test_a_wrong_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="user name and password") as caught:
        jmsclient.connect(url, password="wrong-one")
    assert "wrong-one" not in str(caught.value)


# -- messages -----------------------------------------------------------------------------------------------------------

SENT: list[tuple[Any, MessageKind]] = [
    ("größe", MessageKind.TEXT),
    ("", MessageKind.TEXT),
    (b"\x00\xff" * 300, MessageKind.BYTES),
    ({"a": 1, "b": 0.5, "c": True, "d": "x", "e": b"\x01", "f": None, "g": -(1 << 60)}, MessageKind.MAP),
    ([1, "x", None, 2.5, b"\x02", False], MessageKind.STREAM),
    (None, MessageKind.MESSAGE),
]


def test_c04_every_kind_there_and_back(connection: Connection, queue: str) -> None:
    session = connection.create_session()
    producer = session.create_producer(queue, priority=7)
    properties: dict[str, Any] = {"n": 1, "x": 1.5, "t": "é", "yes": True}
    for body, _ in SENT:
        producer.send(body, properties=properties, correlation_id="c", reply_to="queue:///back", type="t")
    producer.send(Message(b"\xac\xed", kind=MessageKind.OBJECT))
    consumer = session.create_consumer(queue)
    for body, kind in SENT:
        message = consumer.receive(PATIENCE)
        assert message is not None
        assert (message.kind, message.body) == (kind, body)
        assert dict(message.properties) == properties
        assert (message.correlation_id, str(message.reply_to), message.type) == ("c", "queue:///back", "t")
        assert (message.priority, message.persistent, message.redelivered) == (7, True, False)
        assert str(message.destination) == queue
    serialized = consumer.receive(PATIENCE)
    assert serialized is not None
    assert (serialized.kind, serialized.body) == (MessageKind.OBJECT, b"\xac\xed")


@pytest.mark.parametrize("size", [5, 16], ids=["5 MiB", "16 MiB"])
def test_c12_large_messages_with_small_ones_behind(url: str, queue: str, size: int) -> None:
    large = secrets.token_bytes(size << 20)
    with jmsclient.connect(f"{url}{'&' if '?' in url else '?'}max_frame_bytes=16384", request_timeout=60.0) as connection:
        session = connection.create_session()
        producer = session.create_producer(queue)
        for body in (large, b"small", b"small"):
            producer.send(body)
        consumer = session.create_consumer(queue)
        found = [consumer.receive(30) for _ in range(3)]
    assert [None if one is None else one.delivery_count for one in found] in ([1, 1, 1], [-1, -1, -1])
    digests = [hashlib.sha256(one.body).hexdigest() if one is not None else None for one in found]  # type: ignore[arg-type]
    assert digests == [hashlib.sha256(body).hexdigest() for body in (large, b"small", b"small")]


def test_many_messages_in_order(connection: Connection, queue: str) -> None:
    session = connection.create_session()
    session.create_producer(queue, persistent=False).send_many(str(number) for number in range(3000))
    consumer = session.create_consumer(queue, prefetch=100)
    assert bodies(consumer, 3000) == [str(number) for number in range(3000)]
    assert consumer.receive(0.0) is None or connection.capabilities.drain != "yes"


def test_r02_a_message_that_expires_is_never_handed_over(connection: Connection, queue: str) -> None:
    session = connection.create_session()
    producer = session.create_producer(queue)
    producer.send("dead", time_to_live=0.2)
    message_id = producer.send("alive", time_to_live=60)
    time.sleep(0.3)  # the life of a message is what passes here
    message = session.create_consumer(queue).receive(PATIENCE)
    assert message is not None
    assert (message.body, message.message_id) == ("alive", message_id)
    assert message.expiration is not None
    assert time.time() < message.expiration < time.time() + 61


# -- counts and settlement ----------------------------------------------------------------------------------------------


def test_r01_recover_is_seen_as_a_redelivery(connection: Connection, queue: str) -> None:
    session = connection.create_session(AcknowledgeMode.CLIENT)
    session.create_producer(queue).send("again")
    consumer = session.create_consumer(queue)
    first = consumer.receive(PATIENCE)
    assert first is not None
    session.recover()
    second = consumer.receive(PATIENCE)
    assert second is not None
    second.acknowledge()
    counts = (first.delivery_count, second.delivery_count)
    if connection.capabilities.delivery_count == "none":
        assert counts == (-1, -1)
    else:
        assert counts == (1, 2)
        assert (first.redelivered, second.redelivered) == (False, True)


def test_s03_a_limit_of_the_broker_is_reached_by_failed_attempts(url: str) -> None:
    queue = f"queue:///max3.{secrets.token_hex(6)}"
    with jmsclient.connect(url) as connection:
        if connection.metadata.provider_name not in ("apache-activemq-artemis", "Apache Qpid Broker-J Core"):
            return  # the others have no limit of their own over this protocol
        session = connection.create_session(AcknowledgeMode.CLIENT)
        sent = session.create_producer(queue).send("poison")
        consumer = session.create_consumer(queue)
        for attempt in (1, 2, 3):
            message = consumer.receive(PATIENCE)
            assert message is not None
            assert message.delivery_count == attempt
            session.recover()
        assert consumer.receive(0.0) is None
        dead = session.create_consumer("queue:///DLQ")
        while (message := dead.receive(PATIENCE)) is not None and message.message_id != sent:
            message.acknowledge()
        assert message is not None
        message.acknowledge()


def test_unread_messages_go_back_when_a_consumer_closes(connection: Connection, queue: str) -> None:
    session = connection.create_session()
    session.create_producer(queue).send_many(str(number) for number in range(50))
    with session.create_consumer(queue, prefetch=20) as first:
        assert bodies(first, 3) == ["0", "1", "2"]
    left = session.create_consumer(queue)
    found = [left.receive(PATIENCE) for _ in range(47)]
    assert sorted(int(str(one.body)) for one in found if one is not None) == list(range(3, 50))
    if connection.capabilities.release_without_count:
        assert [one.delivery_count for one in found if one is not None] == [1] * 47


def test_s01_at_most_once(connection: Connection, queue: str) -> None:
    session = connection.create_session()
    session.create_producer(queue, persistent=False).send_many(str(number) for number in range(20))
    consumer = session.create_consumer(queue, prefetch=5, at_most_once=True)
    assert bodies(consumer, 20) == [str(number) for number in range(20)]
    with pytest.raises(ConfigurationError):
        connection.create_session(AcknowledgeMode.CLIENT).create_consumer(queue, at_most_once=True)


# -- what not every broker can ------------------------------------------------------------------------------------------


def test_selectors(connection: Connection, queue: str) -> None:
    session = connection.create_session()
    producer = session.create_producer(queue)
    for number in range(4):
        producer.send(str(number), properties={"n": number})
    if not needs(connection, "selectors"):
        with pytest.raises(UnsupportedFeatureError, match="selector"):
            session.create_consumer(queue, "n > 1")
        return
    with session.create_consumer(queue, "n > 1 AND JMSDeliveryMode = 'PERSISTENT'") as consumer:
        assert bodies(consumer, 2) == ["2", "3"]
    with pytest.raises(InvalidSelectorError):
        session.create_consumer(queue, "n >")
    assert bodies(session.create_consumer(queue), 2) == ["0", "1"]


def test_browsing(connection: Connection, queue: str) -> None:
    session = connection.create_session()
    session.create_producer(queue).send_many(str(number) for number in range(30))
    if not needs(connection, "browse"):
        with pytest.raises(UnsupportedFeatureError, match="browse"):
            session.create_browser(queue)
        return
    for _ in range(2):
        assert [message.body for message in session.create_browser(queue)] == [str(number) for number in range(30)]
    assert bodies(session.create_consumer(queue), 30) == [str(number) for number in range(30)]


def test_if_28_transactions(connection: Connection, queue: str) -> None:
    if not needs(connection, "transactions"):
        with pytest.raises(UnsupportedFeatureError, match="no transactions"):
            connection.create_session(AcknowledgeMode.TRANSACTED)
        return
    session = connection.create_session(AcknowledgeMode.TRANSACTED)
    watcher = connection.create_session()
    producer = session.create_producer(queue)
    producer.send("one")
    seen = watcher.create_consumer(queue)
    assert seen.receive(0.0) is None
    session.rollback()
    producer.send("two")
    session.commit()
    assert bodies(seen, 1) == ["two"]
    seen.close()
    producer.send("three")
    session.commit()
    consumer = session.create_consumer(queue)
    for count in (1, 2):
        message = consumer.receive(PATIENCE)
        assert message is not None
        assert message.body == "three"
        if connection.capabilities.delivery_count == "none":
            assert message.delivery_count == -1
        else:
            assert (message.delivery_count, message.redelivered) == (count, count > 1)  # R01
        producer.send("answer")
        if count == 1:
            session.rollback()
    session.commit()
    assert bodies(consumer, 1) == ["answer"], "of both answers only the committed one is there"
    session.commit()
    assert consumer.receive(0.0) is None


def test_topics(connection: Connection, topic: str) -> None:
    session = connection.create_session()
    producer = session.create_producer(topic)
    producer.send("nobody listens")
    first, second = session.create_consumer(topic), session.create_consumer(topic)
    producer.send("news")
    for consumer in (first, second):
        message = consumer.receive(PATIENCE)
        assert message is not None
        assert (message.body, str(message.destination)) == ("news", topic)


def test_no_local_leaves_out_what_the_same_connection_published(connection: Connection, url: str, topic: str) -> None:
    session = connection.create_session()
    if connection.metadata.provider_name.lower().startswith("rabbitmq"):
        with pytest.raises(UnsupportedFeatureError, match="no_local"):
            session.create_consumer(topic, no_local=True)
        return
    consumer = session.create_consumer(topic, no_local=True)
    session.create_producer(topic).send("our own")
    with jmsclient.connect(url) as other:
        other.create_session().create_producer(topic).send("another's")
    assert bodies(consumer, 1) == ["another's"]


def test_durable_subscriptions(connection: Connection, topic: str) -> None:
    session = connection.create_session()
    name = f"sub-{secrets.token_hex(4)}"
    if not needs(connection, "durable_subscriptions"):
        with pytest.raises(UnsupportedFeatureError, match="durable"):
            session.create_durable_consumer(topic, name)
        return
    producer = session.create_producer(topic)
    session.create_durable_consumer(topic, name).close()
    producer.send("kept")
    consumer = session.create_durable_consumer(topic, name)
    with pytest.raises(jmsclient.errors.IllegalStateError):
        session.unsubscribe(name)
    assert bodies(consumer, 1) == ["kept"]
    consumer.close()
    session.unsubscribe(name)
    with pytest.raises(InvalidDestinationError):
        session.unsubscribe(name)
    producer.send("lost")
    with session.create_durable_consumer(topic, name) as again:
        assert again.receive(0.0) is None
    session.unsubscribe(name)


def test_shared_subscriptions(connection: Connection, topic: str) -> None:
    session = connection.create_session()
    name = f"shared-{secrets.token_hex(4)}"
    if not needs(connection, "shared_subscriptions"):
        with pytest.raises(UnsupportedFeatureError, match="shared"):
            session.create_shared_consumer(topic, name)
        return
    consumers = [session.create_shared_consumer(topic, name, prefetch=2) for _ in range(2)]
    producer = session.create_producer(topic)
    for number in range(10):
        producer.send(str(number))
    found: list[Any] = []
    end = time.monotonic() + PATIENCE
    while len(found) < 10 and time.monotonic() < end:
        found += [message.body for consumer in consumers if (message := consumer.receive(0.05)) is not None]
    assert sorted(found) == [str(number) for number in range(10)], "each message once"


@pytest.mark.parametrize("client_id", [True, False], ids=["client id", "no client id"])
def test_a_shared_durable_subscription_lives_until_it_is_unsubscribed(url: str, topic: str, client_id: bool) -> None:
    """JM 4.11.4: with or without a client id; in use it cannot be deleted, by whomever; what waits in it goes with it."""
    name = f"shared-{secrets.token_hex(4)}"
    identity = f"live-{secrets.token_hex(4)}" if client_id else None
    with jmsclient.connect(url, client_id=identity) as first:
        session = first.create_session()
        if not needs(first, "shared_subscriptions", "durable_subscriptions"):
            with pytest.raises(UnsupportedFeatureError, match=r"shared|durable"):
                session.create_shared_durable_consumer(topic, name)
            if not client_id:
                with pytest.raises(UnsupportedFeatureError, match=r"durable|client_id="):
                    session.unsubscribe(name)
            return
        session.create_shared_durable_consumer(topic, name).close()
        session.create_producer(topic).send("kept")
    with jmsclient.connect(url, client_id=identity) as second:
        session = second.create_session()
        with session.create_shared_durable_consumer(topic, name) as consumer:
            assert bodies(consumer, 1) == ["kept"]
            with pytest.raises(jmsclient.errors.IllegalStateError):
                session.unsubscribe(name)
            if not client_id:  # a client id is of one connection at a time
                with jmsclient.connect(url) as other, pytest.raises(jmsclient.errors.IllegalStateError):
                    other.create_session().unsubscribe(name)
        session.create_producer(topic).send("waits")
        session.unsubscribe(name)
        with pytest.raises(InvalidDestinationError):
            session.unsubscribe(name)
        with session.create_shared_durable_consumer(topic, name) as again:
            assert again.receive(0.0) is None, "it is another subscription"
        session.unsubscribe(name)


def test_temporary_queues(connection: Connection) -> None:
    session = connection.create_session()
    if connection.metadata.provider_name == "RabbitMQ":
        with pytest.raises(UnsupportedFeatureError, match="temporary"):
            session.create_temporary_queue()
        return
    temporary = session.create_temporary_queue()
    consumer = session.create_consumer(temporary)
    session.create_producer(temporary).send("answer")
    assert bodies(consumer, 1) == ["answer"]
    with pytest.raises(jmsclient.errors.IllegalStateError):
        temporary.delete()
    consumer.close()
    temporary.delete()
    temporary.delete()


def test_delayed_delivery(connection: Connection, queue: str) -> None:
    session = connection.create_session()
    if not needs(connection, "delayed_delivery"):
        with pytest.raises(UnsupportedFeatureError, match="later"):
            session.create_producer(queue, delivery_delay=1.0)
        return
    consumer = session.create_consumer(queue)
    start = time.monotonic()
    session.create_producer(queue, delivery_delay=0.5).send("later")
    assert bodies(consumer, 1) == ["later"]
    assert time.monotonic() - start >= 0.45


def test_a_client_of_one_thread_a_session(connection: Connection, queue: str) -> None:
    """Sessions of one connection work at the same time and share its one I/O thread."""
    before = set(threading.enumerate())  # with that of the connection, and those of tests before this one
    found: list[list[Any]] = [[], []]

    def take(number: int) -> None:
        session = connection.create_session()
        with session.create_consumer(queue, prefetch=10) as consumer:
            while len(found[0]) + len(found[1]) < 200:
                message = consumer.receive(0.1)
                if message is not None:
                    found[number].append(message.body)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    connection.create_session().create_producer(queue).send_many(str(number) for number in range(200))
    for thread in threads:
        thread.join(30)
    assert sorted(map(int, found[0] + found[1])) == list(range(200))
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("jmsclient-amqp-io")]


# -- refusals and faults, on Artemis ------------------------------------------------------------------------------------


def test_no_such_queue_and_no_rights(artemis_url: str) -> None:
    with jmsclient.connect(artemis_url) as connection:
        session = connection.create_session()
        with pytest.raises(InvalidDestinationError, match=r"absent\.queue"):
            session.create_consumer("queue:///absent.queue")
        with pytest.raises(ConfigurationError, match="right"):
            session.create_consumer("queue:///forbidden.queue")
        with pytest.raises((ConfigurationError, SendError)):
            session.create_producer("queue:///forbidden.queue").send("x")
        session.create_consumer("queue:///live.still")


def test_no_such_queue_or_exchange_on_broker_j(broker_j_url: str) -> None:
    """It makes none of that name by itself; the error says what to do, and the session goes on."""
    with jmsclient.connect(broker_j_url) as connection:
        session = connection.create_session()
        for wrong in ("queue:///nosuch.queue", "topic:///nosuch.topic"):
            with pytest.raises(InvalidDestinationError, match=r"nosuch\..*make the destination at the broker"):
                session.create_consumer(wrong)
            with pytest.raises(InvalidDestinationError, match=r"nosuch\..*make the destination at the broker"):
                session.create_producer(wrong).send("x")
        assert session.create_consumer("queue:///live.still").receive(0.0) is None


def test_o07_a_full_address_withholds_credit(artemis_url: str) -> None:
    queue = f"queue:///full.{secrets.token_hex(4)}"
    with jmsclient.connect(artemis_url) as connection:
        session = connection.create_session()
        producer = session.create_producer(queue, send_timeout=0.5, persistent=False)
        error: JmsClientError | None = None
        for _ in range(3000):
            start = time.monotonic()
            try:
                producer.send(b"x" * 1000)
            except (ResourceAllocationError, SendError) as caught:
                error = caught
                break
        assert isinstance(error, ResourceAllocationError)
        assert 0.4 < time.monotonic() - start < 10.0


def test_o06_a_broker_that_is_killed_and_started_again(artemis: Any, connect_to: Callable[..., Client]) -> None:
    queue = Queue(f"live.{secrets.token_hex(6)}")
    client = connect_to(artemis.url)
    client.send(*map(str, range(10)), to=queue, persistent=True)
    receiver, sink = client.receive(destination=queue)
    receiver.request(5)
    receiver.settle(wait_for(sink, 5)[:3], ACCEPT)
    client.session.flush(client.deadline())
    artemis.kill()
    lost(client)
    receiver.settle(sink.arrivals, ACCEPT)
    artemis.start()
    again = connect_to(artemis.url)
    receiver, sink = again.receive(destination=queue)
    receiver.request(10)
    wait_for(sink, 7)
    receiver.drain(again.deadline())
    # What was accepted may come again: this broker writes an acknowledge to its journal a moment later.
    assert sink.bodies[-7:] == ["3", "4", "5", "6", "7", "8", "9"]


def test_o04_a_broker_that_is_frozen_is_noticed(artemis: Any, connect_to: Callable[..., Client]) -> None:
    client = connect_to(f"{artemis.url}?idle_timeout=2")
    client.receive(destination=Queue("live.frozen"))
    artemis.send_signal(signal.SIGSTOP)
    try:
        start = time.monotonic()
        assert "idle time-out" in str(lost(client))
        assert time.monotonic() - start < 10.0
    finally:
        artemis.send_signal(signal.SIGCONT)


def test_s08_a_connection_lost_before_the_commit(artemis: Any, connect_to: Callable[..., Client]) -> None:
    queue = Queue(f"live.{secrets.token_hex(6)}")
    client = connect_to(artemis.url, transacted=True)
    client.send("never", to=queue)
    amqp.cut(client.transport)
    lost(client)
    with pytest.raises(TransactionRolledBackError):
        client.session.commit(client.deadline())
    client.session.rollback(redelivery_delay=0.0, deadline=client.deadline())
    again = connect_to(artemis.url)
    receiver, sink = again.receive(destination=queue)
    receiver.request(1)
    receiver.drain(again.deadline())
    assert sink.arrivals == []


@pytest.mark.timeout(300, method="thread")  # see `lightning`
def test_if_40_exceptions_from_signal_handlers_strand_nothing(artemis_url: str, queue: str) -> None:
    count = 4000
    found: list[int] = []
    message: Message | None = None
    ended = False

    def note() -> None:
        """Repeating it does no harm, for it may be struck as well."""
        nonlocal message
        if message is not None:
            number = int(str(message.body))
            if found[-1:] != [number]:
                found.append(number)
            message = None

    def take() -> None:
        nonlocal message, ended
        while (message := consumer.receive(1.0 if len(found) >= count - 2 else PATIENCE)) is not None:
            note()
        ended = True

    with jmsclient.connect(artemis_url) as connection, lightning(0.0005, 0.0025) as storm:
        session = connection.create_session()
        session.create_producer(queue).send_many(str(number) for number in range(count))
        consumer = session.create_consumer(queue)
        end = time.monotonic() + 60
        strikes = 0
        while not ended and time.monotonic() < end:
            if len(found) < count - 2:  # under fire until the last wait
                strikes += storm.hits(take)
            else:
                take()
            note()
        assert found == sorted(set(found)), "in order, none twice"
        assert len(found) >= count - 2, "one may be struck after it was returned and before it was stored"
        assert strikes > 20
        start = time.monotonic()
        session.close()
        assert time.monotonic() - start < 10.0
        assert connection.create_session().create_consumer(queue).receive(0.0) is None, "each was acknowledged"


def lost(client: Client) -> Exception:
    """What the connection ended with."""
    end = time.monotonic() + PATIENCE
    while not client.listener.losses:
        assert time.monotonic() < end, "nobody was told"
        time.sleep(0.01)
    return client.listener.losses[0]


# -- a worker -----------------------------------------------------------------------------------------------------------


def test_a_trigger_handles_each_message_once(url: str, queue: str, tmp_path: Path) -> None:
    seen: list[int] = []
    worker = jmsclient.Worker(url, history=f"sqlite:{tmp_path / 'history.db'}")
    with jmsclient.connect(url) as connection:
        producer = connection.create_session().create_producer(queue)
        for number in [*range(40), *range(0, 40, 4)]:  # some are sent twice
            producer.send({"n": number}, properties={"uuid": f"order-{number}"})

    @worker.trigger(queue, concurrency=2)
    def handle(order: dict, delivery: jmsclient.Delivery) -> None:  # type: ignore[type-arg]
        seen.append(order["n"])
        delivery.send(f"{queue}.done", str(order["n"]))

    with worker:
        end = time.monotonic() + 30
        (trigger,) = worker.triggers.values()
        while trigger.counters["duplicate"] < 10:
            assert time.monotonic() < end, trigger.counters
            time.sleep(0.01)
    assert sorted(seen) == list(range(40))
    with jmsclient.connect(url) as connection:
        session = connection.create_session()
        assert len(bodies(session.create_consumer(f"{queue}.done"), 40)) == 40
        assert session.create_consumer(queue).receive(0.1) is None
