"""Where the sections of a message are: one walk over its bytes when it arrives, nothing decoded.

Owns the framing check of IF-19: a message whose sections do not follow each other to its very end is refused before hand-over.
Pure. This is the hot path, once a message: plainer and longer than the rest, and measured. Source: AMQP 1.0 section 3.2.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple

from jmsclient.errors import MessageFormatError
from jmsclient_amqp.primitives import Symbol, read, skip, truncated

HEADER: Final = 0x70
ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_NAMES = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": 0x71,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}


class Start(NamedTuple):
    """What a walk has found already: where header and annotations are, the code of the last section, and where it goes on."""

    header: int
    annotations: int
    last: int
    at: int


BEGINNING: Final = Start(0, 0, 0, 0)


class Sections(NamedTuple):
    """Where the value of each section begins; 0 where the message has none. `body_kind` is the code of the first body section, or
    0; `size` the bytes from there to the end of the body."""

    header: int
    annotations: int
    properties: int
    application: int
    body: int
    body_kind: int
    size: int


_peek = Struct(">IB").unpack_from  # how a section begins, with the type of its value, and the size in a byte
_wide = Struct(">I").unpack_from
_PROPERTIES_LIST, _APPLICATION_MAP = 0x005373C0, 0x005374C1
_SHORT_BODIES = (0x005375A0, 0x005377A1)  # data, and a string
_LONG_BODIES = (0x005375B0, 0x005377B1)
_new = tuple.__new__  # a third of the time of the class's own


def usual(raw: bytes, start: Start) -> Sections | None:
    """As `scan`, where after `start`, which must end with the annotations, only properties, application properties and one
    section of data or a string follow, each in its usual form. None: it may be anything else."""
    header, annotations, _, at = start
    properties = application = 0
    try:
        begins, size = _peek(raw, at)
        if begins == _PROPERTIES_LIST:
            properties = at + 3
            at += 5 + size
            begins, size = _peek(raw, at)
        if begins == _APPLICATION_MAP:
            application = at + 3
            at += 5 + size
            begins, size = _peek(raw, at)
        if begins in _SHORT_BODIES:
            end = at + 5 + size
        elif begins in _LONG_BODIES:
            end = at + 8 + _wide(raw, at + 4)[0]
        else:
            return None
    except StructError:
        return None
    if end != len(raw):
        return None
    return _new(Sections, (header, annotations, properties, application, at + 3, begins >> 8 & 0xFF, end - at - 3))


def scan(raw: bytes, start: Start = BEGINNING) -> Sections:
    """Raises MessageFormatError where the bytes are no message. `start`: of another message that begins with the same bytes."""
    header, annotations, last, at = start
    properties = application = body = kind = 0
    size = len(raw)
    end_of_body = 0
    try:
        while at < size:
            if raw[at] == 0 and raw[at + 1] == 0x53:
                code = raw[at + 2]
                at += 3
            else:
                code, at = _descriptor(raw, at)
            form = raw[at] >> 4
            if form in (0xA, 0xC):
                end = at + 2 + raw[at + 1]
            elif form in (0xB, 0xD):
                end = at + 5 + int.from_bytes(raw[at + 1 : at + 5], "big")
            else:
                end = skip(raw, at)
            if end > size:
                raise truncated(at)
            if not HEADER <= code <= FOOTER:
                raise MessageFormatError(f"byte {at}: 0x{code:02x} is no section of a message")
            if code <= last and not (code == last and code in (DATA, SEQUENCE)):
                raise MessageFormatError(f"byte {at}: section 0x{code:02x} after section 0x{last:02x}")
            last = code
            if code >= DATA:
                if code == FOOTER:
                    pass
                elif kind == 0:
                    body, kind, end_of_body = at, code, end
                elif kind == code:
                    end_of_body = end
                else:
                    raise MessageFormatError(f"byte {at}: body sections of two kinds")
            elif code == PROPERTIES:
                properties = at
            elif code == HEADER:
                header = at
            elif code == APPLICATION:
                application = at
            elif code == ANNOTATIONS:
                annotations = at
            at = end
    except IndexError as error:
        raise truncated(size) from error
    return _new(Sections, (header, annotations, properties, application, body, kind, end_of_body - body))


def _descriptor(raw: bytes, at: int) -> tuple[int, int]:
    """A section's descriptor in one of its rarer forms."""
    if raw[at] != 0:
        raise MessageFormatError(f"byte {at}: 0x{raw[at]:02x} where a section begins")
    descriptor, end = read(raw, at + 1)
    code = _NAMES.get(descriptor) if isinstance(descriptor, Symbol) else descriptor
    if isinstance(code, bool) or not isinstance(code, int) or not HEADER <= code <= FOOTER:
        raise MessageFormatError(f"byte {at}: {descriptor!r} is no section of a message")
    return int(code), end
