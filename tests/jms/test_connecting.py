"""connect, start and stop, loss, close (api.md "Connections"; IF-27, IF-37, O09)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

import jmsclient
from jmsclient import (
    ConfigurationError,
    Connection,
    ConnectionLostError,
    ConnectionOptions,
    DefaultReadAhead,
    IllegalStateError,
    InvalidDestinationError,
    Message,
    RequestTimeoutError,
    UnsupportedFeatureError,
    connect,
)
from jmsclient.testing.scripted import ScriptedBackend

Until = Callable[..., None]


def test_without_a_url_it_is_embedded_with_one_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("JMSCLIENT_URL", raising=False)
    with connect() as own:
        assert "embedded" in repr(own)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "in-memory broker, messages live in this process only" in warnings[0].getMessage()


def test_the_environment_names_the_url(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with ScriptedBackend() as backend:
        monkeypatch.setenv("JMSCLIENT_URL", backend.url)
        with connect() as own:
            assert own.metadata.provider_name == "scripted"
    assert caplog.records == []


@pytest.mark.parametrize("url", ["nonsense:x", "stomp://localhost", "no url"])
def test_unknown_schemes_say_what_there_is(url: str) -> None:
    with pytest.raises(ConfigurationError):
        connect(url)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "1"])
def test_a_bad_request_timeout_is_refused(timeout: float) -> None:
    with pytest.raises(ConfigurationError, match="request_timeout"):
        connect("embedded:", request_timeout=timeout)


def test_o09_no_secret_in_repr_or_errors() -> None:
    with ScriptedBackend() as backend:
        backend.refuse_connect(ConnectionLostError("refused"))
        with pytest.raises(ConnectionLostError) as caught:
            connect(f"{backend.url}//user:secret@host", password="secret2")
        backend.refuse_connect(None)
        with connect(f"{backend.url}//user:secret@host") as own:
            assert "secret" not in repr(own) + str(caught.value)


def test_start_false_delivers_nothing_before_start(url: str) -> None:
    with connect(url, start=False) as own:
        session = own.create_session()
        session.create_producer("Q").send("m")
        consumer = session.create_consumer("Q")
        assert consumer.receive(0.05) is None
        assert consumer.read_ahead.fetched == 0
        own.start()
        assert consumer.receive(10) is not None


def test_if37_start_during_creation_leaves_none_stopped(url: str) -> None:
    """IF-37: 1000 starts on each backend; none of them leaves a session or consumer that delivers nothing."""
    with connect(url, start=False) as own:
        producer = own.create_session().create_producer("Q")
        for _ in range(1000):
            producer.send("m")
            starter = threading.Thread(target=own.start)
            starter.start()
            with own.create_session() as session:
                assert session.create_consumer("Q", prefetch=1).receive(10) is not None
            starter.join()
            own.stop()


def test_closing_twice_is_silent_and_then_nothing_works(url: str) -> None:
    own = connect(url)
    session = own.create_session()
    producer = session.create_producer("Q")
    own.close()
    own.close()
    for call in (own.create_session, own.start, lambda: session.create_consumer("Q"), lambda: producer.send("x")):
        with pytest.raises(IllegalStateError, match="closed"):
            call()


def test_close_leaves_no_thread(url: str) -> None:
    before = set(threading.enumerate())
    with connect(url) as own:
        own.create_session().create_consumer("Q", listener=lambda message: None)
    ours = ("-keeper", "-listener", "-closer")  # the embedded broker's own thread lives until exit
    left = {thread for thread in set(threading.enumerate()) - before if any(part in thread.name for part in ours)}
    deadline = time.monotonic() + 20
    while any(thread.is_alive() for thread in left) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [thread.name for thread in left if thread.is_alive()] == []


def test_a_lost_link_wakes_receives_and_tells_the_listener(wait_until: Until) -> None:
    """IF-27: a receive that waits while the connection fails for good raises."""
    with ScriptedBackend() as backend:
        own = connect(backend.url)
        heard: list[Exception] = []
        own.exception_listener = heard.append
        session = own.create_session()
        consumer = session.create_consumer("Q")
        threading.Timer(0.1, backend.lose_link).start()
        with pytest.raises(ConnectionLostError):
            consumer.receive(5)
        wait_until(lambda: heard)
        assert isinstance(heard[0], ConnectionLostError)
        with pytest.raises(ConnectionLostError):
            own.create_session()
        own.close()


def test_a_receiver_closed_by_the_peer_raises() -> None:
    with ScriptedBackend() as backend, connect(backend.url) as own:
        consumer = own.create_session().create_consumer("Q")
        threading.Timer(0.1, lambda: backend.close_receivers(ConnectionLostError("deleted"))).start()
        with pytest.raises(ConnectionLostError, match="deleted"):
            consumer.receive(5)


def test_a_refused_attach_raises_and_leaves_the_session_usable() -> None:
    with ScriptedBackend() as backend, connect(backend.url) as own:
        session = own.create_session()
        backend.refuse_attach(InvalidDestinationError("no such queue"))
        with pytest.raises(InvalidDestinationError):
            session.create_consumer("Q")
        backend.refuse_attach(None)
        assert session.create_consumer("Q").receive(0) is None


def test_ra1_the_clients_default_read_ahead_counts_where_the_provider_has_none() -> None:
    options = ConnectionOptions(default_read_ahead=DefaultReadAhead.YES)
    with ScriptedBackend() as backend, connect(backend.url, options=options) as own:
        session = own.create_session()
        assert session.create_consumer("Q").read_ahead.status.name == "YES"
        assert session.create_consumer("queue:///Q?readAheadAllowed=NO").read_ahead.status.name == "NO"


def test_what_a_provider_cannot_do_is_refused() -> None:
    with ScriptedBackend() as backend, connect(backend.url) as own:
        session = own.create_session()
        with pytest.raises(UnsupportedFeatureError, match="selector"):
            session.create_consumer("Q", "a = 1")
        with pytest.raises(UnsupportedFeatureError, match="topics"):
            session.create_consumer("topic:///T")
        with pytest.raises(UnsupportedFeatureError, match="administration"):
            _ = own.administration
        assert session.create_consumer("Q", "  ").selector is None


def test_the_exit_of_the_block_closes(connection: Connection) -> None:
    with connection.create_session() as session:
        consumer = session.create_consumer("Q")
    assert consumer.closed
    assert session.closed


def test_public_names_are_sorted_and_there() -> None:
    names = jmsclient.__all__
    assert names == sorted(names)
    assert all(getattr(jmsclient, name) is not None for name in names)


def test_listener_must_be_callable(connection: Connection) -> None:
    consumer = connection.create_session().create_consumer("Q")
    with pytest.raises(TypeError, match="listener"):
        consumer.listener = "not a call"  # type: ignore[assignment]


def test_a_listener_takes_turns_between_consumers(connection: Connection, wait_until: Until) -> None:
    seen: list[str | None] = []

    def listen(message: Message) -> None:
        seen.append(message.text)

    session = connection.create_session()
    producer = session.create_producer()
    for number in range(3):
        producer.send(f"a{number}", destination="A")
        producer.send(f"b{number}", destination="B")
    connection.stop()
    session.create_consumer("A", listener=listen)
    session.create_consumer("B", listener=listen)
    connection.start()
    wait_until(lambda: len(seen) == 6)
    assert [text for text in seen if text and text[0] == "a"] == ["a0", "a1", "a2"]
    assert [text for text in seen if text and text[0] == "b"] == ["b0", "b1", "b2"]


def test_ra19_a_provider_that_does_not_answer_does_not_keep_a_session_from_closing() -> None:
    """RA-19: bounded by the close's own timeout; a failed flush does not keep the close from being sent."""
    with ScriptedBackend() as backend, connect(backend.url, request_timeout=20.0) as own:
        session = own.create_session()
        calls: list[str] = []

        def unanswered(name: str) -> Callable[[float | None], None]:
            def call(deadline: float | None) -> None:
                calls.append(name)
                assert deadline is not None
                assert session.clock.left(deadline) < 1  # type: ignore[operator]
                raise RequestTimeoutError("no answer")

            return call

        close = session.transport_session.close
        session.transport_session.flush = unanswered("flush")  # type: ignore[method-assign]
        session.transport_session.close = unanswered("close")  # type: ignore[method-assign]
        session.close(timeout=0.5)
        assert calls == ["flush", "close"]
        assert session.closed
        close(None)
