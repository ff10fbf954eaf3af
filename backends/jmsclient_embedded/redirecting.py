"""Owns what becomes of messages that leave a queue without being acknowledged: to the error destination, or discarded.

Must not know of receivers or sessions. All under the broker's lock. Source: T15, T16, IF-31 (a redirect ignores quotas), IF-33 (and
drops the expiry).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from jmsclient.clock import Clock
from jmsclient.message import Content, PropertyValue
from jmsclient_embedded.aftermath import Aftermath
from jmsclient_embedded.dead_letter import dead_letter
from jmsclient_embedded.entry import Entry
from jmsclient_embedded.line import Line
from jmsclient_embedded.writing import Writing

EXPIRED_REASON = "expired"


class Redirecting:
    """`line` finds a queue by name, made on first use; `shown` is told of each line that got something; `next_sequence` numbers
    a copy."""

    def __init__(
        self,
        writing: Writing,
        clock: Clock,
        aftermath: Aftermath,
        *,
        line: Callable[[str], Line],
        shown: Callable[[Line], None],
        next_sequence: Callable[[], int],
    ) -> None:
        self._writing = writing
        self._clock = clock
        self._aftermath = aftermath
        self._line = line
        self._shown = shown
        self._next_sequence = next_sequence

    def expired(self, line: Line, entries: Sequence[Entry]) -> None:
        """T16: they are discarded, logged one by one, or go to the error destination, as the queue's policy says."""
        queue = line.queue
        where = line.destination.address
        target = queue.settings.error_destination if queue.settings.expiration_policy == "redirect" else None
        text = f"{len(entries)} messages expired on {where}"
        if queue.settings.expiration_policy == "log":
            for entry in entries:
                one = f"message {entry.content.message_id} of {where} expired"
                self._aftermath.tell("message_expired", one, queue=queue.name, message_id=entry.content.message_id)
        if target is not None:
            queue.expired -= len(entries)
            self._redirect(line, target, entries, EXPIRED_REASON, {})
            text += f" and went to {target!r}"
        else:
            self._writing.delete(entries)
        self._aftermath.tell("messages_expired", text, queue=queue.name, count=len(entries))

    def dead_letter(self, line: Line, entries: Sequence[Entry], reason: str, properties: Mapping[str, PropertyValue]) -> None:
        """T15: messages that left `line` go to its error destination, behind what is there; without one they are discarded."""
        where, target = line.destination.address, line.queue.settings.error_destination
        if target is None:
            self._writing.delete(entries)
            line.queue.discarded += len(entries)
            text = f"{len(entries)} messages of {where} discarded: {reason}; it has no error destination"
            self._tell("messages_discarded", text, line, entries)
            return
        self._redirect(line, target, entries, reason, properties)
        self._tell("messages_dead_lettered", f"{len(entries)} messages of {where} went to {target!r}: {reason}", line, entries)

    def _redirect(
        self, line: Line, target: str, entries: Sequence[Entry], reason: str, properties: Mapping[str, PropertyValue]
    ) -> None:
        place, now = self._line(target), self._clock.wall()
        time_to_live = place.settings.time_to_live_override

        def copy(entry: Entry) -> Content:
            return dead_letter(
                entry.content,
                destination=line.destination.address,
                reason=reason,
                deliveries=entry.count,
                time=now,
                properties=properties,
                expiration=now + time_to_live if time_to_live > 0 else None,
            )

        line.queue.moved += len(entries)
        self.transfer(place, [(entry, copy(entry)) for entry in entries])

    def move(self, line: Line, target: Line, entries: Sequence[Entry]) -> None:
        """T17: messages that were taken away from `line` go to `target` as they are, ids kept, expired ones too."""
        line.queue.moved += len(entries)
        self.transfer(target, [(entry, entry.content) for entry in entries])

    def transfer(self, target: Line, moving: Sequence[tuple[Entry, Content]]) -> None:
        """Take them off the store where they were and put them on `target`, in one transaction."""
        self._writing.delete([entry for entry, _ in moving])
        for entry, content in moving:
            stored = entry.persistent and target.stored and self._writing.store is not None
            copy = Entry(self._next_sequence(), content, stored=stored)
            if stored:
                self._writing.transfer(target, copy)
            else:
                target.queue.add([copy], self._clock.wall())
        self._shown(target)

    def _tell(self, name: str, text: str, line: Line, entries: Sequence[Entry]) -> None:
        self._aftermath.tell(name, text, level=logging.WARNING, queue=line.queue.name, count=len(entries))
