"""Faults and commands at random against a trigger with random settings: nothing is lost, nothing runs twice unseen, nothing stays.

TR-34, TR-37, TR-49, TR-59, TR-61, TR-62, TR-66, TR-67. `JMSCLIENT_TEST_RANDOM_RUNS` asks for more runs; a failure names its seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from jmsclient import Delivery, Message, Status, TransientError, Worker
from jmsclient.errors import HistoryUnavailableError, IllegalStateError
from jmsclient.history import Reply, State
from jmsclient.history.entries import Command, Entry
from jmsclient.history.memory import MemoryHistory
from jmsclient.testing import ManualClock, ScriptedBackend
from jmsclient.testing.scripted import DEFAULT_CAPABILITIES

Q, OUT, ERRORS = "queue:///orders", "queue:///invoices", "queue:///errors"
T = "book"
RUNS = int(os.environ.get("JMSCLIENT_TEST_RANDOM_RUNS", "8"))
SECONDS = 1.0
ByHand = Callable[[Worker], Worker]
DECIDED_DUPLICATE = ("decided: duplicate", "resolver: duplicate")


class Unreliable(MemoryHistory):
    """Does not answer while `off`; else loses the share `losing` of its replies. It outlives the workers, so it is durable here."""

    durable = True
    off = False
    losing = 0.0
    random = random.Random()

    def _check(self) -> None:
        if self.off:
            raise HistoryUnavailableError("switched off")

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        self._check()
        replies = super().exchange(commands)
        if self.random.random() < self.losing:
            raise HistoryUnavailableError("the reply was lost")
        return replies

    def lookup_many(self, trigger: str, ids: Any) -> list[Entry | None]:
        self._check()
        return super().lookup_many(trigger, ids)

    def decided(self, trigger: str | None = None, *, limit: int = 100) -> Any:
        self._check()
        return super().decided(trigger, limit=limit)


class Run:
    """One trigger with its settings, its handler and its resolver, and what became of each message."""

    def __init__(self, seed: int, clock: ManualClock, by_hand: ByHand) -> None:
        self.random = draw = random.Random(seed)
        self._of_handlers = random.Random(seed + 1)
        self._lock = threading.Lock()
        self._by_hand = by_hand
        self.history = Unreliable(clock=clock)
        self.history.random = random.Random(seed + 2)
        self.capabilities = replace(
            DEFAULT_CAPABILITIES, delayed_release=draw.random() < 0.3, hold_limit=draw.choice((None, None, 20.0))
        )
        batch = draw.choice((1, 1, 1, 3))
        self.transacted = draw.random() < 0.3
        self.settings: dict[str, Any] = {
            "concurrency": draw.choice((1, 1, 2, 4)),
            "batch": batch,
            "micro_batch": 1 if self.transacted or batch > 1 else draw.choice((1, 1, 3)),
            "transacted": self.transacted,
            "on_error": draw.choice(("dead_letter", "redeliver", "acknowledge")),
            "max_retries": draw.choice((0, 1, 2)),
            "retry_interval": 1.0,
            "on_retry_failure": draw.choice(("throw", "throw", "suspend")),
            "lease": 30.0,
            "prefetch": draw.choice((None, 1, 3, 20)),
            "history_unavailable": draw.choice(("suspend", "suspend", "in_doubt")),
            "error_destination": ERRORS,
            "resolver": self.resolve if draw.random() < 0.5 else None,
        }
        self.is_async = draw.random() < 0.3
        self.failover = draw.random() < 0.5
        self.url = ""
        self.calm = False
        self.ids: list[str] = []
        self.done: Counter[str] = Counter()
        self.said_new: Counter[str] = Counter()

    # -- what the application does ------------------------------------------------------------------------------------

    def _drawn(self) -> float:
        with self._lock:
            return self._of_handlers.random()

    def handle(self, deliveries: list[Delivery]) -> None:
        if not self.calm:
            if self._drawn() < 0.15:
                time.sleep(0.005)
            outcome = self._drawn()
            if outcome < 0.12:
                raise TransientError("later", retry_after=0.5 if outcome < 0.05 else None)
            if outcome < 0.2:
                raise ValueError("never")
        for delivery in deliveries:
            id_ = str(delivery.message.properties["uuid"])
            if self.transacted:
                delivery.send(OUT, "invoice", properties={"uuid": id_})
            else:
                self.done[id_] += 1

    def resolve(self, request: Any) -> Any:
        answer = self._drawn()
        if answer < 0.2:
            raise TransientError("later") if answer < 0.1 else ValueError("never")
        if answer < 0.5:
            self.said_new[request.id] += 1
            return Status.NEW
        return Status.DUPLICATE if answer < 0.75 else Status.IN_DOUBT

    def worker(self) -> Worker:
        def one(delivery: Delivery) -> None:
            self.handle([delivery])

        def many(deliveries: list[Delivery]) -> None:
            self.handle(deliveries)

        async def one_async(delivery: Delivery) -> None:
            await asyncio.sleep(0)
            self.handle([delivery])

        async def many_async(deliveries: list[Delivery]) -> None:
            await asyncio.sleep(0)
            self.handle(deliveries)

        batch = self.settings["batch"] > 1
        handler: Any = (many_async if batch else one_async) if self.is_async else (many if batch else one)
        worker = self._by_hand(Worker(self.url, history=self.history))
        worker.trigger(Q, name=T, **self.settings)(handler)
        worker.start()
        return worker

    # -- what happens to it -------------------------------------------------------------------------------------------

    def deliver_new(self, backend: ScriptedBackend) -> None:
        new = [str(len(self.ids) + number) for number in range(self.random.randint(1, 5))]
        self.ids += new
        backend.deliver(Q, [message(id_) for id_ in new])

    def deliver_copies(self, backend: ScriptedBackend) -> None:
        copies = [message(self.random.choice(self.ids[-8:])) for _ in range(self.random.randint(1, 3))]
        backend.deliver(Q, copies, delivery_count=self.random.choice((1, 1, 2, -1)))

    def decide(self) -> None:
        for parked in self.history.in_doubt(T)[:2]:
            status = self.random.choice((Status.NEW, Status.DUPLICATE))
            self.said_new[parked.id] += status is Status.NEW
            self.history.decide(T, parked.id, status, "ada", source=parked.source)

    def disturb(self, backend: ScriptedBackend, worker: Worker, clock: ManualClock) -> Worker:
        """One thing; returns the worker that runs then."""
        draw, what = self.random, self.random.random()
        trigger = worker.triggers[T]
        if what < 0.4 or not self.ids:
            self.deliver_new(backend)
        elif what < 0.6:
            self.deliver_copies(backend)
        elif what < 0.65:
            self.history.off = not self.history.off
        elif what < 0.68:
            self.history.losing = draw.choice((0.0, 0.0, 0.3))
        elif what < 0.73:
            draw.choice((trigger.suspend, trigger.resume, trigger.resume))()
        elif what < 0.77:
            trigger.disable(grace=draw.choice((0.0, 0.01, 1.0)))
        elif what < 0.83:
            trigger.enable()
        elif what < 0.86 and self.failover:
            draw.choice((backend.lose_link, backend.close_receivers))()
        elif what < 0.90:
            worker.stop(draw.choice((0.0, 0.05, 5.0)))
            return self.worker()
        elif what < 0.93:
            self.decide()
        else:
            clock.advance(draw.choice((0.5, 2.0, 6.0)))
        return worker

    # -- what has to be true in the end ---------------------------------------------------------------------------------

    def faults(self, backend: ScriptedBackend) -> list[str]:
        """Of messages that are all settled."""
        done = Counter(str(one.properties()["uuid"]) for one in backend.waiting(OUT)) if self.transacted else self.done
        dead = {one.properties()["uuid"] for one in backend.waiting(ERRORS)}
        parked = {one.id for one in self.history.in_doubt(T)}
        found = []
        for id_ in self.ids:
            entry = self.history.lookup(T, id_, source="uuid")
            if done[id_] > 1 + self.said_new[id_]:
                found.append(f"{id_} was done {done[id_]} times, though New was said {self.said_new[id_]} times: {entry}")
            if entry is None:
                found.append(f"{id_} is not known: done {done[id_]} times")
            elif entry.state is State.COMPLETED:
                settled = (
                    done[id_] or id_ in dead or entry.outcome in DECIDED_DUPLICATE or self.settings["on_error"] == "acknowledge"
                )
                found += [] if settled else [f"{id_} is completed, and nothing was done: {entry}"]
            elif entry.state is State.PROCESSING and self.transacted and done[id_] == 1:
                pass  # committed, and its worker could not say so: a further copy would be In Doubt
            elif id_ not in parked and entry.decision != "new":  # its run was cut off, and will be In Doubt again
                found.append(f"{id_} is lost: {entry}")
        return found


def message(uuid: str) -> Message:
    return Message("order", properties={"uuid": uuid})


@contextmanager
def passing(clock: ManualClock) -> Iterator[None]:
    """Time passes, twenty times as fast."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(0.001):
            clock.advance(0.02)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("seed", range(RUNS))
def test_whatever_happens_each_message_is_done_once_or_in_doubt(clock: ManualClock, by_hand: ByHand, seed: int) -> None:
    run = Run(seed, clock, by_hand)
    with ScriptedBackend(run.capabilities) as backend, passing(clock):
        settings = "initial_reconnect_delay=0.001&max_reconnect_delay=0.01"
        run.url = f"failover:({backend.url})?{settings}" if run.failover else backend.url
        worker = run.worker()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                worker = run.disturb(backend, worker, clock)
            except (HistoryUnavailableError, IllegalStateError):  # nothing can be decided now; it is enabled while it stops
                pass
            time.sleep(run.random.random() * 0.01)
        run.calm, run.history.off, run.history.losing = True, False, 0.0
        worker.triggers[T].enable()
        end = time.monotonic() + 60.0  # the same worker has to finish all of it
        while backend.waiting(Q) or backend.unsettled(Q) or run.history.decided(T):
            assert time.monotonic() < end, (backend.waiting(Q), backend.unsettled(Q), worker.triggers[T].reason, run.settings)
            worker.triggers[T].resume()
            clock.advance(1.0)
            time.sleep(0.003)
        assert worker.triggers[T].error is None
        assert worker.stop(200.0).clean
        assert run.faults(backend) == [], run.settings
        assert backend.violations == []
