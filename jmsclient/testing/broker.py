"""Owns TestBroker: a broker for one test, and short words to send to it and look into it.

Must not know a backend by name other than in its URL, nor what a worker is beyond its `url`, `start` and `stop`. Source: api.md
(`TestBroker` uses a private broker); conventions.md (a test needs no broker, and can be switched to a real one).
"""

from __future__ import annotations

import secrets
from types import TracebackType
from typing import Any, Protocol, Self

from jmsclient.clock import SYSTEM_CLOCK, Bell, checked_timeout
from jmsclient.destination import Destination, parse_destination
from jmsclient.errors import ConnectionLostError, IllegalStateError
from jmsclient.jms.outgoing import MessageIds, outgoing
from jmsclient.message import Body, Message, PropertyValue
from jmsclient.transport.contract import (
    ACCEPT,
    RELEASE,
    Arrival,
    ReceiverSpec,
    Transport,
    TransportSession,
)
from jmsclient.transport.registry import find_backend, parse_url

LOOK_AT_MOST = 100_000
"""Messages that `messages` returns at most."""


class Startable(Protocol):
    """What a TestBroker runs for the time of its block: a Worker."""

    url: str | None

    def start(self) -> None: ...

    def stop(self) -> Any: ...


class TestBroker:
    """A broker of its own for one `with` block; `TestBroker(worker)` also runs the worker on it, whatever its own URL is.

    `url` is a private embedded broker that lives in memory, or the broker given. `request_timeout` in seconds bounds each call
    below. Use it from one thread at a time.

        with TestBroker(worker) as broker:
            broker.send("orders", {"item": 7})
            assert broker.receive("invoices", timeout=5).body == {"item": 7}
    """

    __test__ = False  # pytest would take it for a test, by its name

    def __init__(self, worker: Startable | None = None, *, url: str | None = None, request_timeout: float = 30.0) -> None:
        self.url = url or f"embedded:test-{secrets.token_hex(8)}?private=yes"
        self._worker = worker
        self._workers_url: str | None = None
        self._request_timeout = checked_timeout(request_timeout, "request_timeout")
        self._ids = MessageIds()
        self._transport: Transport | None = None
        self._session: TransportSession | None = None
        self._lost: Exception | None = None

    def __enter__(self) -> Self:
        endpoint = parse_url(self.url)
        self._transport = find_backend(endpoint.scheme).connect(endpoint, self, deadline=self._deadline)
        self._session = self._transport.open_session(transacted=False, deadline=self._deadline)
        if self._worker is not None:
            self._workers_url, self._worker.url = self._worker.url, self.url
            try:
                self._worker.start()
            except BaseException:
                self._leave()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._worker is not None:
                self._worker.stop()
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._worker is not None:
            self._worker.url = self._workers_url
        transport, self._transport, self._session = self._transport, None, None
        if transport is not None:
            transport.close(self._deadline)

    def lost(self, error: Exception) -> None:
        """The broker is gone (called by the backend): every further call raises ConnectionLostError."""
        self._lost = error

    @property
    def _deadline(self) -> float | None:
        return SYSTEM_CLOCK.deadline(self._request_timeout)

    def _live(self) -> TransportSession:
        if self._lost is not None:
            raise ConnectionLostError(f"the broker of this test is gone: {self._lost}") from self._lost
        if self._session is None:
            raise IllegalStateError("a TestBroker lives inside its with block only")
        return self._session

    # -- what a test says ---------------------------------------------------------------------------------------------

    def send(
        self,
        destination: str | Destination,
        body: Body | Message = None,
        *,
        properties: dict[str, PropertyValue] | None = None,
        correlation_id: str | None = None,
        reply_to: str | Destination | None = None,
        type: str | None = None,  # noqa: A002  the JMS header is called so
        persistent: bool = True,
        priority: int = 4,
        time_to_live: float | None = None,
        delivery_delay: float = 0.0,
    ) -> str:
        """Send one message and wait until it is confirmed; returns its id. A Message goes as it is, its own headers included.

        Raises what a producer raises: SendError, InvalidDestinationError, MessageFormatError.
        """
        place = parse_destination(destination)
        if not isinstance(body, Message):
            body = Message(body, properties=properties, correlation_id=correlation_id, reply_to=reply_to, type=type)
        content = outgoing(
            body,
            destination=place,
            message_id=self._ids.next(),
            now=SYSTEM_CLOCK.wall(),
            persistent=persistent,
            priority=priority,
            time_to_live=time_to_live,
            delivery_delay=delivery_delay,
        )
        sender = self._live().open_sender(place, self._deadline)
        try:
            (receipt,) = sender.send([content], room_deadline=self._deadline, confirm_timeout=self._request_timeout)
        finally:
            sender.close(self._deadline)
        return receipt.message_id

    def receive(self, destination: str | Destination, timeout: float | None = 5.0) -> Message | None:
        """Take the next message off a queue, accepted; None when none came within `timeout` seconds (None: for ever)."""
        limit = checked_timeout(timeout)
        got = _Basket(SYSTEM_CLOCK.bell())
        receiver = self._live().open_receiver(ReceiverSpec(destination=parse_destination(destination)), got, self._deadline)
        try:
            receiver.request(1)
            got.bell.wait(limit)
            if not got.arrivals:
                receiver.drain(self._deadline)
            if not got.arrivals:
                return None
            arrival = got.arrivals[0]
            receiver.settle([arrival], ACCEPT)
        finally:
            receiver.close(self._deadline)
        return Message.received(arrival.content, delivery_count=arrival.delivery_count)

    def messages(self, destination: str | Destination) -> list[Message]:
        """What waits on a queue, head first; it stays there, its delivery counts unchanged. What consumers hold is not in it."""
        got = _Basket(SYSTEM_CLOCK.bell())
        receiver = self._live().open_receiver(ReceiverSpec(destination=parse_destination(destination)), got, self._deadline)
        try:
            receiver.request(LOOK_AT_MOST)
            receiver.drain(self._deadline)
            receiver.settle(got.arrivals, RELEASE)
        finally:
            receiver.close(self._deadline)
        return [Message.received(arrival.content, delivery_count=arrival.delivery_count) for arrival in got.arrivals]


class _Basket:
    """A sink that keeps what comes and rings."""

    def __init__(self, bell: Bell) -> None:
        self.bell = bell
        self.arrivals: list[Arrival] = []

    def delivered(self, batch: list[Arrival]) -> None:
        self.arrivals.extend(batch)
        self.bell.ring()

    def closed(self, error: Exception | None) -> None:
        self.bell.ring()

    def recall(self) -> None:
        """It holds messages for one call only."""
