"""From what someone gives to be sent to the content that goes out: identity, destination and the sending options.

What is given is copied, so that it can be changed and sent again (Jakarta Messaging 3.1 section 7.11). Ids are cheap: one random
prefix a connection and a counter. `contents` is on the hot path: see there.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Sequence
from typing import cast

from jmsclient.destination import Destination, Persistence
from jmsclient.errors import ConfigurationError
from jmsclient.message import DEFAULT_PRIORITY, Body, Message, MessageKind, PlainContent, Texts, body_size, checked_body
from jmsclient.options import seconds

_TEXT, _BYTES = MessageKind.TEXT, MessageKind.BYTES
_ONLY_TEXT = {str}


class MessageIds:
    """`ID:<prefix>-<n>`. Thread-safe: the counter's step, `number`, is one C call."""

    __slots__ = ("number", "prefix")

    def __init__(self) -> None:
        self.prefix = f"ID:{secrets.token_hex(8)}-"
        self.number = itertools.count(1).__next__

    def next(self) -> str:
        return f"{self.prefix}{self.number()}"


def checked_priority(priority: int) -> int:
    """Raises ConfigurationError for anything but 0 to 9."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise ConfigurationError(f"priority={priority!r}: expected a whole number from 0 to 9")
    return priority


class Sending:
    """How messages are sent to one destination, checked once; each message copies it.

    `time_to_live` (None or 0: for ever) and `delivery_delay` are seconds. The destination's own `persistence` flag overrides
    `persistent`. Raises ConfigurationError for a priority outside 0 to 9 and for negative or NaN times.
    """

    __slots__ = ("address", "delivery_delay", "destination", "persistent", "priority", "time_to_live")

    def __init__(
        self,
        destination: Destination,
        *,
        persistent: bool = True,
        priority: int | None = None,
        time_to_live: float | None = None,
        delivery_delay: float = 0.0,
    ) -> None:
        seconds("time_to_live", time_to_live, none=True)
        seconds("delivery_delay", delivery_delay)
        flag = destination.persistence
        self.destination = destination
        self.address = destination.address
        self.persistent = persistent if flag in (Persistence.APP, Persistence.QDEF) else flag is Persistence.PERS
        self.priority = DEFAULT_PRIORITY if priority is None else checked_priority(priority)
        self.time_to_live = time_to_live
        self.delivery_delay = delivery_delay


def contents(bodies: Iterable[Body | Message], sending: Sending, ids: MessageIds, now: float) -> list[PlainContent]:
    """The contents to send, in order. `now` is wall-clock seconds. Raises MessageFormatError for a body that JMS has no type for.

    Hot path, so it is long: plain stores are five times as fast as a call with fourteen keywords (0.1 against 0.5 us), and what
    all have in common is looked up once.
    """
    made: list[PlainContent] = []
    new, prefix, number = PlainContent.__new__, ids.prefix, ids.number
    address, persistent, priority = sending.address, sending.persistent, sending.priority
    expiration = now + sending.time_to_live if sending.time_to_live else None
    delivery_time = now + sending.delivery_delay if sending.delivery_delay else None
    for body in bodies:
        content = new(PlainContent)
        if type(body) is str:
            content.kind = _TEXT
            content.size = len(body) if body.isascii() else body_size(body)
        elif type(body) is bytes:
            content.kind = _BYTES
            content.size = len(body)
        elif isinstance(body, Message):
            made.append(_from_message(body, sending, f"{prefix}{number()}", now))
            continue
        else:
            content.kind, body = checked_body(body)
            content.size = body_size(body)
        content._body = body
        content._properties = content.correlation_id = content.reply_to = content.type = None
        content.message_id = f"{prefix}{number()}"
        content.destination = address
        content.persistent = persistent
        content.priority = priority
        content.timestamp = now
        content.expiration = expiration
        content.delivery_time = delivery_time
        content.sequence = 0
        made.append(content)
    return made


def batch(bodies: list[Body | Message], sending: Sending, ids: MessageIds, now: float) -> Sequence[PlainContent]:
    """As `contents`; texts that neither expire nor wait for a time are made when somebody looks at them. The list is ours."""
    if sending.time_to_live or sending.delivery_delay or set(map(type, bodies)) != _ONLY_TEXT:
        return contents(bodies, sending, ids, now)
    prefix, number = ids.prefix, ids.number
    return Texts(
        cast(list[str], bodies),
        [f"{prefix}{number()}" for _ in bodies],
        destination=sending.address,
        persistent=sending.persistent,
        priority=sending.priority,
        timestamp=now,
    )


def outgoing(
    message: Message,
    *,
    destination: Destination,
    message_id: str,
    now: float,
    persistent: bool = True,
    priority: int | None = None,
    time_to_live: float | None = None,
    delivery_delay: float = 0.0,
) -> PlainContent:
    """The content of one message to send; arguments and errors are those of `Sending`. `now` is wall-clock seconds."""
    sending = Sending(
        destination, persistent=persistent, priority=priority, time_to_live=time_to_live, delivery_delay=delivery_delay
    )
    return _from_message(message, sending, message_id, now)


def _from_message(message: Message, sending: Sending, message_id: str, now: float) -> PlainContent:
    old = message.content
    body = old.body()  # a copy: what the caller does to theirs afterwards is not sent
    if type(body) is dict or type(body) is list:
        body = checked_body(body, old.kind)[1]  # theirs could be changed since it was checked
    return PlainContent(
        kind=old.kind,
        body=body,
        properties=dict(old.properties()) or None,
        correlation_id=old.header("correlation_id"),
        reply_to=old.header("reply_to"),
        type=old.header("type"),
        message_id=message_id,
        timestamp=now,
        destination=sending.address,
        persistent=sending.persistent,
        priority=sending.priority,
        expiration=now + sending.time_to_live if sending.time_to_live else None,
        delivery_time=now + sending.delivery_delay if sending.delivery_delay else None,
    )
