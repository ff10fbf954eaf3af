"""TR-54: a history that forgets before a message may come for the last time is told of, with the numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import Worker, connect
from jmsclient.errors import ConfigurationError
from jmsclient.events import Event
from jmsclient.history.retention import needed_history_ttl, warn_of_short_history_ttl
from jmsclient.options import TriggerOptions
from jmsclient.testing import ScriptedBackend

NUMBERS: dict[str, Any] = {
    "lease": 60.0,
    "max_deliveries": 100,
    "redelivery_delay": 5.0,
    "retry_budget": 30.0,
    "max_outage": 3600.0,
}


def test_tr54_the_sum() -> None:
    assert needed_history_ttl(**NUMBERS) == 60.0 + 100 * (5.0 + 30.0) + 3600.0


@pytest.mark.parametrize(("history_ttl", "warns"), [(7160.0, False), (7159.0, True), (86400.0, False)])
def test_tr54_the_warning_names_the_numbers(history_ttl: float, warns: bool, events: list[Event]) -> None:
    warn_of_short_history_ttl("t", history_ttl, **NUMBERS)
    assert [event.name for event in events] == ["history_ttl_short"] * warns
    if warns:
        (event,) = events
        assert event.level == logging.WARNING
        assert (event.fields["trigger"], event.fields["history_ttl"], event.fields["needed"]) == ("t", 7159.0, 7160.0)
        for number in ("7159", "7160", "lease 60", "max_deliveries 100", "redelivery delay 5", "retries 30", "max_outage 3600"):
            assert number in event.text


CASES: dict[str, tuple[dict[str, Any], int]] = {
    "the defaults are long enough": ({}, 0),
    "a short history": ({"history_ttl": 3600.0}, 1),
    "a short history of a provider that is never away": ({"history_ttl": 3600.0, "options": TriggerOptions(max_outage=0.0)}, 0),
    "many retries": ({"max_retries": 100, "retry_interval": 10.0}, 1),
    "no history": ({"history": None, "history_ttl": 100.0}, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_tr54_a_trigger_is_checked_when_it_starts(name: str, events: list[Event]) -> None:
    settings, warnings = CASES[name]
    with ScriptedBackend() as backend:
        worker = Worker(backend.url, history="memory:")
        worker.trigger("queue:///orders", **settings)(takes_a_body)
        with worker:
            pass
    assert [event.name for event in events].count("history_ttl_short") == warnings


def test_tr54_an_embedded_queue_says_how_long_a_message_waits_before_it_comes_again(events: list[Event]) -> None:
    with connect("embedded:tr54") as connection:
        connection.administration.create_queue("orders", redelivery_delay=600.0)
        worker = Worker("embedded:tr54", history="memory:")
        worker.trigger("queue:///orders", max_deliveries=200)(takes_a_body)
        with worker:
            pass
    (event,) = [event for event in events if event.name == "history_ttl_short"]
    assert event.fields["needed"] == 60.0 + 200 * 600.0 + 3600.0


def takes_a_body(body: str) -> None:
    """Does nothing."""


@pytest.mark.parametrize(
    "wrong", [lambda: TriggerOptions(max_outage=-1.0), lambda: TriggerOptions(strict="yes")], ids=["max_outage", "strict"]
)
def test_what_the_options_may_be(wrong: Callable[[], TriggerOptions]) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        wrong()
