"""Deliveries that are decided again later, held by the client: unsettled and out of the buffer's order (TR-67).

Touched by whoever has the pipeline's turn.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from collections.abc import Callable
from itertools import count

from jmsclient.events import emit
from jmsclient.transport.contract import RELEASE, Arrival
from jmsclient.trigger.desk import Desk, Key
from jmsclient.trigger.work import Work


class Held:
    """At most half the window; beyond that a delivery is released and demand withheld until one is due.

    One whose first delivery runs in this trigger is due as soon as that has ended. `hold_limit` in seconds is the provider's: at
    half of it, counted from when it came, a delivery is released (RA-15)."""

    def __init__(self, desk: Desk, hold_limit: float | None = None) -> None:
        self._desk = desk
        self.ring: Callable[[], None] = lambda: None
        """Wakes the pipeline."""
        self._most = max(1, desk.declaration.window // 2)
        self._hold = math.inf if hold_limit is None else hold_limit / 2
        self._withholds = False  # demand: for too many are held
        self._order = count()
        self._heap: list[tuple[float, int, Arrival, Key]] = []
        self._left: deque[Key] = deque()  # of whose first deliveries have ended; any thread adds
        self._asked_again: deque[str] = deque(maxlen=desk.declaration.window)
        """Tokens of runs that had left. One that left its entry as it was, because it is in doubt, is waited for like another's."""

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, work: Work, delay: float) -> None:
        """Keep its arrival until `delay` seconds are over."""
        desk, arrival = self._desk, work.arrival
        if len(self._heap) >= self._most:
            desk.leave(arrival, RELEASE)
            desk.intake.stop()
            self._withholds = True
            return
        name = desk.declaration.name
        if desk.declaration.serial and not self._heap:
            emit(
                "trigger",
                "serial_waits",
                f"trigger {name!r} is serial and waits behind a message that another worker runs now",
                trigger=name,
                message_id=arrival.content.message_id,
            )
        key = (work.id, work.source)
        desk.awaited.add(key, self._has_left)
        if self._left_meanwhile(work):
            delay = 0.0
        heapq.heappush(self._heap, (desk.clock.monotonic() + delay, next(self._order), arrival, key))

    def take(self, now: float, limit: int) -> list[Arrival]:
        """Up to `limit` whose delay is over."""
        if self._left:
            self._advance(now)
        arrivals: list[Arrival] = []
        while self._heap and self._heap[0][0] <= now and len(arrivals) < limit:
            _, _, arrival, key = heapq.heappop(self._heap)
            self._desk.awaited.remove(key, self._has_left)
            arrivals.append(arrival)
        return arrivals

    def take_all(self) -> list[Arrival]:
        """Stop holding."""
        return self._taken(lambda _: True)

    def watch(self, now: float, *, withheld: bool, may_ask: bool) -> None:
        """Release what may not be held any longer; all of it, where the trigger takes nothing for now (`withheld`). Demand again,
        if it may, when one is due."""
        if self._heap and withheld:
            for arrival in self.take_all():
                self._desk.leave(arrival, RELEASE)
        elif self._heap and self._hold < math.inf and self._first_release() <= now:
            self._release(now)
        if self._withholds and may_ask and (not self._heap or self._left or self._heap[0][0] <= now):
            self._withholds = False
            self._desk.intake.start()

    def due(self, *, able: bool) -> list[float]:
        """When to look again; `able`: a handler is free to take what is."""
        if not self._heap:
            return []
        due = [] if self._hold == math.inf else [self._first_release()]
        if able:
            due.append(0.0 if self._left else self._heap[0][0])
        return due

    def _left_meanwhile(self, work: Work) -> bool:
        """Its first delivery, which a lane of this trigger had, has left since the history said that it runs; told so once."""
        entry = work.entry
        if (
            entry is None
            or not entry.lease_alive
            or entry.token in self._asked_again
            or not self._desk.awaited.was_here(entry.token)
        ):
            return False
        self._asked_again.append(entry.token)
        return True

    def _has_left(self, key: Key) -> None:
        """On whatever lane's thread."""
        self._left.append(key)
        self.ring()

    def _advance(self, now: float) -> None:
        """Work of the same id has left the trigger: its copies need not wait."""
        left = {self._left.popleft() for _ in range(len(self._left))}
        self._heap = [(now if key in left else due, order, arrival, key) for due, order, arrival, key in self._heap]
        heapq.heapify(self._heap)

    def _taken(self, which: Callable[[Arrival], bool]) -> list[Arrival]:
        """Out of it, in the order in which they are due."""
        gone = sorted((one for one in self._heap if which(one[2])), key=lambda one: one[:2])
        self._heap = [one for one in self._heap if not which(one[2])]
        heapq.heapify(self._heap)
        for _, _, _, key in gone:
            self._desk.awaited.remove(key, self._has_left)
        return [arrival for _, _, arrival, _ in gone]

    def _first_release(self) -> float:
        return min(self._release_at(arrival) for _, _, arrival, _ in self._heap)

    def _release_at(self, arrival: Arrival) -> float:
        return math.inf if arrival.locked_until is None else arrival.locked_until - self._hold

    def _release(self, now: float) -> None:
        desk, name = self._desk, self._desk.declaration.name
        over = self._taken(lambda arrival: self._release_at(arrival) <= now)
        for arrival in over:
            desk.leave(arrival, RELEASE, head=True)
        text = f"trigger {name!r}: {len(over)} messages in progress were held for half of what the provider allows: given back"
        emit(
            "trigger",
            "hold_limit",
            text,
            level=logging.WARNING,
            trigger=name,
            released=len(over),
        )
