"""The contract of a backend. It pushes: batches of arrivals go up, settlements and requests come down.

A backend owns its I/O and its threads. It calls `sink.delivered(batch)` with lists in transport order, never two calls at once for
one sink, and never under a lock that `request`, `settle`, `drain` or `close` need. `request`, `settle` and `handing_over` only hand
over and return at once; they may be called from any thread, from inside `sink.delivered`, and after the receiver died (then they
do nothing, and a settlement is counted and logged as stale). What waits takes a `deadline` on the connection's monotonic clock,
waits on the caller's thread, never under a lock, and raises RequestTimeoutError when it has passed (None: no deadline).

A Transport lives once and never reconnects: it reports `listener.lost(error)`, once, and is dead; every later call that asks
for something raises ConnectionLostError. Whatever a backend cannot do raises UnsupportedFeatureError; that is the default here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from jmsclient.clock import SYSTEM_CLOCK, Clock
from jmsclient.destination import Destination
from jmsclient.errors import UnsupportedFeatureError
from jmsclient.message import Content, PlainContent, PropertyValue
from jmsclient.transport.capabilities import Capabilities

if TYPE_CHECKING:
    from jmsclient.transport.administration import Administration

# -- what comes down: outcomes -----------------------------------------------------------------------------------------


class Verb(Enum):
    """What became of a delivery: the settlement table of rules.md."""

    ACCEPT = "accept"
    """Done: the message is removed (T12)."""
    RELEASE = "release"
    """The application never saw it: back to its place, count unchanged (T13)."""
    RETRY = "retry"
    """It was handed over and failed: back to its place, count + 1, limit checked (T14)."""
    RETRY_ELSEWHERE = "retry_elsewhere"
    """As RETRY, and not offered to this receiver again."""
    DEAD_LETTER = "dead_letter"
    """To the error destination now; what that means is capability `reject`."""


_NO_PROPERTIES: Mapping[str, PropertyValue] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """An explicit settlement. `delay` in seconds is only given to backends that declare `delayed_release`; `reason` is a short
    text and `properties` are added to a dead-lettered copy."""

    verb: Verb
    delay: float = 0.0
    reason: str | None = None
    properties: Mapping[str, PropertyValue] = field(default_factory=lambda: _NO_PROPERTIES)


ACCEPT = Outcome(verb=Verb.ACCEPT)
RELEASE = Outcome(verb=Verb.RELEASE)
RETRY = Outcome(verb=Verb.RETRY)
RETRY_ELSEWHERE = Outcome(verb=Verb.RETRY_ELSEWHERE)

# -- what goes up: arrivals ---------------------------------------------------------------------------------------------


class Arrival:
    """One delivery, the same object from the socket to the settlement.

    `tag` belongs to the backend. `delivery_count` is what the application sees (1 first, -1 unknown); `count_derived` says it
    was made from a flag. `settled`: the backend (pre-settled) or the buffer (taken) has settled it. `expires_at` and
    `locked_until` are seconds (wall clock; monotonic clock) or None. `handed_over` is set by the core, as a plain attribute,
    before application code sees the message: what is then not settled comes back counted (T14), otherwise uncounted (T13).
    """

    __slots__ = (
        "content",
        "count_derived",
        "delivery_count",
        "expires_at",
        "handed_over",
        "locked_until",
        "persistent",
        "receiver",
        "settled",
        "size",
        "tag",
    )

    def __init__(
        self,
        receiver: Receiver,
        tag: Any,
        content: Content,
        *,
        delivery_count: int,
        persistent: bool,
        size: int,
        count_derived: bool = False,
        settled: bool = False,
        expires_at: float | None = None,
        locked_until: float | None = None,
    ) -> None:
        self.receiver = receiver
        self.tag = tag
        self.content = content
        self.delivery_count = delivery_count
        self.persistent = persistent
        self.size = size
        self.count_derived = count_derived
        self.settled = settled
        self.expires_at = expires_at
        self.locked_until = locked_until
        self.handed_over = False

    def __repr__(self) -> str:
        return f"<Arrival {self.content.message_id} count={self.delivery_count}{' settled' if self.settled else ''}>"


class Sink(Protocol):
    """Where a receiver pushes."""

    def delivered(self, batch: list[Arrival]) -> None:
        """A batch in transport order. Returns quickly; may call `request` and `settle`. Never raises."""

    def closed(self, error: Exception | None) -> None:
        """The receiver was closed by the peer (or refused while reopened). Called once, after the last `delivered`."""

    def recall(self) -> None:
        """The provider wants back what the application has not seen (a consumption pause, IF-20): release what is kept and
        buffered; demand stays. Any thread, under no lock. Never raises."""


class TransportListener(Protocol):
    """Who hears that a transport died."""

    def lost(self, error: Exception) -> None:
        """The link is gone for good. Called once, on a backend thread. Returns quickly. Never raises."""


# -- how to reach it ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """A parsed URL. `address` is the part between scheme and `?`, without user information."""

    scheme: str
    address: str
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    client_id: str | None = None
    clock: Clock = SYSTEM_CLOCK

    def __str__(self) -> str:
        """For logs and errors: scheme and address, no user information."""
        return f"{self.scheme}:{self.address}"


SubscriptionKind = Literal["queue", "topic", "durable", "shared", "shared_durable", "browse"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiverSpec:
    """What a receiver is to be; enough to open it again after a reconnect.

    `browse` looks at the messages of a queue that a consumer could take: its arrivals are settled from the beginning, hold
    nothing and change no count; when a drain returns, all that was visible when it began has arrived. `name` is the
    subscription's (durable, shared, shared_durable)."""

    destination: Destination
    selector: str | None = None
    kind: SubscriptionKind = "queue"
    name: str | None = None
    no_local: bool = False
    pre_settled: bool = False
    takes_all: bool = False
    """Whoever receives settles everything on arrival: read ahead from a destination that is declared non-persistent. A backend
    whose drain leaves nothing on its way may then settle when it sends. One that tells a default read ahead of its own may not,
    for the decision is only final when it has told."""
    default_outcome: str | None = "accepted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """The provider at the other end."""

    product: str
    version: str


class Receipt:
    """The provider has the message as safely as it was asked to; `message_id` is the id it has there."""

    __slots__ = ("message_id",)

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id


# -- the rooms of a backend ---------------------------------------------------------------------------------------------


class Receiver(ABC):
    """One receiving link. At first it has no demand: nothing arrives before `request`."""

    @property
    def present(self) -> Receiver | None:
        """For a backend, itself. What `transport/link.py` gives instead outlives links: then the one that receives now, None during
        an outage."""
        return self

    @abstractmethod
    def request(self, count: int) -> None:
        """Allow `count` more messages to arrive. Demands add up."""

    @abstractmethod
    def settle(self, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        """Settle these, all with one outcome. Idempotent: what is settled already, or belongs to a dead receiver, is skipped.

        Sets `arrival.settled`. A settlement that was handed over before the process is killed may be lost; the message then
        comes back."""

    def accept(self, arrival: Arrival) -> None:
        """As `settle((arrival,), ACCEPT)`. What AUTO pays once a message; a backend may have a shorter way for it."""
        self.settle((arrival,), ACCEPT)

    def handing_over(self, arrivals: Sequence[Arrival]) -> None:  # noqa: B027  a default that is right for most backends
        """The application is about to see these persistent arrivals (only where `records_hand_over`; IF-11). When it returns,
        a kill -9 of the process still counts the delivery."""

    def drain(self, deadline: float | None) -> None:
        """Take back all demand. When it returns, everything that was on its way has been delivered to the sink, no more will
        come before the next `request`, and demand is zero (IF-18)."""
        raise UnsupportedFeatureError("this provider cannot drain a receiver")

    def withdraw(self) -> int:
        """Take back what is asked for and is not on its way, as far as that can be done at once; how much. Called from inside
        `Sink.delivered` only, where messages turn out larger than the demand was meant for (RA-9). What is on its way arrives
        all the same and counts as demand that was taken back. Of a browser also while it is drained, which may end the drain."""
        return 0

    @abstractmethod
    def close(self, deadline: float | None) -> None:
        """Detach. Nothing is delivered after it returns. Arrivals that are still unsettled stay with the session where
        `close_returns_unsettled` is `at_session_end`; otherwise they go back: handed over ones counted, others not.
        Idempotent."""


class Begun(ABC):
    """Messages that `Sender.begin` handed over, and whose confirmations nobody waits for yet. For the thread that began them."""

    ids: Sequence[str]
    size: int
    """Bytes of all of them, about."""

    @property
    @abstractmethod
    def failed(self) -> bool:
        """As far as is known, `finish` will raise."""

    @abstractmethod
    def finish(self, *, room_deadline: float | None, confirm_timeout: float | None) -> list[Receipt]:
        """Wait until each is confirmed; as `Sender.send`, and raises what that raises. `confirm_timeout` counts from when they are
        written, or from this call, whichever is later. Once, and in the order in which they were begun."""

    @abstractmethod
    def stop(self) -> None:
        """What is not written yet will not be; then `finish` tells which those are."""


class Sender(ABC):
    """One sending link to one destination."""

    most_ahead = 0
    """Bytes of messages that may be under way by `begin` at present, what is begun included; 0: there is only `send`."""

    def begin(self, messages: Sequence[PlainContent]) -> Begun:
        """Hand these over, to go out behind all that was begun or sent before, and return at once. Only where `most_ahead` allows.
        Contents belong to the backend from here."""
        raise UnsupportedFeatureError("this provider confirms what is sent before it takes more")

    @abstractmethod
    def send(
        self, messages: Sequence[PlainContent], *, room_deadline: float | None, confirm_timeout: float | None
    ) -> list[Receipt]:
        """Send these, pipelined, and wait until each is confirmed; receipts in the same order.

        Waits for room until `room_deadline`: past it nothing more is sent and ResourceAllocationError is raised (if nothing
        was sent at all) or SendError. Once written, a confirmation is awaited for `confirm_timeout` seconds, then SendError
        with the ids in doubt. DestinationPausedError where production is paused. Contents belong to the backend from here
        and must not be changed."""

    def close(self, deadline: float | None) -> None:  # noqa: B027  a default that is right for most backends
        """Detach. Idempotent."""


class TransportSession(ABC):
    """A group of receivers and senders; in a transacted session every send and every ACCEPT joins its one transaction. Other
    outcomes take effect at once."""

    @abstractmethod
    def open_receiver(self, spec: ReceiverSpec, sink: Sink, deadline: float | None) -> Receiver:
        """Attach. Raises InvalidDestinationError, InvalidSelectorError or UnsupportedFeatureError where refused."""

    @abstractmethod
    def open_sender(self, destination: Destination, deadline: float | None) -> Sender:
        """Attach. Raises InvalidDestinationError where refused."""

    def serves(self, receiver: Receiver) -> bool:
        """Whether what came from this receiver may still be settled. False only after a reconnect; for a backend always True."""
        return True

    def enlist(self, arrival: Arrival) -> None:  # noqa: B027  a backend sees the accept itself
        """The core is about to accept this arrival in the open transaction."""

    def flush(self, deadline: float | None) -> None:  # noqa: B027  a default that is right for most backends
        """Return when every settlement handed over so far is as safe as this provider makes it (see decision 0002)."""

    def commit(self, deadline: float | None) -> None:
        """Make what was sent and accepted since the last commit or rollback true, all of it. Raises TransactionRolledBackError
        where none of it is (the link was lost before the commit was written), TransactionInDoubtError where that is not known.
        Whatever happens, the next transaction starts empty (IF-28)."""
        raise UnsupportedFeatureError("this provider has no transactions")

    def rollback(self, *, redelivery_delay: float, deadline: float | None) -> None:
        """Undo it: what was sent is gone, what was accepted is back in its place, counted (T14), after `redelivery_delay` seconds
        (only given where `delayed_release` is declared). What was not accepted stays as it is. The next transaction starts empty.
        The receivers keep their demand; the core has drained them before."""
        raise UnsupportedFeatureError("this provider has no transactions")

    def unsubscribe(self, name: str, deadline: float | None) -> None:
        """Delete a durable subscription with all that waits in it. Raises IllegalStateError while a receiver is open on it,
        InvalidDestinationError where there is none of that name."""
        raise UnsupportedFeatureError("this provider has no durable subscriptions")

    def create_temporary(self, kind: Literal["queue", "topic"], deadline: float | None) -> Destination:
        """A destination that lives until `delete_temporary` or the end of the connection. Anybody may send to it; receivers of
        another connection are refused (InvalidDestinationError) where the provider can tell."""
        raise UnsupportedFeatureError("this provider has no temporary destinations")

    def delete_temporary(self, destination: Destination, deadline: float | None) -> None:
        """Delete it with all that waits in it. Raises IllegalStateError while a receiver is open on it; one that is gone already is
        ignored."""
        raise UnsupportedFeatureError("this provider has no temporary destinations")

    @abstractmethod
    def close(self, deadline: float | None) -> None:
        """Close all its receivers and senders; what is unsettled goes back: handed over ones counted, others not; an open
        transaction is rolled back. Neither is delayed (IF-14). No message names it afterwards (IF-9). Idempotent."""


class Transport(ABC):
    """One live connection. Thread-safe."""

    peer: Peer
    capabilities: Capabilities
    in_process: bool = False
    """The provider is this very process: what is not stored, such as a pause, ends with it."""

    @abstractmethod
    def open_session(self, *, transacted: bool, deadline: float | None) -> TransportSession: ...

    def administration(self) -> Administration:
        raise UnsupportedFeatureError("this provider offers no administration")

    def ready(self, deadline: float | None) -> None:  # noqa: B027  a backend has a link until it is lost
        """Wait for the end of an outage, on the caller's thread. Raises ConnectionLostError where that does not come in time."""

    def closing(self) -> None:  # noqa: B027  a backend has no outages
        """The connection is about to be closed: nobody waits for a lost link any longer. Returns at once."""

    @abstractmethod
    def close(self, deadline: float | None) -> None:
        """Close all its sessions, then the link. Idempotent; does not call `listener.lost`."""


class Backend(ABC):
    """The entry point: an object with no state of its own, made without arguments."""

    schemes: Sequence[str] = ()

    @abstractmethod
    def connect(self, endpoint: Endpoint, listener: TransportListener, *, deadline: float | None) -> Transport:
        """Reach the provider and shake hands. Raises ConnectionLostError, ConfigurationError or StoreError."""
