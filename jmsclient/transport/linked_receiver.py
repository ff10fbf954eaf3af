"""A receiver that is opened again on each new link, and what its sink has to do for that.

An arrival names the backend's receiver that it came from; that one is its generation: when its link is lost, settling it there
does nothing, and no other message is ever settled in its place. It must not know how links are made (`link.py`). Rules IF-17 and
IF-27, case O06.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, cast

from jmsclient.errors import ConnectionLostError
from jmsclient.transport.contract import Arrival, Outcome, Receiver, ReceiverSpec, Sink, TransportSession

if TYPE_CHECKING:
    from jmsclient.transport.linked import LinkedSession

_TOLD = ("default_read_ahead", "error_destination", "redelivery_delay")
"""What a receiver may tell about its destination."""


class LastingSink(Sink, Protocol):
    """A sink that goes on when its receiver is opened again. Others hear `closed` when the link is lost."""

    ended: bool
    """Wants nothing any more: its receiver is not opened again."""

    def renewed(self) -> None:
        """`receiver.present` is another one, or none: nothing that was asked for will come, and what is kept has gone back. Any
        thread. Returns quickly. Never raises. Saying it twice does no harm."""


class Inflow:
    """The sink of one generation. What is delivered goes straight to the sink behind."""

    def __init__(self, receiver: LinkedReceiver, sink: Sink) -> None:
        self._receiver = receiver
        self.over = False
        """Its receiver was closed by the peer, `error` says why."""
        self.error: Exception | None = None
        self.delivered = sink.delivered
        self.recall = sink.recall

    def closed(self, error: Exception | None) -> None:
        self.error, self.over = error, True
        self._receiver.closed_by_peer(self)


class LinkedReceiver(Receiver):
    """See the module. Thread-safe."""

    def __init__(self, session: LinkedSession, spec: ReceiverSpec, sink: Sink) -> None:
        self.spec = spec
        self.sink = sink
        self.inner: Receiver | None = None
        """Read without, written under the link's lock; so is `inflow`."""
        self.inflow: Inflow | None = None
        self._session = session

    @property
    def present(self) -> Receiver | None:
        return self.inner

    @property
    def lasting(self) -> bool:
        """Its sink can go on."""
        return hasattr(self.sink, "renewed")

    def open(self, session: TransportSession, deadline: float | None) -> tuple[Receiver, Inflow]:
        """One of that session that pushes to the same sink."""
        inflow = Inflow(self, self.sink)
        inner = session.open_receiver(self.spec, inflow, deadline)
        return inner, inflow

    def enter(self, inner: Receiver, inflow: Inflow) -> None:
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
        with self._session.link.lock:
            self._session.forget(self)
        self.sink.closed(error)

    def entered(self) -> None:
        """It is the present one, and known; the peer may have closed it before it was."""
        inflow = self.inflow
        if inflow is not None and inflow.over:
            self.closed_by_peer(inflow)

    def closed_by_peer(self, inflow: Inflow) -> None:
        """Only what the present one hears is worth telling. Where the peer does not say that it must not be, it is opened again."""
        error, link = inflow.error, self._session.link
        again = self.lasting and (error is None or isinstance(error, ConnectionLostError))
        with link.lock:
            if self.inflow is not inflow or link.over is not None:
                return
            self.inner = self.inflow = None
            if not again:
                self._session.forget(self)
        if again:
            self.tell(None)
            link.repair(self, error)
        else:
            self.sink.closed(error)

    def lacking(self) -> bool:
        """Its session has a link, and it is not open there."""
        return self.inner is None and self._session.inner is not None and self in self._session.receivers

    def reopen(self, deadline: float | None) -> None:
        """On the present link. Raises as `TransportSession.open_receiver`."""
        session = self._session
        on = session.inner
        if on is None:
            return
        try:
            inner, inflow = self.open(on, deadline)
        except ConnectionLostError as error:
            if not session.changes(on, deadline):
                session.link.distrust(session, on, error)
            raise
        with session.link.lock:
            wanted = self.lacking() and session.inner is on
            if wanted:
                self.enter(inner, inflow)
        if wanted:
            self.tell(None)
            self.entered()
        else:
            inner.close(deadline)

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
