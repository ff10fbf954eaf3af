"""Exceptions of signal handlers while a send waits for room, a transaction ends, an operator asks (IF-40, IF-31, IF-28)."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable

import pytest

from jmsclient import AcknowledgeMode, Connection
from jmsclient import connect as connect_public
from jmsclient.errors import JmsClientError
from jmsclient_embedded.invariants import check

from ..lightning import GUARDED, SWALLOWED, Season, lightning  # noqa: TID252  tests are no package that has a name
from .conftest import Background, Client, Connect, until

SECONDS = 1.5
ENOUGH = 5
pytestmark = [GUARDED, SWALLOWED]


def struck_for_a_while(calls: list[Callable[[], object]]) -> int:
    """Have them called in turn, each struck at some point; how many strikes hit."""
    hits, season = 0, Season(SECONDS)
    with lightning(0.0005, 0.01) as storm:
        while season.lasts(hits, ENOUGH):
            for call in calls:
                with contextlib.suppress(JmsClientError):
                    hits += storm.hits(call)
    return hits


def test_if_40_no_waiter_stays_and_nothing_is_half_sent(client: Client, connection: Connection, url: str) -> None:
    """A struck send is there or not, wholly; nobody stands in the queue of senders; the room that is free can be used."""
    client.admin.create_queue("q", messages_maximum=5)
    over = threading.Event()

    def consume() -> int:
        taken = 0
        with connect_public(url) as other, other.create_session() as session, session.create_consumer("q", prefetch=1) as consumer:
            while not over.is_set() or taken < client.stats().messages_received:
                taken += consumer.receive(0.01) is not None
        return taken

    consuming = Background(consume)
    with connection.create_session() as session:
        producer = session.create_producer("q", send_timeout=0.01)
        hits = struck_for_a_while([lambda: producer.send("a"), lambda: producer.send_many(["b", "c", "d"])])
        assert hits > ENOUGH
        until(lambda: client.stats().blocked_senders == 0)
        producer.send_timeout = 5.0
        producer.send("last")
    over.set()
    taken = consuming.result()
    assert taken == client.stats().messages_received
    assert client.numbers() == (0, 0)


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
def test_if_40_transactions_are_whole(tmp_path_factory: pytest.TempPathFactory, connect: Connect, stored: bool) -> None:
    """IF-28: what was received in a struck transaction comes again, or its answer is there; never both, never neither."""
    url = f"embedded:?store={tmp_path_factory.mktemp('store') / 'shop.db'}" if stored else f"embedded:struck-{random.random()}"
    client = connect(url)
    number = 40
    client.send(*map(str, range(number)), queue="in")
    client.admin.create_queue("out")
    with connect_public(url) as connection, connection.create_session(AcknowledgeMode.TRANSACTED) as session:
        consumer = session.create_consumer("in", prefetch=2)
        producer = session.create_producer("out", send_timeout=1.0)

        def work() -> None:
            message = consumer.receive(0.05)
            if message is None:
                return
            producer.send(message.text)
            session.commit()

        hits = struck_for_a_while([work, session.rollback])
        assert hits > ENOUGH
        session.rollback()
        while (message := consumer.receive_no_wait()) is not None:
            producer.send(message.text)
            session.commit()
    assert client.numbers("in") == (0, 0)
    assert sorted(map(str, client.bodies("out")), key=int) == [str(one) for one in range(number)]
    check(client.broker)


def test_if_40_administration_that_is_struck_leaves_whole_states(client: Client, connection: Connection) -> None:
    admin = connection.administration
    client.admin.create_queue("q")
    client.admin.create_queue("other")
    client.send(*map(str, range(50)))

    def moved() -> None:
        admin.pause_consumption("q")
        admin.move("q", "other")
        admin.pause_consumption("other")
        admin.move("other", "q")

    hits = struck_for_a_while(
        [moved, lambda: admin.create_queue("q", messages_maximum=100), lambda: admin.statistics("q"), lambda: admin.messages("q")]
    )
    assert hits > ENOUGH
    until(lambda: client.numbers("q")[0] + client.numbers("other")[0] == 50)
    check(client.broker)
