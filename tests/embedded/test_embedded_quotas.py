"""Quotas (IF-31, O07): what counts, what changes them, what they do not bind."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection, connect
from jmsclient.errors import (
    ConfigurationError,
    DestinationPausedError,
    IllegalStateError,
    JmsClientError,
    ResourceAllocationError,
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
        assert 0.25 < time.monotonic() - start < 5  # T3 has it by the clock
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
    assert time.monotonic() - start < 10
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
            assert time.monotonic() - start < 10
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
            assert time.monotonic() - start < 5


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
