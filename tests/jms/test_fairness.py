"""Nobody hoards work: what a busy consumer has not begun is there for the others (P08, RA-13, IF-16, IF-17)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import Connection, ConsumerOptions, Message

Put = Callable[..., list[str]]
Until = Callable[..., None]


class Slow:
    """A listener that stays in the message `m1` until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began = threading.Event()
        self.done: list[str | None] = []

    def __call__(self, message: Message) -> None:
        if message.text == "m1":
            self.began.set()
            assert self.go.wait(30)
        self.done.append(message.text)


@pytest.fixture
def slow() -> Any:
    slow = Slow()
    yield slow
    slow.go.set()


def test_p08_a_busy_consumer_holds_no_second_message(connection: Connection, put: Put, slow: Slow, wait_until: Until) -> None:
    """P08: no prefetch; two listeners, then a third."""
    consumers = [connection.create_session().create_consumer("Q", listener=slow, prefetch=0) for _ in range(2)]
    put("m1")
    assert slow.began.wait(20)
    put("m2", "m3")
    wait_until(lambda: sorted(map(str, slow.done)) == ["m2", "m3"])
    consumers.append(connection.create_session().create_consumer("Q", listener=slow, prefetch=0))
    put("m4")
    wait_until(lambda: "m4" in slow.done)
    if connection.capabilities.administration:
        assert connection.administration.statistics("Q").messages_pending == 1
    assert sum(consumer.read_ahead.buffered_messages for consumer in consumers) == 0
    slow.go.set()
    wait_until(lambda: "m1" in slow.done)


def test_p08_with_a_window_of_one_at_most_one_waits_behind_it(
    connection: Connection, put: Put, slow: Slow, wait_until: Until
) -> None:
    """P08: non-persistent, read ahead of one."""
    options = ConsumerOptions(read_ahead_messages=1)
    consumer = connection.create_session().create_consumer("queue:///Q?readAheadAllowed=YES", listener=slow, options=options)
    put("m1", persistent=False)
    assert slow.began.wait(20)
    put("m2", "m3", "m4", persistent=False)
    other = connection.create_session().create_consumer("Q", prefetch=0)
    found = [other.receive(10), other.receive(10), other.receive(0)]
    assert [message and message.text for message in found] == ["m3", "m4", None]
    assert consumer.read_ahead.buffered_messages == 1
    slow.go.set()
    wait_until(lambda: slow.done == ["m1", "m2"])


def test_ra13_a_receiver_that_takes_nothing_gives_its_window_back(connection: Connection, put: Put, wait_until: Until) -> None:
    put("m2", "m3")
    hoarding = connection.create_session().create_consumer("Q", options=ConsumerOptions(idle_timeout=0.2))
    wait_until(lambda: hoarding.read_ahead.buffered_messages == 2)
    other = connection.create_session().create_consumer("Q")
    first = other.receive(5)
    assert first is not None
    assert (first.text, first.delivery_count) == ("m2", 1)
