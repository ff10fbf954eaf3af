"""TRANSACTED sessions: what is refused, and commits that fail (IF-25, IF-28, IF-40; S04, S08)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from jmsclient import (
    AcknowledgeMode,
    ConfigurationError,
    Connection,
    ConnectionLostError,
    IllegalStateError,
    Message,
    MessageConsumer,
    RequestTimeoutError,
    Session,
    TransactionInDoubtError,
    TransactionRolledBackError,
    UnsupportedFeatureError,
    connect,
)
from jmsclient.testing.scripted import DEFAULT_CAPABILITIES, ScriptedBackend

Put = Callable[..., list[str]]
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


# -- wrong states --------------------------------------------------------------------------------------------------------


def test_s04_recover_is_refused_and_the_session_stays_usable(session: Session, put: Put) -> None:
    put("a")
    with pytest.raises(IllegalStateError, match="rollback"):
        session.recover()
    assert got(session.create_consumer("Q")).text == "a"
    session.commit()
    session.close()
    session.close()
    for call in (session.commit, session.rollback):
        with pytest.raises(IllegalStateError, match="closed"):
            call()


def test_a_second_thread_inside_is_refused(session: Session, wait_until: Callable[..., None]) -> None:
    consumer = session.create_consumer("Q")
    waiting = threading.Thread(target=consumer.receive)
    waiting.start()
    wait_until(lambda: session.inside)
    with pytest.raises(IllegalStateError, match="one thread"):
        session.commit()
    consumer.close()
    waiting.join(20)


def test_without_the_capability_it_is_refused() -> None:
    with (
        ScriptedBackend(replace(DEFAULT_CAPABILITIES, transactions=False)) as backend,
        connect(backend.url) as own,
        pytest.raises(UnsupportedFeatureError, match="TRANSACTED"),
    ):
        own.create_session(TRANSACTED)


@pytest.mark.parametrize("mode", [TRANSACTED, AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL])
def test_if25_at_most_once_is_for_sessions_that_cannot_give_back(connection: Connection, mode: AcknowledgeMode) -> None:
    with connection.create_session(mode) as session, pytest.raises(ConfigurationError, match="at_most_once"):
        session.create_consumer("Q", at_most_once=True)


# -- commits that fail ---------------------------------------------------------------------------------------------------


@pytest.fixture
def backend() -> Iterator[ScriptedBackend]:
    with ScriptedBackend() as backend:
        yield backend


@pytest.mark.parametrize(
    ("given", "raised", "applied"),
    [
        (TransactionInDoubtError("no answer"), TransactionInDoubtError, True),
        (TransactionInDoubtError("no answer"), TransactionInDoubtError, False),
        (RequestTimeoutError("no answer"), TransactionInDoubtError, True),
        (TransactionRolledBackError("the provider refused"), TransactionRolledBackError, False),
        (ConnectionLostError("gone"), TransactionRolledBackError, False),
    ],
)
def test_s08_a_failed_commit_says_which_kind_and_the_next_starts_empty(
    backend: ScriptedBackend, given: Exception, raised: type[Exception], applied: bool
) -> None:
    """S08, IF-28: in doubt is no subclass of rolled back; nothing is sent again."""
    backend.deliver("Q", ["a", "b"])
    with connect(backend.url) as own, own.create_session(TRANSACTED) as session:
        consumer = session.create_consumer("Q")
        got(consumer)
        session.create_producer("R").send("r")
        backend.refuse_commits(given, applied=applied)
        with pytest.raises(raised):
            session.commit()
        backend.refuse_commits(None)
        session.commit()
        assert len(backend.waiting("R")) == applied
        if raised is TransactionRolledBackError:
            assert texts(consumer, 2) == [("a", 2), ("b", 1)]
    assert not issubclass(TransactionInDoubtError, TransactionRolledBackError)


def test_s08_on_a_lost_connection_commit_says_rolled_back_and_rollback_succeeds(
    backend: ScriptedBackend, wait_until: Callable[..., None]
) -> None:
    backend.deliver("Q", ["a", "b"])
    with connect(backend.url) as own:
        session = own.create_session(TRANSACTED)
        got(session.create_consumer("Q"))
        backend.lose_link()
        wait_until(lambda: own.failure is not None)
        with pytest.raises(TransactionRolledBackError) as raised:
            session.commit()
        assert isinstance(raised.value.__cause__, ConnectionLostError)
        session.rollback()
    assert [content.body() for content in backend.waiting("Q")] == ["a", "b"]


def test_a_struck_receive_dooms_its_transaction(backend: ScriptedBackend) -> None:
    """IF-40: its message may be in the transaction unseen, so a commit would lose it."""
    backend.deliver("Q", ["a", "b"])
    with connect(backend.url) as own, own.create_session(TRANSACTED) as session:
        consumer = session.create_consumer("Q")
        accept = consumer.receiver.accept

        def struck(arrival: object) -> None:
            accept(arrival)  # type: ignore[arg-type]
            raise KeyboardInterrupt

        consumer.receiver.accept = struck  # type: ignore[method-assign, assignment]
        with pytest.raises(KeyboardInterrupt):
            consumer.receive(10)
        del consumer.receiver.accept
        with pytest.raises(TransactionRolledBackError, match="struck"):
            session.commit()
        assert [text for text, _ in texts(consumer, 2)] == ["a", "b"]
        session.commit()
        assert backend.waiting("Q") == []
