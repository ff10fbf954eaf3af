"""A copy on its way to the error destination, which may wait for room: nothing else of its trigger waits for it, its original is
settled behind it and not before, and whatever happens neither is lost (TR-45, TR-57, TR-61, TR-62, O01)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from jmsclient import Delivery, Message, Status, TriggerOptions, Worker, connect
from jmsclient.destination import Destination, parse_destination
from jmsclient.errors import ResourceAllocationError, SendError
from jmsclient.events import Event
from jmsclient.history import Reply, State
from jmsclient.history.entries import Command, Complete, Release, Renew
from jmsclient.history.memory import MemoryHistory
from jmsclient.testing import ManualClock, ScriptedBackend, TestBroker
from jmsclient.transport.contract import Verb
from jmsclient.trigger.copies import WAIT_FOR_ROOM, Copies

from ..seen import named, verbs  # noqa: TID252  tests are no package that has a name

Q = "queue:///orders"
ERRORS = "queue:///errors"
Until = Callable[..., None]
ByHand = Callable[[Worker], Worker]


class Noting(MemoryHistory):
    """Notes what it is asked."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.asked: list[Command] = []

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        self.asked += commands
        return super().exchange(commands)

    def asked_for(self, kind: type[Command], id_: str) -> int:
        return sum(isinstance(one, kind) and one.id == id_ for one in self.asked)


def message(uuid: str, body: str = "bad") -> Message:
    return Message(body, properties={"uuid": uuid})


@pytest.fixture
def history(clock: ManualClock) -> Noting:
    return Noting(clock=clock)


@pytest.fixture
def full() -> Iterator[TestBroker]:
    """A broker whose error queue has no room: a send to it waits."""
    with TestBroker() as broker, connect(broker.url) as connection:
        connection.administration.create_queue("errors", messages_maximum=1)
        broker.send(ERRORS, "it was here before")
        yield broker


# -- what goes on meanwhile -------------------------------------------------------------------------------------------


def test_tr45_while_a_copy_waits_for_room_others_run_complete_and_keep_their_leases(full: TestBroker, until: Until) -> None:
    history = Noting()
    go_on = threading.Event()
    ran: list[str] = []
    worker = Worker(full.url, history=history)

    @worker.trigger(Q, concurrency=2, error_destination=ERRORS, lease=0.3)
    def book(body: str) -> None:
        ran.append(body)
        if body == "bad":
            raise ValueError("not today")
        if body == "long":
            assert go_on.wait(60)

    with worker:
        trigger = worker.triggers[Q]
        full.send(Q, message("1"))
        until(lambda: history.asked_for(Release, "1"))
        full.send(Q, message("2", "long"))
        until(lambda: "long" in ran)
        before = history.asked_for(Renew, "2")
        for number in range(3):
            full.send(Q, message(f"good-{number}", "good"))
        until(lambda: trigger.counters["completed"] == 3)
        until(lambda: history.asked_for(Renew, "2") >= before + 3)
        trigger.suspend()
        until(lambda: trigger.state == "suspended")
        trigger.resume()
        assert history.asked_for(Complete, "1") == 0, "not before its copy is confirmed"
        assert full.receive(ERRORS, 10.0).body == "it was here before"  # type: ignore[union-attr]
        assert full.receive(ERRORS, 10.0).body == "bad"  # type: ignore[union-attr]
        until(lambda: trigger.counters["completed"] == 4)
        go_on.set()
        until(lambda: trigger.counters["completed"] == 5)
        assert full.messages(Q) == []
        assert trigger.counters["dead_lettered"] == 1
    assert Counter(ran) == {"good": 3, "bad": 1, "long": 1}


def test_tr62_a_serial_trigger_waits_behind_a_message_whose_copy_is_on_its_way(full: TestBroker, until: Until) -> None:
    """It may go back, and would then come after those behind it."""
    ran: list[str] = []
    history = Noting()
    worker = Worker(full.url, history=history)

    @worker.trigger(Q, error_destination=ERRORS)
    def book(body: str) -> None:
        ran.append(body)
        if body == "bad":
            raise ValueError("not today")

    with worker:
        trigger = worker.triggers[Q]
        full.send(Q, message("1"))
        full.send(Q, message("2", "good"))
        until(lambda: history.asked_for(Release, "1"))
        trigger.suspend()  # its thread is free to hear that
        until(lambda: trigger.state == "suspended")
        trigger.resume()
        assert ran == ["bad"]
        full.receive(ERRORS, 10.0)
        until(lambda: ran == ["bad", "good"])
        until(lambda: trigger.counters["completed"] == 2)


def test_tr45_an_error_destination_that_is_paused_keeps_its_own_messages_waiting_and_no_others(until: Until) -> None:
    """The embedded broker refuses such a send at once: it is tried again after a while, not in a circle."""
    worker = Worker(history="memory:")

    @worker.trigger(Q, concurrency=2, error_destination=ERRORS)
    def book(body: str) -> None:
        if body == "bad":
            raise ValueError("not today")

    with TestBroker(worker) as broker, connect(broker.url) as connection:
        trigger = worker.triggers[Q]
        connection.administration.create_queue("errors")
        connection.administration.pause_production(ERRORS)
        broker.send(Q, message("1"))
        until(lambda: trigger.counters["failed"] == 1)
        for number in range(3):
            broker.send(Q, message(f"good-{number}", "good"))
        until(lambda: trigger.counters["completed"] == 3)
        assert (trigger.counters["dead_lettered"], broker.messages(ERRORS)) == (0, [])
        connection.administration.resume_production(ERRORS)
        until(lambda: trigger.counters["dead_lettered"] == 1)
        assert [one.body for one in broker.messages(ERRORS)] == ["bad"]
        until(lambda: broker.messages(Q) == [])
        assert trigger.counters["failed"] == 1


@pytest.mark.parametrize("concurrency", [1, 2])
def test_tr67_a_copy_that_is_refused_is_tried_again_after_a_while(
    backend: ScriptedBackend,
    history: Noting,
    by_hand: ByHand,
    clock: ManualClock,
    until: Until,
    events: list[Event],
    concurrency: int,
) -> None:
    """What its handler saw goes back counted; then it is held here, where the provider cannot delay it."""
    worker = by_hand(Worker(backend.url, history=history))

    @worker.trigger(Q, concurrency=concurrency, error_destination=ERRORS)
    def book(body: str) -> None:
        raise ValueError("not today")

    with worker:
        trigger = worker.triggers[Q]
        backend.refuse_sends(SendError("it is closed", unsent=("1",)))
        backend.deliver(Q, message("1"))
        until(lambda: len(named(events, "dead_letter_failed")) == 2)
        until(lambda: len(trigger.pipeline._held) == 1)
        assert verbs(backend) == [Verb.RETRY]
        clock.advance(1.0)
        until(lambda: len(named(events, "dead_letter_failed")) == 3)
        until(lambda: len(trigger.pipeline._held) == 1)
        backend.refuse_sends(None)
        clock.advance(1.0)
        until(lambda: verbs(backend) == [Verb.RETRY, Verb.ACCEPT])
        assert (trigger.counters["failed"], trigger.counters["dead_lettered"]) == (1, 1)
    assert len(backend.waiting(ERRORS)) == 1
    assert history.lookup(Q, "1", source="uuid").state is State.COMPLETED  # type: ignore[union-attr]


def test_tr45_a_second_delivery_meanwhile_waits_and_is_a_duplicate(
    backend: ScriptedBackend, history: Noting, by_hand: ByHand, until: Until
) -> None:
    """It finds `failed`, as after a kill; but the copy is on its way, and must not be sent twice."""
    worker = by_hand(Worker(backend.url, history=history))

    @worker.trigger(Q, concurrency=2, error_destination=ERRORS)
    def book(body: str) -> None:
        raise ValueError("not today")

    with worker:
        trigger = worker.triggers[Q]
        backend.hold_confirmations()
        backend.deliver(Q, message("1"))
        until(lambda: len(backend.waiting(ERRORS)) == 1)
        backend.deliver(Q, message("1"))
        until(lambda: trigger.counters["in_progress"] == 1)
        assert backend.settlements == []
        backend.release_confirmations()
        until(lambda: trigger.counters["duplicate"] == 1)  # though no time passes
        until(lambda: verbs(backend) == [Verb.ACCEPT] * 2)
    assert len(backend.waiting(ERRORS)) == 1


def test_tr56_a_resolver_that_has_answered_does_not_time_out_while_its_copy_is_sent(
    backend: ScriptedBackend, history: Noting, by_hand: ByHand, clock: ManualClock, until: Until, events: list[Event]
) -> None:
    history.claim(Q, "1", source="uuid", lease=0.0)
    worker = by_hand(Worker(backend.url, history=history))
    options = TriggerOptions(resolver_timeout=5.0)

    @worker.trigger(
        Q,
        concurrency=2,
        in_doubt="dead_letter",
        error_destination=ERRORS,
        resolver=lambda request: Status.IN_DOUBT,
        options=options,
    )
    def book(body: str) -> None:
        if body == "bad":
            pytest.fail("it must not run")

    with worker:
        backend.hold_confirmations()
        backend.deliver(Q, message("1"))
        until(lambda: len(backend.waiting(ERRORS)) == 1)
        clock.advance(6.0)
        backend.deliver(Q, message("2", "good"))
        until(lambda: worker.triggers[Q].counters["completed"] == 1)
        backend.release_confirmations()
        until(lambda: len(backend.settlements) == 2)
    assert named(events, "resolver_timed_out") == []
    assert len(backend.waiting(ERRORS)) == 1


# -- the end ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 2])
def test_o01_a_copy_that_outlasts_the_grace_loses_nothing(full: TestBroker, until: Until, concurrency: int) -> None:
    """Its original comes back, is not run again, and its copy is sent by whoever gets it: once."""
    history = Noting()
    ran: list[int] = []

    def book(delivery: Delivery) -> None:
        ran.append(delivery.delivery_count)
        raise ValueError("not today")

    first, second = Worker(full.url, history=history), Worker(full.url, history=history)
    for worker in (first, second):
        worker.trigger(Q, concurrency=concurrency, error_destination=ERRORS)(book)
    with first:
        full.send(Q, message("1"))
        until(lambda: history.asked_for(Release, "1"))
        begun = time.monotonic()
        report = first.stop(0.2)
        assert time.monotonic() - begun < WAIT_FOR_ROOM / 2
    assert [(one.finished, one.unfinished) for one in report.triggers] == [(0, 1)]
    assert not report.clean
    assert [one.body for one in full.messages(Q)] == ["bad"]
    full.receive(ERRORS, 10.0)
    with second:
        until(lambda: second.triggers[Q].counters["completed"] == 1)
        assert [one.body for one in full.messages(ERRORS)] == ["bad"]
        assert full.messages(Q) == []
    assert ran == [1]


def test_o01_a_copy_has_the_grace_to_be_confirmed(
    backend: ScriptedBackend, history: Noting, by_hand: ByHand, until: Until, clock: ManualClock
) -> None:
    worker = by_hand(Worker(backend.url, history=history))

    @worker.trigger(Q, concurrency=2, error_destination=ERRORS)
    def book(body: str) -> None:
        raise ValueError("not today")

    with worker:
        backend.hold_confirmations()
        backend.deliver(Q, message("1"))
        until(lambda: len(backend.waiting(ERRORS)) == 1)
        pipeline = worker.triggers[Q].pipeline
        worker.request_stop(10.0)
        until(lambda: pipeline._desk.stopping)
        backend.release_confirmations()
        report = worker.stop(10.0)
    assert report.clean
    assert verbs(backend) == [Verb.ACCEPT]
    assert history.lookup(Q, "1", source="uuid").state is State.COMPLETED  # type: ignore[union-attr]


def test_tr61_a_copy_that_outlasts_a_disable_is_completed_all_the_same(
    backend: ScriptedBackend, history: Noting, by_hand: ByHand, until: Until, events: list[Event]
) -> None:
    worker = by_hand(Worker(backend.url, history=history))

    @worker.trigger(Q, concurrency=2, error_destination=ERRORS)
    def book(body: str) -> None:
        raise ValueError("not today")

    with worker:
        trigger = worker.triggers[Q]
        backend.hold_confirmations()
        backend.deliver(Q, message("1"))
        until(lambda: len(backend.waiting(ERRORS)) == 1)
        assert trigger.disable(0.0) == 1
        assert len(backend.waiting(Q)) == 1
        backend.release_confirmations()
        until(lambda: len(named(events, "stale_acknowledge")) == 1)
        trigger.enable()
        until(lambda: trigger.counters["duplicate"] == 1)
    assert len(backend.waiting(ERRORS)) == 1


# -- the room itself ------------------------------------------------------------------------------------------------------


class Sent:
    """Takes what `Copies` sends, when it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.bodies: list[object] = []
        self.deadlines: list[float | None] = []
        self.error: BaseException | None = None

    def __call__(self, destination: Destination, message: Message, properties: dict[str, Any], deadline: float | None) -> None:
        assert self.may.wait(20)
        self.bodies.append(message.body)
        self.deadlines.append(deadline)
        if self.error is not None:
            raise self.error


@pytest.fixture
def sent() -> Sent:
    return Sent()


def test_tr45_those_behind_a_blocked_one_wait_no_longer_than_it_and_answers_come_in_order(
    sent: Sent, clock: ManualClock, until: Until
) -> None:
    rings: list[int] = []
    answers: list[tuple[str, bool]] = []
    copies = Copies("t", clock, sent, lambda: rings.append(1))
    for body in ("a", "b", "c"):
        copies.send(parse_destination(ERRORS), [Message(body)], {}, lambda error, body=body: answers.append((body, error is None)))
    clock.advance(20.0)
    copies.send(parse_destination(ERRORS), [Message("d"), Message("e")], {}, lambda error: answers.append(("d, e", error is None)))
    sent.error = ResourceAllocationError("full")
    sent.may.set()
    until(lambda: len(rings) == 4)
    assert answers == [], "nothing is carried out but by whoever has the turn"
    copies.watch()
    assert answers == [("a", False), ("b", False), ("c", False), ("d, e", False)]
    assert sent.bodies == ["a", "b", "c", "d"]
    until_ = 1000.0 + WAIT_FOR_ROOM
    assert sent.deadlines == [until_, until_, until_, until_ + 20.0]
    until(lambda: not any(thread.name == "jmsclient-t-copies" for thread in threading.enumerate()))
    sent.error = None
    copies.send(parse_destination(ERRORS), [Message("f")], {}, lambda error: answers.append(("f", error is None)))
    until(lambda: len(rings) == 5)
    copies.watch()
    assert answers[-1] == ("f", True)


def test_tr66_what_is_no_error_of_a_send_ends_the_pipeline_and_not_a_thread_unseen(
    sent: Sent, clock: ManualClock, until: Until
) -> None:
    rings: list[int] = []
    copies = Copies("t", clock, sent, lambda: rings.append(1))
    sent.error = TypeError("a fault of ours")
    sent.may.set()
    copies.send(parse_destination(ERRORS), [Message("a")], {}, lambda error: pytest.fail("it has no answer"))
    until(lambda: rings)
    with pytest.raises(TypeError, match="a fault of ours"):
        copies.watch()


def test_o01_a_stopped_trigger_begins_with_no_further_copy(sent: Sent, clock: ManualClock, until: Until) -> None:
    rings: list[int] = []
    copies = Copies("t", clock, sent, lambda: rings.append(1))
    for body in ("a", "b"):
        copies.send(parse_destination(ERRORS), [Message(body)], {}, lambda error: None)
    until(lambda: len(copies._waiting) == 1)
    copies.stop()
    sent.may.set()
    until(lambda: not any(thread.name == "jmsclient-t-copies" for thread in threading.enumerate()))
    assert (sent.bodies, rings) == (["a"], [1])
