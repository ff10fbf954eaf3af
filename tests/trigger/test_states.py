"""Enabled, suspended, disabled: who changed it, what runs on, and what comes again (TR-59, TR-61, TR-65)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jmsclient import Delivery, IllegalStateError, Worker
from jmsclient.events import Event
from jmsclient.history import State, open_history
from jmsclient.testing import ScriptedBackend, TestBroker
from jmsclient.transport.contract import Verb

Q = "queue:///orders"
Until = Callable[..., None]
When = Callable[[Callable[[], Any], Callable[[], Any]], None]


def changes(events: list[Event]) -> list[tuple[str, str, str]]:
    names = ("suspended", "resumed", "disabled", "enabled")
    return [(one.name, one.fields["reason"], one.fields["actor"]) for one in events if one.name in names]


def test_tr59_suspended_fetches_nothing_and_runs_what_is_buffered(
    backend: ScriptedBackend, until: Until, when: When, events: list[Event]
) -> None:
    ran: list[str] = []
    started, go_on = threading.Event(), threading.Event()
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q, prefetch=10)
    def book(body: str) -> None:
        ran.append(body)
        started.set()
        assert go_on.wait(60)

    with worker:
        trigger = worker.triggers[Q]
        assert (trigger.state, trigger.running, trigger.reason) == ("enabled", True, None)
        backend.deliver(Q, ["1", "2", "3"])
        assert started.wait(30)
        until(lambda: len(backend.unsettled(Q)) == 3)
        trigger.suspend("ada")
        until(lambda: trigger.state == "suspended")
        assert (trigger.running, trigger.reason) == (False, "application")
        until(lambda: backend.demand(Q) == 0)
        backend.deliver(Q, ["4"])
        go_on.set()
        until(lambda: ran == ["1", "2", "3"])
        until(lambda: len(backend.settlements) == 3)
        assert [one.body() for one in backend.waiting(Q)] == ["4"]
        trigger.suspend("again")  # nothing changes
        trigger.resume("bob")
        until(lambda: ran == ["1", "2", "3", "4"])
        assert trigger.running
    assert changes(events) == [("suspended", "application", "ada"), ("resumed", "application", "bob")]


def test_tr61_disable_waits_for_the_grace_and_closes_the_receiver(
    backend: ScriptedBackend, until: Until, when: When, events: list[Event]
) -> None:
    ran: list[str] = []
    started, go_on = threading.Event(), threading.Event()
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q, prefetch=10)
    def book(body: str) -> None:
        started.set()
        assert go_on.wait(60)
        ran.append(body)

    with worker:
        trigger = worker.triggers[Q]
        backend.deliver(Q, ["1", "2"])
        assert started.wait(30)
        when(lambda: [one.body() for one in backend.waiting(Q)] == ["2"], go_on.set)
        assert trigger.disable() == 0
        assert trigger.disable() == 0
        assert (ran, trigger.state, trigger.running, trigger.reason) == (["1"], "disabled", False, "disabled")
        assert [one.outcome.verb for one in backend.settlements] == [Verb.RELEASE, Verb.ACCEPT]
        assert [one.body() for one in backend.waiting(Q)] == ["2"]
        trigger.enable()
        until(lambda: ran == ["1", "2"])
        until(lambda: trigger.counters["completed"] == 2)  # they go on
        trigger.enable()
    assert changes(events) == [("disabled", "disabled", "application"), ("enabled", "enabled", "application")]
    with pytest.raises(IllegalStateError):
        trigger.enable()


@pytest.mark.parametrize("durable", [False, True])
def test_tr61_a_handler_that_outlasts_the_grace_completes_and_its_copy_is_a_duplicate(
    until: Until, events: list[Event], durable: bool, tmp_path: Path
) -> None:
    ran: list[int] = []
    started, go_on = threading.Event(), threading.Event()
    history = open_history(f"sqlite:{tmp_path / 'history.db'}" if durable else "memory:")
    worker = Worker(history=history)

    @worker.trigger(Q, lease=2.0, concurrency=2)
    def book(delivery: Delivery) -> None:
        ran.append(delivery.delivery_count)
        started.set()
        assert go_on.wait(60)

    with TestBroker(worker) as broker:
        trigger = worker.triggers[Q]
        broker.send(Q, "slow", properties={"uuid": "1"})
        assert started.wait(30)
        assert trigger.disable(grace=0.05) == 1
        assert [message.delivery_count for message in broker.messages(Q)] == [2]  # back at the broker, counted
        trigger.enable()
        until(lambda: trigger.counters["in_progress"] >= 1)
        threading.Event().wait(2.5)  # longer than the lease, which is renewed
        go_on.set()
        until(lambda: trigger.counters["duplicate"] == 1)
        until(lambda: broker.messages(Q) == [])
        assert trigger.counters["completed"] == 1
    assert ran == [1]
    assert [one.name for one in events].count("stale_acknowledge") == 1
    entry = history.lookup(Q, "1", source="uuid")
    assert entry is not None
    assert entry.state is State.COMPLETED
    history.close()


def test_tr61_a_stop_ends_what_lingers_after_a_disable(backend: ScriptedBackend, until: Until) -> None:
    started, go_on = threading.Event(), threading.Event()
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q)
    def book(body: str) -> None:
        started.set()
        assert go_on.wait(60)

    worker.start()
    backend.deliver(Q, "1")
    assert started.wait(30)
    assert worker.triggers[Q].disable(grace=0.0) == 1
    report = worker.stop(0.05)
    go_on.set()
    assert (report.triggers[0].unfinished, report.clean) == (1, False)


def test_tr61_a_handler_may_disable_its_own_trigger(backend: ScriptedBackend, until: Until) -> None:
    said: list[int] = []
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q, prefetch=5)
    def book(body: str) -> None:
        said.append(worker.triggers[Q].disable(grace=0.05))

    with worker:
        backend.deliver(Q, ["1", "2"])
        until(lambda: said == [1])
        until(lambda: [one.body() for one in backend.waiting(Q)] == ["1", "2"])


def test_tr65_a_reset_gives_the_old_values_back_and_loses_nothing(backend: ScriptedBackend, until: Until) -> None:
    worker = Worker(backend.url, history="memory:")
    worker.trigger(Q, resolver=lambda request: None)(lambda: None)
    with worker:
        trigger = worker.triggers[Q]
        backend.deliver(Q, [str(number) for number in range(20)])
        seen = 0.0
        while seen < 20:
            seen += trigger.reset_counters()["new"]
        until(lambda: len(backend.settlements) == 20)
        assert seen == 20
        assert trigger.counters["new"] == 0
        assert trigger.pipeline.counters.new == 20
        named = set(trigger.counters)
    rule = {"new", "duplicate", "in_doubt", "in_progress", "abandoned", "retrying", "lease_lost", "id_reused", "no_id", "parked"}
    rule |= {"resolver_calls", "resolver_errors", "resolver_time", "store_errors", "store_time", "sweeper_removed"}
    assert named >= rule


def test_tr65_times_and_what_the_sweeper_removed(backend: ScriptedBackend, until: Until) -> None:
    history = open_history("memory:")
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, lease=0.05, history_ttl=0.1, resolver=lambda request: threading.Event().wait(0.05))
    def book(body: str) -> None: ...

    history.claim(Q, "1", lease=0.0)
    with worker:
        trigger = worker.triggers[Q]
        backend.deliver(Q, [str(number) for number in range(5)])
        until(lambda: trigger.counters["sweeper_removed"] >= 5)
        assert trigger.counters["store_time"] > 0
        assert trigger.reset_counters()["sweeper_removed"] >= 5
        assert trigger.counters["sweeper_removed"] == 0
