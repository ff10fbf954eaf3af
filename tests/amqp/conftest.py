"""A scripted peer, transports to it that are closed at the end, and sinks that remember."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jmsclient
from jmsclient import events
from jmsclient.clock import SYSTEM_CLOCK, Clock
from jmsclient.destination import Queue
from jmsclient.message import MessageKind, PlainContent
from jmsclient.testing.conformance import RecordingListener, RecordingSink
from jmsclient.transport.contract import Arrival, Receiver, ReceiverSpec, Transport, TransportSession
from jmsclient.transport.registry import find_backend, parse_url

from ..brokers.launching import compiled  # noqa: TID252  there is no package to name
from ..brokers.proxy import Proxy  # noqa: TID252
from .peer import Peer

QUEUE = Queue("q")
PATIENCE = 20.0


@pytest.fixture
def heard() -> Iterator[list[events.Event]]:
    """Every event of the test."""
    found: list[events.Event] = []
    end = events.subscribe(found.append)
    yield found
    end()


@pytest.fixture(params=["artemis", "broker_j", "classic", "rabbitmq"], scope="module")
def url(request: pytest.FixtureRequest) -> str:
    """Of each real broker."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def connection(url: str) -> Iterator[jmsclient.Connection]:
    with jmsclient.connect(url) as one:
        yield one


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as one:
        one.product = "apache-activemq-artemis"  # the peer that can do most
        one.offers = ("DELAYED_DELIVERY", "SHARED-SUBS")
        yield one


class Client:
    """One transport, one session, and short words for what tests do with them."""

    def __init__(self, url: str, *, transacted: bool = False, client_id: str | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        endpoint = parse_url(url, client_id=client_id, clock=clock)
        self.clock = endpoint.clock
        self.listener = RecordingListener()
        self.transport: Transport = find_backend(endpoint.scheme).connect(endpoint, self.listener, deadline=self.deadline())
        self.session: TransportSession = self.transport.open_session(transacted=transacted, deadline=self.deadline())

    def deadline(self, seconds: float = PATIENCE) -> float | None:
        return self.clock.deadline(seconds)

    def receive(self, **spec: Any) -> tuple[Receiver, RecordingSink]:
        sink = RecordingSink()
        return self.session.open_receiver(ReceiverSpec(**{"destination": QUEUE, **spec}), sink, self.deadline()), sink

    def send(
        self, *bodies: str, room: float = PATIENCE, confirm: float = PATIENCE, to: Queue = QUEUE, persistent: bool = False
    ) -> list[Any]:
        sender = self.session.open_sender(to, self.deadline())
        contents = [
            PlainContent(kind=MessageKind.TEXT, body=body, message_id=f"ID:{body}", persistent=persistent) for body in bodies
        ]
        return list(sender.send(contents, room_deadline=self.deadline(room), confirm_timeout=confirm))


def wait_for(sink: RecordingSink, count: int) -> list[Arrival]:
    """Until the sink has as many."""
    end = time.monotonic() + PATIENCE
    while len(sink.arrivals) < count:
        assert time.monotonic() < end, f"expected {count}, got {sink.bodies}"
        time.sleep(0.002)
    return sink.arrivals[:count]


@pytest.fixture
def behind() -> Iterator[Callable[[str], Proxy]]:
    """`behind(url)`: a proxy before the broker of that URL."""
    with contextlib.ExitStack() as stack:
        yield lambda url: stack.enter_context(Proxy(url))


@pytest.fixture
def connect_to(connect: Callable[..., Client]) -> Callable[..., Client]:
    """As `connect`, where that word is taken."""
    return connect


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """`connect(url, transacted=False)`: a client that is closed at the end."""
    clients: list[Client] = []

    def make(url: str, **options: Any) -> Client:
        clients.append(Client(url, **options))
        return clients[-1]

    yield make
    for client in clients:
        client.transport.close(client.deadline(2.0))


def compiled_java(pom: Path, source: Path, name: str) -> str:
    """The class path of a Java program of the tests."""
    return compiled(pom, source, name)
