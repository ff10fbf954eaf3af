"""Signals of a worker that runs as a program, at the moments that a busy machine shows once in a million (O01, O02)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jmsclient import StopReport, Worker
from jmsclient.events import Event, subscribe
from jmsclient.testing import ScriptedBackend
from jmsclient.trigger.stand_in import StandIn
from jmsclient.worker.shutdown import INTERRUPTED, run_with_signals

Q = "queue:///orders"


@pytest.fixture
def started() -> Iterator[list[Event]]:
    heard: list[Event] = []
    unsubscribe = subscribe(lambda event: heard.append(event) if event.name == "started" else None)
    yield heard
    unsubscribe()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """One that ends by itself where the signal is lost."""
    with ScriptedBackend() as backend:
        worker = Worker(backend.url)
        worker.trigger(Q, in_doubt="acknowledge", on_error="acknowledge")(lambda: None)
        wait = worker.wait
        monkeypatch.setattr(worker, "wait", lambda: wait(5.0))
        yield worker


def signalled(call: Callable[..., Any], times: int) -> Callable[..., Any]:
    """`call`, and before it so many signals."""

    def signalled(*arguments: Any) -> Any:
        for _ in range(times):
            signal.raise_signal(signal.SIGTERM)
        return call(*arguments)

    return signalled


@pytest.mark.parametrize(("times", "code"), [(1, 0), (2, INTERRUPTED)])
def test_o01_a_signal_before_the_worker_begins_to_start_is_not_forgotten(
    worker: Worker, started: list[Event], monkeypatch: pytest.MonkeyPatch, times: int, code: int
) -> None:
    monkeypatch.setattr(worker, "_forget_if_forked", signalled(worker._forget_if_forked, times))
    assert run_with_signals(worker) == code
    assert started == []


def test_o01_nor_is_one_in_the_midst_of_forgetting_the_last_runs(
    worker: Worker, started: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jmsclient.worker.worker.StandIn", signalled(StandIn, 1))
    assert run_with_signals(worker) == 0
    assert started == []


def test_o01_a_worker_that_was_signalled_can_run_again(
    worker: Worker, started: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(worker, "_forget_if_forked", signalled(worker._forget_if_forked, 1))
        assert run_with_signals(worker) == 0
    monkeypatch.setattr(worker, "wait", lambda: None)
    assert run_with_signals(worker) == 0
    assert len(started) == 1


def test_o02_a_second_signal_on_top_of_the_first_still_cuts_the_drain_short(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when the first is about to say how long the grace is; that must not take the grace back."""
    graces: list[float | None] = []
    stop, request_stop = worker.stop, worker.request_stop

    def stopping(grace: float | None = None) -> StopReport:
        graces.append(grace)
        return stop(grace)

    def interrupted(grace: float | None = None) -> None:
        if grace is None:
            signal.raise_signal(signal.SIGTERM)
        request_stop(grace)

    monkeypatch.setattr(worker, "stop", stopping)
    monkeypatch.setattr(worker, "request_stop", interrupted)
    monkeypatch.setattr(worker, "wait", signalled(lambda: None, 1))
    assert run_with_signals(worker) == INTERRUPTED
    assert graces == [0.0]
