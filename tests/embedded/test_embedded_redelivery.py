"""Redelivery: limits (IF-13), delays and back-off (IF-14, R05, R06), what error destinations are told (R09, T15)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection
from jmsclient.message import MessageKind, PlainContent
from jmsclient.options import ConnectionOptions
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Outcome, Verb
from jmsclient.transport.registry import parse_url
from jmsclient_embedded.dead_letter import DELIVERIES, FAILED_AT, ORIGINAL_DESTINATION, REASON

from .conftest import Client, Connect, content, hand, until


def timed_connection(url: str, clock: ManualClock) -> Connection:
    return Connection(replace(parse_url(url), clock=clock), start=True, request_timeout=10.0, options=ConnectionOptions())


def fail(client: Client, *, delay: float = 0.0, number: int = 1, queue: str = "q") -> list[int]:
    """One attempt at each of `number` messages that fails; the delivery counts that were seen."""
    receiver, arrivals = client.take(number, queue, hand_over=True)
    receiver.settle(arrivals, Outcome(verb=Verb.RETRY, delay=delay))
    receiver.close(None)
    client.session.flush(None)
    return [arrival.delivery_count for arrival in arrivals]


def wait_visible(client: Client, clock: ManualClock, after: float, number: int = 1) -> None:
    """Not before `after` seconds, and then."""
    clock.advance(after - 0.001)
    client.session.flush(None)
    assert client.numbers() == (0, number)
    clock.advance(0.002)
    until(lambda: client.numbers() == (number, 0))


# -- the limit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_if_13_n_redeliveries_then_the_error_destination_at_the_failing_rollback(client: Client, limit: int) -> None:
    client.admin.create_queue("q", redelivery_limit=limit)
    client.send("a")
    assert [fail(client) for _ in range(limit)] == [[count] for count in range(1, limit + 1)]
    assert client.bodies("DLQ") == []
    assert fail(client) == [limit + 1]
    assert client.bodies("DLQ") == ["a"]
    assert client.numbers() == (0, 0)


def test_if_13_minus_one_has_no_end(client: Client) -> None:
    client.send("a")
    assert [fail(client) for _ in range(20)] == [[count] for count in range(1, 21)]


@pytest.mark.parametrize("how", ["rollback", "close", "crash", "listener"])
def test_if_13_each_way_of_t14_is_checked(client: Client, connect: Connect, how: str) -> None:
    client.admin.create_queue("q", redelivery_limit=0)
    client.send("a")
    other = connect(transacted=how == "rollback")
    receiver, arrivals = other.take(1, hand_over=True)
    if how == "rollback":
        receiver.settle(arrivals, ACCEPT)
        other.rollback()
    elif how == "close":
        other.session.close(None)
    elif how == "crash":
        other.transport.lose()
    else:
        receiver.settle(arrivals, RETRY)
    until(lambda: client.bodies("DLQ") == ["a"])
    assert client.numbers() == (0, 0)


def test_if_13_a_release_is_no_attempt(client: Client) -> None:
    client.admin.create_queue("q", redelivery_limit=0)
    client.send("a")
    for _ in range(5):
        receiver, arrivals = client.take(1)
        assert arrivals[0].delivery_count == 1
        receiver.settle(arrivals, RELEASE)
        receiver.close(None)
    assert client.bodies() == ["a"]


# -- the delay -----------------------------------------------------------------------------------------------------------


def test_if_14_default_is_no_delay(timed: Client) -> None:
    timed.send("a")
    fail(timed)
    assert timed.numbers() == (1, 0)


def test_if_14_the_sessions_value(timed: Client, clock: ManualClock) -> None:
    timed.send("a")
    fail(timed, delay=2.0)
    assert timed.stats().pending_by_kind.redelivery_delay == 1
    wait_visible(timed, clock, 2.0)


@pytest.mark.parametrize("override", [0.0, 3.0])
def test_if_14_the_destinations_override_wins_in_both_directions(timed: Client, clock: ManualClock, override: float) -> None:
    timed.admin.create_queue("q", redelivery_delay=override)
    timed.send("a")
    fail(timed, delay=60.0)
    if override:
        wait_visible(timed, clock, override)
    else:
        assert timed.numbers() == (1, 0)
    fail(timed)
    assert timed.numbers() == ((0, 1) if override else (1, 0))


def test_if_14_minus_one_does_not_override(timed: Client, clock: ManualClock) -> None:
    timed.admin.create_queue("q", redelivery_delay=-1.0)
    timed.send("a")
    fail(timed, delay=5.0)
    wait_visible(timed, clock, 5.0)


def test_if_14_the_override_is_read_when_it_fails(timed: Client, clock: ManualClock) -> None:
    """R05: a new delay affects later rollbacks only."""
    timed.admin.create_queue("q", redelivery_delay=2.0)
    timed.send("a", "b")
    fail(timed)
    timed.admin.create_queue("q", redelivery_delay=0.0)
    fail(timed)
    assert timed.bodies() == ["b"]
    clock.advance(2.1)
    until(lambda: timed.bodies() == ["a", "b"])


@pytest.mark.parametrize("how", ["close", "crash", "session of a connection"])
def test_if_14_never_on_close_or_crash(timed: Client, connect: Connect, url: str, clock: ManualClock, how: str) -> None:
    """R05, IF-10: the delay belongs to rollback and recover."""
    timed.admin.create_queue("q", redelivery_delay=100.0)
    timed.send("a")
    other = connect(url, clock)
    other.take(1, hand_over=True)
    if how == "close":
        other.session.close(None)
    elif how == "crash":
        other.transport.lose()
    else:
        other.transport.close(None)
    assert timed.shown() == [("visible", 1)]


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.TRANSACTED])
@pytest.mark.parametrize("what", ["consumer and session", "session", "connection", "lost"])
def test_r05_closing_a_session_of_the_public_api_is_not_delayed(
    timed: Client, url: str, clock: ManualClock, mode: AcknowledgeMode, what: str
) -> None:
    """R05, second part; IF-14."""
    timed.admin.create_queue("q", redelivery_delay=100.0)
    timed.send("m4", "m5")
    connection = timed_connection(url, clock)
    session = connection.create_session(mode, redelivery_delay=50.0)
    consumer = session.create_consumer("q")
    message = consumer.receive(5)
    assert message is not None
    if what == "lost":
        connection.transport.lose()  # type: ignore[attr-defined]
    elif what == "connection":
        connection.close()
    else:
        if what == "consumer and session":
            consumer.close()
        session.close()
    assert timed.shown() == [("visible", 1), ("visible", 0)]
    connection.close()


def test_r05_the_delay_is_the_messages_not_the_consumers(timed: Client, connect: Connect, url: str, clock: ManualClock) -> None:
    """R05, first part, through TRANSACTED sessions of the public API."""
    timed.send("m1", "m2", "m3")
    with timed_connection(url, clock) as connection:
        session = connection.create_session(AcknowledgeMode.TRANSACTED, redelivery_delay=2.0)
        consumer = session.create_consumer("q", prefetch=1)
        with connection.create_session() as second:
            other = second.create_consumer("q", prefetch=0)
            first = consumer.receive(5)
            assert first is not None
            assert first.text == "m1"
            session.rollback()
            got = []
            for _ in range(2):
                message = consumer.receive_no_wait()
                assert message is not None
                got.append(message.text)
                session.commit()
            assert got == ["m2", "m3"]
            assert timed.numbers() == (0, 1)
            clock.advance(0.5)
            session.redelivery_delay = 0.0
            assert consumer.receive_no_wait() is None
            assert other.receive_no_wait() is None
            clock.advance(1.4)
            assert consumer.receive_no_wait() is None
            assert timed.stats().pending_by_kind.redelivery_delay == 1
            clock.advance(0.2)
            again = consumer.receive(5)
            assert again is not None
            assert (again.text, again.delivery_count) == ("m1", 2)
            session.rollback()
            message = consumer.receive_no_wait()
            assert message is not None
            assert message.delivery_count == 3
            session.commit()
    assert timed.numbers() == (0, 0)


def test_if_14_recover_of_a_client_session_uses_the_sessions_delay_then(timed: Client, url: str, clock: ManualClock) -> None:
    timed.send("a", "b")
    with timed_connection(url, clock) as connection, connection.create_session(AcknowledgeMode.CLIENT) as session:
        session.redelivery_delay = 4.0
        consumer = session.create_consumer("q")
        assert consumer.receive(5) is not None
        session.recover()
        message = consumer.receive_no_wait()
        assert message is not None
        assert message.text == "b"
        session.acknowledge()
        clock.advance(4.1)
        again = consumer.receive(5)
        assert again is not None
        assert (again.text, again.delivery_count) == ("a", 2)
        session.acknowledge()


# -- back-off ------------------------------------------------------------------------------------------------------------


def test_r06_the_delay_grows_with_the_messages_own_count(timed: Client, clock: ManualClock) -> None:
    """R06: two messages that fail together wait each as its own count says."""
    timed.admin.create_queue("q", redelivery_delay=0.1, redelivery_multiplier=2.0, redelivery_limit=4)
    timed.send("old")
    for gap in (0.1, 0.2):
        fail(timed)
        wait_visible(timed, clock, gap)
    timed.send("new")
    fail(timed, number=2)
    clock.advance(0.101)
    until(lambda: timed.bodies() == ["new"])
    clock.advance(0.3)
    until(lambda: timed.bodies() == ["old", "new"])
    fail(timed, number=2)
    clock.advance(0.201)
    until(lambda: timed.bodies() == ["new"])
    clock.advance(0.598)
    timed.session.flush(None)
    assert timed.bodies() == ["new"]
    clock.advance(0.002)
    until(lambda: timed.bodies() == ["old", "new"])


@pytest.mark.parametrize("number", [1, 20])
def test_r06_gaps_of_one_and_of_many_are_the_same(timed: Client, clock: ManualClock, number: int) -> None:
    timed.admin.create_queue("q", redelivery_delay=0.1, redelivery_multiplier=2.0, redelivery_limit=4)
    timed.send(*map(str, range(number)))
    for count, gap in enumerate((0.1, 0.2, 0.4, 0.8), 1):
        assert fail(timed, number=number) == [count] * number
        wait_visible(timed, clock, gap, number)
    fail(timed, number=number)
    assert timed.bodies("DLQ") == [str(one) for one in range(number)]


def test_r06_the_maximum_bounds_it_also_where_the_power_overflows(timed: Client, clock: ManualClock) -> None:
    timed.admin.create_queue("q", redelivery_delay=1.0, redelivery_multiplier=1e300, redelivery_delay_maximum=5.0)
    timed.send("a")
    for gap in (1.0, 5.0, 5.0, 5.0):
        fail(timed)
        wait_visible(timed, clock, gap)


def test_r06_a_multiplier_applies_to_the_sessions_delay_as_well(timed: Client, clock: ManualClock) -> None:
    timed.admin.create_queue("q", redelivery_multiplier=3.0)
    timed.send("a")
    for gap in (1.0, 3.0, 9.0):
        fail(timed, delay=1.0)
        wait_visible(timed, clock, gap)


def test_if_2_the_wall_clock_moves_no_redelivery_delay(timed: Client, clock: ManualClock) -> None:
    timed.send("a")
    fail(timed, delay=5.0)
    for jump in (3600.0, -7200.0):
        clock.jump_wall(jump)
        timed.session.flush(None)
        assert timed.numbers() == (0, 1)
    wait_visible(timed, clock, 5.0)


# -- why it is there -----------------------------------------------------------------------------------------------------


def test_r09_the_reason_is_replaced_not_multiplied(timed: Client, clock: ManualClock) -> None:
    """R09: moved back and failed again, it says the last reason once; all else is as it was sent."""
    timed.admin.create_queue("q", redelivery_limit=1)
    body = bytes(range(256)) * 4096
    sent = PlainContent(
        kind=MessageKind.BYTES,
        body=body,
        message_id="ID:1",
        correlation_id="c",
        reply_to="queue:///answers",
        priority=7,
        properties={"a": 1},
    )
    timed.send(sent)

    def attempt(text: str) -> None:
        receiver, arrivals = timed.take(1, hand_over=True)
        outcome = Outcome(verb=Verb.RETRY, reason=text, properties={"JMS_jmsclient_error_type": text})
        receiver.settle(arrivals, outcome)
        receiver.close(None)
        timed.session.flush(None)

    attempt("ValueError")
    attempt("KeyError")
    first_time = clock.wall()

    def dead() -> dict[str, Any]:
        receiver, (arrival,) = timed.take(1, "DLQ")
        found = arrival.content
        assert (found.body(), found.message_id, found.kind) == (body, "ID:1", MessageKind.BYTES)
        assert [found.header(name) for name in ("correlation_id", "reply_to", "priority")] == ["c", "queue:///answers", 7]
        properties = dict(found.properties())
        assert properties.pop("a") == 1
        receiver.settle([arrival], RELEASE)
        receiver.close(None)
        timed.session.flush(None)
        return properties

    expected = {
        ORIGINAL_DESTINATION: "queue:///q",
        REASON: "redelivery limit reached: KeyError",
        DELIVERIES: 2,
        FAILED_AT: first_time,
        "JMS_jmsclient_error_type": "KeyError",
    }
    assert dead() == expected
    assert all(name.isidentifier() for name in expected)
    timed.admin.pause_consumption("DLQ")
    assert timed.admin.move("DLQ", "q").done == ("ID:1",)
    timed.admin.resume_consumption("DLQ")
    clock.advance(60)
    attempt("OSError")
    attempt("TypeError")
    assert dead() == {
        **expected,
        REASON: "redelivery limit reached: TypeError",
        FAILED_AT: first_time + 60,
        "JMS_jmsclient_error_type": "TypeError",
    }


def test_r09_in_the_store_too(connect: Connect, tmp_path: Any) -> None:
    """R09 across a restart between the two failures: still replaced."""
    url = f"embedded:?store={tmp_path / 'shop.db'}"
    client = connect(url)
    client.admin.create_queue("q", redelivery_limit=0)
    client.send(content("a", properties={"a": 1}))
    fail(client)
    client.transport.close(None)
    client = connect(url)
    client.admin.pause_consumption("DLQ")
    client.admin.move("DLQ", "q")
    client.admin.resume_consumption("DLQ")
    fail(client)
    client.transport.close(None)
    client = connect(url)
    _, (arrival,) = client.take(1, "DLQ")
    properties = dict(arrival.content.properties())
    assert sorted(properties) == sorted(["a", ORIGINAL_DESTINATION, REASON, DELIVERIES, FAILED_AT])
    assert properties[DELIVERIES] == 1


def test_t15_without_an_error_destination_it_is_discarded_counted_and_told(client: Client, events: list[Any]) -> None:
    client.admin.create_queue("q", redelivery_limit=0, error_destination=None)
    client.send("abc")
    fail(client)
    found = client.stats()
    assert (found.messages_discarded, found.messages_moved, found.bytes_removed) == (1, 0, 3)
    until(lambda: "messages_discarded" in [event.name for event in events])


def test_t15_the_queues_own_error_destination(client: Client) -> None:
    client.admin.create_queue("q", redelivery_limit=0, error_destination="failed.q")
    client.send("a")
    fail(client)
    assert client.bodies("failed.q") == ["a"]
    assert client.stats().messages_moved == 1


def test_t15_an_error_destination_that_is_the_queue_itself_loses_nothing(client: Client) -> None:
    client.admin.create_queue("q", redelivery_limit=0, error_destination="q")
    client.send("a")
    assert [fail(client) for _ in range(3)] == [[1], [1], [1]]
    assert client.bodies() == ["a"]


def test_if_11_retry_of_what_was_never_handed_over_counts_as_the_verb_says(client: Client) -> None:
    client.send("a")
    receiver, arrivals = client.take(1)
    hand(receiver, arrivals)
    receiver.settle(arrivals, RETRY)
    client.session.flush(None)
    assert client.shown() == [("visible", 1)]
