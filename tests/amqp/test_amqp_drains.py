"""A drain that nobody answers: its link is given up after a limit, what it holds goes back, another link takes its place. IF-18."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, events
from jmsclient.destination import Topic
from jmsclient.errors import ConnectionLostError, RequestTimeoutError, TransactionRolledBackError
from jmsclient.jms.connection import Connection
from jmsclient.options import ConnectionOptions
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT
from jmsclient.transport.registry import parse_places
from jmsclient_amqp.primitives import NULL, Described, described, text

from .conftest import PATIENCE, Client, wait_for
from .peer import ATTACH, DETACH, DISPOSITION, FLOW, TRANSFER, Conversation, Frame, Link, Peer, credited

amqp = pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)

Connect = Callable[..., Client]
MESSAGE = described(0x77, text("hello"))
ACCEPTED = Described(0x24, [])
RELEASED = Described(0x26, [])
FAILED = Described(0x27, [True, False])


@pytest.fixture
def silent(peer: Peer) -> Peer:
    """As a broker that never answers a drain."""
    peer.on[FLOW] = credited
    return peer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def told(conversation: Conversation) -> dict[int, Any]:
    """What became of each delivery."""
    found: dict[int, Any] = {}
    for frame in conversation.heard(DISPOSITION):
        if frame[0]:
            found |= dict.fromkeys(range(frame[1], (frame[1] if frame[2] is None else frame[2]) + 1), frame[4])
    return found


class Draining:
    """A drain on a thread of its own, since it waits."""

    def __init__(self, receiver: Any) -> None:
        self.error: BaseException | None = None
        self._receiver = receiver
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._receiver.drain(None)
        except BaseException as error:
            self.error = error

    def ended(self) -> BaseException | None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.error


def looked(transport: Any) -> None:
    """The I/O thread has come round and looked at the clock, and the peer has heard all that it said."""
    present = transport.present if hasattr(transport, "present") else transport
    present.loop.ask(present.barrier, None, "a look at the clock")


def passed(clock: ManualClock, transport: Any, seconds: float) -> None:
    """So much time passes, and the I/O thread notices."""
    clock.advance(seconds)
    looked(transport)


def drains(conversation: Conversation) -> int:
    return sum(1 for frame in conversation.heard(FLOW) if frame[8])


def waited(clock: ManualClock, transport: Any, seconds: float, conversation: Conversation) -> None:
    """As `passed`, and nothing comes of it but that the drain is asked for again."""
    looked(transport)
    before = drains(conversation)
    passed(clock, transport, seconds)
    assert drains(conversation) > before, "the drain was not asked for again"


def half_taken(client: Client, peer: Peer, **spec: Any) -> tuple[Any, Any, Link]:
    """A receiver that has asked for five and got three, of which one was seen and one is settled."""
    receiver, sink = client.receive(**spec)
    receiver.request(5)
    link = peer.last.receiving_link()
    for _ in range(3):
        peer.last.transfer(link, MESSAGE)
    wait_for(sink, 3)
    receiver.settle(sink.arrivals[:1], ACCEPT)
    sink.arrivals[1].handed_over = True
    return receiver, sink, link


@pytest.mark.parametrize(("query", "limit"), [("", 60.0), ("&drain_timeout=5", 5.0)])
def test_if_18_a_drain_without_an_answer_fails_its_link(
    silent: Peer, connect: Connect, clock: ManualClock, query: str, limit: float
) -> None:
    client = connect(f"{silent.url}?idle_timeout=0{query}", clock=clock)
    receiver, sink, _ = half_taken(client, silent)
    draining = Draining(receiver)
    silent.last.wait_for(lambda: drains(silent.last), "no drain")
    waited(clock, client.transport, limit - 0.1, silent.last)
    assert silent.last.heard(DETACH) == []
    passed(clock, client.transport, 0.5)
    (detach,) = silent.last.wait_for(lambda: silent.last.heard(DETACH), "the link was not given up")
    error = draining.ended()
    assert isinstance(error, ConnectionLostError)
    assert "drain_timeout" in str(error)
    assert sink.closings == [error]
    assert detach[1] is True
    assert "no answer to a drain" in str(detach[2])
    assert told(silent.last) == {0: ACCEPTED, 1: FAILED, 2: RELEASED}, "seen: counted; unseen: not (IF-27)"
    assert [frame[6] for frame in silent.last.heard(FLOW) if frame[8]] == [2] * drains(silent.last), "no credit was added"
    with pytest.raises(ConnectionLostError):
        receiver.drain(None)
    receiver.request(1)
    receiver.settle(sink.arrivals, ACCEPT)
    receiver.close(client.deadline())
    assert client.receive()[0] is not receiver  # the session lives


def test_if_18_what_comes_after_the_limit_goes_back(silent: Peer, connect: Connect, clock: ManualClock) -> None:
    """The broker was late, not dead: it has sent before it hears of the detach."""
    client = connect(f"{silent.url}?idle_timeout=0", clock=clock)
    receiver, sink, link = half_taken(client, silent)

    def late(conversation: Conversation, frame: Frame) -> None:
        conversation.transfer(link, MESSAGE)
        conversation.send(frame.channel, DETACH, b"\x43", b"\x41")

    silent.on[DETACH] = late
    draining = Draining(receiver)
    silent.last.wait_for(lambda: drains(silent.last), "no drain")
    passed(clock, client.transport, 61.0)
    assert isinstance(draining.ended(), ConnectionLostError)
    silent.last.wait_for(lambda: silent.last.heard(DETACH), "the link was not given up")
    client.session.flush(client.deadline())
    assert len(sink.arrivals) == 3, "nothing is delivered after closed"
    assert sink.faults == []


def test_c12_a_message_that_is_arriving_is_an_answer(silent: Peer, connect: Connect, clock: ManualClock) -> None:
    """Else a large message on a slow link would be begun again and again, and never arrive."""
    client = connect(f"{silent.url}?idle_timeout=0", clock=clock)
    receiver, sink = client.receive()
    receiver.request(1)
    link = silent.last.receiving_link()
    large = described(0x77, text("x" * 40_000))
    step = len(large) // 4 + 1
    parts = [large[start : start + step] for start in range(0, len(large), step)]
    draining: Draining | None = None
    for number, part in enumerate(parts):
        silent.last.transfer(link, part, first=number == 0, more=number < len(parts) - 1)
        if draining is None:
            draining = Draining(receiver)
            silent.last.wait_for(lambda: drains(silent.last), "no drain")
        if number < len(parts) - 1:
            waited(clock, client.transport, 0.3, silent.last)  # it has seen this part
            waited(clock, client.transport, 50.0, silent.last)
    wait_for(sink, 1)
    assert draining is not None
    assert draining.ended() is None
    assert silent.last.heard(DETACH) == []


def test_if_18_a_link_that_an_open_transaction_needs_stays(silent: Peer, connect: Connect, clock: ManualClock) -> None:
    """To end it might undo, or do, what belongs to the transaction. After that it goes."""
    client = connect(f"{silent.url}?idle_timeout=0", clock=clock, transacted=True)
    receiver, _, _ = half_taken(client, silent)
    client.session.flush(client.deadline())
    draining = Draining(receiver)
    silent.last.wait_for(lambda: drains(silent.last), "no drain")
    for _ in range(3):
        waited(clock, client.transport, 61.0, silent.last)
    assert silent.last.heard(DETACH) == []
    client.session.commit(None)
    passed(clock, client.transport, 0.5)
    assert isinstance(draining.ended(), ConnectionLostError)
    silent.last.wait_for(lambda: silent.last.heard(DETACH), "the link was not given up")


def test_if_28_what_is_accepted_too_late_is_not_committed(peer: Peer, connect: Connect) -> None:
    """The broker has the message back: a commit that said yes would see it come again."""
    client = connect(peer.url, transacted=True)
    receiver, sink, link = half_taken(client, peer)
    client.session.commit(client.deadline())
    peer.last.detach(link, NULL)
    peer.last.wait_for(lambda: sink.closings, "the sink was not told")
    receiver.accept(sink.arrivals[1])
    with pytest.raises(TransactionRolledBackError, match="came back"):
        client.session.commit(client.deadline())
    client.session.commit(client.deadline())
    discharges = [one.payload[-1] for one in peer.last.heard(TRANSFER) if b"\x53\x32" in one.payload]
    assert discharges == [0x42, 0x41, 0x42], "rolled back at the broker too, and the next begins anew"


@pytest.mark.parametrize("how", ["receiver", "session"])
def test_if_27_a_close_without_a_deadline_ends_all_the_same(silent: Peer, connect: Connect, clock: ManualClock, how: str) -> None:
    client = connect(f"{silent.url}?idle_timeout=0", clock=clock)
    receiver, _, _ = half_taken(client, silent)
    one = receiver if how == "receiver" else client.session
    closing = threading.Thread(target=one.close, args=(None,), daemon=True)
    closing.start()
    silent.last.wait_for(lambda: drains(silent.last), "no drain")
    assert silent.last.heard(DETACH) == []
    passed(clock, client.transport, 61.0)
    closing.join(PATIENCE)
    assert not closing.is_alive()
    silent.last.wait_for(lambda: silent.last.heard(DETACH), "no detach")


def test_if_18_a_limit_of_0_is_none(silent: Peer, connect: Connect, clock: ManualClock) -> None:
    client = connect(f"{silent.url}?idle_timeout=0&drain_timeout=0", clock=clock)
    receiver, _, _ = half_taken(client, silent)
    draining = Draining(receiver)
    silent.last.wait_for(lambda: drains(silent.last), "no drain")
    waited(clock, client.transport, 100_000.0, silent.last)
    assert silent.last.heard(DETACH) == []
    silent.on.clear()  # it answers at last
    passed(clock, client.transport, 0.3)
    assert draining.ended() is None


def test_a_durable_subscription_is_not_ended_with_its_link(silent: Peer, connect: Connect, clock: ManualClock) -> None:
    client = connect(f"{silent.url}?idle_timeout=0", clock=clock, client_id="me")
    receiver, _, _ = half_taken(client, silent, destination=Topic("t"), kind="durable", name="sub")
    draining = Draining(receiver)
    silent.last.wait_for(lambda: drains(silent.last), "no drain")
    passed(clock, client.transport, 61.0)
    draining.ended()
    (detach,) = silent.last.wait_for(lambda: silent.last.heard(DETACH), "the link was not given up")
    assert not detach[1], "to close it would delete the subscription"
    silent.last.wait_for(lambda: not silent.last.links, "no answer")
    client.session.flush(client.deadline())
    client.receive(destination=Topic("t"), kind="durable", name="sub")


# -- as an application sees it ------------------------------------------------------------------------------------------


@contextmanager
def connected(peer: Peer, clock: ManualClock, query: str = "", *, request_timeout: float = 200.0) -> Iterator[Connection]:
    places = parse_places(f"{peer.url}?idle_timeout=0&initial_reconnect_delay=0.01{query}", clock=clock)
    with Connection(places, start=True, request_timeout=request_timeout, options=ConnectionOptions()) as connection:
        yield connection
        peer.on.clear()  # so that the end is an orderly one


class Receiving:
    """A receive on a thread of its own."""

    def __init__(self, consumer: Any, timeout: float | None) -> None:
        self.result: Any = "nothing yet"
        self._consumer = consumer
        self._thread = threading.Thread(target=self._run, args=(timeout,), daemon=True)
        self._thread.start()

    def _run(self, timeout: float | None) -> None:
        try:
            message = self._consumer.receive(timeout)
            self.result = None if message is None else message.text
        except Exception as error:
            self.result = error

    def ended(self) -> Any:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.result


def another_link(peer: Peer, clock: ManualClock, connection: Connection) -> None:
    """The present one is given up, and the pause before the next try is over."""
    conversation = peer.last
    conversation.wait_for(lambda: conversation.heard(DETACH), "the link was not given up")
    peer.on.clear()
    link = connection.transport  # time passes until it is open, be it at the second try
    while len(conversation.heard(ATTACH)) < 2 or any(one.lacking() for session in link._sessions for one in session.receivers):
        passed(clock, connection.transport, 0.01)
        time.sleep(0.002)  # else more time passes than an attach may take, before the peer has read it


def test_if_18_a_consumer_goes_on_over_another_link(silent: Peer, clock: ManualClock, heard: list[events.Event]) -> None:
    with connected(silent, clock) as connection:
        consumer = connection.create_session().create_consumer("q", prefetch=10)
        receiving = Receiving(consumer, 0.0)
        conversation = silent.last
        conversation.wait_for(lambda: drains(conversation), "no drain")
        passed(clock, connection.transport, 1.5)
        assert receiving.ended() is None, "it is not kept waiting for what may come late (C12); the drain goes on by itself"
        for _ in range(2):
            conversation.transfer(conversation.receiving_link(), MESSAGE)
        conversation.wait_for(lambda: consumer.read_ahead.buffered_messages == 2, "nothing came")
        waited(clock, connection.transport, 0.3, conversation)
        passed(clock, connection.transport, 61.0)
        another_link(silent, clock, connection)
        conversation.transfer(conversation.receiving_link(), MESSAGE)
        assert Receiving(consumer, PATIENCE).ended() == "hello"
        figures = consumer.read_ahead
        assert (figures.fetched, figures.delivered, figures.released, figures.buffered_messages) == (3, 1, 2, 0)
        assert connection.failure is None
    assert [event.name for event in heard if event.name in ("receiver_lost", "link_lost")] == ["receiver_lost"]
    assert told(conversation) == {0: RELEASED, 1: RELEASED, 2: ACCEPTED}


def test_if_18_without_a_window_too(silent: Peer, clock: ManualClock) -> None:
    with connected(silent, clock) as connection:
        consumer = connection.create_session().create_consumer("q", prefetch=0)
        receiving = Receiving(consumer, 0.0)
        conversation = silent.last
        conversation.wait_for(lambda: drains(conversation), "no drain")
        passed(clock, connection.transport, 61.0)
        assert receiving.ended() is None
        another_link(silent, clock, connection)
        receiving = Receiving(consumer, PATIENCE)
        conversation.transfer(conversation.receiving_link(), MESSAGE)
        assert receiving.ended() == "hello"


def test_if_18_a_receive_without_a_window_ends_before_its_link_where_that_is_asked(silent: Peer, clock: ManualClock) -> None:
    """`request_timeout` bounds the call, `drain_timeout` the link: whoever asks again goes on over another one by itself."""
    with connected(silent, clock, request_timeout=30.0) as connection:
        consumer = connection.create_session().create_consumer("q", prefetch=0)
        receiving = Receiving(consumer, 0.0)
        conversation = silent.last
        conversation.wait_for(lambda: drains(conversation), "no drain")
        waited(clock, connection.transport, 31.0, conversation)
        assert isinstance(receiving.ended(), RequestTimeoutError)
        assert conversation.heard(DETACH) == []
        receiving = Receiving(consumer, None)
        passed(clock, connection.transport, 29.5)
        another_link(silent, clock, connection)
        connection.keeper.call(lambda: None)  # what came for the receive that was left has gone back
        conversation.transfer(conversation.receiving_link(), MESSAGE)
        assert receiving.ended() == "hello"


def test_if_18_a_connection_that_does_not_reconnect_says_what_to_do(silent: Peer, clock: ManualClock) -> None:
    with connected(silent, clock, "&reconnect=no") as connection:
        session = connection.create_session()
        consumer = session.create_consumer("q", prefetch=0)
        receiving = Receiving(consumer, 0.0)
        silent.last.wait_for(lambda: drains(silent.last), "no drain")
        passed(clock, connection.transport, 61.0)
        error = receiving.ended()
        assert isinstance(error, ConnectionLostError)
        assert "create the consumer again" in str(error)
        assert isinstance(Receiving(consumer, 1.0).ended(), ConnectionLostError)
        silent.on.clear()
        consumer.close()
        again = session.create_consumer("q", prefetch=0)
        receiving = Receiving(again, PATIENCE)
        silent.last.transfer(silent.last.receiving_link(), MESSAGE)
        assert receiving.ended() == "hello"


def test_ra_7_a_browser_says_so(silent: Peer, clock: ManualClock) -> None:
    with connected(silent, clock) as connection:
        browser = connection.create_session().create_browser("q")
        failed: list[Exception] = []

        def browse() -> None:
            try:
                list(browser)
            except ConnectionLostError as error:
                failed.append(error)

        browsing = threading.Thread(target=browse, daemon=True)
        browsing.start()
        silent.last.wait_for(lambda: drains(silent.last), "no drain")
        passed(clock, connection.transport, 61.0)
        browsing.join(PATIENCE)
        assert len(failed) == 1


def test_if_18_what_was_handed_over_comes_again_counted(silent: Peer, clock: ManualClock, heard: list[events.Event]) -> None:
    """And its late acknowledge touches nothing else (O06)."""
    with connected(silent, clock) as connection:
        consumer = connection.create_session(AcknowledgeMode.CLIENT).create_consumer("q", prefetch=2)
        conversation = silent.last
        conversation.transfer(conversation.receiving_link(), MESSAGE)
        message = consumer.receive(PATIENCE)
        assert message is not None
        receiving = Receiving(consumer, 0.0)
        conversation.wait_for(lambda: drains(conversation), "no drain")
        passed(clock, connection.transport, 1.5)
        receiving.ended()
        passed(clock, connection.transport, 61.0)
        another_link(silent, clock, connection)
        conversation.transfer(conversation.receiving_link(), MESSAGE)
        conversation.wait_for(lambda: consumer.read_ahead.buffered_messages == 1, "nothing came")
        message.acknowledge()
    assert told(conversation) == {0: FAILED, 1: RELEASED}
    assert [event.name for event in heard if event.name == "stale_acknowledge"] == ["stale_acknowledge"]
