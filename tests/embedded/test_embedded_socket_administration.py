"""Administration through the socket of a store: the same answers, the same errors (IF-15, IF-35)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jmsclient.destination import Queue
from jmsclient.errors import (
    ConfigurationError,
    DestinationPausedError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
)
from jmsclient.transport.contract import RETRY, Outcome, Verb

from .attached import Attached, holding
from .conftest import Client


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def holder(store: Path) -> Iterator[Client]:
    with holding(store) as client:
        yield client


def test_administration_gives_what_the_holders_gives(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("a", "b", priority=7)
    there, here = attached.transport.administration(), holder.admin
    assert there.statistics("q") == here.statistics("q")
    assert there.destinations() == here.destinations()
    assert [one.message_id for one in there.messages("q", state="visible")] == [one.message_id for one in here.messages("q")]
    assert there.pause_consumption(Queue("q")) is True
    assert there.pause_consumption("q") is False
    there.create_queue("rest", messages_maximum=5, default_read_ahead="yes", redelivery_delay_maximum=2.0)
    ids = [one.message_id for one in here.messages("q")]
    result = there.move("q", "rest", message_ids=[str(ids[0]), "ID:unknown"])
    assert result.done == (ids[0],)
    assert result.refused == (("ID:unknown", "not there"),)
    assert there.drain("q").done == (ids[1],)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        pytest.param(lambda there: there.statistics("nowhere"), InvalidDestinationError, id="missing"),
        pytest.param(lambda there: there.statistics("topic:nowhere"), InvalidDestinationError, id="malformed"),
        pytest.param(lambda there: there.drain("q"), IllegalStateError, id="wrong state"),
        pytest.param(lambda there: there.messages("q", "n >"), InvalidSelectorError, id="selector"),
        pytest.param(lambda there: there.create_queue("x", messages_maximum=-7), ConfigurationError, id="value"),
        pytest.param(lambda there: there.statistics({"q"}), ConfigurationError, id="no destination at all"),
        pytest.param(lambda there: there.statistics(), TypeError, id="too few"),
        pytest.param(lambda there: there.create_queue("x", nonsense=1), TypeError, id="unknown"),
        pytest.param(lambda there: there.recover_stuck("nobody"), InvalidDestinationError, id="nobody"),
    ],
)
def test_administration_raises_what_the_holders_raises(holder: Client, store: Path, call: object, error: type[Exception]) -> None:
    attached = Attached(store)
    attached.send("a")
    with pytest.raises(error) as caught:
        call(attached.transport.administration())  # type: ignore[operator]
    assert type(caught.value) is error
    assert holder.shown() == [("visible", 0)]


def test_a_paused_destination_refuses_an_attached_send(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("a")
    attached.transport.administration().pause_production("q")
    with pytest.raises(DestinationPausedError):
        attached.send("b")


def test_a_dead_letter_is_counted_where_it_was_seen(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("seen", "unseen")
    receiver, arrivals = attached.take(2)
    receiver.handing_over(arrivals[:1])
    receiver.settle(arrivals, Outcome(verb=Verb.DEAD_LETTER, reason="why", properties={"n": 5}))
    attached.session.flush(None)
    dead = attached.take(2, "DLQ")[1]
    assert [one.content.properties()["n"] for one in dead] == [5, 5]


def test_a_retry_is_counted(holder: Client, store: Path) -> None:
    attached = Attached(store)
    attached.send("a")
    receiver, arrivals = attached.take(1)
    receiver.handing_over(arrivals)
    receiver.settle(arrivals, RETRY)
    attached.session.flush(None)
    assert holder.shown() == [("visible", 1)]
