"""Messages of which a part cannot be read, kept and copied all the same: what stands for one has what can be read of it, why the
rest cannot, and the bytes as they came as its body (IF-19, TR-34, TR-45).

Pure. It must not know what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from jmsclient.content import Content, MessageKind, PlainContent
from jmsclient.envelope import encode
from jmsclient.errors import MessageFormatError, in_words

UNREADABLE = "JMS_jmsclient_unreadable"
"""The property that says why."""
LONGEST_TEXT = 500

HEADERS = ("destination", "persistent", "priority", "timestamp", "correlation_id", "reply_to", "type")

Value = TypeVar("Value")


def readable(content: Content) -> Content:
    """`content`, where all of it can be read; else what stands for it."""
    try:
        for name in HEADERS:
            content.header(name)
        content.properties()
        content.body()
    except MessageFormatError as error:
        return stand_in(content, error)
    return content


def envelope_of(content: Content) -> bytes:
    """The envelope of `content`, or of what stands for it."""
    try:
        return encode(content)
    except MessageFormatError as error:
        return encode(stand_in(content, error))


def stand_in(content: Content, error: MessageFormatError) -> PlainContent:
    """What stands for `content`, of which something cannot be read: `error` says what."""

    def header(name: str, otherwise: Any = None) -> Any:
        return _of(lambda: content.header(name), otherwise)

    raw = content.encoded()
    return PlainContent(
        kind=MessageKind.MESSAGE if raw is None else MessageKind.BYTES,
        body=raw,
        properties={**_of(lambda: dict(content.properties()), {}), UNREADABLE: in_words(error, LONGEST_TEXT)},
        message_id=_of(lambda: content.message_id, None),
        destination=header("destination"),
        persistent=header("persistent", True),
        priority=header("priority", 4),
        timestamp=header("timestamp"),
        correlation_id=header("correlation_id"),
        reply_to=header("reply_to"),
        type=header("type"),
    )


def _of(read: Callable[[], Value], otherwise: Value) -> Value:
    try:
        return read()
    except MessageFormatError:
        return otherwise
