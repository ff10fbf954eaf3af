"""What the tests of the testing room share: a sink that records, a listener that records, a connected ScriptedBackend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jmsclient.destination import Queue
from jmsclient.testing.scripted import ScriptedBackend
from jmsclient.transport.contract import Arrival, Receiver, ReceiverSpec, Transport
from jmsclient.transport.registry import find_backend, parse_url


class Recorder:
    """A sink and a listener in one."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.closings: list[Exception | None] = []
        self.losses: list[Exception] = []

    def delivered(self, batch: list[Arrival]) -> None:
        self.arrivals.extend(batch)

    def recall(self) -> None:
        """What this sink holds, it settles by itself."""

    def closed(self, error: Exception | None) -> None:
        self.closings.append(error)

    def lost(self, error: Exception) -> None:
        self.losses.append(error)

    @property
    def bodies(self) -> list[object]:
        return [arrival.content.body() for arrival in self.arrivals]


class Bench:
    """A ScriptedBackend, one connected transport, one session."""

    def __init__(self, backend: ScriptedBackend) -> None:
        self.backend = backend
        self.listener = Recorder()
        self.transport: Transport = find_backend(backend.scheme).connect(parse_url(backend.url), self.listener, deadline=None)
        self.session = self.transport.open_session(transacted=False, deadline=None)

    def receiver(self, name: str = "Q") -> tuple[Receiver, Recorder]:
        sink = Recorder()
        return self.session.open_receiver(ReceiverSpec(destination=Queue(name)), sink, None), sink


@pytest.fixture
def bench() -> Iterator[Bench]:
    with ScriptedBackend() as backend:
        bench = Bench(backend)
        yield bench
        bench.transport.close(None)
        assert not backend.violations
