"""Quotas (IF-31, T1 to T3, O07): what counts, who waits and in which order, what ends a wait, what a quota does not bind."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection, connect
from jmsclient.errors import (
    ConfigurationError,
    ConnectionLostError,
    DestinationPausedError,
    IllegalStateError,
    JmsClientError,
    ResourceAllocationError,
    SendError,
    StoreError,
)
from jmsclient.message import PlainContent
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RETRY
from jmsclient_embedded.invariants import check

from .conftest import Background, Client, Connect, content, until

BODY = "x" * 100
KINDS = {"messages": {"messages_maximum": 5}, "bytes": {"bytes_maximum": 500}}


@pytest.fixture(params=KINDS)
def maximum(request: pytest.FixtureRequest) -> dict[str, int]:
    """Room for five messages of 100 bytes, in each of the two measures."""
    return KINDS[request.param]


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


# -- O07, through the public API -----------------------------------------------------------------------------------------


@pytest.fixture
def connection(url: str, client: Client) -> Iterator[Connection]:
    with connect(url) as connection:
        yield connection


def test_o07_a_a_send_without_room_raises_at_its_time_out_and_is_invisible(
    client: Client, connection: Connection, maximum: dict[str, Any]
) -> None:
    connection.administration.create_queue("q", **maximum)
    fill(client)
    with connection.create_session() as session:
        producer = session.create_producer("q", send_timeout=0.3)
        start = time.monotonic()
        sending = Background(lambda: producer.send("m6".ljust(100, ".")))
        waiting(client, 1)
        found = client.stats()
        assert (found.messages_current, found.messages_pending, found.messages_received) == (5, 0, 5)
        with pytest.raises(ResourceAllocationError):
            sending.result()
        assert 0.25 < time.monotonic() - start < 0.8
    consume(client)
    assert names(client) == ["m2", "m3", "m4", "m5"]
    assert client.stats().blocked_senders == 0


def test_o07_b_first_come_first_served(client: Client, connection: Connection, url: str, maximum: dict[str, Any]) -> None:
    client.admin.create_queue("q", **maximum)
    fill(client)
    with connection.create_session() as session, connect(url) as other, other.create_session() as second:
        m6 = Background(lambda: session.create_producer("q", send_timeout=10).send("m6".ljust(100, ".")))
        waiting(client, 1)
        m7 = Background(lambda: second.create_producer("q", send_timeout=0.5).send("m7".ljust(100, ".")))
        waiting(client, 2)
        consume(client)
        m6.result()
        with pytest.raises(ResourceAllocationError):
            m7.result()
    assert names(client) == ["m2", "m3", "m4", "m5", "m6"]


@pytest.mark.parametrize("what", ["connection", "session"])
def test_o07_c_close_from_another_thread_ends_a_send_that_waits(
    client: Client, connection: Connection, maximum: dict[str, Any], what: str
) -> None:
    client.admin.create_queue("q", **maximum)
    fill(client)
    session = connection.create_session()
    producer = session.create_producer("q", send_timeout=30)
    sending = Background(lambda: producer.send(BODY))
    waiting(client, 1)
    start = time.monotonic()
    (connection if what == "connection" else session).close()
    with pytest.raises(JmsClientError):
        sending.result()
    assert time.monotonic() - start < 1
    assert client.stats().blocked_senders == 0
    consume(client)
    assert client.numbers() == (4, 0)


def test_o07_d_what_can_never_fit_is_refused_at_once(client: Client, connection: Connection) -> None:
    client.admin.create_queue("q", bytes_maximum=500)
    client.admin.create_queue("nothing", messages_maximum=0)
    client.admin.create_queue("no bytes", bytes_maximum=0)
    with connection.create_session() as session:
        for queue, body in (("q", "x" * 501), ("nothing", "x"), ("no bytes", "")):
            start = time.monotonic()
            with pytest.raises(ResourceAllocationError, match="never fit"):
                session.create_producer(queue, send_timeout=30).send(body)
            assert time.monotonic() - start < 1
            assert client.numbers(queue) == (0, 0)
        session.create_producer("q").send("x" * 500)


def test_o07_e_a_transaction_reserves_room_and_a_rollback_frees_it(
    client: Client, connection: Connection, maximum: dict[str, Any]
) -> None:
    client.admin.create_queue("q", **maximum)
    fill(client, 4)
    with connection.create_session(AcknowledgeMode.TRANSACTED) as session:
        producer = session.create_producer("q", send_timeout=0.05)
        producer.send(BODY)
        for _ in range(2):
            with pytest.raises(ResourceAllocationError):
                producer.send(BODY)
        assert client.numbers() == (4, 1)
        session.rollback()
        assert client.numbers() == (4, 0)
        producer.send(BODY)
        session.commit()
        assert client.numbers() == (5, 0)


def test_if_31_the_send_timeout_is_10_ms_unless_it_is_said(client: Client, connection: Connection) -> None:
    client.admin.create_queue("q", messages_maximum=1)
    fill(client, 1)
    with connection.create_session() as session:
        for producer in (session.create_producer("q"), session.create_producer("q", send_timeout=0)):
            start = time.monotonic()
            with pytest.raises(ResourceAllocationError):
                producer.send("a")
            assert time.monotonic() - start < 0.5


# -- what counts ---------------------------------------------------------------------------------------------------------


def test_if_31_pending_messages_count_and_senders_that_wait_do_not(timed: Client, connect: Connect, url: str) -> None:
    timed.admin.create_queue("q", messages_maximum=4)
    transacted = connect(url, timed.clock, transacted=True)
    transacted.send("uncommitted")
    timed.send("held", content("unborn", delivery_time=timed.clock.wall() + 100), "visible")
    timed.take(1)
    assert timed.numbers() == (1, 3)
    with pytest.raises(ResourceAllocationError):
        timed.send("one too many", room=0)
    assert timed.numbers() == (1, 3)


LEAVES: dict[str, Callable[[Client, ManualClock], None]] = {
    "acknowledged": lambda client, clock: consume(client),
    "expired": lambda client, clock: clock.advance(40),
    "deleted": lambda client, clock: _managed(client, lambda: client.admin.delete("q", "1 = 1")),
    "drained": lambda client, clock: _managed(client, lambda: client.admin.drain("q")),
    "moved": lambda client, clock: _managed(client, lambda: client.admin.move("q", "elsewhere")),
    "dead-lettered": lambda client, clock: _failed(client),
    "sent settled": lambda client, clock: client.receiver(demand=1, pre_settled=True)[1].wait(1) and None,
}


def _managed(client: Client, call: Callable[[], object]) -> None:
    client.admin.pause_consumption("q")
    call()


def _failed(client: Client) -> None:
    receiver, arrivals = client.take(1, hand_over=True)
    receiver.settle(arrivals, RETRY)


@pytest.mark.parametrize("how", LEAVES)
def test_if_31_whatever_leaves_makes_room(timed: Client, connect: Connect, url: str, clock: ManualClock, how: str) -> None:
    """T2: and the sender that waited gets it at once."""
    timed.admin.create_queue("q", messages_maximum=1, redelivery_limit=0)
    timed.admin.create_queue("elsewhere")
    timed.send(content("a", expiration=clock.wall() + 20))
    other = connect(url, clock)
    sending = Background(lambda: other.send("b"))
    waiting(timed, 1)
    LEAVES[how](timed, clock)
    sending.result()
    assert timed.bodies() == ["b"]
    assert timed.stats().messages_received == 2
    assert timed.stats().blocked_senders == 0


def test_if_31_a_rollback_wakes_who_waits(client: Client, connect: Connect) -> None:
    """T6."""
    client.admin.create_queue("q", messages_maximum=1)
    transacted = connect(transacted=True)
    transacted.send("a")
    sending = Background(lambda: client.send("b"))
    until(lambda: client.admin.statistics("q").blocked_senders == 1)
    transacted.rollback()
    sending.result()
    assert client.bodies() == ["b"]


def test_if_31_a_message_of_any_size_that_fits_enters_to_the_last_byte(client: Client) -> None:
    client.admin.create_queue("q", bytes_maximum=10, messages_maximum=3)
    client.send("12345")
    client.send("67890")
    client.send("", room=0)
    with pytest.raises(ResourceAllocationError):
        client.send("", room=0)
    assert client.stats().bytes_current == 10


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


# -- changing it ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_if_31_lowering_denies_new_sends_only_and_raising_admits(client: Client, connect: Connect, shared: bool) -> None:
    admin = client.admin

    def set_maximum(number: int) -> None:
        if shared:
            admin.create_quota("shared", messages_maximum=number)
            admin.create_queue("q", quota="shared")
        else:
            admin.create_queue("q", messages_maximum=number)

    set_maximum(3)
    client.send("a", "b", "c")
    set_maximum(1)
    assert client.numbers() == (3, 0)
    sending = Background(lambda: connect().send("d"))
    waiting(client, 1)
    consume(client)
    assert client.stats().blocked_senders == 1
    set_maximum(3)
    sending.result()
    assert client.bodies() == ["b", "c", "d"]
    set_maximum(-1)
    client.send("e", "f", room=0)


@pytest.mark.parametrize("to", ["another", "own", "none", "deleted"])
def test_if_31_re_pointing_fails_those_who_wait(client: Client, connect: Connect, to: str) -> None:
    admin = client.admin
    admin.create_quota("first", messages_maximum=1)
    admin.create_quota("second", messages_maximum=1000)
    admin.create_queue("q", quota="first")
    admin.create_queue("other", quota="first")
    client.send("a", queue="other")
    sending = Background(lambda: connect().send("b"))
    others = Background(lambda: connect().send("c", queue="other"))
    waiting(client, 1)
    waiting(client, 1, "other")
    if to == "another":
        admin.create_queue("q", quota="second")
    elif to == "own":
        admin.create_queue("q", messages_maximum=5)
    elif to == "none":
        admin.create_queue("q")
    else:
        admin.delete_destination("q")
    with pytest.raises(ResourceAllocationError):
        sending.result()
    assert others.running  # it waits for the same quota at another queue still
    consume(client, queue="other")
    others.result()
    assert client.bodies("other") == ["c"]
    assert client.bodies("q") == []
    check(client.broker)


def test_if_31_a_quota_of_two_kinds_and_an_unknown_one_are_refused(client: Client) -> None:
    client.admin.create_queue("q", messages_maximum=7)
    with pytest.raises(ConfigurationError, match="no such quota"):
        client.admin.create_queue("q", quota="nobody's")
    client.admin.create_quota("one")
    with pytest.raises(ConfigurationError, match="one of the two"):
        client.admin.create_queue("q", quota="one", messages_maximum=1)
    with pytest.raises(ConfigurationError, match="one of the two"):
        client.admin.create_queue("new", quota="one", bytes_maximum=1)
    client.send(*map(str, range(7)), room=0)
    with pytest.raises(ResourceAllocationError):
        client.send("8", room=0)
    assert [one.name for one in client.admin.destinations()] == ["q"]


def test_if_31_a_template_quota_is_each_queues_own(connect: Connect, url: str) -> None:
    client = connect(f"{url}?messages_maximum=1")
    client.send("a", queue="q1")
    client.send("a", queue="q2")
    for queue in ("q1", "q2"):
        with pytest.raises(ResourceAllocationError):
            client.send("b", queue=queue, room=0)


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


class Struck(Exception):  # noqa: N818  it is no error
    pass


def _strike(signum: int, frame: object) -> None:
    raise Struck


def test_if_40_ctrl_c_while_a_send_waits_on_the_main_thread_leaves_no_waiter(client: Client, connection: Connection) -> None:
    """IF-31 with IF-40: the exception leaves at once, the message is never stored, the next sender is served."""
    client.admin.create_queue("q", messages_maximum=1)
    client.send("a")
    with connection.create_session() as session:
        producer = session.create_producer("q", send_timeout=30)
        before = signal.signal(signal.SIGALRM, _strike)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Struck):
                producer.send("never")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        until(lambda: client.stats().blocked_senders == 0)
        consume(client)
        assert client.numbers() == (0, 0)
        producer.send("b")
    assert client.bodies() == ["b"]


# -- what a quota does not bind ------------------------------------------------------------------------------------------


def test_if_31_transfers_to_an_error_destination_and_moves_ignore_its_quota(timed: Client, clock: ManualClock) -> None:
    admin = timed.admin
    admin.create_queue("DLQ", messages_maximum=1)
    admin.create_queue("q", redelivery_limit=0, expiration_policy="redirect")
    timed.send("full", queue="DLQ")
    timed.send("failing", content("expiring", expiration=clock.wall() + 1), "moved")
    receiver, arrivals = timed.take(1, hand_over=True)
    receiver.settle(arrivals, RETRY)
    receiver.close(None)
    clock.advance(40)
    until(lambda: timed.numbers("DLQ") == (3, 0))
    admin.pause_consumption("q")
    admin.move("q", "DLQ")
    assert timed.bodies("DLQ") == ["full", "failing", "expiring", "moved"]
    with pytest.raises(ResourceAllocationError):
        timed.send("refused", queue="DLQ", room=0)


def test_if_31_what_comes_back_needs_no_room(client: Client) -> None:
    client.admin.create_queue("q", messages_maximum=2)
    client.send("a", "b")
    receiver, arrivals = client.take(2, hand_over=True)
    client.admin.create_queue("q", messages_maximum=1)
    receiver.settle(arrivals, RETRY)
    client.session.flush(None)
    assert client.bodies() == ["a", "b"]


def test_t2_an_insertion_pause_keeps_waiters_and_lets_them_in_afterwards(client: Client, connect: Connect) -> None:
    client.admin.create_queue("q", messages_maximum=1)
    client.send("a")
    sending = Background(lambda: connect().send("b"))
    waiting(client, 1)
    client.admin.pause_insertion("q")
    consume(client)
    assert client.stats().blocked_senders == 1
    with pytest.raises(DestinationPausedError):
        client.send("c")
    client.admin.resume_insertion("q")
    sending.result()
    assert client.bodies() == ["b"]


def test_if_31_a_send_to_a_closed_session_waits_for_nothing(client: Client) -> None:
    client.admin.create_queue("q", messages_maximum=1)
    client.send("a")
    sender = client.session.open_sender(client.admin.destinations()[0], None)
    client.session.close(None)
    with pytest.raises(IllegalStateError):
        sender.send([content("b")], room_deadline=None, confirm_timeout=None)
    assert client.stats().blocked_senders == 0


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
