"""Owns one broker: the lock, the thread, the rooms, and the calls that the transport makes.

Must not know of the contract's sessions (transport.py) or of SQL (store.py). What happens to messages is decided in the rooms
(admission, granting, settling, transactions, redirecting, pausing, closing, catalogue, topics, writing), always as steps under
the one lock (steps.py). Lock order: this lock, then the hand-over journal's; no other room's lock, and no call of a sink or
listener, under it. Source: rules IF-2, IF-3, IF-7 to IF-11, IF-33, IF-34.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident

from jmsclient.clock import Bell, Clock
from jmsclient.errors import ConnectionLostError
from jmsclient.events import emit
from jmsclient.message import Content, Texts
from jmsclient.transport.contract import Arrival, Outcome
from jmsclient_embedded.admission import Admission, Route, Sending
from jmsclient_embedded.aftermath import Aftermath, tell_events
from jmsclient_embedded.catalogue import TEMPORARY, Catalogue
from jmsclient_embedded.closing import Closing
from jmsclient_embedded.definitions import MARK, read
from jmsclient_embedded.entry import Entry
from jmsclient_embedded.granting import Granting
from jmsclient_embedded.line import Line
from jmsclient_embedded.outlet import Group, Outlet
from jmsclient_embedded.pauses import Flags, Pause
from jmsclient_embedded.pausing import Pausing
from jmsclient_embedded.redirecting import Redirecting
from jmsclient_embedded.rows import Columns
from jmsclient_embedded.settings import QueueSettings
from jmsclient_embedded.settling import LIMIT_REASON, Settling
from jmsclient_embedded.states import State
from jmsclient_embedded.steps import Answer, Steps
from jmsclient_embedded.store import Store
from jmsclient_embedded.topics import Topics
from jmsclient_embedded.transactions import Transactions
from jmsclient_embedded.writing import Writing

SCAN_INTERVAL = 30.0
"""Seconds between two looks for expired messages that nobody asks for (IF-33), and for blocked units of order (IF-34), unless
`scan_interval` says otherwise; 0: none."""
MOST_PUTS_AHEAD = 1_000
"""Sends of the main thread that may be on their way to the broker's thread before one waits for it."""
WALL_LOOK_INTERVAL = 0.5
"""Seconds between two looks at the wall clock while un-born messages wait: it may be set forward (IF-3)."""

_logger = logging.getLogger("jmsclient.embedded")


class Broker:
    """Thread-safe. `defaults` are the settings of queues made on first use (the template), `startup` the broker's own pauses
    at start; without `store` nothing outlives the process."""

    def __init__(
        self,
        name: str,
        defaults: QueueSettings,
        clock: Clock,
        store: Store | None = None,
        startup: dict[Pause, bool | None] | None = None,
        scan_interval: float = SCAN_INTERVAL,
    ) -> None:
        self.name = name
        self.clock = clock
        self.store = store
        todo = self._aftermath = Aftermath()
        granting = self.granting = Granting(defaults, Flags(), clock, todo)
        self.writing = Writing(store, clock, todo, granting.shown)
        self.redirecting = Redirecting(
            self.writing, clock, todo, line=granting.line, shown=granting.shown, next_sequence=granting.next_sequence
        )
        self.settling = Settling(granting, self.writing, self.redirecting, clock, todo)
        self.admission = Admission(granting, self.writing, clock)
        self.transactions = Transactions(granting, self.settling, self.writing, clock)
        self.pausing = Pausing(granting, self.settling, todo)
        self.topics = Topics(granting)
        self.closing = Closing(granting, self.settling, self.admission, self.transactions)
        self.catalogue = Catalogue(
            granting, self.topics, self.admission, self.pausing, self.writing, todo, startup or dict.fromkeys(Pause)
        )
        granting.expired = self.redirecting.expired
        granting.pre_settled = self.settling.pre_settle
        self.topics.discard = self.discard_all
        self.closing.left = self.transactions.left = self.topics.left
        self.disowned = False
        """This process is a fork of the one the broker lives in."""
        self.client_ids: set[str] = set()
        """Those of the connections that are open."""
        self._reported: set[int] = set()
        self._left: deque[tuple[Line, Sequence[Content]]] = deque()
        """Put while another thread had the lock, which carries it out."""
        self._scan_interval = scan_interval or math.inf
        self._next_scan = clock.monotonic() + self._scan_interval
        self.steps = Steps(
            clock,
            name or "default",
            after=self._after,
            serve=self._serve,
            ended=self.writing.end,
            gathered=self.settling.gathered,
            left=self._left,
            carry_out=self._carry_out,
        )
        if store is not None:
            self._load(store)
        self.steps.start()
        self.writing.start(self.steps, name or "default")

    # -- calls -----------------------------------------------------------------------------------------------------

    def check_alive(self) -> None:
        """Raises ConnectionLostError in a fork."""
        if self.disowned:
            raise ConnectionLostError("this broker lives in the process that this one was forked from; connect again here")

    def put(self, line: Line, contents: Sequence[Content]) -> bool:
        """Put messages that are not stored on a `plain` queue: the short way; False where it is plain no more.

        Nothing can go wrong, so nobody waits: from the main thread they are on their way when it returns, before all that is handed
        over later; and where another thread has the lock, that one carries it out (steps.py). Hot path: no closure, and a look at
        what is left to be done only where somebody wants messages.
        """
        steps = self.steps
        if not steps.by_caller():
            if steps.backlog < MOST_PUTS_AHEAD:
                steps.tell(lambda: self._put_promised(line, contents))
            else:
                steps.ask(lambda: self._put_promised(line, contents))
            return True
        if not steps.lock.acquire(blocking=len(self._left) >= MOST_PUTS_AHEAD):
            return self._leave(line, contents)
        rest = None
        try:
            plain = line.plain
            late = bool(self.settling.gathered or self._left)
            if late:
                self._carry_out()
            if (plain and self._put(line, contents)) or late:
                rest = self._after()
        finally:
            steps.lock.release()
        if rest is not None:
            rest()
        if self._left:
            steps.carry_out_left()
        return plain

    def _leave(self, line: Line, contents: Sequence[Content]) -> bool:
        """`put` by whoever has the lock."""
        leave, left = self._left.append, (line, contents)
        if not line.plain:
            return False
        leave(left)  # no call since the look, so no other thread came between: a pause that returned lets nothing in
        self.steps.carry_out_left()
        return True

    def send(
        self,
        route: Callable[[], Route],
        contents: Sequence[Content],
        columns: Sequence[Columns | None] | None,
        group: Group,
        *,
        room_deadline: float | None,
        confirm_timeout: float | None,
    ) -> Sending:
        """Put messages on a destination, with `columns` (None for one that is not stored) on disk when it returns.

        Waits for room until `room_deadline` (monotonic), then for the disk, `confirm_timeout` seconds. What it returns says how
        many entered, and why those are not stored, if they are not. Raises DestinationPausedError, ResourceAllocationError,
        and RequestTimeoutError: unknown whether they are stored.
        """
        answer: Answer[None] = Answer(self.clock, self._aftermath.ring)
        left = self.clock.left(room_deadline)
        may_wait = left is None or left > 0
        started: list[Sending] = []

        def begin() -> Sending:
            sending = Sending(self.admission, route(), contents, columns, group, answer)
            started.append(sending)
            self.admission.begin(sending, may_wait=may_wait)
            return sending

        def give_up() -> None:
            for sending in started:
                sending.give_up()

        try:
            sending = self.steps.ask(begin)
            if sending.room is not None and not sending.room.wait_until(room_deadline):
                self.steps.ask(give_up)
            if not answer.given:
                answer.wait(self.clock.deadline(confirm_timeout), "a confirmation")
        except BaseException:
            self.steps.tell(give_up)  # an exception of a signal handler: what did not enter yet never does
            raise
        return sending

    def request(self, outlet: Outlet, count: int) -> None:
        """Hand more demand over; returns at once. Hot path, as `put`."""
        steps = self.steps
        if not steps.by_caller():
            steps.tell(lambda: self.granting.request(outlet, count))
            return
        with steps.lock:
            if self.settling.gathered or self._left:
                self._carry_out()
            self.granting.request(outlet, count)
            rest = self._after()
        if rest is not None:
            rest()
        if self._left:
            steps.carry_out_left()

    def settle(self, outlet: Outlet, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        """Hand a settlement over; returns at once."""
        self.steps.tell(lambda: self.settling.settle(outlet, arrivals, outcome))

    def flush(self, deadline: float | None) -> None:
        """Return when everything handed over so far is stored. Raises StoreError, RequestTimeoutError."""
        self.ask_later(self.writing.join, deadline, "a confirmation that settlements are stored")

    def ask_later(self, step: Callable[[Answer[None]], None], deadline: float | None, what: str) -> None:
        """Have a step done that answers when it likes, and wait for the answer."""
        answer: Answer[None] = Answer(self.clock, self._aftermath.ring)

        def begun() -> None:
            try:
                step(answer)
            except Exception as error:  # raised again in the waiter, which would wait for ever otherwise
                answer.fail(error)
                raise

        self.steps.tell(begun)
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

    def _put(self, line: Line, contents: Sequence[Content]) -> bool:
        """Whether that leaves something to be done outside the lock, or may."""
        granting, queue = self.granting, line.queue
        if type(contents) is Texts and queue.put_texts(contents, granting.reserve):
            entered = len(contents)
        else:
            entered = queue.put(contents, granting.sequence.__next__)
        if entered == len(contents):
            if not line.wanting:
                return False
            granting.grant(line)
            return True
        queue.add([Entry(granting.next_sequence(), content) for content in contents[entered:]], self.clock.wall())
        granting.shown(line)
        return True

    def _put_promised(self, line: Line, contents: Sequence[Content]) -> None:
        """What was confirmed when the queue was there comes into the next one of its name, if it was removed meanwhile."""
        name = line.queue.name
        if not line.plain and self.granting.lines.get(name) is not line:
            if name.startswith(TEMPORARY):
                return
            line = self.granting.line(name)
        self._put(line, contents)

    def _carry_out(self) -> None:
        """At the beginning of a step: what was handed over without one. What was put on one queue in a row enters it together."""
        if self.settling.gathered:
            self.settling.accept_gathered()
        left = self._left
        while left:
            line, contents = left.popleft()
            if type(contents) is not Texts:
                contents = list(contents)
                while left and left[0][0] is line and type(left[0][1]) is not Texts:
                    contents += left.popleft()[1]
            try:
                self._put_promised(line, contents)
            except Exception:  # whoever has the lock has nothing to do with it
                _logger.exception("messages could not be put on queue %r", line.queue.name)

    def discard(self, line: Line, entries: list[Entry]) -> None:
        """T17: these were taken away by management."""
        line.queue.deleted += len(entries)
        self.writing.delete(entries)

    def discard_all(self, line: Line) -> None:
        """Its destination goes: whatever nobody holds goes with it."""
        entries = [entry for entry in line.queue.unheld() if entry.state is not State.SEND]
        line.queue.take_away(entries)
        self.discard(line, entries)

    def _load(self, store: Store) -> None:
        self.catalogue.load(read(store.definitions()))
        last = 0
        exceeded: dict[Line, list[Entry]] = {}
        for row in store.load():
            last = row.sequence
            if MARK in row.queue and row.queue not in self.granting.lines:  # its subscription ended while it was written
                self.writing.delete([Entry(row.sequence, row.content, stored=True)])
                continue
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
            self.redirecting.dead_letter(line, entries, f"{LIMIT_REASON}: the process ended before it was settled", {})

    def _fall_due(self) -> None:
        now, wall = self.clock.monotonic(), self.clock.wall()
        scan = now >= self._next_scan
        if scan:
            self._next_scan = now + self._scan_interval
        for line in tuple(self.granting.timed):
            queue = line.queue
            if scan:
                self._scan(line, wall)
            if queue.show_due(now, wall):
                self.granting.grant(line)
            if not queue.expiring and not queue.has_delayed and queue.settings.unit_of_order is None:
                self.granting.timed.discard(line)

    def _scan(self, line: Line, wall: float) -> None:
        queue = line.queue
        if expired := queue.expire(wall):
            self.redirecting.expired(line, expired)
            self.granting.grant(line)
        if queue.settings.unit_of_order is None or not line.wanting or line.consumption_paused:
            return
        for unit, head, behind in queue.units.heads():
            if behind and head.state is State.VISIBLE and head.sequence not in self._reported:
                self._reported.add(head.sequence)
                text = (
                    f"unit of order {unit!r} of {line.destination.address}: no receiver selects its head, {behind} wait behind it"
                )
                self._aftermath.tell(
                    "unit_blocked", text, level=logging.WARNING, queue=queue.name, unit=unit, message_id=head.content.message_id
                )
        self._reported &= {head.sequence for one in self.granting.timed for _, head, _ in one.queue.units.heads()}

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
        if self.admission.freed_quotas:
            self.admission.serve()
        if self._aftermath.write and self.writing.over:
            self.writing.give_up()
        others, pushes = self._aftermath.take()
        return (lambda: self._act(others, pushes)) if others is not None or pushes else None

    def _act(self, others: Aftermath | None, pushes: list[tuple[Outlet, list[Arrival]]]) -> None:
        """Wake, tell and push. A loop, not a recursion: what a push sets free is pushed by the same thread. Whoever was answered
        hears of it when what there is to push now is pushed: to ring may let go of the interpreter."""
        first = len(pushes)
        bells: list[Bell] = []
        try:
            while True:
                if others is not None:
                    bells += others.bells
                    self._do(others)
                if first <= 0 and bells:
                    _ring(bells)
                first -= 1
                if not pushes:
                    return
                others, more = self._push(*pushes.pop(0))
                pushes += more  # behind the others: one busy receiver does not keep them waiting
        finally:
            _ring(bells)

    def _push(self, outlet: Outlet, batch: list[Arrival]) -> tuple[Aftermath | None, list[tuple[Outlet, list[Arrival]]]]:
        """Returns what that left to be done."""
        outlet.pumper = get_ident()
        try:
            outlet.sink.delivered(batch)
        except Exception:  # a sink never raises; if it does, the broker must go on
            _logger.exception("a receiver of queue %r failed to take a batch", outlet.line.queue.name)
        with self.steps.lock:
            if self._left:
                self._carry_out()
            if self.granting.pushed(outlet) and (outlet.closing or outlet.idle):
                self.closing.idle(outlet)
            if self.admission.freed_quotas:
                self.admission.serve()
            return self._aftermath.take()

    def _do(self, todo: Aftermath) -> None:
        if todo.wake:
            self.steps.bell.ring()
        if todo.write:
            self.writing.ring()
        if todo.events:
            tell_events(todo.events)
        for outlet in todo.recalls:
            outlet.sink.recall()
        for outlet, error in todo.closures:
            self._close(outlet, error)

    def _close(self, outlet: Outlet, error: Exception) -> None:
        """The broker closes a receiver: nothing is pushed to it any more when its sink hears of it."""

        def close() -> None:
            if not outlet.closing:  # it may have asked for more meanwhile, and have been refused that too
                self.closing.close_outlet(outlet, lambda: self._tell_closed(outlet, error))

        self.steps.perform(close)

    def _tell_closed(self, outlet: Outlet, error: Exception) -> None:
        self.steps.call(lambda: outlet.sink.closed(error))

    def _serve(self) -> float | None:
        if self.granting.timed:
            self.steps.perform(self._fall_due)
        return self.steps.perform(self._wait)


def _ring(bells: list[Bell]) -> None:
    for bell in bells:
        bell.ring()
    bells.clear()
