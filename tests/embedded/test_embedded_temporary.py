"""Temporary destinations (Jakarta Messaging 4.4.4): whose they are, and that they go with their connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jmsclient import connect as connect_public
from jmsclient.destination import Destination, Queue
from jmsclient.errors import (
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
)
from jmsclient.transport.contract import ACCEPT
from jmsclient_embedded.invariants import check
from jmsclient_embedded.receiver import EmbeddedReceiver

from .conftest import Background, Client, Connect, RecordingSink, in_thread, until


def take(sink: RecordingSink, receiver: EmbeddedReceiver, number: int) -> list[object]:
    """Have `number` arrive and acknowledge them."""
    start = len(sink.arrivals)
    receiver.request(number)
    arrivals = sink.wait(start + number)[start:]
    receiver.settle(arrivals, ACCEPT)
    return [one.content.body() for one in arrivals]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


# -- temporary destinations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_only_its_connection_consumes_from_a_temporary_destination(client: Client, connect: Connect, kind: Any) -> None:
    place = client.session.create_temporary(kind, None)
    other = connect()
    with pytest.raises(InvalidDestinationError):
        other.receiver(place, kind=kind)
    receiver, sink = client.receiver(place, kind=kind, demand=1)
    other.send("a", queue=place)
    sink.wait(1)
    receiver.settle(sink.arrivals, ACCEPT)
    with pytest.raises(IllegalStateError):
        client.session.delete_temporary(place, None)
    receiver.close(None)
    client.session.flush(None)
    client.session.delete_temporary(place, None)
    client.session.delete_temporary(place, None)
    for call in (lambda: other.send("b", queue=place), lambda: client.receiver(place, kind=kind)):
        with pytest.raises(InvalidDestinationError):
            call()
    assert client.admin.destinations() == []


@pytest.mark.parametrize("kind", ["durable", "shared_durable"])
def test_a_temporary_topic_has_no_durable_subscriptions(client: Client, kind: str) -> None:
    place = client.session.create_temporary("topic", None)
    with pytest.raises(InvalidDestinationError):
        client.receiver(place, kind=kind, name="s")


@pytest.mark.parametrize("how", ["close", "lose"])
@pytest.mark.parametrize("state", ["waiting", "uncommitted", "received", "blocked"])
def test_a_temporary_destination_is_gone_with_its_connection(client: Client, connect: Connect, how: str, state: str) -> None:
    """Whatever others do with it at that moment."""
    owner = connect()
    place: Destination = owner.session.create_temporary("queue", None)
    tx = connect(transacted=True)
    blocked = None
    if state == "waiting":
        client.send("a", queue=place)
    elif state == "uncommitted":
        tx.send("a", queue=place)
    elif state == "received":
        client.send("a", queue=place)
        owner.take(1, place, hand_over=True)
    else:
        owner.admin.create_quota("one", messages_maximum=1)
        owner.broker.steps.ask(lambda: _bound(owner, place))
        client.send("a", queue=place)
        blocked = Background(lambda: client.send("b", queue=place))
        until(lambda: owner.admin.statistics(place).blocked_senders == 1)
    in_thread(lambda: owner.transport.close(None) if how == "close" else owner.transport.lose())
    if how == "lose":
        assert owner.listener.heard.wait(30)
    if blocked is not None:
        with pytest.raises(ResourceAllocationError):
            blocked.result()
    with pytest.raises(InvalidDestinationError):
        client.send("late", queue=place)
    tx.commit()
    check(client.broker)
    assert place not in client.admin.destinations()


def _bound(owner: Client, place: Destination) -> None:
    catalogue = owner.broker.catalogue
    line = catalogue.existing(place)
    settings = replace(line.settings, quota="one")
    catalogue._give_settings(line, [line.queue], settings, catalogue.quotas["one"])  # type: ignore[union-attr]
    line.refresh()  # type: ignore[union-attr]


def test_a_temporary_queue_never_touches_the_disk(connect: Connect, file: Path) -> None:
    url = f"embedded:?store={file}"
    client = connect(url)
    place = client.session.create_temporary("queue", None)
    client.send("a", queue=place)
    keeper = connect(url)
    client.transport.close(None)
    keeper.transport.close(None)
    again = connect(url)
    assert again.admin.destinations() == []


def test_nobody_makes_a_queue_of_a_temporary_name(client: Client) -> None:
    name = client.session.create_temporary("queue", None).name + "x"
    calls: list[Callable[[], object]] = [
        lambda: client.send("a", queue=Queue(name)),
        lambda: client.receiver(Queue(name)),
        lambda: client.admin.create_queue(name),
    ]
    for call in calls:
        with pytest.raises(InvalidDestinationError):
            call()


def test_request_and_reply_through_the_public_api(url: str, client: Client) -> None:
    with connect_public(url) as asking, connect_public(url) as answering:
        with asking.create_session() as session, answering.create_session() as service:
            mine = session.create_temporary_queue()
            session.create_producer("requests").send("what?", reply_to=mine)
            request = service.create_consumer("requests").receive(5)
            assert request is not None
            assert request.reply_to is not None
            service.create_producer(request.reply_to).send("that!")
            answer = session.create_consumer(mine).receive(5)
            assert answer is not None
            assert answer.text == "that!"
        assert len(client.admin.destinations()) == 2
    until(lambda: [one.name for one in client.admin.destinations()] == ["requests"])
