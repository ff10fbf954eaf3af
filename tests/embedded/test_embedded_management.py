"""Management (IF-35, T17): move, delete, drain, recover_stuck, delete_destination, and every bad call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import AcknowledgeMode
from jmsclient import connect as connect_public
from jmsclient.errors import (
    ConfigurationError,
    DestinationPausedError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsClientError,
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


# -- bad calls -----------------------------------------------------------------------------------------------------------

Call = Callable[[EmbeddedAdministration], object]
MISSING: dict[str, Call] = {
    "statistics": lambda admin: admin.statistics("nowhere"),
    "statistics of a topic": lambda admin: admin.statistics("topic:///nowhere"),
    "a queue of a topic's name": lambda admin: admin.statistics("topic:///q"),
    "reset_statistics": lambda admin: admin.reset_statistics("nowhere"),
    "messages": lambda admin: admin.messages("nowhere"),
    "pause_production": lambda admin: admin.pause_production("nowhere"),
    "pause_insertion": lambda admin: admin.pause_insertion("nowhere"),
    "pause_consumption": lambda admin: admin.pause_consumption("nowhere"),
    "resume_production": lambda admin: admin.resume_production("nowhere"),
    "resume_insertion": lambda admin: admin.resume_insertion("nowhere"),
    "resume_consumption": lambda admin: admin.resume_consumption("nowhere"),
    "move": lambda admin: admin.move("nowhere", "q"),
    "move into": lambda admin: admin.move("paused", "nowhere"),
    "move into a topic": lambda admin: admin.move("paused", "topic:///t"),
    "delete": lambda admin: admin.delete("nowhere", "1 = 1"),
    "drain": lambda admin: admin.drain("nowhere"),
    "delete_destination": lambda admin: admin.delete_destination("nowhere"),
    "recover_stuck": lambda admin: admin.recover_stuck("nobody"),
    "a name without letters": lambda admin: admin.statistics("  "),
    "another scheme": lambda admin: admin.statistics("http://q"),
    "a name of ours": lambda admin: admin.create_queue("jmsclient-temporary-1"),
    "a topic of ours": lambda admin: admin.create_topic("jmsclient-temporary-1"),
    "a control character": lambda admin: admin.create_queue("a\x1fb"),
    "an empty name": lambda admin: admin.create_queue(""),
    "a name that is no text": lambda admin: admin.create_queue(5),  # type: ignore[arg-type]
    "a place that is no text": lambda admin: admin.statistics(5),  # type: ignore[arg-type]
    "no place": lambda admin: admin.drain(None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", MISSING)
def test_a_destination_that_is_not_there_is_named(client: Client, call: str) -> None:
    before = _prepared(client)
    with pytest.raises(InvalidDestinationError):
        MISSING[call](client.admin)
    assert _snapshot(client) == before


NUMBERS = ("bytes_maximum", "messages_maximum", "redelivery_limit", "priority_override", "messages_threshold_high")
TIMES = ("redelivery_delay", "time_to_deliver_override", "time_to_live_override")
WRONG: dict[str, Call] = {}


def _create(name: str, value: object) -> Call:
    return lambda admin: admin.create_queue("q", **{name: value})  # type: ignore[arg-type]


for _name in NUMBERS:
    for _value in (-2, 1.5, "1", True, None, math.nan):
        WRONG[f"{_name}={_value!r}"] = _create(_name, _value)
for _name in TIMES:
    for _value in (-0.5, -2, "1", True, None, math.nan, math.inf, 1e300):
        WRONG[f"{_name}={_value!r}"] = _create(_name, _value)
for _name, _values in {
    "priority_override": (10, 99),
    "redelivery_multiplier": (0.5, 0, math.nan, math.inf, "2", None, True),
    "redelivery_delay_maximum": (-1, math.nan, math.inf, "2", True),
    "error_destination": ("", "  ", 5, "a\x1fb"),
    "expiration_policy": ("drop", "", None, 5, ["discard"]),
    "delivery_mode_override": ("PERSISTENT", "", 5, ["persistent"]),
    "unit_of_order": ("", 5, " "),
    "quota": ("nobody's", "", 5),
    "default_read_ahead": ("perhaps", "", 5, None),
    "production_paused_at_startup": ("yes", 1, 0, "true"),
    "consumption_paused_at_startup": ("yes", 1, 2),
    "messages_threshold_low": (3,),
    "bytes_threshold_low": (3, -2),
}.items():
    for _value in _values:
        WRONG[f"{_name}={_value!r}"] = _create(_name, _value)
WRONG |= {
    "low above high": lambda admin: admin.create_queue("q", messages_threshold_high=2, messages_threshold_low=3),
    "topic: bad limit": lambda admin: admin.create_topic("t", redelivery_limit=-5),
    "topic: bad quota": lambda admin: admin.create_topic("t", quota="nobody's"),
    "quota: bad maximum": lambda admin: admin.create_quota("one", bytes_maximum=-2),
    "quota: bad messages": lambda admin: admin.create_quota("one", messages_maximum=True),
    "quota: bad policy": lambda admin: admin.create_quota("one", policy="lifo"),  # type: ignore[arg-type]
    "quota: unhashable policy": lambda admin: admin.create_quota("one", policy=["fifo"]),  # type: ignore[arg-type]
    "quota: no name": lambda admin: admin.create_quota(""),
    "quota: name is None": lambda admin: admin.create_quota(None),  # type: ignore[arg-type]
    "quota: name is a number": lambda admin: admin.create_quota(5),  # type: ignore[arg-type]
    "messages: bad state": lambda admin: admin.messages("q", state="lost"),
    "messages: state is no text": lambda admin: admin.messages("q", state=5),  # type: ignore[arg-type]
    "messages: unhashable state": lambda admin: admin.messages("q", state=["visible"]),  # type: ignore[arg-type]
    "messages: bad selector": lambda admin: admin.messages("q", "a ="),
    "messages: selector is no text": lambda admin: admin.messages("q", 5),  # type: ignore[arg-type]
    "move to itself": lambda admin: admin.move("paused", "queue:///paused"),
    "move: bad selector": lambda admin: admin.move("paused", "q", "a = = 1"),
    "move: one id": lambda admin: admin.move("paused", "q", message_ids="ID:1"),
    "move: ids that are numbers": lambda admin: admin.move("paused", "q", message_ids=[1, 2]),  # type: ignore[list-item]
    "move: a number for ids": lambda admin: admin.move("paused", "q", message_ids=5),  # type: ignore[arg-type]
    "delete: nothing said": lambda admin: admin.delete("paused"),
    "delete: a blank selector says nothing": lambda admin: admin.delete("paused", "  "),
    "delete: bad ids": lambda admin: admin.delete("paused", message_ids=[None]),  # type: ignore[list-item]
    "recover: no word": lambda admin: admin.recover_stuck("held", "perhaps"),
    "recover: a list": lambda admin: admin.recover_stuck("held", ["retry"]),  # type: ignore[arg-type]
    "recover: None": lambda admin: admin.recover_stuck("held", None),  # type: ignore[arg-type]
    "recover: nobody": lambda admin: admin.recover_stuck(""),
    "recover: a number": lambda admin: admin.recover_stuck(5),  # type: ignore[arg-type]
    "recover: no verb": lambda admin: admin.recover_stuck("ID:held", Outcome(verb="retry")),  # type: ignore[arg-type]
    "recover: bad delay": lambda admin: admin.recover_stuck("ID:held", Outcome(verb=Verb.RETRY, delay=math.nan)),
    "recover: negative delay": lambda admin: admin.recover_stuck("ID:held", Outcome(verb=Verb.RETRY, delay=-1.0)),
    "recover: delay is no number": lambda admin: admin.recover_stuck(
        "ID:held",
        Outcome(verb=Verb.RETRY, delay="1"),  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize("call", WRONG)
def test_a_value_that_cannot_work_is_named_and_changes_nothing(client: Client, call: str) -> None:
    before = _prepared(client)
    with pytest.raises(ConfigurationError) as raised:
        WRONG[call](client.admin)
    assert isinstance(raised.value, ConfigurationError | InvalidSelectorError)
    assert str(raised.value)
    assert _snapshot(client) == before


def _prepared(client: Client) -> list[object]:
    client.admin.create_queue("q", messages_maximum=7)
    client.admin.create_topic("t")
    client.admin.create_queue("paused")
    client.send("a", queue="paused")
    client.send(named("held"))
    client.take(1, hand_over=True)
    client.admin.pause_consumption("paused")
    return _snapshot(client)


def _snapshot(client: Client) -> list[object]:
    places = client.admin.destinations()
    settings = [client.broker.catalogue.existing(one).settings for one in places]
    return [places, [client.stats(one) for one in places], settings, sorted(client.broker.catalogue.quotas)]


def test_wrong_states_are_named(client: Client) -> None:
    """Each of these is refused because of what there is, not of what is asked; nothing changes."""
    client.admin.create_queue("target")
    before = _prepared(client)
    calls: list[Call] = [
        lambda admin: admin.drain("q"),
        lambda admin: admin.delete("q", "1 = 1"),
        lambda admin: admin.move("q", "target"),
        lambda admin: admin.delete_destination("q"),
    ]
    for call in calls:
        with pytest.raises(IllegalStateError):
            call(client.admin)
    assert _snapshot(client) == before


def test_administration_of_a_closed_or_lost_connection(client: Client, connect: Connect) -> None:
    client.send("a")
    lost, closed = connect(), connect()
    for one, end in ((lost, lost.transport.lose), (closed, lambda: closed.transport.close(None))):
        end()
        with pytest.raises(JmsClientError):
            one.transport.administration()


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
