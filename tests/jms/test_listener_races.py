"""Races of listeners with stop, start, close, and each other's setting, many times over (RA-16, RA-20, RA-21, RA-22)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from jmsclient import (
    AcknowledgeMode,
    CloseTimeout,
    Connection,
    ConsumerOptions,
    IllegalStateError,
    Message,
    connect,
)

Put = Callable[..., list[str]]
Until = Callable[..., None]
ALL = "queue:///Q?readAheadAllowed=YES&readAheadClosePolicy=DELIVER_ALL"


@pytest.mark.parametrize("together", [True, False], ids=["in parallel", "one after the other"])
def test_ra20_stop_then_close_does_not_hang(url: str, together: bool) -> None:
    """RA-20: 1000 repetitions on each backend; after the stop nothing more is handed over, and all that was fetched is accounted
    for."""
    with connect(url) as own:
        sender = own.create_session().create_producer("Q", persistent=False)
        for number in range(500):
            sender.send_many(["x"] * 5)
            own.start()
            session = own.create_session()
            heard: list[Message] = []
            consumer = session.create_consumer(ALL, listener=heard.append, options=ConsumerOptions(read_ahead_messages=10))
            began = time.monotonic()
            if together:
                stopper = threading.Thread(target=own.stop)
                stopper.start()
            else:
                own.stop()
            delivered_at_stop = len(heard)
            consumer.close()
            if together:
                stopper.join(20)
            session.close()
            assert time.monotonic() - began < 10, number
            numbers: Any = consumer.read_ahead
            assert numbers.fetched == numbers.delivered + numbers.released + numbers.discarded_on_close
            assert numbers.delivered == len(heard)
            assert together or len(heard) == delivered_at_stop


def test_ra21_stop_and_start_under_load_loses_nothing(connection: Connection, put: Put, wait_until: Until) -> None:
    seen: list[str | None] = []
    session = connection.create_session()
    session.create_consumer("Q", listener=lambda message: seen.append(message.text))
    wanted = [str(number) for number in range(3000)]
    sender = threading.Thread(target=lambda: put(*wanted))
    sender.start()
    turns = 0
    while sender.is_alive() or turns < 500:
        connection.stop()
        connection.start()
        turns += 1
    sender.join()
    wait_until(lambda: len(seen) == len(wanted))
    assert seen == wanted


def test_ra21_stop_and_start_from_two_threads_at_once(connection: Connection, put: Put, wait_until: Until) -> None:
    """RA-21: whichever came last is what holds, for demand and for the dispatcher."""
    seen: list[str | None] = []
    consumer = connection.create_session().create_consumer("Q", listener=lambda message: seen.append(message.text))
    sent = 0
    for turn in range(500):
        both = [threading.Thread(target=call) for call in (connection.stop, connection.start)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        if not connection.started:
            assert consumer._session.owner == 0, turn
            connection.start()
        put(str(sent))
        sent += 1
        wait_until(lambda: len(seen) == sent)  # noqa: B023  it is called at once
    assert seen == [str(number) for number in range(sent)]


def test_ra22_a_listener_set_while_a_receive_waits_is_woken(connection: Connection, put: Put, wait_until: Until) -> None:
    """RA-22: the receive still gets a message, or ends with an error, for the session is now the listener's; then the listener
    gets it."""
    session = connection.create_session()
    consumer = session.create_consumer("Q")
    for turn in range(200):
        connection.stop()
        put(str(turn))
        heard: list[Message | None] = []

        def receive(heard: list[Message | None] = heard) -> None:
            with suppress(IllegalStateError):
                heard.append(consumer.receive(10))

        receiving = threading.Thread(target=receive)
        receiving.start()
        wait_until(lambda: session.inside)
        consumer.listener = heard.append
        connection.start()
        wait_until(lambda heard=heard: heard)  # type: ignore[misc]
        receiving.join(20)
        assert not receiving.is_alive()
        assert [message and message.text for message in heard] == [str(turn)]
        consumer.listener = None


def test_ra16_a_listener_that_ends_while_its_consumer_closes_leaves_no_close_waiting(connection: Connection, put: Put) -> None:
    """RA-16, RA-20: nobody is to have the rest, so it is dropped and counted."""
    for _ in range(200):
        session = connection.create_session()
        put("a", "b", persistent=False)
        consumer = session.create_consumer(ALL, listener=lambda message: None)
        closer = threading.Thread(target=consumer.close)
        closer.start()
        try:
            consumer.listener = None
        except IllegalStateError:  # it was closing already
            pass
        closer.join(20)
        assert not closer.is_alive()
        session.close()


@pytest.mark.parametrize("what", ["consumer", "session", "connection"])
def test_ra19_close_and_stop_are_bounded_though_the_provider_does_not_answer(
    url: str, put: Put, wait_until: Until, what: str
) -> None:
    """RA-19: never past the time-out and a second, whatever the keeper waits for (a busy machine is allowed more); nothing is lost,
    close may be called again."""
    put("a", "b")
    own = connect(url)
    session = own.create_session()
    consumer = session.create_consumer("Q")
    wait_until(lambda: consumer.read_ahead.buffered_messages == 2)
    answered = threading.Event()
    own.keeper.note(lambda: answered.wait(60))
    target: Any = {"consumer": consumer, "session": session, "connection": own}[what]
    began = time.monotonic()
    own.stop(timeout=0.1)
    assert consumer.read_ahead.delivered == 0
    with pytest.raises(CloseTimeout):
        target.close(timeout=0.1)
    assert time.monotonic() - began < 10
    assert not target.closed
    answered.set()
    target.close()
    assert target.closed
    own.close()
    numbers = consumer.read_ahead
    assert (numbers.delivered, numbers.released, numbers.buffered_messages) == (0, 2, 0)


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.TRANSACTED])
def test_ra22_a_listener_that_ends_leaves_its_session_whole(connection: Connection, put: Put, mode: AcknowledgeMode) -> None:
    """The dispatcher has a message in its hands when the listener is set to None: the session is the application's only when that
    message is back, for both of them once took it from the other's hands, and it was delivered and given back at once."""
    put("0")
    taking, go_on = threading.Event(), threading.Event()
    session = connection.create_session(mode)
    consumer = session.create_consumer("Q", prefetch=10)
    pop = consumer._pop

    def slowly() -> Any:
        popped = pop()
        if popped is not None and threading.current_thread() is session._dispatcher:
            taking.set()
            go_on.wait(20)
        return popped

    consumer._pop = slowly  # type: ignore[method-assign]  # it has left the buffer, and the listener has not been looked at
    heard: list[Message] = []
    consumer.listener = heard.append
    assert taking.wait(20)
    ending = threading.Thread(target=lambda: setattr(consumer, "listener", None))
    ending.start()
    ending.join(0.1)
    assert ending.is_alive()
    go_on.set()
    ending.join(20)
    received = consumer.receive(20)
    assert received is not None
    assert (received.text, received.delivery_count, heard) == ("0", 1, [])
    if mode is AcknowledgeMode.TRANSACTED:
        session.commit()
    elif mode is AcknowledgeMode.CLIENT:
        session.acknowledge()
    numbers: Any = consumer.read_ahead
    assert (numbers.fetched, numbers.delivered, numbers.released) == (1, 1, 0)
