"""The three pauses: every cell of the table, per destination and for the whole broker; idempotence, events, start-up precedence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jmsclient import Connection, Message, connect
from jmsclient.clock import SYSTEM_CLOCK
from jmsclient.errors import DestinationPausedError, IllegalStateError, ResourceAllocationError
from jmsclient.events import Event
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RETRY, Outcome, Verb
from jmsclient_embedded.invariants import check
from jmsclient_embedded.pauses import PAUSE_TABLE, PAUSED_ERROR, Effect, Pause, at_start

from .conftest import Background, Client, Connect, content, until


@dataclass
class World:
    """A broker, two clients of it (one transacted), and the pause under test, which a scenario sets when it likes."""

    connect: Connect
    url: str
    clock: ManualClock
    real_time: bool
    which: Pause
    everywhere: bool

    def __post_init__(self) -> None:
        self.client, self.transacted = self.new(), self.new(transacted=True)
        self.client.admin.create_queue("q")

    def new(self, **settings: bool) -> Client:
        return self.connect(self.url, SYSTEM_CLOCK if self.real_time else self.clock, **settings)

    def pause(self, which: Pause | None = None) -> None:
        assert getattr(self.client.admin, f"pause_{(which or self.which).value}")(None if self.everywhere else "q")

    def states(self, queue: str = "q") -> set[str]:
        return {state for state, _ in self.client.shown(queue)}


def refused(call: Callable[[], object], *by: type[Exception]) -> bool:
    try:
        call()
    except by:
        return True
    return False


def plain_send(world: World) -> str:
    world.pause()
    return PAUSED_ERROR if refused(lambda: world.client.send("a"), DestinationPausedError) else "works"


def transacted_send(world: World) -> str:
    world.pause()
    failed = refused(lambda: world.transacted.send("a"), DestinationPausedError)
    world.transacted.commit()
    assert len(world.client.shown()) == (0 if failed else 1)
    return PAUSED_ERROR if failed else "works"


def commit_of_an_earlier_send(world: World) -> str:
    world.transacted.send("a", "b")
    world.pause()
    world.transacted.commit()
    (state,) = world.states()
    return state


def quota_waiter(world: World) -> str:
    world.client.admin.create_queue("q", messages_maximum=1)
    world.client.send("a")
    receiver, arrivals = world.client.take(1)
    sending = Background(lambda: world.new().send("b", room=5.0))
    until(lambda: world.client.stats().blocked_senders == 1)
    world.pause()
    receiver.settle(arrivals, ACCEPT)
    world.client.session.flush(None)
    if world.client.stats().blocked_senders:
        world.clock.advance(5.1)  # its own timeout still runs
        assert refused(sending.result, ResourceAllocationError)
        assert world.client.numbers() == (0, 0)
        return "keeps waiting"
    sending.result()
    assert world.client.shown() == [("visible", 0)]
    return "admitted"


def due_time(world: World) -> str:
    world.client.send("delayed", content("unborn", delivery_time=world.clock.wall() + 5))
    receiver, arrivals = world.client.take(1)
    receiver.settle(arrivals, Outcome(verb=Verb.RETRY, delay=5.0))
    until(lambda: world.states() == {"delayed"})
    world.pause()
    world.clock.advance(6)
    until(lambda: "delayed" not in world.states())
    (state,) = world.states()
    assert len(world.client.shown()) == 2
    return state


def comes_back(world: World) -> str:
    world.client.send("a", "b", "c", "d")
    transacted, recovers, closes, crashes = world.new(transacted=True), world.new(), world.new(), world.new()
    in_transaction, rolled_back = transacted.take(1, hand_over=True)
    receiver, recovered = recovers.take(1, hand_over=True)
    closes.take(1, hand_over=True)
    crashes.take(1, hand_over=True)
    world.pause()
    in_transaction.settle(rolled_back, ACCEPT)
    transacted.rollback()
    receiver.settle(recovered, RETRY)
    closes.session.close(None)
    crashes.transport.lose()
    until(lambda: "receive" not in world.states())
    assert [count for _, count in world.client.shown()] == [1, 1, 1, 1]
    (state,) = world.states()
    return state


def acknowledge(world: World) -> str:
    world.client.send("a", "b")
    receiver, arrivals = world.client.take(1)
    in_transaction, others = world.transacted.take(1)
    world.pause()
    receiver.settle(arrivals, ACCEPT)
    in_transaction.settle(others, ACCEPT)
    world.transacted.commit()
    world.client.session.flush(None)
    return "works" if world.client.shown() == [] else "does not"


def receive(world: World) -> str:
    world.client.send("a", "b", "c")
    world.pause()
    with connect(world.url) as connection, connection.create_session() as session:
        consumer = session.create_consumer("q", prefetch=0)
        got = [consumer.receive(0.05), consumer.receive_no_wait()]
        check(world.client.broker)
        if got == [None, None]:
            assert world.client.shown() == [("visible", 0)] * 3
            waiting = Background(consumer.receive)  # blocks until it is resumed
            until(lambda: session.inside)
            assert waiting.running
            world.client.admin.resume_consumption(None if world.everywhere else "q")
            message = waiting.result()
            assert (message.text, message.delivery_count) == ("a", 1)
            return "waits, then None"
        assert [message.text for message in got if message is not None] == ["a", "b"]
        return "works"


def listener(world: World) -> str:
    world.client.send("a", "b")
    world.pause()
    heard: list[str | None] = []
    with connect(world.url) as connection, connection.create_session() as session:
        session.create_consumer("q", listener=lambda message: heard.append(message.text))
        if world.which is not Pause.CONSUMPTION:
            until(lambda: heard == ["a", "b"])
            return "fed"
        assert world.client.numbers() == (2, 0)
        assert heard == []
        world.client.admin.resume_consumption(None if world.everywhere else "q")
        until(lambda: heard == ["a", "b"])
        return "silent"


def browse(world: World) -> str:
    world.client.send("a", "b", content("unborn", delivery_time=world.clock.wall() + 1e9))
    world.pause()
    return "works" if world.client.bodies() == ["a", "b"] else "does not"


def management(world: World) -> str:
    world.client.admin.create_queue("elsewhere")
    world.client.send("a", "b", "c")
    if world.which is not Pause.CONSUMPTION:
        world.client.admin.pause_consumption("q")
    world.pause()
    ids = [one.message_id for one in world.client.admin.messages("q")]
    admin, before = world.client.admin, world.client.shown()
    calls: list[Callable[[], object]] = [
        lambda: admin.delete("q", message_ids=[ids[0] or ""]),
        lambda: admin.move("q", "elsewhere", message_ids=[ids[1] or ""]),
        lambda: admin.drain("q"),
    ]
    answers = [refused(call, IllegalStateError) for call in calls]
    if all(answers):
        assert world.client.shown() == before
        return "refused"
    assert not any(answers)
    assert world.client.numbers() == (0, 0)
    return "allowed"


def move_into(world: World) -> str:
    admin = world.client.admin
    admin.create_queue("source")
    world.client.send("a", queue="source")
    world.pause()
    if not (world.everywhere and world.which is Pause.CONSUMPTION):
        admin.pause_consumption("source")
    if refused(lambda: admin.move("source", "q", "1 = 1"), DestinationPausedError, IllegalStateError):
        assert (world.client.numbers("source"), world.client.numbers("q")) == ((1, 0), (0, 0))
        return "refused"
    assert (world.client.numbers("source"), world.client.numbers("q")) == ((0, 0), (1, 0))
    return "works"


def redirect(world: World) -> str:
    admin = world.client.admin
    admin.create_queue("failing", redelivery_limit=0, error_destination="q")
    admin.create_queue("expiring", expiration_policy="redirect", error_destination="q")
    world.client.send("a", queue="failing")
    world.client.send(content("b", expiration=world.clock.wall() + 5), queue="expiring")
    receiver, arrivals = world.client.take(1, "failing", hand_over=True)
    world.pause()
    receiver.settle(arrivals, RETRY)
    world.clock.advance(31)  # the scan of IF-33
    until(lambda: len(world.client.shown("q")) == 2)
    (state,) = world.states()
    return state


SCENARIOS: dict[str, Callable[[World], str]] = {
    "new plain send": plain_send,
    "send in a transaction": transacted_send,
    "commit of an earlier send": commit_of_an_earlier_send,
    "quota waiter gets room": quota_waiter,
    "birth time / redelivery delay ends": due_time,
    "rollback, recover, close, crash": comes_back,
    "ack / commit of a received message": acknowledge,
    "receive() / receive(t) / receive_no_wait()": receive,
    "listener": listener,
    "browse": browse,
    "move, delete, drain by management": management,
    "move into it": move_into,
    "redirect from another destination": redirect,
}
PUBLIC = (receive, listener)
"""They use the public API, which waits for real."""


def test_every_event_of_the_pause_table_has_a_scenario() -> None:
    assert list(SCENARIOS) == [row.event for row in PAUSE_TABLE]


@pytest.mark.parametrize("everywhere", [False, True], ids=["one queue", "whole broker"])
@pytest.mark.parametrize("which", Pause, ids=lambda pause: pause.value)
@pytest.mark.parametrize("row", PAUSE_TABLE, ids=lambda row: row.event)
def test_pause_table(connect: Connect, url: str, clock: ManualClock, row: Effect, which: Pause, everywhere: bool) -> None:
    """Rules, "The three pauses": what the table says is what happens."""
    scenario = SCENARIOS[row.event]
    world = World(connect, url, clock, scenario in PUBLIC, which, everywhere)
    assert scenario(world) == getattr(row, which.value)


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
