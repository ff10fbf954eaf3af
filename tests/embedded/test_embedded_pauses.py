"""The three pauses: idempotence, events, independence, start-up precedence, order; S10."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jmsclient import Connection, Message, connect
from jmsclient.errors import DestinationPausedError
from jmsclient.events import Event
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT
from jmsclient_embedded.pauses import Pause, at_start

from .conftest import Background, Client, Connect, content, until

# -- flags ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", Pause, ids=lambda pause: pause.value)
@pytest.mark.parametrize("where", ["q", None], ids=["one queue", "whole broker"])
def test_pausing_twice_and_resuming_twice_is_nothing(client: Client, events: list[Event], which: Pause, where: str | None) -> None:
    """Rules, "The three pauses": a no-op returns False; each real change is one event and one log line."""
    client.send("a")
    pause, resume = (getattr(client.admin, f"{word}_{which.value}") for word in ("pause", "resume"))
    assert resume(where) is False
    assert [pause(where), pause(where)] == [True, False]
    assert getattr(client.stats(), f"{which.value}_paused") is True
    assert [resume(where), resume(where)] == [True, False]
    assert getattr(client.stats(), f"{which.value}_paused") is False
    until(lambda: len(events) == 2)
    assert [event.name for event in events] == [f"{which.value}_paused", f"{which.value}_resumed"]


@pytest.mark.parametrize("which", Pause, ids=lambda pause: pause.value)
def test_each_real_change_is_one_log_line(client: Client, caplog: pytest.LogCaptureFixture, which: Pause) -> None:
    caplog.set_level("INFO", "jmsclient.embedded")
    client.send("a")
    getattr(client.admin, f"pause_{which.value}")("q")
    getattr(client.admin, f"pause_{which.value}")("q")
    until(lambda: len(caplog.records) >= 1)
    assert [record.getMessage() for record in caplog.records] == [f"{which.value} paused on queue:///q"]


def test_flags_are_independent_and_ored_with_the_brokers(client: Client) -> None:
    """Rules, "The three pauses": resuming one never clears another; the server's flag and the destination's are OR-ed."""
    client.send("a")
    admin = client.admin
    admin.pause_production("q")
    admin.pause_insertion("q")
    admin.pause_production()
    admin.resume_production("q")
    admin.resume_insertion("q")
    with pytest.raises(DestinationPausedError):
        client.send("b")
    with pytest.raises(DestinationPausedError):
        client.send("b", queue="made after the pause")
    admin.pause_insertion("q")
    admin.resume_production()
    with pytest.raises(DestinationPausedError):
        client.send("b")
    assert client.stats().production_paused is False
    admin.resume_insertion("q")
    client.send("b")
    assert client.bodies() == ["a", "b"]


def test_t9_insertion_resumed_for_the_broker_leaves_a_paused_queue_paused(client: Client, connect: Connect) -> None:
    transacted = connect(transacted=True)
    transacted.send("a", queue="q1")
    transacted.send("b", queue="q2")
    client.admin.pause_insertion()
    client.admin.pause_insertion("q1")
    transacted.commit()
    client.admin.resume_insertion()
    assert (client.numbers("q1"), client.numbers("q2")) == ((0, 1), (1, 0))
    client.admin.resume_insertion("q1")
    assert client.numbers("q1") == (1, 0)


def test_a_flag_survives_stop_and_start_of_a_connection(client: Client, url: str) -> None:
    """Rules, "The three pauses": connection start and stop never change a flag."""
    client.send("a")
    client.admin.pause_consumption("q")
    with connect(url) as connection, connection.create_session() as session:
        consumer = session.create_consumer("q")
        connection.stop()
        connection.start()
        assert consumer.receive(0.02) is None
        assert client.stats().consumption_paused is True
        client.admin.resume_consumption("q")
        message = consumer.receive(5)
        assert message is not None


def test_t9_paused_messages_come_at_once_in_the_order_in_which_they_were_sent(timed: Client, clock: ManualClock) -> None:
    wall = clock.wall()
    timed.send(content("a", delivery_time=wall + 3), content("b", delivery_time=wall + 1), content("c", delivery_time=wall + 2))
    timed.admin.pause_insertion("q")
    clock.advance(4)
    until(lambda: timed.shown() == [("paused", 0)] * 3)
    _, sink = timed.receiver(demand=3)
    assert sink.arrivals == []
    timed.admin.resume_insertion("q")
    sink.wait(3)
    assert sink.bodies == ["a", "b", "c"]


# -- at the start --------------------------------------------------------------------------------------------------------

THREE = (True, False, None)


@pytest.mark.parametrize("server", THREE)
@pytest.mark.parametrize("destination", THREE)
@pytest.mark.parametrize("template", THREE)
@pytest.mark.parametrize("which", Pause, ids=lambda pause: pause.value)
def test_start_up_precedence(
    tmp_path: Path, connect: Connect, server: bool | None, destination: bool | None, template: bool | None, which: Pause
) -> None:
    """Rules, "The three pauses": the server's true or false wins; default asks the destination, then the template; then false."""
    words = {True: "true", False: "false", None: "default"}
    file = tmp_path / "shop.db"
    setting = f"{which.value}_paused_at_startup"
    own: dict[str, Any] = {setting: destination}
    first = connect(f"embedded:?store={file}")
    first.admin.create_queue("q", **own)
    first.admin.create_queue("other")
    first.transport.close(None)

    url = f"embedded:?store={file}&{which.value}_paused={words[server]}&{setting}={words[template]}"
    second = connect(url)
    expected = at_start(server, destination, template)
    assert expected is next((said for said in (server, destination, template) if said is not None), False)
    assert getattr(second.stats("q"), f"{which.value}_paused") is expected
    by_template = at_start(server, None, template)
    assert getattr(second.stats("other"), f"{which.value}_paused") is by_template
    second.admin.create_queue("new", **own)
    assert getattr(second.stats("new"), f"{which.value}_paused") is expected
    second.admin.create_topic("t")
    assert getattr(second.stats("topic:///t"), f"{which.value}_paused") is by_template
    second.receiver("topic:///first-use", kind="topic")
    assert getattr(second.stats("topic:///first-use"), f"{which.value}_paused") is by_template


def test_a_pause_at_run_time_is_not_stored(tmp_path: Path, connect: Connect) -> None:
    url = f"embedded:?store={tmp_path / 'shop.db'}"
    first = connect(url)
    first.admin.create_queue("q")
    first.admin.pause_consumption("q")
    first.transport.close(None)
    assert connect(url).stats("q").consumption_paused is False


def test_settings_given_anew_change_no_flag(client: Client) -> None:
    client.admin.create_queue("q")
    client.admin.pause_consumption("q")
    client.admin.create_queue("q", redelivery_limit=3, consumption_paused_at_startup=False)
    assert client.stats().consumption_paused is True


# -- S10 -----------------------------------------------------------------------------------------------------------------


def test_s10_insertion_paused_while_transactions_end(timed: Client, connect: Connect, url: str, clock: ManualClock) -> None:
    """S10: in-flight work is held back, counted once, and is there in order after the resume."""
    t1, t2 = connect(url, clock, transacted=True), connect(url, clock, transacted=True)
    timed.send("m4")
    receiver, arrivals = t2.take(1, hand_over=True)
    receiver.settle(arrivals, ACCEPT)
    t1.send("m1", "m2")
    timed.send(content("m3", delivery_time=clock.wall() + 0.5))
    timed.admin.pause_insertion("q")
    t1.commit()
    clock.advance(1)
    until(lambda: timed.shown().count(("paused", 0)) == 3)
    t2.rollback()
    other, sink = timed.receiver(demand=1)
    other.drain(None)
    assert sink.arrivals == []
    assert timed.numbers() == (0, 4)
    assert timed.stats().pending_by_kind.paused == 4
    timed.admin.resume_insertion("q")
    assert timed.numbers() == (4, 0)
    assert timed.bodies() == ["m4", "m3", "m1", "m2"]
    assert [count for _, count in timed.shown()] == [1, 0, 0, 0]


def test_s10_consumption_and_production_paused(client: Client, url: str) -> None:
    """S10, second and third part, through the public API."""
    with connect(url) as connection, connection.create_session() as session:
        session.create_producer("q").send("a")
        admin, consumer = connection.administration, session.create_consumer("q")
        admin.pause_consumption("q")
        before = admin.statistics("q")
        assert consumer.receive(0.03) is None
        assert consumer.receive_no_wait() is None
        assert admin.statistics("q") == before
        admin.resume_consumption("q")
        admin.pause_production("q")
        with pytest.raises(DestinationPausedError, match="paused"):
            session.create_producer("q").send("b")
        message = consumer.receive(5)
        assert message is not None
        assert message.text == "a"


def test_a_paused_receive_gets_what_comes_after_the_resume(client: Client, url: str) -> None:
    """Pause table: receive() blocks; it is woken by the resume, not by its caller."""
    client.admin.create_queue("q")
    client.admin.pause_consumption("q")
    client.send("a")

    def receive(connection: Connection) -> Message | None:
        with connection.create_session() as session:
            return session.create_consumer("q").receive(10)

    with connect(url) as connection:
        waiting = Background(lambda: receive(connection))
        until(lambda: client.stats().consumers_current == 1)
        client.admin.resume_consumption("q")
        assert waiting.result().text == "a"


def test_a_send_on_its_way_when_insertion_is_paused_is_held_back(client: Client) -> None:
    """T7: it looked before the pause and is put after it; then it is paused as any in-flight work, and no consumer gets it."""
    client.send("a")
    line = client.broker.granting.lines["q"]
    _, sink = client.receiver(demand=5)
    sink.wait(1)
    client.admin.pause_insertion("q")
    assert client.broker.put(line, [content("b")])  # from the main thread: nobody waits for it
    client.session.flush(None)
    assert client.shown() == [("paused", 0), ("receive", 0)]
    client.admin.resume_insertion("q")
    sink.wait(2)


def test_a_send_on_its_way_when_consumption_is_paused_waits(client: Client) -> None:
    client.send("a")
    line = client.broker.granting.lines["q"]
    _, sink = client.receiver(demand=5)
    sink.wait(1)
    client.admin.pause_consumption("q")
    assert client.broker.put(line, [content("b")])
    client.session.flush(None)
    assert client.shown() == [("visible", 0), ("receive", 0)]
    assert len(sink.arrivals) == 1
