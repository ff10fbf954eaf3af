"""A drain of one receiving link: asked for, asked for again, given up with its link where nobody ever answers.

Owns which phase a link is in, and who waits for its drain. Everything here runs on the I/O thread. It must not know how a link is
attached or what comes over it. Rules IF-18, IF-28.
"""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any

from jmsclient.errors import JmsClientError
from jmsclient.transport.contract import Arrival, Receiver, ReceiverSpec, Sink
from jmsclient_amqp.engine.links import ReceivingLink
from jmsclient_amqp.loop import Answer
from jmsclient_amqp.patience import DRAIN_AGAIN, Patience, blame, not_drained

if TYPE_CHECKING:
    from jmsclient_amqp.session import AmqpSession


class Phase(Enum):
    """The life of a link. Changed on the I/O thread only."""

    ATTACHING = "attaching"
    OPEN = "open"
    STOPPING = "stopping"
    """Closed by us: credit is being taken back; what still comes is released."""
    LINGERING = "lingering"
    """Closed by us, without credit, until what its session holds is settled (IF-27)."""
    RECYCLING = "recycling"
    """Detached for a moment, so that what was given back reaches others."""
    REATTACHING = "reattaching"
    DETACHING = "detaching"
    GONE = "gone"


class Draining(Receiver):
    """What `LinkLife` is built on. Names with one underscore are shared by the two, and by `AmqpReceiver`."""

    link: ReceivingLink

    def __init__(self, session: AmqpSession, spec: ReceiverSpec, sink: Sink) -> None:
        self.spec = spec
        self._session = session
        self._transport = session.transport
        self._loop = session.loop
        self._tell = session.loop.tell
        self._sink = sink
        self._what = f"a consumer of {spec.destination.address}"
        self._closed = False
        """Nothing is delivered any more, from whatever thread this was set."""
        self._gone: JmsClientError | None = None
        """Why it is gone, if that was not our doing."""
        self._phase = Phase.ATTACHING  # this and the rest belong to the I/O thread
        self._drains: list[Answer[None]] = []
        self._reminding = False
        self._patience = Patience(session.transport.settings.drain_timeout)

    def _begin_drain(self) -> None:
        """Ask for the credit back; its limit begins."""
        self._patience.begin(self._transport.clock.monotonic(), self.link.came)
        self._press_drain()

    def _press_drain(self) -> None:
        """Ask, and again while nobody answers: a broker may overlook a drain that comes just as it answers the one before (Artemis
        does, for good)."""
        self.link.drain()
        if not self._reminding:
            self._reminding = True
            self._loop.after(DRAIN_AGAIN, self._remind)

    def _remind(self) -> None:
        self._reminding = False
        waits = self._phase is Phase.STOPPING or (self._phase is Phase.OPEN and bool(self._drains))
        if not waits or self.link.drained:
            return
        if not self._patience.ended(self._transport.clock.monotonic(), self.link.came) or self._needed:
            self._press_drain()
        elif self._phase is Phase.STOPPING:
            self._detach_now()
        else:
            self._give_link_up()

    @property
    def _needed(self) -> bool:
        """What was accepted over it belongs to a transaction that is open still: an end of the link might undo that."""
        transaction = self._session.transaction
        return self._phase is Phase.OPEN and transaction is not None and transaction.open

    def _give_link_up(self) -> None:
        """Nobody answers the drain (IF-18). First whoever holds what nobody has seen gives it back, for only there is known what
        that is; then the link goes."""
        self._gone = error = not_drained(self._what, self._patience.limit)
        self._closed = True  # what still comes is given back
        drains, self._drains = self._drains, []
        self._sink.recall()
        self._tell(self._leave_link, error, drains)

    def _leave_link(self, error: JmsClientError, drains: list[Answer[None]]) -> None:
        if self._phase is Phase.OPEN:
            self._phase = Phase.DETACHING
            self._return_held()  # not marked as settled: whoever acknowledges one late is to hear that it comes again
            self.link.blame(blame(self._patience.limit))
            self._detach()
        self._sink.closed(error)
        for drain in drains:
            self._transport.answered(drain)
            drain.fail(error)

    def _detach_now(self, *_: Any) -> None:
        """The drain took too long."""
        if self._phase is Phase.STOPPING:
            self._detach()

    @abstractmethod
    def _detach(self) -> None:
        """Close the link, or only detach it where closing would delete what it stands for."""

    @abstractmethod
    def _return_held(self) -> list[Arrival]:
        """Settle all that is unsettled; which it was."""
