"""Transactions of the embedded broker (IF-28, T4 to T6, T12, T14): what they do, and how their sessions end."""

from __future__ import annotations

import time

import pytest

from jmsclient.destination import Queue
from jmsclient.errors import (
    IllegalStateError,
    ResourceAllocationError,
    TransactionRolledBackError,
    UnsupportedFeatureError,
)
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Outcome, Verb
from jmsclient_embedded.invariants import check

from .conftest import Client, Connect, content


@pytest.fixture
def tx(connect: Connect, client: Client) -> Client:
    """A transacted client of the same broker."""
    return connect(transacted=True)


def accept(client: Client, number: int, queue: str = "q") -> None:
    receiver, arrivals = client.take(number, queue, hand_over=True)
    receiver.settle(arrivals, ACCEPT)


# -- what a commit and a rollback do -------------------------------------------------------------------------------------


def test_t4_t5_what_is_sent_is_invisible_until_the_commit(client: Client, tx: Client) -> None:
    tx.send("a", "b")
    found = client.stats()
    assert (found.messages_current, found.messages_pending, found.messages_received) == (0, 2, 0)
    assert found.pending_by_kind.uncommitted_sent == 2
    assert client.shown() == [("send+transaction", 0)] * 2
    assert client.bodies() == []
    _, sink = client.receiver(demand=5)
    tx.commit()
    sink.wait(2)
    assert client.stats().messages_received == 2


def test_t6_a_rollback_leaves_nothing(client: Client, tx: Client) -> None:
    tx.send("a")
    tx.rollback()
    tx.commit()
    found = client.stats()
    assert (found.messages_current, found.messages_pending, found.messages_received) == (0, 0, 0)


def test_t5_the_order_is_that_of_commits_then_of_sends(client: Client, connect: Connect) -> None:
    first, second = connect(transacted=True), connect(transacted=True)
    first.send("1a")
    second.send("2a")
    client.send("plain")
    first.send("1b")
    second.send("2b")
    second.commit()
    first.commit()
    assert client.bodies() == ["plain", "2a", "2b", "1a", "1b"]


def test_t5_a_committed_message_may_be_unborn_or_prior(client: Client, tx: Client) -> None:
    tx.send("a", content("b", priority=9), content("unborn", delivery_time=time.time() + 1000))
    tx.commit()
    assert client.bodies() == ["b", "a"]
    assert client.stats().pending_by_kind.unborn == 1


def test_t12_received_is_uncommitted_until_the_commit(client: Client, tx: Client) -> None:
    client.send("a", "b")
    accept(tx, 1)
    found = client.stats()
    assert (found.messages_current, found.messages_pending) == (1, 1)
    assert found.pending_by_kind.uncommitted_received == 1
    assert client.admin.messages("q", state="receive+transaction")[0].message_id is not None
    tx.commit()
    assert client.numbers() == (1, 0)
    assert client.stats().messages_acknowledged == 1


def test_if_28_rollback_gives_back_what_was_accepted_in_its_place_counted(client: Client, tx: Client) -> None:
    client.send("a", "b", "c")
    accept(tx, 2)
    tx.rollback()
    assert client.bodies() == ["a", "b", "c"]
    assert [count for _, count in client.shown()] == [1, 1, 0]


def test_if_28_what_was_not_accepted_stays_as_it_is(client: Client, tx: Client) -> None:
    client.send("a", "b")
    receiver, arrivals = tx.take(2, hand_over=True)
    receiver.settle(arrivals[:1], ACCEPT)
    tx.rollback()
    assert [(state, count) for state, count in client.shown()] == [("visible", 1), ("receive+transaction", 1)]
    receiver.settle(arrivals[1:], ACCEPT)
    tx.commit()
    assert client.numbers() == (1, 0)


def test_if_28_other_outcomes_take_effect_at_once(client: Client, tx: Client) -> None:
    client.send("a", "b", "c")
    receiver, arrivals = tx.take(3, hand_over=True)
    receiver.settle(arrivals[:1], RELEASE)
    receiver.settle(arrivals[1:2], RETRY)
    receiver.settle(arrivals[2:], Outcome(verb=Verb.DEAD_LETTER))
    tx.session.flush(None)
    assert client.bodies() == ["a", "b"]
    assert client.bodies("DLQ") == ["c"]
    tx.rollback()
    assert client.bodies() == ["a", "b"]


def test_if_28_several_queues_in_one_transaction(client: Client, tx: Client) -> None:
    client.send("in1", queue="q1")
    client.send("in2", queue="q2")
    for end, left, out in ((tx.rollback, 1, 0), (tx.commit, 0, 1)):
        accept(tx, 1, "q1")
        accept(tx, 1, "q2")
        tx.send("out", queue="q3")
        end()
        assert [client.numbers(queue) for queue in ("q1", "q2")] == [(left, 0)] * 2
        assert len(client.bodies("q3")) == out


def test_if_28_the_next_transaction_starts_empty(client: Client, tx: Client) -> None:
    tx.send("a")
    tx.commit()
    tx.commit()
    tx.rollback()
    assert client.bodies() == ["a"]


def test_if_31_a_rollback_and_a_close_free_the_quota(client: Client, connect: Connect) -> None:
    client.admin.create_queue("q", messages_maximum=2)
    for end in ("rollback", "close", "lose"):
        tx = connect(transacted=True)
        tx.send("a", "b")
        with pytest.raises(ResourceAllocationError):
            client.send("c", room=0)
        if end == "rollback":
            tx.rollback()
        elif end == "close":
            tx.session.close(None)
        else:
            tx.transport.lose()
        assert client.numbers() == (0, 0)


# -- how a session ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["session", "transport", "lost"])
def test_if_14_close_and_crash_roll_back_without_delay(timed: Client, connect: Connect, url: str, how: str) -> None:
    timed.admin.create_queue("q", redelivery_delay=100.0)
    timed.send("a", "b")
    tx = connect(url, timed.clock, transacted=True)
    receiver, arrivals = tx.take(2)
    arrivals[0].handed_over = True
    receiver.settle(arrivals[:1], ACCEPT)
    tx.send("c")
    if how == "session":
        tx.session.close(None)
    elif how == "transport":
        tx.transport.close(None)
    else:
        tx.transport.lose()
    assert timed.shown() == [("visible", 1), ("visible", 0)]
    assert timed.bodies() == ["a", "b"]


def test_if_9_what_a_closed_consumer_received_stays_in_the_transaction(client: Client, tx: Client) -> None:
    client.send("a", "b")
    receiver, arrivals = tx.take(2, hand_over=True)
    receiver.settle(arrivals[:1], ACCEPT)
    receiver.close(None)
    assert client.numbers() == (0, 2)
    tx.commit()
    assert client.numbers() == (0, 1)
    tx.session.close(None)
    assert client.shown() == [("visible", 1)]


def test_a_closed_session_takes_no_more_sends(client: Client, tx: Client) -> None:
    """T4: a send that meets the close must not stay in `send` for ever."""
    sender = tx.session.open_sender(Queue("q"), None)
    tx.broker.steps.ask(lambda: tx.broker.closing.close_group(tx.session.group, lambda: None))
    with pytest.raises(IllegalStateError):
        sender.send([content("a")], room_deadline=None, confirm_timeout=5)
    with pytest.raises(IllegalStateError):
        tx.receiver("q")
    assert [one.name for one in client.admin.destinations()] in ([], ["q"])
    check(client.broker)


def test_s04_commit_and_rollback_need_a_transacted_session(client: Client) -> None:
    for call in (client.commit, client.rollback):
        with pytest.raises(IllegalStateError, match="not transacted"):
            call()
    client.send("a")
    assert client.bodies() == ["a"]


def test_if_25_no_settled_deliveries_in_a_transaction(tx: Client) -> None:
    with pytest.raises(UnsupportedFeatureError):
        tx.receiver(pre_settled=True)


def test_settling_twice_in_a_transaction_counts_once(client: Client, tx: Client) -> None:
    """IF-40: an exception between handing a settlement over and marking it leads to a second one."""
    client.send("a")
    receiver, arrivals = tx.take(1, hand_over=True)
    receiver.settle(arrivals, ACCEPT)
    arrivals[0].settled = False
    receiver.settle(arrivals, ACCEPT)
    arrivals[0].settled = False
    receiver.settle(arrivals, RETRY)
    tx.commit()
    found = client.stats()
    assert (found.messages_acknowledged, found.messages_current, found.messages_pending) == (1, 0, 0)


# -- when an operator comes in between -----------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["retry", "release", "dead_letter"])
def test_if_35_a_commit_without_a_message_that_was_taken_out_of_it_is_rolled_back(client: Client, tx: Client, outcome: str) -> None:
    """IF-28: all of it or nothing; the message may be at work elsewhere by now."""
    client.send("a", "b")
    accept(tx, 2)
    tx.send("out", queue="out")
    (owner,) = {one.owner for one in client.admin.messages("q")}
    assert client.admin.recover_stuck(client.admin.messages("q")[0].message_id or "", outcome) == 1
    other, taken = client.take(1) if outcome != "dead_letter" else (None, [])
    with pytest.raises(TransactionRolledBackError, match="management"):
        tx.commit()
    assert client.numbers("out") == (0, 0)
    if other is not None:
        assert taken[0].content.body() == "a"
        assert client.numbers() == (1, 1)
        other.settle(taken, ACCEPT)
        client.session.flush(None)
    else:
        assert client.bodies("DLQ") == ["a"]
    assert client.bodies() == ["b"]
    assert owner is not None
    tx.commit()  # the next one starts empty


def test_if_35_a_commit_goes_through_where_an_operator_accepted_it_before(client: Client, tx: Client) -> None:
    client.send("a", "b")
    accept(tx, 2)
    tx.send("out", queue="out")
    client.admin.recover_stuck(client.admin.messages("q")[0].message_id or "", "accept")
    tx.commit()
    assert client.numbers("out") == (1, 0)
    assert client.numbers() == (0, 0)
    assert client.stats().messages_acknowledged == 2


def test_if_35_a_rollback_leaves_alone_what_was_taken_out_of_it(client: Client, tx: Client) -> None:
    client.send("a", "b")
    accept(tx, 2)
    client.admin.recover_stuck(client.admin.messages("q")[0].message_id or "", "retry")
    other, taken = client.take(1, hand_over=True)
    tx.rollback()
    assert client.numbers() == (1, 1)
    other.settle(taken, ACCEPT)
    client.session.flush(None)
    assert client.bodies() == ["b"]
