"""What is accepted with an append (AUTO) is seen as accepted by every step, and what nobody waits for is not waited for (IF-39)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from jmsclient.errors import DestinationPausedError
from jmsclient.events import Event
from jmsclient.transport.contract import ACCEPT, RETRY
from jmsclient_embedded.transport import simulate_connection_loss

from .conftest import Background, Client, Connect, content, hand, in_thread, until


def test_if_39_an_accept_is_gathered_and_every_look_sees_it_done(client: Client) -> None:
    client.send("a", "b")
    receiver, (first, second) = client.take(2, hand_over=True)
    receiver.accept(first)
    assert first.settled
    assert len(client.broker.settling.gathered) == 1
    assert client.shown() == [("receive", 1)]
    assert not client.broker.settling.gathered
    receiver.accept(second)
    assert client.stats().messages_acknowledged == 2


def test_if_39_an_accept_comes_before_the_loss_of_the_link_that_followed_it(connect: Connect) -> None:
    client, other = connect(), connect()
    client.send("a", "b")
    receiver, arrivals = client.take(2, hand_over=True)
    receiver.accept(arrivals[0])
    simulate_connection_loss(client.transport)
    assert other.shown() == [("visible", 1)]
    receiver.accept(arrivals[1])  # of a dead receiver: it does nothing
    assert other.shown() == [("visible", 1)]
    assert other.broker.settling.stale == 1


def test_if_40_an_accept_that_was_struck_before_it_was_marked_is_handed_over_twice(client: Client) -> None:
    client.send("a", "b")
    receiver, arrivals = client.take(2, hand_over=True)
    for _ in range(2):
        receiver.accept(arrivals[0])
        arrivals[0].settled = False  # struck between the append and the mark
    receiver.settle(arrivals[:1], ACCEPT)
    assert client.shown() == [("receive", 1)]
    assert client.stats().messages_acknowledged == 1


def test_if_39_a_gathered_accept_stands_against_a_later_settlement(client: Client) -> None:
    client.send("a")
    receiver, (arrival,) = client.take(1, hand_over=True)
    receiver.accept(arrival)
    receiver.settle([arrival], RETRY)
    assert client.shown() == []


def test_if_32_an_accept_makes_room_at_once_where_a_send_waits_for_it(client: Client) -> None:
    client.admin.create_queue("q", messages_maximum=1)
    client.send("a")
    receiver, (arrival,) = client.take(1, hand_over=True)
    sending = Background(lambda: client.send("b"))
    until(lambda: client.stats().blocked_senders == 1)
    receiver.accept(arrival)
    sending.result()
    assert not client.broker.settling.gathered


def test_if_34_an_accept_lets_the_next_of_its_unit_come_at_once(client: Client) -> None:
    client.admin.create_queue("q", unit_of_order="unit")
    client.send(*(content(body, properties={"unit": "u"}) for body in "ab"))
    receiver, sink = client.receiver(demand=2)
    sink.wait(1)
    hand(receiver, sink.arrivals)
    receiver.accept(sink.arrivals[0])
    sink.wait(2)
    assert sink.bodies == ["a", "b"]


def test_if_11_a_stored_message_is_never_gathered(connect: Connect, tmp_path: Path) -> None:
    client = connect(f"embedded:?store={tmp_path / 'store.db'}")
    client.send(content("kept"), content("passing", persistent=False))
    receiver, (kept, passing) = client.take(2, hand_over=True)
    receiver.accept(kept)
    assert not client.broker.settling.gathered
    receiver.accept(passing)
    assert len(client.broker.settling.gathered) == 1
    client.session.flush(None)
    assert client.shown() == []


def test_o02_sends_of_the_main_thread_are_carried_out_in_order_before_whatever_follows(client: Client) -> None:
    """Nobody waits for them one by one (decision 3), and nobody can tell."""
    assert threading.current_thread() is threading.main_thread()
    client.send("made")  # the queue is made by a send that is waited for
    for number in range(50):
        client.send(str(number))
    in_thread(lambda: client.send("other"))
    assert client.bodies() == ["made", *map(str, range(50)), "other"]


def test_if_31_a_send_of_the_main_thread_after_a_pause_is_refused(client: Client, events: list[Event]) -> None:
    client.send("a")
    client.admin.pause_production("q")
    try:
        client.send("b")
    except DestinationPausedError:
        pass
    else:
        raise AssertionError("a paused queue took a message")
    assert client.bodies() == ["a"]


def test_if_34_a_commit_lets_the_next_of_its_unit_come_at_once(connect: Connect) -> None:
    client = connect(transacted=True)
    client.admin.create_queue("q", unit_of_order="unit")
    client.send(*(content(body, properties={"unit": "u"}) for body in "ab"))
    client.commit()
    receiver, sink = client.receiver(demand=2)
    sink.wait(1)
    hand(receiver, sink.arrivals)
    receiver.accept(sink.arrivals[0])
    client.commit()
    sink.wait(2)
    assert sink.bodies == ["a", "b"]


def test_o02_a_main_thread_that_is_far_ahead_of_the_broker_waits_for_it(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.send("made")
    monkeypatch.setattr("jmsclient_embedded.broker.MOST_PUTS_AHEAD", 0)
    for number in range(20):
        client.send(str(number))
        assert client.broker.steps.backlog <= 1  # its own, which is taken off after it was answered
    assert client.bodies() == ["made", *map(str, range(20))]
