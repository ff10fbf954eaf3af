"""Messages: what a person holds (`Message`) and what a backend carries (`Content`).

A `Content` is decoded on first touch: identity and headers are cheap, properties and body are read when someone asks. A
`PlainContent` is the content a producer makes and the embedded broker keeps in memory. Source: Jakarta Messaging 3.1
sections 3.4 to 3.12; rule IF-19 for bodies that fail on first touch. Times are seconds since 1970 (JMS: milliseconds).
Messages are not thread-safe; contents are frozen once sent.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeAlias

from jmsclient.destination import Destination, parse_destination
from jmsclient.errors import MessageFormatError, MessageNotWriteableError

PropertyValue: TypeAlias = bool | int | float | str | None
Body: TypeAlias = str | bytes | dict[str, Any] | list[Any] | None

DEFAULT_PRIORITY = 4
_NAME = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_KEYWORDS = frozenset(("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"))


class MessageKind(Enum):
    """The JMS message kinds by what their body is."""

    TEXT = "text"
    BYTES = "bytes"
    MAP = "map"
    STREAM = "stream"
    OBJECT = "object"
    MESSAGE = "message"


class Content(ABC):
    """The lazy decoder of one message, as a backend hands it up."""

    __slots__ = ()

    message_id: str | None
    kind: MessageKind

    @abstractmethod
    def header(self, name: str) -> Any:
        """A header by its Python name (correlation_id, reply_to, type, destination, timestamp, priority, expiration,
        delivery_time, persistent); None where the message has none. Destinations are URIs as text."""

    @abstractmethod
    def properties(self) -> Mapping[str, PropertyValue]:
        """The application properties, decoded on first call."""

    @abstractmethod
    def body(self) -> Body:
        """The body by kind, decoded on first call, the caller's own copy. Raises MessageFormatError (IF-19)."""


class PlainContent(Content):
    """A whole message in memory. Nothing changes it after it was sent."""

    __slots__ = (
        "_body",
        "_properties",
        "correlation_id",
        "delivery_time",
        "destination",
        "expiration",
        "kind",
        "message_id",
        "persistent",
        "priority",
        "reply_to",
        "size",
        "timestamp",
        "type",
    )

    def __init__(
        self,
        *,
        kind: MessageKind,
        body: Body,
        properties: Mapping[str, PropertyValue] | None = None,
        message_id: str | None = None,
        destination: str | None = None,
        persistent: bool = True,
        priority: int = DEFAULT_PRIORITY,
        timestamp: float | None = None,
        expiration: float | None = None,
        delivery_time: float | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        type: str | None = None,  # noqa: A002  the JMS header is called so
        size: int | None = None,
    ) -> None:
        self.kind = kind
        self._body = body
        self._properties = properties or None
        self.message_id = message_id
        self.destination = destination
        self.persistent = persistent
        self.priority = priority
        self.timestamp = timestamp
        self.expiration = expiration
        self.delivery_time = delivery_time
        self.correlation_id = correlation_id
        self.reply_to = reply_to
        self.type = type
        self.size = body_size(body) if size is None else size

    def header(self, name: str) -> Any:
        return getattr(self, name)

    def properties(self) -> Mapping[str, PropertyValue]:
        return self._properties if self._properties is not None else _NO_PROPERTIES

    def body(self) -> Body:
        body = self._body
        if type(body) is dict:
            return dict(body)
        return list(body) if type(body) is list else body


_NO_PROPERTIES: Mapping[str, PropertyValue] = MappingProxyType({})


def body_size(body: Body) -> int:
    """Bytes of a body as statistics and limits count them; containers by the text of their parts."""
    if isinstance(body, str):
        return len(body) if body.isascii() else len(body.encode("utf-8", "surrogatepass"))
    if isinstance(body, bytes):
        return len(body)
    if isinstance(body, dict):
        return sum(len(key) + body_size(value) for key, value in body.items())
    if isinstance(body, list):
        return sum(body_size(value) for value in body)
    return 0 if body is None else 8


def kind_of(body: object) -> MessageKind:
    """The kind that a Python value makes: str TEXT, bytes BYTES, dict MAP, list STREAM, None MESSAGE."""
    for python, kind in _KIND_BY_TYPE.items():
        if isinstance(body, python):
            return kind
    if body is None:
        return MessageKind.MESSAGE
    raise MessageFormatError(f"a body of type {type(body).__name__}: expected str, bytes, dict, list or None")


_KIND_BY_TYPE: dict[type | tuple[type, ...], MessageKind] = {
    str: MessageKind.TEXT,
    (bytes, bytearray, memoryview): MessageKind.BYTES,
    Mapping: MessageKind.MAP,
    (list, tuple): MessageKind.STREAM,
}
_TYPES_OF_KIND: dict[MessageKind, tuple[type, ...]] = {
    MessageKind.TEXT: (str,),
    MessageKind.BYTES: (bytes,),
    MessageKind.OBJECT: (bytes,),
    MessageKind.MAP: (dict,),
    MessageKind.STREAM: (list,),
    MessageKind.MESSAGE: (),
}


def checked_body(body: object, kind: MessageKind | None = None) -> tuple[MessageKind, Body]:
    """A body as it may be sent, copied where it could change later, and its kind.

    Raises MessageFormatError for a body of another type than `kind` allows, a map key that is no text, or a value in a map or
    stream that JMS has no type for.
    """
    kind = kind or kind_of(body)
    if isinstance(body, bytearray | memoryview):
        body = bytes(body)
    elif isinstance(body, Mapping):
        body = dict(body)
    elif isinstance(body, tuple):
        body = list(body)
    if body is not None and not isinstance(body, _TYPES_OF_KIND[kind]):
        raise MessageFormatError(f"a {kind.name} message cannot carry a body of type {type(body).__name__}")
    if isinstance(body, dict):
        for key, value in body.items():
            if not isinstance(key, str) or not key:
                raise MessageFormatError(f"map key {key!r}: expected a text that is not empty")
            _check_element(value, f"map value of {key!r}")
    elif isinstance(body, list):
        for index, value in enumerate(body):
            _check_element(value, f"stream element {index}")
    return kind, body  # type: ignore[return-value]  # narrowed by _TYPES_OF_KIND


def _check_element(value: object, where: str) -> None:
    if value is not None and not isinstance(value, bool | int | float | str | bytes):
        raise MessageFormatError(f"{where} is a {type(value).__name__}: expected bool, int, float, str, bytes or None")


def checked_property(name: object, value: object) -> None:
    """Refuse what JMS refuses as a property (3.5.1, 3.8.1.1). Raises MessageFormatError naming the property."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.upper() in _KEYWORDS:
        raise MessageFormatError(f"property name {name!r}: expected a Java identifier that is no selector keyword")
    if name.startswith("JMS") and not name.startswith(("JMSX", "JMS_")):
        raise MessageFormatError(f"property name {name!r}: names that begin with JMS are reserved")
    if value is not None and not isinstance(value, bool | int | float | str):
        raise MessageFormatError(f"property {name!r} is a {type(value).__name__}: expected bool, int, float, str or None")


def checked_properties(properties: Mapping[str, PropertyValue] | None) -> dict[str, PropertyValue] | None:
    """A copy of properties as they may be sent; None where there are none."""
    if not properties:
        return None
    for name, value in properties.items():
        checked_property(name, value)
    return dict(properties)


_UNREAD: Any = object()
_new = object.__new__  # looked up once, not once a message


class Message:
    """One message: made by you to be sent, or received and then read-only.

    `body` is str, bytes, dict, list or None by `kind`. Decoding happens on first touch; a body that cannot be decoded raises
    MessageFormatError there and changes nothing else. Not thread-safe.
    """

    __slots__ = ("__weakref__", "_acknowledge", "_body", "_content", "_received", "arrival", "delivery_count")

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
        self._received = False
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
        self._received = True
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

    @property
    def reply_to(self) -> Destination | None:
        uri = self._content.header("reply_to")
        return None if uri is None else parse_destination(uri)

    @property
    def destination(self) -> Destination | None:
        uri = self._content.header("destination")
        return None if uri is None else parse_destination(uri)

    @property
    def type(self) -> str | None:
        return self._content.header("type")  # type: ignore[no-any-return]

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

    @property
    def properties(self) -> Mapping[str, PropertyValue]:
        """The application properties; read-only on a received message."""
        return MappingProxyType(dict(self._content.properties()))

    def set_property(self, name: str, value: PropertyValue) -> None:
        """Set one property of a message that you made. Raises MessageNotWriteableError on a received one."""
        if self._received:
            raise MessageNotWriteableError(f"property {name!r}: a received message is read-only; make a new Message")
        checked_property(name, value)
        content = self._content
        assert isinstance(content, PlainContent)
        content._properties = {**content.properties(), name: value}

    def acknowledge(self) -> None:
        """Acknowledge as the session's mode says: CLIENT all that the session delivered, AUTO nothing (JMS 3.6).

        Raises IllegalStateError on a closed session, and in a trigger's handler, where the trigger acknowledges (TR-28).
        """
        if self._acknowledge is not None:
            self._acknowledge(self)

    def __repr__(self) -> str:
        return f"<Message {self.message_id} {self.kind.name} count={self.delivery_count}>"
