"""What waits in a trigger's buffer behind busy handlers goes back after a while, uncounted, and comes again when one is free."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from jmsclient import ConsumerOptions, Delivery, Worker
from jmsclient.events import Event
from jmsclient.testing import ScriptedBackend, TestBroker
from jmsclient.transport.capabilities import Capabilities

Q = "queue:///orders"
Until = Callable[..., None]


@pytest.mark.parametrize("concurrency", [1, 2])  # one is inline: the stand-in looks
def test_ra13_what_no_handler_takes_goes_to_others_and_demand_comes_back(
    until: Until, events: list[Event], monkeypatch: pytest.MonkeyPatch, concurrency: int
) -> None:
    monkeypatch.setattr("jmsclient.trigger.lane.ConsumerOptions", partial(ConsumerOptions, idle_timeout=0.2))
    go_on = threading.Event()
    counts: list[tuple[str, int]] = []
    slow, quick = Worker(history="memory:"), Worker(history="memory:")

    @slow.trigger(Q, prefetch=10, concurrency=concurrency)
    def hoard(body: str) -> None:
        assert go_on.wait(60)

    @quick.trigger(Q)
    def book(body: str, delivery: Delivery) -> None:
        counts.append((body, delivery.delivery_count))

    with TestBroker() as broker:
        slow.url = quick.url = broker.url
        with slow:
            for number in range(6):
                broker.send(Q, str(number))
            until(lambda: slow.triggers[Q].pipeline._intake.counters.delivered == concurrency)
            with quick:
                until(lambda: len(counts) == 6 - concurrency)
                assert all(count == 1 for _, count in counts)
            go_on.set()
            broker.send(Q, "again")
            until(lambda: slow.triggers[Q].counters["completed"] == concurrency + 1)
            assert broker.messages(Q) == []
    assert [one.name for one in events].count("idle") >= 1


def test_ra15_nothing_waits_longer_than_half_of_what_the_provider_allows(until: Until, events: list[Event]) -> None:
    go_on = threading.Event()
    worker = Worker(history="memory:")

    @worker.trigger(Q, prefetch=5, concurrency=2)
    def book(body: str) -> None:
        assert go_on.wait(60)

    capabilities = Capabilities(drain="yes", reject="dead_letter", release_without_count=True, hold_limit=0.4)
    with ScriptedBackend(capabilities=capabilities) as backend:
        worker.url = backend.url
        backend.deliver(Q, [str(number) for number in range(4)])
        with worker:
            until(lambda: any(one.name == "hold_limit" for one in events))
            until(lambda: len(backend.settlements) >= 2)
            go_on.set()
            until(lambda: worker.triggers[Q].counters["completed"] == 4)
        assert backend.violations == []
