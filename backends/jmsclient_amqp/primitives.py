"""The AMQP 1.0 type system as bytes: reading any value, skipping it, and writing what this client writes.

Pure: knows no message, no link, no socket. Bounds are checked at every step, because the bytes come from a peer; what does not
fit raises MessageFormatError. Source: AMQP 1.0 part 1.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jmsclient.errors import MessageFormatError

# Most elements that an array of elements without any bytes may have: a count alone must not fill the memory.
_LONGEST_EMPTY_ARRAY = 4096
_DEEPEST = 64


class Symbol(str):
    """An AMQP symbol: text of ASCII."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970."""

    __slots__ = ()


class Unsigned(int):
    """An unsigned long."""

    __slots__ = ()


class Described(NamedTuple):
    """A value with what it is."""

    descriptor: Any
    value: Any


class Opaque(NamedTuple):
    """A value that Python has no type for here (the decimals): its constructor and its bytes."""

    constructor: int
    data: bytes


def truncated(at: int) -> MessageFormatError:
    """The bytes end too early."""
    return MessageFormatError(f"AMQP data ends in the middle of a value at byte {at}")


# -- skipping -----------------------------------------------------------------------------------------------------------

_WIDTHS = {0x4: 1, 0x5: 2, 0x6: 3, 0x7: 5, 0x8: 9, 0x9: 17}
_u32 = struct.Struct(">I").unpack_from


def skip(raw: bytes, at: int) -> int:
    """Where the value at `at` ends; that may be beyond the data, which the caller checks. Raises MessageFormatError or
    IndexError."""
    return _skip(raw, at, 0)


def _skip(raw: bytes, at: int, depth: int) -> int:
    code = raw[at]
    if code == 0:  # a descriptor, which is a value, and then the value
        if depth > _DEEPEST:
            raise MessageFormatError("AMQP data is nested too deeply")
        return _skip(raw, _skip(raw, at + 1, depth + 1), depth + 1)
    form = code >> 4
    if form in (0xA, 0xC, 0xE):
        return at + 2 + raw[at + 1]
    if form in (0xB, 0xD, 0xF):
        return at + 5 + int.from_bytes(raw[at + 1 : at + 5], "big")
    width = _WIDTHS.get(form)
    if width is None:
        raise MessageFormatError(f"byte {at}: 0x{code:02x} is no AMQP type")
    return at + width


# -- reading ------------------------------------------------------------------------------------------------------------

_EMPTY: dict[int, Any] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: Unsigned(0)}
_FIXED: dict[int, tuple[struct.Struct, Callable[[Any], Any] | None]] = {
    0x50: (struct.Struct(">B"), None),
    0x51: (struct.Struct(">b"), None),
    0x52: (struct.Struct(">B"), None),
    0x53: (struct.Struct(">B"), Unsigned),
    0x54: (struct.Struct(">b"), None),
    0x55: (struct.Struct(">b"), None),
    0x56: (struct.Struct(">?"), None),
    0x60: (struct.Struct(">H"), None),
    0x61: (struct.Struct(">h"), None),
    0x70: (struct.Struct(">I"), None),
    0x71: (struct.Struct(">i"), None),
    0x72: (struct.Struct(">f"), None),
    0x73: (struct.Struct(">I"), chr),
    0x74: (struct.Struct(">4s"), lambda data: Opaque(0x74, data)),
    0x80: (struct.Struct(">Q"), Unsigned),
    0x81: (struct.Struct(">q"), None),
    0x82: (struct.Struct(">d"), None),
    0x83: (struct.Struct(">q"), Timestamp),
    0x84: (struct.Struct(">8s"), lambda data: Opaque(0x84, data)),
    0x94: (struct.Struct(">16s"), lambda data: Opaque(0x94, data)),
    0x98: (struct.Struct(">16s"), lambda data: uuid.UUID(bytes=data)),
}


def read(raw: bytes, at: int = 0) -> tuple[Any, int]:
    """The value at `at`, and where it ends. Raises MessageFormatError for whatever is wrong with it."""
    try:
        return _read(raw, at, 0)
    except (IndexError, struct.error) as error:
        raise truncated(at) from error
    except (ValueError, OverflowError, TypeError) as error:  # not UTF-8, no character, a map as the key of a map
        if isinstance(error, MessageFormatError):
            raise
        raise MessageFormatError(f"byte {at}: {error}") from error


def _read(raw: bytes, at: int, depth: int) -> tuple[Any, int]:
    code = raw[at]
    if code == 0:
        if depth > _DEEPEST:
            raise MessageFormatError("AMQP data is nested too deeply")
        descriptor, at = _read(raw, at + 1, depth + 1)
        value, at = _read(raw, at, depth + 1)
        return Described(descriptor, value), at
    return _read_as(code, raw, at + 1, depth)


def _read_as(code: int, raw: bytes, at: int, depth: int) -> tuple[Any, int]:
    """The value whose constructor was `code`; its data begin at `at`."""
    fixed = _FIXED.get(code)
    if fixed is not None:
        reader, make = fixed
        value = reader.unpack_from(raw, at)[0]
        return (value if make is None else make(value)), at + reader.size
    if code in _EMPTY:
        return _EMPTY[code], at
    if code == 0x45:
        return [], at
    form = code >> 4
    if form == 0xA:
        start, size = at + 1, raw[at]
    elif form in (0xB, 0xD, 0xF):
        start, size = at + 4, _u32(raw, at)[0]
    elif form in (0xC, 0xE):
        start, size = at + 1, raw[at]
    else:
        raise MessageFormatError(f"byte {at - 1}: 0x{code:02x} is no AMQP type")
    end = start + size
    if end > len(raw):
        raise truncated(at)
    if form in (0xA, 0xB):
        return _variable(code & 0xF, raw[start:end]), end
    if depth > _DEEPEST:
        raise MessageFormatError("AMQP data is nested too deeply")
    return _compound(code, raw, start, end, depth + 1), end


def _variable(kind: int, data: bytes) -> Any:
    if kind == 0x0:
        return data
    if kind == 0x1:
        return data.decode("utf-8")
    if kind == 0x3:
        return Symbol(data.decode("ascii"))
    raise MessageFormatError(f"0x.{kind:x} is no AMQP type of variable width")


def _compound(code: int, raw: bytes, start: int, end: int, depth: int) -> Any:
    wide = code >= 0xD0 and code != 0xE0
    count = _u32(raw, start)[0] if wide else raw[start]
    at = start + (4 if wide else 1)
    if code in (0xE0, 0xF0):
        values, at = _array(raw, at, count, depth)
    else:
        values = []
        if count > end - at:
            raise MessageFormatError(f"byte {start}: {count} elements in {end - at} bytes")
        for _ in range(count):
            value, at = _read(raw, at, depth)
            values.append(value)
    if at != end:
        raise MessageFormatError(f"byte {start}: the elements do not fill what was said to hold them")
    if code in (0xC0, 0xD0, 0xE0, 0xF0):
        return values
    if code in (0xC1, 0xD1):
        if count % 2:
            raise MessageFormatError(f"byte {start}: a map with a key that has no value")
        return dict(zip(values[::2], values[1::2], strict=True))
    raise MessageFormatError(f"byte {start}: 0x{code:02x} is no AMQP type")


def _array(raw: bytes, at: int, count: int, depth: int) -> tuple[list[Any], int]:
    """The elements of an array share one constructor; a descriptor before it is dropped."""
    code = raw[at]
    at += 1
    if code == 0:
        _, at = _read(raw, at, depth)
        code = raw[at]
        at += 1
    if 0x40 <= code <= 0x45:
        if count > _LONGEST_EMPTY_ARRAY:
            raise MessageFormatError(f"an array of {count} elements without bytes")
    elif count > len(raw) - at:
        raise MessageFormatError(f"an array of {count} elements in {len(raw) - at} bytes")
    values = []
    for _ in range(count):
        value, at = _read_as(code, raw, at, depth)
        values.append(value)
    return values, at


# -- writing ------------------------------------------------------------------------------------------------------------

_pack_long = struct.Struct(">Bq").pack
_pack_double = struct.Struct(">Bd").pack
_pack_size = struct.Struct(">BI").pack
_pack_sizes = struct.Struct(">BII").pack
NULL = b"\x40"


def text(value: str) -> bytes:
    """A string. Raises MessageFormatError where it is not Unicode text (lone surrogates)."""
    try:
        data = value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise MessageFormatError(f"a text with lone surrogates cannot be sent over AMQP: {error.reason}") from None
    return bytes((0xA1, len(data))) + data if len(data) < 256 else _pack_size(0xB1, len(data)) + data


def binary(value: bytes) -> bytes:
    return bytes((0xA0, len(value))) + value if len(value) < 256 else _pack_size(0xB0, len(value)) + value


def symbol(value: str) -> bytes:
    data = value.encode("ascii")
    return bytes((0xA3, len(data))) + data if len(data) < 256 else _pack_size(0xB3, len(data)) + data


def long(value: int) -> bytes:
    """A signed long. Raises MessageFormatError where 64 bits do not hold it."""
    if -128 <= value <= 127:
        return bytes((0x55, value & 0xFF))
    if not -(1 << 63) <= value < 1 << 63:
        raise MessageFormatError(f"{value} does not fit into the 64 bits of an AMQP long")
    return _pack_long(0x81, value)


def uint(value: int) -> bytes:
    if value < 256:
        return b"\x43" if value == 0 else bytes((0x52, value))
    return _pack_size(0x70, value)


def ulong(value: int) -> bytes:
    if value < 256:
        return b"\x44" if value == 0 else bytes((0x53, value))
    return b"\x80" + value.to_bytes(8, "big")


def timestamp(milliseconds: int) -> bytes:
    return _pack_long(0x83, milliseconds)


def simple(value: Any) -> bytes:
    """What JMS allows in a property, map or stream. Python numbers become long and double. Raises MessageFormatError."""
    if value is None:
        return NULL
    if value is True:
        return b"\x41"
    if value is False:
        return b"\x42"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int):
        return long(value)
    if isinstance(value, float):
        return _pack_double(0x82, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return binary(bytes(value))
    raise MessageFormatError(f"a {type(value).__name__} has no AMQP type here")


def listed(parts: Sequence[bytes]) -> bytes:
    """A list of values that are bytes already."""
    return _with_count(0xC0, 0xD0, parts) if parts else b"\x45"


def mapped(parts: Sequence[bytes]) -> bytes:
    """A map of keys and values in turn, bytes already."""
    return _with_count(0xC1, 0xD1, parts)


def _with_count(short: int, wide: int, parts: Sequence[bytes]) -> bytes:
    data = b"".join(parts)
    if len(data) < 255 and len(parts) < 256:
        return bytes((short, len(data) + 1, len(parts))) + data
    return _pack_sizes(wide, len(data) + 4, len(parts)) + data


def symbols(values: Sequence[str]) -> bytes:
    """An array of symbols, none longer than 255 characters."""
    data = b"\xa3" + b"".join(bytes((len(value),)) + value.encode("ascii") for value in values)
    return _pack_sizes(0xF0, len(data) + 4, len(values)) + data


def described(code: int, value: bytes) -> bytes:
    """A value with a numeric descriptor."""
    return b"\x00" + ulong(code) + value
