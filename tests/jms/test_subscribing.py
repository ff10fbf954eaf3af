"""Topics and their subscriptions: durable, shared, both; client ids; no-local; unsubscribe (JM 4.11, 6.1.2, 8.3)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from jmsclient import (
    AcknowledgeMode,
    ConfigurationError,
    Connection,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    Message,
    MessageConsumer,
    Session,
    Topic,
    UnsupportedFeatureError,
    connect,
)
from jmsclient.testing.scripted import ScriptedBackend

PRICES = "topic:///prices"


@pytest.fixture
def url() -> str:
    return f"embedded:test-{secrets.token_hex(8)}"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with connect(url, client_id="desk-1") as connection:
        yield connection


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.create_session()


@pytest.fixture
def publish(other: Connection) -> Callable[..., list[str]]:
    """Publish texts from another connection."""
    producer = other.create_session().create_producer(PRICES)
    return lambda *texts: producer.send_many(texts)


def texts(consumer: MessageConsumer, wait: float = 0.0) -> list[str | None]:
    found = []
    while (message := consumer.receive(wait)) is not None:
        found.append(message.text)
    return found


# -- topics --------------------------------------------------------------------------------------------------------------


def test_each_consumer_of_a_topic_gets_each_message(session: Session, publish: Any) -> None:
    publish("before")
    one, two = session.create_consumer(PRICES), session.create_consumer(Topic("prices"))
    publish("a", "b")
    assert (texts(one), texts(two)) == (["a", "b"], ["a", "b"])


@pytest.mark.parametrize("make", ["create_consumer", "create_durable_consumer"])
def test_no_local_leaves_out_what_this_connection_publishes(session: Session, publish: Any, make: str) -> None:
    names = () if make == "create_consumer" else ("mine",)
    consumer = getattr(session, make)(PRICES, *names, no_local=True)
    session.create_producer(PRICES).send("own")
    publish("theirs")
    assert texts(consumer) == ["theirs"]


# -- durable -------------------------------------------------------------------------------------------------------------


def test_a_durable_subscription_collects_while_nobody_consumes(url: str, publish: Any) -> None:
    """It is told by client id and name: another connection with them goes on with it."""
    with connect(url, client_id="desk-2") as own:
        own.create_session().create_durable_consumer(PRICES, "all").close()
    publish("a", "b")
    with connect(url, client_id="desk-2") as own:
        consumer = own.create_session().create_durable_consumer(PRICES, "all")
        assert texts(consumer) == ["a", "b"]
        consumer.close()
        own.create_session().unsubscribe("all")
    publish("c")
    with connect(url, client_id="desk-2") as own:
        assert texts(own.create_session().create_durable_consumer(PRICES, "all")) == []


def test_what_a_durable_consumer_had_not_acknowledged_comes_again(connection: Connection, publish: Any) -> None:
    session = connection.create_session(AcknowledgeMode.CLIENT)
    consumer = session.create_durable_consumer(PRICES, "all")
    publish("a", "b")
    assert consumer.receive(10) is not None
    session.close()
    again = connection.create_session().create_durable_consumer(PRICES, "all")
    found = [again.receive(10) for _ in range(2)]
    assert [(one.text, one.delivery_count) for one in found if one is not None] == [("a", 2), ("b", 1)]


def test_it_takes_part_in_a_transaction(connection: Connection, publish: Any) -> None:
    session = connection.create_session(AcknowledgeMode.TRANSACTED)
    consumer = session.create_durable_consumer(PRICES, "all")
    publish("a")
    assert texts(consumer) == ["a"]
    session.rollback()
    assert texts(consumer) == ["a"]
    session.commit()
    assert texts(consumer) == []


def test_another_selector_makes_it_anew(session: Session, publish: Any) -> None:
    """JM 8.3.3: as if it had been deleted."""
    session.create_durable_consumer(PRICES, "all").close()
    publish("a")
    consumer = session.create_durable_consumer(PRICES, "all", "JMSPriority > 8")
    assert texts(consumer) == []
    consumer.close()
    publish("b")
    assert texts(session.create_durable_consumer(PRICES, "all", "JMSPriority > 8")) == []


def test_a_durable_subscription_needs_a_client_id(other: Connection) -> None:
    assert other.client_id is None
    session = other.create_session()
    with pytest.raises(IllegalStateError, match="client_id"):
        session.create_durable_consumer(PRICES, "all")
    session.create_shared_durable_consumer(PRICES, "all")  # JM 4.11.4: with or without


def test_one_client_id_is_one_connections(url: str, connection: Connection) -> None:
    with pytest.raises(IllegalStateError, match="desk-1"):
        connect(url, client_id="desk-1")
    connection.close()
    connect(url, client_id="desk-1").close()


@pytest.mark.parametrize("client_id", ["", "  ", 7])
def test_a_client_id_is_a_text(url: str, client_id: Any) -> None:
    with pytest.raises(ConfigurationError, match="client_id"):
        connect(url, client_id=client_id)


def test_one_consumer_at_a_time(session: Session) -> None:
    with session.create_durable_consumer(PRICES, "all"), pytest.raises(IllegalStateError, match="all"):
        session.create_durable_consumer(PRICES, "all")


# -- shared --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ["create_shared_consumer", "create_shared_durable_consumer"])
def test_sharers_get_each_message_once(connection: Connection, publish: Any, make: str) -> None:
    sharers = [getattr(connection.create_session(), make)(PRICES, "work", prefetch=1) for _ in range(2)]
    whole = connection.create_session().create_consumer(PRICES)
    publish(*map(str, range(10)))
    found: list[str | None] = []
    while messages := [message for sharer in sharers if (message := sharer.receive(0)) is not None]:
        found += [message.text for message in messages]
    assert sorted(map(str, found)) == [str(number) for number in range(10)]
    assert len(texts(whole)) == 10


def test_a_shared_subscription_ends_with_its_last_consumer(session: Session, publish: Any) -> None:
    one, two = session.create_shared_consumer(PRICES, "work"), session.create_shared_consumer(PRICES, "work")
    one.close()
    publish("a")
    two.close()
    publish("b")
    assert texts(session.create_shared_consumer(PRICES, "work")) == []


def test_a_shared_durable_subscription_collects(session: Session, publish: Any) -> None:
    session.create_shared_durable_consumer(PRICES, "work").close()
    publish("a")
    assert texts(session.create_shared_durable_consumer(PRICES, "work")) == ["a"]


def test_a_name_is_shared_or_not(session: Session) -> None:
    session.create_shared_durable_consumer(PRICES, "work").close()
    with pytest.raises(IllegalStateError, match="shared"):
        session.create_durable_consumer(PRICES, "work")


def test_sharers_agree_on_the_selector(session: Session) -> None:
    with session.create_shared_consumer(PRICES, "work", "a = 1"), pytest.raises(IllegalStateError, match="selector"):
        session.create_shared_consumer(PRICES, "work", "a = 2")


# -- listeners, unsubscribing, refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ["create_durable_consumer", "create_shared_consumer", "create_shared_durable_consumer"])
def test_a_listener_can_be_given_at_once(session: Session, publish: Any, wait_until: Callable[..., None], make: str) -> None:
    heard: list[str | None] = []

    def listen(message: Message) -> None:
        heard.append(message.text)

    getattr(session, make)(PRICES, "work", "JMSPriority = 4", listener=listen, prefetch=3)
    publish("a", "b")
    wait_until(lambda: heard == ["a", "b"])


def test_unsubscribe_refuses_what_is_in_use_or_not_there(connection: Connection, publish: Any) -> None:
    session = connection.create_session(AcknowledgeMode.CLIENT)
    consumer = session.create_durable_consumer(PRICES, "all")
    with pytest.raises(IllegalStateError, match="consumer"):
        session.unsubscribe("all")
    publish("a")
    assert consumer.receive(10) is not None
    consumer.close()
    for use in (session.unsubscribe, lambda name: session.create_durable_consumer(PRICES, name)):
        with pytest.raises(IllegalStateError, match="acknowledged"):
            use("all")
    session.acknowledge()
    session.unsubscribe("all")
    with pytest.raises(InvalidDestinationError, match="all"):
        session.unsubscribe("all")


@pytest.mark.parametrize("make", ["create_durable_consumer", "create_shared_consumer", "create_shared_durable_consumer"])
@pytest.mark.parametrize(
    ("topic", "name", "selector", "error"),
    [
        ("prices", "n", None, InvalidDestinationError),  # a bare name is a queue
        ("queue:///prices", "n", None, InvalidDestinationError),
        (PRICES, "", None, ConfigurationError),
        (PRICES, " ", None, ConfigurationError),
        (PRICES, None, None, ConfigurationError),
        (PRICES, "n", "a = ", InvalidSelectorError),
    ],
)
def test_nonsense_is_refused_before_the_provider_is_asked(
    session: Session, make: str, topic: str, name: str, selector: str | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        getattr(session, make)(topic, name, selector)


@pytest.mark.parametrize(
    ("missing", "make"),
    [
        ("topics", "create_consumer"),
        ("topics", "create_durable_consumer"),
        ("durable_subscriptions", "create_durable_consumer"),
        ("durable_subscriptions", "create_shared_durable_consumer"),
        ("shared_subscriptions", "create_shared_consumer"),
        ("shared_subscriptions", "create_shared_durable_consumer"),
    ],
)
def test_each_needs_its_capabilities(connection: Connection, missing: str, make: str) -> None:
    connection.transport.capabilities = replace(connection.capabilities, **{missing: False})
    session = connection.create_session()
    names = () if make == "create_consumer" else ("n",)
    with pytest.raises(UnsupportedFeatureError, match=missing.replace("_", " ")):
        getattr(session, make)(PRICES, *names)


def test_unsubscribe_needs_durable_subscriptions() -> None:
    with ScriptedBackend() as backend, connect(backend.url) as own, pytest.raises(UnsupportedFeatureError, match="durable"):
        own.create_session().unsubscribe("all")


def test_a_temporary_topic_is_its_connections_own(session: Session, other: Connection) -> None:
    ticker = session.create_temporary_topic()
    consumer = session.create_consumer(ticker)
    other.create_session().create_producer(ticker).send("a")
    assert texts(consumer, 1) == ["a"]
    with pytest.raises(InvalidDestinationError):
        other.create_session().create_consumer(ticker)
    with pytest.raises(IllegalStateError):
        ticker.delete()
    consumer.close()
    ticker.delete()
