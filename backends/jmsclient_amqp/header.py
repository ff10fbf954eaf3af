"""What a delivery's header says, read on arrival: persistence, priority, time to live, count.

Headers repeat: one look-up in a small cache by their bytes answers nearly all of them. Pure but for that cache, which belongs
to one connection. Rules RA-5, IF-11. Source: AMQP 1.0 section 3.2.1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jmsclient.errors import MessageFormatError
from jmsclient.message import DEFAULT_PRIORITY
from jmsclient_amqp.primitives import read
from jmsclient_amqp.sections import ANNOTATIONS, BEGINNING, Sections, Start, scan, usual

_MOST = 1024
_PROPERTIES = b"\x00\x53\x73"  # how their section begins, in its usual form


class Header(NamedTuple):
    """`ttl` in milliseconds or None; `first_acquirer` and `delivery_count` as sent, None where the field is null or absent."""

    durable: bool = False
    priority: int = DEFAULT_PRIORITY
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


ABSENT = Header()


class Headers:
    """Reads headers. One a connection, used by its I/O thread only."""

    def __init__(self) -> None:
        self._known: dict[bytes, Header] = {}
        self._begin = b""  # of the last message, header and annotations as they were,
        self._start = BEGINNING  # what a walk finds there,
        self._header = ABSENT  # and what the header says

    def find(self, raw: bytes) -> tuple[Sections, Header]:
        """Where the sections of a message are, and its header. Raises MessageFormatError.

        Of one sender's messages, header and annotations mostly are the same bytes; these are walked and looked up once.
        """
        begin = self._begin
        if begin and raw.startswith(begin):
            return usual(raw, self._start) or scan(raw, self._start), self._header
        sections = scan(raw)
        header = self.of(raw, sections.header)
        end = sections.properties - len(_PROPERTIES)
        if sections.annotations and raw[end : sections.properties] == _PROPERTIES:
            self._begin = raw[:end]
            self._start = Start(sections.header, sections.annotations, ANNOTATIONS, end)
            self._header = header
        return sections, header

    def of(self, raw: bytes, at: int) -> Header:
        """The header whose value begins at `at` (0: there is none). Raises MessageFormatError."""
        if not at:
            return ABSENT
        key = raw[at : at + 2 + raw[at + 1]] if raw[at] == 0xC0 else raw[at : at + 1] if raw[at] == 0x45 else None
        header = None if key is None else self._known.get(key)
        if header is None:
            header = read_header(raw, at)
            if key is not None:
                if len(self._known) >= _MOST:  # ttl of a broker that counts it down: each is another
                    self._known.clear()
                self._known[key] = header
        return header


def read_header(raw: bytes, at: int) -> Header:
    """Decode it. Raises MessageFormatError where a field has another type than it must have."""
    fields, _ = read(raw, at)
    if not isinstance(fields, list):
        raise MessageFormatError("the header of the message is no list")
    values: list[Any] = [*fields[:5], *[None] * (5 - len(fields[:5]))]
    durable, priority, ttl, first, count = values
    for value, kind in ((durable, bool), (priority, int), (ttl, int), (first, bool), (count, int)):
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise MessageFormatError(f"the header of the message has {value!r} where it has to have a {kind.__name__}")
    return Header(
        bool(durable),
        DEFAULT_PRIORITY if priority is None else min(int(priority), 9),
        None if ttl is None else int(ttl),
        first,
        None if count is None else int(count),
    )


def expiry(raw: bytes, at: Sections, header: Header, now: float) -> float | None:
    """When it expires, in seconds since 1970: the absolute time if it has one, else its time to live from now; None: never.

    Only a message whose properties can hold that time is looked into: if the first byte that could begin a time stamp is where the
    creation time of a list of ten is, then there is none before it.
    """
    properties = at.properties
    if properties and raw[properties] == 0xC0:
        end = properties + 2 + raw[properties + 1]
        count = raw[properties + 2]
        first = raw.find(b"\x83", properties + 3, end) if count >= 9 else -1
        if first < 0 or (count == 10 and first == end - 9):
            return None if not header.ttl else now + header.ttl / 1000
    elif not properties or raw[properties] == 0x45:
        return None if not header.ttl else now + header.ttl / 1000
    fields, _ = read(raw, properties)
    if isinstance(fields, list) and len(fields) > 8 and isinstance(fields[8], int) and fields[8] > 0:
        return fields[8] / 1000
    return None if not header.ttl else now + header.ttl / 1000


# -- the delivery count (IF-11), as the application sees it ---------------------------------------------------------------


def exact_count(header: Header) -> int:
    """The standard counts failed attempts from 0; an absent count is 0."""
    return (header.delivery_count or 0) + 1


def no_count(header: Header) -> int:
    """The broker's count is not to be believed."""
    return -1


def derived_count(header: Header) -> int:
    """From a flag: the first acquirer has not been preceded by anyone, so far as the broker knows (IF-11)."""
    return 1 if header.first_acquirer else 2
