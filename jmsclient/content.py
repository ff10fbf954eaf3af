"""What a backend carries: the lazy content of one message, its kinds, and what may be a body.

A `Content` is decoded on first touch: identity and headers are cheap, properties and body are read when someone asks. A
`PlainContent` is the content a producer makes and the embedded broker keeps in memory. It must not know `Message`. Source: Jakarta
Messaging 3.1 sections 3.4 to 3.12; rule IF-19 for bodies that fail on first touch. Times are seconds since 1970 (JMS:
milliseconds). Contents are frozen once sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeAlias, overload

from jmsclient.conversion import PropertyValue, checked_scalar
from jmsclient.errors import MessageFormatError

Body: TypeAlias = str | bytes | dict[str, Any] | list[Any] | None

DEFAULT_PRIORITY = 4


class MessageKind(Enum):
    """The JMS message kinds by what their body is."""

    TEXT = "text"
    BYTES = "bytes"
    MAP = "map"
    STREAM = "stream"
    OBJECT = "object"
    MESSAGE = "message"


_TEXT = MessageKind.TEXT  # an enum's attribute costs ten times a global's


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

    def encoded(self) -> bytes | None:
        """The message as it came, to be kept where it cannot be read; None where the backend has it in no such form."""
        return None


class PlainContent(Content):
    """A whole message in memory. Nothing changes it after it was sent; `sequence` belongs to the backend that it was handed to."""

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
        "sequence",
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
        self.sequence = 0

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


class Texts(Sequence[PlainContent]):
    """TEXT messages that were sent at once, alike but for body and id; `size` is the bytes of all. They are made when somebody
    looks at them: those that wait are a few objects to the garbage collector, not one each. One thread at a time.

    `first` belongs to the backend that they were handed to, as `PlainContent.sequence` does: the number of the first; the others
    follow."""

    __slots__ = ("_made", "_taken", "bodies", "destination", "first", "ids", "persistent", "priority", "size", "timestamp")

    def __init__(
        self, bodies: list[str], ids: list[str], *, destination: str, persistent: bool, priority: int, timestamp: float
    ) -> None:
        self.bodies = bodies
        self.ids = ids
        self.destination = destination
        self.persistent = persistent
        self.priority = priority
        self.timestamp = timestamp
        self.size = sum(map(len, bodies)) if all(map(str.isascii, bodies)) else sum(map(body_size, bodies))
        self.first = 0
        self._taken = 0
        self._made: list[PlainContent] | None = None

    def __len__(self) -> int:
        return len(self.bodies)

    @overload
    def __getitem__(self, index: int) -> PlainContent: ...
    @overload
    def __getitem__(self, index: slice) -> list[PlainContent]: ...
    def __getitem__(self, index: int | slice) -> PlainContent | list[PlainContent]:
        return self.made()[index]

    def __iter__(self) -> Iterator[PlainContent]:
        return iter(self.made())

    def made(self) -> list[PlainContent]:
        """All of them, always the same ones."""
        if self._made is None:
            self._made = self._make(0, len(self.bodies), 0)
        return self._made

    @property
    def untouched(self) -> bool:
        """Nobody has looked at them yet, and none was taken."""
        return self._made is None and not self._taken

    @property
    def left(self) -> int:
        """How many `take` would give at most."""
        return len(self.bodies) - self._taken

    @property
    def sequence(self) -> int:
        """The number of the last."""
        return self.first + len(self.bodies) - 1

    def take(self, most: int) -> list[PlainContent]:
        """Up to `most` of those that were not taken yet, in order and numbered; for whoever had them `untouched`."""
        start = self._taken
        self._taken = end = min(start + most, len(self.bodies))
        made = self._make(start, end, 1)
        self.bodies[start:end] = [""] * (end - start)  # a body lives no longer than its message
        return made

    def _make(self, start: int, end: int, step: int) -> list[PlainContent]:
        """Hot path: plain stores, for a call with fourteen keywords costs five times as much."""
        made: list[PlainContent] = []
        new = PlainContent.__new__
        destination, persistent, priority, timestamp = self.destination, self.persistent, self.priority, self.timestamp
        sequence = self.first + start * step
        for body, message_id in zip(self.bodies[start:end], self.ids[start:end], strict=True):
            content = new(PlainContent)
            content.kind = _TEXT
            content._body = body
            content._properties = content.correlation_id = content.reply_to = content.type = None
            content.message_id = message_id
            content.destination = destination
            content.persistent = persistent
            content.priority = priority
            content.timestamp = timestamp
            content.expiration = content.delivery_time = None
            content.size = len(body) if body.isascii() else body_size(body)
            content.sequence = sequence
            sequence += step
            made.append(content)
        return made


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
    elif isinstance(body, list | tuple):
        body = list(body)
    if body is not None and not isinstance(body, _TYPES_OF_KIND[kind]):
        raise MessageFormatError(f"a {kind.name} message cannot carry a body of type {type(body).__name__}")
    if isinstance(body, dict):
        for key, value in body.items():
            if not isinstance(key, str) or not key:
                raise MessageFormatError(f"map key {key!r}: expected a text that is not empty")
            if type(value) not in _SAFE:
                body[key] = _checked_element(value, f"map value of {key!r}")
    elif isinstance(body, list):
        for index, value in enumerate(body):
            if type(value) not in _SAFE:
                body[index] = _checked_element(value, f"stream element {index}")
    return kind, body  # type: ignore[return-value]  # narrowed by _TYPES_OF_KIND


_SAFE = frozenset((str, float, bool, bytes, type(None)))
"""Types of elements that need no look at their value."""


def _checked_element(value: object, where: str) -> bytes | PropertyValue:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if value is not None and not isinstance(value, bool | int | float | str):
        raise MessageFormatError(f"{where} is a {type(value).__name__}: expected bool, int, float, str, bytes or None")
    return checked_scalar(value, where)
