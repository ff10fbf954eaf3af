"""Owns the embedded backend as the contract sees it: transport, sessions, receivers and senders around one broker.

Must not know of states, storage or turns (broker.py and what it uses). Source: transport/contract.py; rules IF-5, IF-9 to IF-11.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from jmsclient.destination import Destination, Queue, Topic
from jmsclient.envelope import encode
from jmsclient.errors import (
    ConnectionLostError,
    IllegalStateError,
    RequestTimeoutError,
    SendError,
    StoreError,
    UnsupportedFeatureError,
)
from jmsclient.message import PlainContent
from jmsclient.selector import compile_selector
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import (
    Arrival,
    Backend,
    Endpoint,
    Outcome,
    Peer,
    Receipt,
    Receiver,
    ReceiverSpec,
    Sender,
    Sink,
    Transport,
    TransportListener,
    TransportSession,
)
from jmsclient_embedded.broker import Broker
from jmsclient_embedded.outlet import Group, Outlet
from jmsclient_embedded.queue import Entry
from jmsclient_embedded.registry import open_broker, release_broker
from jmsclient_embedded.steps import Answer

PEER = Peer(product="jmsclient-embedded", version="0.1")
_PRE_SETTLED_OUTCOMES = (None, "accepted")


class EmbeddedBackend(Backend):
    """`embedded:`, `embedded:NAME`, `embedded:NAME?store=FILE`; with `attach=yes` also where another process holds FILE."""

    schemes = ("embedded",)

    def connect(self, endpoint: Endpoint, listener: TransportListener, *, deadline: float | None) -> Transport:
        def open_here() -> EmbeddedTransport:
            name = endpoint.address.strip("/")
            return EmbeddedTransport(open_broker(name, endpoint.parameters, endpoint.clock), listener)

        if "attach" not in endpoint.parameters:
            return open_here()
        from jmsclient_embedded.attach.attaching import open_or_attach  # for few; and it needs this module

        return open_or_attach(endpoint, listener, open_here, deadline)


class EmbeddedTransport(Transport):
    """A connection to a broker of this process. `broker` is that broker, for tools and tests; `release` is called once at the end."""

    in_process = True

    def __init__(
        self, broker: Broker, listener: TransportListener, release: Callable[[Broker, float | None], None] = release_broker
    ) -> None:
        self.broker = broker
        self._release = release
        self.peer = PEER
        self.capabilities = Capabilities(
            take_on_arrival=True,
            records_hand_over=broker.store is not None,
            release_without_count=True,
            delayed_release=True,
            delivery_count="exact",
            count_after_loss="raised",
            reject="dead_letter",
            close_returns_unsettled="at_session_end",
            drain="yes",
            selectors=True,
            delayed_delivery=True,
            priorities=True,
        )
        self._listener = listener
        self._sessions: dict[EmbeddedSession, None] = {}
        self._closed = False
        self._lost: ConnectionLostError | None = None

    def open_session(self, *, transacted: bool, deadline: float | None) -> EmbeddedSession:
        if transacted:
            raise UnsupportedFeatureError("the embedded broker of this version has no transactions; use AUTO or CLIENT")
        self.check_open()
        group = self.broker.steps.ask(self.broker.closing.open_group, deadline)
        session = EmbeddedSession(self, group)
        self._sessions[session] = None
        return session

    def check_open(self) -> None:
        """Raises ConnectionLostError where the link is gone, IllegalStateError where it was closed."""
        if self._lost is not None:
            raise self._lost
        if self.broker.disowned:
            raise ConnectionLostError("this connection was inherited by a fork and is dead here; connect again in this process")
        if self._closed:
            raise IllegalStateError("this transport is closed")

    def forget(self, session: EmbeddedSession) -> None:
        """A session closed."""
        self._sessions.pop(session, None)

    def close(self, deadline: float | None) -> None:
        if self._closed or self._lost is not None or self.broker.disowned:
            self._closed = True
            return
        for session in tuple(self._sessions):
            session.close(deadline)
        self._closed = True
        self._release(self.broker, deadline)

    def lose(self, error: Exception | None = None) -> None:
        """Die as a broken link does: nothing is closed, the broker takes everything back, the listener hears of it (IF-10)."""
        if self._closed or self._lost is not None:
            return
        lost = self._lost = ConnectionLostError("the link to the embedded broker was cut" if error is None else str(error))
        groups = [session.group for session in self._sessions]

        def lose() -> None:
            for group in groups:
                self.broker.closing.lose_group(group)

        self.broker.steps.ask(lose)
        self.broker.steps.call(lambda: self._listener.lost(lost))
        self._release(self.broker, None)


def simulate_connection_loss(transport: Transport) -> None:
    """Cut the link of an embedded transport: what a crash of the client looks like to the broker. For tests."""
    assert isinstance(transport, EmbeddedTransport)
    transport.lose()


class EmbeddedSession(TransportSession):
    """A session. Thread-safe."""

    def __init__(self, transport: EmbeddedTransport, group: Group) -> None:
        self.transport = transport
        self.group = group
        self._closed = False

    def open_receiver(self, spec: ReceiverSpec, sink: Sink, deadline: float | None) -> EmbeddedReceiver:
        self.check_open()
        _check_spec(spec)
        return EmbeddedReceiver(self, spec, sink, deadline)

    def open_sender(self, destination: Destination, deadline: float | None) -> EmbeddedSender:
        self.check_open()
        _check_queue(destination)
        return EmbeddedSender(self, destination)

    def check_open(self) -> None:
        """Raises ConnectionLostError or IllegalStateError."""
        self.transport.check_open()
        if self._closed:
            raise IllegalStateError("this session is closed")

    def flush(self, deadline: float | None) -> None:
        self.check_open()
        self.transport.broker.flush(deadline)

    def close(self, deadline: float | None) -> None:
        broker = self.transport.broker
        if self.transport._lost is not None or broker.disowned:
            return

        def close(answer: Answer[None]) -> None:
            broker.closing.close_group(self.group, answer.give)

        broker.ask_later(close, deadline, "the end of a session")
        self._closed = True
        broker.flush(deadline)
        self.transport.forget(self)


def _check_queue(destination: Destination) -> None:
    if isinstance(destination, Topic):
        raise UnsupportedFeatureError(f"{destination.address}: the embedded broker of this version has queues only")


def _check_spec(spec: ReceiverSpec) -> None:
    _check_queue(spec.destination)
    if spec.kind != "queue":
        raise UnsupportedFeatureError(f"a receiver of kind {spec.kind!r}: the embedded broker of this version has queues only")
    if spec.pre_settled and spec.default_outcome not in _PRE_SETTLED_OUTCOMES:
        raise UnsupportedFeatureError(
            f"default_outcome={spec.default_outcome!r}: the embedded broker of this version knows accepted only"
        )


class EmbeddedReceiver(Receiver):
    """A receiver. `default_read_ahead` is the DEFREADA of its queue (RA-1), `error_destination` where that queue's failed messages
    go (TR-45)."""

    def __init__(self, session: EmbeddedSession, spec: ReceiverSpec, sink: Sink, deadline: float | None) -> None:
        self._session = session
        self._broker = broker = session.transport.broker
        name, pre_settled = spec.destination.name, spec.pre_settled
        selector = compile_selector(spec.selector)

        def attach() -> Outlet:
            return broker.closing.open_outlet(name, session.group, self, sink, pre_settled=pre_settled, selector=selector)

        self.outlet = broker.steps.ask(attach, deadline)
        settings = self.outlet.line.queue.settings
        self.default_read_ahead = settings.default_read_ahead
        self.error_destination = None if settings.error_destination is None else Queue(settings.error_destination)

    def request(self, count: int) -> None:
        broker, outlet = self._broker, self.outlet
        broker.steps.tell(lambda: broker.granting.request(outlet, count))

    def settle(self, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        fresh = [arrival for arrival in arrivals if not arrival.settled]
        if not fresh:
            return
        # Handed over before they are marked: an exception in between leads to a second settlement, which does nothing.
        self._broker.settle(self.outlet, fresh, outcome)
        for arrival in fresh:
            arrival.settled = True

    def handing_over(self, arrivals: Sequence[Arrival]) -> None:
        store = self._broker.store
        if store is None:
            return
        entries: list[Entry] = [arrival.tag for arrival in arrivals if not arrival.settled and arrival.tag.stored]
        if entries:
            for entry in entries:
                entry.marked = True
            store.journal.mark([(entry.sequence, entry.count + 1) for entry in entries])

    def drain(self, deadline: float | None) -> None:
        broker = self._broker
        self._session.check_open()

        def drain(answer: Answer[None]) -> None:
            broker.granting.stop_demand(self.outlet, answer.give)

        broker.ask_later(drain, deadline, "the end of a drain")

    def close(self, deadline: float | None) -> None:
        broker = self._broker
        if self._session.transport._lost is not None or broker.disowned:
            return

        def close(answer: Answer[None]) -> None:
            broker.closing.close_outlet(self.outlet, answer.give)

        broker.ask_later(close, deadline, "the end of a receiver")


class EmbeddedSender(Sender):
    """A sender to one queue. Thread-safe."""

    def __init__(self, session: EmbeddedSession, destination: Destination) -> None:
        self._session = session
        self._name = destination.name

    def send(
        self, messages: Sequence[PlainContent], *, room_deadline: float | None, confirm_timeout: float | None
    ) -> list[Receipt]:
        self._session.check_open()
        broker = self._session.transport.broker
        ids = [_identify(message) for message in messages]
        envelopes = None
        if broker.store is not None and any(message.persistent for message in messages):
            envelopes = [encode(message) if message.persistent else None for message in messages]
        try:
            broker.send(self._name, messages, envelopes, broker.clock.deadline(confirm_timeout))
        except StoreError as error:
            raise SendError(f"queue {self._name!r}: {error}", unsent=ids) from error
        except RequestTimeoutError as error:
            raise SendError(f"queue {self._name!r}: no confirmation within {confirm_timeout} s", in_doubt=ids) from error
        return [Receipt(one) for one in ids]


def _identify(message: PlainContent) -> str:
    if message.message_id is None:
        message.message_id = f"ID:{uuid.uuid4().hex}"
    return message.message_id
