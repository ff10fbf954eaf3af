"""Management (IF-35, T17): move, delete, drain, recover_stuck, delete_destination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import AcknowledgeMode
from jmsclient import connect as connect_public
from jmsclient.errors import (
    DestinationPausedError,
    IllegalStateError,
)
from jmsclient.events import Event
from jmsclient.testing import ManualClock
from jmsclient.transport.administration import ManagementResult
from jmsclient.transport.contract import ACCEPT, RETRY, Outcome, Verb
from jmsclient_embedded.administration import EmbeddedAdministration

from .conftest import Client, Connect, content, in_thread, until


def ids(*bodies: str) -> tuple[str, ...]:
    return tuple(f"ID:{body}" for body in bodies)


def named(body: str, **settings: Any) -> Any:
    return content(body, message_id=f"ID:{body}", **settings)


@pytest.fixture
def every_state(timed: Client, connect: Connect, url: str, clock: ManualClock) -> Client:
    """A queue with a message in each state that management may meet, consumption paused."""
    timed.admin.create_queue("q", unit_of_order="unit", bytes_maximum=10_000)
    timed.admin.create_queue("target")
    timed.send(named("received"))
    timed.take(1, hand_over=True)
    timed.send(named("delayed"))
    other = connect(url, clock)
    receiver, arrivals = other.take(1, hand_over=True)
    receiver.settle(arrivals, Outcome(verb=Verb.RETRY, delay=1000.0))
    transacted = connect(url, clock, transacted=True)
    timed.send(named("accepted"))
    in_transaction, taken = transacted.take(1, hand_over=True)
    in_transaction.settle(taken, ACCEPT)
    timed.send(named("unborn", delivery_time=clock.wall() + 1000))
    timed.send(named("visible", properties={"unit": "u"}), named("ordered", properties={"unit": "u"}))
    transacted.send(named("uncommitted"))
    until(lambda: timed.numbers() == (2, 5))
    timed.admin.pause_consumption("q")
    return timed


FREE = ids("visible", "ordered", "delayed", "unborn")
REFUSED = {
    ("ID:received", "receive"),
    ("ID:accepted", "receive+transaction"),
    ("ID:uncommitted", "send+transaction"),
}


# -- move, delete, drain --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.move("q", "target"),
        lambda admin: admin.delete("q", "1 = 1"),
        lambda admin: admin.delete("q", message_ids=[*FREE, *(one for one, _ in REFUSED)]),
        lambda admin: admin.drain("q"),
    ],
    ids=["move", "delete by selector", "delete by ids", "drain"],
)
def test_if_35_t17_in_every_state(every_state: Client, call: Callable[[EmbeddedAdministration], ManagementResult]) -> None:
    """Visible, ordered, delayed and un-born ones are done; what somebody holds or has not sent yet is refused, with its state."""
    result = call(every_state.admin)
    assert sorted(map(str, result.done)) == sorted(FREE)
    assert set(result.refused) == REFUSED
    assert sorted(state for state, _ in every_state.shown()) == ["receive", "receive+transaction", "send+transaction"]
    found = every_state.stats()
    assert found.messages_moved + found.messages_deleted == 4


def test_if_35_a_move_keeps_ids_bodies_properties_order_and_birth(every_state: Client, clock: ManualClock) -> None:
    every_state.admin.move("q", "target")
    target = every_state.admin.messages("target")
    assert [(one.message_id, one.state, one.delivery_count) for one in target] == [
        ("ID:delayed", "visible", 0),
        ("ID:visible", "visible", 0),
        ("ID:ordered", "visible", 0),
        ("ID:unborn", "delayed", 0),
    ]
    clock.advance(1001)
    until(lambda: every_state.numbers("target") == (4, 0))
    assert every_state.bodies("target") == ["delayed", "unborn", "visible", "ordered"]
    _, arrivals = every_state.take(4, "target")
    assert arrivals[3].content.properties()["unit"] == "u"


def test_if_35_a_move_by_selector_and_by_ids(client: Client) -> None:
    client.admin.create_queue("target")
    client.send(*(named(str(number), properties={"n": number}) for number in range(6)))
    client.admin.pause_consumption("q")
    assert client.admin.move("q", "target", "n >= 4").done == ids("4", "5")
    result = client.admin.move("q", "target", message_ids=["ID:0", "ID:nobody", "ID:4"])
    assert (result.done, result.refused) == (ids("0"), (("ID:4", "not there"), ("ID:nobody", "not there")))
    assert client.admin.move("q", "target", "n = 1", message_ids=["ID:1", "ID:2"]).done == ids("1")
    assert client.bodies("q") == ["2", "3"]
    assert client.bodies("target") == ["4", "5", "0", "1"]
    found = client.stats()
    assert (found.messages_moved, client.stats("target").messages_received) == (4, 4)


def test_if_35_a_waiting_consumer_of_the_target_gets_what_is_moved(client: Client) -> None:
    client.send(named("a"))
    client.admin.pause_consumption("q")
    receiver, sink = client.receiver("target", demand=1)
    client.admin.move("q", "target")
    sink.wait(1)
    assert sink.arrivals[0].content.message_id == "ID:a"
    receiver.settle(sink.arrivals, ACCEPT)


def test_if_35_only_while_consumption_is_paused(client: Client) -> None:
    client.admin.create_queue("target")
    client.send(named("a"))
    before = client.stats()
    for call in (
        lambda: client.admin.move("q", "target"),
        lambda: client.admin.delete("q", message_ids=["ID:a"]),
        lambda: client.admin.drain("q"),
    ):
        with pytest.raises(IllegalStateError, match="pause_consumption"):
            call()
    assert client.stats() == before
    client.admin.pause_consumption()  # of the whole broker counts too
    assert client.admin.drain("q").done == ("ID:a",)


@pytest.mark.parametrize("which", ["production", "insertion"])
@pytest.mark.parametrize("everywhere", [False, True])
def test_if_35_a_target_that_is_paused_is_refused(client: Client, which: str, everywhere: bool) -> None:
    client.admin.create_queue("target")
    client.send(named("a"))
    client.admin.pause_consumption("q")
    getattr(client.admin, f"pause_{which}")(None if everywhere else "target")
    with pytest.raises((DestinationPausedError, IllegalStateError)):
        client.admin.move("q", "target")
    assert (client.numbers(), client.numbers("target")) == ((1, 0), (0, 0))


def test_if_35_in_the_store(connect: Connect, tmp_path: Any) -> None:
    """What management did is true after a restart."""
    url = f"embedded:?store={tmp_path / 'shop.db'}"
    client = connect(url)
    client.admin.create_queue("target")
    client.send(*map(named, "abcd"))
    client.admin.pause_consumption("q")
    client.admin.move("q", "target", message_ids=["ID:a", "ID:b"])
    client.admin.delete("q", message_ids=["ID:c"])
    client.transport.close(None)
    client = connect(url)
    assert (client.bodies("q"), client.bodies("target")) == (["d"], ["a", "b"])
    client.admin.delete_destination("target")
    client.transport.close(None)
    client = connect(url)
    assert [one.name for one in client.admin.destinations()] == ["q"]


# -- recover_stuck -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "left", "dead"),
    [
        ("retry", [("visible", 1), ("visible", 1)], 0),
        ("release", [("visible", 0), ("visible", 0)], 0),
        ("retry_elsewhere", [("visible", 1), ("visible", 1)], 0),
        ("accept", [], 0),
        ("dead_letter", [], 2),
    ],
)
@pytest.mark.parametrize("given", ["word", "outcome"])
def test_if_35_recover_stuck_by_owner(
    client: Client, events: list[Event], outcome: str, left: list[tuple[str, int]], dead: int, given: str
) -> None:
    client.send("a", "b")
    receiver, arrivals = client.take(2, hand_over=True)
    owner = client.admin.messages("q")[0].owner
    assert owner is not None
    assert client.admin.recover_stuck(owner, outcome if given == "word" else Outcome(verb=Verb(outcome))) == 2
    assert client.shown() == left
    assert len(client.bodies("DLQ")) == dead
    before = client.stats()
    receiver.settle(arrivals, ACCEPT)  # too late: nothing but an event
    client.session.flush(None)
    assert client.stats() == before
    until(lambda: sum(event.fields["count"] for event in events if event.name == "stale_settlement") == 2)


def test_if_35_recover_stuck_by_message(client: Client) -> None:
    client.send(named("a"), named("b"))
    receiver, arrivals = client.take(2, hand_over=True)
    assert client.admin.recover_stuck("ID:b") == 1
    assert client.shown() == [("visible", 1), ("receive", 1)]
    receiver.settle(arrivals, RETRY)
    client.session.flush(None)
    assert client.shown() == [("visible", 1), ("visible", 1)]


def test_if_35_recover_stuck_follows_the_session_that_inherited(client: Client) -> None:
    """IF-9: the owner's name is then the session's."""
    client.send(named("a"))
    receiver, _ = client.take(1, hand_over=True)
    receiver.close(None)
    (info,) = client.admin.messages("q")
    assert str(info.owner).startswith("session-")
    assert client.admin.recover_stuck(str(info.owner), "release") == 1
    assert client.shown() == [("visible", 0)]


def test_if_35_recover_stuck_redelivers_at_once_and_the_late_owner_changes_nothing(client: Client, connect: Connect) -> None:
    client.send(named("a"))
    stuck, arrivals = client.take(1, hand_over=True)
    other = connect()
    receiver, sink = other.receiver(demand=1)
    client.admin.recover_stuck("ID:a", "retry")
    sink.wait(1)
    assert sink.arrivals[0].delivery_count == 2
    for outcome in (ACCEPT, RETRY, Outcome(verb=Verb.DEAD_LETTER)):
        arrivals[0].settled = False
        stuck.settle(arrivals, outcome)
    client.session.flush(None)
    assert client.numbers() == (0, 1)
    receiver.settle(sink.arrivals, ACCEPT)
    other.session.flush(None)
    assert client.stats().messages_acknowledged == 1


def test_if_35_recover_stuck_of_a_hung_handler_through_the_public_api(client: Client, url: str) -> None:
    client.send(named("a"))
    with connect_public(url) as connection, connection.create_session() as session, connection.create_session() as second:
        with connection.create_session(AcknowledgeMode.CLIENT) as stuck:
            message = stuck.create_consumer("q").receive(5)
            assert message is not None
            admin = connection.administration
            (info,) = admin.messages("q")
            assert admin.recover_stuck(str(info.owner)) == 1
            again = second.create_consumer("q").receive(5)
            assert again is not None
            assert again.delivery_count == 2
            stuck.acknowledge()
        assert session.create_consumer("q").receive_no_wait() is None
    assert client.numbers() == (0, 0)
    assert client.stats().messages_acknowledged == 1


def test_if_35_recover_stuck_applies_the_delay_it_is_given(timed: Client, clock: ManualClock) -> None:
    timed.send(named("a"))
    timed.take(1, hand_over=True)
    timed.admin.recover_stuck("ID:a", Outcome(verb=Verb.RELEASE, delay=5.0))
    assert timed.shown() == [("delayed", 0)]
    clock.advance(6)
    until(lambda: timed.shown() == [("visible", 0)])


# -- making and removing destinations ------------------------------------------------------------------------------------


def test_delete_destination_with_all_its_messages(timed: Client, clock: ManualClock) -> None:
    timed.send("a", content("unborn", delivery_time=clock.wall() + 100), content("expiring", expiration=clock.wall() + 5))
    timed.admin.delete_destination("q")
    assert timed.admin.destinations() == []
    clock.advance(200)
    timed.session.flush(None)
    timed.send("new")
    assert timed.bodies() == ["new"]
    assert timed.stats().messages_received == 1


@pytest.mark.parametrize("state", ["consumer", "held", "uncommitted"])
def test_delete_destination_is_refused_while_somebody_uses_it(client: Client, connect: Connect, state: str) -> None:
    client.send("a")
    if state == "consumer":
        client.receiver()
    elif state == "held":
        receiver, _ = client.take(1)
        receiver.close(None)
    else:
        connect(transacted=True).send("b")
    before = client.shown()
    with pytest.raises(IllegalStateError):
        client.admin.delete_destination("q")
    assert client.shown() == before


def test_destinations_are_listed_by_uri(client: Client) -> None:
    client.send("a", queue="b q")
    client.admin.create_queue("a")
    client.admin.create_topic("t")
    client.receiver("topic:///u", kind="durable", name="d")
    assert [one.address for one in client.admin.destinations()] == [
        "queue:///a",
        "queue:///b%20q",
        "topic:///t",
        "topic:///u",
    ]


def test_messages_are_listed_by_state_and_selector(every_state: Client) -> None:
    admin = every_state.admin
    assert next(one.message_id for one in admin.messages("q")) == "ID:visible"
    listed = {state: [one.message_id for one in admin.messages("q", state=state)] for state in ("visible", "ordered", "receive")}
    assert listed == {"visible": ["ID:visible"], "ordered": ["ID:ordered"], "receive": ["ID:received"]}
    assert {one.message_id for one in admin.messages("q", state="delayed")} == set(ids("delayed", "unborn"))
    assert [one.message_id for one in admin.messages("q", "unit = 'u'")] == ["ID:visible", "ID:ordered"]
    (received,) = admin.messages("q", state="receive")
    assert (received.delivery_count, received.size, received.priority, received.persistent) == (1, 8, 4, True)
    assert str(received.owner).startswith("consumer-")


@pytest.mark.parametrize("thread", ["main", "another"])
def test_a_send_that_meets_the_removal_of_its_queue_is_not_lost(client: Client, thread: str) -> None:
    """It found the queue before it went; what is confirmed is in the new queue of that name."""
    client.send("old")
    line = client.broker.granting.lines["q"]
    client.admin.delete_destination("q")
    message = content("a")
    if thread == "main":
        assert client.broker.put(line, [message])
        client.session.flush(None)
        assert client.bodies() == ["a"]
    else:
        in_thread(lambda: _refused(client, line, message))
        assert client.admin.destinations() == []


def _refused(client: Client, line: Any, message: Any) -> None:
    assert client.broker.put(line, [message]) is False  # and it goes the long way


def test_a_send_that_meets_the_removal_of_a_temporary_queue_makes_none(client: Client) -> None:
    place = client.session.create_temporary("queue", None)
    line = client.broker.granting.lines[place.name]
    client.session.delete_temporary(place, None)
    client.broker.put(line, [content("a")])
    client.session.flush(None)
    assert client.admin.destinations() == []
