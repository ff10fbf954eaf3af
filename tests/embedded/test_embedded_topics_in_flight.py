"""Messages of subscriptions are in-flight work too (T4 to T17, IF-9, IF-31, IF-35), and what becomes of them when one ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from jmsclient.errors import (
    DestinationPausedError,
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
)
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY
from jmsclient_embedded.invariants import check
from jmsclient_embedded.receiver import EmbeddedReceiver

from .conftest import Background, Client, Connect, RecordingSink, content, until

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


# -- messages of subscriptions are in-flight work too --------------------------------------------------------------------


def test_t14_rollback_limit_and_error_destination_of_a_topic(client: Client, connect: Connect) -> None:
    client.admin.create_topic("t", redelivery_limit=1)
    receiver, sink = subscribe(client, "durable", demand=1)
    client.send("a", queue=T)
    for turn in (1, 2):
        sink.wait(turn)
        assert sink.arrivals[-1].delivery_count == turn
        sink.arrivals[-1].handed_over = True
        receiver.settle(sink.arrivals[-1:], RETRY)
        receiver.request(1)
    client.session.flush(None)
    assert client.bodies("DLQ") == ["a"]
    _, (arrival,) = client.take(1, "DLQ")
    assert arrival.content.properties()["JMS_jmsclient_original_destination"] == "topic:///t"


def test_if_9_an_ended_subscriptions_messages_leave_with_their_session(connect: Connect) -> None:
    """Nothing of a subscription that ended stays behind: no line, no quota, no owner."""
    client, other = connect(), connect()
    client.admin.create_topic("t", messages_maximum=3)
    for end in ("session", "acknowledge", "lose"):
        one = connect()
        receiver, sink = subscribe(one, "topic", demand=2)
        client.send("a", "b", "c", queue=T, room=0)
        sink.wait(2)
        for arrival in sink.arrivals:
            arrival.handed_over = True
        receiver.close(None)
        if end == "acknowledge":
            receiver.settle(sink.arrivals, ACCEPT)
            one.session.flush(None)
            one.session.close(None)
        elif end == "session":
            one.session.close(None)
        else:
            one.transport.lose()
        check(other.broker)
        assert len(other.broker.granting.lines) == 0
        assert len(other.broker.topics.subscriptions) == 0
        subscribe(other, "topic")[0].close(None)


def test_temporary_topics_and_expiry(timed: Client, clock: ManualClock) -> None:
    receiver, sink = subscribe(timed, "topic")
    timed.send(content("a", expiration=clock.wall() + 1), content("b", delivery_time=clock.wall() + 5), queue=T)
    clock.advance(6)
    until(lambda: timed.stats(T).pending_by_kind.unborn == 0)
    assert take(sink, receiver, 1) == ["b"]


def test_t4_t5_topics_in_transactions(client: Client, connect: Connect) -> None:
    tx = connect(transacted=True)
    _, sink = subscribe(client, "topic", demand=5)
    tx.send("a", queue=T)
    assert client.stats(T).pending_by_kind.uncommitted_sent == 1
    tx.rollback()
    tx.send("b", queue=T)
    tx.commit()
    sink.wait(1)
    assert sink.bodies == ["b"]


def test_if_31_quotas_on_topics(client: Client, connect: Connect) -> None:
    """Each copy counts."""
    client.admin.create_topic("t", messages_maximum=4)
    first, one = subscribe(client, "durable", "d1")
    second, two = subscribe(client, "durable", "d2")
    client.send("a", "b", queue=T, room=0)
    with pytest.raises(ResourceAllocationError):
        client.send("c", queue=T, room=0)
    sending = Background(lambda: connect().send("c", queue=T))
    until(lambda: client.stats(T).blocked_senders == 1)
    assert take(one, first, 1) == ["a"]
    client.session.flush(None)
    assert client.stats(T).blocked_senders == 1  # room for one copy, and two are needed
    assert take(two, second, 1) == ["a"]
    sending.result()
    assert client.stats(T).messages_current == 4


def test_if_31_a_topic_without_subscriptions_takes_anything(client: Client) -> None:
    client.admin.create_topic("t", messages_maximum=1)
    client.send("a", "b", "c", queue=T, room=0)
    assert client.numbers(T) == (0, 0)


def test_if_31_a_subscription_that_goes_makes_room(client: Client, connect: Connect) -> None:
    client.admin.create_topic("t", messages_maximum=2)
    receiver, _ = subscribe(client, "topic")
    _, sink = subscribe(client, "durable", demand=1)
    client.send("a", queue=T)
    sending = Background(lambda: connect().send("b", queue=T))
    until(lambda: client.stats(T).blocked_senders == 1)
    receiver.close(None)
    sending.result()
    assert client.stats(T).messages_received == 2
    assert sink.bodies == ["a"]


def test_pauses_on_topics(client: Client, connect: Connect) -> None:
    tx = connect(transacted=True)
    receiver, sink = subscribe(client, "durable", demand=10)
    tx.send("a", queue=T)
    client.admin.pause_production(T)
    with pytest.raises(DestinationPausedError):
        client.send("b", queue=T)
    client.admin.pause_consumption(T)
    tx.commit()
    assert client.numbers(T) == (1, 0)
    client.admin.resume_production(T)
    client.admin.pause_insertion(T)
    with pytest.raises(DestinationPausedError):
        client.send("b", queue=T)
    _, late = client.receiver(T, kind="durable", name="late", demand=5)
    client.admin.resume_insertion(T)
    client.send("b", queue=T)
    assert client.stats(T).consumption_paused is True
    assert client.numbers(T) == (3, 0)
    assert (sink.arrivals, late.arrivals) == ([], [])
    client.admin.resume_consumption(T)
    sink.wait(2)
    late.wait(1)
    assert (sink.bodies, late.bodies) == (["a", "b"], ["b"])
    receiver.settle(sink.arrivals, RELEASE)


def test_if_35_move_delete_and_drain_of_a_topics_messages(client: Client) -> None:
    client.admin.create_queue("target")
    for name in ("d1", "d2"):
        subscribe(client, "durable", name)[0].close(None)
    client.send(*(content(str(number), message_id=f"ID:{number}") for number in range(3)), queue=T)
    client.admin.pause_consumption(T)
    assert client.admin.delete(T, message_ids=["ID:0"]).done == ("ID:0", "ID:0")
    assert client.admin.move(T, "target", message_ids=["ID:1"]).done == ("ID:1", "ID:1")
    assert client.bodies("target") == ["1", "1"]
    assert client.admin.drain(T).done == ("ID:2", "ID:2")
    assert client.numbers(T) == (0, 0)


def test_delete_destination_of_a_topic(client: Client, file: Path) -> None:
    receiver, _ = subscribe(client, "durable")
    with pytest.raises(IllegalStateError):
        client.admin.delete_destination(T)
    receiver.close(None)
    client.send("a", queue=T)
    client.admin.delete_destination(T)
    assert client.admin.destinations() == []
    with pytest.raises(InvalidDestinationError):
        client.session.unsubscribe("s", None)
    check(client.broker)


# -- subscriptions that end while something of them is held ----------------------------------------------------------------


def test_a_durable_subscription_with_unacknowledged_messages_is_not_made_anew(connect: Connect) -> None:
    """JM 4.11.3 with 8.7: as `unsubscribe`, it is refused while a session has messages of it."""
    client = connect(client_id="c1")
    receiver, sink = subscribe(client, "durable", demand=1)
    client.send("a", "b", queue=T)
    sink.wait(1)
    receiver.close(None)
    with pytest.raises(IllegalStateError, match="not acknowledged"):
        subscribe(client, "durable", selector="1 = 1")
    assert client.numbers(T) == (1, 1)
    receiver.settle(sink.arrivals, ACCEPT)
    again, _ = subscribe(client, "durable", selector="1 = 1")
    again.close(None)
    assert client.numbers(T) == (0, 0)


@pytest.mark.parametrize("end", ["accept", "close", "lose"])
def test_a_shared_subscription_of_a_name_that_ended_is_another_one(connect: Connect, end: str) -> None:
    """What a session holds of the old one does not come into the new one."""
    client, other = connect(), connect()
    receiver, sink = subscribe(client, "shared", demand=1)
    other.send("a", "b", queue=T)
    sink.wait(1)
    receiver.close(None)
    fresh, theirs = subscribe(other, "shared", demand=5)
    other.send("c", queue=T)
    theirs.wait(1)
    if end == "accept":
        receiver.settle(sink.arrivals, ACCEPT)
        client.session.close(None)
    elif end == "close":
        client.session.close(None)
    else:
        client.transport.lose()
    check(other.broker)
    fresh.settle(theirs.arrivals, ACCEPT)
    other.session.flush(None)
    assert theirs.bodies == ["c"]
    assert other.numbers(T) == (0, 0)
    fresh.close(None)
    assert len(other.broker.granting.lines) == 0


def test_if_28_a_subscription_ends_although_its_last_message_is_being_committed(
    connect: Connect, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"embedded:?store={file}"
    client, tx = connect(url), connect(url, transacted=True)
    client.admin.create_topic("t", messages_maximum=1)
    receiver, sink = subscribe(tx, "topic", demand=1)
    client.send("a", queue=T)
    sink.wait(1)
    receiver.settle(sink.arrivals, ACCEPT)
    tx.send("out")
    store = client.broker.store
    assert store is not None
    write, begun, go_on = store.write, threading.Event(), threading.Event()

    def slow(changes: Any) -> None:
        begun.set()
        assert go_on.wait(60)
        write(changes)

    monkeypatch.setattr(store, "write", slow)
    committing = Background(tx.commit)
    assert begun.wait(30)
    tx.transport.lose()
    go_on.set()
    committing.result()
    until(lambda: client.bodies() == ["out"])
    assert list(client.broker.granting.lines) == ["q"]
    subscribe(client, "topic")
    client.send("b", queue=T, room=0)


def test_t2_who_waits_for_a_topic_is_let_in_when_its_pause_ends_though_its_subscriptions_are_gone(connect: Connect) -> None:
    client, other = connect(client_id="c1"), connect()
    client.admin.create_topic("t", messages_maximum=1)
    subscribe(client, "durable")[0].close(None)
    client.send("a", queue=T)
    for where in (T, None):
        sending = Background(lambda: other.send("b", queue=T))
        until(lambda: client.stats(T).blocked_senders == 1)
        client.admin.pause_insertion(where)
        client.session.unsubscribe("s", None)
        assert client.stats(T).blocked_senders == 1
        client.admin.resume_insertion(where)
        sending.result()
        subscribe(client, "durable")[0].close(None)
        client.send("a", queue=T)
