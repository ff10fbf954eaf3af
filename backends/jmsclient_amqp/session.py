"""A session: its receivers and senders, and what it does with them at its end.

Must not know frames. What is marked so runs on the I/O thread. Source: transport/contract.py; rules IF-9, IF-27.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jmsclient.destination import Destination
from jmsclient.errors import ConnectionLostError, IllegalStateError, JmsClientError, RequestTimeoutError
from jmsclient.transport.contract import ReceiverSpec, Sink, TransportSession
from jmsclient_amqp.engine.links import SessionHandle
from jmsclient_amqp.loop import Answer
from jmsclient_amqp.receiving import AmqpReceiver
from jmsclient_amqp.refusals import session_ended
from jmsclient_amqp.sending import AmqpSender

if TYPE_CHECKING:
    from jmsclient_amqp.transport import AmqpTransport


class AmqpSession(TransportSession):
    """Made by `AmqpTransport.open_session`. Thread-safe."""

    handle: SessionHandle

    def __init__(self, transport: AmqpTransport) -> None:
        self.transport = transport
        self.loop = transport.loop
        self.product = transport.product
        self._closed = False
        self._error: JmsClientError | None = None  # why the peer ended it
        self._receivers: dict[AmqpReceiver, None] = {}  # these belong to the I/O thread
        self._senders: dict[AmqpSender, None] = {}
        self._beginning: Answer[None] | None = None
        self._ending: Answer[None] | None = None
        self._ended = False  # by us
        self._over = False

    # -- the contract -----------------------------------------------------------------------------------------------

    def open_receiver(self, spec: ReceiverSpec, sink: Sink, deadline: float | None) -> AmqpReceiver:
        self.check_open()
        receiver = AmqpReceiver(self, spec, sink)
        receiver.open(deadline)
        return receiver

    def open_sender(self, destination: Destination, deadline: float | None) -> AmqpSender:
        self.check_open()
        sender = AmqpSender(self, destination)
        sender.open(deadline)
        return sender

    def check_open(self) -> None:
        """Raises ConnectionLostError where the link or the session is gone, IllegalStateError where it was closed."""
        self.transport.check_open()
        if self._error is not None:
            raise ConnectionLostError(str(self._error))
        if self._closed:
            raise IllegalStateError("this session is closed")

    def flush(self, deadline: float | None) -> None:
        self.check_open()
        self.loop.ask(self.transport.barrier, deadline, "the settlement of messages")

    def close(self, deadline: float | None) -> None:
        if self.loop.here:
            self._closed = True
            self.loop.tell(self._end, Answer(self.transport.clock))
            return
        if self._closed or self.transport.dead or self._error is not None:
            self._closed = True
            return
        try:
            self.loop.ask(self._end, deadline, "the end of a session")
        except RequestTimeoutError:
            self._closed = True
            self.loop.tell(self._end_now)
            raise
        except ConnectionLostError:
            pass  # it has ended while we asked; the broker takes everything back
        self._closed = True

    # -- on the I/O thread ------------------------------------------------------------------------------------------

    def begin(self, answer: Answer[None]) -> None:
        """Open it; the answer comes with the peer's."""
        self._beginning = answer
        self.handle = self.transport.engine.session()

    def attached(self, link: AmqpReceiver | AmqpSender) -> None:
        """It takes part from now on."""
        if isinstance(link, AmqpReceiver):
            self._receivers[link] = None
        else:
            self._senders[link] = None

    def detached(self, link: AmqpReceiver | AmqpSender) -> None:
        """It is gone."""
        if isinstance(link, AmqpReceiver):
            self._receivers.pop(link, None)
        else:
            self._senders.pop(link, None)

    def look(self) -> None:
        """New bytes have been processed: deliveries first, states after."""
        for receiver in tuple(self._receivers):
            receiver.look()
        for sender in tuple(self._senders):
            sender.look()
        if self._beginning is not None and self.handle.remote_open:
            beginning, self._beginning = self._beginning, None
            self.transport.answered(beginning)
            beginning.give(None)
        if self._ending is not None and not self._over:
            self._end_when_quiet()
        if not self._over and self.handle.remote_closed:
            self._ended_by_peer_or_us()

    def _end(self, answer: Answer[None], _: Any) -> None:
        """Give everything back, then end. What was handed over is counted, the rest is not (T13, T14)."""
        if self._over:
            answer.give(None)
            return
        self._ending = self.transport.awaited(answer)
        for receiver in tuple(self._receivers):
            receiver.stop_demand()
        self._end_when_quiet()

    def _end_when_quiet(self) -> None:
        """Once nothing more can arrive, so that what is on its way is given back by a word and not by the broker's habit."""
        if self._ended or not all(receiver.quiet for receiver in self._receivers):
            return
        self._end_now()

    def _end_now(self, *_: Any) -> None:
        if not self._ended and not self._over:
            self._ended = True
            for receiver in tuple(self._receivers):
                receiver.give_back()
            self.handle.close()

    def _ended_by_peer_or_us(self) -> None:
        self._over = True
        self.transport.forget(self)
        if self._ending is None:
            self._error = session_ended(self.handle.remote_condition)
            self.handle.close()
        error = self._error or ConnectionLostError("the session has ended")
        self._lose_links(error)
        for answer in (self._beginning, self._ending):
            if answer is not None:
                self.transport.answered(answer)
        if self._beginning is not None:
            self._beginning.fail(error)
        if self._ending is not None:
            self._ending.give(None)
        self.handle.free()

    def _lose_links(self, error: JmsClientError) -> None:
        for receiver in tuple(self._receivers):
            receiver.lost(error, alone=self._ending is None)
        for sender in tuple(self._senders):
            sender.lost(error)

    def lost(self, error: JmsClientError) -> None:
        """The connection has ended; the transport tells the listener."""
        self._over = True
        for receiver in tuple(self._receivers):
            receiver.lost(error, alone=False)
        for sender in tuple(self._senders):
            sender.lost(error)
