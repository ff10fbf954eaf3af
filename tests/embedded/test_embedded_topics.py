"""Topics: kinds of subscriptions, what they keep, no-local, temporary destinations, browsing (Jakarta Messaging 4.4, 4.11, 8.3)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jmsclient import connect as connect_public
from jmsclient.destination import Destination, Queue, Topic
from jmsclient.errors import (
    DestinationPausedError,
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
)
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Arrival
from jmsclient_embedded.invariants import check
from jmsclient_embedded.receiver import EmbeddedReceiver

from .conftest import Background, Client, Connect, RecordingSink, content, in_thread, until

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


# -- who gets a copy -----------------------------------------------------------------------------------------------------


def test_every_subscription_gets_a_copy_and_nobody_what_was_sent_before(client: Client) -> None:
    client.send("before", queue=T)
    sinks = [subscribe(client, "topic", demand=5)[1] for _ in range(2)]
    sinks += [subscribe(client, kind, kind, demand=5)[1] for kind in ("durable", "shared", "shared_durable")]
    client.send("a", "b", queue=T)
    for sink in sinks:
        sink.wait(2)
        assert sink.bodies == ["a", "b"]
    found = client.stats(T)
    assert (found.messages_pending, found.messages_received, found.consumers_current) == (10, 10, 5)


def test_a_subscription_that_is_not_durable_ends_with_its_receiver(client: Client) -> None:
    receiver, _ = subscribe(client, "topic")
    client.send("a", queue=T)
    receiver.close(None)
    client.send("b", queue=T)
    assert client.numbers(T) == (0, 0)
    assert len(client.broker.granting.lines) == 0
    check(client.broker)


def test_a_durable_subscription_collects_while_nobody_consumes(connect: Connect) -> None:
    client = connect(client_id="c1")
    receiver, _ = subscribe(client, "durable")
    receiver.close(None)
    client.send("a", "b", queue=T)
    assert client.numbers(T) == (2, 0)
    receiver, sink = subscribe(client, "durable")
    assert take(sink, receiver, 2) == ["a", "b"]


def test_durable_subscriptions_are_told_apart_by_client_id_and_name(connect: Connect) -> None:
    first, second = connect(client_id="c1"), connect(client_id="c2")
    for client, name in ((first, "s"), (first, "s2"), (second, "s")):
        subscribe(client, "durable", name)[0].close(None)
    first.send("a", queue=T)
    assert first.numbers(T) == (3, 0)
    first.session.unsubscribe("s", None)
    assert first.numbers(T) == (2, 0)
    with pytest.raises(InvalidDestinationError):
        first.session.unsubscribe("s", None)
    second.session.unsubscribe("s", None)


@pytest.mark.parametrize("kind", ["shared", "shared_durable"])
def test_a_shared_subscription_gives_each_message_to_one_of_its_consumers(client: Client, connect: Connect, kind: str) -> None:
    other = connect()
    first, one = subscribe(client, kind, demand=2)
    second, two = subscribe(other, kind, demand=2)
    client.send("a", "b", "c", "d", queue=T)
    one.wait(2)
    two.wait(2)
    assert sorted(map(str, one.bodies + two.bodies)) == ["a", "b", "c", "d"]
    first.close(None)
    client.send("e", queue=T)
    client.session.close(None)
    second.request(3)
    two.wait(5)
    assert set(map(str, two.bodies)) == {"a", "b", "c", "d", "e"}


def test_a_shared_subscription_that_is_not_durable_ends_with_its_last_consumer(client: Client) -> None:
    first, _ = subscribe(client, "shared")
    second, _ = subscribe(client, "shared")
    first.close(None)
    client.send("a", queue=T)
    assert client.numbers(T) == (1, 0)
    second.close(None)
    assert client.numbers(T) == (0, 0)


@pytest.mark.parametrize("client_id", [None, "c1"])
def test_no_local_keeps_a_connections_own_messages_away(connect: Connect, client_id: str | None) -> None:
    own, other = connect(client_id=client_id), connect()
    _, sink = subscribe(own, "topic", no_local=True, demand=5)
    durable, kept = subscribe(own, "durable", no_local=True, demand=5) if client_id else (None, None)
    own.send("mine", queue=T)
    session = own.transport.open_session(transacted=False, deadline=None)
    session.open_sender(Topic("t"), None).send([content("mine too")], room_deadline=None, confirm_timeout=5)
    other.send("theirs", queue=T)
    sink.wait(1)
    assert sink.bodies == ["theirs"]
    if durable is not None and kept is not None:
        kept.wait(1)
        assert kept.bodies == ["theirs"]


def test_no_local_of_a_durable_subscription_outlives_its_connection(connect: Connect, file: Path) -> None:
    """It is the client identifier that counts then."""
    url = f"embedded:?store={file}"
    own = connect(url, client_id="c1")
    subscribe(own, "durable", no_local=True)[0].close(None)
    own.transport.close(None)
    own, other = connect(url, client_id="c1"), connect(url)
    own.send("mine", queue=T)
    other.send("theirs", queue=T)
    receiver, sink = subscribe(own, "durable", no_local=True)
    assert take(sink, receiver, 1) == ["theirs"]
    assert own.numbers(T) == (0, 0)


def test_selectors_on_subscriptions(client: Client) -> None:
    red, one = subscribe(client, "topic", selector="colour = 'red'", demand=5)
    durable, two = subscribe(client, "durable", selector="colour = 'blue'", demand=5)
    client.send(*(content(colour, properties={"colour": colour}) for colour in ("red", "blue", "green")), queue=T)
    one.wait(1)
    two.wait(1)
    assert (one.bodies, two.bodies) == (["red"], ["blue"])
    assert client.stats(T).messages_received == 2
    red.settle(one.arrivals, ACCEPT)
    durable.settle(two.arrivals, ACCEPT)


# -- rules of durable subscriptions --------------------------------------------------------------------------------------


def test_a_durable_subscription_has_one_consumer_at_a_time(connect: Connect) -> None:
    client = connect(client_id="c1")
    subscribe(client, "durable")
    with pytest.raises(IllegalStateError, match="has a consumer"):
        subscribe(client, "durable")


@pytest.mark.parametrize("change", ["selector", "topic", "no_local"])
def test_with_another_selector_topic_or_no_local_it_is_a_new_one(connect: Connect, change: str) -> None:
    """JM 4.11.3: as if it had been unsubscribed."""
    client = connect(client_id="c1")
    subscribe(client, "durable")[0].close(None)
    client.send("old", queue=T)
    if change == "topic":
        client.receiver("topic:///u", kind="durable", name="s")[0].close(None)
    else:
        spec: dict[str, Any] = {"selector": "1 = 1"} if change == "selector" else {"no_local": True}
        subscribe(client, "durable", **spec)[0].close(None)
    assert client.numbers(T) == (0, 0)
    client.send("new", queue=T)
    assert client.numbers(T)[0] == (1 if change == "selector" else 0)
    check(client.broker)


def test_shared_and_unshared_durable_ones_share_no_name(connect: Connect) -> None:
    client = connect(client_id="c1")
    subscribe(client, "durable")[0].close(None)
    with pytest.raises(IllegalStateError):
        subscribe(client, "shared_durable")
    client.session.unsubscribe("s", None)
    subscribe(client, "shared_durable")[0].close(None)
    with pytest.raises(IllegalStateError):
        subscribe(client, "durable")


def test_a_shared_one_in_use_is_not_changed(client: Client) -> None:
    subscribe(client, "shared", selector="a = 1")
    with pytest.raises(IllegalStateError):
        subscribe(client, "shared", selector="a = 2")
    subscribe(client, "shared", selector="a = 1")


def test_unsubscribe_rules(connect: Connect) -> None:
    client = connect(client_id="c1")
    with pytest.raises(InvalidDestinationError):
        client.session.unsubscribe("s", None)
    receiver, sink = subscribe(client, "durable", demand=1)
    with pytest.raises(IllegalStateError, match="consumer"):
        client.session.unsubscribe("s", None)
    client.send("a", "b", queue=T)
    sink.wait(1)
    receiver.close(None)
    with pytest.raises(IllegalStateError, match="not acknowledged"):
        client.session.unsubscribe("s", None)
    receiver.settle(sink.arrivals, ACCEPT)
    client.session.unsubscribe("s", None)
    assert client.numbers(T) == (0, 0)
    client.send("c", queue=T)
    assert client.numbers(T) == (0, 0)


@pytest.mark.parametrize("kind", ["durable", "shared", "shared_durable"])
@pytest.mark.parametrize("name", [None, "", "  "])
def test_a_name_is_needed(client: Client, kind: str, name: str | None) -> None:
    with pytest.raises(InvalidDestinationError):
        subscribe(client, kind, name)


def test_a_client_id_belongs_to_one_open_connection(connect: Connect) -> None:
    first = connect(client_id="c1")
    with pytest.raises(IllegalStateError, match="in use"):
        connect(client_id="c1")
    first.transport.close(None)
    second = connect(client_id="c1")
    second.transport.lose()
    connect(client_id="c1")


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


# -- with a store --------------------------------------------------------------------------------------------------------


def test_durable_messages_and_subscriptions_outlive_the_broker(connect: Connect, file: Path) -> None:
    url = f"embedded:?store={file}"
    client = connect(url, client_id="c1")
    client.admin.create_topic("t", redelivery_limit=5)
    subscribe(client, "durable", selector="a is null")[0].close(None)
    subscribe(client, "shared_durable", "shared")[0].close(None)
    plain, _ = subscribe(client, "topic")
    client.send("p", content("n", persistent=False), content("selected away", properties={"a": 1}), queue=T)
    plain.close(None)
    client.transport.close(None)

    again = connect(url, client_id="c1")
    assert [one.address for one in again.admin.destinations()] == [T]
    assert again.broker.topics.topics["t"].settings.redelivery_limit == 5
    receiver, sink = subscribe(again, "durable", selector="a is null")
    assert take(sink, receiver, 1) == ["p"]
    receiver, sink = subscribe(again, "shared_durable", "shared")
    assert take(sink, receiver, 2) == ["p", "selected away"]
    for name in ("s", "shared"):
        client = again
        client.session.close(None)
        client.session = client.transport.open_session(transacted=False, deadline=None)
        client.session.unsubscribe(name, None)
    again.transport.close(None)
    last = connect(url, client_id="c1")
    with pytest.raises(InvalidDestinationError):
        last.session.unsubscribe("s", None)


SUBSCRIBER = """
    import os, signal, sys
    sys.path[:0] = {path!r}
    from jmsclient import connect
    with connect("embedded:?store={file}", client_id="c1") as connection:
        session = connection.create_session()
        session.create_durable_consumer("topic:///t", "s").close()
        session.create_producer("topic:///t").send_many(["a", "b", "c"])
        consumer = session.create_durable_consumer("topic:///t", "s", prefetch=1)
        assert consumer.receive(5).text == "a"
        session.transport_session.flush(None)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_durable_messages_survive_kill_9(connect: Connect, file: Path) -> None:
    program = textwrap.dedent(SUBSCRIBER).format(path=sys.path, file=file)
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, env={**os.environ}, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    client = connect(f"embedded:?store={file}", client_id="c1")
    receiver, sink = subscribe(client, "durable")
    assert take(sink, receiver, 2) == ["b", "c"]


# -- temporary destinations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_only_its_connection_consumes_from_a_temporary_destination(client: Client, connect: Connect, kind: Any) -> None:
    place = client.session.create_temporary(kind, None)
    other = connect()
    with pytest.raises(InvalidDestinationError):
        other.receiver(place, kind=kind)
    receiver, sink = client.receiver(place, kind=kind, demand=1)
    other.send("a", queue=place)
    sink.wait(1)
    receiver.settle(sink.arrivals, ACCEPT)
    with pytest.raises(IllegalStateError):
        client.session.delete_temporary(place, None)
    receiver.close(None)
    client.session.flush(None)
    client.session.delete_temporary(place, None)
    client.session.delete_temporary(place, None)
    for call in (lambda: other.send("b", queue=place), lambda: client.receiver(place, kind=kind)):
        with pytest.raises(InvalidDestinationError):
            call()
    assert client.admin.destinations() == []


@pytest.mark.parametrize("kind", ["durable", "shared_durable"])
def test_a_temporary_topic_has_no_durable_subscriptions(client: Client, kind: str) -> None:
    place = client.session.create_temporary("topic", None)
    with pytest.raises(InvalidDestinationError):
        client.receiver(place, kind=kind, name="s")


@pytest.mark.parametrize("how", ["close", "lose"])
@pytest.mark.parametrize("state", ["waiting", "uncommitted", "received", "blocked"])
def test_a_temporary_destination_is_gone_with_its_connection(client: Client, connect: Connect, how: str, state: str) -> None:
    """Whatever others do with it at that moment."""
    owner = connect()
    place: Destination = owner.session.create_temporary("queue", None)
    tx = connect(transacted=True)
    blocked = None
    if state == "waiting":
        client.send("a", queue=place)
    elif state == "uncommitted":
        tx.send("a", queue=place)
    elif state == "received":
        client.send("a", queue=place)
        owner.take(1, place, hand_over=True)
    else:
        owner.admin.create_quota("one", messages_maximum=1)
        owner.broker.steps.ask(lambda: _bound(owner, place))
        client.send("a", queue=place)
        blocked = Background(lambda: client.send("b", queue=place))
        until(lambda: owner.admin.statistics(place).blocked_senders == 1)
    in_thread(lambda: owner.transport.close(None) if how == "close" else owner.transport.lose())
    if how == "lose":
        assert owner.listener.heard.wait(10)
    if blocked is not None:
        with pytest.raises(ResourceAllocationError):
            blocked.result()
    with pytest.raises(InvalidDestinationError):
        client.send("late", queue=place)
    tx.commit()
    check(client.broker)
    assert place not in client.admin.destinations()


def _bound(owner: Client, place: Destination) -> None:
    catalogue = owner.broker.catalogue
    line = catalogue.existing(place)
    settings = replace(line.settings, quota="one")
    catalogue._give_settings(line, [line.queue], settings, catalogue.quotas["one"])  # type: ignore[union-attr]
    line.refresh()  # type: ignore[union-attr]


def test_a_temporary_queue_never_touches_the_disk(connect: Connect, file: Path) -> None:
    url = f"embedded:?store={file}"
    client = connect(url)
    place = client.session.create_temporary("queue", None)
    client.send("a", queue=place)
    keeper = connect(url)
    client.transport.close(None)
    keeper.transport.close(None)
    again = connect(url)
    assert again.admin.destinations() == []


def test_nobody_makes_a_queue_of_a_temporary_name(client: Client) -> None:
    name = client.session.create_temporary("queue", None).name + "x"
    calls: list[Callable[[], object]] = [
        lambda: client.send("a", queue=Queue(name)),
        lambda: client.receiver(Queue(name)),
        lambda: client.admin.create_queue(name),
    ]
    for call in calls:
        with pytest.raises(InvalidDestinationError):
            call()


def test_request_and_reply_through_the_public_api(url: str, client: Client) -> None:
    with connect_public(url) as asking, connect_public(url) as answering:
        with asking.create_session() as session, answering.create_session() as service:
            mine = session.create_temporary_queue()
            session.create_producer("requests").send("what?", reply_to=mine)
            request = service.create_consumer("requests").receive(5)
            assert request is not None
            assert request.reply_to is not None
            service.create_producer(request.reply_to).send("that!")
            answer = session.create_consumer(mine).receive(5)
            assert answer is not None
            assert answer.text == "that!"
        assert len(client.admin.destinations()) == 2
    until(lambda: [one.name for one in client.admin.destinations()] == ["requests"])


# -- browsing ------------------------------------------------------------------------------------------------------------


def test_browse_sees_what_could_be_taken_and_changes_nothing(timed: Client, connect: Connect, url: str, clock: ManualClock) -> None:
    timed.send("a", "held", content("unborn", delivery_time=clock.wall() + 10), content("high", priority=9))
    tx = connect(url, clock, transacted=True)
    tx.send("uncommitted")
    timed.receiver(demand=1, selector="JMSPriority = 9")[1].wait(1)
    before = timed.stats()
    assert timed.bodies() == ["a", "held"]
    assert timed.bodies() == ["a", "held"]
    assert timed.stats() == before
    browser, sink = timed.receiver(kind="browse", demand=5, selector="JMSMessageID is not null")
    browser.drain(None)
    assert sink.bodies == ["a", "held"]
    assert all(arrival.settled for arrival in sink.arrivals)
    browser.settle(sink.arrivals, RETRY)
    assert timed.stats() == before


def test_browse_in_steps_and_drain(client: Client) -> None:
    """When a drain returns, all that was visible when it began has arrived, as far as it was asked for."""
    client.send(*map(str, range(10)))
    slow: list[int] = []

    def on_batch(batch: list[Arrival]) -> None:
        slow.append(len(batch))

    browser, sink = client.receiver(kind="browse", on_batch=on_batch)
    browser.request(3)
    browser.drain(None)
    assert sink.bodies == ["0", "1", "2"]
    browser.request(100)
    browser.drain(None)
    assert sink.bodies == [str(number) for number in range(10)]
    assert slow == [3, 7]


def test_browse_skips_what_was_taken_meanwhile(client: Client) -> None:
    client.send("a", "b", "c")
    browser, sink = client.receiver(kind="browse", demand=1)
    browser.drain(None)
    receiver, arrivals = client.take(2)
    browser.request(5)
    browser.drain(None)
    assert sink.bodies == ["a", "c"]
    receiver.settle(arrivals, RELEASE)


def test_a_topic_cannot_be_browsed(client: Client) -> None:
    client.send("a", queue=T)
    with pytest.raises(InvalidDestinationError):
        client.receiver(T, kind="browse")


@pytest.mark.parametrize(("place", "kind"), [("q", "topic"), ("q", "durable"), (T, "queue")])
def test_a_kind_that_does_not_fit_the_place(client: Client, place: str, kind: str) -> None:
    with pytest.raises(InvalidDestinationError):
        client.receiver(place, kind=kind, name="s")


@pytest.mark.parametrize("how", ["failed", "moved"])
def test_what_a_topics_consumer_gave_up_is_as_safe_as_its_new_place(connect: Connect, file: Path, how: str) -> None:
    """A subscription that is not durable stores nothing; the queue where its persistent message goes then does (T15, T17)."""
    url = f"embedded:?store={file}"
    client = connect(url)
    client.admin.create_topic("t", redelivery_limit=0)
    client.admin.create_queue("DLQ")
    receiver, sink = subscribe(client, "topic", demand=2 if how == "failed" else 0)
    client.send("p", content("n", persistent=False), queue=T)
    if how == "failed":
        sink.wait(2)
        receiver.settle(sink.arrivals, RETRY)
        client.session.flush(None)
    else:
        client.admin.pause_consumption(T)
        client.admin.move(T, "DLQ")
    assert client.bodies("DLQ") == ["p", "n"]
    client.transport.close(None)
    assert connect(url).bodies("DLQ") == ["p"]


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
        assert go_on.wait(10)
        write(changes)

    monkeypatch.setattr(store, "write", slow)
    committing = Background(tx.commit)
    assert begun.wait(10)
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
