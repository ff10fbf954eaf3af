"""Senders that wait for room (IF-31, T1 to T3): in which order they are served, and what ends a wait."""

from __future__ import annotations

from typing import Any

import pytest

from jmsclient import Connection
from jmsclient.errors import (
    ConnectionLostError,
    JmsClientError,
    ResourceAllocationError,
    SendError,
    StoreError,
)
from jmsclient.message import PlainContent
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT

from ..lightning import GUARDED, SWALLOWED, lightning  # noqa: TID252  tests are no package that has a name
from .conftest import Background, Client, Connect, content, until


def sized(name: str) -> PlainContent:
    return content(name.ljust(100, "."))


def names(client: Client, queue: str = "q") -> list[str]:
    return [str(body).rstrip(".") for body in client.bodies(queue)]


def fill(client: Client, number: int = 5, queue: str = "q") -> None:
    client.send(*(sized(f"m{one}") for one in range(1, number + 1)), queue=queue)


def waiting(client: Client, number: int, queue: str = "q") -> None:
    until(lambda: client.stats(queue).blocked_senders == number)


def consume(client: Client, number: int = 1, queue: str = "q") -> None:
    receiver, arrivals = client.take(number, queue)
    receiver.settle(arrivals, ACCEPT)
    receiver.close(None)
    client.session.flush(None)


# -- in which order ------------------------------------------------------------------------------------------------------


def test_if_31_fifo_nobody_overtakes_a_large_one(client: Client, connect: Connect) -> None:
    client.admin.create_queue("q", bytes_maximum=500)
    fill(client)
    large = Background(lambda: connect().send(content("L" * 200)))
    waiting(client, 1)
    small = Background(lambda: connect().send(sized("small")))
    waiting(client, 2)
    with pytest.raises(ResourceAllocationError):
        client.send("", room=0)  # fits, and stands behind them
    consume(client)
    assert client.stats().blocked_senders == 2
    consume(client)
    large.result()
    consume(client)
    small.result()
    assert names(client) == ["m4", "m5", "L" * 200, "small"]


def test_if_31_preemptive_whoever_fits_goes_first(client: Client, connect: Connect) -> None:
    client.admin.create_quota("small", bytes_maximum=500, policy="preemptive")
    client.admin.create_queue("q", quota="small")
    fill(client)
    large = Background(lambda: connect().send(content("L" * 200)))
    waiting(client, 1)
    small = Background(lambda: connect().send(sized("small")))
    waiting(client, 2)
    consume(client)
    small.result()
    assert large.running
    consume(client)
    client.send("", room=0)  # a newcomer that fits as well
    consume(client)
    large.result()
    assert names(client) == ["m4", "m5", "small", "", "L" * 200]


def test_if_31_a_shared_quota_bounds_its_members_together(client: Client, connect: Connect) -> None:
    client.admin.create_quota("both", messages_maximum=2)
    for queue in ("q1", "q2"):
        client.admin.create_queue(queue, quota="both")
    client.send("a", queue="q1")
    client.send("b", queue="q2")
    sending = Background(lambda: connect().send("c", queue="q1"))
    waiting(client, 1, "q1")
    assert client.stats("q2").blocked_senders == 0
    consume(client, queue="q2")
    sending.result()
    assert (client.bodies("q1"), client.bodies("q2")) == (["a", "c"], [])


def test_t2_room_that_is_freed_while_senders_are_admitted_is_given_too(client: Client, connect: Connect) -> None:
    """T2: a consumer of settled messages empties the queue while a sender of ten is admitted; all ten get through."""
    client.admin.create_queue("q", messages_maximum=2)
    client.send("a", "b")
    sending = Background(lambda: connect().send(*map(str, range(10))))
    waiting(client, 1)
    _, sink = client.receiver(demand=100, pre_settled=True)
    sending.result()
    sink.wait(12)
    assert sink.bodies == ["a", "b", *map(str, range(10))]


# -- what ends a wait ----------------------------------------------------------------------------------------------------


def test_t3_by_the_clock_the_message_is_not_stored_later(timed: Client, connect: Connect, url: str, clock: ManualClock) -> None:
    timed.admin.create_queue("q", messages_maximum=1)
    timed.send("a")
    other = connect(url, clock)
    sending = Background(lambda: other.send("b", room=0.5))
    waiting(timed, 1)
    clock.advance(0.4)
    assert timed.stats().blocked_senders == 1
    clock.advance(0.2)
    with pytest.raises(ResourceAllocationError):
        sending.result()
    consume(timed)
    assert timed.numbers() == (0, 0)
    assert timed.stats().messages_received == 1


@pytest.mark.parametrize("way", ["time", "close", "lost"])
def test_t3_who_gives_up_lets_the_next_one_in(timed: Client, connect: Connect, url: str, clock: ManualClock, way: str) -> None:
    """FIFO: a large one at the head that goes away holds nobody up any more."""
    timed.admin.create_queue("q", bytes_maximum=500)
    timed.send(sized("a"))
    first, second = connect(url, clock), connect(url, clock)
    large = Background(lambda: first.send(content("L" * 500), room=1.0))
    waiting(timed, 1)
    small = Background(lambda: second.send(sized("b"), room=100.0))
    waiting(timed, 2)
    if way == "time":
        clock.advance(1.5)
    elif way == "close":
        first.session.close(None)
    else:
        first.transport.lose()
    with pytest.raises((ResourceAllocationError, JmsClientError)):
        large.result()
    small.result()
    assert names(timed) == ["a", "b"]


def test_if_31_send_many_is_admitted_in_part_and_says_which(timed: Client, connect: Connect, url: str, clock: ManualClock) -> None:
    timed.admin.create_queue("q", messages_maximum=3)
    messages = [content(str(one)) for one in range(5)]
    ids = [str(one.message_id) for one in messages]
    with pytest.raises(SendError) as raised:
        timed.send(*messages, room=0)
    assert (list(raised.value.confirmed), list(raised.value.unsent), list(raised.value.in_doubt)) == (ids[:3], ids[3:], [])
    assert timed.bodies() == ["0", "1", "2"]
    other = connect(url, clock)
    more = [content(str(one)) for one in range(5, 9)]
    sending = Background(lambda: other.send(*more, room=2.0))
    waiting(timed, 1)
    consume(timed, 2)
    until(lambda: timed.numbers() == (3, 0))
    assert timed.stats().blocked_senders == 1  # two of its four wait still
    clock.advance(3)
    with pytest.raises(SendError) as raised:
        sending.result()
    assert (len(raised.value.confirmed), len(raised.value.unsent)) == (2, 2)
    assert timed.bodies() == ["2", "5", "6"]


def test_if_31_send_many_of_the_public_api_says_which(client: Client, connection: Connection) -> None:
    client.admin.create_queue("q", messages_maximum=2)
    with connection.create_session() as session, pytest.raises(SendError) as raised:
        session.create_producer("q").send_many(["a", "b", "c"])
    assert (len(raised.value.confirmed), len(raised.value.unsent)) == (2, 1)
    assert client.bodies() == ["a", "b"]


@GUARDED
@SWALLOWED
def test_if_40_ctrl_c_while_a_send_waits_on_the_main_thread_leaves_no_waiter(client: Client, connection: Connection) -> None:
    """IF-31 with IF-40: the exception leaves at once, the message is never stored, the next sender is served."""
    client.admin.create_queue("q", messages_maximum=1)
    client.send("a")
    with connection.create_session() as session:
        producer = session.create_producer("q", send_timeout=30)
        with lightning(0.1, 0.1) as storm:
            assert storm.hits(lambda: producer.send("never"))
        until(lambda: client.stats().blocked_senders == 0)
        consume(client)
        assert client.numbers() == (0, 0)
        producer.send("b")
    assert client.bodies() == ["b"]


# -- with a store --------------------------------------------------------------------------------------------------------


def test_if_31_stored_sends_wait_and_are_confirmed_when_they_are_stored(connect: Connect, tmp_path: Any) -> None:
    url = f"embedded:?store={tmp_path / 'shop.db'}"
    client = connect(url)
    client.admin.create_queue("q", messages_maximum=2)
    client.send("a", "b")
    other = connect(url)
    sending = Background(lambda: other.send("c", "d"))
    waiting(client, 1)
    consume(client, 2)
    sending.result()
    assert client.bodies() == ["c", "d"]
    for one in (other, client):
        one.transport.close(None)
    again = connect(url)
    assert again.bodies() == ["c", "d"]
    with pytest.raises(ResourceAllocationError):
        again.send("e", room=0)


def test_if_31_a_part_that_could_not_be_stored_ends_the_wait_and_says_which(
    connect: Connect, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for room is not sent when what stood before it could not be stored; what was stored is confirmed."""
    url = f"embedded:?store={tmp_path / 'shop.db'}"
    client, other = connect(url), connect(url)
    client.admin.create_queue("q", messages_maximum=2)
    client.send("x")
    receiver, arrivals = client.take(1)
    messages = [content(str(one)) for one in range(5)]
    ids = [str(one.message_id) for one in messages]
    sending = Background(lambda: other.send(*messages))
    until(lambda: client.numbers() == (1, 1))
    store = client.broker.store
    assert store is not None
    write = store.write

    def full(changes: Any) -> None:
        if changes.inserts:
            raise StoreError("no space left")
        write(changes)

    monkeypatch.setattr(store, "write", full)
    receiver.settle(arrivals, ACCEPT)
    with pytest.raises(SendError) as raised:
        sending.result()
    assert (list(raised.value.confirmed), list(raised.value.unsent)) == (ids[:1], ids[1:])
    assert client.stats().blocked_senders == 0
    monkeypatch.undo()
    assert client.bodies() == ["0"]


def test_if_31_a_paused_queue_holds_up_nobody_at_another_queue_of_its_quota(client: Client, connect: Connect) -> None:
    client.admin.create_quota("both", messages_maximum=1)
    for queue in ("q", "other"):
        client.admin.create_queue(queue, quota="both")
    client.send("a")
    first = Background(lambda: connect().send("b"))
    waiting(client, 1)
    second = Background(lambda: connect().send("c", queue="other"))
    waiting(client, 1, "other")
    client.admin.pause_insertion("q")
    consume(client)
    second.result()
    client.admin.resume_insertion("q")
    consume(client, queue="other")
    first.result()
    assert (client.bodies("q"), client.bodies("other")) == (["b"], [])


def test_o07_a_lost_connection_ends_a_send_that_waits_and_says_so(client: Client, connect: Connect) -> None:
    client.admin.create_queue("q", messages_maximum=1)
    client.send("a")
    other = connect()
    sending = Background(lambda: other.send("b"))
    waiting(client, 1)
    other.transport.lose()
    with pytest.raises(ConnectionLostError):
        sending.result()
    assert client.stats().blocked_senders == 0


def test_if_31_shared_and_topic_quotas_after_a_restart(connect: Connect, tmp_path: Any) -> None:
    url = f"embedded:?store={tmp_path / 'shop.db'}"
    client = connect(url, client_id="c")
    client.admin.create_quota("both", messages_maximum=3, policy="preemptive")
    client.admin.create_queue("q1", quota="both")
    client.admin.create_queue("q2", quota="both")
    client.admin.create_topic("t", bytes_maximum=2)
    client.receiver("topic:///t", kind="durable", name="s")[0].close(None)
    client.send("a", queue="q1")
    client.send("b", "c", queue="q2")
    client.send("12", queue="topic:///t")
    client.transport.close(None)
    client = connect(url, client_id="c")
    assert client.broker.catalogue.quotas["both"].policy == "preemptive"
    for queue in ("q1", "q2", "topic:///t"):
        with pytest.raises(ResourceAllocationError):
            client.send("d", queue=queue, room=0)
    consume(client, queue="q2")
    client.send("d", queue="q1", room=0)
    client.session.unsubscribe("s", None)
    client.receiver("topic:///t", kind="durable", name="s")
    client.send("34", queue="topic:///t", room=0)


def test_if_31_everything_in_one_transaction_counts_against_the_quota(client: Client, connect: Connect) -> None:
    """What a transaction received frees its room when it commits, not when it is acknowledged."""
    client.admin.create_queue("q", messages_maximum=2)
    client.send("a", "b")
    transacted = connect(transacted=True)
    receiver, arrivals = transacted.take(1, hand_over=True)
    receiver.settle(arrivals, ACCEPT)
    with pytest.raises(ResourceAllocationError):
        transacted.send("c", room=0)
    sending = Background(lambda: client.send("d"))
    waiting(connect(), 1)
    transacted.commit()
    sending.result()
    assert connect().bodies() == ["b", "d"]
