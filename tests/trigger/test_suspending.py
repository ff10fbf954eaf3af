"""Used-up retries suspend the trigger; a monitor, or the application, resumes it (TR-56, TR-57, TR-59, TR-60)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import Delivery, Message, Status, TransientError, Worker, connect
from jmsclient.errors import ConfigurationError
from jmsclient.events import Event
from jmsclient.history import DocumentHistory, State, open_history
from jmsclient.options import TriggerOptions
from jmsclient.testing import ScriptedBackend, TestBroker
from jmsclient.transport.contract import Verb

Q = "queue:///orders"
OTHER = "queue:///other"
QUICK = TriggerOptions(monitor_interval=0.05)
Until = Callable[..., None]


@pytest.fixture
def history() -> DocumentHistory:
    return open_history("memory:")


def message(text: str, uuid: str) -> Message:
    return Message(text, properties={"uuid": uuid})


def suspended(worker: Worker, name: str = Q) -> str | None:
    return worker.triggers[name].pipeline.suspended


@pytest.mark.parametrize("max_retries", [0, 1])
def test_tr57_suspend_gives_back_in_order_and_the_monitor_resumes(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event], max_retries: int
) -> None:
    ran: list[tuple[str, int]] = []
    available = threading.Event()
    worker = Worker(backend.url, history=history)

    @worker.trigger(
        Q,
        max_retries=max_retries,
        retry_interval=0.01,
        on_retry_failure="suspend",
        monitor=available.is_set,
        options=QUICK,
    )
    def book(body: str, delivery: Delivery) -> None:
        if not available.is_set():
            raise TransientError("the ledger is closed")
        ran.append((body, delivery.attempt))

    with worker:
        backend.deliver(Q, [message("first", "1"), message("second", "2")])
        until(lambda: suspended(worker) == "retry_failure")
        until(lambda: len(backend.waiting(Q)) == 2)
        assert [content.body() for content in backend.waiting(Q)] == ["first", "second"]
        entry = history.lookup(Q, "1", source="uuid")
        assert entry is not None
        assert (entry.state, entry.lease_alive) == (State.RETRYING, False)
        available.set()
        until(lambda: len(ran) == 2)
    assert ran == [("first", max_retries + 2), ("second", 1)]
    told = [(one.name, one.fields["reason"]) for one in events if one.name in ("suspended", "resumed")]
    assert told == [("suspended", "retry_failure"), ("resumed", "retry_failure")]


def test_tr60_one_true_resumes_every_trigger_that_shares_the_monitor(backend: ScriptedBackend, until: Until) -> None:
    ran: list[str] = []
    ready = threading.Event()
    asked: list[int] = []
    worker = Worker(backend.url)

    def monitor() -> bool:
        asked.append(1)
        return ready.is_set()

    def work(body: str) -> None:
        if not ready.is_set():
            raise TransientError("busy")
        ran.append(body)

    worker.trigger(Q, on_retry_failure="suspend", monitor=monitor, options=QUICK)(work)
    seldom = TriggerOptions(monitor_interval=600)
    worker.trigger(OTHER, on_retry_failure="suspend", monitor=monitor, options=seldom, in_doubt="run")(work)
    with worker:
        backend.deliver(Q, "a")
        backend.deliver(OTHER, "b")
        until(lambda: suspended(worker, Q) and suspended(worker, OTHER) and asked)
        ready.set()
        until(lambda: suspended(worker, Q) is None and suspended(worker, OTHER) is None)
        until(lambda: "b" in ran)


def test_tr60_an_exception_counts_as_false_and_tries_may_be_limited(
    backend: ScriptedBackend, until: Until, events: list[Event]
) -> None:
    asked: list[int] = []

    def monitor() -> bool:
        asked.append(1)
        raise OSError("no route")

    worker = Worker(backend.url)
    options = TriggerOptions(monitor_interval=0.02, monitor_tries=2)

    @worker.trigger(Q, on_retry_failure="suspend", monitor=monitor, options=options)
    def book(body: str) -> None:
        raise TransientError("busy")

    with worker:
        backend.deliver(Q, "a")
        until(lambda: len(asked) == 2)
        threading.Event().wait(0.1)
        assert len(asked) == 2
        assert suspended(worker) == "retry_failure"
    assert [one.name for one in events].count("monitor_failed") == 2


def test_tr59_the_application_resumes_and_so_does_a_restart(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event]
) -> None:
    attempts: list[int] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, on_retry_failure="suspend")
    def book(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) < 3:
            raise TransientError("busy")

    with worker:
        backend.deliver(Q, message("a", "1"))
        until(lambda: suspended(worker) == "retry_failure")
        worker.triggers[Q].resume()
        until(lambda: len(attempts) == 2 and suspended(worker) == "retry_failure")
    assert [one.fields["actor"] for one in events if one.name == "resumed"] == ["application"]
    with worker:
        until(lambda: [one.outcome.verb for one in backend.settlements][-1:] == [Verb.ACCEPT])
    assert attempts == [1, 2, 3]


def test_tr56_a_transient_error_of_the_resolver_suspends_where_that_is_configured(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    history.claim(Q, "1", source="uuid", lease=0.0)
    ready = threading.Event()
    counts: list[int] = []
    worker = Worker(backend.url, history=history)

    def resolver(request: Any) -> Status:
        if not ready.is_set():
            raise TransientError("cannot look")
        return Status.NEW

    @worker.trigger(Q, on_retry_failure="suspend", resolver=resolver, monitor=ready.is_set, options=QUICK)
    def book(delivery: Delivery) -> None:
        counts.append(delivery.delivery_count)

    with worker:
        backend.deliver(Q, message("a", "1"))
        until(lambda: suspended(worker) == "retry_failure")
        ready.set()
        until(lambda: [one.outcome.verb for one in backend.settlements][-1:] == [Verb.ACCEPT])
    assert counts == [1]  # no handler had seen it: given back uncounted


def test_a_monitor_that_would_never_be_asked_is_refused(backend: ScriptedBackend) -> None:
    worker = Worker(backend.url)

    @worker.trigger(Q, monitor=lambda: True)
    def book(body: str) -> None: ...

    with pytest.raises(ConfigurationError, match="on_retry_failure='suspend'"):
        worker.start()


def test_ra16_a_stop_while_suspended_still_runs_what_was_taken(until: Until) -> None:
    """Taken messages are acknowledged already: under DELIVER_ALL only a handler can save them."""
    ran: list[str] = []
    worker = Worker()

    @worker.trigger(f"{Q}?readAheadAllowed=YES&readAheadClosePolicy=DELIVER_ALL", name=Q, on_retry_failure="suspend")
    def book(body: str) -> None:
        ran.append(body)
        if body == "1":
            raise TransientError("busy")

    with TestBroker() as broker:
        worker.url = broker.url
        with connect(broker.url) as connection:
            connection.create_session().create_producer(Q, persistent=False).send_many(["1", "2", "3"])
        worker.start()
        until(lambda: suspended(worker) == "retry_failure")
        until(lambda: broker.messages(Q) == [])
        assert ran == ["1"]
        report = worker.stop(10.0)
    assert ran == ["1", "2", "3"]
    assert report.clean
