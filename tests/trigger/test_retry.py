"""Retries in place (TR-45, TR-46, TR-57): the entry while it waits, the attempts, their order, and a stop in the pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import Delivery, Message, Status, TransientError, Worker
from jmsclient.events import Event
from jmsclient.history import DocumentHistory, State, open_history
from jmsclient.testing import ManualClock, ScriptedBackend
from jmsclient.transport.contract import Verb

from ..seen import verbs  # noqa: TID252  tests are no package that has a name

Q = "queue:///orders"
Until = Callable[..., None]


def message(text: str, uuid: str) -> Message:
    return Message(text, properties={"uuid": uuid})


@pytest.fixture
def history() -> DocumentHistory:
    return open_history("memory:")


@pytest.mark.parametrize("with_history", [True, False])
def test_tr57_a_transient_error_is_retried_in_place_before_the_message_is_settled(
    backend: ScriptedBackend, until: Until, events: list[Event], with_history: bool
) -> None:
    history = open_history("memory:") if with_history else None
    attempts: list[int] = []
    fences: list[int] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, max_retries=3, retry_interval=0.01)
    def book(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        fences.append(delivery.fencing_token)
        assert backend.settlements == []
        if len(attempts) < 3:
            raise TransientError("busy")

    with worker:
        backend.deliver(Q, message("a", "1"))
        until(lambda: len(backend.settlements) == 1)
        assert worker.triggers[Q].pipeline.counters.retrying == 2
    assert attempts == [1, 2, 3]
    assert verbs(backend) == [Verb.ACCEPT]
    assert [one.name for one in events].count("retrying") == 2
    if history is not None:
        assert fences == sorted(set(fences))  # TR-39: it rises with every claim
        entry = history.lookup(Q, "1", source="uuid")
        assert entry is not None
        assert (entry.state, entry.attempt) == (State.COMPLETED, 3)


def test_tr57_while_it_waits_the_entry_is_retrying_and_its_lease_is_kept_alive(
    backend: ScriptedBackend, until: Until, by_hand: Callable[[Worker], Worker], leased: Any, clock: ManualClock
) -> None:
    attempts: list[int] = []
    worker = by_hand(Worker(backend.url, history=leased))

    @worker.trigger(Q, max_retries=1, retry_interval=600, lease=30.0)
    def book(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            raise TransientError("busy")

    def state() -> Any:
        entry = leased.lookup(Q, "1", source="uuid")
        return entry and entry.state

    with worker:
        backend.deliver(Q, message("a", "1"))
        until(lambda: state() is State.RETRYING)
        leased.outlast(30.0)
        entry = leased.lookup(Q, "1", source="uuid")
        assert (entry.state, entry.lease_alive, attempts) == (State.RETRYING, True, [1])
        clock.advance(900.0)  # and what it waits longer by chance
        until(lambda: len(backend.settlements) == 1)
    assert attempts == [1, 2]


def test_tr45_retries_used_up_end_as_on_error_says(backend: ScriptedBackend, history: DocumentHistory, until: Until) -> None:
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, max_retries=2, retry_interval=0.01, error_destination="queue:///errors")
    def book(body: str) -> None:
        ran.append(body)
        raise TransientError("never")

    with worker:
        backend.deliver(Q, message("a", "1"))
        until(lambda: len(backend.settlements) == 1)
    assert ran == ["a"] * 3
    (copy,) = backend.waiting("queue:///errors")
    assert copy.properties()["JMS_jmsclient_error_type"] == "TransientError"
    entry = history.lookup(Q, "1", source="uuid")
    assert entry is not None
    assert (entry.state, entry.outcome) == (State.COMPLETED, "failed")


def test_tr45_any_other_error_is_not_retried(backend: ScriptedBackend, until: Until) -> None:
    ran: list[str] = []
    worker = Worker(backend.url)

    @worker.trigger(Q, max_retries=5, retry_interval=0.01)
    def book(body: str) -> None:
        ran.append(body)
        raise ValueError("for good")

    with worker:
        backend.deliver(Q, "a")
        until(lambda: len(backend.settlements) == 1)
    assert ran == ["a"]
    assert verbs(backend) == [Verb.DEAD_LETTER]


def test_tr57_retry_after_wins_over_the_interval(backend: ScriptedBackend, until: Until) -> None:
    times: list[float] = []
    worker = Worker(backend.url)

    @worker.trigger(Q, max_retries=1, retry_interval=600)
    def book(body: str) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            raise TransientError("soon", retry_after=0.05)

    with worker:
        backend.deliver(Q, "a")
        until(lambda: len(backend.settlements) == 1)
    assert 0.04 <= times[1] - times[0] < 2.0


@pytest.mark.parametrize(("concurrency", "order"), [(1, ["first", "first", "second"]), (2, ["first", "second", "first"])])
def test_tr62_a_serial_trigger_keeps_its_order_while_one_waits_a_concurrent_one_runs_others(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, concurrency: int, order: list[str]
) -> None:
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, max_retries=1, retry_interval=0.2, concurrency=concurrency)
    def book(body: str, delivery: Delivery) -> None:
        ran.append(body)
        if body == "first" and delivery.attempt == 1:
            raise TransientError("busy")

    with worker:
        backend.deliver(Q, [message("first", "1")])
        until(lambda: ran == ["first"])
        backend.deliver(Q, [message("second", "2")])
        until(lambda: len(backend.settlements) == 2)
    assert ran == order


def test_tr57_waiting_retries_leave_every_handler_of_a_concurrent_trigger_free(backend: ScriptedBackend, until: Until) -> None:
    ran: list[str] = []
    worker = Worker(backend.url)

    @worker.trigger(Q, max_retries=1, retry_interval=60, concurrency=2, prefetch=10)
    def book(body: str) -> None:
        ran.append(body)
        if body.startswith("busy"):
            raise TransientError(body)

    with worker:
        backend.deliver(Q, ["busy 1", "busy 2", "busy 3", "a", "b", "c"])
        until(lambda: len(backend.settlements) == 3)
        assert sorted(ran) == ["a", "b", "busy 1", "busy 2", "busy 3", "c"]


@pytest.mark.parametrize("with_history", [True, False])
def test_tr57_a_stop_interrupts_the_pause_and_the_message_goes_back_as_a_planned_redelivery(
    backend: ScriptedBackend, until: Until, with_history: bool
) -> None:
    history = open_history("memory:") if with_history else None
    attempts: list[int] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, max_retries=1, retry_interval=600)
    def book(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) == 1:
            raise TransientError("busy")

    worker.start()
    backend.deliver(Q, message("a", "1"))
    until(lambda: worker.triggers[Q].pipeline.counters.retrying == 1)
    begun = time.monotonic()
    report = worker.stop(60.0)
    assert time.monotonic() - begun < 30.0
    assert report.clean
    assert verbs(backend) == [Verb.RETRY]
    if history is None:
        return
    entry = history.lookup(Q, "1", source="uuid")
    assert entry is not None
    assert (entry.state, entry.lease_alive) == (State.RETRYING, False)
    with worker:  # TR-46: it comes back with count 2, and is New
        until(lambda: len(backend.settlements) == 2)
    assert attempts == [1, 2]
    assert verbs(backend) == [Verb.RETRY, Verb.ACCEPT]


def test_tr57_a_transient_error_during_the_stop_is_not_waited_for(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    started, go_on = threading.Event(), threading.Event()
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, max_retries=1, retry_interval=600)
    def book(body: str) -> None:
        started.set()
        assert go_on.wait(60)
        raise TransientError("busy")

    worker.start()
    backend.deliver(Q, message("a", "1"))
    assert started.wait(30)
    worker.request_stop(10.0)
    go_on.set()
    assert worker.stop(10.0).clean
    assert verbs(backend) == [Verb.RETRY]
    entry = history.lookup(Q, "1", source="uuid")
    assert entry is not None
    assert entry.state is State.RETRYING


def test_tr39_a_retry_that_another_worker_took_over_is_given_back(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event]
) -> None:
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, max_retries=1, retry_interval=0.1, lease=30.0)
    def book(body: str) -> None:
        ran.append(body)
        raise TransientError("busy")

    with worker:
        backend.deliver(Q, message("a", "1"))
        until(lambda: worker.triggers[Q].pipeline.counters.retrying == 1)
        entry = history.lookup(Q, "1", source="uuid")
        assert entry is not None
        history.release(Q, "1", source="uuid", token=entry.token, to=State.RETRYING)
        history.claim(Q, "1", source="uuid", token="somebody else")
        history.complete(Q, "1", source="uuid", token="somebody else")
        until(lambda: len(backend.settlements) == 2)
    assert ran == ["a"]
    assert verbs(backend) == [Verb.RETRY, Verb.ACCEPT]  # then a Duplicate
    assert "lease_lost" in [one.name for one in events]


@pytest.mark.parametrize("history", ["memory:", None])  # without one there is nothing to tell before it goes back
def test_tr62_a_serial_trigger_that_gives_its_head_back_keeps_its_order(
    backend: ScriptedBackend, until: Until, history: str | None
) -> None:
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, prefetch=10, on_error="redeliver", resolver=lambda request: Status.NEW)
    def book(body: str) -> None:
        ran.append(body)
        if ran.count(body) == 1 and body in "14":
            raise ValueError("no")

    backend.deliver(Q, list("12345"))
    with worker:
        until(lambda: len(ran) == 7)
    assert ran == ["1", "1", "2", "3", "4", "4", "5"]


def test_tr62_a_prefetched_set_is_shared_by_all_threads(backend: ScriptedBackend, until: Until) -> None:
    """22 messages, 4 threads, prefetch 10: no thread idles while another has more than one waiting."""
    import threading

    slow = threading.Event()
    ran: dict[str, list[int]] = {}
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q, concurrency=4, prefetch=10)
    def book(body: str) -> None:
        ran.setdefault(threading.current_thread().name, []).append(int(body))
        if body == "0":
            assert slow.wait(60)

    backend.deliver(Q, [str(number) for number in range(22)])
    with worker:
        until(lambda: sum(map(len, ran.values())) == 22)  # all others, though one thread is busy with the first
        slow.set()
        until(lambda: len(backend.settlements) == 22)
    (busy,) = [numbers for numbers in ran.values() if 0 in numbers]
    assert busy == [0]
