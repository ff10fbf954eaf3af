"""CLIENT sessions: acknowledge, recover, wrong states (S04, S05, IF-9, IF-14, IF-27, IF-39)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jmsclient import AcknowledgeMode, Connection, IllegalStateError, Message, MessageConsumer, connect

Put = Callable[..., list[str]]
Rest = Callable[..., list[tuple[str | None, int]]]
CLIENT = AcknowledgeMode.CLIENT


def got(consumer: MessageConsumer) -> Message:
    message = consumer.receive(10)
    assert message is not None
    return message


def test_s05_one_acknowledge_covers_all_that_the_session_delivered(url: str, put: Put, rest: Rest) -> None:
    put("a1", "a2", "a3", "a4", "a5", queue="Q1")
    put("b1", "b2", queue="Q2")
    with connect(url) as own:
        session = own.create_session(CLIENT)
        c1, c2 = session.create_consumer("Q1"), session.create_consumer("Q2")
        a1 = got(c1)
        assert (got(c2).text, got(c1).text) == ("b1", "a2")
        a1.acknowledge()
    assert rest("Q1") == [("a3", 1), ("a4", 1), ("a5", 1)]
    assert rest("Q2") == [("b2", 1)]


def test_s04_wrong_state_calls(url: str, put: Put, rest: Rest) -> None:
    put("m1", "m2", "m3")
    with connect(url) as own:
        session = own.create_session(CLIENT)
        consumer = session.create_consumer("Q")
        m1 = got(consumer)
        got(consumer)
        m1.acknowledge()
        m1.acknowledge()
        m3 = got(consumer)
        for call in (session.commit, session.rollback):
            with pytest.raises(IllegalStateError, match="TRANSACTED"):
                call()
        session.close()
        session.close()
        with pytest.raises(IllegalStateError, match="closed"):
            m3.acknowledge()
        with pytest.raises(IllegalStateError, match="closed"):
            session.acknowledge()
    own.close()
    assert rest() == [("m3", 2)]


def test_s04_acknowledge_is_ignored_in_auto(connection: Connection, put: Put) -> None:
    put("m")
    session = connection.create_session()
    message = got(session.create_consumer("Q"))
    message.acknowledge()
    session.close()
    message.acknowledge()


def test_s04_after_recover_the_old_message_does_not_acknowledge_the_redelivery(
    connection: Connection, put: Put, rest: Rest
) -> None:
    put("m")
    session = connection.create_session(CLIENT)
    consumer = session.create_consumer("Q")
    old = got(consumer)
    session.recover()
    again = got(consumer)
    assert (again.text, again.delivery_count, again.redelivered) == ("m", 2, True)
    old.acknowledge()
    session.close()
    assert rest() == [("m", 3)]


def test_recover_delivers_again_in_order(connection: Connection, put: Put) -> None:
    put("a", "b", "c", "d")
    session = connection.create_session(CLIENT)
    consumer = session.create_consumer("Q")
    assert [got(consumer).text for _ in range(2)] == ["a", "b"]
    session.recover()
    found = [got(consumer) for _ in range(4)]
    assert [(message.text, message.delivery_count) for message in found] == [("a", 2), ("b", 2), ("c", 1), ("d", 1)]
    session.acknowledge()


def test_if9_a_closed_consumers_messages_pass_to_the_session(connection: Connection, put: Put, rest: Rest) -> None:
    put("a", "b", "c")
    session = connection.create_session(CLIENT)
    consumer = session.create_consumer("Q")
    first = got(consumer)
    report = consumer.close()
    assert report.discarded == 0
    first.acknowledge()
    assert session._lingering == ()
    session.close()
    assert rest() == [("b", 1), ("c", 1)]


def test_if27_session_close_gives_delivered_ones_back_counted(connection: Connection, put: Put, rest: Rest) -> None:
    put("a", "b")
    session = connection.create_session(CLIENT)
    consumer = session.create_consumer("Q")
    got(consumer)
    consumer.close()
    session.close()
    assert rest() == [("a", 2), ("b", 1)]


def test_ra14_open_and_close_leave_counts_as_they_were(url: str, put: Put, rest: Rest, wait_until: Callable[..., None]) -> None:
    """RA-14: 20 cycles with prefetch 10."""
    put(*[str(number) for number in range(10)])
    with connect(url) as own:
        for _ in range(20):
            session = own.create_session()
            consumer = session.create_consumer("Q", prefetch=10)
            wait_until(lambda consumer=consumer: consumer.read_ahead.buffered_messages == 10)
            assert consumer.close().released == 10
            session.close()
    assert rest() == [(str(number), 1) for number in range(10)]


def test_ra3_client_sessions_never_take(connection: Connection, put: Put, rest: Rest) -> None:
    put("a", "b", persistent=False)
    session = connection.create_session(CLIENT)
    consumer = session.create_consumer("queue:///Q?readAheadAllowed=YES")
    assert consumer.read_ahead.status.name == "INHIBITED"
    got(consumer)
    session.close()
    assert rest() == [("a", 2), ("b", 1)]
