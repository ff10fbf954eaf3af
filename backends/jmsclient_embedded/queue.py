"""Owns one queue: which message is in which state, in which order, how often it was handed over, and the statistics.

A pure state machine: time comes in as arguments, nothing waits, nothing is written. It must not know of threads, sinks or
stores; the caller serialises the calls. Source: rules IF-7, IF-8, IF-11, IF-13, IF-15, IF-33 and T5 to T16.

Order: ten priorities, each a deque of new messages in order of their sequence number and, beside it, a heap of those that came
back. The next message is the smaller head of the two, so that what comes back takes its original place without a search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from jmsclient.errors import ConfigurationError
from jmsclient.message import DEFAULT_PRIORITY, Content, PlainContent
from jmsclient.options import DefaultReadAhead, count
from jmsclient.selector import Selector
from jmsclient_embedded.selection import Selection, cut
from jmsclient_embedded.states import State

PRIORITIES = 10
ERROR_DESTINATION = "DLQ"


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueSettings:
    """`redelivery_limit`: redeliveries before the error destination, -1 no limit (IF-13). `error_destination`: a queue name;
    None discards. `default_read_ahead`: DEFREADA (RA-1). Raises ConfigurationError for values that cannot work."""

    redelivery_limit: int = -1
    error_destination: str | None = ERROR_DESTINATION
    default_read_ahead: DefaultReadAhead = DefaultReadAhead.NO

    def __post_init__(self) -> None:
        count("redelivery_limit", self.redelivery_limit, least=-1)
        if self.error_destination is not None and not (isinstance(self.error_destination, str) and self.error_destination):
            raise ConfigurationError(f"error_destination={self.error_destination!r}: expected a queue name or None")
        if not isinstance(self.default_read_ahead, DefaultReadAhead):
            raise ConfigurationError(f"default_read_ahead={self.default_read_ahead!r}: expected a DefaultReadAhead")


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueStatistics:
    """A queue in numbers (IF-15): messages and bytes; `received` counts each message once."""

    messages_current: int
    messages_pending: int
    messages_high: int
    messages_received: int
    bytes_current: int
    bytes_pending: int
    bytes_high: int
    bytes_received: int
    messages_acknowledged: int
    messages_expired: int
    messages_moved: int
    messages_discarded: int
    bytes_removed: int


class Holder:
    """An owner of messages: a receiver, or the session that inherited them from a closed one (IF-8, IF-9).

    `selection` is what a selector lets it have; None: anything."""

    __slots__ = ("held", "name", "number", "queue", "selection")

    def __init__(self, queue: MessageQueue, number: int, name: str, selector: Selector | None = None) -> None:
        self.queue = queue
        self.number = number
        self.name = name
        self.held: dict[int, Entry] = {}
        self.selection = None if selector is None else Selection(selector, number)


class Entry:
    """One message on one queue. `count` is the number of hand-overs so far, `delivery` what its owner knows it by (opaque
    here), `stored` that it has a row in the store, `marked` that a hand-over not yet in the row is in the journal."""

    __slots__ = (
        "barred",
        "content",
        "count",
        "delivery",
        "expires_at",
        "marked",
        "owner",
        "persistent",
        "priority",
        "sequence",
        "size",
        "state",
        "stored",
    )

    def __init__(self, sequence: int, content: Content, *, count: int = 0, stored: bool = False) -> None:
        if type(content) is PlainContent:  # nearly every message; an attribute costs a third of a look-up by name
            priority, persistent, expires_at = content.priority, content.persistent, content.expiration
            self.size = content.size
        else:
            priority, persistent, expires_at = map(content.header, ("priority", "persistent", "expiration"))
            self.size = getattr(content, "size", 0)
        self.sequence = sequence
        self.content = content
        self.priority: int = DEFAULT_PRIORITY if priority is None else min(max(priority, 0), PRIORITIES - 1)
        self.persistent = bool(persistent)
        self.expires_at: float | None = expires_at
        self.count = count
        self.stored = stored
        self.marked = False
        self.state: State | None = None
        self.owner: Holder | None = None
        self.delivery: Any = None
        self.barred: frozenset[int] | None = None

    def __repr__(self) -> str:
        return f"<Entry {self.sequence} {self.state and self.state.value} count={self.count}>"


class MessageQueue:
    """The state machine of one queue. Not thread-safe: every call under the broker's lock."""

    def __init__(self, name: str, settings: QueueSettings) -> None:
        self.name = name
        self.settings = settings
        self.visible = 0
        self.pending = 0
        self.high = 0
        self.received = 0
        self.bytes_visible = 0
        self.bytes_pending = 0
        self.bytes_high = 0
        self.bytes_received = 0
        self.acknowledged = 0
        self.expired = 0
        self.moved = 0
        self.discarded = 0
        self.bytes_removed = 0
        self.expiring = 0
        """Messages with an expiry that are not gone: while it is 0, no scan is needed."""
        self.selections: tuple[Selection, ...] = ()
        """Of the receivers that have a selector."""
        self._mask = 0  # a bit for each priority that has something visible
        self._ready: tuple[deque[Entry], ...] = tuple(deque() for _ in range(PRIORITIES))
        self._returned: tuple[list[tuple[int, Entry]], ...] = tuple([] for _ in range(PRIORITIES))
        self._sending: dict[int, Entry] = {}
        self._unborn: list[tuple[float, int, Entry]] = []  # by wall clock (IF-3)
        self._delayed: list[tuple[float, int, Entry]] = []  # by monotonic clock (IF-2)

    # -- in --------------------------------------------------------------------------------------------------------

    def add(self, entries: Iterable[Entry], wall: float) -> None:
        """T7: new messages, visible, or delayed until their birth at `wall` clock time."""
        for entry in entries:
            self.received += 1
            self.bytes_received += entry.size
            self._enter(entry, wall)

    def begin_send(self, entries: Iterable[Entry]) -> None:
        """T4: messages that must be stored before anyone may see them."""
        for entry in entries:
            entry.state = State.SEND
            self._sending[entry.sequence] = entry
            self.pending += 1
            self.bytes_pending += entry.size

    def end_send(self, entries: Sequence[Entry], wall: float) -> None:
        """T5: they are stored."""
        self._leave_send(entries)
        self.add(entries, wall)

    def fail_send(self, entries: Sequence[Entry]) -> None:
        """T6: they could not be stored, and were never the queue's."""
        self._leave_send(entries)
        for entry in entries:
            entry.state = State.GONE

    def _leave_send(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            del self._sending[entry.sequence]
            self.pending -= 1
            self.bytes_pending -= entry.size

    def _enter(self, entry: Entry, wall: float) -> None:
        if entry.expires_at is not None:
            self.expiring += 1
        content = entry.content
        birth = content.delivery_time if type(content) is PlainContent else content.header("delivery_time")
        if birth is not None and birth > wall:
            self._delay(entry, self._unborn, birth)
        else:
            self._show(entry, new=True)

    def _delay(self, entry: Entry, heap: list[tuple[float, int, Entry]], due: float) -> None:
        entry.state = State.DELAYED
        heappush(heap, (due, entry.sequence, entry))
        self.pending += 1
        self.bytes_pending += entry.size

    def _show(self, entry: Entry, *, new: bool = False) -> None:
        entry.state = State.VISIBLE
        level = entry.priority
        ready = self._ready[level]
        if new and (not ready or ready[-1].sequence < entry.sequence):
            ready.append(entry)
        else:
            heappush(self._returned[level], (entry.sequence, entry))
        self._mask |= 1 << level
        self.visible += 1
        self.bytes_visible += entry.size
        for selection in self.selections:
            selection.offer(entry)
        if self.visible > self.high:
            self.high = self.visible
        if self.bytes_visible > self.bytes_high:
            self.bytes_high = self.bytes_visible

    # -- out -------------------------------------------------------------------------------------------------------

    def take(self, holder: Holder, most: int, wall: float) -> tuple[list[Entry], list[Entry]]:
        """T10: up to `most` visible messages for `holder`, and those that were found expired on the way (T16, IF-33).

        Hot path: one loop, the counters once a batch.
        """
        if holder.selection is not None:
            return self._take_selected(holder, holder.selection, most, wall)
        granted: list[Entry] = []
        expired: list[Entry] = []
        barred: list[Entry] = []
        while self._mask and len(granted) < most:
            level = self._mask.bit_length() - 1
            ready, returned = self._ready[level], self._returned[level]
            while len(granted) < most:
                if returned and (not ready or returned[0][0] < ready[0].sequence):
                    entry = heappop(returned)[1]
                    if entry.barred is not None and holder.number in entry.barred:
                        barred.append(entry)
                        continue
                elif ready:
                    entry = ready.popleft()
                else:
                    break
                if entry.expires_at is not None and entry.expires_at <= wall:
                    expired.append(entry)
                    continue
                granted.append(entry)
            if not ready and not returned:
                self._mask &= ~(1 << level)
        for entry in barred:  # only what came back can be barred: its place is in the heap
            heappush(self._returned[entry.priority], (entry.sequence, entry))
            self._mask |= 1 << entry.priority
        self._grant(granted, holder)
        self._expire_visible(expired)
        return granted, expired

    def _take_selected(self, holder: Holder, selection: Selection, most: int, wall: float) -> tuple[list[Entry], list[Entry]]:
        granted, expired = selection.take(most, wall)
        levels: dict[int, set[int]] = {}
        for entry in (*granted, *expired):
            levels.setdefault(entry.priority, set()).add(entry.sequence)
        for level, sequences in levels.items():
            cut(self._ready[level], self._returned[level], sequences)
            if not self._ready[level] and not self._returned[level]:
                self._mask &= ~(1 << level)
        self._grant(granted, holder)
        self._expire_visible(expired)
        return granted, expired

    def begin_selection(self, selection: Selection) -> None:
        """A receiver with a selector opened: judge what is visible, and what becomes visible from now on."""
        self.selections += (selection,)
        for ready, returned in zip(self._ready, self._returned, strict=True):
            for entry in (*ready, *(one for _, one in returned)):
                selection.offer(entry)

    def end_selection(self, selection: Selection) -> None:
        """It closed."""
        self.selections = tuple(one for one in self.selections if one is not selection)

    def _grant(self, granted: list[Entry], holder: Holder) -> None:
        held = holder.held
        size = 0
        for entry in granted:
            entry.state = State.RECEIVE
            entry.owner = holder
            held[entry.sequence] = entry
            size += entry.size
        self.visible -= len(granted)
        self.pending += len(granted)
        self.bytes_visible -= size
        self.bytes_pending += size
        for selection in self.selections:
            selection.withdraw(granted)

    def accept(self, entries: Sequence[Entry]) -> None:
        """T12: acknowledged; they are gone."""
        self._release(entries)
        self._remove(entries)
        self.acknowledged += len(entries)

    def give_back(
        self, entries: Sequence[Entry], *, counted: bool, now: float, delay: float = 0.0, barred: bool = False
    ) -> list[Entry]:
        """T13 (`counted` False) or T14: back to their places, at once or `delay` seconds after monotonic `now`.

        Returns those whose deliveries reached the redelivery limit (T15): they are no longer on this queue.
        """
        limit = self.settings.redelivery_limit
        exceeded: list[Entry] = []
        for entry in entries:
            if barred and entry.owner is not None:
                entry.barred = (entry.barred or frozenset()) | {entry.owner.number}
            self._let_go(entry)
            if counted:
                entry.count += 1
                if 0 <= limit < entry.count:  # deliveries made >= limit + 1
                    exceeded.append(entry)
                    continue
            if delay > 0:
                self._delay(entry, self._delayed, now + delay)
            else:
                self._show(entry)
        if exceeded:
            self._remove(exceeded)
        return exceeded

    def take_out(self, entries: Sequence[Entry], *, counted: bool) -> None:
        """T15 at once: out of `receive`, on the way to the error destination; the caller says what becomes of them."""
        self._release(entries)
        if counted:
            for entry in entries:
                entry.count += 1
        self._remove(entries)

    def _release(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._let_go(entry)

    def _let_go(self, entry: Entry) -> None:
        owner = entry.owner
        assert owner is not None
        del owner.held[entry.sequence]
        entry.owner = None
        entry.delivery = None
        self.pending -= 1
        self.bytes_pending -= entry.size

    def _remove(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            entry.state = State.GONE
            self.bytes_removed += entry.size
            if entry.expires_at is not None:
                self.expiring -= 1

    def pass_through(self, entries: Sequence[Entry]) -> None:
        """Messages that were this queue's in an earlier process and leave it at once (T15 at start)."""
        for entry in entries:
            self.received += 1
            self.bytes_received += entry.size
            self.expiring += entry.expires_at is not None
        self._remove(entries)

    # -- time ------------------------------------------------------------------------------------------------------

    @property
    def has_delayed(self) -> bool:
        """Whether anything waits for a time."""
        return bool(self._delayed or self._unborn)

    def next_due(self) -> tuple[float | None, float | None]:
        """When the next delayed message is due: by the monotonic clock, by the wall clock."""
        return (self._delayed[0][0] if self._delayed else None, self._unborn[0][0] if self._unborn else None)

    def show_due(self, now: float, wall: float) -> int:
        """T8: what is due by monotonic `now` or by `wall` becomes visible; returns how many."""
        shown = 0
        for heap, time in ((self._delayed, now), (self._unborn, wall)):
            while heap and heap[0][0] <= time:
                entry = heappop(heap)[2]
                self.pending -= 1
                self.bytes_pending -= entry.size
                self._show(entry)
                shown += 1
        return shown

    def expire(self, wall: float) -> list[Entry]:
        """T16: take out all that have expired by `wall`, whether visible or delayed. Costs a walk; see `expiring`."""
        if not self.expiring:
            return []

        def over(entry: Entry) -> bool:
            return entry.expires_at is not None and entry.expires_at <= wall

        visible: list[Entry] = []
        for ready, returned in zip(self._ready, self._returned, strict=True):
            gone = [entry for entry in ready if over(entry)] + [entry for _, entry in returned if over(entry)]
            if gone:
                keep = [entry for entry in ready if not over(entry)]
                ready.clear()
                ready.extend(keep)
                returned[:] = [one for one in returned if not over(one[1])]
                heapify(returned)
                visible += gone
        delayed: list[Entry] = []
        for heap in (self._delayed, self._unborn):
            delayed += [one[2] for one in heap if over(one[2])]
            heap[:] = [one for one in heap if not over(one[2])]
            heapify(heap)
        for entry in delayed:
            self.pending -= 1
            self.bytes_pending -= entry.size
        self._remove(delayed)
        self.expired += len(delayed)
        self._expire_visible(visible)
        self._mask = sum(1 << level for level in range(PRIORITIES) if self._ready[level] or self._returned[level])
        return visible + delayed

    def _expire_visible(self, expired: list[Entry]) -> None:
        if expired:
            self.visible -= len(expired)
            self.bytes_visible -= sum(entry.size for entry in expired)
            self._remove(expired)
            self.expired += len(expired)
            for selection in self.selections:
                selection.withdraw(expired)

    # -- what there is ---------------------------------------------------------------------------------------------

    def unheld(self) -> Iterator[Entry]:
        """Every message that no one holds: visible in order within a priority, highest first; then delayed; then sent."""
        for level in reversed(range(PRIORITIES)):
            merged = [*self._ready[level], *(entry for _, entry in self._returned[level])]
            yield from sorted(merged, key=lambda entry: entry.sequence)
        for heap in (self._delayed, self._unborn):
            yield from (one[2] for one in sorted(heap))
        yield from self._sending.values()

    def new_in_order(self) -> Iterator[list[int]]:
        """The sequence numbers of new visible messages, priority by priority, as they wait (for the checker)."""
        for ready in self._ready:
            yield [entry.sequence for entry in ready]

    @property
    def uncommitted(self) -> int:
        """Messages in `send`: not yet the queue's."""
        return len(self._sending)

    def statistics(self) -> QueueStatistics:
        """The numbers of this moment."""
        return QueueStatistics(
            messages_current=self.visible,
            messages_pending=self.pending,
            messages_high=self.high,
            messages_received=self.received,
            bytes_current=self.bytes_visible,
            bytes_pending=self.bytes_pending,
            bytes_high=self.bytes_high,
            bytes_received=self.bytes_received,
            messages_acknowledged=self.acknowledged,
            messages_expired=self.expired,
            messages_moved=self.moved,
            messages_discarded=self.discarded,
            bytes_removed=self.bytes_removed,
        )
