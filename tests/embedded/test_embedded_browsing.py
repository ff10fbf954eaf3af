"""Browsing: only what is visible, and nothing changes by it (IF-11, the pause table)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jmsclient.errors import (
    InvalidDestinationError,
)
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Arrival
from jmsclient_embedded.receiver import EmbeddedReceiver

from .conftest import Client, Connect, RecordingSink, content

T = "topic:///t"


def subscribe(client: Client, kind: str, name: str | None = "s", *, demand: int = 0, **spec: Any) -> Any:
    return client.receiver(T, kind=kind, name=None if kind == "topic" else name, demand=demand, **spec)


def take(sink: RecordingSink, receiver: EmbeddedReceiver, number: int) -> list[object]:
    """Have `number` arrive and acknowledge them."""
    start = len(sink.arrivals)
    receiver.request(number)
    arrivals = sink.wait(start + number)[start:]
    receiver.settle(arrivals, ACCEPT)
    return [one.content.body() for one in arrivals]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


# -- browsing ------------------------------------------------------------------------------------------------------------


def test_browse_sees_what_could_be_taken_and_changes_nothing(timed: Client, connect: Connect, url: str, clock: ManualClock) -> None:
    timed.send("a", "held", content("unborn", delivery_time=clock.wall() + 10), content("high", priority=9))
    tx = connect(url, clock, transacted=True)
    tx.send("uncommitted")
    timed.receiver(demand=1, selector="JMSPriority = 9")[1].wait(1)
    before = timed.stats()
    assert timed.bodies() == ["a", "held"]
    assert timed.bodies() == ["a", "held"]
    assert timed.stats() == before
    browser, sink = timed.receiver(kind="browse", demand=5, selector="JMSMessageID is not null")
    browser.drain(None)
    assert sink.bodies == ["a", "held"]
    assert all(arrival.settled for arrival in sink.arrivals)
    browser.settle(sink.arrivals, RETRY)
    assert timed.stats() == before


def test_browse_in_steps_and_drain(client: Client) -> None:
    """When a drain returns, all that was visible when it began has arrived, as far as it was asked for."""
    client.send(*map(str, range(10)))
    slow: list[int] = []

    def on_batch(batch: list[Arrival]) -> None:
        slow.append(len(batch))

    browser, sink = client.receiver(kind="browse", on_batch=on_batch)
    browser.request(3)
    browser.drain(None)
    assert sink.bodies == ["0", "1", "2"]
    browser.request(100)
    browser.drain(None)
    assert sink.bodies == [str(number) for number in range(10)]
    assert slow == [3, 7]


def test_browse_skips_what_was_taken_meanwhile(client: Client) -> None:
    client.send("a", "b", "c")
    browser, sink = client.receiver(kind="browse", demand=1)
    browser.drain(None)
    receiver, arrivals = client.take(2)
    browser.request(5)
    browser.drain(None)
    assert sink.bodies == ["a", "c"]
    receiver.settle(arrivals, RELEASE)


def test_a_topic_cannot_be_browsed(client: Client) -> None:
    client.send("a", queue=T)
    with pytest.raises(InvalidDestinationError):
        client.receiver(T, kind="browse")


@pytest.mark.parametrize(("place", "kind"), [("q", "topic"), ("q", "durable"), (T, "queue")])
def test_a_kind_that_does_not_fit_the_place(client: Client, place: str, kind: str) -> None:
    with pytest.raises(InvalidDestinationError):
        client.receiver(place, kind=kind, name="s")


@pytest.mark.parametrize("how", ["failed", "moved"])
def test_what_a_topics_consumer_gave_up_is_as_safe_as_its_new_place(connect: Connect, file: Path, how: str) -> None:
    """A subscription that is not durable stores nothing; the queue where its persistent message goes then does (T15, T17)."""
    url = f"embedded:?store={file}"
    client = connect(url)
    client.admin.create_topic("t", redelivery_limit=0)
    client.admin.create_queue("DLQ")
    receiver, sink = subscribe(client, "topic", demand=2 if how == "failed" else 0)
    client.send("p", content("n", persistent=False), queue=T)
    if how == "failed":
        sink.wait(2)
        receiver.settle(sink.arrivals, RETRY)
        client.session.flush(None)
    else:
        client.admin.pause_consumption(T)
        client.admin.move(T, "DLQ")
    assert client.bodies("DLQ") == ["p", "n"]
    client.transport.close(None)
    assert connect(url).bodies("DLQ") == ["p"]
