"""Owns who gets a visible message: the lines by name, the owners, the turn among receivers, and the batches to push.

Must not know of sessions' ends or outcomes. All under the broker's lock. Source: rules IF-5, IF-8, IF-18, IF-33; T10, T16.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from threading import get_ident

from jmsclient.clock import Clock
from jmsclient.transport.contract import Arrival
from jmsclient_embedded.aftermath import Aftermath
from jmsclient_embedded.line import Line
from jmsclient_embedded.outlet import Outlet
from jmsclient_embedded.queue import Entry, Holder, QueueSettings
from jmsclient_embedded.writing import Writing

FAIR_BATCH = 64
"""Messages at most that one of several waiting receivers is given before the next one's turn."""


class Granting:
    """The lines of a broker. `defaults` are the settings of queues made on first use."""

    def __init__(self, defaults: QueueSettings, clock: Clock, aftermath: Aftermath) -> None:
        self.defaults = defaults
        self.lines: dict[str, Line] = {}
        self.holders: dict[int, Holder] = {}
        self.timed: set[Line] = set()
        """Lines that hold something delayed, or something that expires."""
        self.sequence = itertools.count(1)
        self.numbers = itertools.count(1)
        self.writing: Writing  # set by the broker: each needs the other
        self._clock = clock
        self._aftermath = aftermath

    def line(self, name: str) -> Line:
        """The line of a queue, made on first use."""
        line = self.lines.get(name)
        if line is None:
            settings = self.defaults
            if name == settings.error_destination:  # the last resort has no limit of its own, unless it is given one
                settings = QueueSettings(default_read_ahead=settings.default_read_ahead)
            line = self.lines[name] = Line(name, settings)
        return line

    def restart_sequence(self, first: int) -> None:
        """Number new messages from `first` on: behind what was loaded."""
        self.sequence = itertools.count(first)

    def request(self, outlet: Outlet, count: int) -> None:
        """More demand of a receiver that is open."""
        if outlet.closing or count <= 0:
            return
        outlet.demand += count
        if not outlet.wanting:
            outlet.wanting = True
            outlet.line.wanting.append(outlet)
        self.grant(outlet.line)

    def stop_demand(self, outlet: Outlet, idle: Callable[[], None]) -> None:
        """Take back all demand; `idle` is called when nothing is on its way any more (IF-18)."""
        outlet.line.withdraw(outlet)
        when_idle(outlet, idle)

    def shown(self, line: Line) -> None:
        """Something of this line changed its state: grant it, or have its time looked after."""
        queue = line.queue
        if queue.expiring or queue.has_delayed:
            self.timed.add(line)
            self._aftermath.wake = True
        self.grant(line)

    def grant(self, line: Line) -> None:
        """T10: visible messages to those who want them, in turn."""
        queue, wanting = line.queue, line.wanting
        if not wanting or not queue.visible:
            return
        wall = self._clock.wall()
        barred: list[Outlet] = []
        share = turns = 0
        while wanting and queue.visible:
            if not turns:  # a new round: equal shares of what is left
                turns = len(wanting)
                share = queue.visible if turns == 1 else min(FAIR_BATCH, max(1, queue.visible // turns))
            turns -= 1
            outlet = wanting.popleft()
            granted, expired = queue.take(outlet.holder, min(outlet.demand, share), wall)
            if expired:
                self.expired(line, expired)
            if granted:
                outlet.demand -= len(granted)
                self._push(outlet, granted)
            if not outlet.demand:
                outlet.wanting = False
            elif granted or not queue.visible:
                wanting.append(outlet)
            else:
                barred.append(outlet)
        wanting.extendleft(reversed(barred))

    def expired(self, line: Line, entries: list[Entry]) -> None:
        """T16 for what was found expired: it is discarded."""
        self.writing.delete(entries)
        name = line.queue.name
        text = f"{len(entries)} messages expired on queue {name!r}"
        self._aftermath.tell("messages_expired", text, queue=name, count=len(entries))

    def _push(self, outlet: Outlet, entries: list[Entry]) -> None:
        receiver, outbox = outlet.receiver, outlet.outbox
        for entry in entries:
            arrival = Arrival(
                receiver,
                entry,
                entry.content,
                delivery_count=entry.count + 1,
                persistent=entry.persistent,
                size=entry.size,
                expires_at=entry.expires_at,
                settled=outlet.pre_settled,
            )
            entry.delivery = arrival
            outbox.append(arrival)
        if outlet.pre_settled:  # at most once: gone when sent
            self.writing.delete(entries)
            outlet.line.queue.accept(entries)
        if not outlet.pumping:
            outlet.pumping = True
            outlet.outbox = []
            self._aftermath.pushes.append((outlet, outbox))

    def pushed(self, outlet: Outlet) -> bool:
        """`sink.delivered` returned: push what was granted meanwhile, or be idle. True where it is idle now."""
        outlet.pumper = None
        if outlet.outbox:
            self._aftermath.pushes.append((outlet, outlet.outbox))
            outlet.outbox = []
            return False
        outlet.pumping = False
        return True


def when_idle(outlet: Outlet, call: Callable[[], None]) -> None:
    """Have `call` called when nobody pushes to `outlet`: now, if so, or if it is the pushing thread that asks."""
    if outlet.pumping and outlet.pumper != get_ident():
        outlet.idle.append(call)
    else:
        call()


def undelivered(outlet: Outlet) -> list[Arrival]:
    """Take what was granted and not pushed."""
    unseen, outlet.outbox = outlet.outbox, []
    return unseen
