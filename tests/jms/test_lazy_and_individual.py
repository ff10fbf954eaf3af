"""DUPS_OK and INDIVIDUAL sessions (IF-39, IF-9, IF-27, RA-3, RA-26)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from jmsclient import AcknowledgeMode, Connection, IllegalStateError, Message, MessageConsumer
from jmsclient.testing import ManualClock

Put = Callable[..., list[str]]
Rest = Callable[..., list[tuple[str | None, int]]]
Balanced = Callable[[MessageConsumer], bool]
Until = Callable[..., None]
DUPS_OK, INDIVIDUAL = AcknowledgeMode.DUPS_OK, AcknowledgeMode.INDIVIDUAL


def got(consumer: MessageConsumer) -> Message:
    message = consumer.receive(5)
    assert message is not None
    return message


def in_a_thread(call: Callable[[], object]) -> None:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # told to the test below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


# -- DUPS_OK -------------------------------------------------------------------------------------------------------------


def test_if39_dups_ok_gathers_a_quarter_window(timed: Connection, put: Put, balanced: Balanced, wait_until: Until) -> None:
    put(*"abcdefgh")
    session = timed.create_session(DUPS_OK)
    consumer = session.create_consumer("Q", prefetch=8)
    wait_until(lambda: consumer.read_ahead.buffered_messages == 8)
    first = got(consumer)
    assert not first.arrival.settled
    second = got(consumer)
    assert (first.arrival.settled, second.arrival.settled) == (True, True)
    third = got(consumer)
    assert not third.arrival.settled
    assert balanced(consumer)


def test_if39_dups_ok_flushes_what_is_50_ms_old(
    timed: Connection, clock: ManualClock, put: Put, balanced: Balanced, wait_until: Until
) -> None:
    put("a", "b")
    session = timed.create_session(DUPS_OK)
    consumer = session.create_consumer("Q")
    wait_until(lambda: consumer.read_ahead.buffered_messages == 2)
    for _ in range(2):
        message = got(consumer)
        timed.keeper.call(lambda: None)  # it has heard of the time
        clock.advance(0.049)
        timed.keeper.call(lambda: None)
        assert not message.arrival.settled
        clock.advance(0.002)
        wait_until(lambda message=message: message.arrival.settled)
    assert balanced(consumer)


def test_if39_dups_ok_flushes_before_it_blocks(timed: Connection, put: Put, balanced: Balanced) -> None:
    put("a", "b")
    session = timed.create_session(DUPS_OK)
    consumer = session.create_consumer("Q")
    messages = [got(consumer), got(consumer)]
    assert consumer.receive(0) is None
    assert all(message.arrival.settled for message in messages)
    assert balanced(consumer)


@pytest.mark.parametrize("what", ["consumer", "session", "recover"])
def test_if39_dups_ok_flushes_at_close_and_recover(timed: Connection, put: Put, rest: Rest, balanced: Balanced, what: str) -> None:
    put("a", "b", "c")
    session = timed.create_session(DUPS_OK)
    consumer = session.create_consumer("Q")
    messages = [got(consumer), got(consumer)]
    ends: dict[str, Callable[[], object]] = {"consumer": consumer.close, "session": session.close, "recover": session.recover}
    ends[what]()
    assert all(message.arrival.settled for message in messages)
    session.close()
    assert balanced(consumer)
    assert rest() == [("c", 1)]


def test_if39_dups_ok_iterates_and_listens(connection: Connection, put: Put, rest: Rest, balanced: Balanced) -> None:
    put(*map(str, range(10)))
    with connection.create_session(DUPS_OK) as session:
        consumer = session.create_consumer("Q")
        found = []
        for message in consumer:
            found.append(message.text)
            if len(found) == 5:
                break
        consumer.close()
        assert balanced(consumer)
    heard: list[str | None] = []
    done = threading.Event()

    def listen(message: Message) -> None:
        heard.append(message.text)
        if len(heard) == 5:
            done.set()

    with connection.create_session(DUPS_OK) as session:
        consumer = session.create_consumer("Q", listener=listen)
        assert done.wait(20)
        consumer.close()
        assert balanced(consumer)
    assert found + heard == [str(number) for number in range(10)]
    assert rest() == []


def test_if39_dups_ok_retries_what_a_listener_failed_on(connection: Connection, put: Put, rest: Rest) -> None:
    put("a")
    counts: list[int] = []
    done = threading.Event()

    def listen(message: Message) -> None:
        counts.append(message.delivery_count)
        if len(counts) == 1:
            raise ValueError("once")
        done.set()

    with connection.create_session(DUPS_OK) as session:
        session.create_consumer("Q", listener=listen)
        assert done.wait(20)
    assert counts == [1, 2]
    assert rest() == []


def test_ra3_dups_ok_takes_what_is_not_persistent(connection: Connection, put: Put, balanced: Balanced, wait_until: Until) -> None:
    put("a", "b", persistent=False)
    session = connection.create_session(DUPS_OK)
    consumer = session.create_consumer("queue:///Q?readAheadAllowed=YES")
    wait_until(lambda: consumer.read_ahead.buffered_taken == 2)
    assert got(consumer).text == "a"
    assert balanced(consumer)


# -- INDIVIDUAL ----------------------------------------------------------------------------------------------------------


def test_if39_individual_covers_that_message_only(connection: Connection, put: Put, rest: Rest, balanced: Balanced) -> None:
    put("a", "b", "c", "d")
    session = connection.create_session(INDIVIDUAL)
    consumer = session.create_consumer("Q")
    messages = [got(consumer) for _ in range(3)]
    messages[1].acknowledge()
    messages[1].acknowledge()
    session.close()
    assert balanced(consumer)
    assert rest() == [("a", 2), ("c", 2), ("d", 1)]


def test_if39_individual_from_any_thread(connection: Connection, put: Put, rest: Rest, balanced: Balanced) -> None:
    put(*map(str, range(8)))
    session = connection.create_session(INDIVIDUAL)
    consumer = session.create_consumer("Q")
    messages = [got(consumer) for _ in range(8)]
    in_a_thread(messages[0].acknowledge)
    threads = [threading.Thread(target=message.acknowledge) for message in messages[2:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert balanced(consumer)
    session.close()
    assert rest() == [("1", 2)]


def test_if39_individual_while_the_session_waits(connection: Connection, put: Put, rest: Rest) -> None:
    """A receive that blocks does not keep another thread from acknowledging."""
    put("a")
    session = connection.create_session(INDIVIDUAL)
    consumer = session.create_consumer("Q")
    message = got(consumer)
    waiting = threading.Thread(target=lambda: consumer.receive(30))
    waiting.start()
    in_a_thread(message.acknowledge)
    consumer.close()
    waiting.join(20)
    session.close()
    assert rest() == []


def test_if39_session_acknowledge_covers_all_delivered(connection: Connection, put: Put, rest: Rest, balanced: Balanced) -> None:
    put("a", "b", "c")
    session = connection.create_session(INDIVIDUAL)
    consumer = session.create_consumer("Q")
    got(consumer).acknowledge()
    got(consumer)
    session.acknowledge()
    session.close()
    assert balanced(consumer)
    assert rest() == [("c", 1)]


def test_if39_recover_retries_the_rest_in_order(connection: Connection, put: Put, rest: Rest, balanced: Balanced) -> None:
    put("a", "b", "c", "d")
    session = connection.create_session(INDIVIDUAL)
    consumer = session.create_consumer("Q")
    messages = [got(consumer) for _ in range(3)]
    in_a_thread(messages[1].acknowledge)
    session.recover()
    again = [got(consumer) for _ in range(3)]
    assert [(message.text, message.delivery_count) for message in again] == [("a", 2), ("c", 2), ("d", 1)]
    messages[0].acknowledge()  # its redelivery is another delivery
    session.close()
    assert balanced(consumer)
    assert rest() == [("a", 3), ("c", 3), ("d", 2)]


def test_if9_individual_after_the_consumers_close(connection: Connection, put: Put, rest: Rest, wait_until: Until) -> None:
    """IF-9, IF-27: the receiver stays until the last of its messages is acknowledged."""
    put("a", "b", "c")
    session = connection.create_session(INDIVIDUAL)
    consumer = session.create_consumer("Q")
    messages = [got(consumer), got(consumer)]
    consumer.close()
    in_a_thread(messages[0].acknowledge)
    connection.keeper.call(lambda: None)
    assert len(session._lingering) == 1
    in_a_thread(messages[1].acknowledge)
    wait_until(lambda: not session._lingering)
    session.close()
    assert rest() == [("c", 1)]


def test_s04_individual_after_the_sessions_close(connection: Connection, put: Put, rest: Rest) -> None:
    put("a")
    session = connection.create_session(INDIVIDUAL)
    message = got(session.create_consumer("Q"))
    session.close()
    with pytest.raises(IllegalStateError, match="closed"):
        message.acknowledge()
    assert rest() == [("a", 2)]
