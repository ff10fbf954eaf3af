"""Owns what a conformance check works with: a sink that watches the contract while it records, and short words for common steps.

Must not know any backend, nor the core above the contract. Everything waits for a condition, at most `patience` seconds.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from jmsclient.clock import SYSTEM_CLOCK, Clock
from jmsclient.destination import Destination, Queue, Topic
from jmsclient.message import MessageKind, PlainContent
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import (
    ACCEPT,
    Arrival,
    Receipt,
    Receiver,
    ReceiverSpec,
    Transport,
    TransportListener,
    TransportSession,
)

_numbers = count(1)
_MARK = "the end"
_PLENTY = 1000


class Harness(ABC):
    """What the author of a backend writes: how to reach it, how to break it. One is made for each check."""

    patience: float = 10.0
    """Seconds that a check waits for something that must happen."""

    @abstractmethod
    def connect(self, listener: TransportListener) -> Transport:
        """A new live transport, on the system's clock."""

    @abstractmethod
    def lose_link(self, transport: Transport) -> None:
        """Break this transport's link as a pulled cable does: without `close`, without its doing. May return before it is felt."""

    def queue(self) -> Destination:
        """A queue that exists, is empty, and is used by nobody else."""
        return Queue(f"conformance.{next(_numbers)}.{time.monotonic_ns()}")

    def topic(self) -> Topic:
        """A topic that nobody else uses (asked where `topics` is declared)."""
        return Topic(f"conformance.{next(_numbers)}.{time.monotonic_ns()}")

    def error_destination(self, queue: Destination) -> Destination | None:
        """Where a dead letter of `queue` goes (asked where `reject` is `dead_letter`); None: it can't be read."""
        return None

    def close(self) -> None:  # noqa: B027  most need nothing
        """End whatever was started. The transports of the check are closed by then."""


class RecordingSink:
    """A sink that keeps what it gets and notes every breach of the contract in `faults`."""

    def __init__(self, on_batch: Callable[[list[Arrival]], None] | None = None) -> None:
        self.arrivals: list[Arrival] = []
        self.closings: list[Exception | None] = []
        self.faults: list[str] = []
        self.on_batch = on_batch
        self._entered = threading.Lock()

    def delivered(self, batch: list[Arrival]) -> None:
        if not self._entered.acquire(blocking=False):
            self.faults.append("delivered was called while a call to the same sink was running")
        try:
            if type(batch) is not list or not batch:
                self.faults.append(f"delivered({batch!r}): expected a list that is not empty")
            if self.closings:
                self.faults.append("delivered was called after closed")
            self.arrivals.extend(batch)
            if self.on_batch is not None:
                self.on_batch(batch)
        finally:
            try:
                self._entered.release()
            except RuntimeError:  # the overlapping call, noted above, has released it
                pass

    def recall(self) -> None:
        """What this sink holds, it settles by itself."""

    def closed(self, error: Exception | None) -> None:
        self.closings.append(error)

    @property
    def bodies(self) -> list[Any]:
        return [arrival.content.body() for arrival in self.arrivals]

    @property
    def counts(self) -> list[int]:
        return [arrival.delivery_count for arrival in self.arrivals]


class RecordingListener:
    """Counts how often a transport was lost."""

    def __init__(self) -> None:
        self.losses: list[Exception] = []

    def lost(self, error: Exception) -> None:
        self.losses.append(error)


class Trial:
    """One check at work: a transport, a session, a queue of its own."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.clock: Clock = SYSTEM_CLOCK
        self.sinks: list[RecordingSink] = []
        self._transports: list[Transport] = []
        self.listener = RecordingListener()
        self.transport = self.connect(self.listener)
        self.session = self.open_session()
        self.queue = harness.queue()

    @property
    def capabilities(self) -> Capabilities:
        return self.transport.capabilities

    @property
    def deadline(self) -> float | None:
        return self.clock.deadline(self.harness.patience)

    def connect(self, listener: TransportListener | None = None) -> Transport:
        """Another transport; closed by the suite."""
        transport = self.harness.connect(listener or RecordingListener())
        self._transports.append(transport)
        return transport

    def open_session(self, transport: Transport | None = None) -> TransportSession:
        return (transport or self.transport).open_session(transacted=False, deadline=self.deadline)

    def open_receiver(
        self,
        *,
        session: TransportSession | None = None,
        queue: Destination | None = None,
        on_batch: Callable[[list[Arrival]], None] | None = None,
        pre_settled: bool = False,
        takes_all: bool = False,
    ) -> tuple[Receiver, RecordingSink]:
        sink = RecordingSink(on_batch)
        self.sinks.append(sink)
        spec = ReceiverSpec(destination=queue or self.queue, pre_settled=pre_settled, takes_all=takes_all)
        return (session or self.session).open_receiver(spec, sink, self.deadline), sink

    def send(
        self,
        *bodies: str,
        persistent: bool | Sequence[bool] = True,
        session: TransportSession | None = None,
        queue: Destination | None = None,
    ) -> list[Receipt]:
        """Send texts in one call, to the trial's queue unless told otherwise."""
        flags = [persistent] * len(bodies) if isinstance(persistent, bool) else persistent
        target = queue or self.queue
        contents = [self.content(body, persistent=flag) for body, flag in zip(bodies, flags, strict=True)]
        for content in contents:
            content.destination = target.address
        sender = (session or self.session).open_sender(target, self.deadline)
        receipts = sender.send(contents, room_deadline=self.deadline, confirm_timeout=self.harness.patience)
        sender.close(self.deadline)
        return receipts

    def content(self, body: str, *, persistent: bool = True, **headers: Any) -> PlainContent:
        return PlainContent(
            kind=MessageKind.TEXT,
            body=body,
            message_id=f"ID:conformance-{next(_numbers)}-{time.monotonic_ns()}",
            destination=self.queue.address,
            persistent=persistent,
            timestamp=self.clock.wall(),
            **headers,
        )

    def hand_over(self, arrivals: Sequence[Arrival]) -> None:
        """Do what the core does before application code sees these."""
        for arrival in arrivals:
            arrival.handed_over = True
        persistent = [arrival for arrival in arrivals if arrival.persistent]
        if self.capabilities.records_hand_over and persistent:
            persistent[0].receiver.handing_over(persistent)

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Until the condition holds; AssertionError says what did not happen."""
        end = time.monotonic() + self.harness.patience
        while not condition():
            assert time.monotonic() < end, f"within {self.harness.patience:g} s: {what}"
            time.sleep(0.001)

    def wait_for_arrivals(self, sink: RecordingSink, number: int) -> list[Arrival]:
        self.wait_for(lambda: len(sink.arrivals) >= number, f"expected {number} arrivals, got {sink.bodies}")
        return sink.arrivals[:number]

    def left(self, queue: Destination | None = None) -> RecordingSink:
        """What the queue still holds, read to a mark sent now by a transport of its own, and accepted.

        Reading on to a mark proves that nothing else is there without waiting for time to pass.
        """
        session = self.open_session(self.connect())
        self.send(_MARK, session=session, queue=queue)
        receiver, sink = self.open_receiver(session=session, queue=queue)
        receiver.request(_PLENTY)
        self.wait_for(lambda: _MARK in sink.bodies, f"expected the mark after {sink.bodies}")
        receiver.settle(sink.arrivals, ACCEPT)
        session.flush(self.deadline)
        session.close(self.deadline)
        sink.arrivals = [arrival for arrival in sink.arrivals if arrival.content.body() != _MARK]
        return sink

    def finish(self) -> None:
        """Close everything and raise AssertionError if a sink saw a breach of the contract."""
        for transport in self._transports:
            transport.close(self.deadline)
        faults = [fault for sink in self.sinks for fault in sink.faults]
        assert not faults, faults
