"""What each acknowledge mode means, and what a session has handed over without an acknowledge (IF-39; S04, S05).

Knows no threads: a session guards it. An exception from a signal handler may strike between any two steps here; every order of
steps is such that repeating the whole call completes it, because settling twice does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from jmsclient.errors import ConfigurationError, IllegalStateError, UnsupportedFeatureError
from jmsclient.options import AcknowledgeMode
from jmsclient.transport.contract import Arrival, Outcome, Receiver

BY_APPLICATION = (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL)
"""The modes in which a message stays unacknowledged until the application says so."""
PRUNE_FROM = 256
"""With fewer remembered messages, the acknowledged ones among them are not looked for."""


def checked_mode(mode: AcknowledgeMode, *, transactions: bool) -> AcknowledgeMode:
    """Refuse what is no mode (ConfigurationError), and TRANSACTED where the provider has no `transactions`
    (UnsupportedFeatureError)."""
    if not isinstance(mode, AcknowledgeMode):
        raise ConfigurationError(f"acknowledge={mode!r}: expected one of {', '.join(map(str, AcknowledgeMode))}")
    if mode is AcknowledgeMode.TRANSACTED and not transactions:
        raise UnsupportedFeatureError("acknowledge mode TRANSACTED: this provider has no transactions")
    return mode


def when_asked(mode: AcknowledgeMode, *, closed: bool, settled: bool) -> Literal["ignore", "message", "session"]:
    """What `message.acknowledge()` does: in CLIENT it acknowledges all that its session has delivered, unless this message is
    settled already (acknowledged before, or taken back by recover), for then its redelivery is another delivery; in INDIVIDUAL
    that message only; in the other modes nothing (JM 3.6). Raises IllegalStateError where the session is closed (JM 6.2.15)."""
    if mode not in BY_APPLICATION:
        return "ignore"
    if closed:
        raise IllegalStateError("the session of this message is closed; the message was given back and will come again")
    if settled:
        return "ignore"
    return "message" if mode is AcknowledgeMode.INDIVIDUAL else "session"


class Unacknowledged:
    """What a session handed over and nobody has acknowledged, oldest first.

    In INDIVIDUAL any thread acknowledges; that only settles an arrival, and the session's own thread forgets it here later: only
    that thread changes the list."""

    __slots__ = ("_prune_at", "arrivals")

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self._prune_at = PRUNE_FROM

    def append(self, arrival: Arrival) -> None:
        """It is about to be handed over."""
        if len(self.arrivals) >= self._prune_at:
            self.forget(())
            self._prune_at = max(PRUNE_FROM, 2 * len(self.arrivals))
        self.arrivals.append(arrival)

    def undo(self, arrival: Arrival) -> None:
        """It was not handed over after all."""
        if self.arrivals and self.arrivals[-1] is arrival:
            self.arrivals.pop()

    def all(self) -> list[Arrival]:
        """A copy, to be settled before `forget`; without those that are settled already."""
        return [arrival for arrival in self.arrivals if not arrival.settled]

    def forget(self, arrivals: Iterable[Arrival]) -> None:
        """These are settled, and so are those that say so, which is nearly always all of them."""
        left = [arrival for arrival in self.arrivals if not arrival.settled]
        if left:
            gone = {id(arrival) for arrival in arrivals}
            left = [arrival for arrival in left if id(arrival) not in gone]
        self.arrivals = left

    def any_of(self, receiver: object) -> bool:
        """Whether a receiver is still needed for settling."""
        return any(arrival.receiver is receiver and not arrival.settled for arrival in self.arrivals)

    def __len__(self) -> int:
        return len(self.arrivals)


def settle_by_receiver(arrivals: Iterable[Arrival], outcome: Outcome) -> None:
    """One settlement a receiver."""
    groups: dict[int, list[Arrival]] = {}
    last: Receiver | None = None
    group: list[Arrival] = []
    for arrival in arrivals:
        receiver = arrival.receiver
        if receiver is not last:  # most have the same as the one before
            last = receiver
            group = groups.setdefault(id(receiver), [])
        group.append(arrival)
    for group in groups.values():
        group[0].receiver.settle(group, outcome)
