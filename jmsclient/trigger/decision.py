"""New, Duplicate, In Doubt: the decision about one delivery. Pure; the store has worked out whether a lease is alive.

The table is in rules.md ("Trigger: the decision", TR-28 to TR-34); `classify` is its code, in the table's order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

from jmsclient.errors import IllegalStateError
from jmsclient.history.entries import VERSION, Entry, State


class Status(Enum):
    """What a delivery is to its trigger."""

    NEW = "new"
    """Not processed before: run it."""
    DUPLICATE = "duplicate"
    """Processed before: acknowledge it, do not run it."""
    IN_DOUBT = "in_doubt"
    """It may have been processed, wholly or in part: do not run it, keep it for a decision."""


@dataclass(frozen=True, slots=True)
class New:
    """Run it; `attempt` is 1 the first time."""

    attempt: int = 1
    status: ClassVar[Status | None] = Status.NEW


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Acknowledge it. `unfinished`: its dead-lettering was begun and is to be finished first (TR-45)."""

    unfinished: bool = False
    status: ClassVar[Status | None] = Status.DUPLICATE


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Carry out the trigger's In Doubt policy; `reason` is one word that never changes."""

    reason: str
    status: ClassVar[Status | None] = Status.IN_DOUBT


@dataclass(frozen=True, slots=True)
class InProgress:
    """Another delivery of it runs now; `until` is how many seconds its lease has left (TR-35)."""

    until: float
    status: ClassVar[Status | None] = None


@dataclass(frozen=True, slots=True)
class AskResolver:
    """Only the resolver can tell; `attempt` is the number of the run if it answers NEW."""

    reason: str
    attempt: int = 1
    status: ClassVar[Status | None] = None

    def after_resolver(self, answer: Status) -> Decision:
        """The final decision. Raises IllegalStateError for an answer that is no Status (TR-55)."""
        if answer is Status.NEW:
            return New(self.attempt)
        if answer is Status.DUPLICATE:
            return Duplicate()
        if answer is Status.IN_DOUBT:
            return InDoubt("resolver")
        raise IllegalStateError(f"a resolver returned {answer!r}: expected Status.NEW, DUPLICATE or IN_DOUBT")


Decision: TypeAlias = New | Duplicate | InDoubt | InProgress | AskResolver


def classify(
    delivery_count: int,
    entry: Entry | None,
    *,
    has_history: bool,
    has_resolver: bool,
    cautious: bool = False,
    same_transaction: bool = False,
    retry_abandoned: bool = False,
    body_hash: bytes | None = None,
) -> Decision:
    """Decide about one delivery.

    `delivery_count` is 1 for the first, -1 where the provider keeps none (TR-29). `entry` is what the history held before this
    delivery's claim, None for nothing. `cautious`: the store lost what it knew (TR-53). `same_transaction`: the history commits
    with the handler's effects, so an abandoned run left none (TR-36). `retry_abandoned`: the trigger asked for that risk.
    `body_hash`: of this delivery, where the trigger checks bodies (TR-47).
    """
    if has_history:
        if entry is None:
            if cautious and delivery_count != 1:
                return AskResolver("history_lost") if has_resolver else InDoubt("history_lost")
            return New()
        return _by_entry(entry, has_resolver, same_transaction or retry_abandoned, body_hash)
    if delivery_count == 1:
        return New()
    if has_resolver:
        return AskResolver("redelivered" if delivery_count > 1 else "count_unknown")
    return New() if delivery_count < 1 else InDoubt("redelivered")


def _by_entry(entry: Entry, has_resolver: bool, run_abandoned: bool, body_hash: bytes | None) -> Decision:
    if entry.version != VERSION or entry.state is State.UNKNOWN:
        return InDoubt("unknown_version")
    if body_hash is not None and entry.body_hash is not None and body_hash != entry.body_hash:
        return InDoubt("id_reused")
    match entry.state:
        case State.COMPLETED | State.JOINED:
            return Duplicate()
        case State.FAILED:
            return Duplicate(unfinished=True)
        case State.IN_DOUBT:
            return Duplicate() if entry.decision == "duplicate" else InDoubt("parked")
    if entry.lease_alive:
        return InProgress(entry.lease_left)
    if entry.state is State.RETRYING or run_abandoned:
        return New(entry.attempt + 1)
    return AskResolver("abandoned", entry.attempt + 1) if has_resolver else InDoubt("abandoned")
