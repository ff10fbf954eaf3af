"""A whole message as bytes: for stores, parked copies and anything that outlives the process.

Layout: `JM`, format version (1 byte), header length (4 bytes, big endian), header (JSON, UTF-8), body. TEXT and BYTES bodies are
the bytes themselves; MAP and STREAM are JSON in which bytes are `{"$bytes": base64}` and a narrow number names its Java type, as in
`{"$byte": 5}`. The header does so in `types`, by property. The body stays bytes until someone reads it.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring as _quoted  # a text as JSON that need not be ASCII
from typing import Any

from jmsclient.conversion import WIDTH_NAMES, WIDTHS
from jmsclient.errors import MessageFormatError
from jmsclient.message import Body, Content, MessageKind, PlainContent, PropertyValue

FORMAT = 1
_PREFIX = struct.Struct(">2sBI")
_MAGIC = b"JM"
_header_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode  # made once: json.dumps makes one a call
_NO_TIME = 1e300  # beyond it, and for NaN, JSON has words of its own
_HEADERS = (
    "destination",
    "persistent",
    "priority",
    "timestamp",
    "expiration",
    "delivery_time",
    "correlation_id",
    "reply_to",
    "type",
)


def encode(content: Content) -> bytes:
    """One message as bytes. Raises MessageFormatError where the body cannot be encoded."""
    if isinstance(content, EnvelopeContent):
        return content.envelope
    if type(content) is PlainContent and _is_common(content):
        return _encode_common(content)
    return _encode_any(content)


def _encode_any(content: Content) -> bytes:
    headers = {name: value for name in _HEADERS if (value := content.header(name)) is not None}
    header: dict[str, Any] = {
        "id": content.message_id,
        "kind": content.kind.value,
        "headers": headers,
        "properties": dict(content.properties()),
    }
    if types := {name: WIDTH_NAMES[kind] for name, value in header["properties"].items() if (kind := type(value)) in WIDTH_NAMES}:
        header["types"] = types
    body = content.body()
    if body is None:
        header["null"] = True
    try:
        head = _header_json(header).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError) as error:
        raise MessageFormatError(f"the headers of this message cannot be encoded: {error}") from error
    return _PREFIX.pack(_MAGIC, FORMAT, len(head)) + head + encode_body(body)


def _is_common(content: PlainContent) -> bool:
    """A body of text or bytes, and no header or property beyond those that every sent message has."""
    return (
        (content.kind is MessageKind.TEXT or content.kind is MessageKind.BYTES)
        and content._body is not None
        and not content._properties
        and content.correlation_id is content.reply_to is content.type is None
        and content.expiration is content.delivery_time is None
        and content.message_id is not None
        and content.destination is not None
        and type(content.timestamp) is float
        and -_NO_TIME < content.timestamp < _NO_TIME
    )


def _encode_common(content: PlainContent) -> bytes:
    """The same bytes as `_encode_any` in a third of the time: the JSON of what a sender repeats is kept, the rest is put around it.

    Every stored message pays this once."""
    middle = _repeated(content.kind, content.destination, content.persistent, content.priority)
    head = f'{{"id":{_quoted(content.message_id)},{middle}{content.timestamp!r}}},"properties":{{}}}}'  # type: ignore[arg-type]
    data = head.encode("utf-8", "surrogatepass")
    return _PREFIX.pack(_MAGIC, FORMAT, len(data)) + data + encode_body(content._body)


@lru_cache(maxsize=256)
def _repeated(kind: MessageKind, destination: str, persistent: bool, priority: int) -> str:
    headers = _header_json({"destination": destination, "persistent": persistent, "priority": priority})
    return f'"kind":{_header_json(kind.value)},"headers":{headers[:-1]},"timestamp":'


def decode(data: bytes) -> EnvelopeContent:
    """The content of an envelope; the header is read now, the body on first touch. Raises MessageFormatError."""
    try:
        magic, version, length = _PREFIX.unpack_from(data)
        if magic != _MAGIC or version != FORMAT:
            raise MessageFormatError(f"an envelope of format {version}; this version reads format {FORMAT}")
        start = _PREFIX.size + length
        header = json.loads(data[_PREFIX.size : start].decode("utf-8", "surrogatepass"))
        return EnvelopeContent(header, data, start)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise MessageFormatError(f"not an envelope: {error!r}") from error


def encode_body(body: Body) -> bytes:
    """A body as bytes; what `decode_body` reads back given the kind."""
    if body is None:
        return b""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    try:
        typed = {key: _typed(value) for key, value in body.items()} if isinstance(body, dict) else list(map(_typed, body))
        text = json.dumps(typed, separators=(",", ":"), ensure_ascii=False, default=_bytes_to_json)
    except (TypeError, ValueError) as error:
        raise MessageFormatError(f"this body cannot be encoded: {error}") from error
    return text.encode("utf-8", "surrogatepass")


def decode_body(kind: MessageKind, data: bytes) -> Body:
    """The body from its bytes. Raises MessageFormatError."""
    try:
        if kind is MessageKind.TEXT:
            return data.decode("utf-8", "surrogatepass")
        if kind is MessageKind.MAP:
            parsed = json.loads(data.decode("utf-8", "surrogatepass"))
            return {key: _element(value) for key, value in parsed.items()}
        if kind is MessageKind.STREAM:
            return [_element(value) for value in json.loads(data.decode("utf-8", "surrogatepass"))]
    except (ValueError, KeyError, TypeError, AttributeError, MessageFormatError) as error:
        raise MessageFormatError(f"the body of this {kind.name} message cannot be decoded: {error}") from error
    return None if kind is MessageKind.MESSAGE else data


def _bytes_to_json(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    raise MessageFormatError(f"a value of type {type(value).__name__} in a map or stream body")


def _typed(value: Any) -> Any:
    """A narrow number with the name of its type; everything else as it is."""
    name = WIDTH_NAMES.get(type(value))
    return value if name is None else {f"${name}": value}


def _element(value: Any) -> Any:
    """One value of a map or stream. A map inside one is no JMS value, so an object there can only be ours."""
    if not isinstance(value, dict):
        return value
    ((name, given),) = value.items()
    return base64.b64decode(given, validate=True) if name == "$bytes" else WIDTHS[name.removeprefix("$")](given)


class EnvelopeContent(Content):
    """The content read from an envelope."""

    __slots__ = ("_data", "_header", "_start", "kind", "message_id")

    def __init__(self, header: dict[str, Any], data: bytes, start: int) -> None:
        self._header = header
        self._data = data
        self._start = start
        self.message_id = header["id"]
        self.kind = MessageKind(header["kind"])
        if not isinstance(header["headers"], dict) or not isinstance(header["properties"], dict):
            raise TypeError("headers and properties are objects")
        for name, width in header.get("types", {}).items():
            header["properties"][name] = WIDTHS[width](header["properties"][name])

    @property
    def envelope(self) -> bytes:
        """The bytes it was read from."""
        return self._data

    def encoded(self) -> bytes:
        return self._data

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self._data) - self._start

    def header(self, name: str) -> Any:
        return self._header["headers"].get(name)

    def properties(self) -> Mapping[str, PropertyValue]:
        return self._header["properties"]  # type: ignore[no-any-return]

    def body(self) -> Body:
        return None if "null" in self._header else decode_body(self.kind, self._data[self._start :])
