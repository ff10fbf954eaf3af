"""Owns the states of a message on a queue, the transitions between them and the settlement table, as data.

Must not know of threads, time or storage. Source: rules.md, "States of a message in the embedded broker" (T1 to T17) and
"Settlement: verbs and outcomes". The theory: a message is in one state of one queue; every state counts as current or as
pending, never both; only `VISIBLE` can be taken; only `RECEIVE` has an owner. A send that waits for room is no message yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from jmsclient.transport.contract import Verb


class State(Enum):
    """Where a message is; the value is the name shown."""

    SEND = "send"
    """Sent in a transaction that has not ended, or not yet as safe as it was asked to be."""
    DELAYED = "delayed"
    """Un-born, or in its redelivery delay."""
    PAUSED = "paused"
    """Would be visible, were insertion not paused."""
    VISIBLE = "visible"
    ORDERED = "ordered"
    """Would be visible, stood it not behind the head of its unit of order."""
    RECEIVE = "receive"
    """In a window, handed over, or awaiting its acknowledge; has an owner."""
    EXPIRED = "expired"
    """On its way out; nobody sees it so."""
    REDELIVERY_COUNT_EXCEEDED = "redelivery-count-exceeded"
    """On its way to the error destination; nobody sees it so."""
    GONE = "gone"
    """Left this queue: acknowledged, expired, moved, deleted or never stored."""


TRANSACTION: Final = "+transaction"
"""What is added to the name of `SEND` and `RECEIVE` inside a transaction."""
CURRENT: Final = frozenset({State.VISIBLE, State.ORDERED})
PENDING: Final = frozenset({State.SEND, State.DELAYED, State.PAUSED, State.RECEIVE})
MANAGEABLE: Final = frozenset({State.VISIBLE, State.DELAYED, State.ORDERED, State.PAUSED})
"""What a move, a delete or a drain may touch (T17)."""
SHOWN_AS: Final = tuple(
    one.value + more
    for one in (*sorted(PENDING | CURRENT, key=lambda one: one.value),)
    for more in ("", TRANSACTION)
    if not more or one in (State.SEND, State.RECEIVE)
)
"""Every name that a message's state can be shown as."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the transition table; `source` None is "no message yet"."""

    rule: str
    source: State | None
    target: State
    trigger: str


def _rows(rule: str, sources: tuple[State | None, ...], targets: tuple[State, ...], trigger: str) -> tuple[Transition, ...]:
    return tuple(Transition(rule, source, target, trigger) for source in sources for target in targets)


_SHOWN: Final = (State.VISIBLE, State.DELAYED, State.PAUSED, State.ORDERED)
"""Where a message goes that nothing but its own time, a pause or its unit of order keeps from being visible."""
_READY: Final = (State.VISIBLE, State.PAUSED, State.ORDERED)

TRANSITIONS: Final = (
    *_rows("T4", (None,), (State.SEND,), "send in a transaction, or one that must be stored first"),
    *_rows("T5", (State.SEND,), _SHOWN, "commit, or stored"),
    *_rows("T6", (State.SEND,), (State.GONE,), "rollback, or could not be stored"),
    *_rows("T7", (None,), _SHOWN, "plain send, or a sender that waited gets room (T2)"),
    *_rows("T8", (State.DELAYED,), _READY, "due time"),
    *_rows("T9", (State.PAUSED,), (State.VISIBLE, State.ORDERED), "insertion resumed"),
    *_rows("T10", (State.VISIBLE,), (State.RECEIVE,), "granted to a receiver with demand"),
    *_rows("T11", (State.RECEIVE,), (State.RECEIVE,), "handed to application code: its count rises by one"),
    *_rows("T12", (State.RECEIVE,), (State.GONE,), "acknowledged, or committed"),
    *_rows("T13", (State.RECEIVE,), _SHOWN, "given back before the application saw it"),
    *_rows("T14", (State.RECEIVE,), _SHOWN, "rolled back, recovered, or its owner closed or died"),
    *_rows("T15", (State.RECEIVE,), (State.REDELIVERY_COUNT_EXCEEDED,), "redelivery limit reached, or dead-lettered"),
    *_rows("T15", (State.REDELIVERY_COUNT_EXCEEDED,), (State.GONE,), "to the error destination, or discarded"),
    *_rows("T16", _SHOWN, (State.EXPIRED,), "expiry time"),
    *_rows("T16", (State.EXPIRED,), (State.GONE,), "discarded, logged or redirected"),
    *_rows("T17", _SHOWN, (State.GONE,), "moved or deleted by management"),
    *_rows("IF-34", (State.ORDERED,), (State.VISIBLE,), "the head of its unit of order has finished"),
)

_ALLOWED: Final = frozenset((one.source, one.target) for one in TRANSITIONS)


def allowed(source: State | None, target: State) -> bool:
    """Whether the table has a transition from `source` to `target`."""
    return (source, target) in _ALLOWED


@dataclass(frozen=True, kw_only=True, slots=True)
class Settlement:
    """What one verb does: `rule`; whether a delivery counts (None: if it was handed over); whether the receiver is barred from
    it; whether the message leaves the queue."""

    rule: str
    counted: bool | None
    barred: bool = False
    leaves: bool = False


SETTLEMENT: Final = {
    Verb.ACCEPT: Settlement(rule="T12", counted=False, leaves=True),
    Verb.RELEASE: Settlement(rule="T13", counted=False),
    Verb.RETRY: Settlement(rule="T14", counted=True),
    Verb.RETRY_ELSEWHERE: Settlement(rule="T14", counted=True, barred=True),
    Verb.DEAD_LETTER: Settlement(rule="T15", counted=None, leaves=True),
}
