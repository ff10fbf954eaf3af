"""What a worker says, and waits for, while it starts: its provider, its history, where neither is there (O01, TR-49)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jmsclient import StopReport, Worker
from jmsclient.errors import ConnectionLostError, HistoryUnavailableError
from jmsclient.events import Event, subscribe
from jmsclient.history.memory import MemoryHistory
from jmsclient.testing import ScriptedBackend

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
