"""Owns one broker: the lock, the thread, and the calls that other rooms make.

Must not know of the contract's sessions (transport.py) or of SQL (store.py). What happens to messages is decided in granting,
settling, closing and writing, always as steps under the one lock (steps.py). Lock order: this lock, then the hand-over
journal's; no other room's lock, and no call of a sink or listener, under it. Source: rules IF-2, IF-3, IF-7 to IF-11, IF-33.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import get_ident

from jmsclient.clock import Clock
from jmsclient.events import emit
from jmsclient.message import Content
from jmsclient.options import DefaultReadAhead
from jmsclient.transport.contract import Arrival, Outcome
from jmsclient_embedded.aftermath import Aftermath, tell_events
from jmsclient_embedded.closing import Closing
from jmsclient_embedded.granting import Granting
from jmsclient_embedded.line import Line
from jmsclient_embedded.outlet import Outlet
from jmsclient_embedded.queue import ERROR_DESTINATION, Entry, QueueSettings, QueueStatistics
from jmsclient_embedded.settling import LIMIT_REASON, Settling
from jmsclient_embedded.steps import Answer, Steps
from jmsclient_embedded.store import Store
from jmsclient_embedded.writing import Writing

SCAN_INTERVAL = 30.0
"""Seconds between two looks for expired messages that nobody asks for (IF-33)."""
WALL_LOOK_INTERVAL = 0.5
"""Seconds between two looks at the wall clock while un-born messages wait: it may be set forward (IF-3)."""

_logger = logging.getLogger("jmsclient.embedded")


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageInfo:
    """One message as `Broker.messages` shows it; `delivery_count` is the number of hand-overs so far."""

    message_id: str | None
    state: str
    owner: str | None
    delivery_count: int


class Broker:
    """Thread-safe. `defaults` are the settings of queues made on first use; without `store` nothing outlives the process."""

    def __init__(self, name: str, defaults: QueueSettings, clock: Clock, store: Store | None = None) -> None:
        self.name = name
        self.clock = clock
        self.store = store
        self._aftermath = Aftermath()
        self.granting = Granting(defaults, clock, self._aftermath)
        self.writing = self.granting.writing = Writing(store, clock, self._aftermath, self.granting.shown)
        self.settling = Settling(self.granting, self.writing, clock, self._aftermath)
        self.closing = Closing(self.granting, self.settling)
        self.disowned = False
        """This process is a fork of the one the broker lives in."""
        self._next_scan = clock.monotonic() + SCAN_INTERVAL
        self.steps = Steps(clock, name or "default", after=self._after, serve=self._serve, ended=self.writing.end)
        if store is not None:
            self._load(store)
        self.steps.start()
        self.writing.start(self.steps, name or "default")

    # -- calls -----------------------------------------------------------------------------------------------------

    def create_queue(
        self,
        name: str,
        *,
        redelivery_limit: int = -1,
        error_destination: str | None = ERROR_DESTINATION,
        default_read_ahead: DefaultReadAhead = DefaultReadAhead.NO,
    ) -> None:
        """Make a queue with these settings, or give them to the one there is. Raises ConfigurationError, StoreError."""
        settings = QueueSettings(
            redelivery_limit=redelivery_limit, error_destination=error_destination, default_read_ahead=default_read_ahead
        )

        def create() -> None:
            self.granting.line(name).queue.settings = settings
            self.writing.settings(name, settings)

        self.steps.ask(create)
        self.flush(None)

    def statistics(self, name: str) -> QueueStatistics:
        """The numbers of a queue (IF-15); all 0 for one that was never used."""

        def look() -> QueueStatistics:
            line = self.granting.lines.get(name) or Line(name, self.granting.defaults)
            return line.queue.statistics()

        return self.steps.ask(look)

    def messages(self, name: str) -> list[MessageInfo]:
        """Every message of a queue: visible ones in order, then delayed, sent and received ones."""
        return self.steps.ask(lambda: self._messages(name))

    def send(
        self, name: str, contents: Sequence[Content], envelopes: Sequence[bytes | None] | None, deadline: float | None
    ) -> None:
        """Put messages on a queue; with `envelopes` (None for one that is not stored) it returns when they are stored.

        Raises RequestTimeoutError past `deadline` (monotonic): unknown whether they are sent; StoreError: none is.
        """
        if envelopes is None:
            self.steps.ask(lambda: self._put(name, contents), deadline)
            return
        answer: Answer[None] = Answer(self.clock)
        self.steps.tell(lambda: self._store(name, contents, envelopes, answer))
        answer.wait(deadline, "a confirmation")

    def settle(self, outlet: Outlet, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        """Hand a settlement over; returns at once."""
        self.steps.tell(lambda: self.settling.settle(outlet, arrivals, outcome))

    def flush(self, deadline: float | None) -> None:
        """Return when everything handed over so far is stored. Raises StoreError, RequestTimeoutError."""
        self.ask_later(self.writing.join, deadline, "a confirmation that settlements are stored")

    def ask_later(self, step: Callable[[Answer[None]], None], deadline: float | None, what: str) -> None:
        """Have a step done that answers when it likes, and wait for the answer."""
        answer: Answer[None] = Answer(self.clock)
        self.steps.tell(lambda: step(answer))
        answer.wait(deadline, what)

    def close(self, deadline: float | None) -> None:
        """Write what waits, close the store, end the thread. What cannot be written in time is written later, or comes back."""
        self.steps.end()
        if not self.steps.join(self.clock.left(deadline)):
            emit("embedded", "close_slow", f"broker {self.name!r} is still closing its store", level=logging.WARNING)

    @property
    def ended(self) -> bool:
        """Whether its thread has ended and its store is closed."""
        return self.steps.ended

    def disown(self) -> None:
        """In the child of a fork: the broker stays the parent's; nothing here may wait for its thread or touch its file."""
        self.disowned = True
        if self.store is not None:
            self.store.disown()

    # -- steps -----------------------------------------------------------------------------------------------------

    def _put(self, name: str, contents: Sequence[Content]) -> None:
        line = self.granting.line(name)
        sequence = self.granting.sequence
        line.queue.add([Entry(next(sequence), content) for content in contents], self.clock.wall())
        self.granting.shown(line)

    def _store(self, name: str, contents: Sequence[Content], envelopes: Sequence[bytes | None], answer: Answer[None]) -> None:
        sequence = self.granting.sequence
        entries = [
            Entry(next(sequence), content, stored=envelope is not None)
            for content, envelope in zip(contents, envelopes, strict=True)
        ]
        self.writing.send(self.granting.line(name), entries, envelopes, answer)

    def _messages(self, name: str) -> list[MessageInfo]:
        line = self.granting.lines.get(name)
        if line is None:
            return []
        entries = list(line.queue.unheld())
        for holder in self.granting.holders.values():
            if holder.queue is line.queue:
                entries += holder.held.values()
        return [_info(entry) for entry in entries]

    def _load(self, store: Store) -> None:
        for name, settings in store.settings().items():
            self.granting.line(name).queue.settings = settings
        last = 0
        exceeded: dict[Line, list[Entry]] = {}
        for row in store.load():
            last = row.sequence
            line = self.granting.line(row.queue)
            entry = Entry(row.sequence, row.content, count=row.count, stored=True)
            if row.interrupted and 0 <= line.queue.settings.redelivery_limit < row.count:
                exceeded.setdefault(line, []).append(entry)
                continue
            line.queue.add([entry], self.clock.wall())
            self.granting.shown(line)
        self.granting.restart_sequence(last + 1)
        for line, entries in exceeded.items():
            line.queue.pass_through(entries)
            self.settling.dead_letter(line, entries, f"{LIMIT_REASON}: the process ended before it was settled", {})

    def _fall_due(self) -> None:
        now, wall = self.clock.monotonic(), self.clock.wall()
        scan = now >= self._next_scan
        if scan:
            self._next_scan = now + SCAN_INTERVAL
        for line in tuple(self.granting.timed):
            queue = line.queue
            if scan and (expired := queue.expire(wall)):
                self.granting.expired(line, expired)
            if queue.show_due(now, wall):
                self.granting.grant(line)
            if not queue.expiring and not queue.has_delayed:
                self.granting.timed.discard(line)

    def _wait(self) -> float | None:
        now, wall = self.clock.monotonic(), self.clock.wall()
        waits: list[float] = []
        for line in self.granting.timed:
            monotonic_due, wall_due = line.queue.next_due()
            if monotonic_due is not None:
                waits.append(monotonic_due - now)
            if wall_due is not None:
                waits.append(min(wall_due - wall, WALL_LOOK_INTERVAL))
        if self.granting.timed:
            waits.append(self._next_scan - now)
        return max(0.0, min(waits)) if waits else None

    # -- outside the lock ------------------------------------------------------------------------------------------

    def _after(self) -> Callable[[], None] | None:
        todo = self._aftermath
        if not (todo.pushes or todo.write or todo.wake or todo.events):
            return None
        todo = todo.take()
        return lambda: self._act(todo)

    def _act(self, todo: Aftermath) -> None:
        """Wake, tell and push. A loop, not a recursion: what a push sets free is pushed by the same thread."""
        pushes = deque(todo.pushes)
        while True:
            if todo.wake:
                self.steps.bell.ring()
            if todo.write:
                self.writing.ring()
            if todo.events:
                tell_events(todo.events)
            if not pushes:
                return
            outlet, batch = pushes.popleft()
            outlet.pumper = get_ident()
            try:
                outlet.sink.delivered(batch)
            except Exception:  # a sink never raises; if it does, the broker must go on
                _logger.exception("a receiver of queue %r failed to take a batch", outlet.line.queue.name)
            with self.steps.lock:
                self._pushed(outlet)
                todo = self._aftermath.take()
            pushes += todo.pushes  # behind the others: one busy receiver does not keep them waiting

    def _pushed(self, outlet: Outlet) -> None:
        if self.granting.pushed(outlet):
            self.closing.idle(outlet)

    def _serve(self) -> float | None:
        if self.granting.timed:
            self.steps.perform(self._fall_due)
        return self.steps.perform(self._wait)


def _info(entry: Entry) -> MessageInfo:
    assert entry.state is not None
    handed_over = entry.delivery is not None and entry.delivery.handed_over
    return MessageInfo(
        message_id=entry.content.message_id,
        state=entry.state.value,
        owner=None if entry.owner is None else entry.owner.name,
        delivery_count=entry.count + int(handed_over),
    )
