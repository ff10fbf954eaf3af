"""What is opened on a connection that outlives its links: sessions that are opened again on each new one, with what is in them.

Each keeps what it was made from, and the one of the backend that it stands for at present, None during an outage. It must not know
how links are made (`link.py`). Rules IF-27, IF-28; cases O06, S08.

What waits for a link waits on the caller's thread, at most until its deadline. What may have happened is never repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from jmsclient.destination import Destination
from jmsclient.errors import (
    ConfigurationError,
    ConnectionLostError,
    IllegalStateError,
    JmsClientError,
    RequestTimeoutError,
    TransactionRolledBackError,
    UnsupportedFeatureError,
)
from jmsclient.transport.contract import Arrival, Receiver, ReceiverSpec, Sender, Sink, Transport, TransportSession
from jmsclient.transport.linked_receiver import Inflow, LinkedReceiver
from jmsclient.transport.linked_sender import LinkedSender

if TYPE_CHECKING:
    from jmsclient.transport.link import Link

T = TypeVar("T")
NOTICE = 2.0
"""Seconds within which a transport that is lost has told its listener."""
REFUSALS = (ConfigurationError, UnsupportedFeatureError)
"""What asking again does not change."""


def earlier(one: float | None, other: float | None) -> float | None:
    """The earlier of two deadlines; None is none."""
    return one if other is None else other if one is None else min(one, other)


class Reopened:
    """A session of a new transport, before it is the present one."""

    def __init__(self, session: LinkedSession, inner: TransportSession | None, refused: JmsClientError | None) -> None:
        self._session = session
        self._inner = inner
        self._refused = refused
        self._opened: dict[LinkedReceiver, tuple[Receiver, Inflow]] = {}
        self.refused: dict[LinkedReceiver, JmsClientError] = {}
        """Receivers that the provider does not open any more, and why."""
        self.later: dict[LinkedReceiver, JmsClientError] = {}
        """Those that may be opened later."""
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
            except REFUSALS as error:
                self.refused[receiver] = error
            except (ConnectionLostError, RequestTimeoutError):
                raise
            except JmsClientError as error:  # such as that somebody else has its subscription: no reason to keep others waiting
                self.later[receiver] = error

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
            receiver.inner = receiver.inflow = None
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
            except ConnectionLostError as error:
                if not self.changes(inner, deadline):
                    self.link.distrust(self, inner, error)

    # -- the contract -----------------------------------------------------------------------------------------------

    def open_receiver(self, spec: ReceiverSpec, sink: Sink, deadline: float | None) -> Receiver:
        receiver = LinkedReceiver(self, spec, sink)
        while True:
            inner, made = self.ask(lambda inner: (inner, receiver.open(inner, deadline)), deadline)
            with self.link.lock:
                if self.inner is inner:
                    receiver.enter(*made)
                    self.receivers = (*self.receivers, receiver)
                else:
                    continue
            receiver.entered()
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
            _let_go(receivers)
            self.link.session_closed(self)
        self.link.changed()
        if inner is not None:
            with suppress(ConnectionLostError):
                inner.close(deadline)


def _let_go(receivers: Iterable[LinkedReceiver]) -> None:
    for receiver in receivers:
        receiver.inner = None
