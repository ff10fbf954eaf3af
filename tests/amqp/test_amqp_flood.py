"""RA-9: large messages cannot flood a client that asked for many small ones. A peer that sends all it may, and real brokers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest

import jmsclient
from jmsclient import Connection, MessageConsumer
from jmsclient.jms.browser import FIRST_PAGE, PAGE
from jmsclient_amqp.primitives import NULL, binary, described, text, uint

from .peer import BEGIN, FALSE, FLOW, TRANSFER, TRUE, Conversation, Frame, Link, Peer
from .peer import answer as plain_answer

connection_module = pytest.importorskip(
    "jmsclient_amqp.engine.connection", reason="python-qpid-proton is not installed", exc_type=ImportError
)
pytestmark = pytest.mark.timeout(300)  # the first test of a broker may have to fetch it
MIB = 1 << 20
FRAME = 16384
WINDOW_BYTES = 8 * MIB
ON_ITS_WAY = connection_module.INCOMING_FRAMES * FRAME
BOUND = 2 * WINDOW_BYTES + ON_ITS_WAY
PATIENCE = 20.0
TAKEN = "?readAheadAllowed=yes"


class Flood:
    """Sends all that link and session allow before it listens again, as a broker does that has much in hand already."""

    def __init__(self, peer: Peer, sizes: list[int]) -> None:
        self._sizes = sizes
        self._room = 0
        self._frames = 0
        self.sent = 0
        self.on_its_way: list[int] = []
        """Bytes that were sent at a stretch."""
        peer.on[BEGIN] = self._begin
        peer.on[FLOW] = self._flow

    def _begin(self, conversation: Conversation, frame: Frame) -> None:
        self._room = frame[2]
        plain_answer(conversation, frame)

    def _flow(self, conversation: Conversation, frame: Frame) -> None:
        self._room = frame[0] + frame[1] - self._frames if frame[0] is not None else frame[1]
        link = conversation.links.get((frame.channel, frame[4]))
        if link is None:
            return
        assert frame[6] < 1 << 20, "a credit below zero went out as a very large one"
        link.limit = frame[5] + frame[6]
        bytes_before = sum(self._sizes[: self.sent])
        while link.credit > 0 and self._room > 0 and self.sent < len(self._sizes):
            self._send(conversation, link, self._sizes[self.sent])
        self.on_its_way.append(sum(self._sizes[: self.sent]) - bytes_before)
        if not frame[8] or not link.credit or self.sent == len(self._sizes):  # else the drain is not over yet
            plain_answer(conversation, frame)

    def _send(self, conversation: Conversation, link: Link, size: int) -> None:
        """One message in as many frames as it needs; the last of a stretch may overdraw the window of the session by a message."""
        number, self.sent = self.sent, self.sent + 1
        link.sent += 1
        body = described(0x77, text(f"{number}:" + "x" * size))
        parts = [body[start : start + FRAME - 256] for start in range(0, len(body), FRAME - 256)]
        for index, part in enumerate(parts):
            self._frames += 1
            self._room -= 1
            more = TRUE if index + 1 < len(parts) else FALSE
            first = index == 0
            conversation.send(
                link.channel, TRANSFER, uint(link.handle), uint(number) if first else NULL,
                binary(number.to_bytes(4, "big")) if first else NULL, uint(0) if first else NULL, FALSE, more,
                payload=part,
            )  # fmt: skip


def receive_all(consumer: MessageConsumer, count: int) -> int:
    """In order; the most bytes that ever waited."""
    most = 0
    for number in range(count):
        most = max(most, consumer.read_ahead.buffered_bytes)
        message = consumer.receive(PATIENCE)
        assert message is not None, f"{number} did not come"
        assert str(message.text).split(":")[0] == str(number)
    return most


def settled_down(consumer: MessageConsumer) -> int:
    """The bytes that wait when nothing more comes for a while."""
    end, last, since = time.monotonic() + PATIENCE, -1, time.monotonic()
    while time.monotonic() < end:
        now = consumer.read_ahead.fetched
        if now != last:
            last, since = now, time.monotonic()
        elif now and time.monotonic() - since > 0.3:
            return consumer.read_ahead.buffered_bytes
        time.sleep(0.01)
    raise AssertionError("it never ended")


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "kept"])
@pytest.mark.parametrize(
    "sizes", [[MIB] * 200, [100] * 700 + [MIB] * 200, [100, 3 * MIB] * 60], ids=["large", "small first", "mixed"]
)
def test_ra_9_a_peer_that_sends_all_it_may(peer: Peer, taken: bool, sizes: list[int]) -> None:
    flood = Flood(peer, sizes)
    with jmsclient.connect(f"{peer.url}?reconnect=no") as connection:
        consumer = connection.create_session().create_consumer(
            "queue:///flood" + (TAKEN if taken else ""), prefetch=None if taken else 1000
        )
        assert settled_down(consumer) <= BOUND
        assert receive_all(consumer, len(sizes)) <= BOUND
        assert max(flood.on_its_way) <= ON_ITS_WAY + max(sizes)


SMALL_PAGES = [100] * (FIRST_PAGE + 2 * PAGE)


def most_held(browser: jmsclient.QueueBrowser, count: int) -> int:
    """It shows all of them, in order; the most bytes that were in its page."""
    loop: Any = iter(browser)
    page = loop._page
    most, number = 0, 0
    for message in loop:
        assert str(message.text).split(":")[0] == str(number)
        most = max(most, sum(arrival.size for arrival in tuple(page.arrivals)) + len(str(message.text)))
        number += 1
    assert number == count
    return most


@pytest.mark.parametrize(
    "sizes",
    [[MIB] * 200, SMALL_PAGES + [MIB] * 200, SMALL_PAGES + [3 * MIB] * 60 + [100] * 300],
    ids=["large", "small first", "small again"],
)
def test_ra_9_a_browser_is_not_flooded(peer: Peer, sizes: list[int]) -> None:
    """A page is asked for by the size of those before; where larger ones come, what is not on its way is taken back."""
    flood = Flood(peer, sizes)
    with jmsclient.connect(f"{peer.url}?reconnect=no") as connection:
        browser = connection.create_session().create_browser("flood")
        assert most_held(browser, len(sizes)) <= BOUND
        assert max(flood.on_its_way) <= ON_ITS_WAY + max(sizes)


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with jmsclient.connect(url, request_timeout=60.0) as one:
        yield one


@pytest.mark.real
@pytest.mark.parametrize("taken", [True, False], ids=["taken", "kept"])
def test_ra_9_large_messages_after_small_ones_on_a_broker(connection: Connection, taken: bool) -> None:
    """Demand is taken back on the wire and asked for anew: nothing is lost, nothing comes twice, nothing stands still."""
    queue = f"queue:///live.flood.{secrets.token_hex(4)}"
    session = connection.create_session()
    bodies: list[Any] = [f"{number}:" for number in range(20)]
    bodies += [f"{number}:" + "x" * MIB for number in range(20, 80)]
    bodies += [f"{number}:" for number in range(80, 400)]
    producer = session.create_producer(queue, persistent=False)
    producer.send_many(bodies[:20])
    consumer = session.create_consumer(queue + (TAKEN if taken else ""), prefetch=None if taken else 1000)
    for number in range(10):
        message = consumer.receive(PATIENCE)
        assert message is not None
        assert message.text == f"{number}:"
    for start in range(20, 400, 10):
        producer.send_many(bodies[start : start + 10])
    assert settled_down(consumer) <= BOUND
    rest = [consumer.receive(PATIENCE) for _ in range(390)]
    numbers = [int(str(one.text).split(":")[0]) for one in rest if one is not None]
    assert numbers == list(range(10, 400))
    assert consumer.receive(0.0) is None


@pytest.mark.real
def test_ra_9_a_browser_of_large_messages_after_small_ones_on_a_broker(connection: Connection) -> None:
    """Each message is shown once, in order, whatever was taken back on the way."""
    if not connection.capabilities.browse:
        return
    queue = f"queue:///live.flood.{secrets.token_hex(4)}"
    session = connection.create_session()
    producer = session.create_producer(queue, persistent=False)
    small = FIRST_PAGE + PAGE
    bodies = [f"{number}:" for number in range(small)]
    bodies += [f"{number}:" + "x" * MIB for number in range(small, small + 70)]
    bodies += [f"{number}:" for number in range(small + 70, 400)]
    for start in range(0, 400, 10):
        producer.send_many(bodies[start : start + 10])
    held = most_held(session.create_browser(queue), len(bodies))
    consumer = session.create_consumer(queue)
    for number in range(400):
        message = consumer.receive(PATIENCE)
        assert message is not None
        assert str(message.text).split(":")[0] == str(number)
    assert held <= BOUND
