"""What a handler still sends when it has returned: the call says so, and nothing is lost without a word (TR-37, TR-62)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jmsclient import (
    Delivery,
    IllegalStateError,
    Message,
    MessageConsumer,
    MessageProducer,
    Session,
    Status,
    TransientError,
    Worker,
)
from jmsclient.destination import parse_destination
from jmsclient.message import MessageKind, PlainContent
from jmsclient.testing import TestBroker
from jmsclient.trigger.delivery import Gathered
from jmsclient.trigger.outbox import Line
from jmsclient.trigger.transaction import NOBODY

Q = "queue:///orders"
OUT = "queue:///invoices"
Until = Callable[..., None]


def made(name: str = "t") -> Delivery:
    return Delivery(message=Message("a"), trigger=name, status=Status.NEW, attempt=1, history_entry=None, fencing_token=0)


def sent(broker: TestBroker) -> list[Any]:
    return [message.body for message in broker.messages(OUT)]


def refused(kept: list[Delivery]) -> None:
    """Each of these says that its handler has returned."""
    assert kept
    for delivery in kept:
        with pytest.raises(IllegalStateError, match="the handler of this message has returned"):
            delivery.send(OUT, "late")


def test_tr37_a_send_after_the_handler_has_returned_says_so(until: Until) -> None:
    kept: list[Delivery] = []
    worker = Worker()

    @worker.trigger(Q, concurrency=2)
    def book(body: str, delivery: Delivery) -> None:
        delivery.send(OUT, body)
        kept.append(delivery)

    with TestBroker(worker) as broker:
        broker.send(Q, "a")
        until(lambda: worker.triggers[Q].counters["completed"] == 1)
        refused(kept)
        assert sent(broker) == ["a"]


def test_tr37_so_does_one_of_a_task_that_an_async_handler_left_behind(until: Until) -> None:
    told: list[Exception] = []
    tasks: list[asyncio.Task[None]] = []
    worker = Worker()

    async def later(delivery: Delivery, returned: asyncio.Event) -> None:
        delivery.send(OUT, "in time")
        await returned.wait()
        await asyncio.sleep(0)
        try:
            delivery.send(OUT, "late")
        except IllegalStateError as error:
            told.append(error)

    @worker.trigger(Q)
    async def book(body: str, delivery: Delivery) -> None:
        returned = asyncio.Event()
        tasks.append(asyncio.create_task(later(delivery, returned)))
        await asyncio.sleep(0)
        returned.set()

    with TestBroker(worker) as broker:
        broker.send(Q, "a")
        until(lambda: told)
        until(lambda: sent(broker) == ["in time"])


def test_tr48_so_do_all_of_a_batch(until: Until) -> None:
    kept: list[Delivery] = []
    worker = Worker()

    @worker.trigger(Q, batch=3)
    def book(bodies: list[str], deliveries: list[Delivery]) -> None:
        for body, delivery in zip(bodies, deliveries, strict=True):
            delivery.send(OUT, body)
        kept.extend(deliveries)

    @worker.trigger("queue:///async", batch=3)
    async def later(deliveries: list[Delivery]) -> None:
        kept.extend(deliveries)

    with TestBroker(worker) as broker:
        for body in "abc":
            broker.send(Q, body)
            broker.send("queue:///async", body)
        until(lambda: sum(one.counters["completed"] for one in worker.triggers.values()) == 6)
        assert len(kept) == 6
        refused(kept)
        assert sent(broker) == ["a", "b", "c"]


def test_tr63_so_does_that_of_a_set(tmp_path: Path, until: Until) -> None:
    kept: list[Delivery] = []
    worker = Worker(history=f"sqlite:{tmp_path / 'history.db'}")

    @worker.join(["queue:///left", "queue:///right"], "and", "activation")
    def both(messages: list[Message], delivery: Delivery) -> None:
        delivery.send(OUT, "both")
        kept.append(delivery)

    with TestBroker(worker) as broker:
        for side in ("left", "right"):
            broker.send(f"queue:///{side}", side, properties={"activation": "1"})
        until(lambda: sent(broker) == ["both"])
        refused(kept)


def test_tr57_an_attempt_that_raised_is_over_too_and_the_next_has_a_delivery_of_its_own(until: Until) -> None:
    kept: list[Delivery] = []
    worker = Worker(history="memory:")

    @worker.trigger(Q, max_retries=1, retry_interval=0.01)
    def book(body: str, delivery: Delivery) -> None:
        refused(kept) if kept else None
        kept.append(delivery)
        delivery.send(OUT, f"attempt {len(kept)}")
        if len(kept) == 1:
            raise TransientError("busy")

    with TestBroker(worker) as broker:
        broker.send(Q, "a")
        until(lambda: worker.triggers[Q].counters["completed"] == 1)
        refused(kept)
        assert sent(broker) == ["attempt 2"]


def test_tr37_a_send_that_the_return_overtakes_raises_and_does_not_go_out(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = made()
    gone: list[Any] = []

    def overtaken(text: Any) -> Any:
        gone.extend(delivery.returned())
        return parse_destination(text)

    monkeypatch.setattr("jmsclient.trigger.delivery.parse_destination", overtaken)
    with pytest.raises(IllegalStateError, match="has returned"):
        delivery.send(OUT, "late")
    assert gone == []


def test_tr37_a_send_that_overtakes_the_return_goes_out_and_does_not_raise() -> None:
    delivery = made()

    early = Gathered(
        destination=parse_destination(OUT),
        message=Message("in time"),
        persistent=None,
        priority=None,
        time_to_live=None,
        delivery_delay=None,
    )

    class Overtaken(list[Any]):
        def append(self, one: Any) -> None:
            super().append(early)
            assert not delivery._came_late(early)
            super().append(one)

    delivery._gathered = Overtaken()
    assert [one.message.body for one in delivery.returned()] == ["in time"]


def test_tr37_what_threads_send_while_the_handler_returns_goes_out_or_raises() -> None:
    for _ in range(100):
        delivery = made()
        begin = threading.Barrier(4)
        accepted: list[Message] = []

        def send(delivery: Delivery = delivery, begin: threading.Barrier = begin, accepted: list[Message] = accepted) -> None:
            begin.wait(30)
            try:
                for number in range(50):
                    message = Message(str(number))
                    delivery.send(OUT, message)
                    accepted.append(message)
            except IllegalStateError:
                pass

        threads = [threading.Thread(target=send, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        begin.wait(30)
        out = [one.message for one in delivery.returned()]
        for thread in threads:
            thread.join(30)
        assert {id(one) for one in out} == {id(one) for one in accepted}


# -- the session of a transacted trigger --------------------------------------------------------------------------


def not_lent(call: Callable[[], object]) -> None:
    with pytest.raises(IllegalStateError, match="lent to a handler until that returns"):
        call()


def test_tr62_a_session_that_was_kept_is_nobodys_between_two_messages(until: Until) -> None:
    kept: list[tuple[Session, Delivery, MessageProducer, MessageConsumer]] = []
    worker = Worker()

    @worker.trigger(Q, transacted=True)
    def book(body: str, session: Session, delivery: Delivery) -> None:
        assert delivery.session is session
        producer, consumer = session.create_producer(OUT), session.create_consumer("queue:///notes")
        producer.send(body)
        kept.append((session, delivery, producer, consumer))

    with TestBroker(worker) as broker:
        for body in "ab":
            broker.send(Q, body)
            until(lambda body=body: sent(broker) == list("ab"[: "ab".index(body) + 1]))
            until(lambda body=body: worker.triggers[Q].counters["completed"] == "ab".index(body) + 1)
            for session, delivery, producer, consumer in kept:
                not_lent(lambda: producer.send("stray"))  # noqa: B023  called at once
                not_lent(lambda: producer.send_many(["stray"]))  # noqa: B023
                not_lent(lambda: session.create_producer(OUT))  # noqa: B023
                not_lent(lambda: session.create_consumer(OUT))  # noqa: B023
                not_lent(session.rollback)
                not_lent(lambda: consumer.receive(0))  # noqa: B023
                with pytest.raises(IllegalStateError, match="has returned"):
                    _ = delivery.session
        assert sent(broker) == ["a", "b"]
    assert len({id(session) for session, *_ in kept}) == 1


def test_tr62_a_thread_that_a_handler_left_behind_does_not_join_the_next_transaction(until: Until) -> None:
    kept: list[Session] = []
    told: list[Exception] = []
    worker = Worker()

    @worker.trigger(Q, transacted=True)
    def book(body: str, session: Session) -> None:
        kept.append(session)
        if body == "b":
            stray = threading.Thread(target=send_stray, daemon=True)
            stray.start()
            stray.join(30)
            session.create_producer(OUT).send(body)

    def send_stray() -> None:
        try:
            kept[0].create_producer(OUT).send("stray")
        except IllegalStateError as error:
            told.append(error)

    with TestBroker(worker) as broker:
        for body in "ab":
            broker.send(Q, body)
        until(lambda: worker.triggers[Q].counters["completed"] == 2)
        assert sent(broker) == ["b"]
    assert ["lent to a handler" in str(error) for error in told] == [True]


@pytest.mark.parametrize("batch", [1, 2])
def test_tr62_nor_does_a_task_while_threads_that_an_async_handler_waits_for_may_use_its_session(until: Until, batch: int) -> None:
    told: list[Exception] = []
    tasks: list[asyncio.Task[None]] = []
    second = asyncio.Event()
    worker = Worker()

    async def send_stray(session: Session) -> None:
        await second.wait()
        try:
            await asyncio.to_thread(session.create_producer(OUT).send, "stray")
        except IllegalStateError as error:
            told.append(error)

    async def work(body: str, session: Session) -> None:
        if body == "a":
            tasks.append(asyncio.create_task(send_stray(session)))
            return
        second.set()
        await tasks[0]
        await asyncio.to_thread(session.create_producer(OUT).send, body)
        await asyncio.get_running_loop().run_in_executor(None, session.create_producer(OUT).send, body)
        await asyncio.create_task(asyncio.to_thread(session.create_producer(OUT).send, body))

    async def book(body: str, session: Session) -> None:
        await work(body, session)

    async def book_all(bodies: list[str], session: Session) -> None:
        for body in bodies:
            await work(body, session)

    worker.trigger(Q, transacted=True, batch=batch)(book if batch == 1 else book_all)
    with TestBroker(worker) as broker:
        broker.send(Q, "a")
        until(lambda: worker.triggers[Q].counters["completed"] == 1)
        broker.send(Q, "b")
        until(lambda: worker.triggers[Q].counters["completed"] == 2)
        assert sent(broker) == ["b", "b", "b"]
    assert ["lent to a handler" in str(error) for error in told] == [True]


def test_tr46_what_was_inside_when_the_handler_raised_is_rolled_back_with_it(until: Until) -> None:
    """A thread that an async handler left behind is inside its session; the end waits for that, and it is in the transaction."""
    inside, ended = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []
    attempts: list[str] = []
    worker = Worker(history="memory:")

    @worker.trigger(Q, transacted=True, on_error="redeliver")
    async def book(body: str, session: Session) -> None:
        attempts.append(body)
        if len(attempts) > 1:
            return
        line = Line(session.transport_session, session.clock)

        def send_late() -> None:
            inside.set()
            until(lambda: session.owner == NOBODY)
            line.send(parse_destination(OUT), [PlainContent(kind=MessageKind.TEXT, body="late", message_id="ID:1")])
            ended.set()

        threads.append(threading.Thread(target=session.run_inside, args=(send_late,), daemon=True))
        threads[0].start()
        inside.wait(30)
        raise ValueError("no")

    with TestBroker(worker) as broker:
        broker.send(Q, "a")
        until(lambda: worker.triggers[Q].counters["completed"] == 1)
        assert ended.is_set()
        assert sent(broker) == []
