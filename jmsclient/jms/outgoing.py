"""From a message someone made to the content that goes out: identity, destination and the sending options.

The message is copied, so that it can be changed and sent again (Jakarta Messaging 3.1 section 7.11). Ids are cheap: one random
prefix a connection and a counter.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping
from typing import TypedDict

from jmsclient.destination import Destination, Persistence, parse_destination
from jmsclient.errors import ConfigurationError
from jmsclient.message import DEFAULT_PRIORITY, Body, Message, PlainContent, PropertyValue, checked_body, checked_properties
from jmsclient.options import seconds


class MessageIds:
    """`ID:<prefix>-<n>`. Thread-safe: the counter's step is one C call."""

    def __init__(self) -> None:
        self._prefix = f"ID:{secrets.token_hex(8)}-"
        self._numbers = itertools.count(1)

    def next(self) -> str:
        return f"{self._prefix}{next(self._numbers)}"


def checked_priority(priority: int) -> int:
    """Raises ConfigurationError for anything but 0 to 9."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise ConfigurationError(f"priority={priority!r}: expected a whole number from 0 to 9")
    return priority


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
    """The content to send. `now` is wall-clock seconds; `time_to_live` (None or 0: for ever) and `delivery_delay` are seconds.

    The destination's own `persistence` flag overrides `persistent`. Raises ConfigurationError for a priority outside 0 to 9 and for
    negative or NaN times.
    """
    old = message.content
    return PlainContent(
        kind=old.kind,
        body=old.body(),  # a copy: what the caller does to theirs afterwards is not sent
        properties=dict(old.properties()) or None,
        correlation_id=old.header("correlation_id"),
        reply_to=old.header("reply_to"),
        type=old.header("type"),
        message_id=message_id,
        timestamp=now,
        **_sending(destination, now, persistent, priority, time_to_live, delivery_delay),
    )


def outgoing_body(
    body: Body,
    *,
    properties: Mapping[str, PropertyValue] | None,
    correlation_id: str | None,
    reply_to: str | Destination | None,
    type: str | None,  # noqa: A002  the JMS header is called so
    destination: Destination,
    message_id: str,
    now: float,
    persistent: bool,
    priority: int | None,
    time_to_live: float | None,
    delivery_delay: float,
) -> PlainContent:
    """As `outgoing`, from what a message would be made of: most sends never need the Message itself. Also raises
    MessageFormatError for a body or property that JMS has no type for."""
    kind, checked = checked_body(body)
    return PlainContent(
        kind=kind,
        body=checked,
        properties=checked_properties(properties),
        correlation_id=correlation_id,
        reply_to=None if reply_to is None else parse_destination(reply_to).address,
        type=type,
        message_id=message_id,
        timestamp=now,
        **_sending(destination, now, persistent, priority, time_to_live, delivery_delay),
    )


class _Sending(TypedDict):
    destination: str
    persistent: bool
    priority: int
    expiration: float | None
    delivery_time: float | None


def _sending(
    destination: Destination,
    now: float,
    persistent: bool,
    priority: int | None,
    time_to_live: float | None,
    delivery_delay: float,
) -> _Sending:
    """The headers that sending decides, checked."""
    seconds("time_to_live", time_to_live, none=True)
    seconds("delivery_delay", delivery_delay)
    flag = destination.persistence
    return {
        "destination": destination.address,
        "persistent": persistent if flag in (Persistence.APP, Persistence.QDEF) else flag is Persistence.PERS,
        "priority": DEFAULT_PRIORITY if priority is None else checked_priority(priority),
        "expiration": now + time_to_live if time_to_live else None,
        "delivery_time": now + delivery_delay if delivery_delay else None,
    }
