"""A trigger with several lanes is one trigger to whoever looks: one event a change, one state, one monitor (TR-59, TR-60)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jmsclient import Delivery, Message, TransientError, TriggerOptions, Worker
from jmsclient.errors import SendError
from jmsclient.events import Event
from jmsclient.history import open_history
from jmsclient.history.entries import Claim, Command, Reply
from jmsclient.history.memory import MemoryHistory
from jmsclient.testing import ManualClock, ScriptedBackend

Q = "queue:///orders"
LANES = 3
Until = Callable[..., None]
ByHand = Callable[[Worker], Worker]


def told(events: list[Event], *names: str) -> list[tuple[str, Any]]:
    return [(one.name, one.fields["reason"]) for one in events if one.name in names]


def test_tr59_used_up_retries_suspend_all_lanes_in_one_event_and_one_monitor_is_asked(
    backend: ScriptedBackend, by_hand: ByHand, clock: ManualClock, until: Until, events: list[Event]
) -> None:
    ready = threading.Event()
    asked: list[int] = []
    ran: list[str] = []
    worker = by_hand(Worker(backend.url, history="memory:"))

    def monitor() -> bool:
        asked.append(1)
        return len(asked) == 3

    options = TriggerOptions(monitor_interval=10.0)

    @worker.trigger(Q, transacted=True, concurrency=LANES, on_retry_failure="suspend", monitor=monitor, options=options)
    def book(body: str) -> None:
        if not ready.is_set():
            raise TransientError("busy")
        ran.append(body)

    with worker:
        trigger = worker.triggers[Q]
        backend.deliver(Q, "1")
        until(lambda: all(lane.pipeline.suspended for lane in trigger._lanes))
        assert (trigger.state, trigger.reason) == ("suspended", "retry_failure")
        assert told(events, "suspended", "resumed") == [("suspended", "retry_failure")]
        ready.set()
        for number in (1, 2, 3):
            until(lambda: trigger.pipeline._monitor.due())
            clock.advance(10.0)
            until(lambda number=number: len(asked) == number)
        until(lambda: ran == ["1"])
        assert trigger.state == "enabled"
    assert len(asked) == 3
    assert told(events, "suspended", "resumed") == [("suspended", "retry_failure"), ("resumed", "retry_failure")]


def test_tr59_the_application_suspends_and_resumes_it_in_one_event_each(
    backend: ScriptedBackend, until: Until, events: list[Event]
) -> None:
    worker = Worker(backend.url, history="memory:")
    worker.trigger(Q, transacted=True, concurrency=LANES)(lambda: None)
    with worker:
        trigger = worker.triggers[Q]
        for _ in range(3):
            trigger.suspend("operator")
            until(lambda: all(lane.pipeline.suspended for lane in trigger._lanes))
            trigger.resume("operator")
            until(lambda: not any(lane.pipeline.suspended for lane in trigger._lanes))
    assert told(events, "suspended", "resumed") == [("suspended", "application"), ("resumed", "application")] * 3


@pytest.mark.parametrize(("policy", "names"), [("suspend", ("suspended", "resumed")), ("run", ("history_outage", "history_back"))])
def test_tr49_an_outage_is_told_once_though_each_lane_finds_out(
    backend: ScriptedBackend,
    by_hand: ByHand,
    clock: ManualClock,
    until: Until,
    events: list[Event],
    switchable: Any,
    policy: Any,
    names: tuple[str, str],
) -> None:
    """It begins with the first lane that finds out, and is over when the last one has heard of the history again."""
    history = switchable(open_history("memory:"))
    worker = by_hand(Worker(backend.url, history=history))
    all_busy = threading.Barrier(LANES)

    @worker.trigger(Q, transacted=True, concurrency=LANES, prefetch=1, history_unavailable=policy)
    def book(body: str) -> None:
        all_busy.wait(60)

    with worker:
        trigger = worker.triggers[Q]
        history.off = Claim
        for number in range(LANES):  # one for each: a lane that is suspended takes none
            backend.deliver(Q, str(number))
            until(lambda number=number: trigger.counters["store_errors"] >= number + 1 or policy == "run")
        until(lambda: policy == "suspend" or trigger.counters["completed"] == LANES)
        found_out = [lane for lane in trigger._lanes if lane.pipeline._outage.due()]
        assert len(found_out) >= 2
        assert (trigger.state == "suspended") is (policy == "suspend")
        history.off = None
        until(lambda: clock.waiters >= len(found_out))
        clock.advance(1.0)
        until(lambda: trigger.counters["completed"] == LANES)
        until(lambda: not any(lane.pipeline._outage.due() for lane in trigger._lanes))
        assert trigger.state == "enabled"
    assert [one.name for one in events if one.name in names] == list(names)


def test_tr59_it_is_suspended_when_a_lane_other_than_the_first_is(
    backend: ScriptedBackend, until: Until, events: list[Event]
) -> None:
    worker = Worker(backend.url, history="memory:")
    worker.trigger(Q, transacted=True, concurrency=LANES)(lambda: None)
    with worker:
        trigger = worker.triggers[Q]
        last = trigger._lanes[-1].pipeline
        last.suspend("operator")
        until(lambda: last.suspended)
        assert (trigger.state, trigger.running, trigger.reason) == ("suspended", False, "application")
        trigger.disable()
        trigger.enable()
        assert (trigger.state, trigger.running) == ("enabled", True)
    assert [one.name for one in events].count("suspended") == 1


def test_tr67_in_a_concurrent_transacted_trigger_a_held_copy_delays_no_other_message(
    backend: ScriptedBackend, until: Until, by_hand: ByHand
) -> None:
    """Nor does one that waits for its retry (TR-57): each lane has one handler, but the trigger is not serial."""
    history = open_history("memory:")
    history.claim(Q, "held", source="uuid", lease=1000.0)
    ran: list[str] = []
    worker = by_hand(Worker(backend.url, history=history))

    @worker.trigger(Q, transacted=True, concurrency=LANES, max_retries=1, retry_interval=600.0)
    def book(body: str) -> None:
        if body == "fails":
            raise TransientError("busy")
        ran.append(body)

    names = ["held", "fails", *map(str, range(20))]
    with worker:
        trigger = worker.triggers[Q]
        backend.deliver(Q, [Message(name, properties={"uuid": name}) for name in names])
        until(lambda: len(ran) == 20)  # though no time passes
        assert (trigger.counters["in_progress"], trigger.counters["retrying"]) == (1, 1)
        assert len(backend.unsettled(Q)) == 2
    history.close()


def test_tr67_a_copy_in_another_lane_is_decided_when_its_original_has_ended(
    backend: ScriptedBackend, until: Until, by_hand: ByHand
) -> None:
    go_on = threading.Event()
    ran: list[str] = []
    worker = by_hand(Worker(backend.url, history="memory:"))

    @worker.trigger(Q, transacted=True, concurrency=LANES, prefetch=1)
    def book(body: str) -> None:
        ran.append(body)
        assert go_on.wait(60)

    with worker:
        trigger = worker.triggers[Q]
        backend.deliver(Q, [Message("first", properties={"uuid": "1"}) for _ in range(LANES)])
        until(lambda: trigger.counters["in_progress"] == LANES - 1)
        go_on.set()
        until(lambda: trigger.counters["duplicate"] == LANES - 1)  # though no time passes
        until(lambda: not backend.unsettled(Q))
    assert ran == ["first"]


class Slow(MemoryHistory):
    """Answers that a message is in progress only when that has long changed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.meanwhile: Callable[[], None] = lambda: None

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        replies = super().exchange(commands)
        late = any(reply.entry is not None and reply.entry.lease_alive and not reply.done for reply in replies)
        if late:
            self.meanwhile()
        return replies


@pytest.mark.parametrize("kind", ["transacted", "join"])
def test_tr67_a_copy_answered_as_its_original_leaves_another_lane_is_decided_at_once(
    backend: ScriptedBackend, until: Until, by_hand: ByHand, clock: ManualClock, kind: str
) -> None:
    """The store said that it runs; it had ended, and left, before that answer was read: there is nobody left to tell."""
    history = Slow(clock=clock)
    go_on = threading.Event()
    ran: list[str] = []
    worker = by_hand(Worker(backend.url, history=history))

    def book(body: str) -> None:
        ran.append(body)
        assert go_on.wait(60)

    if kind == "transacted":
        worker.trigger(Q, name="t", transacted=True, concurrency=2, prefetch=1)(book)
    else:
        worker.join([Q, "queue:///others"], "or", "activation", name="t", concurrency=2)(book)
    places = [Q, Q if kind == "transacted" else "queue:///others"]
    with worker:
        trigger = worker.triggers["t"]

        def original_leaves() -> None:
            go_on.set()
            until(lambda: trigger.counters["completed"] == 1)
            until(lambda: not any(lane.pipeline._desk.running for lane in trigger._lanes))

        history.meanwhile = original_leaves
        backend.deliver(places[0], Message("first", properties={"uuid": "1"}))
        until(lambda: ran)
        backend.deliver(places[1], Message("copy", properties={"uuid": "1"}))
        until(lambda: trigger.counters["duplicate"] == 1)  # though no time passes
        until(lambda: not any(backend.unsettled(place) for place in places))
        assert trigger.counters["in_progress"] == 1
    assert ran == ["first"]


def test_tr67_a_run_that_left_its_entry_as_it_was_is_waited_for_like_any_other(
    backend: ScriptedBackend, until: Until, by_hand: ByHand, clock: ManualClock
) -> None:
    """Asked about once more, in case it had just ended; not in a circle. Its handler's send is in doubt."""
    ran: list[str] = []
    worker = by_hand(Worker(backend.url, history=MemoryHistory(clock=clock)))

    @worker.trigger(Q, concurrency=2, lease=7.0)
    def book(body: str, delivery: Delivery) -> None:
        ran.append(body)
        if body == "first":
            delivery.send("queue:///invoices", body)

    with worker:
        trigger = worker.triggers[Q]
        backend.refuse_sends(SendError("the connection broke", in_doubt=("1",)))
        backend.deliver(Q, Message("first", properties={"uuid": "1"}))  # goes back, and comes again
        until(lambda: trigger.counters["in_progress"] == 2)
        backend.refuse_sends(None)
        backend.deliver(Q, [Message("other", properties={"uuid": str(number)}) for number in range(2, 6)])
        until(lambda: trigger.counters["completed"] == 4)
        until(lambda: len(trigger.pipeline._held) == 1)
        assert trigger.counters["in_progress"] == 2
        clock.advance(5.0)
        until(lambda: trigger.counters["in_progress"] == 3)
        clock.advance(2.0)
        until(lambda: trigger.counters["in_doubt"] == 1)
    assert ran == ["first"] + ["other"] * 4
