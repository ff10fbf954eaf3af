"""A trigger with a selector handles what it selects; a broken selector is refused before anything runs, and names its trigger."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jmsclient import Message, Worker
from jmsclient.errors import InvalidSelectorError
from jmsclient.testing import TestBroker


def test_it_handles_only_what_it_selects_and_the_rest_waits(until: Callable[..., None]) -> None:
    worker = Worker()
    handled: list[object] = []

    @worker.trigger("orders", selector="amount > 100")
    def large(message: Message) -> None:
        handled.append(message.properties["amount"])

    @worker.trigger("orders", name="small", selector="NOT amount > 100")
    def small(message: Message) -> None:
        handled.append(f"small {message.properties['amount']}")

    with TestBroker(worker) as broker:
        for amount in (50, 150, 70, 170):
            broker.send("orders", Message("", properties={"amount": amount}))
        broker.send("orders", Message("", properties={"weight": 1}))
        until(lambda: len(handled) == 4)
        assert [message.properties for message in broker.messages("orders")] == [{"weight": 1}]
    assert sorted(handled, key=str) == [150, 170, "small 50", "small 70"]


def test_c09_a_broken_selector_names_its_trigger() -> None:
    worker = Worker()

    @worker.trigger("orders", name="billing", selector="amount >> 100")
    def large(message: Message) -> None:
        raise AssertionError("never runs")

    said = "trigger 'billing': selector, column 9: found '>', expected a value"
    with pytest.raises(InvalidSelectorError, match=said), TestBroker(worker):
        pass
