"""Owns who gets a visible message: the lines by name, the owners, the turn among receivers, and the batches to push.

Must not know of sessions' ends or of what becomes of messages. All under the broker's lock. Source: rules IF-5, IF-8, IF-18, IF-33;
T10; browsing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from threading import get_ident

from jmsclient.clock import Clock
from jmsclient.transport.contract import Arrival
from jmsclient_embedded.aftermath import Aftermath
from jmsclient_embedded.entry import Entry, Holder, deliveries
from jmsclient_embedded.line import Line
from jmsclient_embedded.outlet import Outlet
from jmsclient_embedded.pauses import Flags
from jmsclient_embedded.settings import QueueSettings
from jmsclient_embedded.states import State

FAIR_BATCH = 64
"""Messages at most that one of several waiting receivers is given before the next one's turn."""


class Granting:
    """The lines of a broker. `defaults` are the settings of queues made on first use, `server` the pauses of the whole broker;
    `made` is told of each new line."""

    def __init__(self, defaults: QueueSettings, server: Flags, clock: Clock, aftermath: Aftermath) -> None:
        self.defaults = defaults
        self.server = server
        self.lines: dict[str, Line] = {}
        self.holders: dict[int, Holder] = {}
        self.timed: set[Line] = set()
        """Lines that hold something delayed, something that expires, or units of order."""
        self.sequence = itertools.count(1)
        self.numbers = itertools.count(1)
        self.made: Callable[[Line], None] = _ignore
        self.expired: Callable[[Line, list[Entry]], None] = _ignore_expired
        """What becomes of messages that were found expired (T16)."""
        self.pre_settled: Callable[[Outlet, list[Entry]], None] = _ignore_settled
        """What becomes of messages that are pushed settled (DO-1)."""
        self._clock = clock
        self._aftermath = aftermath

    def line(self, name: str) -> Line:
        """The line of a queue, made on first use."""
        line = self.lines.get(name)
        if line is None:
            settings = self.defaults
            if name == settings.error_destination:  # the last resort has no limits of its own, unless it is given some
                settings = replace(settings, redelivery_limit=-1, expiration_policy="discard", time_to_live_override=-1.0)
            line = self.lines[name] = Line(name, settings, above=(self.server,))
            self.made(line)
        return line

    def next_sequence(self) -> int:
        """The number of the next message."""
        return next(self.sequence)

    def reserve(self, count: int) -> int:
        """The numbers of the next `count` messages: the first of them."""
        first = next(self.sequence)
        self.sequence = itertools.count(first + count)
        return first

    def restart_sequence(self, first: int) -> None:
        """Number new messages from `first` on: behind what was loaded."""
        self.sequence = itertools.count(first)

    def request(self, outlet: Outlet, count: int) -> None:
        """More demand of a receiver that is open."""
        if outlet.closing or count <= 0:
            return
        if outlet.browsing is not None:
            self._show(outlet, count)
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
        if queue.expiring or queue.has_delayed or queue.settings.unit_of_order is not None:
            self.timed.add(line)
            self._aftermath.wake = True
        self.grant(line)

    def grant(self, line: Line) -> None:
        """T10: visible messages to those who want them, in turn."""
        queue, wanting = line.queue, line.wanting
        if not wanting or not queue.visible or line.consumption_paused:
            return
        wall = self._clock.wall() if queue.expiring else 0.0
        if len(wanting) == 1:
            self._grant_to(wanting[0], line, wall)
            return
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
            if barred and (expired or (granted and outlet.pre_settled is not None)):
                wanting.extendleft(reversed(barred))  # what is gone already may have stood before something for these (IF-34)
                barred.clear()
            if not outlet.demand:
                outlet.wanting = False
            elif granted or expired or not queue.visible:
                wanting.append(outlet)
            else:
                barred.append(outlet)
        wanting.extendleft(reversed(barred))

    def _grant_to(self, outlet: Outlet, line: Line, wall: float) -> None:
        """The same for the only one that wants something. Hot path: no turns."""
        queue = line.queue
        while outlet.demand and queue.visible:
            if outlet.pre_settled is None and (contents := queue.take_bare(outlet.holder, outlet.demand)):
                outlet.demand -= len(contents)
                outlet.outbox += deliveries(contents, outlet.receiver, outlet.holder)
                self._pump(outlet)
                continue
            granted, expired = queue.take(outlet.holder, outlet.demand, wall)
            if expired:
                self.expired(line, expired)
            if granted:
                outlet.demand -= len(granted)
                self._push(outlet, granted)
            elif not expired:
                break
        if not outlet.demand and outlet.wanting:
            outlet.wanting = False
            line.wanting.remove(outlet)

    def _push(self, outlet: Outlet, entries: list[Entry]) -> None:
        receiver, outbox = outlet.receiver, outlet.outbox
        settled = outlet.pre_settled
        if settled is not None and settled.error is not None:
            self._refuse(outlet, entries, settled.error)
            return
        new, gone = Arrival.__new__, settled is not None
        for entry in entries:  # hot path: plain stores, for a call with keywords costs five times as much
            arrival = new(Arrival)
            arrival.receiver = receiver
            arrival.tag = entry
            arrival.content = entry.content
            arrival.delivery_count = entry.count + 1
            arrival.persistent = entry.persistent
            arrival.size = entry.size
            arrival.expires_at = entry.expires_at
            arrival.settled = gone
            arrival.count_derived = arrival.handed_over = False
            arrival.locked_until = None
            entry.delivery = arrival
            outbox.append(arrival)
        if settled is not None:
            self.pre_settled(outlet, entries)
        self._pump(outlet)

    def _refuse(self, outlet: Outlet, entries: list[Entry], error: Exception) -> None:
        """DO-1: a default outcome that the broker cannot apply closes the consumer; nothing stays in `receive`."""
        now = self._clock.monotonic()
        outlet.line.queue.give_back(entries, counted=False, now=now)
        outlet.demand = 0
        self._aftermath.closures.append((outlet, error))

    def _show(self, outlet: Outlet, count: int) -> None:
        """Push up to `count` of what is visible still to one that only looks: nothing changes by that (IF-11)."""
        assert outlet.browsing is not None
        selection = outlet.holder.selection
        seen = 0
        wall = self._clock.wall()
        for entry in outlet.browsing:
            if entry.state is not State.VISIBLE or (selection is not None and not selection.wants(entry)):
                continue
            if entry.expires_at is not None and entry.expires_at <= wall:  # not found yet by a hand-over or a scan (IF-33)
                continue
            outlet.outbox.append(
                Arrival(
                    outlet.receiver,
                    None,
                    entry.content,
                    delivery_count=entry.count + 1,
                    persistent=entry.persistent,
                    size=entry.size,
                    expires_at=entry.expires_at,
                    settled=True,
                )
            )
            seen += 1
            if seen == count:
                break
        if seen:
            self._pump(outlet)

    def _pump(self, outlet: Outlet) -> None:
        if not outlet.pumping:
            outlet.pumping = True
            self._aftermath.pushes.append((outlet, outlet.outbox))
            outlet.outbox = []

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


def undelivered(outlet: Outlet) -> list[Entry]:
    """Take out what was granted and not pushed and is held still. What was sent settled stays to be pushed: it is nowhere else."""
    unseen: list[Entry] = []
    left: list[Arrival] = []
    for arrival in outlet.outbox:
        if arrival.settled:
            left.append(arrival)
        elif arrival.tag.delivery is arrival:
            unseen.append(arrival.tag)
    outlet.outbox = left
    return unseen


def _ignore(line: Line) -> None:
    pass


def _ignore_expired(line: Line, entries: list[Entry]) -> None:
    pass


def _ignore_settled(outlet: Outlet, entries: list[Entry]) -> None:
    pass
