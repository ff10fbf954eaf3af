"""Owns what of a message is in its row of the store: a plain one in columns, any other as an envelope.

Pure: it must not know of SQL, queues or entries. Source: issue on the embedded store, "Scale and speed": nearly every message has
nothing but a body of text or bytes and the headers that every sent message has. SQLite takes these as they are, so that nobody
encodes them, and the row is half as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count, repeat
from typing import TypeAlias, overload

from jmsclient.envelope import decode, encode
from jmsclient.errors import MessageFormatError
from jmsclient.message import Content, MessageKind, PlainContent, Texts
from jmsclient_embedded.settings import PRIORITIES

Head: TypeAlias = tuple[str | None, int | None]
"""(destination, priority): what all that a producer sends has in common, and therefore mostly the same object."""
Columns: TypeAlias = tuple[str | bytes, str | None, float | None, Head]
"""(content, id, timestamp, head). Plain: the body, text or bytes by kind. Otherwise the envelope, and nothing else."""

_TEXT, _BYTES = MessageKind.TEXT, MessageKind.BYTES
_NO_TIME = 1e300  # beyond it, and for NaN, SQLite has no number
_NO_HEAD: Head = (None, None)


def columns(contents: Iterable[PlainContent]) -> list[Columns | None]:
    """What is stored of each; None for one that is not persistent. Raises MessageFormatError where a body cannot be encoded. Hot
    path: every stored message pays it.

    Text beyond ASCII goes into an envelope: given to SQLite as it is, it would carry its UTF-8 along as long as it waits, and
    not all of it has one (halves of surrogates)."""
    rows: list[Columns | None] = []
    destination: str | None = None
    priority = -1
    head: Head | None = None
    for content in contents:
        if not content.persistent:
            rows.append(None)
            continue
        if content.destination is not destination or content.priority != priority:
            destination, priority = content.destination, content.priority
            head = _head(destination, priority)
        body, kind, id_, timestamp = content._body, content.kind, content.message_id, content.timestamp
        if (
            head is not None
            and content._properties is None
            and content.correlation_id is content.reply_to is content.type is None
            and content.expiration is content.delivery_time is None
            and (body.isascii() if type(body) is str and kind is _TEXT else type(body) is bytes and kind is _BYTES)
            and type(id_) is str
            and id_.isascii()
            and type(timestamp) is float
            and -_NO_TIME < timestamp < _NO_TIME
        ):
            rows.append((body, id_, timestamp, head))  # type: ignore[arg-type]  # text or bytes, says the condition
        else:
            rows.append(envelope(content))
    return rows


class TextColumns(Sequence[Columns | None]):
    """`columns` of texts that were sent at once, are plain, and wait as one object: made one by one only where somebody looks."""

    __slots__ = ("_made", "head", "texts")

    def __init__(self, texts: Texts, head: Head) -> None:
        self.texts = texts
        self.head = head
        self._made: list[Columns | None] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> Columns | None: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Columns | None]: ...
    def __getitem__(self, index: int | slice) -> Columns | Sequence[Columns | None] | None:
        if self._made is None:
            self._made = columns(self.texts)
        return self._made[index]

    def numbered(self, first: int) -> Iterator[tuple[int, str, str, float]]:
        """(sequence, body, id, timestamp) of each."""
        return zip(count(first), self.texts.bodies, self.texts.ids, repeat(self.texts.timestamp))


def text_columns(texts: Texts) -> Sequence[Columns | None]:
    """`columns` of persistent texts."""
    head = _head(texts.destination, texts.priority)
    ascii_only = all(map(str.isascii, texts.bodies)) and all(map(str.isascii, texts.ids))
    if head is None or not texts.untouched or not ascii_only or not -_NO_TIME < texts.timestamp < _NO_TIME:
        return columns(texts)
    return TextColumns(texts, head)


def envelope(content: Content) -> Columns:
    """Any message. Raises MessageFormatError where its body cannot be encoded."""
    return encode(content), None, None, _NO_HEAD


@lru_cache(maxsize=256)
def _head(destination: str | None, priority: int) -> Head | None:
    plain = type(destination) is str and destination.isascii() and type(priority) is int and 0 <= priority < PRIORITIES
    return (destination, priority) if plain else None


def read(content: object, id_: object, destination: object, priority: object, timestamp: object) -> Content:
    """The content of a row. Raises MessageFormatError for columns that `columns` does not make."""
    if id_ is None:
        if type(content) is not bytes:
            raise MessageFormatError(f"an envelope is bytes, not {type(content).__name__}")
        return decode(content)
    if (
        isinstance(content, str | bytes)
        and isinstance(id_, str)
        and isinstance(destination, str)
        and isinstance(priority, int)
        and isinstance(timestamp, float)
    ):
        return PlainContent(
            kind=_TEXT if isinstance(content, str) else _BYTES,
            body=content,
            message_id=id_,
            destination=destination,
            priority=priority,
            timestamp=timestamp,
        )
    kinds = ", ".join(type(one).__name__ for one in (content, id_, destination, priority, timestamp))
    raise MessageFormatError(f"a plain message is not made of {kinds}")
