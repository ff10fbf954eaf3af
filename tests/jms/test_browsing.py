"""QueueBrowser: it shows what a consumer could take, and changes nothing (RA-7; JM 8.6)."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from jmsclient import (
    AcknowledgeMode,
    Connection,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    Session,
    UnsupportedFeatureError,
    connect,
)
from jmsclient.jms.browser import FIRST_PAGE, PAGE
from jmsclient.testing.scripted import DEFAULT_CAPABILITIES, ScriptedBackend
from jmsclient.testing.scripted_links import ScriptedReceiver
from jmsclient.transport.linked_receiver import LinkedReceiver

Put = Callable[..., list[str]]
Rest = Callable[..., list[tuple[str | None, int]]]


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.create_session()


@pytest.mark.parametrize("number", [0, 1, FIRST_PAGE, FIRST_PAGE + 1, 3 * PAGE])
def test_ra7_it_shows_all_in_order_and_changes_no_count(session: Session, put: Put, rest: Rest, number: int) -> None:
    """RA-7: persistent messages are read ahead too, and nothing is lost at close."""
    texts = [str(one) for one in range(number)]
    put(*texts)
    with session.create_browser("Q") as browser:
        for _ in range(2):
            assert [message.text for message in browser] == texts
    assert rest(wait=0.05) == [(text, 1) for text in texts]


def test_a_loop_that_is_left_loses_nothing(session: Session, put: Put, rest: Rest) -> None:
    put("a", "b", "c")
    browser = session.create_browser("Q")
    for message in browser:
        assert message.text == "a"
        break
    browser.close()
    browser.close()
    assert rest() == [("a", 1), ("b", 1), ("c", 1)]


def test_each_loop_looks_anew(session: Session, put: Put) -> None:
    browser = session.create_browser("Q")
    assert list(browser) == []
    put("a")
    assert [message.text for message in browser] == ["a"]


def test_two_loops_at_once(session: Session, put: Put) -> None:
    put("a", "b")
    browser = session.create_browser("Q")
    assert [(one.text, two.text) for one, two in zip(browser, browser, strict=True)] == [("a", "a"), ("b", "b")]


def test_it_does_not_show_what_a_consumer_holds(session: Session, connection: Connection, put: Put) -> None:
    put("a", "b")
    holding = connection.create_session(AcknowledgeMode.CLIENT).create_consumer("Q", prefetch=1)
    message = holding.receive(10)
    assert message is not None
    holding.quiesce()
    holding.close()
    assert [message.text for message in session.create_browser("Q")] == ["b"]
    message.acknowledge()


def test_it_does_not_show_what_is_uncommitted(session: Session, connection: Connection) -> None:
    sending = connection.create_session(AcknowledgeMode.TRANSACTED)
    sending.create_producer("Q").send("a")
    browser = session.create_browser("Q")
    assert list(browser) == []
    sending.commit()
    assert [message.text for message in browser] == ["a"]


def test_browsed_messages_are_read_only_and_have_nothing_to_acknowledge(connection: Connection, put: Put, rest: Rest) -> None:
    put("a")
    session = connection.create_session(AcknowledgeMode.CLIENT)
    for message in session.create_browser("Q"):
        message.acknowledge()
    session.acknowledge()
    assert rest() == [("a", 1)]


def test_ra12_a_stopped_connection_shows_nothing(session: Session, connection: Connection, put: Put) -> None:
    put("a")
    browser = session.create_browser("Q")
    connection.stop()
    with pytest.raises(IllegalStateError, match="stopped"):
        next(iter(browser))
    connection.start()
    assert [message.text for message in browser] == ["a"]


@pytest.mark.parametrize("what", ["browser", "session", "connection"])
def test_closing_ends_its_loops(session: Session, connection: Connection, put: Put, what: str) -> None:
    put("a", "b")
    browser = session.create_browser("Q")
    seen = []
    for message in browser:
        seen.append(message.text)
        {"browser": browser, "session": session, "connection": connection}[what].close()
    assert seen == ["a"]
    with pytest.raises(IllegalStateError, match="closed"):
        iter(browser)


def test_a_forgotten_loop_gives_its_receiver_back(wait_until: Callable[..., None]) -> None:
    with ScriptedBackend() as backend, connect(backend.url) as own:
        backend.deliver("Q", ["a", "b"])
        browser = own.create_session().create_browser("Q")
        view = iter(browser)
        next(view)
        (transport,) = backend._transports
        assert len(transport.receivers) == 1
        del view
        gc.collect()
        wait_until(lambda: not transport.receivers)


def test_another_thread_inside_is_refused(session: Session, put: Put) -> None:
    put("a")
    view = iter(session.create_browser("Q"))
    session.inside = 1
    with pytest.raises(IllegalStateError, match="one thread"):
        next(view)
    session.inside = 0
    assert next(view).text == "a"


def test_what_cannot_be_browsed_is_refused_at_once(session: Session) -> None:
    with pytest.raises(InvalidDestinationError, match="queues"):
        session.create_browser("topic:///T")  # a topic has nothing to look at
    with pytest.raises(InvalidSelectorError):
        session.create_browser("Q", "a = ")
    with (
        ScriptedBackend(replace(DEFAULT_CAPABILITIES, browse=False)) as backend,
        connect(backend.url) as own,
        pytest.raises(UnsupportedFeatureError, match="browse"),
    ):
        own.create_session().create_browser("Q")


def test_a_provider_that_refuses_says_so_when_the_browser_is_made() -> None:
    with ScriptedBackend() as backend, connect(backend.url) as own:
        session = own.create_session()
        backend.refuse_attach(InvalidDestinationError("no such queue"))
        with pytest.raises(InvalidDestinationError, match="no such queue"):
            session.create_browser("Q")


# -- a link that is lost ------------------------------------------------------------------------------------------------


def lose_on(moment: str, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the link of the browser's first page lost before or after it asks, or while it drains."""
    request, drain = ScriptedReceiver.request, ScriptedReceiver.drain
    left = iter([True])

    def lose() -> None:
        if next(left, False):
            backend.lose_link()

    def requested(self: ScriptedReceiver, count: int) -> None:
        if self.spec.kind == "browse" and moment == "before it asks":
            lose()
        request(self, count)

    def drained(self: ScriptedReceiver, deadline: float | None) -> None:
        if self.spec.kind == "browse" and moment == "before it drains":
            lose()
        drain(self, deadline)
        if self.spec.kind == "browse" and moment == "after it drained":
            lose()

    monkeypatch.setattr(ScriptedReceiver, "request", requested)
    monkeypatch.setattr(ScriptedReceiver, "drain", drained)


@pytest.mark.parametrize("moment", ["before it asks", "before it drains", "after it drained"])
@pytest.mark.parametrize("parameters", ["initial_reconnect_delay=0.001", "reconnect=no"])
def test_ra7_a_loop_whose_link_is_lost_never_ends_as_if_the_queue_were_empty(
    moment: str, parameters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [str(number) for number in range(FIRST_PAGE + 5)]
    with ScriptedBackend() as backend, connect(f"failover:({backend.url})?{parameters}", request_timeout=5.0) as connection:
        connection.create_session().create_producer("Q").send_many(texts)
        browser = connection.create_session().create_browser("Q")
        lose_on(moment, backend, monkeypatch)
        seen: list[str | None] = []
        with pytest.raises(ConnectionLostError):
            seen.extend(message.text for message in browser)
        assert seen == texts[: len(seen)]
        if parameters != "reconnect=no":
            assert [message.text for message in browser] == texts, "a new loop looks over the new link"


def test_ra7_a_loop_that_the_provider_ends_says_so() -> None:
    with ScriptedBackend() as backend, connect(backend.url, request_timeout=5.0) as connection:
        session = connection.create_session()
        session.create_producer("Q").send_many(str(number) for number in range(FIRST_PAGE + 5))
        loop = iter(session.create_browser("Q"))
        assert next(loop).text == "0"
        backend.close_receivers(None)
        with pytest.raises(ConnectionLostError):
            list(loop)


def test_ra7_a_loop_that_asks_before_it_is_told_of_the_loss(
    monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    """In that moment there is nothing to ask, and a drain that has nothing to do is no answer."""
    told, tell = threading.Event(), LinkedReceiver.tell

    def tell_later(self: LinkedReceiver, error: Exception | None) -> None:
        told.wait(20)
        tell(self, error)

    monkeypatch.setattr(LinkedReceiver, "tell", tell_later)
    with ScriptedBackend() as backend, connect(f"failover:({backend.url})", request_timeout=5.0) as connection:
        session = connection.create_session()
        session.create_producer("Q").send_many(str(number) for number in range(FIRST_PAGE + 5))
        loop = iter(session.create_browser("Q"))
        assert [next(loop).text for _ in range(FIRST_PAGE)] == [str(number) for number in range(FIRST_PAGE)]
        backend.lose_link()
        wait_until(lambda: connection.transport.present is None)  # type: ignore[attr-defined]
        try:
            with pytest.raises(ConnectionLostError):
                list(loop)
        finally:
            told.set()
