"""Application functions that misbehave in ways of their own: what they raise is a result of their message, and no trigger ends or
waits for ever because of it (TR-45, TR-55, TR-57, TR-60, TR-63); one that ran nothing has not handled its message (TR-37)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jmsclient import Delivery, Message, Status, TransientError, TriggerOptions, Worker
from jmsclient.errors import ConfigurationError
from jmsclient.events import Event
from jmsclient.history import open_history
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.contract import Verb
from jmsclient.trigger import binding

from ..seen import verbs  # noqa: TID252  tests are no package that has a name

Q = "queue:///orders"
Until = Callable[..., None]


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class BusyError(TransientError):
    """Of an application that does not call the constructor above it."""

    def __init__(self, retry_after: Any = None) -> None:
        if retry_after is not None:
            self.retry_after = retry_after


ODD = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    SpeechlessError(),
    asyncio.CancelledError(),
    MemoryError(),
    RecursionError("too deep"),
    ValueError("\udcff\x00 two\nlines"),
    ValueError("x" * 100_000),
]


def handler(mode: str, error: BaseException) -> Callable[..., Any]:
    def plain(body: str) -> None:
        raise error

    async def awaited(body: str) -> None:
        raise error

    def batch(bodies: list[str]) -> None:
        raise error

    functions: dict[str, Callable[..., Any]] = {"async": awaited, "batch": batch}
    return functions.get(mode, plain)


@pytest.mark.parametrize("mode", ["serial", "threads", "async", "batch", "transacted"])
@pytest.mark.parametrize("error", ODD, ids=lambda one: type(one).__name__)
def test_tr45_whatever_a_handler_raises_its_message_is_dead_lettered_and_the_trigger_goes_on(
    backend: ScriptedBackend, until: Until, events: list[Event], error: BaseException, mode: str
) -> None:
    worker = Worker(backend.url, history="memory:")
    settings: dict[str, dict[str, Any]] = {"threads": {"concurrency": 2}, "batch": {"batch": 2}, "transacted": {"transacted": True}}
    worker.trigger(Q, **settings.get(mode, {}))(handler(mode, error))
    with worker:
        for text in ("a", "b"):  # the second only after the first has failed
            sent = len(backend.dead_letters)
            backend.deliver(Q, text)
            until(lambda: len(backend.dead_letters) > sent)  # noqa: B023  it is called at once
        assert worker.triggers[Q].error is None
    said = [one.text for one in events if one.name == "handler_failed"]
    assert len(said) == 2
    assert all(one.isprintable() and type(error).__name__ in one and len(one) < 3000 for one in said)


@pytest.mark.parametrize("after", [None, 0, "soon", float("nan"), float("inf"), -1, True, timedelta(milliseconds=1)], ids=repr)
def test_tr57_a_transient_error_of_an_applications_own_kind_is_retried(backend: ScriptedBackend, until: Until, after: Any) -> None:
    attempts: list[int] = []
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q, max_retries=1, retry_interval=0.001)
    def book(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            raise BusyError(after)

    with worker:
        backend.deliver(Q, "a")
        until(lambda: backend.settlements)
    assert attempts == [1, 2]
    assert verbs(backend) == [Verb.ACCEPT]
    assert str(BusyError()) == ""


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), SpeechlessError()], ids=lambda one: type(one).__name__)
def test_tr60_whatever_a_monitor_raises_is_false_and_it_is_asked_again(
    backend: ScriptedBackend, until: Until, events: list[Event], error: BaseException
) -> None:
    asked: list[int] = []

    def monitor() -> bool:
        asked.append(1)
        if len(asked) < 3:
            raise error
        return True

    worker = Worker(backend.url, history="memory:")
    quick = TriggerOptions(monitor_interval=0.01)

    @worker.trigger(Q, on_retry_failure="suspend", monitor=monitor, options=quick)
    def book(delivery: Delivery) -> None:
        if len(asked) < 3:
            raise TransientError("down")

    with worker:
        backend.deliver(Q, "a")
        until(lambda: Verb.ACCEPT in verbs(backend))
    assert [one.name for one in events].count("monitor_failed") == 2


def test_tr48_one_body_that_raises_what_is_no_exception_fails_alone(
    backend: ScriptedBackend, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    def converter(hint: Any) -> Callable[[Any], Any]:
        def convert(body: Any) -> Any:
            if body == "bad":
                raise SystemExit(1)
            return body

        return convert

    monkeypatch.setattr(binding, "converter", converter)
    ran: list[str] = []
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q, batch=3)
    def book(bodies: list[str]) -> None:
        ran.extend(bodies)

    with worker:
        backend.deliver(Q, ["a", "bad", "c"])
        until(lambda: len(backend.settlements) == 3)
    assert sorted(ran) == ["a", "c"]
    assert len(backend.dead_letters) == 1


def test_tr63_an_activation_function_that_raises_what_is_no_exception_fails_its_message_only(
    backend: ScriptedBackend, until: Until, tmp_path: Path
) -> None:
    def activation(message: Message) -> str:
        raise SystemExit(1)

    worker = Worker(backend.url, history=f"sqlite:{tmp_path / 'history.db'}")

    @worker.join([Q, "queue:///payments"], "and", activation)
    def book(messages: list[Message]) -> None:
        raise AssertionError("no set is complete")

    with worker:
        backend.deliver(Q, "a")
        until(lambda: backend.dead_letters)
        assert all(one.error is None for one in worker.triggers.values())


async def coroutine() -> None:
    raise AssertionError("it is awaited by nobody")


def generator() -> Generator[int]:
    yield 1


async def async_generator() -> AsyncGenerator[int]:
    yield 1


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("make", [coroutine, generator, async_generator])
def test_tr37_a_plain_function_that_returns_what_has_not_run_has_failed(
    backend: ScriptedBackend, until: Until, make: Callable[[], Any], concurrency: int
) -> None:
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q, concurrency=concurrency)
    def book(body: str) -> Any:
        return make()

    @worker.trigger("queue:///whole", concurrency=concurrency)
    def whole(message: Message) -> Any:
        return make()

    @worker.trigger("queue:///batch", batch=2)
    def batch(bodies: list[str]) -> Any:
        return make()

    @worker.trigger("queue:///result")
    def result(body: str) -> int:
        return 17  # nobody looks at it

    with worker:
        for queue in (Q, "queue:///whole", "queue:///batch", "queue:///result"):
            backend.deliver(queue, "a")
        until(lambda: len(backend.settlements) == 4)
    texts = [one.outcome.properties["JMS_jmsclient_error_text"] for one in backend.settlements if one.outcome.properties]
    assert len(texts) == 3
    assert all("declare it `async def`" in str(one) for one in texts)


def test_tr55_a_resolver_that_returns_a_coroutine_or_what_has_no_repr_leaves_its_message_in_doubt(
    backend: ScriptedBackend, until: Until, events: list[Event]
) -> None:
    class Unspeakable:
        def __repr__(self) -> str:
            raise SystemExit(1)

    answers: list[Any] = [coroutine(), Unspeakable(), (), (Unspeakable(), 1), (Status.NEW,)]
    worker = Worker(backend.url)

    @worker.trigger(Q, resolver=lambda request: answers[int(request.message.text)], in_doubt="acknowledge")
    def book(body: str) -> None:
        assert body == "4"

    with worker:
        for number in range(5):
            backend.deliver(Q, str(number), delivery_count=2)
        until(lambda: len(backend.settlements) == 5)
    assert verbs(backend) == [Verb.ACCEPT] * 5
    assert [one.name for one in events].count("resolver_failed") == 4


class Handler:
    def book(self, body: str) -> None:
        """A method."""


@pytest.mark.parametrize(
    "function", [dict, int, Handler, 3, None, Handler.book], ids=lambda one: getattr(one, "__name__", repr(one))
)
def test_what_is_no_handler_is_refused_in_words(function: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        Worker("embedded:").trigger(Q)(function)


def nothing() -> bool:
    return True


def two(one: Any, another: Any) -> Status:
    return Status.NEW


async def later() -> bool:
    return False


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("resolver", "is_booked"),
        ("resolver", nothing),
        ("resolver", two),
        ("monitor", 5),
        ("monitor", later),
        ("monitor", two),
        ("transacted", "yes"),
        ("options", {"strict": True}),
        ("history", 5),
        ("history", Path("history.db")),
        ("name", 5),
        ("name", "\ud800"),
    ],
    ids=lambda one: getattr(one, "__name__", repr(one)),
)
def test_a_setting_of_a_wrong_kind_is_refused_by_its_name(setting: str, value: Any) -> None:
    worker = Worker("embedded:", history="memory:")
    settings: dict[str, Any] = {setting: value} | ({"on_retry_failure": "suspend"} if setting == "monitor" else {})

    def declare_and_start() -> None:
        worker.trigger(Q, **settings)(nothing)
        worker.start()

    with pytest.raises(ConfigurationError, match=f"^{setting}="):
        declare_and_start()


@pytest.mark.parametrize("name", [5, b"shop", "\ud800"], ids=repr)
def test_tr33_a_name_that_no_history_can_keep_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^name="):
        Worker("embedded:", name=name)
    with pytest.raises(ConfigurationError, match=r"^namespace="):
        open_history("memory:", namespace=name)


def test_tr47_a_body_check_that_raises_what_is_no_exception_fails_its_message_only(backend: ScriptedBackend, until: Until) -> None:
    def parts(message: Message) -> bytes:
        raise SystemExit(1)

    worker = Worker(backend.url, history="memory:")
    worker.trigger(Q, options=TriggerOptions(body_check=parts))(nothing)
    with worker:
        backend.deliver(Q, ["a", "b"])
        until(lambda: len(backend.dead_letters) == 2)
        assert worker.triggers[Q].error is None


def test_a_worker_of_a_wrong_kind_of_history_or_options_is_refused() -> None:
    wrong: Any = 5
    with pytest.raises(ConfigurationError, match="history=5"):
        Worker("embedded:", history=wrong)
    with pytest.raises(ConfigurationError, match="options=5"):
        Worker("embedded:", options=wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 99},
        {"priority": "4"},
        {"time_to_live": -1},
        {"time_to_live": "1"},
        {"delivery_delay": "soon"},
        {"delivery_delay": -1},
    ],
    ids=repr,
)
def test_tr45_what_cannot_be_sent_is_refused_in_the_handler_and_not_when_its_work_is_done(
    backend: ScriptedBackend, until: Until, wrong: dict[str, Any]
) -> None:
    told: list[str] = []
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q)
    def book(delivery: Delivery) -> None:
        with pytest.raises(ConfigurationError, match=next(iter(wrong))) as caught:
            delivery.send("queue:///invoices", "x", **wrong)
        told.append(str(caught.value))
        delivery.send("queue:///invoices", "y", priority=9, time_to_live=60.0, delivery_delay=0.0)

    with worker:
        backend.deliver(Q, "a")
        until(lambda: backend.settlements)
    assert verbs(backend) == [Verb.ACCEPT]
    assert len(told) == 1
    assert [one.body() for one in backend.waiting("queue:///invoices")] == ["y"]
