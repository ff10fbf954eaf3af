"""What each acknowledge mode means, and what a session has handed over without an acknowledge (IF-39; S04, S05).

Knows no threads but in `Gathered`: a session guards the rest. An exception from a signal handler may strike between any two steps
here; every order of steps is such that repeating the whole call completes it, because settling twice does nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Literal

from jmsclient.clock import Clock
from jmsclient.errors import ConfigurationError, IllegalStateError, UnsupportedFeatureError
from jmsclient.options import AcknowledgeMode
from jmsclient.transport.contract import ACCEPT, Arrival, Outcome, Receiver

BY_APPLICATION = (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL)
"""The modes in which a message stays unacknowledged until the application says so."""
GATHER_TIME = 0.05
"""Seconds that DUPS_OK gathers acknowledges at most (IF-39)."""
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


class Gathered:
    """DUPS_OK: acknowledges of one consumer that wait to go out together (IF-39). `limit` in messages. `later(due, call)` is how
    the keeper is asked to flush what is due.

    One thread adds, any thread flushes, one at a time: two would settle the same messages twice, and the provider would take the
    second for one that comes too late. The lists are exchanged by plain stores, between which CPython neither switches threads nor
    runs signal handlers; what a struck flush leaves in `_going` goes out with the next one.
    """

    __slots__ = ("__weakref__", "_arrivals", "_clock", "_flushing", "_going", "_later", "_limit", "_timed")

    def __init__(self, limit: int, clock: Clock, later: Callable[[float, Callable[[], object]], None]) -> None:
        self._limit = max(1, limit)
        self._clock = clock
        self._later = later
        self._arrivals: list[Arrival] = []
        self._going: list[Arrival] = []
        self._timed = False
        self._flushing = threading.RLock()  # guards `_going`; a signal handler may flush while its thread does

    def add(self, arrival: Arrival) -> None:
        """Acknowledge it soon: at once where the limit is reached, else within `GATHER_TIME`."""
        self._arrivals.append(arrival)
        if len(self._arrivals) >= self._limit:
            self.flush()
        elif not self._timed:
            self._later(self._clock.monotonic() + GATHER_TIME, self._due)
            self._timed = True  # after the call: struck in between, it is asked for twice, which does no harm

    def _due(self) -> None:
        self._timed = False
        self.flush()

    def flush(self) -> None:
        """Hand every acknowledge over to the provider."""
        with self._flushing:
            while self._arrivals or self._going:
                if not self._going:
                    fresh: list[Arrival] = []
                    self._going, self._arrivals = self._arrivals, fresh
                going = self._going
                if going:
                    settle_by_receiver(going, ACCEPT)
                    if self._going is going:
                        self._going = []

    def __len__(self) -> int:
        return len(self._arrivals) + len(self._going)


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
