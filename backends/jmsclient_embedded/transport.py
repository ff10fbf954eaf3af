"""Owns the embedded backend as the contract sees it: the connection to a broker of this process.

Must not know of states, storage or turns (broker.py and what it uses); its sessions are in session.py. Source:
transport/contract.py; rules IF-9, IF-10.
"""

from __future__ import annotations

from collections.abc import Callable

from jmsclient.destination import parse_destination
from jmsclient.errors import ConnectionLostError, IllegalStateError
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Backend, Endpoint, Peer, Transport, TransportListener
from jmsclient_embedded.administration import EmbeddedAdministration
from jmsclient_embedded.broker import Broker
from jmsclient_embedded.registry import open_broker, release_broker
from jmsclient_embedded.session import EmbeddedSession

PEER = Peer(product="jmsclient-embedded", version="0.1")


class EmbeddedBackend(Backend):
    """`embedded:`, `embedded:NAME`, `embedded:NAME?store=FILE`; with `attach=yes` also where another process holds FILE."""

    schemes = ("embedded",)

    def connect(self, endpoint: Endpoint, listener: TransportListener, *, deadline: float | None) -> Transport:
        def open_here() -> EmbeddedTransport:
            name = endpoint.address.strip("/")
            broker = open_broker(name, endpoint.parameters, endpoint.clock)
            try:
                return EmbeddedTransport(broker, listener, client_id=endpoint.client_id)
            except BaseException:
                release_broker(broker, deadline)
                raise

        if "attach" not in endpoint.parameters:
            return open_here()
        from jmsclient_embedded.attach.attaching import open_or_attach  # for few; and it needs this module

        return open_or_attach(endpoint, listener, open_here, deadline)


class EmbeddedTransport(Transport):
    """A connection to a broker of this process. `broker` is that broker, for tools and tests; `release` is called at the end."""

    in_process = True

    def __init__(
        self,
        broker: Broker,
        listener: TransportListener,
        release: Callable[[Broker, float | None], None] = release_broker,
        *,
        client_id: str | None = None,
    ) -> None:
        self.broker = broker
        self.client_id = client_id
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
            transactions=True,
            browse=True,
            selectors=True,
            delayed_delivery=True,
            administration=True,
            priorities=True,
            durable_subscriptions=True,
            shared_subscriptions=True,
            topics=True,
        )
        self._listener = listener
        self._sessions: dict[EmbeddedSession, None] = {}
        self._closed = False
        self._lost: ConnectionLostError | None = None
        if client_id is not None:
            broker.steps.ask(lambda: _claim(broker, client_id))

    def open_session(self, *, transacted: bool, deadline: float | None) -> EmbeddedSession:
        self.check_open()
        group = self.broker.steps.ask(lambda: self.broker.closing.open_group(self.origin, transacted=transacted), deadline)
        session = EmbeddedSession(self, group)
        self._sessions[session] = None
        return session

    def administration(self) -> EmbeddedAdministration:
        self.check_open()
        return EmbeddedAdministration(self.broker)

    @property
    def origin(self) -> object:
        """What tells this connection's messages from others' (no-local)."""
        return self.client_id or self

    @property
    def lost(self) -> bool:
        """It died."""
        return self._lost is not None

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
        self.broker.steps.ask(lambda: _end(self.broker, self), deadline)
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
            _end(self.broker, self)

        self.broker.steps.ask(lose)
        self.broker.steps.call(lambda: self._listener.lost(lost))
        self._release(self.broker, None)


def simulate_connection_loss(transport: Transport) -> None:
    """Cut the link of an embedded transport: what a crash of the client looks like to the broker. For tests."""
    assert isinstance(transport, EmbeddedTransport)
    transport.lose()


def _claim(broker: Broker, client_id: str) -> None:
    if client_id in broker.client_ids:
        raise IllegalStateError(f"client identifier {client_id!r} is in use by another connection; close that, or use another one")
    broker.client_ids.add(client_id)


def _end(broker: Broker, transport: EmbeddedTransport) -> None:
    """Its temporary destinations go with it, and its client identifier is free again."""
    if transport.client_id is not None:
        broker.client_ids.discard(transport.client_id)
    for address in broker.catalogue.temporary_of(transport):
        broker.catalogue.delete_temporary(parse_destination(address), broker.discard_all, at_the_end=True)
