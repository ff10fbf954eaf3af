"""What a worker says, and waits for, while it starts or stops: its provider, its history, its lifespan (O01, TR-49)."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jmsclient import StopReport, Worker, WorkerOptions
from jmsclient.errors import ConnectionLostError, HistoryUnavailableError
from jmsclient.events import Event, subscribe
from jmsclient.history.memory import MemoryHistory
from jmsclient.options import TriggerOptions
from jmsclient.testing import ScriptedBackend
from jmsclient.trigger.running import RunningTrigger

Q = "queue:///orders"


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.005)


@pytest.fixture
def events() -> Iterator[list[Event]]:
    heard: list[Event] = []
    unsubscribe = subscribe(heard.append)
    yield heard
    unsubscribe()


def worker_of(url: str | None, history: Any = None) -> Worker:
    worker = Worker(url, history=history)
    worker.trigger(Q, in_doubt="acknowledge", on_error="acknowledge")(lambda: None)
    return worker


class Silent:
    """A peer that says nothing until it is told to go on."""

    def __init__(self, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.closed: list[bool] = []
        connect = backend.connect

        def reach(endpoint: Any, listener: Any, *, deadline: float | None) -> Any:
            self.reached.set()
            self.go_on.wait(60.0)
            if error is not None:
                raise error
            transport = connect(endpoint, listener, deadline=deadline)
            close = transport.close

            def closing(deadline: float | None) -> None:
                close(deadline)
                self.closed.append(True)

            monkeypatch.setattr(transport, "close", closing)
            return transport

        monkeypatch.setattr(backend, "connect", reach)


@pytest.mark.parametrize("reconnect", ["", "?reconnect=no"])
@pytest.mark.parametrize("error", [None, ConnectionLostError("gone")], ids=["comes to an answer", "fails"])
def test_o01_a_stop_waits_for_no_peer_that_says_nothing(
    monkeypatch: pytest.MonkeyPatch, reconnect: str, error: Exception | None
) -> None:
    with ScriptedBackend() as backend:
        silent = Silent(backend, monkeypatch, error)
        worker = worker_of(f"{backend.url}{reconnect}")
        reports: list[StopReport] = []
        running = threading.Thread(target=lambda: reports.append(worker.run()))
        running.start()
        assert silent.reached.wait(30.0)
        worker.request_stop()
        running.join(30.0)
        assert [(one.clean, one.lines()) for one in reports] == [(True, [])]
        silent.go_on.set()
        until(lambda: not [one for one in threading.enumerate() if one.name == "jmsclient-reaching"])
        assert silent.closed == ([True] if error is None else [])  # what it came to after all is not left open


def test_a_stop_that_was_asked_for_before_there_was_a_try_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a signal that strikes while the module's own start is under way."""
    with ScriptedBackend() as backend:
        worker = worker_of(backend.url)
        declaration = worker._declaration

        def struck(settings: dict[str, Any]) -> Any:
            worker.request_stop()
            return declaration(settings)

        monkeypatch.setattr(worker, "_declaration", struck)
        assert worker.run().lines() == []


def test_o01_an_exception_in_run_lets_the_handlers_end_and_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one in `with worker:` does: else Ctrl-C would leave each message that runs In Doubt."""
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    with ScriptedBackend() as backend:
        worker = Worker(backend.url, history="memory:", grace=600.0)

        @worker.trigger(Q, in_doubt="acknowledge", concurrency=2)
        def book(body: str) -> None:
            begun.set()
            go_on.wait(60.0)
            ended.set()

        def struck(timeout: float | None = None) -> bool:
            assert begun.wait(30.0)
            threading.Timer(0.05, go_on.set).start()
            raise KeyboardInterrupt

        monkeypatch.setattr(worker, "wait", struck)
        backend.deliver(Q, "a")
        with pytest.raises(KeyboardInterrupt):
            worker.run()
        assert ended.is_set()
        assert open_of(worker) == []
        assert [one.outcome.verb.value for one in backend.settlements] == ["accept"]


class Slow(MemoryHistory):
    """Which takes its time when it is looked at."""

    def __init__(self, began: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.checked: list[bool] = []
        self._began = began

    def check(self, *, strict: bool = False) -> None:
        self.checked.append(strict)
        self._began()


def test_o01_a_stop_while_histories_are_looked_at_looks_at_no_further_one() -> None:
    with ScriptedBackend() as backend:
        worker = Worker(backend.url)
        histories = [Slow(worker.request_stop) for _ in range(3)]
        for history in histories:
            worker.trigger(Q, name=f"{id(history)}", history=history, on_error="acknowledge")(lambda: None)
        assert worker.run().lines() == []
        assert [history.checked for history in histories] == [[False], [], []]
        assert open_of(worker) == []


def test_o01_a_stop_while_triggers_begin_begins_no_further_one(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    start = RunningTrigger.start

    def starting(declaration: Any, *arguments: Any, **settings: Any) -> RunningTrigger:
        begun.append(declaration.name)
        worker.request_stop()
        return start(declaration, *arguments, **settings)

    monkeypatch.setattr(RunningTrigger, "start", starting)
    with ScriptedBackend() as backend:
        worker = Worker(backend.url)
        for name in ("one", "two", "three"):
            worker.trigger(Q, name=name, in_doubt="acknowledge", on_error="acknowledge")(lambda: None)
        assert worker.run().lines() == []
        assert begun == ["one"]
        assert open_of(worker) == []


def test_tr52_a_history_is_looked_at_once_a_start_as_strictly_as_any_of_its_triggers_asks() -> None:
    """One that does not answer is waited for, which many triggers must not multiply."""
    shared, own = Slow(), Slow()
    with ScriptedBackend() as backend:
        worker = Worker(backend.url, history=shared)
        for number in range(3):
            options = TriggerOptions(strict=number == 1)
            worker.trigger(Q, name=f"{number}", in_doubt="acknowledge", on_error="acknowledge", options=options)(lambda: None)
        worker.trigger(Q, name="own", in_doubt="acknowledge", on_error="acknowledge", history=own)(lambda: None)
        for number in (1, 2):
            with worker:
                assert (shared.checked, own.checked) == ([True] * number, [False] * number)


class Away(Slow):
    """Which is asked and does not answer."""

    asked = 0

    def lookup_many(self, trigger: str, ids: Any) -> Any:
        self.asked += 1
        raise HistoryUnavailableError("no answer")


def test_tr49_one_that_does_not_answer_is_asked_once_and_checked_only_where_it_has_to_know_how_strict_it_is() -> None:
    lenient, strict = Away(), Away()
    with ScriptedBackend() as backend:
        worker = Worker(backend.url)
        for number in range(2):
            for history in (lenient, strict):
                name, options = f"{id(history)}-{number}", TriggerOptions(strict=history is strict)
                worker.trigger(Q, name=name, in_doubt="acknowledge", on_error="acknowledge", history=history, options=options)(
                    lambda: None
                )
        worker.start()
        assert [(one.asked, one.checked) for one in (lenient, strict)] == [(1, []), (1, [True])]
        worker.stop()


def test_a_worker_that_was_not_told_where_warns_of_its_broker_in_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("JMSCLIENT_URL", raising=False)
    with caplog.at_level(logging.WARNING), worker_of(None):
        pass
    assert [one.getMessage() for one in caplog.records if "in-memory" in one.getMessage()] != []
    caplog.clear()
    with caplog.at_level(logging.WARNING), worker_of("embedded:"):
        pass
    assert caplog.records == []


class Unreachable(MemoryHistory):
    def lookup_many(self, trigger: str, ids: Any) -> Any:
        raise HistoryUnavailableError("wrong password")


def test_tr49_a_history_that_does_not_answer_is_told_at_the_start_and_once(events: list[Event]) -> None:
    with ScriptedBackend() as backend, worker_of(backend.url, Unreachable()) as worker:
        worker.triggers[Q].suspend()
        (told,) = [one for one in events if one.name == "history_not_there"]
        assert "wrong password" in told.text
        assert told.level == logging.WARNING


@contextmanager
def ends_badly(worker: Worker) -> Iterator[None]:
    yield
    raise ValueError("at its end")


@contextmanager
def begins_badly(worker: Worker) -> Iterator[None]:
    if worker.triggers == {}:
        raise ValueError("at its beginning")
    yield


def open_of(worker: Worker) -> list[object]:
    return [
        one for one in (worker._transport, worker._journal, worker._living, *worker._opened, *worker.triggers) if one is not None
    ]


def test_a_lifespan_that_raises_at_its_end_leaves_nothing_open_and_the_worker_can_start_again(tmp_path: Path) -> None:
    with ScriptedBackend() as backend:
        options = WorkerOptions(journal=tmp_path / "journal.jsonl")
        worker = Worker(backend.url, history=f"sqlite:{tmp_path / 'history.db'}", lifespan=ends_badly, options=options)
        worker.trigger(Q)(lambda: None)
        for _ in range(2):
            worker.start()
            (history,) = worker._opened.values()
            with pytest.raises(ValueError, match="at its end"):
                worker.stop()
            assert open_of(worker) == []
            with pytest.raises(HistoryUnavailableError, match="closed"):
                history.lookup(Q, "1")


@pytest.mark.parametrize("lifespan", [begins_badly, lambda worker: None], ids=["raises", "no context manager"])
def test_a_lifespan_that_does_not_begin_leaves_nothing_open(lifespan: Any) -> None:
    with ScriptedBackend() as backend:
        worker = Worker(backend.url, history="memory:", lifespan=lifespan)
        worker.trigger(Q, in_doubt="acknowledge")(lambda: None)
        with pytest.raises(ValueError, match=r"at its beginning|context manager"):  # a ConfigurationError is one too
            worker.start()
        assert open_of(worker) == []


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 warns of a fork beside threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forks_child_stops_its_parents_worker_at_once_and_leaves_it_alone(tmp_path: Path) -> None:
    """It has none of the threads that it would wait for, and what is open is the parent's."""
    options = WorkerOptions(journal=tmp_path / "journal.jsonl", control=tmp_path / "control.sock")
    with ScriptedBackend() as backend:
        worker = Worker(backend.url, history=f"sqlite:{tmp_path / 'history.db'}", options=options)
        ran: list[str] = []

        @worker.trigger(Q)
        def book(body: str) -> None:
            ran.append(body)

        with worker:
            child = os.fork()
            if child == 0:
                signal.alarm(30)  # it must not wait for ever
                status = 1
                try:
                    status = 0 if worker.stop().triggers == () and open_of(worker) == [] else 2
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert (tmp_path / "control.sock").exists()
            backend.deliver(Q, "a")
            until(lambda: ran == ["a"])
