"""What the tests of the embedded broker share: transports on brokers of their own, a sink that records, short words."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from jmsclient.clock import SYSTEM_CLOCK, Clock
from jmsclient.destination import Queue
from jmsclient.message import MessageKind, PlainContent
from jmsclient.transport.contract import Arrival, ReceiverSpec
from jmsclient.transport.registry import parse_url
from jmsclient_embedded.administration import EmbeddedAdministration
from jmsclient_embedded.broker import Broker
from jmsclient_embedded.invariants import check
from jmsclient_embedded.receiver import EmbeddedReceiver
from jmsclient_embedded.registry import close_broker
from jmsclient_embedded.session import EmbeddedSession
from jmsclient_embedded.transport import EmbeddedBackend, EmbeddedTransport

PATIENCE = 10.0
_numbers = itertools.count(1)


def content(body: str = "", **settings: Any) -> PlainContent:
    """A message with an id of its own."""
    settings.setdefault("message_id", f"ID:{body}-{next(_numbers)}")
    return PlainContent(kind=MessageKind.TEXT, body=body, **settings)


class RecordingSink:
    """Keeps what arrives; `wait(n)` waits until n arrived."""

    def __init__(self, on_batch: Callable[[list[Arrival]], None] | None = None) -> None:
        self.arrivals: list[Arrival] = []
        self.batches: list[int] = []
        self._on_batch = on_batch
        self._changed = threading.Condition()

    def delivered(self, batch: list[Arrival]) -> None:
        with self._changed:
            self.arrivals += batch
            self.batches.append(len(batch))
            self._changed.notify_all()
        if self._on_batch is not None:
            self._on_batch(batch)

    def recall(self) -> None:
        """What this sink holds, it settles by itself."""

    def closed(self, error: Exception | None) -> None:
        raise AssertionError(f"the embedded broker closes no receiver by itself: {error}")

    def wait(self, count: int) -> list[Arrival]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.arrivals) >= count, PATIENCE), f"{self.bodies} is not {count} yet"
        return self.arrivals

    @property
    def bodies(self) -> list[object]:
        return [arrival.content.body() for arrival in self.arrivals]


class Listener:
    """Waits for the end of a link."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.heard = threading.Event()

    def lost(self, error: Exception) -> None:
        self.errors.append(error)
        self.heard.set()


class Client:
    """One connection with one session, in short words."""

    def __init__(self, url: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.listener = Listener()
        self.transport: EmbeddedTransport = EmbeddedBackend().connect(parse_url(url, clock=clock), self.listener, deadline=None)
        self.session: EmbeddedSession = self.transport.open_session(transacted=False, deadline=None)

    @property
    def broker(self) -> Broker:
        return self.transport.broker

    @property
    def admin(self) -> EmbeddedAdministration:
        return self.transport.administration()

    def send(self, *messages: str | PlainContent, queue: str = "q") -> None:
        ready = [one if isinstance(one, PlainContent) else content(one) for one in messages]
        self.session.open_sender(Queue(queue), None).send(ready, room_deadline=None, confirm_timeout=PATIENCE)

    def receiver(
        self, queue: str = "q", *, demand: int = 0, on_batch: Callable[[list[Arrival]], None] | None = None, **spec: Any
    ) -> tuple[EmbeddedReceiver, RecordingSink]:
        sink = RecordingSink(on_batch)
        receiver = self.session.open_receiver(ReceiverSpec(destination=Queue(queue), **spec), sink, None)
        if demand:
            receiver.request(demand)
        return receiver, sink

    def take(self, count: int, queue: str = "q", *, hand_over: bool = False) -> tuple[EmbeddedReceiver, list[Arrival]]:
        """Open a receiver and have `count` messages arrive there."""
        receiver, sink = self.receiver(queue, demand=count)
        arrivals = list(sink.wait(count))
        if hand_over:
            hand(receiver, arrivals)
        return receiver, arrivals

    def shown(self, queue: str = "q") -> list[tuple[str, int]]:
        """(state, hand-overs so far) of each message; the books are checked on the way."""
        check(self.broker)
        return [(one.state, one.delivery_count) for one in self.admin.messages(queue)]


def hand(receiver: EmbeddedReceiver, arrivals: Sequence[Arrival]) -> None:
    """What the core does before application code sees messages."""
    receiver.handing_over([arrival for arrival in arrivals if arrival.persistent])
    for arrival in arrivals:
        arrival.handed_over = True


Connect = Callable[..., Client]


@pytest.fixture
def url() -> str:
    """A broker of this test's own, in memory."""
    return f"embedded:test-{secrets.token_hex(6)}"


@pytest.fixture
def connect(url: str) -> Iterator[Connect]:
    """Makes clients; closes their brokers, whose books must balance then."""
    clients: list[Client] = []

    def make(target: str = url, clock: Clock = SYSTEM_CLOCK) -> Client:
        clients.append(Client(target, clock))
        return clients[-1]

    yield make
    for broker in {client.broker for client in clients}:
        if not broker.ended:
            check(broker)
            close_broker(broker)


@pytest.fixture
def client(connect: Connect) -> Client:
    return connect()


def in_thread(call: Callable[[], object]) -> None:
    """Run it on another thread and re-raise what it raised."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it hangs"
    if failed:
        raise failed[0]
