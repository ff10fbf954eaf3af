"""Examples that the reference model and the random calls failed on once, each as a plain test."""

from __future__ import annotations

from pathlib import Path

import pytest

from jmsclient.destination import Queue, Topic
from jmsclient.errors import IllegalStateError, InvalidDestinationError, SendError, StoreError, TransactionRolledBackError
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RELEASE, Outcome, ReceiverSpec, Verb
from jmsclient_embedded.invariants import check
from jmsclient_embedded.receiver import EmbeddedReceiver
from jmsclient_embedded.registry import close_broker
from jmsclient_embedded.transport import simulate_connection_loss

from .conftest import Client, Connect, RecordingSink, content, hand, in_thread, until


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


# -- the store -------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored_url(url: str, tmp_path: Path) -> str:
    return f"{url}?store={tmp_path}/found.db"


def test_nobody_waits_for_a_store_that_is_closed(connect: Connect, stored_url: str) -> None:
    client = connect(stored_url)
    client.send("a")
    receiver, arrivals = client.take(1)
    transacted = client.transport.open_session(transacted=True, deadline=None)
    sender = transacted.open_sender(Queue("q"), None)
    sender.send([content("b")], room_deadline=None, confirm_timeout=None)
    close_broker(client.broker)
    in_thread(lambda: client.session.flush(None))  # nothing has been given to it since
    receiver.settle(arrivals, ACCEPT)

    def after() -> None:
        with pytest.raises(StoreError):
            client.session.flush(None)
        with pytest.raises(SendError):
            client.send("c")
        with pytest.raises(TransactionRolledBackError):
            transacted.commit(None)

    in_thread(after)


# -- transactions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["lost", "closed"])
def test_if_28_a_commit_that_meets_the_end_of_its_session_is_not_told_that_it_is_done(
    client: Client, connect: Connect, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    client.send("a")
    other = connect()
    transacted = other.transport.open_session(transacted=True, deadline=None)
    transacted.open_sender(Queue("q"), None).send([content("b")], room_deadline=None, confirm_timeout=None)
    sink = RecordingSink()
    receiver = transacted.open_receiver(ReceiverSpec(destination=Queue("q")), sink, None)
    receiver.request(1)
    hand(receiver, sink.wait(1))
    receiver.settle(sink.arrivals, ACCEPT)

    def ends_now() -> None:  # after the look whether it is open, before the commit is carried out
        monkeypatch.undo()
        if end == "lost":
            simulate_connection_loss(other.transport)
        else:
            transacted.close(None)

    monkeypatch.setattr(transacted, "check_open", ends_now)
    with pytest.raises(TransactionRolledBackError):
        transacted.commit(None)
    assert client.shown() == [("visible", 1)]


# -- subscriptions -----------------------------------------------------------------------------------------------------


def subscribe(client: Client, kind: str, name: str | None, selector: str | None = None) -> tuple[EmbeddedReceiver, RecordingSink]:
    sink = RecordingSink()
    spec = ReceiverSpec(destination=Topic("t"), kind=kind, name=name, selector=selector)  # type: ignore[arg-type]
    return client.session.open_receiver(spec, sink, None), sink


def test_t5_what_is_committed_for_a_subscription_that_is_gone_is_not_stored(connect: Connect, stored_url: str) -> None:
    client = connect(stored_url)
    keep = connect(stored_url)
    receiver, _ = subscribe(client, "durable", "d")
    receiver.close(None)
    transacted = client.transport.open_session(transacted=True, deadline=None)
    sender = transacted.open_sender(Topic("t"), None)
    sender.send([content("a"), content("b")], room_deadline=None, confirm_timeout=None)
    client.session.unsubscribe("d", None)
    transacted.commit(None)
    check(client.broker)
    client.transport.close(None)
    keep.transport.close(None)
    again = connect(stored_url)
    check(again.broker)
    assert [one.address for one in again.admin.destinations()] in ([], ["topic:///t"])


@pytest.mark.parametrize("kind", ["durable", "shared_durable"])
def test_jm_8_3_3_a_subscription_with_unacknowledged_messages_is_not_made_anew(client: Client, kind: str) -> None:
    receiver, sink = subscribe(client, kind, "d")
    receiver.request(2)
    client.session.open_sender(Topic("t"), None).send([content("a"), content("b")], room_deadline=None, confirm_timeout=None)
    arrivals = sink.wait(2)
    hand(receiver, arrivals)
    receiver.close(None)
    with pytest.raises(IllegalStateError, match="not acknowledged"):
        subscribe(client, kind, "d", "JMSPriority > 4")
    receiver.settle(arrivals, ACCEPT)
    subscribe(client, kind, "d", "JMSPriority > 4")
    client.session.close(None)
    check(client.broker)


def test_if_9_a_shared_subscription_begins_anew_beside_one_whose_messages_are_still_held(client: Client) -> None:
    first, sink = subscribe(client, "shared", "s")
    first.request(1)
    sender = client.session.open_sender(Topic("t"), None)
    sender.send([content("a"), content("b")], room_deadline=None, confirm_timeout=None)
    hand(first, sink.wait(1))
    first.close(None)
    subscribe(client, "shared", "s")
    sender.send([content("c")], room_deadline=None, confirm_timeout=None)
    check(client.broker)
    client.session.close(None)
    check(client.broker)
    assert client.admin.statistics("topic:///t").messages_pending == 0
    assert not client.broker.topics.subscriptions


@pytest.mark.parametrize("name", ["a\x1fb", "\ud800", "a\n"])
def test_a_subscription_has_no_name_that_cannot_be_stored_or_told_from_another(client: Client, name: str) -> None:
    with pytest.raises(InvalidDestinationError, match="control characters"):
        subscribe(client, "durable", name)
    assert not client.broker.topics.subscriptions
