"""Owns how what administration makes is written to the store, and read again: settings, topics, quotas, subscriptions.

Must not know of SQL or of queues. A queue is stored under its name; the others under names that no queue can have, for a control
character is in them. Source: api.md "Administration"; store format 2.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from jmsclient.errors import ConfigurationError, StoreFormatError
from jmsclient.options import DefaultReadAhead
from jmsclient_embedded.changes import Definition
from jmsclient_embedded.settings import QueueSettings

MARK = "\x1f"
"""No destination's name has it in it."""
_SETTINGS = frozenset(one.name for one in fields(QueueSettings))


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaDefinition:
    """A quota that destinations share."""

    bytes_maximum: int = -1
    messages_maximum: int = -1
    policy: str = "fifo"


@dataclass(frozen=True, kw_only=True, slots=True)
class SubscriptionDefinition:
    """A durable subscription: to be made again when the store is opened."""

    topic: str
    name: str
    client_id: str | None
    selector: str | None
    no_local: bool
    shared: bool


@dataclass(slots=True)
class Definitions:
    """Everything that a store defines, by kind."""

    queues: dict[str, QueueSettings] = field(default_factory=dict)
    topics: dict[str, QueueSettings] = field(default_factory=dict)
    quotas: dict[str, QuotaDefinition] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionDefinition] = field(default_factory=dict)
    """By the name of their line."""


def topic_key(name: str) -> str:
    """What a topic is stored under."""
    return f"{MARK}topic{MARK}{name}"


def quota_key(name: str) -> str:
    """What a quota is stored under."""
    return f"{MARK}quota{MARK}{name}"


def subscription_key(line: str) -> str:
    """What a subscription is stored under, from the name of its line."""
    return f"{MARK}subscription{MARK}{line}"


def definition(what: QueueSettings | QuotaDefinition | SubscriptionDefinition) -> Definition:
    """What differs from the defaults, as JSON values."""
    return dict(_plain(what))


def _plain(what: QueueSettings | QuotaDefinition | SubscriptionDefinition) -> Iterator[tuple[str, object]]:
    for one in fields(what):
        value = getattr(what, one.name)
        if value != one.default:
            yield one.name, value.value if isinstance(value, enum.Enum) else value


def read(stored: dict[str, Definition]) -> Definitions:
    """The definitions of a store. Raises StoreFormatError for what this version does not know."""
    found = Definitions()
    for key, plain in stored.items():
        if not key.startswith(MARK):
            found.queues[key] = read_settings(key, plain)
            continue
        _, kind, name = key.split(MARK, 2)
        try:
            if kind == "topic":
                found.topics[name] = read_settings(name, plain)
            elif kind == "quota":
                found.quotas[name] = QuotaDefinition(**plain)  # type: ignore[arg-type]  # checked by whoever makes the quota
            elif kind == "subscription":
                found.subscriptions[name] = SubscriptionDefinition(**plain)  # type: ignore[arg-type]
            else:
                raise TypeError(f"unknown kind {kind!r}")
        except TypeError as error:
            raise StoreFormatError(f"the store's definition of {name!r} cannot be read: {error}") from error
    return found


def read_settings(name: str, plain: Definition) -> QueueSettings:
    """The settings of one destination. Raises StoreFormatError."""
    unknown = plain.keys() - _SETTINGS
    try:
        if unknown:
            raise ConfigurationError(f"unknown settings {', '.join(sorted(unknown))}")
        values = dict(plain)
        if "default_read_ahead" in values:
            values["default_read_ahead"] = DefaultReadAhead(values["default_read_ahead"])
        return QueueSettings(**values)  # type: ignore[arg-type]  # checked by QueueSettings itself
    except (TypeError, ValueError) as error:
        raise StoreFormatError(f"the store's settings of {name!r} cannot be read: {error}") from error
