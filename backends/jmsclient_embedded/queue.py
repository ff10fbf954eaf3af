"""Owns one queue: which message is in which state, and how often it was handed over.

A pure state machine: time comes in as arguments, nothing waits, nothing is written. It must not know of threads, sinks or
stores; the caller serialises the calls. The order of what can be taken is in ready.py, what waits for a time in timetable.py,
what nobody may see yet in uncommitted.py, units of order in units.py, the numbers in tally.py.
Source: rules IF-7, IF-8, IF-11, IF-13 to IF-15, IF-33, IF-34 and T4 to T17.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from jmsclient.message import Content, PlainContent, Texts
from jmsclient.transport.administration import DestinationStatistics, PendingByKind
from jmsclient_embedded.entry import Delivery, Entry, Holder
from jmsclient_embedded.quota import Quota
from jmsclient_embedded.ready import Ready
from jmsclient_embedded.selection import Selection
from jmsclient_embedded.settings import PRIORITIES, QueueSettings
from jmsclient_embedded.states import State
from jmsclient_embedded.tally import Tally
from jmsclient_embedded.thresholds import Thresholds
from jmsclient_embedded.timetable import Timetable
from jmsclient_embedded.uncommitted import Uncommitted, entries_of
from jmsclient_embedded.units import UnitsOfOrder

_PRIORITIES = frozenset(range(PRIORITIES))
_VISIBLE, _RECEIVE, _GONE = State.VISIBLE, State.RECEIVE, State.GONE  # an attribute costs ten times a global


_size = attrgetter("size")


class MessageQueue(Tally):
    """The state machine of one queue. Not thread-safe: every call under the broker's lock."""

    def __init__(self, name: str, settings: QueueSettings) -> None:
        super().__init__()
        self.name = name
        self.expiring = 0
        """Messages with an expiry that are not gone: while it is 0, no scan is needed."""
        self.insertion_paused = False
        """Effectively: nothing becomes visible. Set by `pause_insertion`."""
        self.quota: Quota | None = None
        self.on_crossing: Callable[[MessageQueue, str, bool], None] | None = None
        """Called with `bytes` or `messages` and whether it rose above the high threshold, or fell to the low one."""
        self.selections: tuple[Selection, ...] = ()
        """Of the receivers that have a selector."""
        self.holders: dict[int, Holder] = {}
        """Everyone who holds, or may hold, messages of it."""
        self.units = UnitsOfOrder()
        self._ready = Ready()
        self._timetable = Timetable()
        self._paused: dict[int, Entry] = {}
        self._uncommitted = Uncommitted()
        self._thresholds: Thresholds | None = None
        self.settings = settings

    @property
    def settings(self) -> QueueSettings:
        """What is set on it."""
        return self._settings

    @settings.setter
    def settings(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._thresholds = Thresholds(settings) if settings.thresholds else None
        self._watch()

    # -- in --------------------------------------------------------------------------------------------------------

    def add(self, entries: Iterable[Entry], wall: float) -> None:
        """T7: new messages, visible, or delayed until their birth at `wall` clock time.

        Hot path of stored ones: what nothing holds back is shown here, with the counters once a batch.
        """
        free = not (self.insertion_paused or self.selections) and self._settings.unit_of_order is None
        size = number = shown_size = 0
        shown: list[Entry] = []
        for entry in entries:
            number += 1
            size += entry.size
            content = entry.content
            if free and entry.expires_at is None and type(content) is PlainContent and content.delivery_time is None:
                entry.state = _VISIBLE
                shown.append(entry)
                shown_size += entry.size
            else:
                self._enter(entry, wall)
        self._ready.put_new(shown)
        self.received += number
        self.bytes_received += size
        self.visible += len(shown)
        self.bytes_current += shown_size
        self._note_high()
        self._watch()

    def put(self, contents: Sequence[Content], next_sequence: Callable[[], int]) -> int:
        """T7 for new messages that are not stored, up to the first that something holds back, or that expires; how many entered.

        Hot path: `add` for what nearly every message and queue is like. The contents themselves wait, and become entries when they
        are taken (`Ready`): half the memory, and half the work of the garbage collector. The counters once a batch.
        """
        if self.insertion_paused or self.selections or self._thresholds is not None or self._settings.unit_of_order is not None:
            return 0
        entered: list[PlainContent] = []
        size = 0
        for content in contents:
            if (
                type(content) is not PlainContent
                or content.expiration is not None
                or content.delivery_time is not None
                or content.sequence  # it is on a queue already
                or content.priority not in _PRIORITIES
            ):
                break
            content.sequence = next_sequence()
            size += content.size
            entered.append(content)
        self._ready.put_last(entered)
        number = len(entered)
        self.received += number
        self.bytes_received += size
        self.visible += number
        self.bytes_current += size
        self._note_high()
        return number

    def begin_texts(self, texts: Texts, reserve: Callable[[int], int]) -> None:
        """T4 for texts that were sent at once, all of which are stored first: they stay one object. On a queue that knows this,
        every persistent message has a row."""
        self._ready.stores = True
        texts.first = reserve(len(texts))
        self._uncommitted.hold_texts(texts)
        self.pending += len(texts)
        self.bytes_pending += texts.size

    def end_texts(self, texts: Texts, wall: float) -> None:
        """T5: they are stored."""
        looked_at = self._release_texts(texts)
        if looked_at is not None:
            self.add(looked_at, wall)
        elif not self._show_texts(texts):
            self.add(entries_of(texts), wall)

    def fail_texts(self, texts: Texts) -> None:
        """T6: they could not be stored."""
        for entry in self._release_texts(texts) or ():
            entry.state = _GONE
        if self.quota is not None:
            self.quota.freed()

    def _release_texts(self, texts: Texts) -> list[Entry] | None:
        self.pending -= len(texts)
        self.bytes_pending -= texts.size
        return self._uncommitted.release_texts(texts)

    def put_texts(self, texts: Texts, reserve: Callable[[int], int]) -> bool:
        """`put` for all of them at once, none of which is made yet; False where they have to be looked at, one by one."""
        if not texts or not texts.untouched or texts.priority not in _PRIORITIES or not self._free:
            return False
        texts.first = reserve(len(texts))
        return self._show_texts(texts)

    @property
    def _free(self) -> bool:
        """Nothing holds back, or has to look at, what has neither an expiry nor a birth."""
        special = self.insertion_paused or self.selections or self._thresholds is not None
        return not special and self._settings.unit_of_order is None

    def _show_texts(self, texts: Texts) -> bool:
        """False where they have to be looked at: something is special, or what was sent later came first."""
        if not self._free or not texts.untouched or not self._ready.put_texts(texts):
            return False
        number = len(texts)
        self.received += number
        self.bytes_received += texts.size
        self.visible += number
        self.bytes_current += texts.size
        self._note_high()
        return True

    def begin_send(self, entries: Iterable[Entry], *, transacted: bool = False) -> None:
        """T4: messages that nobody may see yet: their transaction has not ended, or they must be stored first."""
        number, size = self._uncommitted.hold(entries, transacted=transacted)
        self.pending += number
        self.bytes_pending += size

    def renumber(self, entries: Iterable[Entry], next_sequence: Callable[[], int]) -> None:
        """T5: what was sent in a transaction takes its place in the order in which transactions end."""
        self._uncommitted.renumber(entries, next_sequence)

    def end_send(self, entries: Sequence[Entry], wall: float) -> None:
        """T5: they are committed, or stored."""
        self._leave_send(entries)
        self.add(entries, wall)

    def fail_send(self, entries: Sequence[Entry]) -> None:
        """T6: rolled back, or they could not be stored; they were never the queue's."""
        self._leave_send(entries)
        for entry in entries:
            entry.state = State.GONE
        if self.quota is not None:
            self.quota.freed()

    def _leave_send(self, entries: Sequence[Entry]) -> None:
        self.pending -= len(entries)
        self.bytes_pending -= self._uncommitted.release(entries)

    def _enter(self, entry: Entry, wall: float) -> None:
        content = entry.content
        if entry.expires_at is not None:
            self.expiring += 1
        if self._settings.unit_of_order is not None:
            unit = content.properties().get(self._settings.unit_of_order)
            entry.unit = None if unit is None else str(unit)
        birth = content.delivery_time if type(content) is PlainContent else content.header("delivery_time")
        if birth is not None and birth > wall:
            self._hold_back(entry, State.DELAYED)
            self._timetable.until_birth(entry, birth)
        else:
            self._show(entry)

    def _hold_back(self, entry: Entry, state: State) -> None:
        entry.state = state
        self.pending += 1
        self.bytes_pending += entry.size

    def _show(self, entry: Entry) -> None:
        """Nothing but a pause or its unit of order keeps it from being visible."""
        if self.insertion_paused:
            self._hold_back(entry, State.PAUSED)
            self._paused[entry.sequence] = entry
            return
        self.bytes_current += entry.size
        if entry.unit is not None and not self.units.admit(entry):
            entry.state = State.ORDERED
            self.ordered += 1
        else:
            self._make_visible(entry)
        self._note_high()

    def _make_visible(self, entry: Entry) -> None:
        entry.state = _VISIBLE
        self._ready.put(entry)
        self.visible += 1
        for selection in self.selections:
            selection.offer(entry)

    # -- out -------------------------------------------------------------------------------------------------------

    def take(self, holder: Holder, most: int, wall: float) -> tuple[list[Entry], list[Entry]]:
        """T10: up to `most` visible messages for `holder`, and those that were found expired on the way (T16, IF-33).

        Hot path: the counters once a batch.
        """
        if holder.selection is None:
            taken, expired = self._ready.take(most, holder.number, wall)
        else:
            granted, expired = holder.selection.take(most, wall)
            self._ready.remove((*granted, *expired))
            taken = granted
        granted = []
        held, new = holder.held, Entry.__new__
        stores = self._ready.stores
        size = 0
        for one in taken:
            if type(one) is PlainContent:  # see `put`; plain stores, for a call with arguments costs three times as much
                entry = new(Entry)
                entry.sequence = one.sequence
                entry.content = one
                entry.priority = one.priority
                entry.persistent = one.persistent
                entry.size = one.size
                entry.count = 0
                entry.stored = stores and one.persistent
                entry.marked = entry.transacted = False
                entry.expires_at = entry.delivery = entry.barred = entry.unit = None
            else:
                entry = one  # type: ignore[assignment]  # what is no content; a call of `cast` would cost more than the rest
            entry.state = _RECEIVE
            entry.owner = holder
            held[entry.sequence] = entry
            size += entry.size
            granted.append(entry)
        self.visible -= len(granted)
        self.pending += len(granted)
        self.bytes_current -= size
        self.bytes_pending += size
        for selection in self.selections:
            selection.withdraw(granted)
        if expired:
            self._leave_current(expired)
            self._end(expired, State.EXPIRED)
            self.expired += len(expired)
        if self._thresholds is not None:
            self._watch()
        return granted, expired

    def take_bare(self, holder: Holder, most: int) -> list[PlainContent]:
        """`take` where the next ones wait bare; none where they do not, or where others than their owner have to know of them.
        The caller makes deliveries of them, which `holder` holds."""
        if holder.selection is not None or self.selections or self._thresholds is not None:
            return []
        taken = self._ready.take_bare(most)
        number, size = len(taken), sum(map(_size, taken))
        self.visible -= number
        self.pending += number
        self.bytes_current -= size
        self.bytes_pending += size
        return taken

    def begin_selection(self, selection: Selection) -> None:
        """A receiver with a selector opened: judge what is visible, and what becomes visible from now on."""
        self.selections += (selection,)
        for entry in self._ready.in_any_order():
            selection.offer(entry)

    def end_selection(self, selection: Selection) -> None:
        """It closed."""
        self.selections = tuple(one for one in self.selections if one is not selection)

    def accept(self, entries: Sequence[Entry]) -> None:
        """T12: acknowledged; they are gone. Hot path: one loop, the counters once a batch."""
        size = 0
        for entry in entries:
            owner = entry.owner
            assert owner is not None
            del owner.held[entry.sequence]
            entry.owner = entry.delivery = None
            entry.state = _GONE
            size += entry.size
        self.pending -= len(entries)
        self.bytes_pending -= size
        self.acknowledged += len(entries)
        if self.expiring or self.quota is not None or self.units:
            self._end(entries, _GONE)
        else:
            self.bytes_removed += size

    def accept_bare(self, owner: Holder, deliveries: Sequence[Delivery]) -> None:
        """`accept` of what no entry was made of, which `owner` held."""
        held = owner.held
        size = 0
        for delivery in deliveries:
            del held[delivery.content.sequence]  # type: ignore[attr-defined]  # a bare one's is plain
            size += delivery.size
        self.pending -= len(deliveries)
        self.bytes_pending -= size
        self.acknowledged += len(deliveries)
        self.bytes_removed += size
        if self.quota is not None:
            self.quota.freed()

    def give_back(
        self,
        entries: Sequence[Entry],
        *,
        counted: bool,
        now: float,
        delay: float = 0.0,
        planned: bool = False,
        barred: bool = False,
    ) -> list[Entry]:
        """T13 (`counted` False) or T14: back to their places, at once or `delay` seconds after monotonic `now`; where it is
        `planned` (rollback, recover; not close or crash), the queue's own redelivery delay and each one's count decide (IF-14).

        Returns those whose deliveries reached the redelivery limit (T15): they are no longer on this queue.
        """
        settings = self._settings
        limit = settings.redelivery_limit
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
            wait = settings.redelivery_delay_after(entry.count, delay) if planned else delay
            if wait > 0:
                self._hold_back(entry, State.DELAYED)
                self._timetable.until(entry, now + wait)
            else:
                self._show(entry)
        if exceeded:
            self._end(exceeded, State.REDELIVERY_COUNT_EXCEEDED)
        self._watch()
        return exceeded

    def take_out(self, entries: Sequence[Entry], *, counted: bool) -> None:
        """T15 at once: out of `receive`, on the way to the error destination; the caller says what becomes of them."""
        for entry in entries:
            self._let_go(entry)
            entry.count += counted
        self._end(entries, State.REDELIVERY_COUNT_EXCEEDED)

    def take_away(self, entries: Sequence[Entry]) -> None:
        """T17: management takes away what nobody holds; the caller counts it as moved or deleted."""
        self._withdraw(entries)
        self._end(entries, State.GONE)
        self._watch()

    def _let_go(self, entry: Entry) -> None:
        owner = entry.owner
        assert owner is not None
        del owner.held[entry.sequence]
        entry.owner = None
        entry.delivery = None
        self.pending -= 1
        self.bytes_pending -= entry.size

    def _withdraw(self, entries: Sequence[Entry]) -> None:
        """Out of the places where they wait, whatever these are."""
        by_state: dict[State | None, list[Entry]] = {}
        for entry in entries:
            by_state.setdefault(entry.state, []).append(entry)
        visible, ordered = by_state.pop(State.VISIBLE, []), by_state.pop(State.ORDERED, [])
        if visible:
            self._ready.remove(visible)
            self._leave_current(visible)
        if ordered:
            self.units.remove(ordered)
            self.ordered -= len(ordered)
            self.bytes_current -= sum(entry.size for entry in ordered)
        delayed, paused = by_state.pop(State.DELAYED, []), by_state.pop(State.PAUSED, [])
        if delayed:
            self._timetable.remove(delayed)
        for entry in paused:
            del self._paused[entry.sequence]
        for entry in (*delayed, *paused):
            self.pending -= 1
            self.bytes_pending -= entry.size
        assert not by_state, f"{by_state} cannot be taken away"

    def _leave_current(self, visible: Sequence[Entry]) -> None:
        self.visible -= len(visible)
        self.bytes_current -= sum(entry.size for entry in visible)
        for selection in self.selections:
            selection.withdraw(visible)

    def _end(self, entries: Sequence[Entry], by_way_of: State) -> None:
        """They leave the queue; whoever waited behind them may come."""
        size = 0
        for entry in entries:
            entry.state = by_way_of
            size += entry.size
            if entry.expires_at is not None:
                self.expiring -= 1
            if entry.unit is not None:
                following = self.units.finished(entry)
                if following is not None:
                    self.ordered -= 1
                    self._make_visible(following)
            entry.state = _GONE
        self.bytes_removed += size
        if self.quota is not None:
            self.quota.freed()

    def pass_through(self, entries: Sequence[Entry]) -> None:
        """Messages that were this queue's in an earlier process and leave it at once (T15 at start)."""
        for entry in entries:
            self.received += 1
            self.bytes_received += entry.size
            self.expiring += entry.expires_at is not None
        self._end(entries, State.REDELIVERY_COUNT_EXCEEDED)

    # -- pauses and time -------------------------------------------------------------------------------------------

    def pause_insertion(self, paused: bool) -> None:
        """From now on nothing becomes visible; or (T9) all that was held back does, in order."""
        self.insertion_paused = paused
        if not paused and self._paused:
            held_back = sorted(self._paused.values(), key=lambda entry: entry.sequence)
            self._paused.clear()
            for entry in held_back:
                self.pending -= 1
                self.bytes_pending -= entry.size
                self._show(entry)
            self._watch()
        if self.quota is not None:
            self.quota.freed()

    @property
    def has_delayed(self) -> bool:
        """Whether anything waits for a time."""
        return bool(self._timetable)

    def next_due(self) -> tuple[float | None, float | None]:
        """When the next delayed message is due: by the monotonic clock, by the wall clock."""
        return self._timetable.next_due()

    def show_due(self, now: float, wall: float) -> int:
        """T8: what is due by monotonic `now` or by `wall` becomes visible, or paused; returns how many."""
        due = self._timetable.take_due(now, wall)
        for entry in due:
            self.pending -= 1
            self.bytes_pending -= entry.size
            self._show(entry)
        if due:
            self._watch()
        return len(due)

    def expire(self, wall: float) -> list[Entry]:
        """T16: take out all that have expired by `wall` and that nobody holds. Costs a walk; see `expiring`."""
        if not self.expiring:
            return []
        everywhere = (self._ready.in_any_order(), self.units, self._timetable, self._paused.values())
        gone = [entry for place in everywhere for entry in place if entry.expires_at is not None and entry.expires_at <= wall]
        if gone:
            gone.sort(key=lambda entry: entry.sequence)  # where they go on living, they keep their order
            self._withdraw(gone)
            self._end(gone, State.EXPIRED)
            self.expired += len(gone)
            self._watch()
        return gone

    def _watch(self) -> None:
        if self._thresholds is not None and self.on_crossing is not None:
            for what, above in self._thresholds.crossed(self.visible + self.ordered, self.bytes_current):
                self.on_crossing(self, what, above)

    # -- what there is ---------------------------------------------------------------------------------------------

    def browse(self) -> Iterator[Entry]:
        """What can be taken, in order."""
        return iter(self._ready)

    def unheld(self) -> Iterator[Entry]:
        """Every message that no one holds: visible ones in order; then ordered, delayed, paused and sent ones."""
        yield from self._ready
        yield from self.units
        yield from self._timetable
        yield from self._paused.values()
        yield from self._uncommitted.entries()

    def new_in_order(self) -> Iterator[list[int]]:
        """The sequence numbers of new visible messages, priority by priority, as they wait (for the checker)."""
        return self._ready.new_in_order()

    @property
    def is_held(self) -> bool:
        """Whether anybody holds a message of it."""
        return any(holder.held for holder in self.holders.values())

    @property
    def uncommitted(self) -> int:
        """Messages in `send`: not yet the queue's."""
        return len(self._uncommitted)

    def pending_by_kind(self) -> PendingByKind:
        """In-flight messages by what they wait for."""
        transacted = sum(len(holder.held) for holder in self.holders.values() if holder.transacted)
        held = sum(len(holder.held) for holder in self.holders.values())
        return PendingByKind(
            unborn=len(self._timetable.unborn),
            uncommitted_sent=self.uncommitted,
            uncommitted_received=transacted,
            unacknowledged=held - transacted,
            redelivery_delay=len(self._timetable.delayed),
            paused=len(self._paused),
        )

    def statistics(self) -> DestinationStatistics:
        """The numbers of this moment; those of consumers, senders and pauses are not the queue's to know."""
        return self._statistics(self.pending_by_kind())
