"""Owns what of a message is in its row of the store: a plain one in columns, any other as an envelope.

Pure: it must not know of SQL, queues or entries. Source: issue on the embedded store, "Scale and speed": nearly every message has
nothing but a body of text or bytes and the headers that every sent message has. SQLite takes these as they are, so that nobody
encodes them, and the row is half as long.
"""

from __future__ import annotations

from typing import TypeAlias, cast

from jmsclient.envelope import decode, encode
from jmsclient.errors import MessageFormatError
from jmsclient.message import Content, MessageKind, PlainContent
from jmsclient_embedded.settings import PRIORITIES

Columns: TypeAlias = tuple[str | bytes, str | None, str | None, int | None, float | None]
"""(content, id, destination, priority, timestamp). Plain: the body, text or bytes by kind. Otherwise the envelope, and no more."""

_TEXT, _BYTES = MessageKind.TEXT, MessageKind.BYTES
_NO_TIME = 1e300  # beyond it, and for NaN, SQLite has no number


def columns(content: Content) -> Columns:
    """One persistent message. Raises MessageFormatError where its body cannot be encoded. Hot path: every stored message pays it.

    Text beyond ASCII goes into an envelope: given to SQLite as it is, it would carry its UTF-8 along as long as it waits, and
    not all of it has one (halves of surrogates)."""
    if (
        type(content) is PlainContent
        and content._properties is None
        and content.correlation_id is content.reply_to is content.type is None
        and content.expiration is content.delivery_time is None
    ):
        body, kind, id_, destination = content._body, content.kind, content.message_id, content.destination
        priority, timestamp = content.priority, content.timestamp
        if (
            (body.isascii() if type(body) is str and kind is _TEXT else type(body) is bytes and kind is _BYTES)
            and type(id_) is str
            and id_.isascii()
            and type(destination) is str
            and destination.isascii()
            and type(priority) is int
            and 0 <= priority < PRIORITIES
            and type(timestamp) is float
            and -_NO_TIME < timestamp < _NO_TIME
        ):
            return body, id_, destination, priority, timestamp  # type: ignore[return-value]  # see the second condition
    return encode(content), None, None, None, None


def read(row: Columns) -> Content:
    """The content of a row. Raises MessageFormatError for columns that `columns` does not make."""
    content, id_, destination, priority, timestamp = row
    if id_ is None:
        if type(content) is not bytes:
            raise MessageFormatError(f"an envelope is bytes, not {type(content).__name__}")
        return decode(content)
    kinds = tuple(map(type, row))
    if kinds not in _PLAIN:
        raise MessageFormatError(f"a plain message of {', '.join(kind.__name__ for kind in kinds)}")
    return PlainContent(
        kind=_TEXT if type(content) is str else _BYTES,
        body=content,
        message_id=id_,
        destination=destination,
        priority=cast(int, priority),
        timestamp=timestamp,
    )


_PLAIN = {(str, str, str, int, float), (bytes, str, str, int, float)}
