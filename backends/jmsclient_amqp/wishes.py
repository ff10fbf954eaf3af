"""What the engine cannot encode, written into a frame that it made: the capabilities that a link desires.

Pure. Source: AMQP 1.0 sections 2.3 and 2.7.3, where `desired-capabilities` is the thirteenth field of an attach.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

_ATTACH: Final = b"\x00\x53\x12"
_DESIRED: Final = 12
_NULL: Final = b"\x40"


def desiring(capabilities: bytes) -> Callable[[bytes], bytes]:
    """A function that writes these (encoded) into each attach among whole frames. Attaches have no properties here."""

    def amended(frames: bytes) -> bytes:
        done = b""
        while frames:
            size, offset, kind, channel = struct.unpack_from(">IBBH", frames)
            body = frames[offset * 4 : size]
            if kind == 0 and body.startswith(_ATTACH):
                body = _ATTACH + _with(body[len(_ATTACH) :], capabilities)
            done += struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body
            frames = frames[size:]
        return done

    return amended


def _with(encoded: bytes, capabilities: bytes) -> bytes:
    """The list of an attach with one more field; it ends before that field, or has null there."""
    if encoded[0] == 0xC0:
        count, fields = encoded[2], encoded[3:]
    else:
        (count,) = struct.unpack_from(">I", encoded, 5)
        fields = encoded[9:]
    while count > _DESIRED and fields.endswith(_NULL):
        count, fields = count - 1, fields[:-1]
    assert count <= _DESIRED, "an attach with properties"
    fields += _NULL * (_DESIRED - count) + capabilities
    return b"\xd0" + struct.pack(">II", len(fields) + 4, _DESIRED + 1) + fields
