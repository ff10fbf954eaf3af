"""Read ahead from queues that are declared non-persistent, on real brokers: an orderly end loses what its policy says, no more."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from typing import Any

import pytest

import jmsclient
from jmsclient import AcknowledgeMode, Connection, Message, MessageConsumer, Queue

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the first test of a broker may have to fetch it

COUNT = 300
PATIENCE = 20.0
OPTIONS = jmsclient.ConsumerOptions(read_ahead_messages=100)


def declared(policy: str) -> Queue:
    return Queue(f"live.taking.{secrets.token_hex(6)}", persistence="non", read_ahead_allowed="yes", read_ahead_close_policy=policy)


def fill(connection: Connection, queue: Queue) -> None:
    """The destination's persistence wins over the producer's."""
    with connection.create_session() as session:
        session.create_producer(queue, persistent=True).send_many(str(number) for number in range(COUNT))


def left(connection: Connection, queue: Queue) -> list[int]:
    """What the broker still has: up to a mark that is sent now."""
    plain = Queue(queue.name)
    with connection.create_session() as session:
        session.create_producer(plain, persistent=False).send("end")
        found = []
        with session.create_consumer(plain) as consumer:
            while (message := consumer.receive(PATIENCE)) is not None and message.text != "end":
                assert not message.persistent
                found.append(int(str(message.text)))
            assert message is not None, f"the mark did not come after {len(found)}"
        return found


def consumer_of(connection: Connection, queue: Queue, **options: Any) -> MessageConsumer:
    consumer = connection.create_session(AcknowledgeMode.AUTO).create_consumer(queue, options=OPTIONS, **options)
    assert consumer.read_ahead.status.name == "YES"
    return consumer


@pytest.mark.parametrize("policy", ["deliver_all", "deliver_current"])
def test_ra_16_a_synchronous_consumer_loses_what_it_took_and_says_how_many(connection: Connection, policy: str) -> None:
    queue = declared(policy)
    fill(connection, queue)
    consumer = consumer_of(connection, queue)
    received = [consumer.receive(PATIENCE) for _ in range(50)]
    assert [int(str(one.text)) for one in received if one is not None] == list(range(50))
    assert consumer.read_ahead.buffered_taken == consumer.read_ahead.buffered_messages
    report = consumer.close()
    assert 50 + report.discarded + len(left(connection, queue)) == COUNT
    assert report.discarded <= OPTIONS.read_ahead_messages, "at most a window (IF-25)"


def test_ra_17_quiesced_and_emptied_it_loses_nothing(connection: Connection) -> None:
    queue = declared("deliver_all")
    fill(connection, queue)
    consumer = consumer_of(connection, queue)
    assert consumer.receive(PATIENCE) is not None
    waiting = consumer.quiesce()
    received = [consumer.receive(PATIENCE) for _ in range(waiting)]
    assert consumer.receive(PATIENCE) is None
    assert [int(str(one.text)) for one in received if one is not None] == list(range(1, waiting + 1))
    assert consumer.close().discarded == 0
    assert sorted([*range(waiting + 1), *left(connection, queue)]) == list(range(COUNT))


def test_ra_18_deliver_all_hands_every_taken_message_to_the_listener(connection: Connection) -> None:
    queue = declared("deliver_all")
    fill(connection, queue)
    heard, some, go_on = [], threading.Event(), threading.Event()

    def listener(message: Message) -> None:
        heard.append(int(str(message.text)))
        if len(heard) == 20:
            some.set()
            go_on.wait(PATIENCE)

    consumer = consumer_of(connection, queue, listener=listener)
    assert some.wait(PATIENCE)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    go_on.set()
    closing.join(30.0)
    assert not closing.is_alive()
    assert heard == sorted(heard), "in order (RA-6)"
    assert Counter([*heard, *left(connection, queue)]) == Counter(range(COUNT)), "nothing lost, nothing twice"


def test_ra_18_deliver_current_ends_with_the_running_call_and_counts_the_rest(connection: Connection) -> None:
    queue = declared("deliver_current")
    fill(connection, queue)
    heard, some, go_on = [], threading.Event(), threading.Event()

    def listener(message: Message) -> None:
        heard.append(int(str(message.text)))
        if len(heard) == 20:
            some.set()
            go_on.wait(PATIENCE)

    consumer = consumer_of(connection, queue, listener=listener)
    assert some.wait(PATIENCE)
    reports: list[Any] = []
    closing = threading.Thread(target=lambda: reports.append(consumer.close()))
    closing.start()
    go_on.set()
    closing.join(30.0)
    assert not closing.is_alive()
    assert len(heard) + reports[0].discarded + len(left(connection, queue)) == COUNT


def test_ra_20_stopped_it_delivers_nothing_more_and_says_what_it_dropped(connection: Connection) -> None:
    queue = declared("deliver_all")
    fill(connection, queue)
    heard: list[int] = []
    some = threading.Event()

    def listener(message: Message) -> None:
        heard.append(int(str(message.text)))
        some.set()

    consumer = consumer_of(connection, queue, listener=listener)
    assert some.wait(PATIENCE)
    connection.stop()
    before = len(heard)
    report = consumer.close()
    assert len(heard) == before
    connection.start()
    assert before + report.discarded + len(left(connection, queue)) == COUNT


def test_if_9_the_end_of_a_session_leaves_the_rest_to_others(connection: Connection) -> None:
    queue = declared("deliver_all")
    fill(connection, queue)
    session = connection.create_session(AcknowledgeMode.DUPS_OK)
    consumer = session.create_consumer(queue, options=OPTIONS)
    assert consumer.receive(PATIENCE) is not None
    session.close()
    counted = consumer.read_ahead
    assert counted.fetched == counted.delivered + counted.discarded_on_close + counted.released
    assert counted.delivered + counted.discarded_on_close + len(left(connection, queue)) == COUNT


def test_s01_at_most_once_loses_a_window_at_most_and_says_how_many(connection: Connection) -> None:
    """More than the credit arrive without any settlement; what waits at close is gone, and the report has its number."""
    queue = Queue(f"live.{secrets.token_hex(6)}")
    with connection.create_session() as session:
        session.create_producer(queue, persistent=False).send_many(str(number) for number in range(50))
    consumer = connection.create_session().create_consumer(queue, prefetch=5, at_most_once=True)
    received = [consumer.receive(PATIENCE) for _ in range(20)]
    assert [int(str(one.text)) for one in received if one is not None] == list(range(20))
    report = consumer.close()
    assert (report.delivered, report.released) == (0, 0)
    assert report.discarded <= 5
    lost = 50 - 20 - len(left(connection, queue))
    if connection.transport.present.product.settles_what_arrives:  # type: ignore[attr-defined]
        assert lost == report.discarded == 5
    else:
        assert report.discarded <= lost <= 2 * 5, "another window was on its way, or prepared for it"
