"""A serial handler on its pipeline thread, and the stand-in that keeps its lease and hears a stop (TR-40, TR-61, O01)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from jmsclient import Worker
from jmsclient.clock import SYSTEM_CLOCK
from jmsclient.history import State, open_history
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.contract import Verb
from jmsclient.trigger.stand_in import StandIn

Q = "queue:///orders"
Until = Callable[..., None]


def test_a_serial_handler_runs_on_the_pipeline_thread_and_a_resolver_gets_threads(backend: ScriptedBackend, until: Until) -> None:
    before = set(threading.enumerate())
    names: list[str] = []
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q)
    def book(body: str) -> None:
        names.append(threading.current_thread().name)

    @worker.trigger("queue:///other", resolver=lambda request: None)
    def other(body: str) -> None:
        names.append(threading.current_thread().name)

    with worker:
        backend.deliver(Q, "a")
        until(lambda: len(names) == 1)
        backend.deliver("queue:///other", "b")
        until(lambda: len(names) == 2)
    assert names == [f"jmsclient-{Q}-pipeline", "jmsclient-queue:///other-handler-1"]
    assert not [one for one in set(threading.enumerate()) - before if one.name.endswith("stand-in")]


def test_o01_a_stop_ends_at_its_grace_though_an_inline_handler_hangs_and_what_it_does_later_changes_nothing(
    backend: ScriptedBackend, until: Until
) -> None:
    history = open_history("memory:")
    go_on, ended = threading.Event(), threading.Event()
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, prefetch=5)
    def book(body: str) -> None:
        assert go_on.wait(60)
        ended.set()

    worker.start()
    backend.deliver(Q, ["1", "2", "3"])
    until(lambda: len(backend.unsettled(Q)) == 3)
    pipeline = worker.triggers[Q].pipeline
    begun = time.monotonic()
    report = worker.stop(0.3)
    assert time.monotonic() - begun < 5.0
    (one,) = report.triggers
    assert (one.released, one.unfinished, report.clean) == (2, 1, False)
    assert [content.body() for content in backend.waiting(Q)] == ["1", "2", "3"]
    before = list(backend.settlements)
    go_on.set()
    assert ended.wait(30)
    pipeline._thread.join(10)
    assert not pipeline._thread.is_alive()
    assert backend.settlements == before
    assert history.statistics() == {"processing": 1}


def test_o01_what_waits_goes_back_as_soon_as_a_stop_is_asked_for(backend: ScriptedBackend, until: Until) -> None:
    go_on = threading.Event()
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q, prefetch=5)
    def book(body: str) -> None:
        assert go_on.wait(60)

    with worker:
        backend.deliver(Q, ["1", "2", "3"])
        until(lambda: len(backend.unsettled(Q)) == 3)
        worker.request_stop(20.0)
        until(lambda: [content.body() for content in backend.waiting(Q)] == ["2", "3"])  # while the handler runs
        go_on.set()
    assert [one.outcome.verb for one in backend.settlements] == [Verb.RELEASE, Verb.RELEASE, Verb.ACCEPT]


def test_tr40_the_stand_in_keeps_the_lease_and_the_history_is_told_of_a_loss(
    backend: ScriptedBackend, until: Until, by_hand: Callable[[Worker], Worker], leased: Any
) -> None:
    go_on = threading.Event()
    worker = by_hand(Worker(backend.url, history=leased))

    @worker.trigger(Q, lease=30.0)
    def book(body: str) -> None:
        assert go_on.wait(60)

    with worker:
        (id_,) = backend.deliver(Q, "1")
        until(lambda: leased.lookup(Q, id_) is not None)
        leased.outlast(30.0)
        assert leased.lookup(Q, id_).lease_alive
        go_on.set()
        until(lambda: leased.lookup(Q, id_).state is State.COMPLETED)


def test_the_stand_in_looks_when_rung_and_when_something_is_due() -> None:
    looked: list[float] = []
    enough = threading.Event()

    def turn() -> float | None:
        looked.append(time.monotonic())
        if len(looked) == 4:
            enough.set()
        return 0.02 if len(looked) < 3 else None

    stand_in = StandIn("test", SYSTEM_CLOCK)
    stand_in.add(turn, 60.0)
    stand_in.ring()
    assert enough.wait(30)
    stand_in.remove(turn)
    stand_in.stop()
    assert not [one for one in threading.enumerate() if one.name == "jmsclient-test-stand-in"]
