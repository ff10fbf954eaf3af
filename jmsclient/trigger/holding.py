"""Deliveries that are decided again later, held by the client: unsettled and out of the buffer's order (TR-67).

Touched by the pipeline thread only.
"""

from __future__ import annotations

import heapq
from itertools import count

from jmsclient.events import emit
from jmsclient.transport.contract import RELEASE, Arrival
from jmsclient.trigger.desk import Desk


class Held:
    """At most half the window; beyond that a delivery is released and demand withheld until one is due."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._most = max(1, desk.declaration.window // 2)
        self._order = count()
        self._heap: list[tuple[float, int, Arrival]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, arrival: Arrival, delay: float) -> None:
        """Keep it until `delay` seconds are over."""
        desk = self._desk
        if len(self._heap) >= self._most:
            desk.leave(arrival, RELEASE)
            desk.intake.stop()
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
        heapq.heappush(self._heap, (desk.clock.monotonic() + delay, next(self._order), arrival))

    def take(self, now: float, limit: int) -> list[Arrival]:
        """Up to `limit` whose delay is over."""
        arrivals: list[Arrival] = []
        while self._heap and self._heap[0][0] <= now and len(arrivals) < limit:
            arrivals.append(heapq.heappop(self._heap)[2])
        return arrivals

    def take_all(self) -> list[Arrival]:
        """Stop holding."""
        heap, self._heap = self._heap, []
        return [arrival for _, _, arrival in heap]

    def due(self) -> list[float]:
        return [self._heap[0][0]] if self._heap else []
