"""The AMQP backend as the contract sees it: reaching a broker, and one live connection.

Must not know frames (engine) or how a message looks (content, encoding). Source: transport/contract.py; rules IF-10, IF-27,
O04, S08.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from typing import Any, Literal

from jmsclient.destination import Destination
from jmsclient.errors import (
    ConnectionLostError,
    IllegalStateError,
    JmsClientError,
    MessageFormatError,
    RequestTimeoutError,
    UnsupportedFeatureError,
)
from jmsclient.transport.contract import Backend, Endpoint, Peer, Transport, TransportListener
from jmsclient_amqp.engine.connection import DetachEvents, Engine
from jmsclient_amqp.engine.library import Condition, EngineError
from jmsclient_amqp.engine.links import SessionHandle
from jmsclient_amqp.header import Headers
from jmsclient_amqp.loop import Answer, Loop
from jmsclient_amqp.primitives import mapped, symbol, symbols, text
from jmsclient_amqp.products import Product, capabilities_of, product_of
from jmsclient_amqp.reach import reach
from jmsclient_amqp.refusals import connection_ended, not_opened
from jmsclient_amqp.session import AmqpSession
from jmsclient_amqp.settings import Settings, settings_of
from jmsclient_amqp.subscriptions import LinkNames
from jmsclient_amqp.temporary import Temporary

_PROPERTIES = mapped([symbol("product"), text("jmsclient"), symbol("version"), text("0.1"), symbol("platform"), text("Python")])
_DESIRED = symbols(["sole-connection-for-container", "DELAYED_DELIVERY", "ANONYMOUS-RELAY", "SHARED-SUBS"])


class AmqpBackend(Backend):
    """`amqp://user:password@host:port?parameters` and `amqps://…`."""

    schemes = ("amqp", "amqps")

    def connect(self, endpoint: Endpoint, listener: TransportListener, *, deadline: float | None) -> AmqpTransport:
        settings = settings_of(endpoint)
        connection, already = reach(settings, endpoint.clock, deadline)
        try:
            transport = AmqpTransport(settings, endpoint, listener)
            loop = transport.loop = Loop(
                connection, transport.engine, endpoint.clock, transport, f"jmsclient-amqp-io-{settings.host}:{settings.port}"
            )
        except BaseException:
            connection.close()
            raise
        loop.start(already)
        transport.open(deadline)
        return transport


class AmqpTransport(Transport):
    """One live connection. Thread-safe; what begins with an underscore and says so belongs to the I/O thread."""

    loop: Loop
    product: Product

    def __init__(self, settings: Settings, endpoint: Endpoint, listener: TransportListener) -> None:
        self.settings = settings
        self.clock = endpoint.clock
        self.container = endpoint.client_id or f"jmsclient-{secrets.token_hex(8)}"
        self.has_client_id = endpoint.client_id is not None
        self.headers = Headers()
        self.engine = Engine(
            container=self.container,
            hostname=settings.vhost or settings.host,
            idle_timeout=settings.idle_timeout,
            max_frame=settings.max_frame,
            properties=_PROPERTIES,
            desired=_DESIRED,
        )
        self._listener = listener
        self._closing = False
        self._live = False  # `connect` has returned it, or is about to: a loss is told to the listener
        self._opening: Answer[None] | None = None
        self._ending: Answer[None] | None = None
        self._sessions: dict[AmqpSession, None] = {}  # these three belong to the I/O thread
        self._pending: set[Answer[Any]] = set()
        self.link_names = LinkNames(has_client_id=self.has_client_id)
        self._own_session: AmqpSession | None = None
        self._temporary: dict[Temporary, None] = {}
        self._detaches: DetachEvents | None = None
        self._expected: dict[int, Callable[[], None]] = {}
        self._barriers: dict[SessionHandle, Answer[None]] = {}
        self._numbers = 0
        self._ids = itertools.count(1)

    def open(self, deadline: float | None) -> None:
        """Shake hands; then it knows its peer and what that can do. Raises what says what to look at."""
        peer = self.settings.peer
        try:
            self._shake_hands(deadline)
        except RequestTimeoutError as error:
            text = f"{peer} let us in and does not answer further ({error}): is it overloaded, or stopped? Its log may say more"
            raise RequestTimeoutError(text) from error
        except ConnectionLostError as error:
            raise ConnectionLostError(f"{error}; it happened while the connection was opened: see the log of the broker") from error

    def _shake_hands(self, deadline: float | None) -> None:
        try:
            self.loop.ask(self._open, deadline, f"opening the connection to {self.settings.peer}")
            # A broker that refuses says open first and close after; who answers a begin has not refused.
            self.loop.ask(self.barrier, deadline, f"opening the connection to {self.settings.peer}")
            self._describe_peer()
            self._live = True
            if self.loop.error is not None:
                raise self.lost_error()
        except BaseException:
            self._closing = True
            self.loop.tell(lambda *_: self.loop.stop(ConnectionLostError("it was not opened in time")))
            self.loop.join()
            raise

    def _open(self, answer: Answer[None], _: Any) -> None:
        self._opening = self.awaited(answer)
        self.engine.open()

    def _describe_peer(self) -> None:
        said = self._remote
        self.peer = Peer(product=str(said.get("product", "unknown")), version=str(said.get("version", "")))
        self.product = product_of(self.peer, self.settings.provider)
        self.capabilities = capabilities_of(self.product, self._offered)

    # -- on the I/O thread ------------------------------------------------------------------------------------------

    def awaited(self, answer: Answer[Any]) -> Answer[Any]:
        """Fail it when the connection ends, unless it was given before."""
        self._pending.add(answer)
        return answer

    def answered(self, answer: Answer[Any]) -> None:
        """Nobody need fail it any more."""
        self._pending.discard(answer)

    def link_name(self, what: str) -> str:
        """A name that no other link of this container has."""
        self._numbers += 1
        return f"{self.container}-{what}-{self._numbers}"

    def next_message_id(self) -> str:
        """For a message that has none. Any thread."""
        return f"ID:{self.container}-{next(self._ids)}"

    def expect_detach(self, address: int, run: Callable[[], None]) -> None:
        """Call `run` when the peer has answered the detach of this link, which leaves no state behind."""
        if self._detaches is None:
            self._detaches = self.engine.hear_detaches()
        self._expected[address] = run

    def forget_detach(self, address: int) -> None:
        """That link is gone by other means, and its address may be another's soon."""
        self._expected.pop(address, None)

    def _look_at_detaches(self, detaches: DetachEvents) -> None:
        for address in detaches.take():
            run = self._expected.pop(address, None)
            if run is not None:
                run()
        if not self._expected:
            detaches.stop()
            self._detaches = None

    def barrier(self, answer: Answer[None], _: Any) -> None:
        """Give the answer when the peer has processed all that was sent before: it answers the begin of a session in its turn."""
        self.awaited(answer)
        self.loop.after_writing(lambda: self._raise_barrier(answer))

    def _raise_barrier(self, answer: Answer[None]) -> None:
        self._barriers[self.engine.session(receives=False)] = answer

    def _look_at_barriers(self) -> None:
        for handle, answer in tuple(self._barriers.items()):
            if not answer.done and handle.remote_open:
                self.answered(answer)
                answer.give(None)
                handle.close()
            if handle.remote_closed:
                del self._barriers[handle]
                handle.free()

    def look(self) -> None:
        """See `Owner`."""
        engine = self.engine
        if self._opening is not None and engine.remote_open:
            self._remote = engine.remote_properties
            self._offered = engine.offered
            if not engine.remote_closed:
                opening, self._opening = self._opening, None
                self.answered(opening)
                opening.give(None)
        for session in tuple(self._sessions):
            session.look()
        if self._barriers:
            self._look_at_barriers()
        if self._detaches is not None:
            self._look_at_detaches(self._detaches)
        if engine.remote_closed:
            if self._ending is not None:
                self.answered(self._ending)
                self.loop.stop(ConnectionLostError("this transport is closed"))
                return
            raise self._ended_by_peer(engine.remote_condition)

    def _ended_by_peer(self, condition: Condition | None) -> JmsClientError:
        peer = self.settings.peer
        if self._live:
            return connection_ended(peer, condition)
        return not_opened(peer, condition, self.container if self.has_client_id else None)

    def forget(self, session: AmqpSession) -> None:
        """A session has ended."""
        self._sessions.pop(session, None)

    def ended(self, error: Exception) -> None:
        """See `Owner`. Everything that waits is told; the listener too, unless the end was asked for."""
        self.loop.error = lost = self._as_lost(error)
        for session in tuple(self._sessions):
            session.lost(lost)
        pending, self._pending = self._pending, set()
        for answer in pending:
            answer.fail(lost)
        if self._ending is not None:
            self._ending.give(None)
        if self._live and not self._closing:
            self._listener.lost(lost)

    def _as_lost(self, error: Exception) -> JmsClientError:
        peer = self.settings.peer
        if isinstance(error, EngineError):
            return connection_ended(peer, error.condition)
        if isinstance(error, MessageFormatError):
            return ConnectionLostError(f"{peer} sent what is no AMQP: {error}")
        if isinstance(error, JmsClientError):
            return error
        if isinstance(error, OSError):
            return ConnectionLostError(f"the connection to {peer} broke: {error.strerror or error}")
        lost = connection_ended(peer, Condition("jmsclient:internal-error", f"{type(error).__name__}: {error}"))
        lost.__cause__ = error
        return lost

    # -- the contract -----------------------------------------------------------------------------------------------

    def lost_error(self) -> JmsClientError:
        """A fresh error saying why this transport is dead."""
        error = self.loop.error
        if isinstance(error, ConnectionLostError):
            return ConnectionLostError(str(error))
        return ConnectionLostError(f"the connection to {self.settings.peer} is gone: {error}")

    def check_open(self) -> None:
        """Raises ConnectionLostError where the link is gone, IllegalStateError where it was closed."""
        if self._closing:
            raise IllegalStateError("this transport is closed")
        if self.loop.error is not None:
            raise self.lost_error()

    @property
    def dead(self) -> bool:
        """Nothing goes out any more."""
        return self.loop.error is not None

    def open_session(self, *, transacted: bool, deadline: float | None) -> AmqpSession:
        self.check_open()
        if transacted and not self.capabilities.transactions:
            raise UnsupportedFeatureError(f"{self.peer.product} offers no transactions here; use AUTO, CLIENT or INDIVIDUAL")
        session = AmqpSession(self, transacted=transacted)
        self.loop.ask(self._begin, deadline, "the begin of a session", session)
        return session

    def _begin(self, answer: Answer[None], session: AmqpSession) -> None:
        self._sessions[session] = None
        session.begin(self.awaited(answer))

    def create_temporary(self, kind: Literal["queue", "topic"], deadline: float | None) -> Destination:
        """As a session's."""
        return self.loop.ask(self._create_temporary, deadline, f"a temporary {kind}", kind)

    def _create_temporary(self, answer: Answer[Destination], kind: Literal["queue", "topic"]) -> None:
        if self._own_session is None or self._own_session.over:
            self._own_session = AmqpSession(self, transacted=False)
            self._begin(Answer(self.clock), self._own_session)
        made = Temporary(self._own_session, kind, self.awaited(answer))
        self._own_session.part(made)
        self._temporary[made] = None

    def delete_temporary(self, destination: Destination, deadline: float | None) -> None:
        """As a session's."""
        self.loop.ask(self._delete_temporary, deadline, f"the end of {destination.address}", destination.address)

    def _delete_temporary(self, answer: Answer[None], address: str) -> None:
        if any(session.receives_from(address) for session in self._sessions):
            answer.fail(IllegalStateError(f"{address}: a consumer is open on it"))
            return
        for one in self._temporary:
            if one.address == address:
                one.delete(answer)
                return
        answer.give(None)

    def forget_temporary(self, one: Temporary) -> None:
        """It is gone."""
        self._temporary.pop(one, None)

    def close(self, deadline: float | None) -> None:
        if self.loop.here:
            self._closing = True
            self.loop.tell(self._close, Answer(self.clock))
            return
        if self._closing or self.dead:
            self._closing = True
            self.loop.join()
            return
        error: JmsClientError | None = None
        try:
            for session in tuple(self._sessions):
                session.close(deadline)
        except JmsClientError as failure:
            error = failure
        self._closing = True
        try:
            self.loop.ask(self._close, deadline, "the end of the connection")
        except RequestTimeoutError as failure:
            error = failure
            self.loop.tell(lambda *_: self.loop.stop(ConnectionLostError("it did not end in time")))
        except ConnectionLostError:
            pass  # it has ended while we asked
        self.loop.join()
        if error is not None and not isinstance(error, ConnectionLostError):
            raise error

    def _close(self, answer: Answer[None], _: Any) -> None:
        self._ending = self.awaited(answer)
        self.engine.close()
        if self.product.end_patience is not None:
            self.loop.after(self.product.end_patience, lambda: self.loop.stop(ConnectionLostError("this transport is closed")))


def cut(transport: Transport) -> None:
    """Break the link of a transport as a pulled cable does. For tests."""
    assert isinstance(transport, AmqpTransport)
    transport.loop.cut()
