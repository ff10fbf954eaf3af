"""What is opened on a connection that outlives its links: sessions, receivers and senders that are opened again on each new link.

Each keeps what it was made from, and the one of the backend that it stands for at present, None during an outage. An arrival names
the backend's receiver that it came from; that one is its generation: when its link is lost, settling it there does nothing, and no
other message is ever settled in its place. It must not know how links are made (`link.py`). Rules IF-27, IF-28; cases O06, S08.

What waits for a link waits on the caller's thread, at most until its deadline. What may have happened is never repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from jmsclient.destination import Destination
from jmsclient.errors import (
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsClientError,
    SendError,
    TransactionRolledBackError,
    UnsupportedFeatureError,
)
from jmsclient.message import PlainContent
from jmsclient.transport.contract import (
    Arrival,
    Outcome,
    Receipt,
    Receiver,
    ReceiverSpec,
    Sender,
    Sink,
    Transport,
    TransportSession,
)

if TYPE_CHECKING:
    from jmsclient.transport.link import Link

T = TypeVar("T")
NOTICE = 2.0
"""Seconds within which a transport that is lost has told its listener."""
_REFUSALS = (InvalidDestinationError, InvalidSelectorError, UnsupportedFeatureError)
_TOLD = ("default_read_ahead", "error_destination", "redelivery_delay")
"""What a receiver may tell about its destination."""


def earlier(one: float | None, other: float | None) -> float | None:
    """The earlier of two deadlines; None is none."""
    return one if other is None else other if one is None else min(one, other)


class LastingSink(Sink, Protocol):
    """A sink that goes on when its receiver is opened again. Others hear `closed` when the link is lost."""

    ended: bool
    """Wants nothing any more: its receiver is not opened again."""

    def renewed(self) -> None:
        """`receiver.present` is another one, or none: nothing that was asked for will come, and what is kept has gone back. Any
        thread. Returns quickly. Never raises. Saying it twice does no harm."""


class _Inflow:
    """The sink of one generation. What is delivered goes straight to the sink behind."""

    def __init__(self, receiver: LinkedReceiver, sink: Sink) -> None:
        self._receiver = receiver
        self.inner: Receiver | None = None
        self.delivered = sink.delivered
        self.recall = sink.recall

    def closed(self, error: Exception | None) -> None:
        self._receiver.closed_by_peer(self, error)


class LinkedReceiver(Receiver):
    """See the module. Thread-safe."""

    def __init__(self, session: LinkedSession, spec: ReceiverSpec, sink: Sink) -> None:
        self.spec = spec
        self.sink = sink
        self.inner: Receiver | None = None
        """Read without, written under the link's lock; so is `inflow`."""
        self.inflow: _Inflow | None = None
        self._session = session

    @property
    def present(self) -> Receiver | None:
        return self.inner

    @property
    def lasting(self) -> bool:
        """Its sink can go on."""
        return hasattr(self.sink, "renewed")

    def open(self, session: TransportSession, deadline: float | None) -> tuple[Receiver, _Inflow]:
        """One of that session that pushes to the same sink."""
        inflow = _Inflow(self, self.sink)
        inner = session.open_receiver(self.spec, inflow, deadline)
        return inner, inflow

    def enter(self, inner: Receiver, inflow: _Inflow) -> None:
        """That is the present one; under the lock."""
        self.inner, self.inflow = inner, inflow
        for name in _TOLD:
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))

    def tell(self, error: Exception | None) -> None:
        """The present one has changed; `error` where there is none now."""
        if self.lasting:
            cast("LastingSink", self.sink).renewed()
        elif error is not None:
            self.sink.closed(error)

    def refused(self, error: Exception) -> None:
        """It could not be opened again."""
        self.sink.closed(error)

    def closed_by_peer(self, inflow: _Inflow, error: Exception | None) -> None:
        """Only what the present one hears is worth telling."""
        with self._session.link.lock:
            current = self.inflow is inflow or self.inner is None
            if current:
                self._session.forget(self)
        if current:
            self.sink.closed(error)

    # -- the contract -----------------------------------------------------------------------------------------------

    def request(self, count: int) -> None:
        inner = self.inner
        if inner is not None:
            inner.request(count)

    def settle(self, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        for arrival in arrivals:  # of whatever generation
            arrival.receiver.settle((arrival,), outcome)

    def handing_over(self, arrivals: Sequence[Arrival]) -> None:
        for arrival in arrivals:
            arrival.receiver.handing_over((arrival,))

    def drain(self, deadline: float | None) -> None:
        inner, link = self.inner, self._session.link
        if inner is not None:
            inner.drain(deadline)
        elif link.over is not None:
            raise link.over_error()

    def close(self, deadline: float | None) -> None:
        with self._session.link.lock:
            inner, self.inner = self.inner, None
            self._session.forget(self)
        if inner is not None:
            with suppress(ConnectionLostError):
                inner.close(deadline)


class LinkedSender(Sender):
    """See the module. It is opened again by the next send."""

    def __init__(self, session: LinkedSession, destination: Destination) -> None:
        self._session = session
        self._destination = destination
        self._made: tuple[TransportSession, Sender] | None = None

    def open(self, deadline: float | None) -> Sender:
        """The one of the present link. Raises as `TransportSession.open_sender`."""
        made = self._session.ask(lambda inner: (inner, inner.open_sender(self._destination, deadline)), deadline)
        self._made = made
        return made[1]

    def send(
        self, messages: Sequence[PlainContent], *, room_deadline: float | None, confirm_timeout: float | None
    ) -> list[Receipt]:
        session = self._session
        while True:
            made = self._made
            sender = made[1] if made is not None and made[0] is session.inner else self._reopened(messages, room_deadline)
            first, session.used = not session.used, True
            try:
                return sender.send(messages, room_deadline=room_deadline, confirm_timeout=confirm_timeout)
            except ConnectionLostError as error:  # nothing was written
                if not self._lost(room_deadline):
                    raise self._unsent(messages, error) from error
                if first:
                    session.begin()
                elif session.transacted:
                    raise self._undone(error) from error
            except SendError as error:
                if session.transacted and isinstance(error.__cause__, ConnectionLostError) and self._lost(room_deadline):
                    raise self._undone(error) from error
                raise

    def _lost(self, deadline: float | None) -> bool:
        """Whether the link that it stands for is lost, once whoever lost it has told."""
        return self._session.changes(None if self._made is None else self._made[0], deadline)

    def _undone(self, error: Exception) -> TransactionRolledBackError:
        return TransactionRolledBackError(f"{self._destination.address}: {error}; the transaction was lost with its link")

    def _reopened(self, messages: Sequence[PlainContent], deadline: float | None) -> Sender:
        try:
            return self.open(deadline)
        except ConnectionLostError as error:
            if self._session.link.over is not None or self._session.closed:
                raise
            raise self._unsent(messages, error) from error

    def _unsent(self, messages: Sequence[PlainContent], error: Exception) -> SendError:
        ids = [one.message_id for one in messages if one.message_id is not None]
        return SendError(f"{self._destination.address}: {error}; nothing was sent", unsent=ids)

    def close(self, deadline: float | None) -> None:
        made, self._made = self._made, None
        if made is not None and made[0] is self._session.inner:
            with suppress(ConnectionLostError):
                made[1].close(deadline)


class Reopened:
    """A session of a new transport, before it is the present one."""

    def __init__(self, session: LinkedSession, inner: TransportSession | None, refused: JmsClientError | None) -> None:
        self._session = session
        self._inner = inner
        self._refused = refused
        self._opened: dict[LinkedReceiver, tuple[Receiver, _Inflow]] = {}
        self.refused: dict[LinkedReceiver, JmsClientError] = {}
        """Receivers that the provider does not open any more, and why."""
        self.receivers: tuple[LinkedReceiver, ...] = ()
        """Those that are open, once it is installed."""

    def open(self, deadline: float | None) -> None:
        """Its receivers."""
        for receiver in self._session.receivers:
            if getattr(receiver.sink, "ended", False):
                continue
            try:
                if self._inner is None:
                    raise self._refused or UnsupportedFeatureError("this session could not be opened again")
                self._opened[receiver] = receiver.open(self._inner, deadline)
            except _REFUSALS as error:
                self.refused[receiver] = error

    def install(self) -> list[Callable[[float | None], Any]]:
        """It is the present one; under the lock. Returns the closes of what was closed here meanwhile."""
        session, inner = self._session, self._inner
        if session.closed:
            return [] if inner is None else [inner.close]
        session.inner, session.refused = inner, self._refused
        gone: list[Callable[[float | None], Any]] = []
        entered = []
        for receiver, (made, inflow) in self._opened.items():
            if receiver in session.receivers:
                receiver.enter(made, inflow)
                entered.append(receiver)
            else:
                gone.append(made.close)
        for receiver in self.refused:
            session.forget(receiver)
        self.receivers = tuple(entered)
        return gone


class LinkedSession(TransportSession):
    """See the module. In a transacted session everything of one transaction is of one link: what was lost with another makes its
    commit fail (IF-28)."""

    def __init__(self, link: Link, *, transacted: bool) -> None:
        self.link = link
        self.inner: TransportSession | None = None
        """Read without, written under the link's lock."""
        self.refused: JmsClientError | None = None
        """Why the present provider does not have such a session."""
        self.receivers: tuple[LinkedReceiver, ...] = ()  # replaced whole, under the link's lock
        self.closed = False
        self.used = False
        """The open transaction has something in it."""
        self._torn = False  # and something of it was lost
        self.transacted = transacted

    # -- links come and go ------------------------------------------------------------------------------------------

    def lose(self) -> tuple[LinkedReceiver, ...]:
        """Its link is lost; under the lock. Returns the receivers to tell."""
        self._torn = self._torn or self.used
        self.inner = None
        receivers = self.receivers
        for receiver in receivers:
            receiver.inner = None
        self.receivers = tuple(receiver for receiver in receivers if receiver.lasting)
        return receivers

    def reopen(self, transport: Transport, deadline: float | None) -> Reopened:
        """The same on a new transport. Raises what the backend raises, but for refusals, which whoever asks for it next hears."""
        try:
            inner = transport.open_session(transacted=self.transacted, deadline=deadline)
        except UnsupportedFeatureError as error:
            reopened = Reopened(self, None, error)
        else:
            reopened = Reopened(self, inner, None)
        reopened.open(deadline)
        return reopened

    def begin(self) -> None:
        """The open transaction is empty, and nothing of it was lost."""
        self.used = self._torn = False

    def forget(self, receiver: LinkedReceiver) -> None:
        """It is closed; under the lock."""
        self.receivers = tuple(one for one in self.receivers if one is not receiver)

    # -- asking -----------------------------------------------------------------------------------------------------

    def changes(self, inner: TransportSession | None, deadline: float | None) -> bool:
        """Whether another one stands in its place, or none, within the time in which a loss is told."""
        return self.link.wait(lambda: self.inner is not inner, self.link.noticed(deadline))

    def _awaited(self, deadline: float | None) -> TransportSession:
        """The present one; waits for it."""
        link = self.link
        in_time = link.wait(lambda: self.inner is not None or self.refused or self.closed or link.over is not None, deadline)
        if self.closed:
            raise IllegalStateError("this session is closed")
        inner = self.inner
        if inner is not None:
            return inner
        if link.over is not None:
            raise link.over_error()
        if self.refused is not None:
            raise type(self.refused)(str(self.refused))
        why = "the link was lost" if in_time else "the link is lost and was not back in time"
        raise ConnectionLostError(f"{why}; it is tried further")

    def ask(self, call: Callable[[TransportSession], T], deadline: float | None) -> T:
        """Have it done on the present link; again, where that is lost before it is done: for what may be done twice."""
        while True:
            inner = self._awaited(deadline)
            try:
                return call(inner)
            except ConnectionLostError:
                if not self.changes(inner, deadline):
                    raise

    # -- the contract -----------------------------------------------------------------------------------------------

    def open_receiver(self, spec: ReceiverSpec, sink: Sink, deadline: float | None) -> Receiver:
        receiver = LinkedReceiver(self, spec, sink)
        while True:
            inner, made = self.ask(lambda inner: (inner, receiver.open(inner, deadline)), deadline)
            with self.link.lock:
                if self.inner is inner:
                    receiver.enter(*made)
                    self.receivers = (*self.receivers, receiver)
                    return receiver

    def open_sender(self, destination: Destination, deadline: float | None) -> Sender:
        sender = LinkedSender(self, destination)
        sender.open(deadline)
        return sender

    def serves(self, receiver: Receiver) -> bool:
        return any(one.inner is receiver for one in self.receivers)

    def enlist(self, arrival: Arrival) -> None:
        self.used = True
        if not self.serves(arrival.receiver):
            self._torn = True

    def flush(self, deadline: float | None) -> None:
        inner = self.inner
        if inner is not None:
            inner.flush(deadline)

    def commit(self, deadline: float | None) -> None:
        inner = self.inner  # before the look at what is torn: where it is another one by then, that says so
        if self._torn:
            self._undo(0.0, deadline)
            raise TransactionRolledBackError("the link was lost before the commit, and with it a part of the transaction")
        try:
            if inner is not None:
                inner.commit(deadline)
            elif self.refused is not None:
                raise type(self.refused)(str(self.refused))
        finally:
            self.begin()

    def rollback(self, *, redelivery_delay: float, deadline: float | None) -> None:
        self._undo(redelivery_delay, deadline)

    def _undo(self, redelivery_delay: float, deadline: float | None) -> None:
        """Where there is no link, the provider has done it."""
        inner = self.inner
        try:
            if inner is not None:
                with suppress(ConnectionLostError):
                    inner.rollback(redelivery_delay=redelivery_delay, deadline=deadline)
        finally:
            self.begin()

    def unsubscribe(self, name: str, deadline: float | None) -> None:
        self._awaited(deadline).unsubscribe(name, deadline)

    def create_temporary(self, kind: Literal["queue", "topic"], deadline: float | None) -> Destination:
        return self._awaited(deadline).create_temporary(kind, deadline)

    def delete_temporary(self, destination: Destination, deadline: float | None) -> None:
        self._awaited(deadline).delete_temporary(destination, deadline)

    def close(self, deadline: float | None) -> None:
        with self.link.lock:
            inner, self.inner, self.closed = self.inner, None, True
            receivers, self.receivers = self.receivers, ()
            for receiver in receivers:
                receiver.inner = None
            self.link.session_closed(self)
        self.link.changed()
        if inner is not None:
            with suppress(ConnectionLostError):
                inner.close(deadline)
