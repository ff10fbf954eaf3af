"""`send_many` of texts, wherever they go: what waits together is what was sent one by one (IF-7, IF-15, IF-31, T4, T7, T10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection, MessageConsumer, MessageProducer, SendError
from jmsclient import connect as connect_public
from jmsclient.message import Texts
from jmsclient_embedded.pauses import Pause

from .conftest import Client, in_thread

BODIES = [f"b{number}" for number in range(300)]


@pytest.fixture(autouse=True)
def _made(client: Client) -> None:
    client.admin.create_queue("q")


def send_many(connection: Connection, bodies: list[Any], where: str = "queue:///q", **how: Any) -> list[str]:
    """From another thread than the main one, whose sends are carried out by the broker's."""
    ids: list[str] = []

    def send() -> None:
        with connection.create_session() as session:
            ids.extend(session.create_producer(where, **{"persistent": False, **how}).send_many(bodies))

    in_thread(send)
    return ids


def opened(connection: Connection) -> MessageProducer:
    """A producer whose sender is there."""
    producer = connection.create_session().create_producer("q", persistent=False)
    in_thread(lambda: producer.send("opened"))
    return producer


def take(consumer: MessageConsumer, number: int) -> list[tuple[str | None, object]]:
    messages = [consumer.receive(5) for _ in range(number)]
    return [(one.message_id, one.body) for one in messages if one is not None]


def bodies(consumer: MessageConsumer, number: int) -> list[object]:
    return [body for _, body in take(consumer, number)]


def together(client: Client) -> int:
    """How many batches wait as they came."""
    return sum(isinstance(one, Texts) for new in client.broker.granting.lines["q"].queue._ready._new for one in new)


def test_t10_they_are_taken_one_by_one_in_order(client: Client, connection: Connection) -> None:
    ids = send_many(connection, BODIES)
    assert together(client) == 2
    consumer = connection.create_session().create_consumer("q", prefetch=7)
    assert take(consumer, 300) == list(zip(ids, BODIES, strict=True))
    assert client.numbers() == (0, 0)
    assert together(client) == 0


def test_if_15_they_are_counted_as_they_enter(client: Client, connection: Connection) -> None:
    send_many(connection, ["a", "\u00e4", "ccc"])
    found = client.admin.statistics("q")
    assert (found.messages_current, found.messages_received, found.messages_high) == (3, 3, 3)
    assert (found.bytes_current, found.bytes_received, found.bytes_high) == (6, 6, 6)
    assert together(client) == 1
    client.admin.pause_consumption("q")
    client.admin.drain("q")
    found = client.stats()
    assert (found.messages_current, found.bytes_current, found.messages_deleted) == (0, 0, 3)


def test_whoever_looks_at_them_changes_nothing(client: Client, connection: Connection) -> None:
    ids = send_many(connection, BODIES)
    first = connection.create_session().create_consumer("q", prefetch=3)
    assert bodies(first, 10) == BODIES[:10]
    first.close()
    assert [one.message_id for one in client.admin.messages("q")] == ids[10:]
    assert client.bodies() == BODIES[10:]
    send_many(connection, ["last"])
    assert bodies(connection.create_session().create_consumer("q"), 291) == [*BODIES[10:], "last"]


def test_what_comes_between_and_behind_them_keeps_its_place(client: Client, connection: Connection) -> None:
    session = connection.create_session()
    producer = session.create_producer("q", persistent=False)
    batches: list[list[str | bytes]] = [["a", "b"], [b"c"], ["d", "e"], ["f", b"g"], ["h"]]
    for some in batches:
        producer.send_many(some)
    producer.send("i", priority=9)
    send_many(connection, ["j", "k"], priority=9)
    send_many(connection, ["l", "m"])
    found = bodies(session.create_consumer("q", prefetch=2), 13)
    assert found == ["i", "j", "k", "a", "b", b"c", "d", "e", "f", b"g", "h", "l", "m"]
    assert client.numbers() == (0, 0)


def test_t14_those_that_come_back_take_their_place_before_those_that_wait(client: Client, connection: Connection) -> None:
    send_many(connection, BODIES)
    with connection.create_session(AcknowledgeMode.CLIENT) as session:
        assert bodies(session.create_consumer("q", prefetch=4), 6) == BODIES[:6]
    send_many(connection, ["last"])
    assert bodies(connection.create_session().create_consumer("q"), 301) == [*BODIES, "last"]


def test_if_31_what_does_not_fit_is_named(client: Client, connection: Connection) -> None:
    client.admin.create_queue("narrow", messages_maximum=100)
    with connection.create_session() as session:
        producer = session.create_producer("queue:///narrow", persistent=False, send_timeout=0.0)
        with pytest.raises(SendError) as caught:
            producer.send_many(BODIES[:150])
    assert (len(caught.value.confirmed), len(caught.value.unsent)) == (100, 50)
    assert client.bodies("narrow") == BODIES[:100]


def test_if_30_overrides_reach_each_of_them(client: Client, connection: Connection) -> None:
    client.admin.create_queue("over", time_to_live_override=100.0, priority_override=7)
    send_many(connection, ["a", "b"], "queue:///over")
    messages = [connection.create_session().create_consumer("queue:///over", prefetch=0).receive(5) for _ in range(2)]
    assert [(one.body, one.priority, one.expiration is None) for one in messages if one] == [("a", 7, False), ("b", 7, False)]


def test_t7_a_queue_that_is_being_paused_holds_them_back(client: Client, connection: Connection) -> None:
    line, producer = client.broker.granting.lines["q"], opened(connection)
    with client.broker.steps.lock:
        in_thread(lambda: producer.send_many(["a", "b"]))
        client.broker.pausing.change(line.flags, [line], line.destination, Pause.INSERTION, True)
    client.broker.steps.carry_out_left()
    assert client.numbers() == (1, 2)
    client.admin.resume_insertion("q")
    assert client.bodies() == ["opened", "a", "b"]


def test_if_5_a_selector_chooses_among_them(client: Client, connection: Connection) -> None:
    session = connection.create_session()
    send_many(connection, ["a", "b"], priority=2)
    high = session.create_consumer("q", "JMSPriority > 5")
    send_many(connection, ["c", "d"], priority=3)
    send_many(connection, ["e", "f"], priority=8)
    assert bodies(high, 2) == ["e", "f"]
    assert bodies(session.create_consumer("q"), 4) == ["c", "d", "a", "b"]


def test_topics_give_them_to_each_subscriber(connection: Connection) -> None:
    consumers = [connection.create_session().create_consumer("topic:///t") for _ in range(2)]
    send_many(connection, BODIES[:20], "topic:///t")
    assert [bodies(one, 20) for one in consumers] == [BODIES[:20]] * 2


def test_t4_they_join_a_transaction(client: Client, connection: Connection) -> None:
    session = connection.create_session(AcknowledgeMode.TRANSACTED)
    producer = session.create_producer("q", persistent=False)
    producer.send_many(["gone", "gone"])
    session.rollback()
    producer.send_many(["a", "b"])
    assert client.bodies() == []
    session.commit()
    assert client.bodies() == ["a", "b"]


@pytest.mark.parametrize("persistent", [True, False])
def test_if_7_persistent_ones_are_stored(tmp_path: Path, persistent: bool) -> None:
    url = f"embedded:?store={tmp_path / 'texts.db'}"
    with connect_public(url) as connection:
        ids = send_many(connection, BODIES, persistent=persistent)
    with connect_public(url) as connection:
        found = take(connection.create_session().create_consumer("q"), 300 if persistent else 0)
        assert found == (list(zip(ids, BODIES, strict=True)) if persistent else [])
        assert connection.create_session().create_consumer("q").receive(0) is None


def test_they_are_left_to_whoever_has_the_lock(client: Client, connection: Connection) -> None:
    """Between others that are put meanwhile, and where production is being paused: see test_embedded_left.py."""
    line, producer = client.broker.granting.lines["q"], opened(connection)
    batches: list[list[str | bytes]] = [["a", "b"], [b"c", "d"], [b"e"], ["f"]]
    with client.broker.steps.lock:
        in_thread(lambda: [producer.send_many(some) for some in batches])
        client.broker.pausing.change(line.flags, [line], line.destination, Pause.PRODUCTION, True)
        assert line.queue.visible == 1
    client.broker.steps.carry_out_left()
    assert client.bodies() == ["opened", "a", "b", b"c", "d", b"e", "f"]
