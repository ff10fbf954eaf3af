"""Cases from the field about triggers: a killed worker's marker (D01), a handler longer than its lease (D03), back-off (R06)."""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from jmsclient import Delivery, Status, Worker, connect
from jmsclient.history import State, open_history
from jmsclient.testing import TestBroker

PROGRAM = Path(__file__).with_name("kill_program.py")
Q = "queue:///orders"
Until = Callable[..., None]


@pytest.mark.real
@pytest.mark.parametrize("resolves", [False, True])
def test_d01_a_killed_workers_marker_holds_for_its_lease_and_not_for_the_history_ttl(
    redis_url: str, tmp_path: Path, until: Until, resolves: bool
) -> None:
    store, effects, trigger = tmp_path / "shop.db", tmp_path / "effects", f"orders-{uuid4().hex}"
    uuid = uuid4().hex
    with connect(f"embedded:kill?store={store}") as connection:
        connection.create_session().create_producer(Q).send("one", properties={"uuid": uuid})
    killed = subprocess.run(
        [sys.executable, str(PROGRAM), str(store), redis_url, str(effects), trigger, "after_effect"],
        env={**os.environ, "KILL_LEASE": "2"},
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL

    ran: list[tuple[int, int]] = []
    worker = Worker(f"embedded:kill?store={store}", history=redis_url)

    @worker.trigger(Q, name=trigger, lease=2.0, history_ttl=3600.0, resolver=(lambda request: Status.NEW) if resolves else None)
    def book(delivery: Delivery) -> None:
        ran.append((delivery.delivery_count, delivery.attempt))

    with open_history(redis_url) as history, worker:
        counters = worker.triggers[trigger].pipeline.counters
        while True:
            seen = (list(ran), counters.duplicate, counters.completed, counters.parked)  # before the lease is found alive
            entry = history.lookup(trigger, uuid, source="uuid")
            if entry is None or not entry.lease_alive:
                break
            assert seen == ([], 0, 0, 0)
            time.sleep(0.05)
        assert counters.in_progress <= 3  # a bounded pace, no busy loop
        if resolves:
            until(lambda: counters.completed == 1)
            assert history.lookup(trigger, uuid, source="uuid").state is State.COMPLETED  # type: ignore[union-attr]
        else:
            until(lambda: counters.parked == 1)
            assert [(one.id, one.reason, one.delivery_count) for one in history.in_doubt(trigger)] == [(uuid, "abandoned", 2)]
    assert ran == ([(2, 2)] if resolves else [])
    with connect(f"embedded:kill?store={store}") as connection:
        assert connection.create_session().create_consumer(Q).receive_no_wait() is None


@pytest.mark.real
def test_d03_a_handler_longer_than_its_lease_runs_once_and_its_copy_waits(redis_url: str, until: Until, tmp_path: Path) -> None:
    entered: list[str] = []
    workers = [Worker(history=redis_url, name=tmp_path.name) for _ in range(2)]

    def book(body: str) -> None:
        entered.append(body)
        threading.Event().wait(3.5)

    with TestBroker() as broker:
        for worker in workers:
            worker.url = broker.url
            worker.trigger(Q, lease=2.0, prefetch=1)(book)
        with workers[0], workers[1]:
            broker.send(Q, "slow", properties={"uuid": "x"})
            until(lambda: entered == ["slow"])
            broker.send(Q, "slow", properties={"uuid": "x"})  # a second copy: the other worker has it
            with open_history(redis_url, namespace=tmp_path.name) as history:
                end = time.monotonic() + 3.0
                while time.monotonic() < end:
                    entry = history.lookup(Q, "x", source="uuid")
                    assert entry is not None
                    assert (entry.state, entry.lease_alive, entry.attempt) == (State.PROCESSING, True, 1)
                    time.sleep(0.1)
            until(lambda: sum(worker.triggers[Q].pipeline.counters.duplicate for worker in workers) == 1)
            assert sum(worker.triggers[Q].pipeline.counters.completed for worker in workers) == 1
            until(lambda: broker.messages(Q) == [])
    assert entered == ["slow"]


def test_r06_each_message_waits_as_its_own_count_says(until: Until) -> None:
    seen: dict[str, list[tuple[int, float]]] = {}
    worker = Worker(history="memory:")

    @worker.trigger(Q, concurrency=4, on_error="redeliver")
    def book(body: str, delivery: Delivery) -> None:
        seen.setdefault(body, []).append((delivery.delivery_count, time.monotonic()))
        raise ValueError("always")

    url = f"embedded:r06-{secrets.token_hex(4)}"
    with connect(url) as connection:
        connection.administration.create_queue("E")
        connection.administration.create_queue(
            "orders", redelivery_delay=0.1, redelivery_multiplier=2.0, redelivery_limit=4, error_destination="E"
        )
        started = time.monotonic()
        with TestBroker(worker, url=url) as broker:
            for number in range(20):
                broker.send(Q, str(number))
            until(lambda: len(broker.messages("queue:///E")) == 20)
            assert time.monotonic() - started < 15.0  # one after the other it would be half a minute
    assert len(seen) == 20
    for times in seen.values():
        assert [count for count, _ in times] == [1, 2, 3, 4, 5]
        gaps = [later - earlier for (_, earlier), (_, later) in itertools.pairwise(times)]
        for gap, planned in zip(gaps, (0.1, 0.2, 0.4, 0.8), strict=True):
            assert planned * 0.5 <= gap <= planned * 1.5 + 5.0  # and what a busy machine adds
