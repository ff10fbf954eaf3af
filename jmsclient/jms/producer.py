"""MessageProducer: makes what is sent from what people give, and hands it to a sender.

Owns the headers of a sent message (Jakarta Messaging 3.4, 7.8 to 7.10) and the ids. Must not know how a provider stores it.
Rules RA-2 (persistence), IF-30 to IF-32; api.md "Producing". One thread at a time, the session's.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING

from jmsclient.destination import Destination, Queue, parse_destination
from jmsclient.errors import ConfigurationError, IllegalStateError, UnsupportedFeatureError
from jmsclient.jms.ahead import Ahead, ids_of
from jmsclient.jms.outgoing import Sending, batch, contents
from jmsclient.message import Body, Message, PlainContent, PropertyValue, checked_properties
from jmsclient.options import seconds
from jmsclient.transport.contract import Begun, Receipt, Sender

if TYPE_CHECKING:
    from jmsclient.jms.session import Session

SEND_BATCH = 256
"""Messages of one part of a `send_many`. At most two are under way, so that an endless iterable does not fill the memory."""
_ANYWHERE = Queue("anywhere")


class MessageProducer:
    """Made by `Session.create_producer`. `close` from any thread; the rest one thread at a time."""

    def __init__(
        self,
        session: Session,
        destination: Destination | None,
        *,
        persistent: bool,
        priority: int,
        time_to_live: float | None,
        delivery_delay: float,
        send_timeout: float | None,
    ) -> None:
        self.destination = destination
        seconds("send_timeout", send_timeout, none=True)
        self.send_timeout = session.default_send_timeout if send_timeout is None else send_timeout
        self.closed = False
        self._session = session
        self._connection = session._connection
        self._clock = session.clock
        self._ids = session.message_ids
        self._senders: dict[str, Sender] = {}
        self._persistent = persistent
        self._usual = Sending(  # what most sends use, checked once
            destination or _ANYWHERE,
            persistent=persistent,
            priority=priority,
            time_to_live=time_to_live,
            delivery_delay=delivery_delay,
        )
        if delivery_delay:
            self._check_delay()

    @property
    def persistent(self) -> bool:
        """Whether a message is persistent where neither the send nor the destination's flag says so."""
        return self._persistent

    @property
    def priority(self) -> int:
        """Of a message whose send does not say."""
        return self._usual.priority

    @property
    def time_to_live(self) -> float | None:
        """Seconds, of a message whose send does not say; None: for ever."""
        return self._usual.time_to_live

    @property
    def delivery_delay(self) -> float:
        """Seconds, of a message whose send does not say."""
        return self._usual.delivery_delay

    def send(
        self,
        body: Body | Message,
        *,
        destination: str | Destination | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        correlation_id: str | None = None,
        reply_to: str | Destination | None = None,
        type: str | None = None,  # noqa: A002  the JMS header is called so
        persistent: bool | None = None,
        priority: int | None = None,
        time_to_live: float | None = None,
        delivery_delay: float | None = None,
    ) -> str:
        """Send one message and wait until the provider has it; its message id. What is given here wins over the message and
        the producer.

        Raises SendError, ResourceAllocationError (no room within `send_timeout`; nothing was sent), DestinationPausedError,
        MessageFormatError, ConfigurationError, IllegalStateError, ConnectionLostError; TransactionRolledBackError in a TRANSACTED
        session, where its transaction was lost with the link.
        """
        if destination is None and persistent is None and priority is None and time_to_live is None and delivery_delay is None:
            sending = self._usual
            if self.destination is None:
                raise self._nowhere_error()
        else:
            sending = self._sending(self._target(destination), persistent, priority, time_to_live, delivery_delay)
        extras = properties is not None or correlation_id is not None or reply_to is not None or type is not None
        given = body
        if extras and isinstance(body, Message):
            body = _overridden(body, properties, correlation_id, reply_to, type)
            extras = False
        made = contents((body,), sending, self._ids, self._clock.wall())
        if extras:
            _add(made[0], properties, correlation_id, reply_to, type)
        message_id = self._send(sending, made)[0].message_id
        if given.__class__ is not str and isinstance(given, Message) and isinstance(given.content, PlainContent):
            _mark_as_sent(given.content, made[0])
        return message_id

    def send_many(self, bodies: Iterable[Body | Message]) -> list[str]:
        """Send them all, pipelined, to the producer's destination; their message ids in order. When it returns, each is confirmed.

        On SendError those before are sent; its ids are those of the part that failed, and of the one behind it, if that was on
        its way. If the iterable raises, what it gave before, but for the last part, is sent.
        """
        if self.destination is None:
            raise self._nowhere_error()
        sending, rest = self._usual, iter(bodies)
        ids: list[str] = []
        ahead: Ahead | None = None
        try:
            while some := list(islice(rest, SEND_BATCH)):
                made = batch(some, sending, self._ids, self._clock.wall())
                if ahead is None and (len(some) < SEND_BATCH or not self._goes_ahead(sending)):
                    ids += ids_of(self._send(sending, made))
                else:
                    ahead = ahead or self._ahead(sending)
                    ids += ahead.send(made)
        except Exception:
            if ahead is not None:
                ahead.finish()
            raise
        except BaseException:
            if ahead is not None:
                ahead.stop()
            raise
        return ids if ahead is None else ids + ahead.finish()

    # -- making what is sent ----------------------------------------------------------------------------------------

    def _target(self, destination: str | Destination | None) -> Destination:
        if destination is None:
            if self.destination is None:
                raise self._nowhere_error()
            return self.destination
        given = parse_destination(destination)
        if self.destination is not None and given.address != self.destination.address:
            raise IllegalStateError(f"this producer sends to {self.destination.address}; to send to {given.address}, make another")
        return given

    def _nowhere_error(self) -> ConfigurationError:
        return ConfigurationError("no destination: this producer was made without one, so each send names it")

    def _sending(
        self,
        target: Destination,
        persistent: bool | None,
        priority: int | None,
        time_to_live: float | None,
        delivery_delay: float | None,
    ) -> Sending:
        """What this send says, and where it says nothing, what the producer does."""
        usual = self._usual
        sending = Sending(
            target,
            persistent=self._persistent if persistent is None else persistent,
            priority=usual.priority if priority is None else priority,
            time_to_live=usual.time_to_live if time_to_live is None else time_to_live,
            delivery_delay=usual.delivery_delay if delivery_delay is None else delivery_delay,
        )
        if sending.delivery_delay:
            self._check_delay()
        return sending

    def _check_delay(self) -> None:
        if not self._session.capabilities.delayed_delivery:
            raise UnsupportedFeatureError("delivery_delay: this provider does not deliver later; send it when it is due")

    # -- handing it over --------------------------------------------------------------------------------------------

    def _send(self, sending: Sending, made: Sequence[PlainContent]) -> Sequence[Receipt]:
        session = self._session
        me = get_ident()
        if self.closed:
            raise IllegalStateError("this producer is closed")
        if session.closed or self._connection.failure is not None:
            session.check_alive()
        if session.inside:
            raise session.busy_error()
        session.inside = me
        try:
            if session.owner:
                session.check_owner(me)
            sender = self._senders.get(sending.address) or self._open(sending.destination)
            return sender.send(made, room_deadline=self._clock.deadline(self.send_timeout), confirm_timeout=session.request_timeout)
        finally:
            session.inside = 0

    def _goes_ahead(self, sending: Sending) -> bool:
        sender = self._senders.get(sending.address)
        return sender is not None and sender.most_ahead > 0

    def _ahead(self, sending: Sending) -> Ahead:
        return Ahead(
            send=lambda part: self._send(sending, part),
            begin=lambda part, under_way: self._begin(sending, part, under_way),
            finish=self._finish,
        )

    def _begin(self, sending: Sending, made: Sequence[PlainContent], under_way: int) -> Begun | None:
        """As `Sender.begin`; None where that would be too much at once."""
        if self.closed:
            raise IllegalStateError("this producer is closed")

        def begin() -> Begun | None:
            sender = self._senders.get(sending.address)
            most = 0 if sender is None else sender.most_ahead
            if sender is None or not most or under_way + sum([content.size for content in made]) > most:
                return None
            return sender.begin(made)

        return self._session.run_inside(begin)

    def _finish(self, begun: Begun) -> Sequence[Receipt]:
        """As `Begun.finish`, whatever was closed meanwhile and whoever else is inside: it is to be told what became of it."""
        session = self._session
        if session.inside:
            return self._finished(begun)
        session.inside = get_ident()
        try:
            return self._finished(begun)
        finally:
            session.inside = 0

    def _finished(self, begun: Begun) -> Sequence[Receipt]:
        room = self._clock.deadline(self.send_timeout)
        return begun.finish(room_deadline=room, confirm_timeout=self._session.request_timeout)

    def _open(self, target: Destination) -> Sender:
        session = self._session
        deadline = self._clock.deadline(session.request_timeout)
        self._connection.transport.ready(deadline)

        def opened() -> Sender:
            self._senders[target.address] = sender = session.transport_session.open_sender(target, deadline)
            return sender

        return session.keeper.shielded(opened)

    def close(self) -> None:
        """Detach. Closing twice does nothing. From any thread."""
        if not self.closed:
            self.closed = True
            self._session.keeper.note(self._detach)
            self._session.producer_closed(self)

    def _detach(self) -> None:
        for sender in self._senders.values():
            sender.close(self._clock.deadline(self._session.request_timeout))

    def __enter__(self) -> MessageProducer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<MessageProducer {self.destination or 'to anywhere'}{' closed' if self.closed else ''}>"


def _overridden(
    message: Message,
    properties: Mapping[str, PropertyValue] | None,
    correlation_id: str | None,
    reply_to: str | Destination | None,
    type: str | None,  # noqa: A002
) -> Message:
    """A copy in which what the send says wins."""
    old = message.content
    return Message(
        old.body(),
        kind=old.kind,
        properties={**old.properties(), **(properties or {})},
        correlation_id=old.header("correlation_id") if correlation_id is None else correlation_id,
        reply_to=old.header("reply_to") if reply_to is None else reply_to,
        type=old.header("type") if type is None else type,
    )


def _add(
    content: PlainContent,
    properties: Mapping[str, PropertyValue] | None,
    correlation_id: str | None,
    reply_to: str | Destination | None,
    type: str | None,  # noqa: A002
) -> None:
    """What the send says beside the body."""
    content._properties = checked_properties(properties)
    content.correlation_id = correlation_id
    content.reply_to = None if reply_to is None else parse_destination(reply_to).address
    content.type = type


def _mark_as_sent(made: PlainContent, sent: PlainContent) -> None:
    """The headers that sending sets are then seen on the caller's own message (JM 3.4)."""
    for name in ("message_id", "destination", "timestamp", "expiration", "delivery_time", "persistent", "priority"):
        setattr(made, name, getattr(sent, name))
