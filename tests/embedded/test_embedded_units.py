"""Units of order (IF-34): the head must finish before the next of its unit is visible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import AcknowledgeMode
from jmsclient import connect as connect_public
from jmsclient.events import Event
from jmsclient.message import PlainContent
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Outcome, Verb

from .conftest import Client, Connect, content, until


def one(body: str, unit: str | None = "u", **settings: Any) -> PlainContent:
    return content(body, properties={} if unit is None else {"unit": unit}, **settings)


@pytest.fixture
def ordered(timed: Client) -> Client:
    timed.admin.create_queue("q", unit_of_order="unit", redelivery_limit=1)
    return timed


def test_if_34_only_the_head_is_visible_and_all_count_as_current(ordered: Client) -> None:
    ordered.send(one("a1", "a"), one("a2", "a"), one("b1", "b"), one("free", None), one("a3", "a"))
    assert ordered.bodies() == ["a1", "b1", "free"]
    assert ordered.shown() == [("visible", 0)] * 3 + [("ordered", 0)] * 2
    found = ordered.stats()
    assert (found.messages_current, found.messages_pending, found.messages_high) == (5, 0, 5)
    assert found.bytes_current == found.bytes_high == len("a1a2b1freea3")


FINISHES: dict[str, Callable[[Client, ManualClock, Connect, str], None]] = {}


def finish(name: str) -> Callable[[Any], Any]:
    def register(call: Any) -> Any:
        FINISHES[name] = call
        return call

    return register


@finish("acknowledged")
def _acknowledged(client: Client, clock: ManualClock, connect: Connect, url: str) -> None:
    receiver, arrivals = client.take(1, hand_over=True)
    receiver.settle(arrivals, ACCEPT)


@finish("committed")
def _committed(client: Client, clock: ManualClock, connect: Connect, url: str) -> None:
    transacted = connect(url, clock, transacted=True)
    receiver, arrivals = transacted.take(1, hand_over=True)
    receiver.settle(arrivals, ACCEPT)
    transacted.session.flush(None)
    assert client.stats().messages_current == 1
    assert client.bodies() == []
    transacted.commit()


@finish("expired, found by the scan")
def _expired(client: Client, clock: ManualClock, connect: Connect, url: str) -> None:
    clock.advance(200)


@finish("expired, found at the hand-over")
def _found_expired(client: Client, clock: ManualClock, connect: Connect, url: str) -> None:
    clock.jump_wall(200)
    client.receiver("q", selector="JMSPriority = 9", demand=1)
    client.receiver("q", selector="JMSPriority = 4 and unit = 'nobody'", demand=1)
    receiver, sink = client.receiver(demand=1)
    sink.wait(1)
    assert sink.bodies == ["second"]
    receiver.settle(sink.arrivals, RELEASE)
    receiver.close(None)


@finish("dead-lettered")
def _dead_lettered(client: Client, clock: ManualClock, connect: Connect, url: str) -> None:
    receiver, arrivals = client.take(1, hand_over=True)
    receiver.settle(arrivals, Outcome(verb=Verb.DEAD_LETTER))


@finish("failed too often")
def _failed(client: Client, clock: ManualClock, connect: Connect, url: str) -> None:
    for _ in range(2):
        assert client.bodies() == ["head"]
        receiver, arrivals = client.take(1, hand_over=True)
        receiver.settle(arrivals, RETRY)
        receiver.close(None)
        client.session.flush(None)


@finish("moved")
def _moved(client: Client, clock: ManualClock, connect: Connect, url: str) -> None:
    client.admin.create_queue("elsewhere")
    client.admin.pause_consumption("q")
    client.admin.move("q", "elsewhere", "JMSType = 'head'")
    client.admin.resume_consumption("q")


@finish("deleted")
def _deleted(client: Client, clock: ManualClock, connect: Connect, url: str) -> None:
    client.admin.pause_consumption("q")
    client.admin.delete("q", "JMSType = 'head'")
    client.admin.resume_consumption("q")


@finish("accepted by an operator")
def _recovered(client: Client, clock: ManualClock, connect: Connect, url: str) -> None:
    receiver, (arrival,) = client.take(1)
    assert client.admin.recover_stuck(arrival.content.message_id or "", "accept") == 1
    receiver.close(None)


@finish("sent settled")
def _settled(client: Client, clock: ManualClock, connect: Connect, url: str) -> None:
    receiver, sink = client.receiver(demand=1, pre_settled=True)
    sink.wait(1)
    receiver.close(None)


@pytest.mark.parametrize("waits", [False, True], ids=["asked later", "a receiver waits"])
@pytest.mark.parametrize("how", FINISHES)
def test_if_34_the_next_comes_when_the_head_has_finished(
    ordered: Client, connect: Connect, url: str, clock: ManualClock, how: str, waits: bool
) -> None:
    ordered.send(one("head", expiration=clock.wall() + 100, type="head"), one("second"))
    assert ordered.bodies() == ["head"]
    if waits:  # it selects the second only, so that it waits for it while the head is at work
        _, sink = connect(url, clock).receiver(demand=1, selector="JMSType is null")
        FINISHES[how](ordered, clock, connect, url) if how != "expired, found at the hand-over" else clock.advance(200)
        sink.wait(1)
        assert sink.bodies == ["second"]
    else:
        FINISHES[how](ordered, clock, connect, url)
        until(lambda: ordered.bodies() == ["second"])
        assert ordered.shown() == [("visible", 0)]


def test_if_34_a_waiting_consumer_gets_one_after_the_other(ordered: Client) -> None:
    ordered.send(*(one(str(number)) for number in range(5)))
    receiver, sink = ordered.receiver(demand=10)
    for number in range(5):
        sink.wait(number + 1)
        assert sink.bodies == [str(each) for each in range(number + 1)]
        receiver.settle(sink.arrivals[-1:], ACCEPT)
    ordered.session.flush(None)
    assert ordered.numbers() == (0, 0)


def test_if_34_expired_heads_at_the_hand_over_do_not_strand_who_waits(ordered: Client, clock: ManualClock) -> None:
    """IF-33 with IF-34: many expired heads one behind the other, then one that lives."""
    ordered.send(*(one(str(number), expiration=clock.wall() + 5) for number in range(10)), one("alive"))
    clock.jump_wall(6)
    _, sink = ordered.receiver(demand=1)
    sink.wait(1)
    assert sink.bodies == ["alive"]
    assert ordered.stats().messages_expired == 10


def test_if_34_settled_deliveries_walk_through_a_unit(ordered: Client) -> None:
    ordered.send(*(one(str(number)) for number in range(10)))
    _, selecting = ordered.receiver(demand=1, selector="JMSType = 'last'")
    ordered.send(one("last", type="last"))
    _, sink = ordered.receiver(demand=10, pre_settled=True)
    sink.wait(10)
    selecting.wait(1)
    assert selecting.bodies == ["last"]
    assert sink.bodies == [str(number) for number in range(10)]


@pytest.mark.parametrize("how", ["released", "retried", "closed", "delayed"])
def test_if_34_a_head_that_comes_back_is_the_head_still(ordered: Client, clock: ManualClock, how: str) -> None:
    ordered.send(one("head"), one("second"))
    receiver, arrivals = ordered.take(1, hand_over=True)
    if how == "released":
        receiver.settle(arrivals, RELEASE)
    elif how == "retried":
        receiver.settle(arrivals, RETRY)
    elif how == "closed":
        ordered.session.close(None)
        ordered.session = ordered.transport.open_session(transacted=False, deadline=None)
    else:
        receiver.settle(arrivals, Outcome(verb=Verb.RETRY, delay=5.0))
        ordered.session.flush(None)
        assert ordered.bodies() == []
        assert ordered.numbers() == (1, 1)  # its redelivery delay blocks its unit
        clock.advance(6)
    until(lambda: ordered.bodies() == ["head"])


def test_if_34_an_unborn_message_does_not_block_its_unit(ordered: Client, clock: ManualClock) -> None:
    """It is no head before it would be visible."""
    ordered.send(one("unborn", delivery_time=clock.wall() + 5), one("second"))
    assert ordered.bodies() == ["second"]
    clock.advance(6)
    until(lambda: ordered.numbers() == (2, 0))
    assert ordered.bodies() == ["second"]


def test_if_34_priorities_within_a_unit_do_not_overtake_a_head(ordered: Client) -> None:
    ordered.send(one("a", priority=1), one("b", priority=9), one("other", "v", priority=5))
    assert ordered.bodies() == ["other", "a"]


def test_if_34_an_insertion_pause_and_its_end(ordered: Client, connect: Connect, url: str, clock: ManualClock) -> None:
    transacted = connect(url, clock, transacted=True)
    ordered.send(one("head"))
    transacted.send(one("second"), one("third"))
    ordered.admin.pause_insertion("q")
    transacted.commit()
    assert ordered.numbers() == (1, 2)
    receiver, arrivals = ordered.take(1, hand_over=True)
    receiver.settle(arrivals, RETRY)
    receiver.close(None)
    ordered.session.flush(None)
    assert ordered.numbers() == (0, 3)
    ordered.admin.resume_insertion("q")
    assert ordered.bodies() == ["head"]
    assert ordered.shown() == [("visible", 1), ("ordered", 0), ("ordered", 0)]


@pytest.mark.parametrize("value", [1, True, 1.5, ""])
def test_if_34_the_unit_is_a_property_of_any_kind(ordered: Client, value: Any) -> None:
    ordered.send(content("a", properties={"unit": value}), content("b", properties={"unit": value}), one("c", "other"))
    assert ordered.bodies() == ["a", "c"]


def test_if_34_a_head_that_no_selector_wants_is_reported_once(ordered: Client, clock: ManualClock, events: list[Event]) -> None:
    ordered.send(one("head", message_id="ID:head"), one("second", type="wanted"))
    _, sink = ordered.receiver(demand=1, selector="JMSType = 'wanted'")

    def blocked() -> list[dict[str, Any]]:
        return [event.fields for event in events if event.name == "unit_blocked"]

    clock.advance(31)
    until(lambda: len(blocked()) == 1)
    assert (blocked()[0]["unit"], blocked()[0]["message_id"], blocked()[0]["queue"]) == ("u", "ID:head", "q")
    for _ in range(3):
        clock.advance(31)
        ordered.session.flush(None)
    assert len(blocked()) == 1
    receiver, arrivals = ordered.take(1)
    receiver.settle(arrivals, ACCEPT)
    sink.wait(1)


def test_if_34_no_report_where_nobody_waits_behind_or_consumption_is_paused(
    ordered: Client, clock: ManualClock, events: list[Event]
) -> None:
    ordered.send(one("alone"))
    ordered.receiver(demand=1, selector="JMSType = 'wanted'")
    clock.advance(31)
    ordered.session.flush(None)
    ordered.admin.pause_consumption("q")
    ordered.send(one("behind"))
    clock.advance(31)
    ordered.session.flush(None)
    assert [event.name for event in events if event.name == "unit_blocked"] == []


def test_if_34_taken_from_the_middle_the_order_stays(ordered: Client) -> None:
    ordered.send(*(one(str(number), message_id=f"ID:{number}") for number in range(5)))
    ordered.admin.pause_consumption("q")
    assert ordered.admin.delete("q", message_ids=["ID:2", "ID:0"]).done == ("ID:0", "ID:2")
    ordered.admin.resume_consumption("q")
    receiver, sink = ordered.receiver(demand=5)
    for number in range(3):
        sink.wait(number + 1)
        receiver.settle(sink.arrivals[-1:], ACCEPT)
    assert sink.bodies == ["1", "3", "4"]


def test_if_34_drained_at_once(ordered: Client) -> None:
    ordered.send(*(one(str(number)) for number in range(5)))
    ordered.admin.pause_consumption("q")
    assert len(ordered.admin.drain("q").done) == 5
    assert ordered.numbers() == (0, 0)
    ordered.send(one("new"))
    assert ordered.bodies() == ["new"]


def test_if_34_after_a_restart(connect: Connect, tmp_path: Any) -> None:
    url = f"embedded:?store={tmp_path / 'shop.db'}"
    client = connect(url)
    client.admin.create_queue("q", unit_of_order="unit")
    client.send(one("a"), one("b"), one("c", "v"))
    client.transport.close(None)
    again = connect(url)
    assert again.bodies() == ["a", "c"]
    receiver, sink = again.receiver(demand=5)
    sink.wait(2)
    receiver.settle(sink.arrivals, ACCEPT)
    sink.wait(3)
    assert sink.bodies == ["a", "c", "b"]


def test_if_34_sessions_of_the_public_api_share_a_unit(client: Client, url: str) -> None:
    """Two consumers with windows: a unit is at one of them at a time, in order."""
    client.admin.create_queue("q", unit_of_order="unit")
    number = 40
    client.send(*(one(f"{unit}{each:02}", unit) for each in range(number) for unit in "ab"))
    heard: list[str] = []
    with connect_public(url) as connection:
        sessions = [connection.create_session() for _ in range(2)]
        for session in sessions:
            session.create_consumer("q", prefetch=5, listener=lambda message: heard.append(message.text or ""))
        until(lambda: len(heard) == 2 * number)
        for session in sessions:
            session.close()
    for unit in "ab":
        assert [body for body in heard if body[0] == unit] == [f"{unit}{each:02}" for each in range(number)]
    assert client.numbers() == (0, 0)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_if_34_a_transaction_keeps_the_head_until_it_ends(client: Client, url: str, end: str) -> None:
    client.admin.create_queue("q", unit_of_order="unit")
    client.send(one("head"), one("second"))
    with connect_public(url) as connection, connection.create_session(AcknowledgeMode.TRANSACTED) as session:
        consumer = session.create_consumer("q")
        first = consumer.receive(5)
        assert first is not None
        assert first.text == "head"
        assert consumer.receive(0.05) is None
        getattr(session, end)()
        again = consumer.receive(5)
        assert again is not None
        assert (again.text, again.delivery_count) == (("second", 1) if end == "commit" else ("head", 2))
        session.commit()


def test_if_34_units_that_are_no_longer_wanted_end_with_their_messages(ordered: Client) -> None:
    """What waits behind a head when the setting goes still comes, in order, and without being asked for again."""
    ordered.send(*(one(str(number)) for number in range(3)))
    receiver, sink = ordered.receiver(demand=10)
    sink.wait(1)
    ordered.admin.create_queue("q")
    ordered.send(one("new"))
    sink.wait(2)
    assert sink.bodies == ["0", "new"]
    for number in (1, 2):
        receiver.accept(sink.arrivals[-1] if number == 2 else sink.arrivals[0])
        sink.wait(number + 2)
    assert sink.bodies == ["0", "new", "1", "2"]
    ordered.admin.create_queue("q", unit_of_order="unit")
    ordered.send(one("x"), one("y"))
    receiver.accept(sink.arrivals[-1])  # the new setting knows the old head still
    sink.wait(5)
    assert sink.bodies[-1] == "x"
