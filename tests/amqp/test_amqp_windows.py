"""Windows and acknowledgement over AMQP: what is asked for, what goes back and when, on real brokers and frame by frame.

Rules IF-17, IF-20, IF-21, IF-39; RA-13, RA-14; cases R01, S03.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import jmsclient
from jmsclient import AcknowledgeMode, Connection, ConsumerOptions, Message, MessageConsumer, events
from jmsclient_amqp.primitives import described, text

from .peer import DISPOSITION, Conversation, Peer

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
pytestmark = pytest.mark.timeout(300)  # the first test of a broker may have to fetch it
PATIENCE = 20.0


@pytest.fixture
def queue() -> str:
    return f"queue:///live.{secrets.token_hex(6)}"


def until(condition: Callable[[], Any], patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def fill(connection: Connection, queue: str, count: int) -> None:
    with connection.create_session() as session:
        session.create_producer(queue).send_many(str(number) for number in range(count))


def numbers(consumer: MessageConsumer, count: int) -> list[int]:
    found = [consumer.receive(PATIENCE) for _ in range(count)]
    return [int(str(one.text)) for one in found if one is not None]


# -- windows, on brokers ------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("window", [1, 7, 100])
def test_if_17_what_is_granted_and_buffered_fits_into_the_window(connection: Connection, queue: str, window: int) -> None:
    fill(connection, queue, 300)
    consumer = connection.create_session().create_consumer(queue, prefetch=window)
    most, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.0005):  # a thread that never waits would keep the others waiting, 5 ms at each turn
            counters = consumer.intake.counters
            most[0] = max(most[0], counters.granted + counters.buffered)

    watching = threading.Thread(target=watch)
    watching.start()
    assert numbers(consumer, 300) == list(range(300))
    over.set()
    watching.join(PATIENCE)
    beyond = window if "rabbitmq" in connection.metadata.provider_name.lower() else 0  # it sends a few more than it was asked for
    assert 0 < most[0] <= window + beyond


@pytest.mark.real
def test_if_17_without_a_window_one_is_asked_for_while_a_receive_waits(connection: Connection, queue: str) -> None:
    """And taken back when it ends: two consumers, each gets what it asked for, none holds what the other could have."""
    session = connection.create_session()
    one, other = (session.create_consumer(queue, prefetch=0) for _ in range(2))
    assert one.receive(0.0) is None
    if connection.capabilities.drain != "no":
        assert one.intake.counters.granted == 0
    fill(connection, queue, 2)
    assert one.read_ahead.buffered_messages <= (connection.capabilities.drain == "no")
    found = sorted(numbers(other, 1) + numbers(one, 1))
    assert found == [0, 1]
    assert (one.intake.counters.granted, other.intake.counters.granted) == (0, 0)


@pytest.mark.real
def test_if_20_an_unread_window_goes_back_to_its_place(connection: Connection, queue: str) -> None:
    """Classic now and then gives some that were behind it first, whatever we wait for."""
    fill(connection, queue, 30)
    session = connection.create_session()
    found: list[int] = []
    for _ in range(4):
        consumer = session.create_consumer(queue, prefetch=10)
        found += numbers(consumer, 3)
        report = consumer.close()
        assert (report.delivered, report.discarded) == (0, 0)
    with session.create_consumer(queue) as last:
        rest = [last.receive(PATIENCE) for _ in range(18)]
        found += [int(str(one.text)) for one in rest if one is not None]
        assert sorted(found) == list(range(30)), "each once"
        if connection.metadata.provider_name.lower() != "activemq":
            assert found == list(range(30)), "in the original order"
        if connection.capabilities.release_without_count:
            assert {one.delivery_count for one in rest if one is not None} == {1}
        said = {one.content._header.delivery_count or 0 for one in rest if one is not None}  # type: ignore[attr-defined]
        assert said == {0}, "Classic, which is not believed, does not count it either when a link is closed"


@pytest.mark.real
def test_if_20_a_stopped_connection_keeps_its_buffer(connection: Connection, queue: str) -> None:
    fill(connection, queue, 10)
    consumer = connection.create_session().create_consumer(queue, prefetch=5)
    until(lambda: consumer.read_ahead.buffered_messages == 5)
    connection.stop()
    assert consumer.receive(0.0) is None
    assert consumer.read_ahead.buffered_messages == 5
    connection.start()
    assert numbers(consumer, 10) == list(range(10))


@pytest.mark.real
def test_if_21_an_idle_window_ages_out_where_that_costs_no_count(connection: Connection, queue: str) -> None:
    """RA-13: others get what a consumer keeps and does not take; the event names it."""
    fill(connection, queue, 5)
    heard: list[events.Event] = []
    end = events.subscribe(heard.append)
    session = connection.create_session()
    idle = session.create_consumer(queue, options=ConsumerOptions(idle_timeout=0.3))
    until(lambda: idle.read_ahead.buffered_messages == 5)
    with connection.create_session() as another, another.create_consumer(queue) as other:
        if connection.capabilities.release_without_count:
            taken = [other.receive(PATIENCE) for _ in range(5)]
            assert sorted(int(str(one.text)) for one in taken if one is not None) == list(range(5))
            assert {one.delivery_count for one in taken if one is not None} == {1}
            assert [event for event in heard if "idle" in event.name and queue in event.text]
            assert idle.read_ahead.released == 5
        else:
            assert other.receive(1.0) is None, "a release would be counted, so none is made"
            assert idle.read_ahead.buffered_messages == 5
    end()


# -- acknowledgement, on brokers ----------------------------------------------------------------------------------------


def left(url: str, queue: str) -> list[int]:
    with jmsclient.connect(url) as connection, connection.create_session() as session:
        session.create_producer(queue).send("-1")
        consumer = session.create_consumer(queue)
        found: list[int] = []
        while (message := consumer.receive(PATIENCE)) is not None and message.text != "-1":
            found.append(int(str(message.text)))
        assert message is not None
        return found


@pytest.mark.real
@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK])
def test_if_39_what_a_receive_returned_is_accepted(url: str, queue: str, mode: AcknowledgeMode) -> None:
    with jmsclient.connect(url) as connection:
        fill(connection, queue, 6)
        consumer = connection.create_session(mode).create_consumer(queue)
        assert numbers(consumer, 4) == [0, 1, 2, 3]
    assert left(url, queue) == [4, 5]


@pytest.mark.real
def test_if_39_an_exception_in_a_loop_gives_back_what_was_in_hand(url: str, queue: str) -> None:
    with jmsclient.connect(url) as connection:
        fill(connection, queue, 4)

        def work() -> None:
            with connection.create_session().create_consumer(queue) as consumer:
                for message in consumer:
                    if message.text == "2":
                        raise ValueError

        with pytest.raises(ValueError):
            work()
        with connection.create_session() as session, session.create_consumer(queue) as again:
            message = again.receive(PATIENCE)
            assert message is not None
            assert message.text == "2"
            if connection.capabilities.delivery_count == "exact":
                assert (message.delivery_count, message.redelivered) == (2, True)
    assert left(url, queue) == [3]


@pytest.mark.real
def test_if_39_individual_covers_one_message_and_close_retries_the_rest(url: str, queue: str) -> None:
    with jmsclient.connect(url) as connection:
        fill(connection, queue, 4)
        session = connection.create_session(AcknowledgeMode.INDIVIDUAL)
        consumer = session.create_consumer(queue)
        found = [consumer.receive(PATIENCE) for _ in range(3)]
        assert found[1] is not None
        acknowledging = threading.Thread(target=found[1].acknowledge)
        acknowledging.start()
        acknowledging.join(PATIENCE)
        session.close()
        with connection.create_session() as session, session.create_consumer(queue) as again:
            rest = [again.receive(PATIENCE) for _ in range(3)]
            assert sorted(int(str(one.text)) for one in rest if one is not None) == [0, 2, 3]
            if connection.capabilities.delivery_count == "exact":
                assert {one.text: one.delivery_count for one in rest if one is not None} == {"0": 2, "2": 2, "3": 1}
    assert left(url, queue) == []


# -- acknowledgement, frame by frame ------------------------------------------------------------------------------------


def served(peer: Peer, consumer: MessageConsumer, count: int) -> Conversation:
    conversation = peer.last
    link = conversation.receiving_link()
    for number in range(count):
        conversation.transfer(link, described(0x77, text(str(number))))
    until(lambda: consumer.read_ahead.fetched == count)
    return conversation


def settled(conversation: Conversation) -> int:
    """How many the client has settled."""
    return sum((one[2] if one[2] is not None else one[1]) - one[1] + 1 for one in conversation.heard(DISPOSITION) if one[0])


def test_if_39_auto_accepts_before_receive_returns(peer: Peer) -> None:
    with jmsclient.connect(peer.url) as connection:
        consumer = connection.create_session().create_consumer("q")
        conversation = served(peer, consumer, 3)
        for count in (1, 2, 3):
            assert consumer.receive(PATIENCE) is not None
            until(lambda count=count: settled(conversation) == count)  # type: ignore[misc]  # without a further call


def test_if_39_a_loop_accepts_when_the_next_is_asked_for(peer: Peer) -> None:
    with jmsclient.connect(peer.url) as connection:
        session = connection.create_session()
        consumer = session.create_consumer("q")
        conversation = served(peer, consumer, 3)
        for count, _ in enumerate(consumer):
            session.transport_session.flush(None)
            assert settled(conversation) == count, "what is in hand is not settled"
            if count == 2:
                break
        consumer.close()
        session.transport_session.flush(None)
        assert settled(conversation) == 3, "at close it is"


def test_if_39_a_listener_accepts_when_it_returns(peer: Peer) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def listener(message: Message) -> None:
        inside.set()
        go_on.wait(PATIENCE)

    with jmsclient.connect(peer.url) as connection:
        session = connection.create_session()
        consumer = session.create_consumer("q", listener=listener)
        conversation = served(peer, consumer, 1)
        assert inside.wait(PATIENCE)
        with connection.create_session() as other:
            other.transport_session.flush(None)
        assert settled(conversation) == 0
        go_on.set()
        until(lambda: settled(conversation) == 1)


def test_if_39_dups_ok_gathers_and_flushes_before_it_waits(peer: Peer) -> None:
    with jmsclient.connect(peer.url) as connection:
        consumer = connection.create_session(AcknowledgeMode.DUPS_OK).create_consumer("q", prefetch=100)
        conversation = served(peer, consumer, 10)
        for _ in range(10):
            assert consumer.receive(PATIENCE) is not None
        assert consumer.receive(0.0) is None
        until(lambda: settled(conversation) == 10)
        assert len(conversation.heard(DISPOSITION)) <= 2, "neighbours by one frame"
