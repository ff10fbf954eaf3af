"""Settings with their unit, default and reason. The keyword arguments of the public calls are the common ones; these are the rest.

All are frozen, keyword-only and checked when made: a wrong value raises ConfigurationError naming the setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from jmsclient.errors import ConfigurationError

if TYPE_CHECKING:
    from jmsclient.message import Message


class AcknowledgeMode(Enum):
    """When a session accepts what it delivered (IF-39)."""

    AUTO = "auto"
    CLIENT = "client"
    DUPS_OK = "dups_ok"
    INDIVIDUAL = "individual"
    TRANSACTED = "transacted"


class DefaultReadAhead(Enum):
    """MQ's DEFREADA of a queue or topic: what the provider's side says (RA-1). UNKNOWN counts as NO."""

    NO = "no"
    YES = "yes"
    DISABLED = "disabled"
    UNKNOWN = "unknown"


Choice = TypeVar("Choice", bound=str)


def seconds(name: str, value: float | None, *, least: float = 0.0, none: bool = False) -> None:
    """Check a duration in seconds."""
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise ConfigurationError(f"{name}={value!r}: expected seconds as a number >= {least:g}{' or None' if none else ''}")


def count(name: str, value: int | None, *, least: int = 0, none: bool = False) -> None:
    """Check a whole number."""
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{name}={value!r}: expected a whole number >= {least}{' or None' if none else ''}")


def key_part(name: str, value: object) -> None:
    """What is part of a history's keys: a text that every store can hold."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name}={value!r}: expected a text; it is part of the keys in the history")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{name}={value!r}: no history can keep half a character: {error}") from error


def choice(name: str, value: Choice, allowed: tuple[Choice, ...]) -> None:
    """Check one word out of several."""
    if value not in allowed:
        raise ConfigurationError(f"{name}={value!r}: expected one of {', '.join(allowed)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionOptions:
    """Of a connection: see the attributes."""

    default_read_ahead: DefaultReadAhead = DefaultReadAhead.UNKNOWN
    """DEFREADA where the broker has none of its own (RA-1)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerOptions:
    """Of a consumer's buffer (RA-9 to RA-13)."""

    read_ahead_messages: int = 1000
    """Messages of the window while read ahead is on; 0 turns it off (RA-3)."""
    buffer_bytes: int = 8 * 1024 * 1024
    """Bytes of the window, read ahead or not; one larger message is still delivered."""
    read_ahead_refill: int | Literal["empty"] = 75
    """Ask for more when what is left falls to this percentage of the window; `empty`: when nothing is left."""
    purge_after: float = 0.0
    """Seconds after which a buffered message is purged; 0 never (RA-11)."""
    idle_timeout: float = 30.0
    """Seconds without a take after which kept messages go back to the broker; 0 never (RA-13)."""
    close_in_listener: Literal["deliver", "raise"] = "deliver"
    """What `close` does inside the consumer's own listener while the close policy is DELIVER_ALL: return, and deliver the rest when
    the call has ended; or raise IllegalStateError at once (RA-24)."""

    def __post_init__(self) -> None:
        count("read_ahead_messages", self.read_ahead_messages)
        count("buffer_bytes", self.buffer_bytes, least=1)
        if self.read_ahead_refill != "empty":
            count("read_ahead_refill", self.read_ahead_refill, least=1)
            if self.read_ahead_refill > 100:
                raise ConfigurationError(f"read_ahead_refill={self.read_ahead_refill}: expected a percentage 1 to 100 or 'empty'")
        seconds("purge_after", self.purge_after)
        seconds("idle_timeout", self.idle_timeout)
        choice("close_in_listener", self.close_in_listener, ("deliver", "raise"))


OnError = Literal["dead_letter", "redeliver", "acknowledge"]
InDoubtPolicy = Literal["park", "dead_letter", "acknowledge", "redeliver", "run"]
InProgressPolicy = Literal["redeliver", "in_doubt"]
HistoryUnavailablePolicy = Literal["suspend", "resolver", "in_doubt", "run"]
OnRetryFailure = Literal["throw", "suspend"]
NonPersistentPolicy = Literal["check", "bypass"]
AbandonedPolicy = Literal["ask", "retry"]
OnMaxDeliveries = Literal["dead_letter", "acknowledge"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerOptions:
    """Of a trigger, beyond the keyword arguments of `Worker.trigger`."""

    abandoned: AbandonedPolicy = "ask"
    """`retry` runs an abandoned message again as New instead of asking the resolver (TR-36)."""
    body_check: bool | Callable[[Message], bytes | str] = False
    """Keep a hash of the body, or of what the function returns for a message, and park one that comes under an id that another
    body has used: reason `id_reused` (TR-47)."""
    on_max_deliveries: OnMaxDeliveries = "dead_letter"
    """What becomes of a message that is New and was delivered more than `max_deliveries` times (TR-58). It is not run: it goes the
    way of `on_error="dead_letter"`, or is acknowledged."""
    max_run_time: float | None = None
    """Seconds a handler's lease is renewed at most; None: as long as it runs (TR-40)."""
    operation_timeout: float = 2.0
    """Seconds that one call to the history may take, where it is given by URL (TR-49)."""
    resolver_timeout: float = 30.0
    """Seconds that a resolver may take (TR-55)."""
    in_progress_delay: float = 5.0
    """Seconds at most until a copy whose first delivery is in progress is decided again (TR-35)."""
    monitor_interval: float = 60.0
    """Seconds between two questions to the monitor of a suspended trigger (TR-60)."""
    monitor_tries: int | None = None
    """How often the monitor is asked at most, a suspension; None: until it says True (TR-60)."""
    strict: bool = False
    """Instead of a warning, refuse to start where the history's store may forget by itself (TR-52), and dead-letter messages
    that have no id, with the reason `no_id` (D05)."""
    max_outage: float = 3600.0
    """Seconds that the provider may be away; history_ttl has to cover it (TR-54)."""

    def __post_init__(self) -> None:
        choice("abandoned", self.abandoned, ("ask", "retry"))
        if not isinstance(self.body_check, bool) and not callable(self.body_check):
            raise ConfigurationError(f"body_check={self.body_check!r}: expected True, False or a function of a message")
        choice("on_max_deliveries", self.on_max_deliveries, ("dead_letter", "acknowledge"))
        seconds("max_run_time", self.max_run_time, none=True)
        seconds("operation_timeout", self.operation_timeout, least=0.001)
        seconds("resolver_timeout", self.resolver_timeout, least=0.001)
        seconds("in_progress_delay", self.in_progress_delay, least=0.001)
        seconds("monitor_interval", self.monitor_interval, least=0.001)
        count("monitor_tries", self.monitor_tries, least=1, none=True)
        seconds("max_outage", self.max_outage)
        if not isinstance(self.strict, bool):
            raise ConfigurationError(f"strict={self.strict!r}: expected True or False")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerOptions:
    """Of a worker: what its connection is made with."""

    username: str | None = None
    password: str | None = None
    client_id: str | None = None
    request_timeout: float = 30.0
    journal: str | Path | None = None
    """A file that every event is appended to, a line of JSON each, for `jmsclient history check`; None: no journal."""
    control: str | Path | None = None
    """A socket to be made there (mode 0600), by which `jmsclient triggers` reaches the worker while it runs; None: no socket."""

    def __post_init__(self) -> None:
        seconds("request_timeout", self.request_timeout, least=0.001)
        for name, value in (("journal", self.journal), ("control", self.control)):
            if value is not None and (not isinstance(value, str | Path) or not str(value)):
                raise ConfigurationError(f"{name}={value!r}: expected the path of a file, or None")

    def __repr__(self) -> str:  # no secret in any repr (O09)
        shown = f"username={self.username!r}, client_id={self.client_id!r}, request_timeout={self.request_timeout}"
        return f"WorkerOptions({shown}, journal={_path(self.journal)}, control={_path(self.control)})"


def _path(path: str | Path | None) -> str:
    return repr(None if path is None else str(path))
