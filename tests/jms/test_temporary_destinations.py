"""Temporary destinations, reply-to, request and reply (JM 6.2.2 to 6.2.4)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from jmsclient import (
    Connection,
    IllegalStateError,
    InvalidDestinationError,
    Message,
    Queue,
    Session,
    TemporaryQueue,
    UnsupportedFeatureError,
    connect,
)
from jmsclient.testing.scripted import ScriptedBackend

Put = Callable[..., list[str]]


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.create_session()


def test_request_and_reply(session: Session, other: Connection) -> None:
    """The reply goes to the temporary queue that the request names, and carries the id of the request."""
    answering = other.create_session()

    def answer(message: Message) -> None:
        assert message.reply_to is not None
        producer.send(str(message.text).upper(), destination=message.reply_to, correlation_id=message.message_id)

    producer = other.create_session().create_producer()
    answering.create_consumer("questions", listener=answer)

    replies = session.create_temporary_queue()
    asked = session.create_producer("questions").send("how much?", reply_to=replies)
    reply = session.create_consumer(replies).receive(5)
    assert reply is not None
    assert (reply.text, reply.correlation_id) == ("HOW MUCH?", asked)


def test_each_is_another(session: Session) -> None:
    one, two = session.create_temporary_queue(), session.create_temporary_queue()
    assert isinstance(one, TemporaryQueue)
    assert isinstance(one, Queue)
    assert one.address != two.address
    assert one != two


def test_only_the_connection_that_made_it_consumes(session: Session, other: Connection) -> None:
    """By the object and by its name; everybody may send."""
    replies = session.create_temporary_queue()
    theirs = other.create_session()
    for destination in (replies, str(replies)):
        with pytest.raises(InvalidDestinationError):
            theirs.create_consumer(destination)
    theirs.create_producer(replies).send("a")
    sibling = session.connection.create_session()
    received = sibling.create_consumer(replies).receive(10)
    assert received is not None


def test_delete(session: Session) -> None:
    replies = session.create_temporary_queue()
    consumer = session.create_consumer(replies)
    with pytest.raises(IllegalStateError):
        replies.delete()
    consumer.close()
    replies.delete()
    replies.delete()


def test_it_goes_with_its_connection(url: str, other: Connection) -> None:
    with connect(url) as own:
        session = own.create_session()
        replies = session.create_temporary_queue()
        session.close()
        other.create_session().create_producer(replies).send("a")
        with own.create_session() as second:
            assert second.create_consumer(replies).receive(10) is not None  # it outlives its session
        other.create_session().create_producer(replies).send("b")
    replies.delete()  # nothing to do
    with pytest.raises(InvalidDestinationError, match="temporary"):
        other.create_session().create_consumer(replies)


def test_a_second_thread_inside_is_refused(session: Session, wait_until: Callable[..., None]) -> None:
    consumer = session.create_consumer("Q")
    waiting = threading.Thread(target=consumer.receive)
    waiting.start()
    wait_until(lambda: session.inside)
    with pytest.raises(IllegalStateError, match="one thread"):
        session.create_temporary_queue()
    consumer.close()
    waiting.join(20)


def test_a_temporary_topic_needs_topics() -> None:
    with ScriptedBackend() as backend, connect(backend.url) as own, pytest.raises(UnsupportedFeatureError, match="topics"):
        own.create_session().create_temporary_topic()
