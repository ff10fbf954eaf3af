"""A content as the bytes of an AMQP message, as the JMS mapping has it.

Pure. Header and annotations repeat, so they are kept by what decides them; of many messages at once (`encode_all`, the hot
path of sending) most differ in their ids and bodies only. Numbers of Python become long and double; times travel in
milliseconds, the delivery time as a long, which is what brokers read. Raises MessageFormatError for what AMQP cannot carry.
Source: the JMS mapping of AMQP 1.0.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from jmsclient.destination import parse_destination
from jmsclient.errors import MessageFormatError
from jmsclient.message import DEFAULT_PRIORITY, Body, MessageKind, PlainContent
from jmsclient_amqp.content import DELIVERY_TIME, DESTINATION, KIND, REPLY_TO, SERIALIZED
from jmsclient_amqp.naming import Naming, kind_of_uri
from jmsclient_amqp.primitives import (
    NULL,
    binary,
    listed,
    long,
    mapped,
    simple,
    symbol,
    text,
    timestamp,
    uint,
    ulong,
)

Encoded = bytes | tuple[bytes, bytes]
"""A message, in one piece or in two that make one."""
_LONGEST_TTL = 0xFFFFFFFF
_KINDS = {
    MessageKind.MESSAGE: 0,
    MessageKind.OBJECT: 1,
    MessageKind.MAP: 2,
    MessageKind.BYTES: 3,
    MessageKind.STREAM: 4,
    MessageKind.TEXT: 5,
}
_PROPERTIES = b"\x00\x53\x73"
_LONG_DATA = b"\x00\x53\x75\xb0"
_LONG = 1024
"""Bytes of a body from which on a copy of it that is spared is worth a part of its own."""
_LONGER = 4096
"""And from which on the whole message is left in two pieces: a call of the engine more costs less than a copy."""
_OCTETS = symbol("application/octet-stream")
_CONTENT_TYPES = {MessageKind.BYTES: _OCTETS, MessageKind.OBJECT: symbol(SERIALIZED)}
_GROUP, _GROUP_SEQUENCE = "JMSXGroupID", "JMSXGroupSeq"
_ELSEWHERE = (_GROUP, _GROUP_SEQUENCE, "JMSXUserID", "JMSXDeliveryCount")  # sent in a field of their own, or not by us


def encode_all(contents: Iterable[PlainContent], address: str, naming: Naming) -> list[Encoded]:
    """The whole messages, for a sender to `address`; long ones in two pieces, of which the second is the body itself. What is
    around the id of one is that of the next, as long as all is alike that decides it; so it is made once for most batches."""
    made: list[Encoded] = []
    kind: MessageKind | None = None
    persistent = priority = destination = timestamp = expiration = None
    start, end, fields = b"", b"", 0
    openings: dict[int, bytes] = {}  # by the length of an id
    for content in contents:
        properties = content.properties()
        if (
            content.type is not None
            or content.correlation_id is not None
            or content.reply_to is not None
            or content.delivery_time is not None
            or (properties and _GROUP in properties)
        ):
            made.append(encode(content, address, naming))
            continue
        if (
            content.kind is not kind
            or content.timestamp != timestamp
            or content.expiration != expiration
            or content.persistent != persistent
            or content.priority != priority
            or content.destination != destination
        ):
            kind, timestamp, expiration = content.kind, content.timestamp, content.expiration
            persistent, priority, destination = content.persistent, content.priority, content.destination
            _, *following = _fields(content, address, naming, properties)
            start, end, fields = _header(content) + _annotations(content) + _PROPERTIES, b"".join(following), len(following) + 1
            openings.clear()
        identity = message_id(content.message_id)
        opening = openings.get(len(identity))
        if opening is None:
            size = len(identity) + len(end) + 1
            if size > 255:
                made.append(encode(content, address, naming))
                continue
            opening = openings[len(identity)] = start + bytes((0xC0, size, fields))
        between = end + _application_properties(properties) if properties else end
        body = content.body()
        if body.__class__ is bytes and len(body) >= _LONG:
            head = b"".join((opening, identity, between, _LONG_DATA, len(body).to_bytes(4, "big")))
            made.append((head, body) if len(body) >= _LONGER else head + body)
        else:
            made.append(b"".join((opening, identity, between, _body(kind, body))))
    return made


def encode(content: PlainContent, address: str, naming: Naming) -> bytes:
    """One whole message, for a sender to `address`."""
    properties = content.properties()
    sections = [_header(content), _annotations(content), _PROPERTIES, listed(_fields(content, address, naming, properties))]
    if properties:
        sections.append(_application_properties(properties))
    sections.append(_body(content.kind, content.body()))
    return b"".join(sections)


def _application_properties(properties: Mapping[str, Any]) -> bytes:
    parts: list[bytes] = []
    for name, value in properties.items():
        if name not in _ELSEWHERE:
            parts += (text(name), simple(value))
    return b"\x00\x53\x74" + mapped(parts) if parts else b""


def _header(content: PlainContent) -> bytes:
    ttl = 0
    if content.expiration is not None and content.timestamp is not None:
        ttl = max(1, round((content.expiration - content.timestamp) * 1000))
    return _header_bytes(bool(content.persistent), content.priority, ttl if ttl <= _LONGEST_TTL else 0)


@lru_cache(maxsize=256)
def _header_bytes(durable: bool, priority: int, ttl: int) -> bytes:
    fields = [b"\x41" if durable else b"\x42"]
    if priority != DEFAULT_PRIORITY or ttl:
        fields.append(bytes((0x50, priority)))
    if ttl:
        fields.append(uint(ttl))
    return b"\x00\x53\x70" + listed(fields)


def _annotations(content: PlainContent) -> bytes:
    reply = content.reply_to
    fixed = _fixed_annotations(content.kind, kind_of_uri(content.destination or ""), -1 if reply is None else kind_of_uri(reply))
    if content.delivery_time is None:
        return _annotation_map(fixed)
    due = round(content.delivery_time * 1000)
    return b"\x00\x53\x72" + mapped([*fixed, symbol(DELIVERY_TIME), long(due)])


@lru_cache(maxsize=64)
def _fixed_annotations(kind: MessageKind, destination: int, reply: int) -> tuple[bytes, ...]:
    parts = [symbol(KIND), bytes((0x51, _KINDS[kind])), symbol(DESTINATION), bytes((0x51, destination))]
    if reply >= 0:
        parts += (symbol(REPLY_TO), bytes((0x51, reply)))
    return tuple(parts)


@lru_cache(maxsize=64)
def _annotation_map(parts: tuple[bytes, ...]) -> bytes:
    return b"\x00\x53\x72" + mapped(parts)


def _fields(content: PlainContent, address: str, naming: Naming, properties: Mapping[str, Any]) -> list[bytes]:
    """Of the properties section: message-id, user-id, to, subject, reply-to, correlation-id, content-type, content-encoding,
    absolute-expiry-time, creation-time, group-id, group-sequence; what follows the last that is set is left out."""
    reply = content.reply_to
    fields = [
        message_id(content.message_id),
        NULL,
        _address(address),
        NULL if content.type is None else text(content.type),
        NULL if reply is None else text(naming.address(parse_destination(reply))),
        correlation_id(content.correlation_id),
        _CONTENT_TYPES.get(content.kind, NULL),
        NULL,
        NULL if content.expiration is None else timestamp(round(content.expiration * 1000)),
        NULL if content.timestamp is None else timestamp(round(content.timestamp * 1000)),
    ]
    if properties and _GROUP in properties:
        fields.append(simple(properties[_GROUP]))
        sequence = properties.get(_GROUP_SEQUENCE)
        if isinstance(sequence, int) and 0 <= sequence < 1 << 32:
            fields.append(uint(sequence))
    while fields[-1] is NULL:
        fields.pop()
    return fields


@lru_cache(maxsize=1024)
def _address(address: str) -> bytes:
    return text(address)


def message_id(value: str | None) -> bytes:
    """The AMQP id of a JMS one; what `content.as_message_id` reads back."""
    if value is None:
        return NULL
    if value.startswith("ID:AMQP_"):
        return _typed_id(value)
    return text(value)


def correlation_id(value: str | None) -> bytes:
    """As an id."""
    return message_id(value)


def _typed_id(value: str) -> bytes:
    """`ID:AMQP_UUID:…` and its kin, as other JMS clients write ids that were no text. What does not parse is text after all."""
    kind, _, rest = value[len("ID:AMQP_") :].partition(":")
    try:
        match kind:
            case "UUID":
                return b"\x98" + uuid.UUID(rest).bytes
            case "ULONG":
                return ulong(int(rest))
            case "BINARY":
                return binary(bytes.fromhex(rest))
            case "NO_PREFIX":
                return text(rest)
    except (ValueError, OverflowError):
        pass
    return text(value)


def _body(kind: MessageKind, body: Body) -> bytes:
    if isinstance(body, str):
        return b"\x00\x53\x77" + text(body)
    if body is None:
        if kind in (MessageKind.BYTES, MessageKind.OBJECT):
            return b"\x00\x53\x75\xa0\x00"
        if kind is MessageKind.STREAM:
            return b"\x00\x53\x76\x45"
        return b"\x00\x53\x77\x40"
    if isinstance(body, bytes):
        return b"\x00\x53\x75" + binary(body)
    if isinstance(body, dict):
        parts: list[bytes] = []
        for key, value in body.items():
            parts += (text(key), simple(value))
        return b"\x00\x53\x77" + mapped(parts)
    if isinstance(body, list):
        return b"\x00\x53\x76" + listed([simple(value) for value in body])
    raise MessageFormatError(f"a body of type {type(body).__name__}")
