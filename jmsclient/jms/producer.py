"""MessageProducer: makes what is sent from what people give, and hands it to a sender.

Owns the headers of a sent message (Jakarta Messaging 3.4, 7.8 to 7.10) and the ids. Must not know how a provider stores it.
Rules RA-2 (persistence), IF-30 to IF-32; api.md "Producing". One thread at a time, the session's.
"""

from __future__ import annotations

import math
from _thread import get_ident
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from jmsclient.destination import Destination, Persistence, parse_destination
from jmsclient.errors import ConfigurationError, IllegalStateError, UnsupportedFeatureError
from jmsclient.message import Body, Message, PlainContent, PropertyValue, checked_body, checked_properties
from jmsclient.options import seconds
from jmsclient.transport.contract import Sender

if TYPE_CHECKING:
    from jmsclient.jms.session import Session

SEND_BATCH = 256
"""Messages that `send_many` has under way at once, so that an endless iterable does not fill the memory."""


def _checked_priority(priority: int) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise ConfigurationError(f"priority={priority!r}: expected a whole number 0 to 9")
    return priority


def _checked_time_to_live(value: float | None) -> float | None:
    if value is not None:
        seconds("time_to_live", value, least=0.0)
        if value == 0:
            raise ConfigurationError("time_to_live=0: expected seconds > 0, or None for a message that never expires")
    return None if value == math.inf else value


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
        self.persistent = persistent
        self.priority = _checked_priority(priority)
        self.time_to_live = _checked_time_to_live(time_to_live)
        seconds("delivery_delay", delivery_delay)
        self.delivery_delay = delivery_delay
        seconds("send_timeout", send_timeout, none=True)
        self.send_timeout = session.default_send_timeout if send_timeout is None else send_timeout
        self.closed = False
        self._session = session
        self._clock = session.clock
        self._ids = session.message_ids
        self._senders: dict[str, Sender] = {}
        if delivery_delay:
            self._check_delay()

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
        MessageFormatError, ConfigurationError, IllegalStateError, ConnectionLostError.
        """
        target = self._target(destination)
        content = self._content(
            body,
            target,
            properties=properties,
            correlation_id=correlation_id,
            reply_to=reply_to,
            type=type,
            persistent=persistent,
            priority=priority,
            time_to_live=time_to_live,
            delivery_delay=delivery_delay,
        )
        message_id = self._send(target, [content])[0]
        if isinstance(body, Message) and isinstance(body.content, PlainContent):
            _mark_as_sent(body.content, content)
        return message_id

    def send_many(self, bodies: Iterable[Body | Message]) -> list[str]:
        """Send them all, pipelined, to the producer's destination; their message ids in order.

        On SendError those before are sent; its ids are those of the part that failed.
        """
        target = self._target(None)
        ids: list[str] = []
        batch: list[PlainContent] = []
        for body in bodies:
            batch.append(self._content(body, target))
            if len(batch) == SEND_BATCH:
                ids += self._send(target, batch)
                batch = []
        if batch:
            ids += self._send(target, batch)
        return ids

    # -- making what is sent ----------------------------------------------------------------------------------------

    def _target(self, destination: str | Destination | None) -> Destination:
        if destination is not None:
            if self.destination is not None:
                given = parse_destination(destination)
                if given.address != self.destination.address:
                    raise IllegalStateError(
                        f"this producer sends to {self.destination.address}; to send to {given.address}, make another"
                    )
                return given
            return parse_destination(destination)
        if self.destination is None:
            raise ConfigurationError("no destination: this producer was made without one, so each send names it")
        return self.destination

    def _content(
        self,
        body: Body | Message,
        target: Destination,
        *,
        properties: Mapping[str, PropertyValue] | None = None,
        correlation_id: str | None = None,
        reply_to: str | Destination | None = None,
        type: str | None = None,  # noqa: A002
        persistent: bool | None = None,
        priority: int | None = None,
        time_to_live: float | None = None,
        delivery_delay: float | None = None,
    ) -> PlainContent:
        if isinstance(body, Message):
            source = body.content
            kind, value = source.kind, source.body()
            properties = {**source.properties(), **(properties or {})}
            correlation_id = source.header("correlation_id") if correlation_id is None else correlation_id
            reply_to = source.header("reply_to") if reply_to is None else reply_to
            type = source.header("type") if type is None else type  # noqa: A001
        else:
            kind, value = checked_body(body)
        now = self._clock.wall()
        delay = self.delivery_delay
        if delivery_delay is not None:
            seconds("delivery_delay", delivery_delay)
            delay = delivery_delay
            if delay:
                self._check_delay()
        lives = self.time_to_live if time_to_live is None else _checked_time_to_live(time_to_live)
        return PlainContent(
            kind=kind,
            body=value,
            properties=checked_properties(properties) if properties else None,
            message_id=self._ids(),
            destination=target.address,
            persistent=self._is_persistent(target, persistent),
            priority=self.priority if priority is None else _checked_priority(priority),
            timestamp=now,
            expiration=None if lives is None else now + lives,
            delivery_time=now + delay if delay else None,
            correlation_id=correlation_id,
            reply_to=None if reply_to is None else parse_destination(reply_to).address,
            type=type,
        )

    def _is_persistent(self, target: Destination, persistent: bool | None) -> bool:
        """The destination's word wins over the caller's (MQ: NON and PERS), as the administrator's does."""
        if target.persistence is Persistence.APP or target.persistence is Persistence.QDEF:
            return self.persistent if persistent is None else persistent
        return target.persistence is Persistence.PERS

    def _check_delay(self) -> None:
        if not self._session.capabilities.delayed_delivery:
            raise UnsupportedFeatureError("delivery_delay: this provider does not deliver later; send it when it is due")

    # -- handing it over --------------------------------------------------------------------------------------------

    def _send(self, target: Destination, contents: list[PlainContent]) -> list[str]:
        session = self._session
        me = get_ident()
        if self.closed:
            raise IllegalStateError("this producer is closed")
        session.check_alive()
        if session.inside:
            raise session.busy_error()
        session.inside = me
        try:
            if session.owner:
                session.check_owner(me)
            sender = self._senders.get(target.address) or self._open(target)
            receipts = sender.send(
                contents,
                room_deadline=self._clock.deadline(self.send_timeout),
                confirm_timeout=session.request_timeout,
            )
        finally:
            session.inside = 0
        return [receipt.message_id for receipt in receipts]

    def _open(self, target: Destination) -> Sender:
        session = self._session
        deadline = self._clock.deadline(session.request_timeout)

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


def _mark_as_sent(made: PlainContent, sent: PlainContent) -> None:
    """The headers that sending sets are then seen on the caller's own message (JM 3.4)."""
    for name in ("message_id", "destination", "timestamp", "expiration", "delivery_time", "persistent", "priority"):
        setattr(made, name, getattr(sent, name))
