"""Owns how a header and a few pieces of bytes become one frame, and frames a stream of bytes. Pure: no sockets, no threads.

A frame: length of the rest (4 bytes, big endian), length of the header (4 bytes), the header (a JSON object, UTF-8), then the
pieces (message envelopes) one after the other; the header's `pieces` has their lengths. What is not that raises ProtocolError,
whatever bytes it is, and nothing is allocated for a length that is only claimed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jmsclient.errors import MessageFormatError

FRAME_LIMIT = 256 * 1024 * 1024
"""Bytes of a frame at most, once both sides have said who they are."""
HELLO_LIMIT = 64 * 1024
"""Bytes of a frame at most before that."""
_LENGTHS = struct.Struct(">II")
_HEADER_LENGTH = 4
_json = json.JSONEncoder(separators=(",", ":")).encode


class ProtocolError(Exception):
    """What the other side sent is no frame of this protocol. It ends the connection."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A header and its pieces."""

    header: dict[str, Any]
    pieces: list[bytes] = field(default_factory=list)


def encode(header: dict[str, Any], pieces: Sequence[bytes] = ()) -> bytes:
    """One frame as bytes. Raises MessageFormatError where it would be longer than FRAME_LIMIT."""
    if pieces:
        header = {**header, "pieces": [len(piece) for piece in pieces]}
    head = _json(header).encode("ascii")
    length = _HEADER_LENGTH + len(head) + sum(map(len, pieces))
    if length > FRAME_LIMIT:
        raise MessageFormatError(f"{length} bytes in one frame; at most {FRAME_LIMIT} go through a store's socket")
    return b"".join((_LENGTHS.pack(length, len(head)), head, *pieces))


class FrameReader:
    """Bytes in, frames out. `limit` is the longest frame that is taken."""

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self.limit = limit
        self._data = bytearray()

    @property
    def incomplete(self) -> bool:
        """A frame has begun and not ended."""
        return bool(self._data)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes. Raises ProtocolError; then nothing more can be read."""
        self._data += data
        while len(self._data) >= _LENGTHS.size:
            length, head = _LENGTHS.unpack_from(self._data)
            if length > self.limit:
                raise ProtocolError(f"a frame of {length} bytes, at most {self.limit} are taken here")
            if head > length - _HEADER_LENGTH:
                raise ProtocolError(f"a header of {head} bytes in a frame of {length}")
            end = _HEADER_LENGTH + length
            if len(self._data) < end:
                return
            frame = bytes(self._data[_LENGTHS.size : end])
            del self._data[:end]
            yield _split(frame, head)


def _split(frame: bytes, head: int) -> Frame:
    try:
        header = json.loads(frame[:head].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a header that is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise ProtocolError(f"a header that is a JSON {type(header).__name__}, not an object")
    lengths = header.get("pieces", [])
    if not isinstance(lengths, list) or not all(type(length) is int and length >= 0 for length in lengths):
        raise ProtocolError("pieces: expected a list of lengths")
    if sum(lengths) != len(frame) - head:
        raise ProtocolError(f"pieces of {sum(lengths)} bytes, but {len(frame) - head} are there")
    pieces = []
    for length in lengths:
        pieces.append(frame[head : head + length])
        head += length
    return Frame(header, pieces)
