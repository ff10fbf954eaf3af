"""The queue against a small reference model, with the conservation checker after each step (IF-7, IF-8)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jmsclient.message import MessageKind, PlainContent
from jmsclient_embedded.entry import Entry, Holder
from jmsclient_embedded.invariants import check_queue
from jmsclient_embedded.queue import MessageQueue
from jmsclient_embedded.settings import QueueSettings
from jmsclient_embedded.states import State, allowed

OWNERS = (1, 2, 3)


@dataclass
class Model:
    """A message as anyone would write it down."""

    sequence: int
    priority: int
    expires_at: float | None
    state: State
    due: tuple[str, float] | None = None
    count: int = 0
    owner: int | None = None
    barred: set[int] = field(default_factory=set)


class QueueMachine(RuleBasedStateMachine):
    """Sends, takes, settles, lets time pass; compares everything that can be seen."""

    @initialize(limit=st.integers(-1, 2))
    def begin(self, limit: int) -> None:
        self.limit = limit
        self.queue = MessageQueue("q", QueueSettings(redelivery_limit=limit))
        self.owners = {number: Holder(self.queue, number, f"consumer-{number}") for number in OWNERS}
        self.queue.holders = self.owners
        self.now, self.wall = 50.0, 1000.0
        self.sequence = itertools.count(1)
        self.entries: dict[int, Entry] = {}
        self.states: dict[int, State | None] = {}
        self.model: dict[int, Model] = {}
        self.gone = 0

    def _make(self, priority: int, life: float | None) -> tuple[Entry, Model]:
        sequence = next(self.sequence)
        expires_at = None if life is None else self.wall + life
        content = PlainContent(kind=MessageKind.TEXT, body="x" * (sequence % 7), priority=priority, expiration=expires_at)
        entry = Entry(sequence, content)
        self.entries[sequence] = entry
        self.states[sequence] = None
        return entry, Model(sequence, priority, expires_at, State.VISIBLE)

    @rule(
        priority=st.integers(3, 5),
        life=st.sampled_from([None, None, 0.5, 3.0, 8.0]),
        birth=st.sampled_from([None, None, -2.0, 1.0, 6.0]),
        number=st.integers(1, 3),
    )
    def send(self, priority: int, life: float | None, birth: float | None, number: int) -> None:
        for _ in range(number):
            entry, model = self._make(priority, life)
            if birth is not None:
                entry.content.delivery_time = self.wall + birth  # type: ignore[attr-defined]
                if birth > 0:
                    model.state, model.due = State.DELAYED, ("wall", self.wall + birth)
            self.model[entry.sequence] = model
            self.queue.add([entry], self.wall)

    @rule(priority=st.integers(3, 5))
    def begin_send(self, priority: int) -> None:
        entry, model = self._make(priority, None)
        model.state = State.SEND
        self.model[entry.sequence] = model
        self.queue.begin_send([entry])

    def _in(self, state: State) -> list[int]:
        return [one.sequence for one in self.model.values() if one.state is state]

    @precondition(lambda self: self._in(State.SEND))
    @rule(stored=st.booleans(), data=st.data())
    def end_send(self, stored: bool, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self._in(State.SEND)))
        if stored:
            self.queue.end_send([self.entries[sequence]], self.wall)
            self.model[sequence].state = State.VISIBLE
        else:
            self.queue.fail_send([self.entries[sequence]])
            del self.model[sequence]

    @rule(owner=st.sampled_from(OWNERS), most=st.integers(1, 4))
    def take(self, owner: int, most: int) -> None:
        granted, expired = self.queue.take(self.owners[owner], most, self.wall)
        visible = sorted((self.model[one] for one in self._in(State.VISIBLE)), key=lambda one: (-one.priority, one.sequence))
        expect: list[int] = []
        for one in visible:
            if len(expect) == most:
                break
            if one.expires_at is not None and one.expires_at <= self.wall:  # whoever finds it
                del self.model[one.sequence]
                self.gone += 1
                continue
            if owner in one.barred:
                continue
            one.state, one.owner = State.RECEIVE, owner
            expect.append(one.sequence)
        assert [one.sequence for one in granted] == expect
        assert all(one.state is State.GONE for one in expired)

    @precondition(lambda self: self._in(State.RECEIVE))
    @rule(
        data=st.data(),
        verb=st.sampled_from(["accept", "release", "retry", "retry_elsewhere", "dead_letter"]),
        delay=st.sampled_from([0.0, 0.0, 1.5]),
    )
    def settle(self, data: st.DataObject, verb: str, delay: float) -> None:
        some = data.draw(st.lists(st.sampled_from(self._in(State.RECEIVE)), min_size=1, max_size=3, unique=True))
        entries = [self.entries[one] for one in some]
        if verb == "accept":
            self.queue.accept(entries)
        elif verb == "dead_letter":
            self.queue.take_out(entries, counted=True)
            self.queue.moved += len(entries)
        else:
            counted = verb != "release"
            exceeded = self.queue.give_back(entries, counted=counted, now=self.now, delay=delay, barred=verb == "retry_elsewhere")
            self.queue.moved += len(exceeded)
            for one in (self.model[sequence] for sequence in some):
                one.count += counted
                if verb == "retry_elsewhere":
                    assert one.owner is not None
                    one.barred.add(one.owner)
                one.owner = None
                one.state, one.due = (State.DELAYED, ("now", self.now + delay)) if delay else (State.VISIBLE, None)
            over = [sequence for sequence in some if counted and 0 <= self.limit < self.model[sequence].count]
            assert [one.sequence for one in exceeded] == over
            some = over
        for sequence in some:
            del self.model[sequence]
            self.gone += 1

    @rule(seconds=st.sampled_from([0.0, 0.7, 2.0, 5.0]), step=st.sampled_from([0.0, 0.0, -3600.0, 3600.0]))
    def time(self, seconds: float, step: float) -> None:
        self.now += seconds
        self.wall += seconds + step
        self.queue.show_due(self.now, self.wall)
        for one in self.model.values():
            if one.state is State.DELAYED and one.due is not None:
                clock, due = one.due
                if due <= (self.now if clock == "now" else self.wall):
                    one.state, one.due = State.VISIBLE, None

    @rule()
    def scan(self) -> None:
        expired = {one.sequence for one in self.queue.expire(self.wall)}
        expect = {
            one.sequence
            for one in self.model.values()
            if one.state in (State.VISIBLE, State.DELAYED) and one.expires_at is not None and one.expires_at <= self.wall
        }
        assert expired == expect
        for sequence in expect:
            del self.model[sequence]
            self.gone += 1

    @invariant()
    def books_balance(self) -> None:
        if not hasattr(self, "queue"):
            return
        check_queue(self.queue, self.owners.values())
        there = [*self.queue.unheld(), *(one for owner in self.owners.values() for one in owner.held.values())]
        seen = {one.sequence: (one.state, one.count, one.owner.number if one.owner else None) for one in there}
        assert seen == {one.sequence: (one.state, one.count, one.owner) for one in self.model.values()}
        removed = self.queue.acknowledged + self.queue.expired + self.queue.moved
        assert removed == self.gone
        for sequence, entry in self.entries.items():
            before, self.states[sequence] = self.states[sequence], entry.state
            assert entry.state is not None
            assert before is entry.state or allowed(before, entry.state), f"{before} -> {entry.state}"


QueueMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestQueueAgainstModel = QueueMachine.TestCase
