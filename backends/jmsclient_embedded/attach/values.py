"""Owns how the values of the contract cross the socket: destinations, specs, outcomes, statistics, errors as JSON and back. Pure.

Only what is listed here is ever made from what comes in: no name in a frame reaches any other class. Everything else raises
ProtocolError. Numbers, texts, booleans and None are themselves; a list is a list; an object has one key that says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from jmsclient import errors
from jmsclient.destination import Destination, parse_destination
from jmsclient.errors import ConfigurationError, JmsClientError
from jmsclient.message import Content, PlainContent
from jmsclient.options import DefaultReadAhead
from jmsclient.transport.administration import DestinationStatistics, ManagementResult, MessageInfo, PendingByKind
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Outcome, ReceiverSpec, Verb
from jmsclient_embedded.attach.frames import ProtocolError

_RECORDS = {
    one.__name__: one
    for one in (Capabilities, DestinationStatistics, ManagementResult, MessageInfo, Outcome, PendingByKind, ReceiverSpec)
}
_CHOICES: dict[str, type[Enum]] = {one.__name__: one for one in (DefaultReadAhead, Verb)}
_ERRORS = {name: one for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, JmsClientError)} | {
    one.__name__: one for one in (TypeError, ValueError)
}
_HEADERS = ("destination", "priority", "timestamp", "expiration", "delivery_time", "correlation_id", "reply_to", "type")


def to_json(value: Any) -> Any:
    """A value as JSON has it. Raises ConfigurationError for one that has no form here."""
    if value is None or isinstance(value, bool | str) or type(value) in (int, float):
        return value
    if isinstance(value, Destination):
        return {"destination": str(value)}
    if isinstance(value, Enum):
        return {"choice": [type(value).__name__, value.value]}
    if isinstance(value, list):
        return [to_json(one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [to_json(one) for one in value]}
    if isinstance(value, Mapping):
        return {"map": [[to_json(key), to_json(one)] for key, one in value.items()]}
    if is_dataclass(value) and type(value).__name__ in _RECORDS:
        return {"record": [type(value).__name__, {one.name: to_json(getattr(value, one.name)) for one in fields(value)}]}
    raise ConfigurationError(f"a value of type {type(value).__name__} cannot be sent to the process that holds the store")


def from_json(data: Any) -> Any:
    """The value again. Raises ProtocolError for what is none."""
    if isinstance(data, list):
        return [from_json(one) for one in data]
    if not isinstance(data, dict):
        return data
    try:
        ((what, inner),) = data.items()
        return _READERS[what](inner)
    except ProtocolError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ProtocolError(f"a value that is none: {error!r}"[:200]) from error


def _record(inner: Any) -> Any:
    """A record; what a newer peer has more of is left out, what an older one lacks has its default."""
    name, given = inner
    kind = _RECORDS[name]
    known = {one.name for one in fields(kind)}
    return kind(**{key: from_json(value) for key, value in given.items() if key in known})


_READERS: dict[str, Callable[[Any], Any]] = {
    "destination": lambda inner: parse_destination(str(inner)),
    "choice": lambda inner: _CHOICES[inner[0]](inner[1]),
    "tuple": lambda inner: tuple(from_json(list(inner))),
    "map": lambda inner: {from_json(key): from_json(value) for key, value in inner},
    "record": _record,
}


def error_to_json(error: Exception) -> list[Any]:
    """An error as its class and its arguments; one that is not of this library's keeps its text."""
    name = type(error).__name__
    if _ERRORS.get(name) is not type(error):
        return ["JmsClientError", [f"{name}: {error}"]]
    try:
        return [name, [to_json(one) for one in error.args]]
    except ConfigurationError:
        return [name, [str(error)]]


def error_from_json(data: Any) -> Exception:
    """The error again, of the same class with the same arguments. Raises ProtocolError for what is none."""
    try:
        name, arguments = data
        error: Exception = _ERRORS[name](*[from_json(one) for one in arguments])
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as wrong:
        raise ProtocolError(f"an error that is none: {wrong!r}"[:200]) from wrong
    return error


def plain_content(content: Content) -> PlainContent:
    """A message as a sender takes it, from one read off an envelope. Raises MessageFormatError for a body that cannot be read."""
    return PlainContent(
        kind=content.kind,
        body=content.body(),
        properties=dict(content.properties()),
        message_id=content.message_id,
        persistent=bool(content.header("persistent")),
        **{name: value for name in _HEADERS if (value := content.header(name)) is not None},
    )
