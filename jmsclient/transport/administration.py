"""The contract of administration: what a provider that offers it can be asked and told about its destinations.

What `connection.administration` gives. Every call names a destination as consumers do (a URI, a bare name, a Queue or Topic), may
wait for the provider, is thread-safe, and changes nothing when it raises. Errors: InvalidDestinationError for a destination that
is not there, ConfigurationError for a value that cannot work, IllegalStateError for a wrong state, UnsupportedFeatureError for
what the provider does not offer, ConnectionLostError. Source: api.md "Administration"; rules "The three pauses", IF-7, IF-15, IF-31
to IF-35.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from jmsclient.destination import Destination
from jmsclient.options import DefaultReadAhead
from jmsclient.transport.contract import Outcome

ExpirationPolicy = Literal["discard", "log", "redirect"]
QuotaPolicy = Literal["fifo", "preemptive"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingByKind:
    """In-flight messages by what they wait for; the sum is `messages_pending`."""

    unborn: int = 0
    """Their delivery time has not come."""
    uncommitted_sent: int = 0
    """Sent in a transaction that has not ended, or on their way to the store."""
    uncommitted_received: int = 0
    """In the window or the hands of a transacted session."""
    unacknowledged: int = 0
    """In the window or the hands of any other session."""
    redelivery_delay: int = 0
    """Given back, to come again later."""
    paused: int = 0
    """Would be visible, were insertion not paused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DestinationStatistics:
    """A destination in numbers. `current` can be taken now; `pending` is in flight; `high` is the peak of `current` since the
    last reset; `received` counts each message once (IF-15)."""

    messages_current: int = 0
    messages_pending: int = 0
    messages_high: int = 0
    messages_received: int = 0
    bytes_current: int = 0
    bytes_pending: int = 0
    bytes_high: int = 0
    bytes_received: int = 0
    messages_acknowledged: int = 0
    messages_expired: int = 0
    messages_moved: int = 0
    messages_deleted: int = 0
    messages_discarded: int = 0
    bytes_removed: int = 0
    consumers_current: int = 0
    consumers_high: int = 0
    consumers_total: int = 0
    pending_by_kind: PendingByKind = field(default_factory=PendingByKind)
    blocked_senders: int = 0
    """Senders that wait for room; their messages are counted nowhere (T1)."""
    production_paused: bool = False
    insertion_paused: bool = False
    consumption_paused: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageInfo:
    """One message of a destination. `state` is the name of rules.md (`visible`, `receive+transaction`, …), `owner` who holds it,
    `age` seconds since it was sent, `delivery_count` the number of hand-overs so far."""

    message_id: str | None
    destination: str
    state: str
    owner: str | None
    age: float
    delivery_count: int
    priority: int
    persistent: bool
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ManagementResult:
    """What a move, delete or drain did (IF-35): the ids of `done`, and of `refused` with the state that forbade it."""

    done: tuple[str | None, ...] = ()
    refused: tuple[tuple[str | None, str], ...] = ()


class Administration(ABC):
    """See the module."""

    # -- looking ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def destinations(self) -> list[Destination]:
        """Every destination there is, sorted by URI."""

    @abstractmethod
    def statistics(self, destination: str | Destination) -> DestinationStatistics:
        """The numbers of this moment."""

    @abstractmethod
    def reset_statistics(self, destination: str | Destination) -> None:
        """Set the high-water marks to the current values (IF-15)."""

    @abstractmethod
    def messages(self, destination: str | Destination, selector: str | None = None, state: str | None = None) -> list[MessageInfo]:
        """Every message, visible ones first in their order; only those that `selector` selects and that are in `state` (a name
        of rules.md: `send`, `delayed`, `paused`, `visible`, `ordered`, `receive`, with or without `+transaction`)."""

    # -- pausing ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def pause_production(self, destination: str | Destination | None = None) -> bool:
        """Refuse new sends to a destination (None: to any). False where it was paused already. As all pauses and resumes."""

    @abstractmethod
    def resume_production(self, destination: str | Destination | None = None) -> bool: ...

    @abstractmethod
    def pause_insertion(self, destination: str | Destination | None = None) -> bool:
        """Let nothing become visible, in-flight work included; new sends are refused too."""

    @abstractmethod
    def resume_insertion(self, destination: str | Destination | None = None) -> bool: ...

    @abstractmethod
    def pause_consumption(self, destination: str | Destination | None = None) -> bool:
        """Hand nothing out; what consumers have not seen goes back to its place (T13)."""

    @abstractmethod
    def resume_consumption(self, destination: str | Destination | None = None) -> bool: ...

    # -- changing messages ------------------------------------------------------------------------------------------

    @abstractmethod
    def move(
        self,
        destination: str | Destination,
        target: str | Destination,
        selector: str | None = None,
        *,
        message_ids: Sequence[str] | None = None,
    ) -> ManagementResult:
        """Move messages to another destination, ids kept, quota of the target ignored. Only while consumption is paused (T17)."""

    @abstractmethod
    def delete(
        self, destination: str | Destination, selector: str | None = None, *, message_ids: Sequence[str] | None = None
    ) -> ManagementResult:
        """Delete the messages that `selector` selects or `message_ids` names; one of the two is needed. Only while consumption is
        paused (T17)."""

    @abstractmethod
    def drain(self, destination: str | Destination) -> ManagementResult:
        """Delete every message that nobody holds. Only while consumption is paused (T17)."""

    @abstractmethod
    def recover_stuck(self, owner_or_message: str, outcome: Outcome | str = "retry") -> int:
        """Settle what an owner holds, or the one message with this id, in its owner's place: `retry` (T14), `release` (T13),
        `accept` (T12) or `dead_letter` (T15). What the owner settles later is stale; a transaction that
        had it can only be rolled back then, unless it was accepted. Returns how many."""

    # -- making -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def create_queue(
        self,
        name: str,
        *,
        bytes_maximum: int = -1,
        messages_maximum: int = -1,
        quota: str | None = None,
        bytes_threshold_high: int = -1,
        bytes_threshold_low: int = -1,
        messages_threshold_high: int = -1,
        messages_threshold_low: int = -1,
        redelivery_delay: float = -1.0,
        redelivery_multiplier: float = 1.0,
        redelivery_delay_maximum: float | None = None,
        redelivery_limit: int = -1,
        error_destination: str | None = "DLQ",
        expiration_policy: ExpirationPolicy = "discard",
        time_to_deliver_override: float = -1.0,
        time_to_live_override: float = -1.0,
        priority_override: int = -1,
        delivery_mode_override: Literal["persistent", "non_persistent"] | None = None,
        unit_of_order: str | None = None,
        production_paused_at_startup: bool | None = None,
        insertion_paused_at_startup: bool | None = None,
        consumption_paused_at_startup: bool | None = None,
        default_read_ahead: DefaultReadAhead | str = DefaultReadAhead.NO,
    ) -> None:
        """Make a queue with these settings, or give them to the one there is.

        `bytes_maximum`, `messages_maximum`: its own quota (IF-31), -1 none; `quota`: the name of a shared one instead
        (`create_quota`). Thresholds: -1 none; crossing one is an event. `redelivery_delay`: seconds, overrides the session's, -1
        does not (IF-14); the n-th redelivery waits `redelivery_multiplier` to the power n - 1 times as long, at most
        `redelivery_delay_maximum` seconds. `redelivery_limit`: redeliveries, -1 no limit (IF-13). `error_destination`: a queue
        name; None discards. `expiration_policy` `redirect` sends there too (IF-33). Overrides: -1 or None leave what the producer
        said; times in seconds. `unit_of_order`: the property that names a message's unit (IF-34). Pauses at start: None leaves it
        to the server's and the template's setting. `default_read_ahead`: DEFREADA (RA-1).
        """

    @abstractmethod
    def create_topic(
        self,
        name: str,
        *,
        bytes_maximum: int = -1,
        messages_maximum: int = -1,
        quota: str | None = None,
        redelivery_delay: float = -1.0,
        redelivery_multiplier: float = 1.0,
        redelivery_delay_maximum: float | None = None,
        redelivery_limit: int = -1,
        error_destination: str | None = "DLQ",
        expiration_policy: ExpirationPolicy = "discard",
        time_to_deliver_override: float = -1.0,
        time_to_live_override: float = -1.0,
        priority_override: int = -1,
        delivery_mode_override: Literal["persistent", "non_persistent"] | None = None,
        default_read_ahead: DefaultReadAhead | str = DefaultReadAhead.NO,
    ) -> None:
        """Make a topic, or give these settings to the one there is and its subscriptions; as `create_queue`."""

    @abstractmethod
    def create_quota(self, name: str, *, bytes_maximum: int = -1, messages_maximum: int = -1, policy: QuotaPolicy = "fifo") -> None:
        """Make a quota that destinations can share, or change the one there is: -1 no limit, 0 nothing fits. Lowering it denies
        new sends only. `fifo`: the first sender that waits is served first; `preemptive`: whoever fits."""

    @abstractmethod
    def delete_destination(self, destination: str | Destination) -> None:
        """Remove a destination with all its messages. Raises IllegalStateError while it has consumers."""
