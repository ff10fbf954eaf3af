"""What a connected backend can do, decided once after the handshake. A missing capability is refused at the call that needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """Decided by product and version, then by what the peer offers, then by the user's override."""

    take_on_arrival: bool = False
    """Non-persistent messages may be settled on arrival: read ahead proper (RA-3)."""
    records_hand_over: bool = False
    """`Receiver.handing_over` must be called before the application sees a persistent message (IF-11)."""
    release_without_count: bool = False
    """A released message comes back with its delivery count unchanged (RA-14)."""
    delayed_release: bool = False
    """`Outcome.delay` is honoured; otherwise the core holds the message itself (TR-67)."""
    hold_limit: float | None = None
    """Seconds a message may be held unsettled; None: no limit (RA-15)."""
    delivery_count: Literal["exact", "derived", "none"] = "none"
    count_after_loss: Literal["raised", "not_raised", "unspecified"] = "unspecified"
    reject: Literal["dead_letter", "until_limit", "discard", "requeue"] = "discard"
    close_returns_unsettled: Literal["at_close", "at_session_end"] = "at_session_end"
    order_of_mixed_persistence: bool = True
    drain: Literal["yes", "may_miss", "no"] = "no"
    transactions: bool = False
    browse: bool = False
    selectors: bool = False
    delayed_delivery: bool = False
    administration: bool = False
    priorities: bool = False
    durable_subscriptions: bool = False
    shared_subscriptions: bool = False
    topics: bool = False
