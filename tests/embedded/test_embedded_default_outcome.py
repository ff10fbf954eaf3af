"""Deliveries that are sent settled, and what becomes of them by the consumer's default outcome (DO-1, DO-3, IF-25)."""

from __future__ import annotations

from typing import Any

import pytest

from jmsclient import connect as connect_public
from jmsclient.errors import InvalidFieldError, NotImplementedOutcomeError
from jmsclient.transport.contract import ACCEPT, RETRY

from .conftest import Client, Connect, until

REMOVED, BACK, COUNTED = "removed", "back, uncounted", "back, counted"
TABLE: list[tuple[str | None, object]] = [
    (None, REMOVED),
    ("accepted", REMOVED),
    ("amqp:accepted:list", REMOVED),
    ("rejected", BACK),
    ("amqp:rejected:list", BACK),
    ("released", BACK),
    ("amqp:released:list", BACK),
    ("modified", BACK),
    ("amqp:modified:list", BACK),
    ("modified(failed)", COUNTED),
    ("modified(undeliverable-here)", BACK),
    ("modified(failed, undeliverable-here)", COUNTED),
    ("declared", NotImplementedOutcomeError),
    ("amqp:declared:list", NotImplementedOutcomeError),
    ("received", InvalidFieldError),
    ("amqp:received:list", InvalidFieldError),
    ("transactional-state", InvalidFieldError),
    ("amqp:transactional-state:list", InvalidFieldError),
    ("nonsense", InvalidFieldError),
    ("modified(perhaps)", InvalidFieldError),
    ("modified(failed", InvalidFieldError),
    ("accepted(failed)", InvalidFieldError),
    ("", InvalidFieldError),
]
"""DO-3: every outcome symbol of AMQP 1.0, delivery states that are none, and unknown ones."""


@pytest.mark.parametrize("selector", [None, "JMSPriority = 4"])
@pytest.mark.parametrize(("symbol", "expected"), TABLE)
def test_do_1_do_3_every_symbol(client: Client, connect: Connect, symbol: str | None, expected: Any, selector: str | None) -> None:
    client.send("a", "b")
    fails = isinstance(expected, type)
    receiver, sink = client.receiver(demand=10, pre_settled=True, default_outcome=symbol, may_close=fails, selector=selector)
    if fails:
        until(lambda: sink.errors)
        assert [type(error) for error in sink.errors] == [expected]
        assert sink.arrivals == []
        assert client.shown() == [("visible", 0)] * 2
        assert client.stats().consumers_current == 0
        receiver.request(5)  # dead: nothing comes, and it is not told again
        client.session.flush(None)
        assert client.shown() == [("visible", 0)] * 2
        assert len(sink.errors) == 1
    else:
        sink.wait(2)
        assert sink.bodies == ["a", "b"]  # each once, although it went back
        assert all(arrival.settled for arrival in sink.arrivals)
        left = {REMOVED: [], BACK: [("visible", 0)] * 2, COUNTED: [("visible", 1)] * 2}[expected]
        assert client.shown() == left
        assert client.stats().messages_acknowledged == (2 if expected == REMOVED else 0)
    found = client.stats()
    assert found.messages_pending == 0
    other = connect()
    if not fails and expected == REMOVED:
        assert other.bodies() == []
    else:
        _, theirs = other.receiver(demand=5)
        theirs.wait(2)
        assert [arrival.delivery_count for arrival in theirs.arrivals] == ([2, 2] if expected == COUNTED else [1, 1])


@pytest.mark.parametrize(("symbol", "expected"), TABLE)
def test_do_1_without_pre_settled_it_means_nothing(client: Client, symbol: str | None, expected: Any) -> None:
    client.send("a")
    receiver, sink = client.receiver(demand=1, default_outcome=symbol)
    sink.wait(1)
    assert client.shown() == [("receive", 0)]
    receiver.settle(sink.arrivals, ACCEPT)
    client.session.flush(None)
    assert client.numbers() == (0, 0)


def test_do_1_a_counted_one_reaches_the_limit(client: Client) -> None:
    """T14: the redelivery limit is checked."""
    client.admin.create_queue("q", redelivery_limit=0)
    client.send("a")
    _, sink = client.receiver(demand=1, pre_settled=True, default_outcome="modified(failed)")
    sink.wait(1)
    assert client.bodies("DLQ") == ["a"]
    assert client.numbers() == (0, 0)


def test_do_1_what_went_back_goes_to_another_consumer_that_waits(client: Client, connect: Connect) -> None:
    _, first = client.receiver(demand=10, pre_settled=True, default_outcome="released")
    other = connect()
    receiver, second = other.receiver(demand=10)
    client.send("a", "b", "c", "d")
    second.wait(4)
    assert sorted(map(str, second.bodies)) == ["a", "b", "c", "d"]
    assert len(first.bodies) == len(set(map(str, first.bodies)))
    receiver.settle(second.arrivals, ACCEPT)
    other.session.flush(None)
    assert client.numbers() == (0, 0)


def test_do_1_a_refused_consumer_holds_nobody_up(client: Client, connect: Connect) -> None:
    """Nothing stays in `receive`: the message goes to whoever else waits."""
    _, waiting = connect().receiver(demand=1)
    _, refused = client.receiver(demand=10, pre_settled=True, default_outcome="received", may_close=True)
    client.send("a", "b", "c")
    until(lambda: refused.errors)
    waiting.wait(1)
    assert sorted(state for state, _ in client.shown()) == ["receive", "visible", "visible"]


def test_do_1_a_consumer_that_asks_again_while_it_is_closed_hears_of_it_once(client: Client) -> None:
    client.send("a", "b")
    receiver, sink = client.receiver(pre_settled=True, default_outcome="declared", may_close=True)
    granting = client.broker.granting
    client.broker.steps.ask(lambda: [granting.request(receiver.outlet, 1) for _ in range(3)])
    until(lambda: sink.errors)
    client.session.flush(None)
    assert len(sink.errors) == 1
    assert client.shown() == [("visible", 0)] * 2


def test_do_1_settled_deliveries_are_given_back_by_nobody(client: Client) -> None:
    """IF-25: no disposition for them; the session's end changes nothing."""
    client.send("a", "b")
    receiver, sink = client.receiver(demand=2, pre_settled=True, default_outcome="released")
    sink.wait(2)
    receiver.settle(sink.arrivals, RETRY)
    client.session.close(None)
    assert client.shown() == [("visible", 0)] * 2


def test_do_1_in_the_store(connect: Connect, tmp_path: Any) -> None:
    url = f"embedded:?store={tmp_path / 'shop.db'}"
    for symbol, left in (("accepted", []), ("released", [("visible", 0)]), ("modified(failed)", [("visible", 1)])):
        client = connect(url)
        client.send("a", queue=str(symbol))
        _, sink = client.receiver(str(symbol), demand=1, pre_settled=True, default_outcome=symbol)
        sink.wait(1)
        client.transport.close(None)
        client = connect(url)
        assert (client.shown(str(symbol)) if left else client.bodies(str(symbol))) == left
        client.transport.close(None)


@pytest.mark.parametrize(("symbol", "error"), [("declared", NotImplementedOutcomeError), ("received", InvalidFieldError)])
def test_do_1_through_the_public_api_the_consumer_says_why(client: Client, url: str, symbol: str, error: type[Exception]) -> None:
    client.send("a")
    with connect_public(url) as connection, connection.create_session() as session:
        consumer = session.create_consumer("q", at_most_once=True, default_outcome=symbol)
        with pytest.raises(error):
            consumer.receive(5)
        other = session.create_consumer("q")
        message = other.receive(5)
        assert message is not None
        assert message.delivery_count == 1
    assert client.numbers() == (0, 0)


@pytest.mark.parametrize(("symbol", "left"), [("accepted", 0), ("released", 1), ("modified(failed)", 1)])
def test_do_1_through_the_public_api(client: Client, url: str, symbol: str, left: int) -> None:
    client.send("a")
    with connect_public(url) as connection, connection.create_session() as session:
        message = session.create_consumer("q", at_most_once=True, default_outcome=symbol).receive(5)
        assert message is not None
        assert message.text == "a"
    assert client.numbers() == (left, 0)


@pytest.mark.parametrize(("symbol", "left"), [("accepted", 0), ("released", 1), ("modified(failed)", 1), ("declared", 1)])
def test_do_1_on_a_subscription(client: Client, symbol: str, left: int) -> None:
    client.receiver("topic:///t", kind="durable", name="s")[0].close(None)
    client.send("a", queue="topic:///t")
    _, sink = client.receiver(
        "topic:///t", kind="durable", name="s", demand=2, pre_settled=True, default_outcome=symbol, may_close=symbol == "declared"
    )
    if symbol == "declared":
        until(lambda: sink.errors)
    else:
        sink.wait(1)
    assert client.numbers("topic:///t") == (left, 0)
