"""Listeners and their close (P06; RA-16, RA-18, RA-19, RA-22, RA-24, IF-12, IF-36)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from jmsclient import (
    AcknowledgeMode,
    CloseReport,
    CloseTimeout,
    Connection,
    ConsumerOptions,
    IllegalStateError,
    Message,
    MessageConsumer,
)
from jmsclient.events import Event, subscribe

from .conftest import when

Put = Callable[..., list[str]]
Rest = Callable[..., list[tuple[str | None, int]]]
Until = Callable[..., None]
CURRENT = "queue:///Q?readAheadAllowed=YES&readAheadClosePolicy=DELIVER_CURRENT"
ALL = "queue:///Q?readAheadAllowed=YES&readAheadClosePolicy=DELIVER_ALL"


def test_a_listener_gets_messages_in_order_and_acknowledges(
    connection: Connection, put: Put, rest: Rest, wait_until: Until
) -> None:
    seen: list[str | None] = []
    session = connection.create_session()
    session.create_consumer("Q", listener=lambda message: seen.append(message.text))
    put("a", "b", "c")
    wait_until(lambda: len(seen) == 3)
    session.close()
    assert seen == ["a", "b", "c"]
    assert rest() == []


def test_if12_a_listener_that_raises_makes_a_counted_attempt(connection: Connection, put: Put, wait_until: Until) -> None:
    seen: list[tuple[str | None, int]] = []
    events: list[Event] = []
    unsubscribe = subscribe(events.append)

    def listen(message: Message) -> None:
        seen.append((message.text, message.delivery_count))
        if len(seen) < 3:
            raise RuntimeError("no")

    session = connection.create_session()
    session.create_consumer("Q", listener=listen)
    put("a")
    wait_until(lambda: len(seen) == 3)
    session.close()
    unsubscribe()
    assert seen == [("a", 1), ("a", 2), ("a", 3)]
    assert [event.name for event in events].count("listener_failed") == 2


def test_if39_a_taken_message_whose_listener_raised_is_gone(
    connection: Connection, put: Put, rest: Rest, wait_until: Until
) -> None:
    events: list[Event] = []
    unsubscribe = subscribe(events.append)

    def listen(message: Message) -> None:
        raise RuntimeError("no")

    session = connection.create_session()
    consumer = session.create_consumer(ALL)
    put("a", persistent=False)
    wait_until(lambda: consumer.read_ahead.buffered_taken == 1)
    consumer.listener = listen
    wait_until(lambda: any("taken and is gone" in event.text for event in events))
    unsubscribe()
    session.close()
    assert rest() == []


def test_the_session_belongs_to_its_dispatcher_while_a_listener_is_set(connection: Connection, put: Put, wait_until: Until) -> None:
    session = connection.create_session(AcknowledgeMode.CLIENT)
    seen: list[str | None] = []

    def listen(message: Message) -> None:
        seen.append(message.text)
        session.create_producer("OUT").send("from the listener")
        message.acknowledge()

    consumer = session.create_consumer("Q", listener=listen)
    put("a")
    wait_until(lambda: seen == ["a"])
    for call in (lambda: consumer.receive(0), session.recover, lambda: session.create_consumer("Q2")):
        with pytest.raises(IllegalStateError, match="dispatcher"):
            call()
    consumer.listener = None
    wait_until(lambda: not session.inside)  # the running call ends; until then the session is busy
    assert session.create_consumer("OUT").receive(10) is not None


def test_ra22_ending_the_listener_leaves_the_rest_in_the_buffer(connection: Connection, put: Put, wait_until: Until) -> None:
    put("a", "b", "c")
    session = connection.create_session()
    entered, go = threading.Event(), threading.Event()

    def listen(message: Message) -> None:
        entered.set()
        go.wait(30)

    consumer = session.create_consumer("Q", listener=listen)
    assert entered.wait(20)
    consumer.listener = None
    go.set()
    wait_until(lambda: session.calling is None)
    found = [consumer.receive(10) for _ in range(2)]
    assert [message and message.text for message in found] == ["b", "c"]


@pytest.mark.parametrize(("policy", "total", "report"), [(CURRENT, 2, (0, 3)), (ALL, 5, (3, 0))])
def test_p06_close_inside_the_listener_taken(
    connection: Connection, put: Put, rest: Rest, wait_until: Until, policy: str, total: int, report: tuple[int, int]
) -> None:
    put("m1", "m2", "m3", "m4", "m5", persistent=False)
    seen: list[str | None] = []
    running: list[int] = []
    reports: list[CloseReport] = []
    session = connection.create_session()
    consumer = session.create_consumer(policy)
    wait_until(lambda: consumer.read_ahead.buffered_taken == 5)

    def listen(message: Message) -> None:
        assert not running
        running.append(1)
        seen.append(message.text)
        if message.text == "m2":
            reports.append(consumer.close())
            seen.append("after")
        running.pop()

    consumer.listener = listen
    wait_until(lambda: consumer.closed)
    assert seen[:3] == ["m1", "m2", "after"]
    assert len(seen) == total + 1
    assert (reports[0].delivered, reports[0].discarded) == report
    session.close()
    assert rest() == []


@pytest.mark.parametrize("policy", ["DELIVER_ALL", "DELIVER_CURRENT"])
def test_ra24_it_raises_at_once_if_configured_so(connection: Connection, put: Put, wait_until: Until, policy: str) -> None:
    """RA-24: where there is a rest to deliver; the consumer then goes on."""
    put("m1", "m2", "m3", persistent=False)
    heard: list[str | None] = []
    raised: list[IllegalStateError] = []

    def listen(message: Message) -> None:
        heard.append(message.text)
        if message.text == "m1":
            try:
                consumer.close()
            except IllegalStateError as error:
                raised.append(error)

    consumer = connection.create_session().create_consumer(
        f"queue:///Q?readAheadAllowed=YES&readAheadClosePolicy={policy}", options=ConsumerOptions(close_in_listener="raise")
    )
    wait_until(lambda: consumer.read_ahead.buffered_messages == 3)
    consumer.listener = listen
    if policy == "DELIVER_ALL":
        wait_until(lambda: len(heard) == 3)
        assert len(raised) == 1
        assert not consumer.closed
        consumer.close()
    wait_until(lambda: consumer.closed)
    assert len(heard) == (3 if raised else 1)


def test_p06_close_inside_the_listener_kept(connection: Connection, put: Put, rest: Rest, wait_until: Until) -> None:
    put("m1", "m2", "m3", "m4", "m5")
    seen: list[str | None] = []
    session = connection.create_session()
    consumer: MessageConsumer

    def listen(message: Message) -> None:
        seen.append(message.text)
        if message.text == "m2":
            consumer.close()
            seen.append("after")

    connection.stop()
    consumer = session.create_consumer("Q", listener=listen)
    connection.start()
    wait_until(lambda: consumer.closed)
    assert seen == ["m1", "m2", "after"]
    session.close()
    assert rest() == [("m3", 1), ("m4", 1), ("m5", 1)]


@pytest.mark.parametrize("what", ["session", "connection"])
def test_p06_a_listener_cannot_close_session_or_connection(connection: Connection, put: Put, wait_until: Until, what: str) -> None:
    errors: list[Exception] = []
    session = connection.create_session()

    def listen(message: Message) -> None:
        try:
            (session if what == "session" else connection).close()
        except IllegalStateError as error:
            errors.append(error)

    session.create_consumer("Q", listener=listen)
    put("a")
    wait_until(lambda: errors)


def test_ra18_deliver_all_hands_over_the_taken_and_releases_the_kept(
    connection: Connection, put: Put, rest: Rest, wait_until: Until
) -> None:
    """RA-18: of N1 N2 P3 N4, P3 goes back and N4 is delivered."""
    for text, persistent in (("N1", False), ("N2", False), ("P3", True), ("N4", False)):
        put(text, persistent=persistent)
    seen: list[str | None] = []
    entered, go = threading.Event(), threading.Event()

    def listen(message: Message) -> None:
        seen.append(message.text)
        entered.set()
        go.wait(30)

    session = connection.create_session()
    consumer = session.create_consumer(ALL)
    wait_until(lambda: consumer.read_ahead.buffered_messages == 4)
    consumer.listener = listen
    assert entered.wait(20)
    when(lambda: consumer.read_ahead.released == 1, go.set)
    report = consumer.close()
    assert seen == ["N1", "N2", "N4"]
    assert (report.released, report.discarded) == (1, 0)
    session.close()
    assert rest() == [("P3", 1)]


def test_ra16_deliver_current_ends_with_the_running_call(connection: Connection, put: Put, wait_until: Until) -> None:
    put("a", "b", "c", persistent=False)
    seen: list[str | None] = []
    entered, go = threading.Event(), threading.Event()

    def listen(message: Message) -> None:
        seen.append(message.text)
        entered.set()
        go.wait(30)

    consumer = connection.create_session().create_consumer(CURRENT)
    wait_until(lambda: consumer.read_ahead.buffered_messages == 3)
    consumer.listener = listen
    assert entered.wait(20)
    when(lambda: consumer.read_ahead.discarded_on_close == 2, go.set)
    assert consumer.close() == CloseReport(0, 0, 2)
    assert seen == ["a"]


def test_ra16_a_receivers_taken_messages_are_dropped_and_reported(connection: Connection, put: Put, wait_until: Until) -> None:
    put("a", "b", persistent=False)
    put("P")
    consumer = connection.create_session().create_consumer(ALL)
    wait_until(lambda: consumer.read_ahead.buffered_messages == 3)
    assert consumer.close() == CloseReport(0, 1, 2)
    assert consumer.read_ahead.discarded_on_close == 2


def test_ra19_close_is_bounded_and_may_be_called_again(connection: Connection, put: Put, rest: Rest) -> None:
    put("a")
    entered, go = threading.Event(), threading.Event()

    def listen(message: Message) -> None:
        entered.set()
        go.wait(30)

    session = connection.create_session()
    consumer = session.create_consumer("Q", listener=listen)
    assert entered.wait(20)
    began = time.monotonic()
    with pytest.raises(CloseTimeout) as caught:
        consumer.close(timeout=0.1)
    assert caught.value.listener_running
    assert time.monotonic() - began < 5
    go.set()
    consumer.close()
    assert consumer.closed
    session.close()
    assert rest() == []


def test_ra19_deliver_all_reports_how_many_are_left(connection: Connection, put: Put, wait_until: Until) -> None:
    put("a", "b", "c", persistent=False)
    entered, go = threading.Event(), threading.Event()
    seen: list[str | None] = []

    def listen(message: Message) -> None:
        entered.set()
        go.wait(30)
        seen.append(message.text)

    consumer = connection.create_session().create_consumer(ALL)
    wait_until(lambda: consumer.read_ahead.buffered_messages == 3)
    consumer.listener = listen
    assert entered.wait(20)
    with pytest.raises(CloseTimeout) as caught:
        consumer.close(timeout=0.05)
    assert caught.value.left == 2
    go.set()
    assert consumer.close().discarded == 0
    assert seen == ["a", "b", "c"]


def test_immediate_waits_for_nothing(connection: Connection, put: Put, rest: Rest, wait_until: Until) -> None:
    put("a")
    put("b", "c", persistent=False)
    entered, go = threading.Event(), threading.Event()

    def listen(message: Message) -> None:
        entered.set()
        go.wait(30)

    session = connection.create_session()
    consumer = session.create_consumer(ALL)
    wait_until(lambda: consumer.read_ahead.buffered_messages == 3)
    consumer.listener = listen
    assert entered.wait(20)
    began = time.monotonic()
    assert consumer.close(immediate=True) == CloseReport(0, 0, 2)
    assert time.monotonic() - began < 5
    go.set()
    wait_until(lambda: session.calling is None)
    session.close()
    assert rest() == []
