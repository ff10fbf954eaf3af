"""Owns quotas: how much the destinations that share one may hold, and which sender is admitted next when there is room.

Pure. Must not know of stores or sinks. Source: rules IF-31, T1 to T3. Everything on a destination counts, pending messages too; a
send that waits does not. Nothing is reserved but by entering: the room is what the maximum leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from jmsclient.transport.administration import QuotaPolicy

if TYPE_CHECKING:
    from jmsclient_embedded.queue import MessageQueue


class Waiter(Protocol):
    """A sender that waits for room."""

    @property
    def held_back(self) -> bool:
        """Whether it waits for something else than room: it stands in nobody's way then."""

    def try_to_enter(self) -> bool:
        """Put on its destination as much as there is room for; True where nothing is left to do."""


class Quota:
    """`on_room` is called, with this quota, when there may be room for somebody who waits. -1 is no maximum, 0: nothing fits."""

    def __init__(
        self,
        name: str | None,
        *,
        bytes_maximum: int,
        messages_maximum: int,
        on_room: Callable[[Quota], None],
        policy: QuotaPolicy = "fifo",
    ) -> None:
        self.name = name
        self.bytes_maximum = bytes_maximum
        self.messages_maximum = messages_maximum
        self.policy = policy
        self.members: list[MessageQueue] = []
        self.waiting: deque[Waiter] = deque()
        self._serving = False
        self._on_room = on_room

    @property
    def messages(self) -> int:
        """Messages that its destinations hold."""
        return sum(queue.current + queue.pending for queue in self.members)

    @property
    def bytes(self) -> int:
        """Bytes that its destinations hold."""
        return sum(queue.bytes_current + queue.bytes_pending for queue in self.members)

    def fits_ever(self, size: int) -> bool:
        """Whether a message of `size` bytes would fit if there were nothing else."""
        if self.messages_maximum == 0 or self.bytes_maximum == 0:
            return False
        return self.bytes_maximum < 0 or size <= self.bytes_maximum

    def room_for(self, messages: int, size: int) -> bool:
        """Whether so many more messages of `size` bytes in all fit now."""
        if not self.fits_ever(0):
            return False
        if 0 <= self.messages_maximum < self.messages + messages:
            return False
        return self.bytes_maximum < 0 or self.bytes + size <= self.bytes_maximum

    def must_wait(self) -> bool:
        """Whether a newcomer stands behind others whatever room there is."""
        return self.policy == "fifo" and any(not one.held_back for one in self.waiting)

    def freed(self) -> None:
        """Something left one of its destinations, or it was raised."""
        if self.waiting or self._serving:
            self._on_room(self)

    def serve(self) -> None:
        """Admit whoever waits and fits: the first first (`fifo`), or whoever fits (`preemptive`). What is admitted may leave at
        once, to a consumer of settled messages; `on_room` is called for that as ever."""
        self._serving = True
        left: deque[Waiter] = deque()
        waiting, self.waiting = self.waiting, deque()
        while waiting:
            waiter = waiting.popleft()
            if waiter.try_to_enter():
                continue
            left.append(waiter)
            if self.policy == "fifo" and not waiter.held_back:
                break
        left.extend(waiting)
        self.waiting = left
        self._serving = False
