"""Message: what a person holds. Made by you to be sent, or received and then read-only until cleared.

The content below is decoded on first touch (`jmsclient.content`); a received message that you change gets a copy of its own, for
others may read the same content. Source: Jakarta Messaging 3.1 sections 3.4 to 3.12; C06; rule IF-19 for bodies that fail on first
touch. Times are seconds since 1970 (JMS: milliseconds). Messages are not thread-safe.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from jmsclient.content import (
    DEFAULT_PRIORITY,
    Body,
    Content,
    MessageKind,
    PlainContent,
    Texts,
    body_size,
    checked_body,
    kind_of,
)
from jmsclient.conversion import Int, PropertyValue, V, checked_properties, checked_property, convert
from jmsclient.destination import Destination, parse_destination
from jmsclient.errors import MessageFormatError, MessageNotWriteableError

__all__ = [
    "DEFAULT_PRIORITY",
    "Body",
    "Content",
    "Message",
    "MessageKind",
    "PlainContent",
    "PropertyValue",
    "Texts",
    "body_size",
    "checked_body",
    "checked_properties",
    "checked_property",
    "kind_of",
]

_UNREAD: Any = object()
_new = object.__new__  # looked up once, not once a message
_SHARED, _BODY, _PROPERTIES = 1, 2, 4  # what may not be written: the content (others read it), the body, the properties
_RECEIVED = _SHARED | _BODY | _PROPERTIES
_CLEARED: dict[MessageKind, Callable[[], Body]] = {MessageKind.BYTES: bytes, MessageKind.MAP: dict, MessageKind.STREAM: list}
DELIVERY_COUNT = "JMSXDeliveryCount"


class Message:
    """One message: made by you to be sent, or received and then read-only.

    `body` is str, bytes, dict, list or None by `kind` (OBJECT: the bytes as they came, never deserialised). Decoding happens on
    first touch; a body that cannot be decoded raises MessageFormatError there and changes nothing else. The body and the
    properties of a received message are read-only until `clear_body` and `clear_properties`; the headers that a sender sets,
    correlation_id, reply_to and type, may be written always (JM 3.10). Not thread-safe.
    """

    __slots__ = ("__weakref__", "_acknowledge", "_body", "_content", "_locked", "arrival", "delivery_count")

    def __init__(
        self,
        body: Body = None,
        *,
        kind: MessageKind | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        correlation_id: str | None = None,
        reply_to: str | Destination | None = None,
        type: str | None = None,  # noqa: A002  the JMS header is called so
    ) -> None:
        kind, body = checked_body(body, kind)
        self._content: Content = PlainContent(
            kind=kind,
            body=body,
            properties=checked_properties(properties),
            correlation_id=correlation_id,
            reply_to=None if reply_to is None else parse_destination(reply_to).address,
            type=type,
        )
        self._body: Body = body
        self._locked = 0
        self._acknowledge: Callable[[Message], None] | None = None
        self.arrival: Any = None
        self.delivery_count = 0

    @classmethod
    def received(
        cls,
        content: Content,
        delivery_count: int,
        acknowledge: Callable[[Message], None] | None = None,
        arrival: Any = None,
    ) -> Message:
        """A received message around its content (for the rooms that hand over; not for applications)."""
        self = _new(cls)
        self._content = content
        self._body = _UNREAD
        self._locked = _RECEIVED
        self._acknowledge = acknowledge
        self.arrival = arrival
        self.delivery_count = delivery_count
        return self

    # -- the body ---------------------------------------------------------------------------------------------------

    @property
    def content(self) -> Content:
        """The content below, for stores and backends."""
        return self._content

    @property
    def kind(self) -> MessageKind:
        return self._content.kind

    @property
    def body(self) -> Body:
        if self._body is _UNREAD:
            self._body = self._content.body()
        return self._body

    @body.setter
    def body(self, body: Body) -> None:
        """Raises MessageNotWriteableError on a received message that was not cleared, MessageFormatError for what this kind cannot
        carry."""
        if self._locked & _BODY:
            raise MessageNotWriteableError("a received message is read-only; call clear_body() first, or make a new Message")
        own = self._own()
        _, self._body = checked_body(body, own.kind)
        own._body = self._body
        own.size = body_size(self._body)

    def clear_body(self) -> None:
        """Make the body writeable and empty, by kind: None, b"", {} or []. The rest stays (JM 3.11.2)."""
        self._body = _CLEARED.get(self.kind, _nothing)()
        own = self._own()
        own._body = self._body
        own.size = 0
        self._locked &= ~_BODY

    @property
    def text(self) -> str | None:
        """The body of a TEXT message; None where it has none. Raises MessageFormatError for another kind."""
        body = self.body
        if body is not None and not isinstance(body, str):
            raise MessageFormatError(f"a {self.kind.name} message has no text; read .body")
        return body

    # -- headers ----------------------------------------------------------------------------------------------------

    @property
    def message_id(self) -> str | None:
        return self._content.message_id

    @property
    def timestamp(self) -> float | None:
        """When it was sent, seconds since 1970."""
        return self._content.header("timestamp")  # type: ignore[no-any-return]

    @property
    def correlation_id(self) -> str | None:
        return self._content.header("correlation_id")  # type: ignore[no-any-return]

    @correlation_id.setter
    def correlation_id(self, value: str | None) -> None:
        self._own().correlation_id = value

    @property
    def reply_to(self) -> Destination | None:
        uri = self._content.header("reply_to")
        return None if uri is None else parse_destination(uri)

    @reply_to.setter
    def reply_to(self, value: str | Destination | None) -> None:
        self._own().reply_to = None if value is None else parse_destination(value).address

    @property
    def destination(self) -> Destination | None:
        uri = self._content.header("destination")
        return None if uri is None else parse_destination(uri)

    @property
    def type(self) -> str | None:
        return self._content.header("type")  # type: ignore[no-any-return]

    @type.setter  # noqa: A003  the JMS header is called so
    def type(self, value: str | None) -> None:
        self._own().type = value

    @property
    def persistent(self) -> bool:
        return bool(self._content.header("persistent"))

    @property
    def priority(self) -> int:
        priority = self._content.header("priority")
        return DEFAULT_PRIORITY if priority is None else int(priority)

    @property
    def expiration(self) -> float | None:
        """When it expires, seconds since 1970; None: never."""
        return self._content.header("expiration")  # type: ignore[no-any-return]

    @property
    def delivery_time(self) -> float | None:
        """When it may be delivered at the earliest, seconds since 1970; None: at once."""
        return self._content.header("delivery_time")  # type: ignore[no-any-return]

    @property
    def redelivered(self) -> bool:
        """Delivered before, as far as the provider says (IF-11)."""
        return self.delivery_count > 1

    # -- properties -------------------------------------------------------------------------------------------------

    @property
    def properties(self) -> Mapping[str, PropertyValue]:
        """The application properties, a view of this moment; written with `set_property`."""
        return MappingProxyType(dict(self._content.properties()))

    def get_property(self, name: str, type: builtins.type[V]) -> V | None:  # noqa: A002  JMS has one call for each
        """One property read as `type`: bool, Byte, Short, Int, int (a long), Float, float (a double) or str; None where it is not
        set. `JMSXDeliveryCount` is the delivery count, where the provider gives one.

        Raises MessageFormatError where the conversion table of JM 3.5.4 does not allow it: a number is read as one of its own
        kind that is as wide or wider, anything as a text, and a text as whatever it spells."""
        value = self._content.properties().get(name)
        if name == DELIVERY_COUNT and self.delivery_count > 0:
            value = Int(self.delivery_count)
        return convert(value, type, f"property {name!r}")

    def set_property(self, name: str, value: PropertyValue) -> None:
        """Set one property. Raises MessageNotWriteableError on a received message that was not cleared, MessageFormatError for a
        name or a value that JMS has no room for (JM 3.5.1)."""
        if self._locked & _PROPERTIES:
            raise MessageNotWriteableError(
                f"property {name!r}: a received message is read-only; call clear_properties() first, or make a new Message"
            )
        value = checked_property(name, value)
        own = self._own()
        own._properties = {**own.properties(), name: value}

    def clear_properties(self) -> None:
        """Make the properties writeable, and none of them set. The body and the headers stay (JM 3.5.7)."""
        own = self._own()
        own._properties = None
        self._locked &= ~_PROPERTIES

    def _own(self) -> PlainContent:
        """The content, to be written: a copy where others read it too. Raises MessageFormatError for a body that is none."""
        if self._locked & _SHARED:
            old = self._content
            self._content = PlainContent(
                kind=old.kind,
                body=self.body,
                properties=dict(old.properties()),
                message_id=old.message_id,
                priority=self.priority,
                persistent=self.persistent,
                **{name: old.header(name) for name in _COPIED},
            )
            self._locked &= ~_SHARED
        content = self._content
        assert isinstance(content, PlainContent)
        return content

    def acknowledge(self) -> None:
        """Acknowledge as the session's mode says: CLIENT all that the session delivered, AUTO nothing (JMS 3.6).

        Raises IllegalStateError on a closed session, and in a trigger's handler, where the trigger acknowledges (TR-28).
        """
        if self._acknowledge is not None:
            self._acknowledge(self)

    def __repr__(self) -> str:
        return f"<Message {self.message_id} {self.kind.name} count={self.delivery_count}>"


_COPIED = ("destination", "timestamp", "expiration", "delivery_time", "correlation_id", "reply_to", "type")


def _nothing() -> None:
    """The body of a new message of the other kinds."""
