"""Connection: one link to a provider, the sessions on it, and the keeper that closes what must not be interrupted.

Owns starting, stopping and closing (Jakarta Messaging 6.1), the connection's URL and default, and what happens to inherited
connections after a fork and at exit. Must not know how messages travel. No secret enters a log, repr or error. Rules RA-20, RA-25,
IF-27, IF-37, IF-40; api.md "Connections". Thread-safe.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from _thread import get_ident
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from jmsclient.clock import Clock
from jmsclient.destination import Destination
from jmsclient.errors import CloseTimeout, ConfigurationError, ConnectionLostError, IllegalStateError, JmsClientError
from jmsclient.events import emit
from jmsclient.jms.consumer import MessageConsumer
from jmsclient.jms.guard import earlier
from jmsclient.jms.keeper import Keeper
from jmsclient.jms.outgoing import MessageIds
from jmsclient.jms.session import Session
from jmsclient.jms.totals import ReadAheadTotals, Tally
from jmsclient.options import AcknowledgeMode, ConnectionOptions, seconds
from jmsclient.transport.administration import Administration
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Endpoint, Transport
from jmsclient.transport.failover import Places
from jmsclient.transport.link import open_link
from jmsclient.transport.registry import parse_places, places_of

URL_VARIABLE = "JMSCLIENT_URL"
EXIT_TIMEOUT = 2.0
"""Seconds that closing one forgotten connection may take when the process exits."""
EMBEDDED_SEND_TIMEOUT = 0.01
_live: weakref.WeakSet[Connection] = weakref.WeakSet()


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionMetadata:
    """Who is at the other end."""

    provider_name: str
    provider_version: str


def connect(
    url: str | None = None,
    *,
    client_id: str | None = None,
    username: str | None = None,
    password: str | None = None,
    start: bool = True,
    request_timeout: float = 30.0,
    options: ConnectionOptions | None = None,
) -> Connection:
    """Connect to a provider. The URL's scheme chooses the backend; without a URL it is JMSCLIENT_URL, else `embedded:` with one
    WARNING. `start=False` delivers nothing before `start()`. `request_timeout` in seconds bounds attach, confirmations and
    flush. `client_id` names this client to the provider, for durable subscriptions; one connection at a time has it.

    Raises ConfigurationError (unknown scheme, what to install), ConnectionLostError, RequestTimeoutError, StoreError.
    """
    seconds("request_timeout", request_timeout, least=0.001)
    if client_id is not None and not (isinstance(client_id, str) and client_id.strip()):
        raise ConfigurationError(f"client_id={client_id!r}: expected a text that is not empty, or None")
    places = parse_places(url or default_url(), username=username, password=password, client_id=client_id)
    return Connection(places, start=start, request_timeout=request_timeout, options=options or ConnectionOptions())


def default_url() -> str:
    """Where nothing else is said: the environment's, or a broker in memory, with a warning: it hears of nobody else's messages."""
    found = os.environ.get(URL_VARIABLE)
    if not found:
        logging.getLogger("jmsclient.connection").warning(
            "no URL and no %s: using embedded:, an in-memory broker, messages live in this process only", URL_VARIABLE
        )
    return found or "embedded:"


class Connection:
    """Made by `connect`. A context manager: leaving it closes it. Thread-safe."""

    def __init__(self, where: Places | Endpoint, *, start: bool, request_timeout: float, options: ConnectionOptions) -> None:
        self._endpoint = places = where if isinstance(where, Places) else places_of(where)
        self._begin(places.name, places.clock, request_timeout, options, places.client_id)
        try:
            self.transport: Transport = self.keeper.shielded(
                lambda: open_link(
                    places, _LossListener(weakref.ref(self)), deadline=self._request_deadline(), timeout=request_timeout
                )
            )
        except BaseException:
            self.keeper.stop()
            raise
        self.default_send_timeout: float = EMBEDDED_SEND_TIMEOUT if places.name == "embedded" else request_timeout
        self._complete = True
        _live.add(self)
        if start:
            self.start()

    def _begin(self, name: str, clock: Clock, request_timeout: float, options: ConnectionOptions, client_id: str | None) -> None:
        """What every connection has before it has a transport."""
        self.options = options
        self.request_timeout = request_timeout
        self.clock = clock
        self.started = False
        self.closed = False
        self.failure: JmsClientError | None = None
        self.exception_listener: Callable[[Exception], object] | None = None
        """Called once, with the error, when the connection fails for good; on the keeper's thread."""
        self.client_id = client_id
        """What names this client to the provider, for durable subscriptions; None without."""
        self._held: tuple[weakref.ref[Session], ...] = ()  # replaced whole, on the keeper only
        self._tally = Tally()  # touched on the keeper only
        self.message_ids: MessageIds = MessageIds()
        self.keeper = Keeper(name, clock)

    _complete = False  # nothing to close before it is

    @property
    def _sessions(self) -> tuple[Session, ...]:
        """Those that are open and not forgotten by the application (RA-25)."""
        return tuple(session for held in self._held if (session := held()) is not None)

    def __del__(self) -> None:
        """Forgotten by the application (RA-25): a note for the keeper, which takes it up again and closes it. It takes no lock."""
        if self._complete and not self.closed:
            self.keeper.note(self._close_forgotten)

    def _close_forgotten(self) -> None:
        self._end(None)
        self.keeper.stop()

    def _request_deadline(self) -> float | None:
        return self.clock.deadline(self.request_timeout)

    @property
    def capabilities(self) -> Capabilities:
        """What the provider can do: the present one, which after a failover may be another."""
        return self.transport.capabilities

    @property
    def metadata(self) -> ConnectionMetadata:
        """Provider name and version."""
        peer = self.transport.peer
        return ConnectionMetadata(provider_name=peer.product, provider_version=peer.version)

    @property
    def read_ahead(self) -> ReadAheadTotals:
        """What waits in the buffers of this connection's consumers and what became of it, by destination and in all (RA-27)."""
        return self._count() if self.closed else self.keeper.call(self._count)

    def _count(self) -> ReadAheadTotals:
        consumers = [consumer for session in self._sessions for consumer in session.consumers]
        return self._tally.totals((consumer.destination.address, consumer.intake.counters) for consumer in consumers)

    def consumer_closed(self, consumer: MessageConsumer) -> None:
        """Keep what it counted; on the keeper."""
        self._tally.closed(consumer.destination.address, consumer.intake.counters)

    @property
    def administration(self) -> Administration:
        """Destinations, statistics, pauses and messages of the provider. Raises UnsupportedFeatureError where it offers none."""
        self._check_open()
        return self.transport.administration()

    def _check_open(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.closed:
            raise IllegalStateError("this connection is closed")

    def create_session(self, acknowledge: AcknowledgeMode = AcknowledgeMode.AUTO, *, redelivery_delay: float = 0.0) -> Session:
        """A session for one thread at a time. `redelivery_delay` in seconds delays what `recover` and `rollback` give back. Raises
        UnsupportedFeatureError for TRANSACTED where the provider has no transactions, IllegalStateError, ConnectionLostError."""
        self._check_open()
        self.transport.ready(self._request_deadline())  # here, for the keeper has more to do than to wait for one caller's link
        return self.keeper.shielded(lambda: self._open(acknowledge, redelivery_delay))

    def _open(self, acknowledge: AcknowledgeMode, redelivery_delay: float) -> Session:
        session = Session(self, acknowledge, redelivery_delay=redelivery_delay)
        self.keeper.call(lambda: self._hold(weakref.ref(session)))
        return session

    def _hold(self, session: weakref.ref[Session]) -> None:
        self._held = (*self._held, session)

    def delete_temporary(self, destination: Destination) -> None:
        """What `destination.delete()` does: see there. Nothing on a closed connection, for it has gone with that."""
        if self.closed:
            return
        self._check_open()
        self.transport.ready(self._request_deadline())
        self.keeper.shielded(lambda: self._delete(destination))

    def _delete(self, destination: Destination) -> None:
        session = self.transport.open_session(transacted=False, deadline=self._request_deadline())
        try:
            session.delete_temporary(destination, self._request_deadline())
        finally:
            session.close(self._request_deadline())

    # -- starting and stopping --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Deliver. Starting twice does nothing."""
        self._check_open()
        self.started = True
        for session in self._sessions:
            session.adapt()

    def stop(self, timeout: float | None = 30.0) -> None:
        """Hand over nothing more until `start`; buffers stay. Waits for running listeners up to `timeout` seconds, then
        CloseTimeout (it is stopped all the same). From a listener it does not wait for that listener."""
        self._check_open()
        self.started = False
        deadline = self.clock.deadline(timeout)
        for session in self._sessions:
            session.stopped(deadline)

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = 30.0) -> None:
        """Close its sessions, then the link. Waits for running calls up to `timeout` seconds, then CloseTimeout: nothing is lost,
        close it again. From a listener: IllegalStateError (JM 6.1.8). From a signal handler that interrupted one of its
        sessions it only leaves a note. Closing twice does nothing."""
        if self.closed:
            return
        me = get_ident()
        sessions = self._sessions
        if any(session.is_dispatcher(me) for session in sessions):
            raise IllegalStateError("a listener cannot close its own connection; close it from another thread")
        if any(session.inside == me for session in sessions):
            for session in sessions:
                if session.inside == me:
                    session.close()  # leaves a note, and lets a receive that waits return
            self.keeper.note(lambda: sessions[0].in_thread(lambda: self.close(timeout)))
            return
        deadline = self.clock.deadline(timeout)
        late: CloseTimeout | None = None
        self._announce_end()
        for session in sessions:
            try:
                session.close(self.clock.left(deadline))
            except CloseTimeout as error:
                late = error
        if late is not None:
            raise late
        self.keeper.call(lambda: self._end(deadline))
        self.keeper.stop()

    def _announce_end(self) -> None:
        self.transport.closing()

    def _end(self, deadline: float | None) -> None:
        if self.closed:
            return
        try:
            self.transport.close(earlier(deadline, self._request_deadline()))
        except JmsClientError as error:
            if self.failure is None:
                emit("connection", "close_failed", f"closing {self._endpoint}: {error}", level=logging.WARNING)
        self.started = False
        self.closed = True
        _live.discard(self)

    def session_closed(self, session: Session) -> None:
        """Forget it; on the keeper."""
        self._held = tuple(held for held in self._held if held() not in (None, session))

    def lost(self, error: Exception) -> None:
        """The link is gone for good. Receives that wait raise it; the exception listener hears of it."""
        if self.closed or self.failure is not None:
            return
        self.failure = error if isinstance(error, JmsClientError) else ConnectionLostError(f"{self._endpoint}: {error}")
        emit("connection", "lost", f"lost {self._endpoint}: {self.failure}", level=logging.ERROR)
        for session in self._sessions:
            session.lost(self.failure)
        self.keeper.note(self._tell_listener)

    def _tell_listener(self) -> None:
        listener = self.exception_listener
        if listener is not None and self.failure is not None:
            listener(self.failure)

    def after_fork(self) -> None:
        """In a forked child: neither threads nor the link came along."""
        self.started = False
        self.closed = True
        self.failure = IllegalStateError("this connection was made before a fork and is the parent's; connect again in the child")
        for session in self._sessions:
            session.closed = True
            session.inside = 0

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            for session in self._sessions:
                session.retry_in_hand()
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "failed" if self.failure else "started" if self.started else "stopped"
        return f"<Connection {self._endpoint} {state}>"


class _LossListener:
    """What the transport calls; it does not keep the connection alive."""

    def __init__(self, connection: weakref.ref[Connection]) -> None:
        self._connection = connection

    def lost(self, error: Exception) -> None:
        connection = self._connection()
        if connection is not None:
            connection.lost(error)


def _after_fork() -> None:
    for connection in list(_live):
        connection.after_fork()
    _live.clear()


def _close_all() -> None:
    for connection in list(_live):
        try:
            connection.close(EXIT_TIMEOUT)
        except JmsClientError as error:
            emit("connection", "close_failed", f"closing at exit: {error}", level=logging.WARNING)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)
