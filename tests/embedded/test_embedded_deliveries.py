"""A delivery that nobody has asked for its entry is settled, given back and shown as any other (IF-8, IF-9, IF-11, T12, T14)."""

from __future__ import annotations

import pytest

from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Arrival, Outcome
from jmsclient_embedded.entry import Delivery

from .conftest import Client, Connect, hand


@pytest.fixture(autouse=True)
def _made(client: Client) -> None:
    """The queue is there: the send that makes one goes the long way."""
    client.admin.create_queue("q")


def bare(arrivals: list[Arrival]) -> list[bool]:
    """Which of them have no entry."""
    return [isinstance(one, Delivery) and one.entry is None for one in arrivals]


def test_t12_what_is_accepted_at_once_never_has_an_entry(client: Client) -> None:
    client.send("a", "b", "c")
    receiver, arrivals = client.take(3, hand_over=True)
    for arrival in arrivals:
        receiver.accept(arrival)
    assert client.broker.steps.ask(lambda: client.broker.granting.lines["q"].queue.acknowledged) == 3
    assert bare(arrivals) == [True, True, True]
    assert client.numbers() == (0, 0)


def test_if_8_whoever_looks_sees_its_owner_and_it_is_accepted_all_the_same(client: Client) -> None:
    client.send("a", "b")
    receiver, (first, second) = client.take(2)
    assert bare([first, second]) == [True, True]
    receiver.accept(first)
    (shown,) = client.admin.messages("q")
    assert (shown.message_id, shown.state, shown.delivery_count) == (second.content.message_id, "receive", 0)
    assert shown.owner is not None
    receiver.accept(second)
    assert client.stats().messages_acknowledged == 2


@pytest.mark.parametrize(("outcome", "count"), [(RELEASE, 0), (RETRY, 1)], ids=["release", "retry"])
def test_t13_t14_it_goes_back_to_its_place_and_is_settled_by_its_next_delivery(
    client: Client, outcome: Outcome, count: int
) -> None:
    client.send("a", "b", "c")
    receiver, arrivals = client.take(2, hand_over=True)
    assert bare(arrivals) == [True, True]
    receiver.settle(arrivals[:1], outcome)
    assert client.shown() == [("visible", count), ("visible", 0), ("receive", 1)]
    arrivals[0].settled = False
    receiver.accept(arrivals[0])  # too late: it is another delivery's
    assert client.shown() == [("visible", count), ("visible", 0), ("receive", 1)]
    assert client.broker.settling.stale == 1
    again, (next_one,) = client.take(1)
    assert (next_one.content.body(), next_one.delivery_count) == ("a", count + 1)
    again.settle([next_one], ACCEPT)
    receiver.accept(arrivals[1])
    assert client.numbers() == (1, 0)


def test_if_9_if_11_at_the_end_of_its_session_only_what_was_seen_is_counted(connect: Connect) -> None:
    client, other = connect(), connect()
    client.send("a", "b", "c")
    receiver, arrivals = client.take(3)
    assert bare(arrivals) == [True, True, True]
    hand(receiver, arrivals[:2])
    receiver.accept(arrivals[0])
    client.session.close(None)
    assert other.shown() == [("visible", 1), ("visible", 0)]
    assert other.bodies() == ["b", "c"]


def test_t12_an_accept_joins_the_transaction(connect: Connect) -> None:
    client, other = connect(transacted=True), connect()
    other.send("a", "b")
    receiver, arrivals = client.take(2, hand_over=True)
    assert bare(arrivals) == [True, True]
    receiver.accept(arrivals[0])
    client.rollback()
    assert [one for one in other.shown() if one[0] == "visible"] == [("visible", 1)]
    receiver.accept(arrivals[1])
    client.commit()
    assert other.bodies() == ["a"]


def test_an_operator_takes_it_from_its_owner(client: Client) -> None:
    client.send("a", "b")
    receiver, arrivals = client.take(2, hand_over=True)
    assert bare(arrivals) == [True, True]
    assert client.admin.recover_stuck(str(arrivals[0].content.message_id)) == 1
    receiver.accept(arrivals[0])
    receiver.accept(arrivals[1])
    assert client.shown() == [("visible", 1)]
    assert client.broker.settling.stale == 1
