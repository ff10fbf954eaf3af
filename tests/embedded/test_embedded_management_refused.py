"""Administration of a missing destination, in a wrong state, with an impossible value: a named error, nothing changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient.errors import (
    ConfigurationError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsClientError,
)
from jmsclient.transport.contract import Outcome, Verb
from jmsclient_embedded.administration import EmbeddedAdministration

from .conftest import Client, Connect, content


def named(body: str, **settings: Any) -> Any:
    return content(body, message_id=f"ID:{body}", **settings)


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
