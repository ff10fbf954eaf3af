"""Iteration where something comes in between two steps of it: others take, close, expire, or iterate too (IF-39, RA-11, RA-25)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection, IllegalStateError, MessageConsumer
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import Arrival

Put = Callable[..., list[str]]
Rest = Callable[..., list[tuple[str | None, int]]]
Until = Callable[..., None]


@pytest.fixture
def consumer(connection: Connection) -> MessageConsumer:
    return connection.create_session().create_consumer("Q")


def filled(consumer: MessageConsumer, count: int, wait_until: Until) -> None:
    wait_until(lambda: consumer.read_ahead.buffered_messages == count)


def test_if39_a_second_loop_acknowledges_what_the_first_had_in_hand(
    connection: Connection, consumer: MessageConsumer, put: Put, rest: Rest
) -> None:
    put("a", "b", "c", "d")
    first, second = iter(consumer), iter(consumer)
    assert [next(first).text, next(second).text, next(first).text] == ["a", "b", "c"]
    consumer.retry_in_hand()
    consumer.close()
    assert rest() == [("c", 2), ("d", 1)]


def test_if39_next_receive_and_a_loop_take_turns(consumer: MessageConsumer, put: Put, rest: Rest) -> None:
    put("a", "b", "c", "d")
    assert next(consumer).text == "a"
    for message in consumer:
        assert message.text == "b"
        break
    received = consumer.receive(5)
    assert received is not None
    assert received.text == "c"
    consumer.close()
    assert list(consumer) == []
    with pytest.raises(StopIteration):
        next(consumer)
    assert rest() == [("d", 1)]


def test_ra26_all_but_the_message_in_hand_are_counted_as_buffered(
    consumer: MessageConsumer, put: Put, wait_until: Until, balanced: Callable[[MessageConsumer], bool]
) -> None:
    put("a", "b", "c")
    filled(consumer, 3, wait_until)
    loop = iter(consumer)
    for left in (2, 1, 0):
        next(loop)
        assert consumer.read_ahead.buffered_messages == left
        assert balanced(consumer)
    consumer.close()


def test_ra25_what_a_suspended_loop_had_not_asked_for_goes_back_at_close(
    consumer: MessageConsumer, put: Put, rest: Rest, wait_until: Until
) -> None:
    put("a", "b", "c")
    filled(consumer, 3, wait_until)
    loop = iter(consumer)
    assert next(loop).text == "a"
    consumer.close()
    assert next(loop, None) is None
    assert rest() == [("b", 1), ("c", 1)]


def test_ra11_an_expired_message_is_passed_over(timed: Connection, clock: ManualClock, wait_until: Until) -> None:
    session = timed.create_session()
    producer = session.create_producer("Q")
    producer.send("short", time_to_live=10)
    producer.send("long")
    producer.send("lasting", time_to_live=1000)
    consumer = session.create_consumer("Q")
    filled(consumer, 3, wait_until)
    clock.advance(60)
    loop = iter(consumer)
    assert [next(loop).text, next(loop).text] == ["long", "lasting"]
    assert consumer.read_ahead.expired == 1
    consumer.close()


def meanwhile(consumer: MessageConsumer, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    """Have `call` done by another thread between the steps of an iteration: while it acknowledges what it had in hand."""
    receiver = consumer.receiver.present
    assert receiver is not None
    accept = type(receiver).accept

    def accept_meanwhile(self: Any, arrival: Arrival) -> None:
        accept(self, arrival)
        if self is receiver:
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()

    monkeypatch.setattr(type(receiver), "accept", accept_meanwhile)


def begin_to_close(consumer: MessageConsumer) -> None:
    consumer.note_closing()
    consumer.intake.close(None, keep_receiver=True)


def test_what_went_back_while_the_loop_acknowledged_is_not_handed_over(
    consumer: MessageConsumer, put: Put, rest: Rest, wait_until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look whether one is there and the pop, a close takes them all."""
    put("a", "b", "c")
    filled(consumer, 3, wait_until)
    loop = iter(consumer)
    assert next(loop).text == "a"
    meanwhile(consumer, monkeypatch, lambda: begin_to_close(consumer))
    assert next(loop, None) is None
    monkeypatch.undo()
    consumer.close()
    assert rest() == [("b", 1), ("c", 1)]


def test_a_first_loop_finds_nothing_where_a_close_was_quicker(
    consumer: MessageConsumer, put: Put, rest: Rest, wait_until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in the first step of a loop, which looks at the head for the first time."""
    put("a", "b")
    assert next(consumer).text == "a"
    filled(consumer, 1, wait_until)
    meanwhile(consumer, monkeypatch, lambda: begin_to_close(consumer))
    assert list(consumer) == []
    monkeypatch.undo()
    consumer.close()
    assert rest() == [("b", 1)]


def test_a_loop_on_a_session_that_is_in_use_is_refused_and_harms_nothing(
    consumer: MessageConsumer, put: Put, wait_until: Until
) -> None:
    put("a", "b")
    filled(consumer, 2, wait_until)
    loop = iter(consumer)
    assert next(loop).text == "a"
    session = consumer._session
    session.inside = threading.get_ident() + 1
    with pytest.raises(IllegalStateError, match="one thread at a time"):
        next(loop)
    session.inside = 0
    assert next(consumer).text == "b"
    consumer.close()


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.DUPS_OK])
def test_if39_in_other_modes_a_loop_hands_over_as_receive_does(
    connection: Connection, put: Put, rest: Rest, mode: AcknowledgeMode
) -> None:
    put("a", "b", "c")
    session = connection.create_session(mode)
    with session.create_consumer("Q") as consumer:
        for message in consumer:
            message.acknowledge()
            if message.text == "b":
                break
    session.close()
    assert rest() == [("c", 1)]
