"""Owns the states of a message on a queue, the transitions between them and the settlement table, as data.

Must not know of threads, time or storage. Source: rules.md, "States of a message in the embedded broker" (T1 to T17) and
"Settlement: verbs and outcomes". The theory: a message is in one state of one queue; every state counts as current or as
pending, never both; only `VISIBLE` can be taken; only `RECEIVE` has an owner.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from jmsclient.transport.contract import Verb


class State(Enum):
    """Where a message is; the value is the name shown."""

    SEND = "send"
    """Sent, not yet as safe as it was asked to be."""
    DELAYED = "delayed"
    """Un-born, or in its redelivery delay."""
    VISIBLE = "visible"
    RECEIVE = "receive"
    """In a window, handed over, or awaiting its acknowledge; has an owner."""
    GONE = "gone"
    """Left this queue: acknowledged, expired, moved or never stored."""


CURRENT: Final = frozenset({State.VISIBLE})
PENDING: Final = frozenset({State.SEND, State.DELAYED, State.RECEIVE})


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the transition table; `source` None is "no message yet"."""

    rule: str
    source: State | None
    target: State
    trigger: str


TRANSITIONS: Final = (
    Transition("T4", None, State.SEND, "send that must be stored first"),
    Transition("T5", State.SEND, State.VISIBLE, "stored"),
    Transition("T5", State.SEND, State.DELAYED, "stored, not born yet"),
    Transition("T6", State.SEND, State.GONE, "could not be stored"),
    Transition("T7", None, State.VISIBLE, "plain send"),
    Transition("T7", None, State.DELAYED, "plain send, not born yet"),
    Transition("T8", State.DELAYED, State.VISIBLE, "due time"),
    Transition("T10", State.VISIBLE, State.RECEIVE, "granted to a receiver with demand"),
    Transition("T12", State.RECEIVE, State.GONE, "accepted"),
    Transition("T13", State.RECEIVE, State.VISIBLE, "given back before the application saw it"),
    Transition("T13", State.RECEIVE, State.DELAYED, "given back before the application saw it, for later"),
    Transition("T14", State.RECEIVE, State.VISIBLE, "given back after a hand-over"),
    Transition("T14", State.RECEIVE, State.DELAYED, "given back after a hand-over, with a delay"),
    Transition("T15", State.RECEIVE, State.GONE, "redelivery limit reached, or dead-lettered"),
    Transition("T16", State.VISIBLE, State.GONE, "expired"),
    Transition("T16", State.DELAYED, State.GONE, "expired"),
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
