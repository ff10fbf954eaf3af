"""Examples that the reference model and the random calls failed on once, each as a plain test."""

from __future__ import annotations

import pytest

from jmsclient.testing import ManualClock
from jmsclient.transport.contract import RELEASE, Outcome, Verb

from .conftest import Client, Connect, content, until


@pytest.mark.parametrize("verb", Verb)
def test_t12_to_t15_what_is_named_twice_in_one_settlement_is_settled_once(client: Client, verb: Verb) -> None:
    client.send("a", "b")
    receiver, arrivals = client.take(2, hand_over=True)
    receiver.settle([arrivals[0], arrivals[0]], Outcome(verb=verb))
    numbers = client.admin.statistics("q")
    assert numbers.messages_pending == 1
    back = verb not in (Verb.ACCEPT, Verb.DEAD_LETTER)
    assert client.shown() == [("visible", int(verb is not Verb.RELEASE))] * back + [("receive", 1)]


def test_if_35_a_move_keeps_the_order_in_which_messages_were_sent_whatever_they_waited_for(connect: Connect, url: str) -> None:
    clock = ManualClock()
    client = connect(url, clock)
    client.send(content("1", message_id="ID:1", delivery_time=clock.wall() + 5.0), content("2", message_id="ID:2"))
    client.admin.create_queue("target")
    client.admin.pause_consumption("q")
    assert client.admin.move("q", "target").done == ("ID:1", "ID:2")
    clock.advance(6.0)
    _, arrivals = client.take(2, "target")
    assert [one.content.message_id for one in arrivals] == ["ID:1", "ID:2"]


def test_if_35_what_is_there_and_not_selected_is_not_called_missing(client: Client) -> None:
    client.send(content("a", message_id="ID:1", priority=2))
    client.admin.pause_consumption("q")
    result = client.admin.delete("q", "JMSPriority > 4", message_ids=["ID:1", "ID:2"])
    assert result.done == ()
    assert result.refused == (("ID:1", "not selected"), ("ID:2", "not there"))


def test_if_33_expired_messages_go_to_the_error_destination_in_the_order_in_which_they_were_sent(
    connect: Connect, url: str
) -> None:
    clock = ManualClock()
    client = connect(url, clock)
    client.admin.create_queue("q", expiration_policy="redirect")
    client.send(*(content(str(number), message_id=f"ID:{number}", expiration=clock.wall() + 5.0) for number in range(6)))
    receiver, arrivals = client.take(5)
    for arrival in reversed(arrivals):  # they wait beside the others, not in order, when they are back
        receiver.settle([arrival], RELEASE)
    receiver.drain(None)
    client.admin.pause_consumption("q")
    clock.advance(31.0)
    until(lambda: client.admin.statistics("q").messages_moved == 6)
    assert [one.message_id for one in client.admin.messages("DLQ")] == [f"ID:{number}" for number in range(6)]
