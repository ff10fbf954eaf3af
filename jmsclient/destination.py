"""Destinations and their URI, with the read-ahead flags of IBM MQ (RA-1, RA-2).

`queue:///orders?readAheadAllowed=YES&readAheadClosePolicy=DELIVER_CURRENT`, `topic:///prices`, or a bare name, which is a queue.
A destination is a value: frozen, hashable, and `str()` gives back a URI that parses to an equal one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Protocol, TypeVar
from urllib.parse import quote, unquote

from jmsclient.errors import InvalidDestinationError


class ReadAheadAllowed(IntEnum):
    """MQ's READAHEADALLOWED (RAALD): what the client's destination says. The three `AS_` names are one number."""

    AS_DEST = -1
    NO = 0
    YES = 1


class ReadAheadClosePolicy(IntEnum):
    """MQ's READAHEADCLOSEPOLICY (RACP): what becomes of a listener's taken messages at close (RA-16)."""

    DELIVER_CURRENT = 1
    DELIVER_ALL = 2


class Persistence(IntEnum):
    """MQ's persistence of a destination: the application's choice, the queue's, never, always. It wins over the producer's.

    NON declares that nothing persistent is there: a consumer that reads ahead then lets the provider settle when it sends, where
    that can be done, and a lost link loses what was on its way."""

    APP = -2
    QDEF = -1
    NON = 1
    PERS = 2


E_ = TypeVar("E_", bound=IntEnum)

_ALLOWED: dict[str, ReadAheadAllowed] = {
    "AS_DEST": ReadAheadAllowed.AS_DEST,
    "AS_Q_DEF": ReadAheadAllowed.AS_DEST,
    "AS_TOPIC_DEF": ReadAheadAllowed.AS_DEST,
    "NO": ReadAheadAllowed.NO,
    "DISABLED": ReadAheadAllowed.NO,
    "YES": ReadAheadAllowed.YES,
    "ENABLED": ReadAheadAllowed.YES,
}
_POLICIES = {member.name: member for member in ReadAheadClosePolicy}
_PERSISTENCE = {member.name: member for member in Persistence}
_PROPERTIES = {
    "readaheadallowed": "read_ahead_allowed",
    "raald": "read_ahead_allowed",
    "readaheadclosepolicy": "read_ahead_close_policy",
    "racp": "read_ahead_close_policy",
    "persistence": "persistence",
}


def _parse(value: object, name: str, words: dict[str, E_]) -> E_:
    """One property value by word or number; the error names the property and what it may be."""
    for member in words.values():
        if isinstance(value, bool) or (isinstance(value, IntEnum) and type(value) is not type(member)):
            break  # equal to a number here, and yet another thing
        if value == member or str(value).strip() == str(int(member)):
            return member
    found = words.get(str(value).strip().upper()) if isinstance(value, str) else None
    if found is None:
        numbers = ", ".join(sorted({str(int(member)) for member in words.values()}, key=int))
        raise InvalidDestinationError(f"{name}={value!r}: expected one of {', '.join(words)} (or {numbers})")
    return found


def is_nameable(text: str) -> bool:
    """Whether it can be, or be part of, a name: no control characters, no surrogates."""
    return not any(ord(char) < 32 or 0xD800 <= ord(char) <= 0xDFFF for char in text)


@lru_cache(maxsize=1024)
def _address(scheme: str, name: str) -> str:
    """Cached, for it is asked for once a message sent."""
    return f"{scheme}:///{quote(name, safe='/:.-_~$')}"


@dataclass(frozen=True, slots=True)
class Destination:
    """What both kinds share. Make a `Queue` or a `Topic`, or parse a string with `parse_destination`."""

    name: str
    read_ahead_allowed: ReadAheadAllowed = ReadAheadAllowed.AS_DEST
    read_ahead_close_policy: ReadAheadClosePolicy = ReadAheadClosePolicy.DELIVER_ALL
    persistence: Persistence = Persistence.APP

    scheme = "queue"

    def __init__(
        self,
        name: str,
        *,
        read_ahead_allowed: ReadAheadAllowed | str | int = ReadAheadAllowed.AS_DEST,
        read_ahead_close_policy: ReadAheadClosePolicy | str | int = ReadAheadClosePolicy.DELIVER_ALL,
        persistence: Persistence | str | int = Persistence.APP,
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise InvalidDestinationError(f"destination name {name!r}: expected a name that is not empty")
        if not is_nameable(name):
            raise InvalidDestinationError(f"destination name {name!r}: control characters and surrogates are not allowed")
        put = object.__setattr__
        put(self, "name", name)
        put(self, "read_ahead_allowed", _parse(read_ahead_allowed, "readAheadAllowed", _ALLOWED))
        put(self, "read_ahead_close_policy", _parse(read_ahead_close_policy, "readAheadClosePolicy", _POLICIES))
        put(self, "persistence", _parse(persistence, "persistence", _PERSISTENCE))

    @property
    def address(self) -> str:
        """The URI without its flags: what names the place itself, in keys, logs and reply-to."""
        return _address(self.scheme, self.name)

    def __str__(self) -> str:
        flags = []
        if self.read_ahead_allowed is not ReadAheadAllowed.AS_DEST:
            flags.append(f"readAheadAllowed={self.read_ahead_allowed.name}")
        if self.read_ahead_close_policy is not ReadAheadClosePolicy.DELIVER_ALL:
            flags.append(f"readAheadClosePolicy={self.read_ahead_close_policy.name}")
        if self.persistence is not Persistence.APP:
            flags.append(f"persistence={self.persistence.name}")
        return self.address + ("?" + "&".join(flags) if flags else "")


@dataclass(frozen=True, slots=True, init=False)
class Queue(Destination):
    """A queue: each message goes to one consumer."""

    scheme = "queue"


@dataclass(frozen=True, slots=True, init=False)
class Topic(Destination):
    """A topic: each message goes to every subscription."""

    scheme = "topic"


class _Maker(Protocol):
    """The connection of a temporary destination, as far as it is needed here."""

    def delete_temporary(self, destination: Destination) -> None: ...


def _nobody() -> None:
    """The connection of one that was made by hand."""


class _Temporary:
    """What the two temporary kinds share."""

    __slots__ = ()
    _connection: Callable[[], _Maker | None]

    def made_by(self, connection: object) -> bool:
        """Whether this connection made it, and may consume from it."""
        return self._connection() is connection

    def delete(self) -> None:
        """Delete it with all that waits in it; twice does nothing. Raises IllegalStateError while a consumer is open on it. From
        any thread."""
        connection = self._connection()
        if connection is not None and isinstance(self, Destination):
            connection.delete_temporary(self)


@dataclass(frozen=True, slots=True, init=False)
class TemporaryQueue(_Temporary, Queue):
    """A queue of one connection's own, made by `Session.create_temporary_queue`; gone with `delete` or with that connection. Give
    it as `reply_to`; at the other end it reads as the plain Queue of that name."""

    _connection: Callable[[], _Maker | None] = field(default=_nobody, compare=False, repr=False)

    def __init__(self, name: str, connection: Callable[[], _Maker | None]) -> None:
        Queue.__init__(self, name)
        object.__setattr__(self, "_connection", connection)


@dataclass(frozen=True, slots=True, init=False)
class TemporaryTopic(_Temporary, Topic):
    """A topic of one connection's own, made by `Session.create_temporary_topic`; see `TemporaryQueue`."""

    _connection: Callable[[], _Maker | None] = field(default=_nobody, compare=False, repr=False)

    def __init__(self, name: str, connection: Callable[[], _Maker | None]) -> None:
        Topic.__init__(self, name)
        object.__setattr__(self, "_connection", connection)


def parse_destination(value: str | Destination) -> Destination:
    """A destination from a URI, a bare name (a queue) or an object, which is returned as it is.

    `queue:///Q`, `queue://Q` and `queue://QM/Q` name the same queue; the queue manager is the connection's affair and is
    dropped. MQ's admin names and numbers are accepted for the flags. Raises InvalidDestinationError for anything else, an
    unknown flag included: an ignored flag would be a silent loss of what it asked for.
    """
    if isinstance(value, Destination):
        return value
    if not isinstance(value, str):
        raise InvalidDestinationError(f"destination {value!r}: expected a string, a Queue or a Topic")
    text = value.strip()
    scheme, separator, rest = text.partition("://")
    if not separator:
        if text.lower().startswith(("queue:", "topic:")):
            raise InvalidDestinationError(f"destination {value!r}: write it as queue:///NAME or topic:///NAME")
        scheme, rest = "queue", "/" + text
    kinds: dict[str, type[Destination]] = {"queue": Queue, "topic": Topic}
    kind = kinds.get(scheme.lower())
    if kind is None:
        raise InvalidDestinationError(f"destination {value!r}: expected queue:///NAME, topic:///NAME or a bare queue name")
    path, question, query = rest.partition("?")
    authority, slash, name = path.partition("/")
    try:
        name = unquote(name if slash else authority, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidDestinationError(f"destination {value!r}: the name is not percent-encoded UTF-8") from error
    if not name:
        raise InvalidDestinationError(f"destination {value!r}: the name is missing; write {scheme.lower()}:///NAME")
    flags: dict[str, str] = {}
    for pair in query.split("&") if question else ():
        key, equals, flag = pair.partition("=")
        option = _PROPERTIES.get(key.lower())
        if option is None:
            raise InvalidDestinationError(
                f"destination {value!r}: unknown property {key!r}; expected readAheadAllowed, readAheadClosePolicy or persistence"
            )
        if not equals or not flag:
            raise InvalidDestinationError(f"destination {value!r}: property {key!r} has no value")
        if option in flags:
            raise InvalidDestinationError(f"destination {value!r}: property {key!r} is given twice")
        flags[option] = unquote(flag)
    return kind(name, **flags)
