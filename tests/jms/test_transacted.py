"""TRANSACTED sessions: commit, rollback, what joins the transaction, what ends it.

Rules IF-9, IF-14, IF-28, RA-3; cases R04, R05.
"""

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
    ConnectionOptions,
    Message,
    MessageConsumer,
    Session,
    connect,
)
from jmsclient.testing import ManualClock
from jmsclient.testing.scripted import DEFAULT_CAPABILITIES, ScriptedBackend
from jmsclient.transport.contract import Verb
from jmsclient.transport.registry import parse_url

Put = Callable[..., list[str]]
Rest = Callable[..., list[tuple[str | None, int]]]
TRANSACTED = AcknowledgeMode.TRANSACTED


@pytest.fixture
def session(connection: Connection) -> Iterator[Session]:
    with connection.create_session(TRANSACTED) as session:
        yield session


def got(consumer: MessageConsumer) -> Message:
    message = consumer.receive(10)
    assert message is not None
    return message


def texts(consumer: MessageConsumer, number: int) -> list[tuple[str | None, int]]:
    return [(message.text, message.delivery_count) for message in (got(consumer) for _ in range(number))]


# -- sends and receives are one ------------------------------------------------------------------------------------------


def test_what_is_sent_is_there_after_the_commit(session: Session, connection: Connection, rest: Rest) -> None:
    producer = session.create_producer("Q")
    producer.send_many(["a", "b"])
    producer.close()  # what it sent stays in the transaction
    assert rest() == []
    session.commit()
    assert rest() == [("a", 1), ("b", 1)]


def test_what_is_sent_is_gone_after_the_rollback(session: Session, rest: Rest) -> None:
    session.create_producer("Q").send("a")
    session.rollback()
    session.commit()
    assert rest() == []


def test_commit_takes_what_was_received_and_leaves_the_prefetched(session: Session, put: Put, rest: Rest) -> None:
    put("a", "b", "c")
    consumer = session.create_consumer("Q")
    assert got(consumer).text == "a"
    session.commit()
    session.close()
    assert rest() == [("b", 1), ("c", 1)]


def test_iteration_joins_the_transaction_at_the_hand_over(session: Session, put: Put, rest: Rest) -> None:
    put("a", "b", "c")
    with session.create_consumer("Q") as consumer:
        for message in consumer:
            if message.text == "b":
                break
        session.rollback()
        assert texts(consumer, 3) == [("a", 2), ("b", 2), ("c", 1)]
        session.commit()
    assert rest() == []


def test_message_acknowledge_is_ignored(session: Session, put: Put) -> None:
    put("a")
    consumer = session.create_consumer("Q")
    got(consumer).acknowledge()
    session.acknowledge()
    session.rollback()
    assert texts(consumer, 1) == [("a", 2)]


def test_ra3_nothing_is_taken(session: Session, put: Put, rest: Rest) -> None:
    put("a", "b", persistent=False)
    consumer = session.create_consumer("queue:///Q?readAheadAllowed=YES")
    assert consumer.read_ahead.status.name == "INHIBITED"
    assert "transacted" in consumer.read_ahead.explain()
    got(consumer)
    assert consumer.read_ahead.buffered_taken == 0
    session.close()
    assert rest() == [("a", 2), ("b", 1)]


# -- order ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 1, 10, None])
def test_r04_order_and_counts_after_a_rollback(session: Session, put: Put, rest: Rest, prefetch: int | None) -> None:
    """R04, IF-28: the rolled-back come before the prefetched, whose counts do not rise."""
    put(*map(str, range(1, 13)))
    consumer = session.create_consumer("Q", prefetch=prefetch)
    assert texts(consumer, 4) == [(str(number), 1) for number in range(1, 5)]
    session.commit()
    texts(consumer, 3)
    session.rollback()
    assert texts(consumer, 8) == [(str(number), 2 if number < 8 else 1) for number in range(5, 13)]
    session.commit()
    session.close()
    assert rest() == []


def test_rollback_covers_every_consumer_of_the_session(session: Session, put: Put) -> None:
    put("a1", "a2", queue="Q1")
    put("b1", "b2", queue="Q2")
    c1, c2 = session.create_consumer("Q1"), session.create_consumer("Q2")
    got(c1), got(c2), got(c1)
    session.rollback()
    assert (texts(c1, 2), texts(c2, 2)) == ([("a1", 2), ("a2", 2)], [("b1", 2), ("b2", 1)])


def test_a_quiesced_consumer_fetches_nothing_after_a_rollback(session: Session, put: Put) -> None:
    put("a", "b")
    consumer = session.create_consumer("Q")
    got(consumer)
    consumer.quiesce()
    session.rollback()
    assert consumer.receive(0.05) is None


# -- consumers and sessions that end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_if9_a_closed_consumers_messages_stay_in_the_transaction(session: Session, put: Put, rest: Rest, end: str) -> None:
    put("a", "b")
    consumer = session.create_consumer("Q")
    got(consumer)
    consumer.close()
    assert len(session._lingering) == 1
    getattr(session, end)()
    assert session._lingering == ()
    assert rest() == ([("b", 1)] if end == "commit" else [("a", 2), ("b", 1)])


def test_if9_a_closed_consumer_without_messages_in_the_transaction_is_gone_at_once(session: Session, put: Put, rest: Rest) -> None:
    put("a", "b", "c")
    first = session.create_consumer("Q")
    got(first)
    session.commit()
    first.close()  # what it had received is committed
    session.create_consumer("Q").close()  # and this one received nothing
    assert session._lingering == ()
    second = session.create_consumer("Q")
    got(second)
    session.rollback()
    second.close()
    assert session._lingering == ()
    assert rest() == [("b", 2), ("c", 1)]


@pytest.mark.parametrize("what", ["session", "connection"])
def test_closing_rolls_back(session: Session, connection: Connection, what: str) -> None:
    with connect(url_of(connection)) as other:
        other.create_session().create_producer("Q").send_many(["a", "b"])
        session.create_producer("Q").send("c")
        got(session.create_consumer("Q"))
        (session if what == "session" else connection).close()
        consumer = other.create_session().create_consumer("Q")
        assert texts(consumer, 2) == [("a", 2), ("b", 1)]
        assert consumer.receive(0) is None


def test_an_exception_leaving_the_session_rolls_back(connection: Connection, put: Put, rest: Rest) -> None:
    put("a")

    def fail(session: Session) -> None:
        with session:
            session.create_producer("Q").send("b")
            for _ in session.create_consumer("Q"):
                raise LookupError

    with pytest.raises(LookupError):
        fail(connection.create_session(TRANSACTED))
    assert rest() == [("a", 2)]


# -- the redelivery delay ------------------------------------------------------------------------------------------------


def test_if14_rollback_applies_the_sessions_delay_and_close_does_not(clock: ManualClock) -> None:
    """IF-14: the value is read at the rollback; a close has none."""
    with ScriptedBackend(replace(DEFAULT_CAPABILITIES, delayed_release=True)) as backend:
        endpoint = replace(parse_url(backend.url), clock=clock)
        with Connection(endpoint, start=True, request_timeout=10.0, options=ConnectionOptions()) as own:
            backend.deliver("Q", ["a", "b"])
            session = own.create_session(TRANSACTED, redelivery_delay=60.0)
            consumer = session.create_consumer("Q")
            session.redelivery_delay = 2.0
            got(consumer)
            session.rollback()
            session.redelivery_delay = 60.0  # for later rollbacks only
            assert texts(consumer, 1) == [("b", 1)]
            session.commit()
            clock.advance(1.9)
            assert consumer.receive(0) is None
            clock.advance(0.2)
            assert texts(consumer, 1) == [("a", 2)]
            session.close()
            assert [content.body() for content in backend.waiting("Q")] == ["a"]
            assert own.create_session().create_consumer("Q").receive(0) is not None
        assert backend.violations == []


def test_if14_closing_a_client_session_settles_nothing_explicitly() -> None:
    """IF-14: so no redelivery delay can apply; the provider takes back what was handed over, counted."""
    with ScriptedBackend() as backend, connect(backend.url) as own:
        backend.deliver("Q", ["a", "b"])
        session = own.create_session(AcknowledgeMode.CLIENT, redelivery_delay=60.0)
        got(session.create_consumer("Q"))
        session.close()
        assert {line.verb for line in backend.settlements} == {Verb.RELEASE}
        consumer = own.create_session().create_consumer("Q")
        assert texts(consumer, 2) == [("a", 2), ("b", 1)]


def test_a_provider_that_cannot_delay_is_not_asked_to() -> None:
    with ScriptedBackend() as backend, connect(backend.url) as own:
        backend.deliver("Q", "a")
        session = own.create_session(TRANSACTED, redelivery_delay=60.0)
        consumer = session.create_consumer("Q")
        got(consumer)
        session.rollback()
        assert texts(consumer, 1) == [("a", 2)]
        assert backend.violations == []


@pytest.mark.parametrize("delay", [-1, float("nan"), "1", True, None])
def test_if14_a_delay_that_is_none_is_refused(session: Session, connection: Connection, delay: Any) -> None:
    with pytest.raises(ConfigurationError, match="redelivery_delay"):
        session.redelivery_delay = delay
    with pytest.raises(ConfigurationError, match="redelivery_delay"):
        connection.create_session(redelivery_delay=delay)
    assert session.redelivery_delay == 0.0


def test_r05_the_delay_belongs_to_the_message_only(clock: ManualClock, wait_until: Callable[..., None]) -> None:
    """R05: others pass it, to every consumer; closing a session never delays."""
    endpoint = replace(parse_url(f"embedded:test-{secrets.token_hex(8)}"), clock=clock)
    with Connection(endpoint, start=True, request_timeout=10.0, options=ConnectionOptions()) as own:
        own.create_session().create_producer("Q").send_many(["m1", "m2", "m3"])
        session = own.create_session(TRANSACTED, redelivery_delay=2.0)
        consumer, other = session.create_consumer("Q", prefetch=1), own.create_session().create_consumer("Q", prefetch=1)
        assert texts(consumer, 1) == [("m1", 1)]
        session.rollback()
        found = texts(consumer, 1) + texts(other, 1)
        session.commit()
        assert sorted(found) == [("m2", 1), ("m3", 1)]
        session.redelivery_delay = 0.0  # too late for m1
        statistics = own.administration.statistics("Q")
        assert (statistics.messages_current, statistics.messages_pending) == (0, 1)
        clock.advance(1.9)
        assert (consumer.receive(0), other.receive(0)) == (None, None)
        clock.advance(0.2)
        wait_until(lambda: own.read_ahead.total.buffered)
        assert [(m.text, m.delivery_count) for m in (consumer.receive(0), other.receive(0)) if m is not None] == [("m1", 2)]
        session.commit()
        own.create_session().create_producer("Q").send("m4")
        client = own.create_session(AcknowledgeMode.CLIENT, redelivery_delay=60.0)
        other.close()
        consumer.close()
        got(client.create_consumer("Q"))
        client.close()
        again = own.create_session().create_consumer("Q").receive(0)
        assert again is not None
        assert (again.text, again.delivery_count) == ("m4", 2)


# -- listeners -----------------------------------------------------------------------------------------------------------


def test_a_listener_commits_and_rolls_back_its_own_message(session: Session, put: Put, wait_until: Callable[..., None]) -> None:
    put("a", "b", "c")
    heard: list[tuple[str | None, int]] = []

    def listen(message: Message) -> None:
        heard.append((message.text, message.delivery_count))
        if message.text == "b" and message.delivery_count == 1:
            session.rollback()
        else:
            session.commit()

    session.create_consumer("Q", listener=listen)
    wait_until(lambda: len(heard) == 4)
    assert heard == [("a", 1), ("b", 1), ("b", 2), ("c", 1)]


def test_a_message_whose_listener_raised_is_part_of_the_transaction(
    session: Session, put: Put, rest: Rest, wait_until: Callable[..., None]
) -> None:
    """JM 8.7: the next one is delivered; the application commits or rolls back."""
    put("a", "b", "c")
    heard: list[tuple[str | None, int]] = []

    def listen(message: Message) -> None:
        heard.append((message.text, message.delivery_count))
        if message.text == "a":
            raise ValueError("not this one")
        if len(heard) == 2:
            session.rollback()
        if message.text == "c":
            session.commit()

    session.create_consumer("Q", listener=listen)
    wait_until(lambda: len(heard) == 5)
    assert heard == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 1)]
    session.close()
    assert rest() == []


def url_of(connection: Connection) -> str:
    return str(connection._endpoint)
