"""Owns what a settlement does to messages, and their way to the error destination.

Must not know of sessions or threads. All under the broker's lock. Source: the settlement table (states.py), T12 to T15, IF-11 to
IF-14.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from jmsclient.clock import Clock
from jmsclient.destination import Queue
from jmsclient.message import PropertyValue
from jmsclient.transport.contract import RELEASE, RETRY, Arrival, Outcome, Verb
from jmsclient_embedded.aftermath import Aftermath
from jmsclient_embedded.dead_letter import dead_letter
from jmsclient_embedded.granting import Granting
from jmsclient_embedded.line import Line
from jmsclient_embedded.outlet import Outlet
from jmsclient_embedded.queue import Entry, Holder
from jmsclient_embedded.states import SETTLEMENT, State
from jmsclient_embedded.writing import Writing

LIMIT_REASON = "redelivery limit reached"
REJECTED_REASON = "dead-lettered by the consumer"


class Settling:
    """Settlements of a broker's messages."""

    def __init__(self, granting: Granting, writing: Writing, clock: Clock, aftermath: Aftermath) -> None:
        self.stale = 0
        """Settlements that came too late and did nothing."""
        self._granting = granting
        self._writing = writing
        self._clock = clock
        self._aftermath = aftermath

    def settle(self, outlet: Outlet, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        """One outcome for these; what is not this delivery any more is skipped, and counted as stale."""
        live: list[Entry] = []
        for arrival in arrivals:
            entry: Entry = arrival.tag
            if entry.delivery is arrival:
                live.append(entry)
            arrival.settled = True
        if len(live) < len(arrivals):
            self._tell_stale(outlet, len(arrivals) - len(live))
        if not live:
            return
        if outcome.verb is Verb.ACCEPT:
            self._writing.delete(live)
            outlet.line.queue.accept(live)
        elif outcome.verb is Verb.DEAD_LETTER:
            self._reject(outlet.line, live, outcome)
        else:
            self.give_back(outlet.line, live, outcome)

    def give_back(self, line: Line, entries: list[Entry], outcome: Outcome) -> None:
        """T13 or T14 by the verb, and T15 for those that reached the limit."""
        if entries:
            self._put_back(line, entries, outcome)
            self._granting.shown(line)

    def give_back_unsettled(self, holders: Sequence[Holder]) -> None:
        """Their owners are gone: handed over ones are counted (T14), others not (T13); never a delay (IF-14).

        All are back before the first is granted again: the order is the original one.
        """
        lines: dict[Line, None] = {}
        for holder in holders:
            held = list(holder.held.values())
            line = self._granting.line(holder.queue.name)
            seen = [entry for entry in held if entry.delivery.handed_over]
            unseen = [entry for entry in held if not entry.delivery.handed_over]
            for entries, outcome in ((seen, RETRY), (unseen, RELEASE)):
                if entries:
                    self._put_back(line, entries, outcome)
                    lines[line] = None
        for line in lines:
            self._granting.shown(line)

    def _put_back(self, line: Line, entries: list[Entry], outcome: Outcome) -> None:
        rule = SETTLEMENT[outcome.verb]
        counted = bool(rule.counted)
        if not counted:
            self._writing.unmark(entries)
        exceeded = line.queue.give_back(
            entries, counted=counted, now=self._clock.monotonic(), delay=outcome.delay, barred=rule.barred
        )
        for entry in entries:
            entry.marked = False
        if counted:
            self._writing.count([entry for entry in entries if entry.state is not State.GONE])
        if exceeded:
            reason = f"{LIMIT_REASON}: {outcome.reason}" if outcome.reason else LIMIT_REASON
            self.dead_letter(line, exceeded, reason, outcome.properties)

    def _reject(self, line: Line, entries: list[Entry], outcome: Outcome) -> None:
        seen = [entry for entry in entries if entry.delivery.handed_over]
        unseen = [entry for entry in entries if not entry.delivery.handed_over]
        line.queue.take_out(seen, counted=True)
        line.queue.take_out(unseen, counted=False)
        self.dead_letter(line, entries, outcome.reason or REJECTED_REASON, outcome.properties)

    def dead_letter(self, line: Line, entries: Sequence[Entry], reason: str, properties: Mapping[str, PropertyValue]) -> None:
        """T15: messages that left `line` go to its error destination, behind what is there; without one they are discarded."""
        name, target = line.queue.name, line.queue.settings.error_destination
        self._writing.delete(entries)
        if target is None:
            line.queue.discarded += len(entries)
            text = f"{len(entries)} messages of queue {name!r} discarded: {reason}; it has no error destination"
            self._aftermath.tell("messages_discarded", text, level=logging.WARNING, queue=name, count=len(entries))
            return
        line.queue.moved += len(entries)
        errors = self._granting.line(target)
        for entry in entries:
            content = dead_letter(
                entry.content,
                destination=Queue(name).address,
                reason=reason,
                deliveries=entry.count,
                properties=properties,
            )
            copy = Entry(next(self._granting.sequence), content, stored=entry.stored)
            if entry.stored:
                self._writing.transfer(errors, copy)
            else:
                errors.queue.add([copy], self._clock.wall())
        self._granting.shown(errors)
        text = f"{len(entries)} messages of queue {name!r} went to {target!r}: {reason}"
        self._aftermath.tell("messages_dead_lettered", text, level=logging.WARNING, queue=name, count=len(entries))

    def _tell_stale(self, outlet: Outlet, number: int) -> None:
        self.stale += number
        name = outlet.line.queue.name
        text = f"{number} settlements on queue {name!r} came too late and did nothing"
        self._aftermath.tell("stale_settlement", text, queue=name, count=number)
