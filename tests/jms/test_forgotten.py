"""What the application forgot is closed and its buffer given back (RA-25, IF-9, RA-26)."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from jmsclient import AcknowledgeMode, Connection, Message, MessageConsumer, connect
from jmsclient.intake import Intake

Put = Callable[..., list[str]]
Rest = Callable[..., list[tuple[str | None, int]]]
Until = Callable[..., None]


def filled(consumer: MessageConsumer, count: int, wait_until: Until) -> Intake:
    wait_until(lambda: consumer.read_ahead.buffered_messages == count)
    return consumer.intake


def adds_up(intake: Intake) -> bool:
    """RA-26, of a consumer that is gone."""
    c = intake.counters
    return c.fetched == c.delivered + c.buffered + c.held + c.released + c.purged + c.expired + c.discarded + c.refused


def test_ra25_a_forgotten_consumer_gives_its_buffer_back(connection: Connection, put: Put, rest: Rest, wait_until: Until) -> None:
    put("a", "b", "c")
    session = connection.create_session()
    consumer = session.create_consumer("Q")
    intake = filled(consumer, 3, wait_until)
    gone = weakref.ref(consumer)
    del consumer
    wait_until(lambda: intake.ended and gone() is None)
    assert (intake.counters.released, intake.buffered, adds_up(intake)) == (3, 0, True)
    assert session.consumers == ()
    assert rest() == [("a", 1), ("b", 1), ("c", 1)]


def test_ra25_a_forgotten_consumer_in_a_cycle(connection: Connection, put: Put, rest: Rest, wait_until: Until) -> None:
    put("a", "b")
    session = connection.create_session()
    consumer = session.create_consumer("Q")
    intake = filled(consumer, 2, wait_until)
    cycle: list[object] = [consumer]
    cycle.append(cycle)
    del consumer, cycle
    gc.collect()
    wait_until(lambda: intake.ended)
    connection.keeper.call(lambda: None)
    assert (intake.counters.released, adds_up(intake)) == (2, True)
    assert rest() == [("a", 1), ("b", 1)]


def test_ra25_what_a_forgotten_loop_had_in_hand_comes_again(connection: Connection, put: Put, rest: Rest) -> None:
    """IF-39: nobody can say whether the loop ended well, and a message must not be lost; its count says that it was seen."""
    put("a", "b")
    session = connection.create_session()
    for message in session.create_consumer("Q"):
        assert message.text == "a"
        break
    connection.keeper.call(lambda: None)
    assert rest() == [("a", 2), ("b", 1)]


def test_ra25_if9_messages_of_a_forgotten_consumer_pass_to_its_session(connection: Connection, put: Put, rest: Rest) -> None:
    put("a", "b")
    session = connection.create_session(AcknowledgeMode.CLIENT)
    message = session.create_consumer("Q").receive(5)
    assert message is not None
    connection.keeper.call(lambda: None)
    message.acknowledge()
    session.close()
    assert rest() == [("b", 1)]


def test_ra25_a_forgotten_session_gives_back_what_was_delivered(
    connection: Connection, put: Put, rest: Rest, wait_until: Until
) -> None:
    put("a", "b")
    session = connection.create_session(AcknowledgeMode.CLIENT)
    consumer = session.create_consumer("Q")
    intake = filled(consumer, 2, wait_until)
    assert consumer.receive(5) is not None
    gone = weakref.ref(session)
    del session, consumer
    wait_until(lambda: gone() is None)
    assert adds_up(intake)
    assert rest() == [("a", 2), ("b", 1)]


def test_ra25_a_forgotten_connection_ends_its_keeper(
    url: str, connection: Connection, put: Put, rest: Rest, wait_until: Until
) -> None:
    put("a", "b")
    own = connect(url)
    consumer = own.create_session().create_consumer("Q")
    intake = filled(consumer, 2, wait_until)
    thread = own.keeper._thread
    del own, consumer
    gc.collect()
    thread.join(20)
    assert not thread.is_alive()
    assert (intake.buffered, adds_up(intake)) == (0, True)
    assert rest() == [("a", 1), ("b", 1)]


def test_ra25_a_listener_goes_on_though_nobody_holds_its_consumer(connection: Connection, put: Put, rest: Rest) -> None:
    heard: list[str | None] = []
    done = threading.Event()

    def listen(message: Message) -> None:
        heard.append(message.text)
        done.set()

    connection.create_session().create_consumer("Q", listener=listen)
    gc.collect()
    put("a")
    assert done.wait(20)
    connection.close()
    assert heard == ["a"]


PROGRAM = """
from jmsclient import connect
connection = connect("embedded:?store={store}")
session = connection.create_session()
session.create_producer("Q").send_many(["a", "b"])
consumer = session.create_consumer("Q")
assert consumer.receive(5).text == "a"
"""


def test_ra25_the_exit_of_the_process_gives_the_buffer_back(tmp_path: Path) -> None:
    store = tmp_path / "broker.db"
    subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM).format(store=store)], check=True, timeout=20)
    with connect(f"embedded:?store={store}") as connection:
        message = connection.create_session().create_consumer("Q").receive(5)
        assert message is not None
        assert (message.text, message.delivery_count) == ("b", 1)
