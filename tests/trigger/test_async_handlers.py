"""`async def` handlers and resolvers: one event loop a trigger, up to `concurrency` at once, cancelled gently at the end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from jmsclient import Delivery, Message, Status, TransientError, Worker
from jmsclient.errors import ConfigurationError
from jmsclient.events import Event
from jmsclient.history import DocumentHistory, State, open_history
from jmsclient.options import TriggerOptions
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.contract import Verb
from jmsclient.trigger.handler_loop import HandlerLoop

from ..seen import verbs  # noqa: TID252  tests are no package that has a name

Q = "queue:///orders"
Until = Callable[..., None]


@pytest.fixture
def history() -> DocumentHistory:
    return open_history("memory:")


def message(text: str, uuid: str) -> Message:
    return Message(text, properties={"uuid": uuid})


def state(history: DocumentHistory, uuid: str) -> State | None:
    entry = history.lookup(Q, uuid, source="uuid")
    return entry.state if entry else None


def test_async_handlers_of_a_trigger_run_together_on_one_thread_up_to_its_concurrency(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    before = set(threading.enumerate())
    threads: set[str] = set()
    running = most = 0
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, concurrency=3)
    async def book(body: str) -> None:
        nonlocal running, most
        threads.add(threading.current_thread().name)
        running += 1
        most = max(most, running)
        while most < 3:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        running -= 1

    with worker:
        backend.deliver(Q, [message(str(number), str(number)) for number in range(9)])
        until(lambda: len(backend.settlements) == 9)
        names = {thread.name for thread in set(threading.enumerate()) - before}
        assert not any("handler" in name for name in names)
    assert threads == {f"jmsclient-{Q}-loop"}
    assert most == 3
    assert verbs(backend) == [Verb.ACCEPT] * 9
    assert state(history, "8") is State.COMPLETED
    assert not any(thread.name == f"jmsclient-{Q}-loop" for thread in set(threading.enumerate()) - before)


def test_tr62_a_serial_async_trigger_runs_one_after_the_other_in_order(backend: ScriptedBackend, until: Until) -> None:
    log: list[str] = []
    worker = Worker(backend.url)

    @worker.trigger(Q)
    async def book(body: str) -> None:
        log.append(f"begin {body}")
        await asyncio.sleep(0)
        log.append(f"end {body}")

    with worker:
        backend.deliver(Q, ["1", "2", "3"])
        until(lambda: len(backend.settlements) == 3)
    assert log == [f"{what} {number}" for number in (1, 2, 3) for what in ("begin", "end")]


def test_tr45_an_async_handler_fails_and_retries_as_any_other(
    backend: ScriptedBackend, history: DocumentHistory, until: Until
) -> None:
    attempts: list[int] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, max_retries=1, retry_interval=0.01, on_error="acknowledge")
    async def book(body: str, delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        await asyncio.sleep(0)
        delivery.send("queue:///invoices", body)
        if body == "bad":
            raise asyncio.CancelledError  # its own affair, not ours: an error like any other
        if delivery.attempt == 1:
            raise TransientError("busy")

    with worker:
        backend.deliver(Q, [message("good", "1"), message("bad", "2")])
        until(lambda: len(backend.settlements) == 2)
        assert worker.triggers[Q].pipeline.counters.failed == 1
    assert attempts == [1, 2, 1]
    assert [content.body() for content in backend.waiting("queue:///invoices")] == ["good"]


def test_a_body_that_does_not_fit_an_async_handler_is_an_error(backend: ScriptedBackend, until: Until) -> None:
    worker = Worker(backend.url)

    @worker.trigger(Q)
    async def book(body: dict[str, Any]) -> None:
        raise AssertionError("not called")

    with worker:
        backend.deliver(Q, "no json")
        until(lambda: len(backend.settlements) == 1)
    assert backend.settlements[0].outcome.properties["JMS_jmsclient_error_type"] == "MessageFormatError"


@pytest.mark.parametrize("handler_is_async", [True, False])
@pytest.mark.parametrize("resolver_is_async", [True, False])
def test_tr55_resolvers_and_handlers_may_be_async_or_not(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, handler_is_async: bool, resolver_is_async: bool
) -> None:
    history.claim(Q, "1", source="uuid", lease=0.0)
    ran: list[str] = []

    def ask(request: Any) -> Status:
        return Status.NEW

    async def ask_async(request: Any) -> Status:
        await asyncio.sleep(0)
        return Status.NEW

    def book(body: str) -> None:
        ran.append(body)

    async def book_async(body: str) -> None:
        ran.append(body)

    worker = Worker(backend.url, history=history)
    handler: Callable[..., Any] = book_async if handler_is_async else book
    worker.trigger(Q, resolver=ask_async if resolver_is_async else ask)(handler)
    with worker:
        backend.deliver(Q, [message("abandoned", "1"), message("new", "2")])
        until(lambda: len(backend.settlements) == 2)
        assert worker.triggers[Q].pipeline.counters.resolver_new == 1
    assert sorted(ran) == ["abandoned", "new"]


def test_tr56_an_async_resolver_that_takes_too_long_is_ended_and_the_message_is_in_doubt(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jmsclient.trigger.handlers.LAST_MOMENT", 0.05)
    history.claim(Q, "1", source="uuid", lease=0.0)
    ended = threading.Event()
    ran: list[str] = []

    async def ask(request: Any) -> Status:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return Status.NEW

    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, resolver=ask, in_doubt="acknowledge", options=TriggerOptions(resolver_timeout=0.05))
    async def book(body: str) -> None:
        ran.append(body)

    with worker:
        backend.deliver(Q, message("a", "1"))
        until(lambda: len(backend.settlements) == 1)
        assert worker.triggers[Q].pipeline.counters.in_doubt == 1
        assert ended.wait(30)
        backend.deliver(Q, message("b", "2"))  # it keeps nobody waiting
        until(lambda: ran == ["b"])


def test_o01_async_handlers_may_finish_within_the_grace(
    backend: ScriptedBackend, history: DocumentHistory, when: Callable[..., None]
) -> None:
    started, go_on = threading.Event(), threading.Event()
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q)
    async def book(body: str) -> None:
        started.set()
        while not go_on.is_set():
            await asyncio.sleep(0.01)

    worker.start()
    backend.deliver(Q, [message("a", "1"), message("b", "2")])
    assert started.wait(30)
    pipeline = worker.triggers[Q].pipeline
    when(lambda: pipeline._stopping, go_on.set)
    report = worker.stop(30.0)
    assert report.clean
    assert (report.triggers[0].finished, len(backend.waiting(Q))) == (1, 1)
    assert state(history, "1") is State.COMPLETED


def test_o01_what_outlasts_the_grace_is_cancelled_not_acknowledged_and_in_doubt_later(
    backend: ScriptedBackend, history: DocumentHistory, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jmsclient.trigger.lifetime.LAST_MOMENT", 20.0)  # they need none of it, unless the machine is busy
    cleaned_up: list[str] = []
    started = threading.Barrier(2)
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, concurrency=2)
    async def book(body: str) -> None:
        if body == "b":
            await asyncio.to_thread(started.wait, 10)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if body == "a":
                raise
        finally:
            cleaned_up.append(body)

    worker.start()
    backend.deliver(Q, [message("a", "1"), message("b", "2")])
    started.wait(30)
    begun = time.monotonic()
    report = worker.stop(0.05)
    assert time.monotonic() - begun < 30.0  # the handlers would take a minute
    assert sorted(cleaned_up) == ["a", "b"]
    assert (report.triggers[0].unfinished, report.triggers[0].finished) == (1, 1)  # b chose to finish when told
    assert sorted(verbs(backend), key=str) == [Verb.ACCEPT, Verb.RETRY]
    assert state(history, "1") is State.PROCESSING
    assert state(history, "2") is State.COMPLETED
    assert [one.fields["id"] for one in events if one.name == "cancelled"] == ["1"]


def test_o01_a_handler_that_ignores_its_cancellation_does_not_keep_the_worker(
    backend: ScriptedBackend, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jmsclient.trigger.pipeline.LAST_MOMENT", 0.1)
    started, let_go = threading.Event(), threading.Event()
    worker = Worker(backend.url)

    @worker.trigger(Q)
    async def book(body: str) -> None:
        started.set()
        while not let_go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    worker.start()
    backend.deliver(Q, "a")
    assert started.wait(30)
    report = worker.stop(0.05)
    let_go.set()
    assert report.triggers[0].unfinished == 1
    assert [content.body() for content in backend.waiting(Q)] == ["a"]
    until(lambda: not any(thread.name == f"jmsclient-{Q}-loop" for thread in threading.enumerate()))


def test_a_loop_that_is_stopped_as_its_last_handler_ends_has_nothing_left_to_wait_for() -> None:
    done: list[Any] = []

    async def execute(item: Any, sender: Any) -> None:
        loop._loop.stop()  # the task has ended then, and the loop has not heard of it yet

    loop = HandlerLoop("test", 1, execute, done.append)
    loop.begin()
    loop.start([cast(Any, "an item")])
    loop._thread.join(20)
    assert not loop._thread.is_alive()
    assert done == ["an item"]
    assert loop._loop.is_closed()
    loop.stop(20)


def test_a_callable_object_may_be_async_and_a_generator_is_refused(backend: ScriptedBackend, until: Until) -> None:
    ran: list[str] = []

    class Handler:
        async def __call__(self, body: str) -> None:
            ran.append(body)

    def generator(body: str) -> Any:
        yield body

    async def async_generator(body: str) -> AsyncIterator[str]:
        yield body

    worker = Worker(backend.url)
    worker.trigger(Q)(Handler())
    for wrong in (generator, async_generator):
        with pytest.raises(ConfigurationError, match="generator"):
            worker.trigger("queue:///other")(wrong)
    with worker:
        backend.deliver(Q, "a")
        until(lambda: ran == ["a"])
