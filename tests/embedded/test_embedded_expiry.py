"""Expiry and delivery time (IF-3, IF-32, IF-33, T8, T16)."""

from __future__ import annotations

from typing import Any

import pytest

from jmsclient import connect as connect_public
from jmsclient.errors import ConfigurationError
from jmsclient.events import Event
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Outcome, Verb
from jmsclient_embedded.dead_letter import ORIGINAL_DESTINATION, REASON

from .conftest import Client, Connect, content, until

POLICIES = ("discard", "log", "redirect")


def lasting(client: Client, seconds: float, body: str = "a", **settings: Any) -> Any:
    return content(body, expiration=client.clock.wall() + seconds, **settings)


def names(events: list[Event]) -> list[str]:
    return [event.name for event in events]


# -- the policies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found_by", ["hand-over", "hand-over to a selecting one", "scan"])
@pytest.mark.parametrize("policy", POLICIES)
def test_if_33_policy(timed: Client, clock: ManualClock, events: list[Event], policy: Any, found_by: str) -> None:
    timed.admin.create_queue("q", expiration_policy=policy)
    timed.send(lasting(timed, 5, "a"), lasting(timed, 5, "b"), lasting(timed, 500, "c"))
    if found_by == "scan":
        clock.advance(31)
        until(lambda: timed.numbers() == (1, 0))
    else:
        clock.advance(5)
        selector = None if found_by == "hand-over" else "JMSPriority = 4"
        receiver, sink = timed.receiver(demand=1, selector=selector)
        sink.wait(1)
        assert sink.bodies == ["c"]
        receiver.settle(sink.arrivals, RELEASE)
        receiver.close(None)
        timed.session.flush(None)
    found = timed.stats()
    assert found.messages_current == 1
    moved = 2 if policy == "redirect" else 0
    assert (found.messages_moved, found.messages_expired) == (moved, 2 - moved)
    assert timed.bodies("DLQ") == (["a", "b"] if policy == "redirect" else [])
    until(lambda: "messages_expired" in names(events))
    told = [event for event in events if event.name == "messages_expired"]
    assert sum(event.fields["count"] for event in told) == 2
    assert names(events).count("message_expired") == (2 if policy == "log" else 0)


def test_if_33_the_log_policy_names_each_message_in_the_log(
    timed: Client, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "jmsclient.embedded")
    timed.admin.create_queue("q", expiration_policy="log")
    timed.send(lasting(timed, 1, message_id="ID:one"))
    clock.advance(31)
    until(lambda: any("ID:one" in record.getMessage() for record in caplog.records))


def test_if_33_a_redirect_says_why_and_drops_the_expiry(timed: Client, clock: ManualClock) -> None:
    timed.admin.create_queue("q", expiration_policy="redirect", error_destination="late")
    timed.send(lasting(timed, 5))
    clock.advance(31)
    until(lambda: timed.bodies("late") == ["a"])
    clock.advance(1e6)
    timed.session.flush(None)
    _, (arrival,) = timed.take(1, "late")
    assert arrival.expires_at is None
    assert arrival.content.header("expiration") is None
    assert arrival.content.properties()[REASON] == "expired"
    assert arrival.content.properties()[ORIGINAL_DESTINATION] == "queue:///q"


@pytest.mark.parametrize("how", ["expired", "dead-lettered"])
def test_if_33_unless_the_target_sets_one(timed: Client, clock: ManualClock, how: str) -> None:
    timed.admin.create_queue("q", expiration_policy="redirect", redelivery_limit=0, error_destination="late")
    timed.admin.create_queue("late", time_to_live_override=100.0)
    timed.send(lasting(timed, 5))
    if how == "expired":
        clock.advance(31)
    else:
        receiver, arrivals = timed.take(1, hand_over=True)
        receiver.settle(arrivals, RETRY)
    until(lambda: timed.bodies("late") == ["a"])
    clock.advance(99)
    timed.session.flush(None)
    assert timed.bodies("late") == ["a"]
    clock.advance(31)
    until(lambda: timed.numbers("late") == (0, 0))
    assert timed.stats("late").messages_expired == 1


def test_if_33_a_redirect_without_an_error_destination_discards(timed: Client, clock: ManualClock) -> None:
    timed.admin.create_queue("q", expiration_policy="redirect", error_destination=None)
    timed.send(lasting(timed, 5))
    clock.advance(31)
    until(lambda: timed.stats().messages_expired == 1)


def test_if_33_a_redirect_to_the_queue_itself_keeps_it_without_an_expiry(timed: Client, clock: ManualClock) -> None:
    timed.admin.create_queue("q", expiration_policy="redirect", error_destination="q")
    timed.send(lasting(timed, 5))
    _, sink = timed.receiver(selector="a = 1", demand=1)
    clock.advance(31)
    until(lambda: timed.stats().messages_moved == 1)
    clock.advance(100)
    assert timed.bodies() == ["a"]
    assert sink.arrivals == []


# -- when ----------------------------------------------------------------------------------------------------------------


def test_t16_in_every_state_that_waits_and_never_in_receive(timed: Client, connect: Connect, url: str, clock: ManualClock) -> None:
    """T16: visible, delayed, un-born, ordered, paused expire; what is received is simply acknowledged."""
    timed.admin.create_queue("q", unit_of_order="unit")
    transacted = connect(url, clock, transacted=True)
    timed.send(lasting(timed, 10, "received"))
    receiver, received = timed.take(1, hand_over=True)
    other = connect(url, clock)
    timed.send(lasting(timed, 10, "delayed"))
    delayed_by, delayed = other.take(1, hand_over=True)
    delayed_by.settle(delayed, Outcome(verb=Verb.RETRY, delay=1000.0))
    timed.send(lasting(timed, 10, "unborn", delivery_time=clock.wall() + 1000))
    timed.send(lasting(timed, 10, "head", properties={"unit": "1"}), lasting(timed, 10, "ordered", properties={"unit": "1"}))
    transacted.send(lasting(timed, 10, "paused"))
    until(lambda: timed.numbers() == (2, 4))
    timed.admin.pause_insertion("q")
    transacted.commit()
    assert sorted(state for state, _ in timed.shown()) == ["delayed", "delayed", "ordered", "paused", "receive", "visible"]
    clock.advance(31)
    until(lambda: timed.shown() == [("receive", 1)])
    assert timed.stats().messages_expired == 5
    receiver.settle(received, ACCEPT)
    timed.session.flush(None)
    found = timed.stats()
    assert (found.messages_expired, found.messages_acknowledged) == (5, 1)


def test_t16_what_comes_back_too_late_expires(timed: Client, clock: ManualClock) -> None:
    timed.send(lasting(timed, 5))
    receiver, arrivals = timed.take(1, hand_over=True)
    clock.advance(6)
    receiver.settle(arrivals, RETRY)
    _, sink = timed.receiver(demand=1)
    timed.session.flush(None)
    assert sink.arrivals == []
    assert timed.stats().messages_expired == 1


def test_if_33_a_commit_of_what_has_expired(timed: Client, connect: Connect, url: str, clock: ManualClock) -> None:
    transacted = connect(url, clock, transacted=True)
    transacted.send(lasting(timed, 5))
    clock.advance(6)
    _, sink = timed.receiver(demand=1)
    transacted.commit()
    assert sink.arrivals == []
    assert timed.stats().messages_expired == 1


def test_if_33_expired_messages_take_no_demand_and_hold_nobody_up(timed: Client, clock: ManualClock) -> None:
    timed.send(*(lasting(timed, 5, str(number)) for number in range(200)))
    clock.advance(6)
    _, first = timed.receiver(demand=1)
    _, second = timed.receiver(demand=2, selector="JMSPriority = 4")
    timed.send("a", "b", "c")
    first.wait(1)
    second.wait(2)
    assert sorted(map(str, first.bodies + second.bodies)) == ["a", "b", "c"]


def test_if_33_a_browser_shows_no_expired_message(timed: Client, clock: ManualClock) -> None:
    timed.send(lasting(timed, 5, "a"), "b")
    clock.advance(6)
    assert timed.bodies() == ["b"]


def test_if_32_time_to_live_not_longer_than_time_to_deliver(timed: Client, clock: ManualClock) -> None:
    """The send succeeds, the message expires unseen, the policy is applied."""
    timed.admin.create_queue("q", expiration_policy="redirect")
    wall = clock.wall()
    timed.send(lasting(timed, 5, "shorter", delivery_time=wall + 10), lasting(timed, 10, "equal", delivery_time=wall + 10))
    _, sink = timed.receiver(demand=5)
    assert timed.stats().pending_by_kind.unborn == 2
    clock.advance(10)
    until(lambda: timed.numbers("DLQ")[0] == 2 if "DLQ" in _queues(timed) else False)
    assert sink.arrivals == []
    assert timed.numbers() == (0, 0)


def _queues(client: Client) -> list[str]:
    return [one.name for one in client.admin.destinations()]


def test_if_32_through_the_public_api(url: str, client: Client) -> None:
    with connect_public(url) as connection, connection.create_session() as session:
        client.admin.create_queue("q", expiration_policy="redirect")
        session.create_producer("q", delivery_delay=0.1, time_to_live=0.05).send("a")
        consumer = session.create_consumer("q")
        until(lambda: client.stats().messages_moved == 1)
        assert consumer.receive_no_wait() is None
    assert client.bodies("DLQ") == ["a"]


# -- the wall clock ------------------------------------------------------------------------------------------------------


def test_if_3_a_step_of_an_hour_forward_shows_the_unborn_within_a_second_once(timed: Client, clock: ManualClock) -> None:
    timed.send(content("a", delivery_time=clock.wall() + 3000), content("b", delivery_time=clock.wall() + 5000))
    _, sink = timed.receiver(demand=5)
    clock.jump_wall(3600)
    assert sink.arrivals == []
    clock.advance(1)
    sink.wait(1)
    clock.jump_wall(-7200)
    clock.advance(10)
    timed.session.flush(None)
    assert sink.bodies == ["a"]
    clock.jump_wall(7200)
    clock.advance(1)
    timed.session.flush(None)
    assert sink.bodies == ["a"]
    clock.advance(1400)
    sink.wait(2)
    assert sink.bodies == ["a", "b"]


def test_if_3_expiry_follows_the_wall_clock(timed: Client, clock: ManualClock) -> None:
    timed.send(lasting(timed, 3000))
    clock.jump_wall(-3600)
    clock.advance(3500)
    assert timed.bodies() == ["a"]
    clock.jump_wall(3600)
    clock.advance(31)
    until(lambda: timed.stats().messages_expired == 1)


def test_t8_messages_of_one_time_come_in_the_order_in_which_they_were_sent(timed: Client, clock: ManualClock) -> None:
    timed.send(*(content(str(number), delivery_time=clock.wall() + 5) for number in range(20)))
    clock.advance(6)
    until(lambda: timed.numbers() == (20, 0))
    assert timed.bodies() == [str(number) for number in range(20)]


def test_t8_a_message_due_at_once_is_visible_at_once(timed: Client, clock: ManualClock) -> None:
    timed.send(content("past", delivery_time=clock.wall() - 5), content("now", delivery_time=clock.wall()))
    assert timed.bodies() == ["past", "now"]


def test_if_33_the_templates_time_to_live_is_not_the_error_destinations(connect: Connect, url: str, clock: ManualClock) -> None:
    client = connect(f"{url}?time_to_live_override=5&expiration_policy=redirect", clock)
    client.send("a")
    clock.advance(31)
    until(lambda: "DLQ" in _queues(client))
    clock.advance(1000)
    client.session.flush(None)
    assert client.bodies("DLQ") == ["a"]


@pytest.mark.parametrize("interval", [5, 30, 0])
def test_if_33_the_scan_comes_each_so_many_seconds_or_never(connect: Connect, url: str, clock: ManualClock, interval: int) -> None:
    client = connect(f"{url}?expiration_scan={interval}" if interval != 30 else url, clock)
    client.send(content("a", expiration=clock.wall() + 1))
    if not interval:
        clock.advance(1e6)
        client.session.flush(None)
        assert client.numbers() == (1, 0)
        _, sink = client.receiver(demand=1)  # it is found at the hand-over all the same
        client.session.flush(None)
        assert sink.arrivals == []
        assert client.numbers() == (0, 0)
        return
    clock.advance(interval - 0.5)
    client.session.flush(None)
    assert client.numbers() == (1, 0)
    clock.advance(1)
    until(lambda: client.numbers() == (0, 0))


@pytest.mark.parametrize("text", ["-1", "soon", "nan", ""])
def test_if_33_a_scan_interval_that_cannot_work_is_named(connect: Connect, url: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match="expiration_scan"):
        connect(f"{url}?expiration_scan={text}")
