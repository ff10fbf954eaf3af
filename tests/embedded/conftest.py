"""What the tests of the embedded broker share: transports on brokers of their own, a sink that records, short words."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from jmsclient import Connection
from jmsclient import connect as connect_public
from jmsclient.clock import SYSTEM_CLOCK, Clock
from jmsclient.destination import Destination, parse_destination
from jmsclient.events import Event, subscribe
from jmsclient.message import MessageKind, PlainContent, Texts
from jmsclient.testing import ManualClock
from jmsclient.transport.administration import DestinationStatistics
from jmsclient.transport.contract import Arrival, ReceiverSpec
from jmsclient.transport.registry import parse_url
from jmsclient_embedded.administration import EmbeddedAdministration
from jmsclient_embedded.broker import Broker
from jmsclient_embedded.invariants import check
from jmsclient_embedded.receiver import EmbeddedReceiver
from jmsclient_embedded.registry import close_broker
from jmsclient_embedded.session import EmbeddedSession
from jmsclient_embedded.transport import EmbeddedBackend, EmbeddedTransport

PATIENCE = 30.0
_numbers = itertools.count(1)


def content(body: str = "", **settings: Any) -> PlainContent:
    """A message with an id of its own, and what every message has that a producer made."""
    settings.setdefault("message_id", f"ID:{body}-{next(_numbers)}")
    settings.setdefault("destination", "queue:///q")
    settings.setdefault("timestamp", 1.0)
    return PlainContent(kind=MessageKind.TEXT, body=body, **settings)


class RecordingSink:
    """Keeps what arrives; `wait(n)` waits until n arrived. `errors`: why the broker closed it, which only `may_close` allows."""

    def __init__(self, on_batch: Callable[[list[Arrival]], None] | None = None, *, may_close: bool = False) -> None:
        self.arrivals: list[Arrival] = []
        self.errors: list[Exception | None] = []
        self.recalls = 0
        self.may_close = may_close
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
        self.recalls += 1

    def closed(self, error: Exception | None) -> None:
        if not self.may_close:
            raise AssertionError(f"the embedded broker closes no receiver by itself: {error}")
        self.errors.append(error)

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
    """One connection with one session, transacted or not, in short words. Destinations are bare queue names or URIs."""

    def __init__(self, url: str, clock: Clock = SYSTEM_CLOCK, *, transacted: bool = False, client_id: str | None = None) -> None:
        self.listener = Listener()
        endpoint = parse_url(url, clock=clock, client_id=client_id)
        transport = EmbeddedBackend().connect(endpoint, self.listener, deadline=None)
        assert isinstance(transport, EmbeddedTransport)
        self.transport = transport
        self.session: EmbeddedSession = self.transport.open_session(transacted=transacted, deadline=None)

    @property
    def broker(self) -> Broker:
        return self.transport.broker

    @property
    def admin(self) -> EmbeddedAdministration:
        return self.transport.administration()

    @property
    def clock(self) -> Clock:
        return self.broker.clock

    def send(self, *messages: str | PlainContent, queue: str | Destination = "q", room: float | None = None) -> None:
        """Send; waits up to `room` seconds for room (None: for ever). Texts that are alike go together, as `send_many` has them."""
        ready: Sequence[PlainContent] = [one if isinstance(one, PlainContent) else content(one) for one in messages]
        if all(isinstance(one, str) for one in messages):
            bodies, ids = [str(one) for one in messages], [str(one.message_id) for one in ready]
            ready = Texts(bodies, ids, destination="queue:///q", persistent=True, priority=4, timestamp=1.0)
        sender = self.session.open_sender(parse_destination(queue), None)
        sender.send(ready, room_deadline=self.clock.deadline(room), confirm_timeout=PATIENCE)

    def commit(self) -> None:
        self.session.commit(SYSTEM_CLOCK.deadline(PATIENCE) if self.clock is SYSTEM_CLOCK else None)

    def rollback(self, delay: float = 0.0) -> None:
        self.session.rollback(redelivery_delay=delay, deadline=None)

    def stats(self, queue: str | Destination = "q") -> DestinationStatistics:
        """The numbers; the books are checked on the way."""
        check(self.broker)
        return self.admin.statistics(queue)

    def numbers(self, queue: str | Destination = "q") -> tuple[int, int]:
        """Current and pending messages."""
        found = self.stats(queue)
        return found.messages_current, found.messages_pending

    def receiver(
        self,
        queue: str | Destination = "q",
        *,
        demand: int = 0,
        on_batch: Callable[[list[Arrival]], None] | None = None,
        may_close: bool = False,
        **spec: Any,
    ) -> tuple[EmbeddedReceiver, RecordingSink]:
        sink = RecordingSink(on_batch, may_close=may_close)
        receiver = self.session.open_receiver(ReceiverSpec(destination=parse_destination(queue), **spec), sink, None)
        if demand:
            receiver.request(demand)
        return receiver, sink

    def take(
        self, count: int, queue: str | Destination = "q", *, hand_over: bool = False
    ) -> tuple[EmbeddedReceiver, list[Arrival]]:
        """Open a receiver and have `count` messages arrive there."""
        receiver, sink = self.receiver(queue, demand=count)
        arrivals = list(sink.wait(count))
        if hand_over:
            hand(receiver, arrivals)
        return receiver, arrivals

    def bodies(self, queue: str | Destination = "q") -> list[object]:
        """What a consumer could take now, in order."""
        browser, sink = self.receiver(queue, kind="browse", demand=100_000)
        browser.drain(None)
        browser.close(None)
        return sink.bodies

    def shown(self, queue: str | Destination = "q") -> list[tuple[str, int]]:
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

    def make(target: str = url, clock: Clock = SYSTEM_CLOCK, **settings: Any) -> Client:
        clients.append(Client(target, clock, **settings))
        return clients[-1]

    yield make
    for broker in {client.broker for client in clients}:
        if not broker.ended:
            check(broker)
            close_broker(broker)


@pytest.fixture
def client(connect: Connect) -> Client:
    return connect()


@pytest.fixture
def connection(url: str, client: Client) -> Iterator[Connection]:
    """A connection of the public API to the broker of `client`."""
    with connect_public(url) as connection:
        yield connection


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(connect: Connect, clock: ManualClock, url: str) -> Client:
    """A client of a broker whose time is moved by hand."""
    return connect(url, clock)


@pytest.fixture
def events() -> Iterator[list[Event]]:
    """Every event of the embedded broker while the test runs."""
    heard: list[Event] = []
    end = subscribe(lambda event: heard.append(event) if event.area == "embedded" else None)
    yield heard
    end()


def until(condition: Callable[[], object], timeout: float = PATIENCE) -> None:
    """Wait for a condition, at most `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"not true within {timeout} s"
        time.sleep(0.002)


class Background:
    """A call on a thread of its own; `result()` waits for its end and raises what it raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "it hangs"
        if self._error is not None:
            raise self._error
        return self._value


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
