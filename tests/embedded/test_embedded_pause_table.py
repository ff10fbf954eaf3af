"""Every cell of the pause table, for one queue and for the whole broker (rules, "The three pauses")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from jmsclient import connect
from jmsclient.clock import SYSTEM_CLOCK
from jmsclient.errors import DestinationPausedError, IllegalStateError, ResourceAllocationError
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RETRY, Outcome, Verb
from jmsclient_embedded.invariants import check
from jmsclient_embedded.pauses import PAUSE_TABLE, PAUSED_ERROR, Effect, Pause

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
