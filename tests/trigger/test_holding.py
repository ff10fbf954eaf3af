"""Copies of messages in progress, where the provider cannot delay what goes back: held here, decided again when there is a reason
to, and never longer than the provider allows (TR-67, TR-35, RA-15). Time is moved by hand."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from jmsclient import Delivery, Message, Worker
from jmsclient.events import Event
from jmsclient.history.contract import DocumentHistory
from jmsclient.history.entries import Claim
from jmsclient.history.memory import MemoryHistory
from jmsclient.testing import ManualClock, ScriptedBackend
from jmsclient.testing.scripted import DEFAULT_CAPABILITIES
from jmsclient.transport.contract import Verb

from ..seen import named, verbs  # noqa: TID252  tests are no package that has a name

Q = "queue:///orders"
Until = Callable[..., None]
ByHand = Callable[[Worker], Worker]


def copy_of(uuid: str, body: str = "copy") -> Message:
    return Message(body, properties={"uuid": uuid})


@pytest.fixture
def history(clock: ManualClock) -> DocumentHistory:
    return MemoryHistory(clock=clock)


@pytest.fixture
def limited() -> Any:
    """A provider that holds nothing for longer than twenty seconds."""
    with ScriptedBackend(replace(DEFAULT_CAPABILITIES, hold_limit=20.0)) as backend:
        yield backend
        assert backend.violations == []


@pytest.mark.parametrize("settings", [{"micro_batch": 4}, {"batch": 4}, {"concurrency": 4}], ids=str)
@pytest.mark.parametrize("fails", [False, True])
def test_tr67_copies_of_what_runs_here_are_decided_when_it_has_ended(
    backend: ScriptedBackend, history: DocumentHistory, by_hand: ByHand, until: Until, settings: dict[str, int], fails: bool
) -> None:
    """At once, though no time passes: nobody waits for the five seconds of TR-35."""
    go_on = threading.Event()
    ran: list[str] = []
    worker = by_hand(Worker(backend.url, history=history))

    @worker.trigger(Q, on_error="acknowledge", **settings)  # type: ignore[arg-type]
    def book() -> None:
        ran.append("ran")
        assert go_on.wait(60)
        if fails:
            raise ValueError("not today")

    with worker:
        backend.deliver(Q, [copy_of("1") for _ in range(3)])
        until(lambda: worker.triggers[Q].counters["in_progress"] == 2)
        go_on.set()
        until(lambda: len(backend.settlements) == 3)
        assert (worker.triggers[Q].counters["in_progress"], worker.triggers[Q].counters["duplicate"]) == (2, 2)
    assert ran == ["ran"]
    assert verbs(backend) == [Verb.ACCEPT] * 3


def test_tr67_a_copy_whose_original_went_back_runs_as_its_next_attempt(
    backend: ScriptedBackend, history: DocumentHistory, by_hand: ByHand, until: Until
) -> None:
    """TR-46: `retrying` says so. What went back is then a Duplicate."""
    go_on = threading.Event()
    attempts: list[int] = []
    worker = by_hand(Worker(backend.url, history=history))

    @worker.trigger(Q, concurrency=2, on_error="redeliver")
    def book(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        assert go_on.wait(60)
        if delivery.attempt == 1:
            raise ValueError("not today")

    with worker:
        backend.deliver(Q, [copy_of("1"), copy_of("1")])
        until(lambda: worker.triggers[Q].counters["in_progress"] == 1)
        go_on.set()
        until(lambda: worker.triggers[Q].counters["duplicate"] == 1)
        until(lambda: not backend.waiting(Q) and not backend.unsettled(Q))
    assert attempts == [1, 2]
    assert Counter(verbs(backend)) == {Verb.RETRY: 1, Verb.ACCEPT: 2}


@pytest.mark.parametrize("settings", [{"concurrency": 2}, {"micro_batch": 2}], ids=str)  # threads; inline, with the stand-in
def test_tr67_a_copy_that_is_due_while_no_handler_is_free_keeps_nobody_busy(
    backend: ScriptedBackend,
    history: DocumentHistory,
    by_hand: ByHand,
    clock: ManualClock,
    until: Until,
    settings: dict[str, int],
) -> None:
    history.claim(Q, "1", source="uuid", token="other", lease=1.0)
    go_on = threading.Event()
    worker = by_hand(Worker(backend.url, history=history))

    @worker.trigger(Q, **settings)  # type: ignore[arg-type]
    def book(body: str) -> None:
        assert go_on.wait(60)

    with worker:
        backend.deliver(Q, [copy_of("1"), copy_of("2"), copy_of("3"), copy_of("4")])
        pipeline = worker.triggers[Q].pipeline
        until(lambda: worker.triggers[Q].counters["new"] == (2 if "concurrency" in settings else 1))
        clock.advance(2)
        until(lambda: (pause := pipeline._pause()) is not None and pause > 1)
        go_on.set()
        until(lambda: worker.triggers[Q].counters["in_doubt"] == 1)


def test_ra15_what_is_held_goes_back_at_half_the_limit_and_is_held_anew(
    limited: ScriptedBackend, history: DocumentHistory, by_hand: ByHand, clock: ManualClock, until: Until, events: list[Event]
) -> None:
    claim = history.claim(Q, "1", source="uuid", lease=1000.0)
    worker = by_hand(Worker(limited.url, history=history))

    @worker.trigger(Q, concurrency=2)
    def book(body: str) -> None: ...

    with worker:
        trigger = worker.triggers[Q]
        limited.deliver(Q, copy_of("1"))
        for seen in (1, 2):
            until(lambda seen=seen: trigger.counters["in_progress"] == seen)
            assert limited.settlements == []
            clock.advance(5.0)  # TR-35
        until(lambda: len(limited.settlements) == 1)
        until(lambda: trigger.counters["in_progress"] == 3)  # it came again: held anew
        assert [event.fields["released"] for event in named(events, "hold_limit")] == [1]
        clock.advance(5.0)
        until(lambda: trigger.counters["in_progress"] == 4)
        history.complete(Q, "1", source="uuid", token=claim.token)
        clock.advance(5.0)
        until(lambda: trigger.counters["duplicate"] == 1)
        until(lambda: not limited.unsettled(Q))
    assert verbs(limited) == [Verb.RELEASE, Verb.RELEASE, Verb.ACCEPT]


def test_ra15_the_time_in_the_buffer_counts_and_a_serial_trigger_keeps_its_order(
    limited: ScriptedBackend, history: DocumentHistory, by_hand: ByHand, clock: ManualClock, until: Until, events: list[Event]
) -> None:
    claim = history.claim(Q, "2", source="uuid", lease=1000.0)
    first, go_on = threading.Event(), threading.Event()
    ran: list[tuple[str, int]] = []
    worker = by_hand(Worker(limited.url, history=history))

    @worker.trigger(Q, prefetch=10)
    def book(body: str, delivery: Delivery) -> None:
        ran.append((body, delivery.delivery_count))
        first.set()
        assert go_on.wait(60)

    with worker:
        trigger = worker.triggers[Q]
        limited.deliver(Q, [copy_of("1", "a"), copy_of("2", "b"), copy_of("3", "c"), copy_of("4", "d")])
        assert first.wait(30)
        clock.advance(8.0)
        go_on.set()
        until(lambda: trigger.counters["in_progress"] == 1)
        until(lambda: clock.waiters >= 1)
        clock.advance(1.9)
        until(lambda: trigger.pipeline._pause() is not None)
        assert verbs(limited) == [Verb.ACCEPT]
        clock.advance(0.1)
        until(lambda: trigger.counters["in_progress"] == 2)
        assert verbs(limited)[1:] == [Verb.RELEASE] * 3  # what is behind the head goes back with it
        assert ran == [("a", 1)]
        history.complete(Q, "2", source="uuid", token=claim.token)
        clock.advance(5.0)
        until(lambda: trigger.counters["completed"] == 3)
        until(lambda: not limited.unsettled(Q))
    assert ran == [("a", 1), ("c", 1), ("d", 1)]


def test_ra15_a_handler_that_outlasts_the_limit_goes_on_and_its_copy_is_a_duplicate(
    limited: ScriptedBackend, history: DocumentHistory, by_hand: ByHand, clock: ManualClock, until: Until, events: list[Event]
) -> None:
    """The provider ends its hold by closing the receiver, as RabbitMQ does at its delivery timeout."""
    go_on = threading.Event()
    ran: list[int] = []
    worker = by_hand(Worker(f"failover:({limited.url})?initial_reconnect_delay=0.001", history=history))

    @worker.trigger(Q, concurrency=2)
    def book(delivery: Delivery) -> None:
        ran.append(delivery.delivery_count)
        assert go_on.wait(60)

    with worker:
        trigger = worker.triggers[Q]
        limited.deliver(Q, copy_of("1"))
        until(lambda: ran == [1])
        clock.advance(21.0)
        limited.close_receivers()
        until(lambda: len(limited.waiting(Q)) == 1)

        def comes_again() -> bool:
            clock.advance(0.01)  # whoever opens the receiver again begins to wait when it likes
            return trigger.counters["in_progress"] == 1

        until(comes_again)
        go_on.set()
        until(lambda: trigger.counters["duplicate"] == 1)
        until(lambda: not limited.waiting(Q) and not limited.unsettled(Q))
        assert trigger.counters["completed"] == 1
        assert limited.stale_settlements == 1
    assert ran == [1]
    assert len(named(events, "stale_settlement")) == 1


def test_tr67_a_suspended_trigger_holds_nothing(
    backend: ScriptedBackend,
    history: DocumentHistory,
    by_hand: ByHand,
    clock: ManualClock,
    until: Until,
    switchable: Any,
) -> None:
    """It would keep the copy from those workers whose history answers; and it comes again when this one's does."""
    claim = history.claim(Q, "1", source="uuid", lease=1000.0)
    switched = switchable(history)
    ran: list[str] = []
    worker = by_hand(Worker(backend.url, history=switched))

    @worker.trigger(Q, concurrency=2)
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        trigger = worker.triggers[Q]
        backend.deliver(Q, copy_of("1"))
        until(lambda: trigger.counters["in_progress"] == 1)
        switched.off = Claim
        backend.deliver(Q, copy_of("2", "other"))
        until(lambda: trigger.state == "suspended" and len(backend.waiting(Q)) == 2)
        assert backend.unsettled(Q) == []
        pause = trigger.pipeline._pause()
        assert pause is not None
        assert pause > 0
        history.complete(Q, "1", source="uuid", token=claim.token)
        switched.off = None
        clock.advance(1.0)
        until(lambda: ran == ["other"] and trigger.counters["duplicate"] == 1)
        until(lambda: not backend.unsettled(Q))
    assert Counter(verbs(backend)) == {Verb.RELEASE: 2, Verb.ACCEPT: 2}


@pytest.mark.parametrize("way", ["stop", "disable"])
@pytest.mark.parametrize("settings", [{}, {"concurrency": 2}, {"transacted": True}], ids=str)
def test_tr67_stop_and_disable_release_what_is_held(
    backend: ScriptedBackend, history: DocumentHistory, by_hand: ByHand, until: Until, way: str, settings: dict[str, Any]
) -> None:
    history.claim(Q, "1", source="uuid", lease=1000.0)
    worker = by_hand(Worker(backend.url, history=history))
    worker.trigger(Q, **settings)(lambda: pytest.fail("it must not run"))
    with worker:
        trigger = worker.triggers[Q]
        backend.deliver(Q, copy_of("1"))
        until(lambda: trigger.counters["in_progress"] == 1)
        assert len(backend.unsettled(Q)) == 1
        if way == "disable":
            assert trigger.disable() == 0
        else:
            report = worker.stop(5.0)
            assert (report.clean, report.triggers[0].released) == (True, 1)
        assert [one.body() for one in backend.waiting(Q)] == ["copy"]
    counts: list[int] = []
    second = Worker(backend.url)

    @second.trigger(Q)
    def book(delivery: Delivery) -> None:
        counts.append(delivery.delivery_count)

    with second:
        until(lambda: counts == [1])  # nobody saw it: not counted


def test_tr67_at_most_half_the_window_is_held_and_demand_withheld_until_one_is_due(
    backend: ScriptedBackend, history: DocumentHistory, by_hand: ByHand, clock: ManualClock, until: Until
) -> None:
    claims = [history.claim(Q, str(number), source="uuid", lease=1000.0) for number in range(4)]
    worker = by_hand(Worker(backend.url, history=history))

    @worker.trigger(Q, concurrency=2, prefetch=4)
    def book(body: str) -> None: ...

    with worker:
        trigger = worker.triggers[Q]
        backend.deliver(Q, [copy_of(str(number)) for number in range(4)])
        until(lambda: len(backend.waiting(Q)) == 2 and len(backend.unsettled(Q)) == 2)
        assert len(trigger.pipeline._held) == 2
        for number, claim in enumerate(claims):
            history.complete(Q, str(number), source="uuid", token=claim.token)
        assert trigger.counters["duplicate"] == 0
        clock.advance(5.0)
        until(lambda: trigger.counters["duplicate"] == 4)
        until(lambda: not backend.unsettled(Q))
