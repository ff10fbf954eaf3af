"""Decisions about parked copies, carried out: a decided copy is given to the pipeline as if it had just arrived (TR-34).

The history says which copies somebody has decided about; it is asked now and then. Each becomes an arrival with the id that it is
parked under, so that one path claims, runs, retries and completes it. Its receiver is this room: whatever the settlement, the copy
is the history's, and what was not completed is found again by the next look, here or in another worker. Touched by the
pipeline thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from jmsclient.envelope import decode
from jmsclient.errors import HistoryUnavailableError, MessageFormatError
from jmsclient.events import emit
from jmsclient.history.contract import ParkedMessage
from jmsclient.message import Content
from jmsclient.transport.contract import Arrival, Outcome, Receiver
from jmsclient.trigger.desk import Desk
from jmsclient.trigger.joins import SOURCE, SetContent

LOOK_INTERVAL = 5.0


class CarryingOut(Receiver):
    """`arrivals` wait for a handler to be free; an arrival's `tag` is the ParkedMessage."""

    def __init__(self, desk: Desk, *, looks: bool = True) -> None:
        """`looks`: another lane of the trigger does not."""
        self._desk = desk
        self._history = desk.declaration.history if looks else None
        self._look_at = 0.0
        self._waiting: list[ParkedMessage] = []
        self._in_hand: set[tuple[str, str]] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def watch(self, now: float) -> None:
        """Look for decisions when it is time. What waits since the last look is looked up anew, so that it is never stale."""
        if self._history is None or now < self._look_at or self._desk.stopping:
            return
        self._look_at = now + LOOK_INTERVAL
        try:
            found = self._history.decided(self._desk.declaration.name)
        except HistoryUnavailableError:  # whoever has something to tell it finds out too, and says so
            return
        self._waiting = [one for one in found if (one.id, one.source) not in self._in_hand]

    def look_now(self) -> None:
        """There may be something: do not wait for the next look."""
        self._look_at = 0.0

    def due(self) -> list[float]:
        return [] if self._history is None or self._desk.stopping else [self._look_at]

    def take(self, limit: int) -> list[Arrival]:
        """Up to `limit`, oldest first."""
        taken, self._waiting = self._waiting[:limit], self._waiting[limit:]
        return [arrival for one in taken if (arrival := self._arrival(one)) is not None]

    def _arrival(self, parked: ParkedMessage) -> Arrival | None:
        self._in_hand.add((parked.id, parked.source))
        content: Content
        try:
            whole = parked.source == SOURCE
            content = SetContent(parked.id, parked.envelope) if whole else decode(parked.envelope)
        except MessageFormatError as error:  # stays in hand: it is said once
            name = self._desk.declaration.name
            text = f"trigger {name!r}: the parked copy of {parked.id!r} cannot be read: {error}"
            emit("trigger", "parked_unreadable", text, level=logging.ERROR, trigger=name, id=parked.id)
            return None
        persistent = content.header("persistent") is not False
        size = len(parked.envelope)
        return Arrival(self, parked, content, delivery_count=parked.delivery_count, persistent=persistent, size=size)

    # -- as the receiver of these arrivals ----------------------------------------------------------------------------

    def request(self, count: int) -> None:
        """Nothing is asked for: `watch` looks."""

    def settle(self, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        """It may be found again, unless it was completed."""
        for arrival in arrivals:
            arrival.settled = True
            self._in_hand.discard((arrival.tag.id, arrival.tag.source))

    def close(self, deadline: float | None) -> None:
        """There is nothing to detach."""
