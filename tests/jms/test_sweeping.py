"""What waits too long: expiry, purge, idle release and the hold limit, run by the keeper (RA-11, RA-13, RA-15, IF-21, RA-26)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from jmsclient import Connection, Message, MessageConsumer
from jmsclient.events import Event, subscribe
from jmsclient.options import ConnectionOptions, ConsumerOptions
from jmsclient.testing import ManualClock
from jmsclient.testing.scripted import DEFAULT_CAPABILITIES, ScriptedBackend
from jmsclient.transport.registry import parse_url

Put = Callable[..., list[str]]
Rest = Callable[..., list[tuple[str | None, int]]]
Balanced = Callable[[MessageConsumer], bool]
Until = Callable[..., None]
TAKES = "queue:///Q?readAheadAllowed=YES"


@pytest.fixture
def events() -> Iterator[list[Event]]:
    found: list[Event] = []
    unsubscribe = subscribe(found.append)
    yield found
    unsubscribe()


def named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event.name == name]


def pass_until(clock: ManualClock, condition: Callable[[], object], *, limit: float) -> float:
    """Let time pass in small steps until something is true; how many seconds that took."""
    start = clock.monotonic()
    while not condition():
        assert clock.monotonic() - start <= limit, f"not true within {limit} s"
        clock.advance(0.5)
        time.sleep(0.01)
    return clock.monotonic() - start


def got(consumer: MessageConsumer) -> Message:
    message = consumer.receive(5)
    assert message is not None
    return message


def test_ra13_if21_idle_kept_messages_go_back_uncounted(
    timed: Connection,
    clock: ManualClock,
    put: Put,
    rest: Rest,
    balanced: Balanced,
    wait_until: Until,
    events: list[Event],
) -> None:
    put("a", "b", "c")
    session = timed.create_session()
    consumer = session.create_consumer("Q", options=ConsumerOptions(idle_timeout=8))
    wait_until(lambda: consumer.read_ahead.buffered_messages == 3)
    assert got(consumer).text == "a"
    assert pass_until(clock, lambda: named(events, "idle"), limit=16) >= 8
    assert (consumer.read_ahead.released, consumer.read_ahead.buffered_messages, consumer.intake.counters.granted) == (2, 0, 0)
    event = named(events, "idle")[0]
    assert (event.fields["released"], "Q" in event.fields["consumer"], "Q" in event.text) == (2, True, True)
    assert balanced(consumer)
    assert rest() == [("b", 1), ("c", 1)]


def test_ra13_asking_again_brings_them_back(
    timed: Connection, clock: ManualClock, put: Put, balanced: Balanced, wait_until: Until
) -> None:
    put("a", "b")
    session = timed.create_session()
    consumer = session.create_consumer("Q", options=ConsumerOptions(idle_timeout=4))
    wait_until(lambda: consumer.read_ahead.buffered_messages == 2)
    pass_until(clock, lambda: consumer.read_ahead.released == 2, limit=16)
    assert [(message.text, message.delivery_count) for message in (got(consumer), got(consumer))] == [("a", 1), ("b", 1)]
    assert balanced(consumer)


def test_ra13_whoever_takes_is_not_idle(
    timed: Connection, clock: ManualClock, put: Put, balanced: Balanced, wait_until: Until
) -> None:
    put(*map(str, range(10)))
    session = timed.create_session()
    consumer = session.create_consumer("Q", options=ConsumerOptions(idle_timeout=4))
    wait_until(lambda: consumer.read_ahead.buffered_messages == 10)
    for _ in range(6):
        clock.advance(2)
        time.sleep(0.02)
        got(consumer)
    assert (consumer.read_ahead.released, consumer.read_ahead.buffered_messages) == (0, 4)
    assert balanced(consumer)


def test_ra13_on_a_stopped_connection_too(
    timed: Connection, clock: ManualClock, put: Put, rest: Rest, balanced: Balanced, wait_until: Until
) -> None:
    """IF-20: a stopped connection keeps its buffer; RA-13 then applies."""
    put("a", "b")
    session = timed.create_session()
    consumer = session.create_consumer("Q", options=ConsumerOptions(idle_timeout=4))
    wait_until(lambda: consumer.read_ahead.buffered_messages == 2)
    timed.stop()
    pass_until(clock, lambda: consumer.read_ahead.released == 2, limit=16)
    timed.start()
    assert balanced(consumer)
    assert rest() == [("a", 1), ("b", 1)]


def test_ra13_taken_ones_stay_and_the_status_reads_backlog(
    timed: Connection, clock: ManualClock, put: Put, balanced: Balanced, wait_until: Until, events: list[Event]
) -> None:
    put("n1", "n2", persistent=False)
    put("p3")
    session = timed.create_session()
    consumer = session.create_consumer(TAKES, options=ConsumerOptions(idle_timeout=4))
    wait_until(lambda: consumer.read_ahead.buffered_messages == 3)
    assert consumer.read_ahead.status.name == "YES"
    pass_until(clock, lambda: named(events, "idle"), limit=16)
    assert (consumer.read_ahead.status.name, consumer.read_ahead.buffered_taken, consumer.read_ahead.released) == ("BACKLOG", 2, 1)
    assert "BACKLOG" in consumer.read_ahead.explain()
    assert [got(consumer).text for _ in range(3)] == ["n1", "n2", "p3"]
    assert consumer.read_ahead.status.name == "YES"
    assert balanced(consumer)


def test_ra11_purge_drops_taken_ones_and_gives_kept_ones_back(
    timed: Connection, clock: ManualClock, put: Put, rest: Rest, balanced: Balanced, wait_until: Until, events: list[Event]
) -> None:
    ids = put("n1", persistent=False) + put("p2")
    session = timed.create_session()
    consumer = session.create_consumer(TAKES, options=ConsumerOptions(purge_after=4, idle_timeout=0, read_ahead_messages=2))
    wait_until(lambda: consumer.read_ahead.buffered_messages == 2)
    assert pass_until(clock, lambda: len(named(events, "purged")) == 2, limit=8) >= 4
    purged = named(events, "purged")
    assert [event.fields["message_id"] for event in purged] == ids
    assert [event.fields["kept"] for event in purged] == [False, True]
    assert all(event.fields["age"] >= 4 for event in purged)
    assert (consumer.read_ahead.purged, consumer.read_ahead.buffered_messages) == (2, 0)
    assert balanced(consumer)
    message = got(consumer)  # the kept one comes again, for nothing of it was lost
    assert (message.text, message.delivery_count) == ("p2", 1)
    assert balanced(consumer)
    session.close()
    assert rest() == []


def test_ra11_without_purge_after_nothing_is_purged(
    timed: Connection, clock: ManualClock, put: Put, balanced: Balanced, wait_until: Until
) -> None:
    put("n", persistent=False)
    session = timed.create_session()
    consumer = session.create_consumer(TAKES, options=ConsumerOptions(idle_timeout=0))
    wait_until(lambda: consumer.read_ahead.buffered_messages == 1)
    clock.advance(3600)
    assert got(consumer).text == "n"
    assert (consumer.read_ahead.purged, balanced(consumer)) == (0, True)


@pytest.mark.parametrize("persistent", [True, False])
def test_ra11_an_expired_message_is_never_handed_over(
    timed: Connection, clock: ManualClock, balanced: Balanced, wait_until: Until, persistent: bool
) -> None:
    session = timed.create_session()
    session.create_producer("Q", persistent=persistent, time_to_live=5).send("old")
    session.create_producer("Q", persistent=persistent).send("new")
    consumer = session.create_consumer(TAKES)
    wait_until(lambda: consumer.read_ahead.buffered_messages == 2)
    clock.advance(6)
    assert got(consumer).text == "new"
    assert (consumer.read_ahead.expired, balanced(consumer)) == (1, True)


def test_ra15_a_kept_message_goes_back_at_half_the_hold_limit(clock: ManualClock, events: list[Event], wait_until: Until) -> None:
    """RA-15: so that the provider's lock never ends while it waits; a taken one has nobody's lock, and stays."""
    capabilities = replace(DEFAULT_CAPABILITIES, hold_limit=20.0)
    with ScriptedBackend(capabilities) as backend:
        endpoint = replace(parse_url(backend.url), clock=clock)
        with Connection(endpoint, start=True, request_timeout=10.0, options=ConnectionOptions()) as timed:
            backend.deliver("Q", "n", persistent=False)
            backend.deliver("Q", ["p", "q"])
            consumer = timed.create_session().create_consumer(TAKES, options=ConsumerOptions(idle_timeout=0))
            wait_until(lambda: consumer.read_ahead.buffered_messages == 3)
            passed = pass_until(clock, lambda: consumer.read_ahead.released == 2, limit=15)
            assert 10 <= passed < 15
            (event,) = named(events, "hold_limit")
            assert event.fields["released"] == 2
            wait_until(lambda: consumer.read_ahead.buffered_messages == 3)  # asked for before, so they come again: held anew
            assert consumer.read_ahead.buffered_taken == 1
            found = [got(consumer) for _ in range(3)]
            assert [(message.text, message.delivery_count) for message in found] == [("n", 1), ("p", 1), ("q", 1)]


def test_ra15_without_a_limit_nothing_is_given_back(timed: Connection, clock: ManualClock, put: Put, wait_until: Until) -> None:
    put("a")
    consumer = timed.create_session().create_consumer("Q", options=ConsumerOptions(idle_timeout=0))
    wait_until(lambda: consumer.read_ahead.buffered_messages == 1)
    clock.advance(100_000)
    assert got(consumer).delivery_count == 1
    assert consumer.read_ahead.released == 0
