"""A message as it arrived: its bytes, and what is read from them when somebody asks.

Owns the mapping from AMQP sections to JMS kinds, headers and properties (C04). The id and the body of the usual forms are
sliced out of the bytes; everything else goes through the decoder, once. Pure. A Java object or a pickle stays bytes. Source:
the JMS mapping of AMQP 1.0; Jakarta Messaging 3.4 to 3.11.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from jmsclient.errors import MessageFormatError
from jmsclient.message import Body, Content, MessageKind, PropertyValue
from jmsclient_amqp.header import Header
from jmsclient_amqp.naming import QUEUE, TOPIC, Naming
from jmsclient_amqp.primitives import Opaque, Symbol, Timestamp, Unsigned, read, skip
from jmsclient_amqp.sections import DATA, SEQUENCE, VALUE, Sections

KIND: Final = "x-opt-jms-msg-type"
DESTINATION: Final = "x-opt-jms-dest"
REPLY_TO: Final = "x-opt-jms-reply-to"
DELIVERY_TIME: Final = "x-opt-delivery-time"
SERIALIZED: Final = "application/x-java-serialized-object"

_KINDS = {
    0: MessageKind.MESSAGE,
    1: MessageKind.OBJECT,
    2: MessageKind.MAP,
    3: MessageKind.BYTES,
    4: MessageKind.STREAM,
    5: MessageKind.TEXT,
}
_OBJECTS = (SERIALIZED, "application/x-python-serialize", "application/x-python-pickle", "application/python-pickle")
_STRINGS = {0xA1: 2, 0xB1: 5}
"""Where the text begins in a string of either width."""
_TEXTS = ("application/json", "application/xml", "application/javascript", "application/ecmascript")
_ID, _USER, _TO, _SUBJECT, _REPLY_TO, _CORRELATION, _CONTENT_TYPE, _, _EXPIRY, _CREATED, _GROUP, _GROUP_SEQUENCE = range(12)


class AmqpContent(Content):
    """See the module. `topic` says whether it came from one, for messages whose sender did not say."""

    __slots__ = ("_annotations", "_fields", "_header", "_kind", "_naming", "_properties", "_raw", "_topic", "sections")

    def __init__(self, raw: bytes, sections: Sections, header: Header, naming: Naming, topic: bool) -> None:
        self._raw = raw
        self.sections = sections
        self._header = header
        self._naming = naming
        self._topic = topic
        self._annotations: dict[Any, Any] | None = None
        self._fields: list[Any] | None = None
        self._kind: MessageKind | None = None
        self._properties: dict[str, PropertyValue] | None = None

    # -- the id, cheap ----------------------------------------------------------------------------------------------

    @property
    def message_id(self) -> str | None:  # type: ignore[override]  # the contract has an attribute; here it is read when asked for
        at = self.sections.properties
        raw = self._raw
        if at and raw[at] == 0xC0 and raw[at + 3 : at + 4] == b"\xa1":
            start = at + 5
            value = raw[start : start + raw[at + 4]]
            if value.startswith(b"ID:") and len(value) == raw[at + 4]:
                return str(value, "utf-8", "replace")
        try:
            return as_message_id(self._field(_ID))
        except MessageFormatError:  # it has none that anybody could read; every event about it asks
            return None

    def encoded(self) -> bytes:
        return self._raw

    # -- headers ----------------------------------------------------------------------------------------------------

    def header(self, name: str) -> Any:
        match name:
            case "persistent":
                return self._header.durable
            case "priority":
                return self._header.priority
            case "type":
                return _text(self._field(_SUBJECT))
            case "correlation_id":
                return as_correlation_id(self._field(_CORRELATION))
            case "timestamp":
                return _seconds(self._field(_CREATED))
            case "expiration":
                return self._expiration()
            case "delivery_time":
                return _seconds(self.annotations().get(DELIVERY_TIME))
            case "destination":
                return self._uri(self._field(_TO), DESTINATION)
            case "reply_to":
                return self._uri(self._field(_REPLY_TO), REPLY_TO)
        raise KeyError(name)

    def _expiration(self) -> float | None:
        """The absolute time; a sender that only gave a time to live may have said when it made the message."""
        expiry = _seconds(self._field(_EXPIRY))
        if expiry is None and self._header.ttl:
            created = _seconds(self._field(_CREATED))
            return None if created is None else created + self._header.ttl / 1000
        return expiry or None

    def _uri(self, address: Any, annotation: str) -> str | None:
        if not isinstance(address, str) or not address:
            return None
        kind = self.annotations().get(annotation)
        return self._naming.uri(address, kind if isinstance(kind, int) else TOPIC if self._topic else QUEUE)

    def _field(self, number: int) -> Any:
        """A field of the properties section, None where it has none."""
        fields = self._fields
        if fields is None:
            at = self.sections.properties
            value = read(self._raw, at)[0] if at else []
            if not isinstance(value, list):
                raise MessageFormatError("the properties of the message are no list")
            fields = self._fields = value
        return fields[number] if number < len(fields) else None

    def annotations(self) -> dict[Any, Any]:
        """The message annotations by symbol."""
        if self._annotations is None:
            self._annotations = self._map(self.sections.annotations)
        return self._annotations

    def _map(self, at: int) -> dict[Any, Any]:
        value = read(self._raw, at)[0] if at else {}
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise MessageFormatError("a section of the message is no map")
        return value

    def properties(self) -> Mapping[str, PropertyValue]:
        if self._properties is None:
            properties = {str(name): as_property(value) for name, value in self._map(self.sections.application).items()}
            for name, number in (("JMSXUserID", _USER), ("JMSXGroupID", _GROUP), ("JMSXGroupSeq", _GROUP_SEQUENCE)):
                value = self._field(number)
                if value is not None:
                    properties[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else as_property(value)
            self._properties = properties
        return self._properties

    # -- the body ---------------------------------------------------------------------------------------------------

    @property
    def kind(self) -> MessageKind:  # type: ignore[override]  # as above
        if self._kind is None:
            at, raw = self.sections.annotations, self._raw
            said = None
            if at:
                said = _said(raw[at : at + 2 + raw[at + 1]]) if raw[at] == 0xC1 else _said(raw[at : skip(raw, at)])
            self._kind = said or self._kind_by_section()
        return self._kind

    def _kind_by_section(self) -> MessageKind:
        section = self.sections.body_kind
        if section == DATA:
            return _kind_by_content_type(str(self._field(_CONTENT_TYPE) or ""))
        if section == SEQUENCE:
            return MessageKind.STREAM
        if section != VALUE:
            return MessageKind.MESSAGE
        first = self._raw[self.sections.body]
        if first in (0x40, 0xA1, 0xB1):
            return MessageKind.TEXT
        if first in (0xA0, 0xB0):
            return MessageKind.BYTES
        if first in (0xC1, 0xD1):
            return MessageKind.MAP
        if first in (0x45, 0xC0, 0xD0):
            return MessageKind.STREAM
        return MessageKind.OBJECT

    def body(self) -> Body:
        """By kind; see the table in the documentation of this backend. A value that JMS has no kind for (a number, say) is an
        OBJECT whose bytes are its AMQP encoding."""
        _, _, _, _, at, section, size = self.sections
        raw = self._raw
        kind = self.kind
        if not at:
            return b"" if kind is MessageKind.BYTES else None
        if section == DATA:
            return self._from_data(kind, self._data(at, at + size))
        if section == SEQUENCE:
            return self._checked(kind, self._sequence(at))
        if kind is MessageKind.TEXT and raw[at] in _STRINGS:
            try:
                return str(raw[at + _STRINGS[raw[at]] : at + size], "utf-8")
            except UnicodeDecodeError:
                pass  # said below, as for any string
        value = read(raw, at)[0]
        if kind is MessageKind.OBJECT and not isinstance(value, bytes):
            return raw[at : at + size]
        if kind is MessageKind.TEXT and isinstance(value, bytes):
            return self._decoded(value)
        return self._checked(kind, value)

    def _data(self, at: int, stop: int) -> bytes:
        """The bytes of all data sections, in order."""
        raw = self._raw
        if raw[at] == 0xB0 and at + 5 + int.from_bytes(raw[at + 1 : at + 5], "big") == stop:
            return raw[at + 5 : stop]  # one section, as nearly always
        if raw[at] == 0xA0 and at + 2 + raw[at + 1] == stop:
            return raw[at + 2 : stop]
        parts = []
        while at < stop:
            value, at = read(raw, at)
            if not isinstance(value, bytes):
                raise MessageFormatError(f"a data section with a {type(value).__name__} in it")
            parts.append(value)
            if at < stop:
                _, at = read(raw, at + 1)  # the descriptor of the next one
        return b"".join(parts)

    def _sequence(self, at: int) -> list[Any]:
        elements: list[Any] = []
        stop = at + self.sections.size
        while at < stop:
            value, at = read(self._raw, at)
            if not isinstance(value, list):
                raise MessageFormatError(f"a sequence section with a {type(value).__name__} in it")
            elements += value
            if at < stop:
                _, at = read(self._raw, at + 1)
        return elements

    def _from_data(self, kind: MessageKind, data: bytes) -> Body:
        if kind in (MessageKind.BYTES, MessageKind.OBJECT):
            return data
        if kind is MessageKind.TEXT:
            return self._decoded(data)
        if kind is MessageKind.MESSAGE and not data:  # what one broker makes of a message without a body
            return None
        raise MessageFormatError(f"a {kind.name} message whose body is bytes")

    def _decoded(self, data: bytes) -> str:
        _, _, parameters = str(self._field(_CONTENT_TYPE) or "").partition(";")
        name, _, charset = parameters.partition("=")
        charset = charset.strip().strip('"') if name.strip().lower() == "charset" else "utf-8"
        try:
            return data.decode(charset)
        except (UnicodeDecodeError, LookupError) as error:
            raise MessageFormatError(f"the text of this message is not {charset}: {error}") from error

    def _checked(self, kind: MessageKind, value: Any) -> Body:
        if value is None:
            return None
        if kind is MessageKind.TEXT and isinstance(value, str):
            return str(value)
        if kind in (MessageKind.BYTES, MessageKind.OBJECT) and isinstance(value, bytes):
            return value
        if kind is MessageKind.MAP and isinstance(value, dict):
            return {_key(key): as_element(element) for key, element in value.items()}
        if kind is MessageKind.STREAM and isinstance(value, list):
            return [as_element(element) for element in value]
        raise MessageFormatError(f"a {kind.name} message whose body is a {type(value).__name__}")


@lru_cache(maxsize=256)
def _said(annotations: bytes) -> MessageKind | None:
    """The kind that the annotations say. The same bytes come again with nearly every message of a sender."""
    value = read(annotations)[0]
    said = value.get(KIND) if isinstance(value, dict) else None
    return _KINDS.get(said) if isinstance(said, int) and not isinstance(said, bool) else None


def _kind_by_content_type(content_type: str) -> MessageKind:
    name = content_type.partition(";")[0].strip().lower()
    if name in _OBJECTS:
        return MessageKind.OBJECT
    if name.startswith("text/") or name in _TEXTS or name.endswith(("+xml", "+json")):
        return MessageKind.TEXT
    return MessageKind.BYTES


# -- values -------------------------------------------------------------------------------------------------------------


def as_message_id(value: Any) -> str | None:
    """The JMS id of an AMQP one: `ID:` in front, and a word for the types that are no text, as other JMS clients write it."""
    if value is None:
        return None
    if isinstance(value, str):
        return str(value) if value.startswith("ID:") else f"ID:AMQP_NO_PREFIX:{value}"
    return _typed_id(value)


def as_correlation_id(value: Any) -> str | None:
    """As an id, but text stays as it is."""
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    return _typed_id(value)


def _typed_id(value: Any) -> str:
    if isinstance(value, uuid.UUID):
        return f"ID:AMQP_UUID:{value}"
    if isinstance(value, bytes):
        return f"ID:AMQP_BINARY:{value.hex().upper()}"
    if isinstance(value, Unsigned | int) and not isinstance(value, bool):
        return f"ID:AMQP_ULONG:{value:d}"
    raise MessageFormatError(f"an id of type {type(value).__name__}")


def as_property(value: Any) -> PropertyValue:
    """What JMS has a type for stays; symbols, UUIDs and characters become text, time stamps milliseconds, bytes and decimals the
    hexadecimal text of their bytes."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return int(value) if isinstance(value, Unsigned | Timestamp) else value
    if isinstance(value, str):
        return str(value) if isinstance(value, Symbol) else value
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Opaque):
        return value.data.hex()
    raise MessageFormatError(f"a property of type {type(value).__name__}")


def as_element(value: Any) -> Any:
    """An element of a map or stream: as a property, but bytes are bytes."""
    return value if isinstance(value, bytes) else as_property(value)


def _key(value: Any) -> str:
    if not isinstance(value, str):
        raise MessageFormatError(f"a map whose key is a {type(value).__name__}")
    return str(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _seconds(milliseconds: Any) -> float | None:
    return milliseconds / 1000 if isinstance(milliseconds, int) and not isinstance(milliseconds, bool) else None
