"""Batch triggers: one call for several messages, each checked, completed and acknowledged on its own (TR-48)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jmsclient import ConfigurationError, Delivery, Message, Status, TransientError, Worker
from jmsclient.history import Claim, DocumentHistory, State, open_history
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.contract import Verb

from ..seen import verbs  # noqa: TID252  tests are no package that has a name

Q = "queue:///orders"
Until = Callable[..., None]


@dataclass
class Order:
    id: int


def order(number: int, **more: Any) -> Message:
    return Message({"id": number}, properties={"uuid": str(number), **more})


def state(history: DocumentHistory, number: int) -> State | None:
    entry = history.lookup(Q, str(number), source="uuid")
    return None if entry is None else entry.state


@pytest.mark.parametrize("asynchronous", [False, True])
def test_tr48_those_that_are_there_in_one_call_in_order(backend: ScriptedBackend, until: Until, asynchronous: bool) -> None:
    history = open_history("memory:")
    calls: list[list[int]] = []
    worker = Worker(backend.url, history=history)

    def book(orders: list[Order], messages: list[Message], deliveries: list[Delivery]) -> None:
        calls.append([one.id for one in orders])
        assert [message.properties["uuid"] for message in messages] == [str(one.id) for one in orders]
        for delivery, one in zip(deliveries, orders, strict=True):
            assert delivery.status is Status.NEW
            delivery.send("queue:///invoices", str(one.id))

    async def book_async(orders: list[Order], messages: list[Message], deliveries: list[Delivery]) -> None:
        await asyncio.sleep(0)
        book(orders, messages, deliveries)

    worker.trigger(Q, batch=4)(book_async if asynchronous else book)
    backend.deliver(Q, [order(number) for number in range(10)])
    with worker:
        until(lambda: len(backend.settlements) == 10)
    assert [number for call in calls for number in call] == list(range(10))
    assert max(map(len, calls)) == 4
    assert len(calls) < 10
    assert verbs(backend) == [Verb.ACCEPT] * 10
    assert [one.body() for one in backend.waiting("queue:///invoices")] == [str(number) for number in range(10)]
    assert {state(history, number) for number in range(10)} == {State.COMPLETED}


def test_tr48_duplicates_and_in_doubt_ones_are_taken_out_first(backend: ScriptedBackend, until: Until, tmp_path: Path) -> None:
    history = open_history(f"sqlite:{tmp_path / 'history.db'}")
    history.complete(Q, "1", source="uuid", token="earlier")
    history.claim(Q, "2", source="uuid", lease=0.0)
    history.claim(Q, "3", source="uuid", token="elsewhere", lease=60.0)
    calls: list[list[int]] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, batch=10, concurrency=2)
    def book(orders: list[Order]) -> None:
        calls.append([one.id for one in orders])

    backend.deliver(Q, [order(number) for number in range(6)])
    with worker:
        counters = worker.triggers[Q].pipeline.counters
        until(lambda: len(backend.settlements) == 5)
        assert (counters.new, counters.duplicate, counters.in_doubt, counters.in_progress) == (3, 1, 1, 1)
    assert sorted(number for call in calls for number in call) == [0, 4, 5]
    assert [one.id for one in history.in_doubt(Q)] == ["2"]
    history.close()


def test_tr48_all_that_remain_are_claimed_or_none(backend: ScriptedBackend, until: Until, switchable: Callable[..., Any]) -> None:
    history = switchable(open_history("memory:"))
    groups: list[int] = []
    calls: list[int] = []

    def exchange(commands: Any) -> Any:
        claims = sum(isinstance(one, Claim) for one in commands)
        if claims:
            groups.append(claims)
        return type(history).exchange(history, commands)

    history.exchange = exchange
    history.off = Claim
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, batch=5)
    def book(bodies: list[str]) -> None:
        calls.append(len(bodies))

    backend.deliver(Q, [str(number) for number in range(5)])
    with worker:
        until(lambda: worker.triggers[Q].pipeline.suspended == "history_unavailable")
        assert (calls, backend.waiting(Q) != []) == ([], True)
        history.off = None
        until(lambda: len([one for one in backend.settlements if one.outcome.verb is Verb.ACCEPT]) == 5)
    assert calls
    assert groups[-len(calls) :] == calls  # a call's messages were claimed together


def test_tr45_what_a_call_raises_counts_for_each_and_a_body_that_does_not_fit_fails_alone(
    backend: ScriptedBackend, until: Until
) -> None:
    calls: list[list[int]] = []
    release = threading.Event()
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q, batch=3, error_destination="queue:///errors")
    def book(orders: list[Order]) -> None:
        calls.append([one.id for one in orders])
        if 7 in calls[-1]:
            raise ValueError("no seven")
        assert release.wait(60)

    backend.deliver(Q, [order(1)])
    with worker:
        until(lambda: calls == [[1]])
        backend.deliver(Q, [Message({"id": "two"}), order(3), Message({"nonsense": 1}), order(7), order(8), order(9)])
        release.set()
        until(lambda: len(backend.settlements) == 7)
    assert calls == [[1], [3], [7, 8, 9]]
    failed = backend.waiting("queue:///errors")
    assert [one.properties()["JMS_jmsclient_error_type"] for one in failed] == ["MessageFormatError"] * 2 + ["ValueError"] * 3
    assert "'id' of Order" in str(failed[0].properties()["JMS_jmsclient_error_text"])


def test_tr57_a_batch_that_fails_for_now_is_tried_again_together(backend: ScriptedBackend, until: Until) -> None:
    history = open_history("memory:")
    calls: list[list[int]] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, batch=3, max_retries=2, retry_interval=0.02)
    def book(orders: list[Order], deliveries: list[Delivery]) -> None:
        calls.append([one.attempt for one in deliveries])
        if len(calls) == 1:
            raise TransientError("busy")

    backend.deliver(Q, [order(number) for number in range(3)])
    with worker:
        until(lambda: len(backend.settlements) == 3)
    assert calls == [[1, 1, 1], [2, 2, 2]]


def test_tr62_a_batch_is_taken_only_for_a_handler_that_is_free(backend: ScriptedBackend, until: Until) -> None:
    history = open_history("memory:")
    go_on, calls = threading.Event(), list[int]()
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, batch=2, prefetch=20)
    def book(orders: list[Order]) -> None:
        calls.append(len(orders))
        assert go_on.wait(60)

    backend.deliver(Q, [order(number) for number in range(9)])
    with worker:
        until(lambda: len(calls) == 1)
        assert history.statistics() == {"processing": calls[0]}  # nothing is claimed that nobody runs
        go_on.set()
        until(lambda: len(backend.settlements) == 9)
    assert set(calls) <= {1, 2}


@pytest.mark.parametrize("annotation", [str, list, "list[set]", dict])
def test_a_batch_handler_takes_lists(annotation: Any) -> None:
    worker = Worker()

    def book(orders: Any) -> None: ...

    book.__annotations__["orders"] = annotation
    with pytest.raises(ConfigurationError, match=r"list\[…\]"):
        worker.trigger(Q, batch=2)(book)
