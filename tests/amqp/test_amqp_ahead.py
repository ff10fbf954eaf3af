"""`send_many` with two parts under way: what goes over the wire, how much at once, and what an error says (IF-30, O07, S08)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import jmsclient
from jmsclient.destination import Queue
from jmsclient.errors import SendError
from jmsclient.jms import producer as producing
from jmsclient.jms.producer import MessageProducer
from jmsclient.message import MessageKind, PlainContent
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import Receipt
from jmsclient_amqp.primitives import described, listed, symbol, uint

from .conftest import PATIENCE, QUEUE, Client
from .peer import ACCEPTED, DISPOSITION, TRANSFER, TRUE, Conversation, Frame, Peer, grant

sending = pytest.importorskip("jmsclient_amqp.sending", reason="python-qpid-proton is not installed", exc_type=ImportError)

PART = 64
"""Messages of one part, in these tests: enough to fill none of the peer's windows."""
REJECTED = described(0x25, listed([described(0x1D, listed([symbol("amqp:precondition-failed")]))]))


class Deciding:
    """A peer that accepts when it is told to, and rejects some. `heard` and `accepted`: bodies, in order."""

    def __init__(self, peer: Peer, *, rejects: Iterable[bytes] = ()) -> None:
        peer.credit = 1500
        peer.on[TRANSFER] = self._transfer
        self.heard: list[bytes] = []
        self.accepted: list[bytes] = []
        self.most = 0
        """That waited for a decision at once."""
        self.at_least = 0
        """It decides when so many wait."""
        self._rejects = frozenset(rejects)
        self._waiting: list[tuple[int, bytes]] = []
        self._lock = threading.Lock()

    def _transfer(self, conversation: Conversation, frame: Frame) -> None:
        with self._lock:
            body = frame.payload[frame.payload.rindex(b"body-") :]
            self.heard.append(body)
            self._waiting.append((frame[1], body))
            self.most = max(self.most, len(self._waiting))
            if len(self._waiting) >= self.at_least:
                self._decide(conversation, frame.channel)

    def decide(self, conversation: Conversation) -> None:
        """From now on it decides at once, and what waits."""
        with self._lock:
            self.at_least = 0
            self._decide(conversation, conversation.heard(TRANSFER)[0].channel)

    def forget(self) -> None:
        """What waits was of a link that is lost; from now on it decides at once."""
        with self._lock:
            self.at_least = 0
            self._waiting.clear()

    def _decide(self, conversation: Conversation, channel: int) -> None:
        for number, body in self._waiting:
            rejected = body in self._rejects
            conversation.send(channel, DISPOSITION, TRUE, uint(number), uint(number), TRUE, REJECTED if rejected else ACCEPTED)
            if not rejected:
                self.accepted.append(body)
        self._waiting.clear()


class Sending(threading.Thread):
    """A `send_many` on a thread of its own."""

    def __init__(self, producer: MessageProducer, bodies: Iterable[bytes]) -> None:
        super().__init__(name="sending", daemon=True)
        self.ids: list[str] = []
        self.error: Exception | None = None
        self._producer = producer
        self._bodies = bodies
        self.start()

    def run(self) -> None:
        try:
            self.ids = self._producer.send_many(self._bodies)
        except Exception as error:
            self.error = error

    def over(self) -> Sending:
        self.join(PATIENCE)
        assert not self.is_alive(), "it does not return"
        return self


def bodies(count: int) -> list[bytes]:
    return [b"body-%d" % number for number in range(count)]


def until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.002)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "SEND_BATCH", PART)


@pytest.fixture
def connection(peer: Peer) -> Iterator[jmsclient.Connection]:
    with jmsclient.connect(peer.url) as one:
        yield one


def attached(connection: jmsclient.Connection) -> MessageProducer:
    producer = connection.create_session().create_producer("q")
    producer.send(b"body-first")
    return producer


def test_if_30_the_next_part_is_on_its_way_while_one_waits(peer: Peer, connection: jmsclient.Connection) -> None:
    deciding = Deciding(peer)
    producer = attached(connection)
    deciding.at_least = 10_000
    sent = bodies(4 * PART)
    running = Sending(producer, iter(sent))
    until(lambda: len(deciding.heard) == 1 + 2 * PART, "the second part does not come before the first is confirmed")
    producer._session.transport_session.flush(None)
    assert len(deciding.heard) == 1 + 2 * PART, "two parts at most, whatever the iterable has"
    assert running.is_alive(), "it waits for all confirmations"
    deciding.decide(peer.last)
    assert running.over().error is None
    assert deciding.heard[1:] == sent
    numbers = [int(one.rpartition("-")[2]) for one in running.ids]
    assert numbers == list(range(numbers[0], numbers[0] + len(sent)))


def test_the_bytes_under_way_are_bounded(peer: Peer, connection: jmsclient.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two parts would be too much, one goes after the other."""
    monkeypatch.setattr(sending, "AHEAD", PART * 12)
    deciding = Deciding(peer)
    producer = attached(connection)
    deciding.at_least = PART
    assert len(producer.send_many(bodies(4 * PART))) == 4 * PART
    assert deciding.most == PART


@pytest.mark.parametrize("refused", [10, PART + 24, 3 * PART + 5], ids=["first part", "second part", "last part"])
def test_if_30_an_error_says_what_became_of_each_that_was_under_way(
    peer: Peer, connection: jmsclient.Connection, refused: int
) -> None:
    sent = bodies(4 * PART)
    deciding = Deciding(peer, rejects=[sent[refused]])
    producer = attached(connection)
    error = Sending(producer, sent).over().error
    assert isinstance(error, SendError)
    first = refused // PART * PART  # of the part that failed; those before are sent
    names = [*error.confirmed, *error.in_doubt, *error.unsent]
    start = min(int(one.rpartition("-")[2]) for one in names)
    known = {one: sent[first + int(one.rpartition("-")[2]) - start] for one in names}
    assert len(known) == len(names) == min(2 * PART, len(sent) - first), "the part that failed, and the one behind it"
    assert sorted(map(sent.index, known.values())) == list(range(first, first + len(names)))
    assert [known[one] for one in error.confirmed] == deciding.accepted[1 + first :]
    assert error.in_doubt == ()
    assert sent[refused] in {known[one] for one in error.unsent}
    producer._session.transport_session.flush(None)
    assert len(deciding.heard) == 1 + first + len(error.confirmed) + 1, "what is unsent is never sent later"
    producer.send(b"body-after")


def test_s08_parts_that_the_connection_does_not_survive_are_in_doubt(peer: Peer, connection: jmsclient.Connection) -> None:
    deciding = Deciding(peer)
    producer = attached(connection)
    deciding.at_least = 10_000
    running = Sending(producer, bodies(4 * PART))
    until(lambda: len(deciding.heard) == 1 + 2 * PART, "two parts do not come")
    peer.last.socket.shutdown(2)
    error = running.over().error
    assert isinstance(error, SendError)
    assert (len(error.confirmed), len(error.in_doubt), len(error.unsent)) == (0, 2 * PART, 0)


def test_s08_what_the_link_lost_before_it_was_written_goes_out_in_order_on_the_next(
    peer: Peer, connection: jmsclient.Connection
) -> None:
    deciding = Deciding(peer)
    peer.credit = 1
    producer = attached(connection)
    sent = bodies(4 * PART)
    asked = threading.Event()

    def some() -> Iterator[bytes]:
        yield from sent[: 2 * PART - 1]
        asked.set()  # the first part has begun, the second is about to
        yield from sent[2 * PART - 1 :]

    running = Sending(producer, some())
    assert asked.wait(PATIENCE)
    peer.credit = 1500
    peer.last.socket.shutdown(2)
    assert running.over().error is None
    assert deciding.heard[1:] == sent
    assert len(running.ids) == len(set(running.ids)) == len(sent)


def test_s08_what_is_behind_a_part_in_doubt_is_not_sent_on_the_next_link(peer: Peer, connection: jmsclient.Connection) -> None:
    deciding = Deciding(peer)
    peer.credit = 1 + 40
    producer = attached(connection)
    deciding.at_least = 10_000
    running = Sending(producer, bodies(4 * PART))
    until(lambda: len(deciding.heard) == 1 + 40, "what there is credit for does not come")
    peer.last.socket.shutdown(2)
    error = running.over().error
    assert isinstance(error, SendError)
    assert (len(error.confirmed), len(error.in_doubt)) == (0, 40)
    assert len(error.unsent) in (PART - 40, 2 * PART - 40), "as far as it had begun"
    deciding.forget()
    producer.send(b"body-after")
    assert deciding.heard[41:] == [b"body-after"]


def test_o07_no_credit_in_time_stops_the_part_behind_too(peer: Peer, connection: jmsclient.Connection) -> None:
    deciding = Deciding(peer)
    peer.credit = 1 + PART + 24
    producer = attached(connection)
    producer.send_timeout = 1.0
    error = Sending(producer, bodies(4 * PART)).over().error
    assert isinstance(error, SendError)
    assert (len(error.confirmed), len(error.in_doubt), len(error.unsent)) == (24, 0, 2 * PART - 24)
    (link,) = peer.last.links.values()
    link.sent = len(deciding.heard)
    grant(peer.last, link, 1000)
    producer._session.transport_session.flush(None)
    assert len(deciding.heard) == 1 + PART + 24, "what timed out is never sent later"


def test_a_part_has_its_time_from_when_it_is_waited_for(peer: Peer, connect: Callable[..., Client]) -> None:
    """Those before it had theirs, as if they were sent one after the other."""
    deciding = Deciding(peer)
    clock = ManualClock()
    client = connect(f"{peer.url}?idle_timeout=0", clock=clock)
    sender = client.session.open_sender(QUEUE, None)
    deciding.at_least = 10_000
    begun = sender.begin([PlainContent(kind=MessageKind.BYTES, body=b"body-1", message_id="ID:1")])
    until(lambda: deciding.heard == [b"body-1"], "it does not come")
    clock.advance(100.0)
    running = threading.Thread(target=lambda: found.extend(begun.finish(room_deadline=None, confirm_timeout=10.0)), daemon=True)
    found: list[Receipt] = []
    running.start()
    running.join(0.2)
    assert running.is_alive(), "it was written long ago, and waited for since now only"
    deciding.decide(peer.last)
    running.join(PATIENCE)
    assert [one.message_id for one in found] == ["ID:1"]


def test_an_iterable_that_raises_leaves_nothing_unconfirmed(peer: Peer, connection: jmsclient.Connection) -> None:
    def some() -> Iterator[bytes]:
        yield from bodies(2 * PART + 8)
        raise LookupError("there are no more")

    deciding = Deciding(peer)
    producer = attached(connection)
    deciding.at_least = 10_000
    running = Sending(producer, some())
    until(lambda: len(deciding.heard) == 1 + 2 * PART, "two parts do not come")
    assert running.is_alive(), "it waits for their confirmations"
    deciding.decide(peer.last)
    assert isinstance(running.over().error, LookupError)
    assert len(deciding.accepted) == 1 + 2 * PART


def test_a_transaction_sends_one_part_after_the_other(peer: Peer, connection: jmsclient.Connection) -> None:
    """What is confirmed may be committed by whoever makes the bodies, so nothing is ahead of it."""
    session = connection.create_session(jmsclient.AcknowledgeMode.TRANSACTED)
    sender = session.transport_session.open_sender(Queue("q"), None)
    assert sender.most_ahead == 0
