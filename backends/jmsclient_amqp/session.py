"""A session: its receivers and senders, and what it does with them at its end.

Must not know frames. What is marked so runs on the I/O thread. Source: transport/contract.py; rules IF-9, IF-27.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from jmsclient.destination import Destination
from jmsclient.errors import (
    ConnectionLostError,
    IllegalStateError,
    JmsClientError,
    RequestTimeoutError,
    TransactionInDoubtError,
    TransactionRolledBackError,
    UnsupportedFeatureError,
)
from jmsclient.transport.contract import ReceiverSpec, Sink, TransportSession
from jmsclient_amqp.engine.links import SessionHandle
from jmsclient_amqp.loop import Answer
from jmsclient_amqp.receiving import AmqpReceiver
from jmsclient_amqp.receiving_link import LinkLife
from jmsclient_amqp.refusals import session_ended
from jmsclient_amqp.sending import AmqpSender
from jmsclient_amqp.subscriptions import Removal
from jmsclient_amqp.temporary import Temporary
from jmsclient_amqp.transaction import Transaction

if TYPE_CHECKING:
    from jmsclient_amqp.transport import AmqpTransport


class AmqpSession(TransportSession):
    """Made by `AmqpTransport.open_session`. Thread-safe."""

    handle: SessionHandle

    def __init__(self, transport: AmqpTransport, *, transacted: bool) -> None:
        self.transport = transport
        self.loop = transport.loop
        self.product = transport.product
        self._closed = False
        self._error: JmsClientError | None = None  # why the peer ended it
        self._receivers: dict[LinkLife, None] = {}  # these belong to the I/O thread
        self._senders: dict[AmqpSender, None] = {}
        self._parts: dict[Removal | Temporary, None] = {}
        self._beginning: Answer[None] | None = None
        self._ending: Answer[None] | None = None
        self.transaction = Transaction(self) if transacted else None
        self._ended = False  # by us: everything was given back
        self._alone = False  # and the end was sent
        self.over = False
        """It has ended, by whomever."""

    # -- the contract -----------------------------------------------------------------------------------------------

    def open_receiver(self, spec: ReceiverSpec, sink: Sink, deadline: float | None) -> AmqpReceiver:
        self.check_open()
        if spec.no_local and not self.product.no_local:
            raise UnsupportedFeatureError(
                f"no_local: {self.transport.peer.product} delivers its own messages to a connection all the same"
            )
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

    # -- subscriptions and temporary destinations -------------------------------------------------------------------

    def unsubscribe(self, name: str, deadline: float | None) -> None:
        self.check_open()
        if not self.transport.capabilities.durable_subscriptions:
            raise UnsupportedFeatureError(f"{self.transport.peer.product} has no durable subscriptions here")
        if not self.transport.has_client_id and not self.transport.capabilities.shared_subscriptions:
            raise UnsupportedFeatureError(
                f"subscription {name!r}: {self.transport.peer.product} has no shared ones, and others belong to a client id; "
                "connect(client_id=…) with that of the subscription"
            )
        self.loop.ask(self._unsubscribe, deadline, f"the end of subscription {name!r}", name)

    def _unsubscribe(self, answer: Answer[None], name: str) -> None:
        if self.transport.link_names.is_open(name):
            answer.fail(IllegalStateError(f"subscription {name!r}: this connection has a consumer open on it"))
            return
        removal = Removal(self, name, self.transport.awaited(answer))
        self.part(removal)
        removal.begin()

    def create_temporary(self, kind: Literal["queue", "topic"], deadline: float | None) -> Destination:
        self.check_open()
        if not self.product.temporary:
            raise UnsupportedFeatureError(f"{self.transport.peer.product} makes no temporary destinations over AMQP 1.0")
        if kind == "topic" and not self.transport.capabilities.topics:
            raise UnsupportedFeatureError(f"{self.transport.peer.product} offers no topics here")
        return self.transport.create_temporary(kind, deadline)

    def delete_temporary(self, destination: Destination, deadline: float | None) -> None:
        self.check_open()
        self.transport.delete_temporary(destination, deadline)

    # -- transactions -----------------------------------------------------------------------------------------------

    def commit(self, deadline: float | None) -> None:
        transaction = self._transaction("commit")
        answer: Answer[None] = Answer(self.transport.clock)
        try:
            self.check_open()
            self.loop.ask_with(answer, lambda *_: self._discharge(answer, fail=False), deadline, "a commit")
        except RequestTimeoutError as error:
            self.loop.tell(lambda *_: transaction.abandon(answer))
            raise TransactionInDoubtError(f"whether the commit happened is not known: {error}") from error
        except ConnectionLostError as error:
            raise TransactionRolledBackError(f"the connection was lost before the commit: {error}") from error

    def rollback(self, *, redelivery_delay: float, deadline: float | None) -> None:
        transaction = self._transaction("rollback")
        answer: Answer[None] = Answer(self.transport.clock)
        if self.transport.dead or self._error is not None:
            return  # the broker has done it
        self.check_open()
        try:
            self.loop.ask_with(answer, lambda *_: self._discharge(answer, fail=True), deadline, "a rollback")
        except RequestTimeoutError:
            self.loop.tell(lambda *_: transaction.abandon(answer))
            raise
        except (ConnectionLostError, TransactionInDoubtError):
            pass  # the broker does it

    def _transaction(self, what: str) -> Transaction:
        if self.transaction is None:
            raise IllegalStateError(f"{what}: this session is not transacted")
        return self.transaction

    def _discharge(self, answer: Answer[None], *, fail: bool) -> None:
        assert self.transaction is not None
        self.transaction.discharge(self.transport.awaited(answer), fail=fail)

    # -- the end ----------------------------------------------------------------------------------------------------

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
        self.handle = self.transport.engine.session()
        if self.transaction is None:
            self._beginning = answer
        else:
            self.transaction.begin(answer)

    def attached(self, link: LinkLife | AmqpSender) -> None:
        """It takes part from now on."""
        if isinstance(link, LinkLife):
            self._receivers[link] = None
        else:
            self._senders[link] = None

    def part(self, part: Removal | Temporary) -> None:
        """It takes part from now on, and is neither receiver nor sender."""
        self._parts[part] = None

    def parted(self, part: Removal | Temporary) -> None:
        """It is gone."""
        self._parts.pop(part, None)

    def receives_from(self, address: str) -> bool:
        """A receiver is open on the destination of this URI."""
        return any(receiver.open_on(address) for receiver in self._receivers)

    def detached(self, link: LinkLife | AmqpSender) -> None:
        """It is gone."""
        if isinstance(link, LinkLife):
            self._receivers.pop(link, None)
        else:
            self._senders.pop(link, None)

    def look(self) -> None:
        """New bytes have been processed: deliveries first, states after."""
        for receiver in tuple(self._receivers):
            receiver.look()
        for sender in tuple(self._senders):
            sender.look()
        for part in tuple(self._parts):
            part.look()
        if self.transaction is not None:
            self.transaction.look()
        if self._beginning is not None and self.handle.remote_open:
            beginning, self._beginning = self._beginning, None
            self.transport.answered(beginning)
            beginning.give(None)
        if self._ending is not None and not self.over:
            self._end_when_quiet()
        if self._ended and not self._alone and not self.over:
            self._end_when_alone()
        if not self.over and self.handle.remote_closed:
            self._ended_by_peer_or_us()

    def _end(self, answer: Answer[None], _: Any) -> None:
        """Give everything back, then end. What was handed over is counted, the rest is not (T13, T14)."""
        if self.over:
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
        if not self._ended and not self.over:
            self._ended = True
            for receiver in tuple(self._receivers):
                receiver.give_back()
            if self.transaction is not None and self.transaction.used:
                self.transaction.discharge(None, fail=True)
            self._end_when_alone()

    def _end_when_alone(self) -> None:
        """Once the sessions of its receivers have ended: one broker answers only one of two ends that come together."""
        if not any(receiver.apart for receiver in self._receivers):
            self._alone = True
            self.handle.close()
            if self.product.end_patience is not None:
                self.loop.after(self.product.end_patience, self._end_unanswered)

    def _end_unanswered(self) -> None:
        if not self.over:
            self._ended_by_peer_or_us()

    def _ended_by_peer_or_us(self) -> None:
        if self._ending is None and self.product.refuses_by_end and self._senders:
            self._begin_again()
            return
        self.over = True
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
        if self.handle.remote_closed:
            self.handle.free()

    def _begin_again(self) -> None:
        """It was ended because a sender was not wanted, or what it sent; receivers have sessions of their own there. Senders attach
        again when they are used."""
        condition = self.handle.remote_condition
        senders = tuple(self._senders)
        wanted = {sender: sender.attaching for sender in senders}
        for sender in senders:
            if not wanted[sender]:
                sender.lost(session_ended(condition))
        self.handle.close()
        self.handle.free()
        self.handle = self.transport.engine.session()
        for sender in senders:
            if wanted[sender]:
                sender.session_refused(condition)

    def _lose_links(self, error: JmsClientError) -> None:
        for receiver in tuple(self._receivers):
            receiver.lost(error, alone=self._ending is None)
        for sender in tuple(self._senders):
            sender.lost(error)
        for part in tuple(self._parts):
            part.lost(error)
        if self.transaction is not None:
            self.transaction.connection_lost(error)

    def lost(self, error: JmsClientError) -> None:
        """The connection has ended; the transport tells the listener."""
        self.over = True
        for receiver in tuple(self._receivers):
            receiver.lost(error, alone=False)
        for sender in tuple(self._senders):
            sender.lost(error)
        for part in tuple(self._parts):
            part.lost(error)
        if self.transaction is not None:
            self.transaction.connection_lost(error)
