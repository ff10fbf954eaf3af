"""Owns a queue together with those who wait at it, in turn. Must not know of storage or threads. Source: rule IF-5; fairness."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from jmsclient_embedded.queue import MessageQueue, QueueSettings

if TYPE_CHECKING:
    from jmsclient_embedded.outlet import Outlet


class Line:
    """A queue and its receivers; `wanting` are those with demand, the next to be served first. Under the broker's lock."""

    __slots__ = ("consumers_high", "consumers_total", "outlets", "queue", "wanting")

    def __init__(self, name: str, settings: QueueSettings) -> None:
        self.queue = MessageQueue(name, settings)
        self.outlets: set[Outlet] = set()
        self.wanting: deque[Outlet] = deque()
        self.consumers_high = 0
        self.consumers_total = 0

    def attach(self, outlet: Outlet) -> None:
        """A receiver opened."""
        self.outlets.add(outlet)
        if outlet.holder.selection is not None:
            self.queue.begin_selection(outlet.holder.selection)
        self.consumers_total += 1
        self.consumers_high = max(self.consumers_high, len(self.outlets))

    def detach(self, outlet: Outlet) -> None:
        """It closed: it is matched no more (IF-5)."""
        self.outlets.discard(outlet)
        if outlet.holder.selection is not None:
            self.queue.end_selection(outlet.holder.selection)
        self.withdraw(outlet)

    def withdraw(self, outlet: Outlet) -> None:
        """It wants nothing any more."""
        outlet.demand = 0
        if outlet.wanting:
            outlet.wanting = False
            self.wanting.remove(outlet)
