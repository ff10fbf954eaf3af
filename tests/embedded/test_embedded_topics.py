"""Topics: who gets a copy, durable and shared subscriptions (Jakarta Messaging 4.11, 8.3)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from jmsclient.destination import Topic
from jmsclient.errors import (
    IllegalStateError,
    InvalidDestinationError,
)
from jmsclient.transport.contract import ACCEPT
from jmsclient_embedded.invariants import check
from jmsclient_embedded.receiver import EmbeddedReceiver

from .conftest import Client, Connect, RecordingSink, content

T = "topic:///t"


def subscribe(client: Client, kind: str, name: str | None = "s", *, demand: int = 0, **spec: Any) -> Any:
    return client.receiver(T, kind=kind, name=None if kind == "topic" else name, demand=demand, **spec)


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


# -- who gets a copy -----------------------------------------------------------------------------------------------------


def test_every_subscription_gets_a_copy_and_nobody_what_was_sent_before(client: Client) -> None:
    client.send("before", queue=T)
    sinks = [subscribe(client, "topic", demand=5)[1] for _ in range(2)]
    sinks += [subscribe(client, kind, kind, demand=5)[1] for kind in ("durable", "shared", "shared_durable")]
    client.send("a", "b", queue=T)
    for sink in sinks:
        sink.wait(2)
        assert sink.bodies == ["a", "b"]
    found = client.stats(T)
    assert (found.messages_pending, found.messages_received, found.consumers_current) == (10, 10, 5)


def test_a_subscription_that_is_not_durable_ends_with_its_receiver(client: Client) -> None:
    receiver, _ = subscribe(client, "topic")
    client.send("a", queue=T)
    receiver.close(None)
    client.send("b", queue=T)
    assert client.numbers(T) == (0, 0)
    assert len(client.broker.granting.lines) == 0
    check(client.broker)


def test_a_durable_subscription_collects_while_nobody_consumes(connect: Connect) -> None:
    client = connect(client_id="c1")
    receiver, _ = subscribe(client, "durable")
    receiver.close(None)
    client.send("a", "b", queue=T)
    assert client.numbers(T) == (2, 0)
    receiver, sink = subscribe(client, "durable")
    assert take(sink, receiver, 2) == ["a", "b"]


def test_durable_subscriptions_are_told_apart_by_client_id_and_name(connect: Connect) -> None:
    first, second = connect(client_id="c1"), connect(client_id="c2")
    for client, name in ((first, "s"), (first, "s2"), (second, "s")):
        subscribe(client, "durable", name)[0].close(None)
    first.send("a", queue=T)
    assert first.numbers(T) == (3, 0)
    first.session.unsubscribe("s", None)
    assert first.numbers(T) == (2, 0)
    with pytest.raises(InvalidDestinationError):
        first.session.unsubscribe("s", None)
    second.session.unsubscribe("s", None)


@pytest.mark.parametrize("kind", ["shared", "shared_durable"])
def test_a_shared_subscription_gives_each_message_to_one_of_its_consumers(client: Client, connect: Connect, kind: str) -> None:
    other = connect()
    first, one = subscribe(client, kind, demand=2)
    second, two = subscribe(other, kind, demand=2)
    client.send("a", "b", "c", "d", queue=T)
    one.wait(2)
    two.wait(2)
    assert sorted(map(str, one.bodies + two.bodies)) == ["a", "b", "c", "d"]
    first.close(None)
    client.send("e", queue=T)
    client.session.close(None)
    second.request(3)
    two.wait(5)
    assert set(map(str, two.bodies)) == {"a", "b", "c", "d", "e"}


def test_a_shared_subscription_that_is_not_durable_ends_with_its_last_consumer(client: Client) -> None:
    first, _ = subscribe(client, "shared")
    second, _ = subscribe(client, "shared")
    first.close(None)
    client.send("a", queue=T)
    assert client.numbers(T) == (1, 0)
    second.close(None)
    assert client.numbers(T) == (0, 0)


@pytest.mark.parametrize("client_id", [None, "c1"])
def test_no_local_keeps_a_connections_own_messages_away(connect: Connect, client_id: str | None) -> None:
    own, other = connect(client_id=client_id), connect()
    _, sink = subscribe(own, "topic", no_local=True, demand=5)
    durable, kept = subscribe(own, "durable", no_local=True, demand=5) if client_id else (None, None)
    own.send("mine", queue=T)
    session = own.transport.open_session(transacted=False, deadline=None)
    session.open_sender(Topic("t"), None).send([content("mine too")], room_deadline=None, confirm_timeout=5)
    other.send("theirs", queue=T)
    sink.wait(1)
    assert sink.bodies == ["theirs"]
    if durable is not None and kept is not None:
        kept.wait(1)
        assert kept.bodies == ["theirs"]


def test_no_local_of_a_durable_subscription_outlives_its_connection(connect: Connect, file: Path) -> None:
    """It is the client identifier that counts then."""
    url = f"embedded:?store={file}"
    own = connect(url, client_id="c1")
    subscribe(own, "durable", no_local=True)[0].close(None)
    own.transport.close(None)
    own, other = connect(url, client_id="c1"), connect(url)
    own.send("mine", queue=T)
    other.send("theirs", queue=T)
    receiver, sink = subscribe(own, "durable", no_local=True)
    assert take(sink, receiver, 1) == ["theirs"]
    assert own.numbers(T) == (0, 0)


def test_selectors_on_subscriptions(client: Client) -> None:
    red, one = subscribe(client, "topic", selector="colour = 'red'", demand=5)
    durable, two = subscribe(client, "durable", selector="colour = 'blue'", demand=5)
    client.send(*(content(colour, properties={"colour": colour}) for colour in ("red", "blue", "green")), queue=T)
    one.wait(1)
    two.wait(1)
    assert (one.bodies, two.bodies) == (["red"], ["blue"])
    assert client.stats(T).messages_received == 2
    red.settle(one.arrivals, ACCEPT)
    durable.settle(two.arrivals, ACCEPT)


# -- rules of durable subscriptions --------------------------------------------------------------------------------------


def test_a_durable_subscription_has_one_consumer_at_a_time(connect: Connect) -> None:
    client = connect(client_id="c1")
    subscribe(client, "durable")
    with pytest.raises(IllegalStateError, match="has a consumer"):
        subscribe(client, "durable")


@pytest.mark.parametrize("change", ["selector", "topic", "no_local"])
def test_with_another_selector_topic_or_no_local_it_is_a_new_one(connect: Connect, change: str) -> None:
    """JM 4.11.3: as if it had been unsubscribed."""
    client = connect(client_id="c1")
    subscribe(client, "durable")[0].close(None)
    client.send("old", queue=T)
    if change == "topic":
        client.receiver("topic:///u", kind="durable", name="s")[0].close(None)
    else:
        spec: dict[str, Any] = {"selector": "1 = 1"} if change == "selector" else {"no_local": True}
        subscribe(client, "durable", **spec)[0].close(None)
    assert client.numbers(T) == (0, 0)
    client.send("new", queue=T)
    assert client.numbers(T)[0] == (1 if change == "selector" else 0)
    check(client.broker)


def test_shared_and_unshared_durable_ones_share_no_name(connect: Connect) -> None:
    client = connect(client_id="c1")
    subscribe(client, "durable")[0].close(None)
    with pytest.raises(IllegalStateError):
        subscribe(client, "shared_durable")
    client.session.unsubscribe("s", None)
    subscribe(client, "shared_durable")[0].close(None)
    with pytest.raises(IllegalStateError):
        subscribe(client, "durable")


def test_a_shared_one_in_use_is_not_changed(client: Client) -> None:
    subscribe(client, "shared", selector="a = 1")
    with pytest.raises(IllegalStateError):
        subscribe(client, "shared", selector="a = 2")
    subscribe(client, "shared", selector="a = 1")


def test_unsubscribe_rules(connect: Connect) -> None:
    client = connect(client_id="c1")
    with pytest.raises(InvalidDestinationError):
        client.session.unsubscribe("s", None)
    receiver, sink = subscribe(client, "durable", demand=1)
    with pytest.raises(IllegalStateError, match="consumer"):
        client.session.unsubscribe("s", None)
    client.send("a", "b", queue=T)
    sink.wait(1)
    receiver.close(None)
    with pytest.raises(IllegalStateError, match="not acknowledged"):
        client.session.unsubscribe("s", None)
    receiver.settle(sink.arrivals, ACCEPT)
    client.session.unsubscribe("s", None)
    assert client.numbers(T) == (0, 0)
    client.send("c", queue=T)
    assert client.numbers(T) == (0, 0)


@pytest.mark.parametrize("kind", ["durable", "shared", "shared_durable"])
@pytest.mark.parametrize("name", [None, "", "  "])
def test_a_name_is_needed(client: Client, kind: str, name: str | None) -> None:
    with pytest.raises(InvalidDestinationError):
        subscribe(client, kind, name)


def test_a_client_id_belongs_to_one_open_connection(connect: Connect) -> None:
    first = connect(client_id="c1")
    with pytest.raises(IllegalStateError, match="in use"):
        connect(client_id="c1")
    first.transport.close(None)
    second = connect(client_id="c1")
    second.transport.lose()
    connect(client_id="c1")


# -- with a store --------------------------------------------------------------------------------------------------------


def test_durable_messages_and_subscriptions_outlive_the_broker(connect: Connect, file: Path) -> None:
    url = f"embedded:?store={file}"
    client = connect(url, client_id="c1")
    client.admin.create_topic("t", redelivery_limit=5)
    subscribe(client, "durable", selector="a is null")[0].close(None)
    subscribe(client, "shared_durable", "shared")[0].close(None)
    plain, _ = subscribe(client, "topic")
    client.send("p", content("n", persistent=False), content("selected away", properties={"a": 1}), queue=T)
    plain.close(None)
    client.transport.close(None)

    again = connect(url, client_id="c1")
    assert [one.address for one in again.admin.destinations()] == [T]
    assert again.broker.topics.topics["t"].settings.redelivery_limit == 5
    receiver, sink = subscribe(again, "durable", selector="a is null")
    assert take(sink, receiver, 1) == ["p"]
    receiver, sink = subscribe(again, "shared_durable", "shared")
    assert take(sink, receiver, 2) == ["p", "selected away"]
    for name in ("s", "shared"):
        client = again
        client.session.close(None)
        client.session = client.transport.open_session(transacted=False, deadline=None)
        client.session.unsubscribe(name, None)
    again.transport.close(None)
    last = connect(url, client_id="c1")
    with pytest.raises(InvalidDestinationError):
        last.session.unsubscribe("s", None)


SUBSCRIBER = """
    import os, signal, sys
    sys.path[:0] = {path!r}
    from jmsclient import connect
    with connect("embedded:?store={file}", client_id="c1") as connection:
        session = connection.create_session()
        session.create_durable_consumer("topic:///t", "s").close()
        session.create_producer("topic:///t").send_many(["a", "b", "c"])
        consumer = session.create_durable_consumer("topic:///t", "s", prefetch=1)
        assert consumer.receive(5).text == "a"
        session.transport_session.flush(None)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_durable_messages_survive_kill_9(connect: Connect, file: Path) -> None:
    program = textwrap.dedent(SUBSCRIBER).format(path=sys.path, file=file)
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, env={**os.environ}, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    client = connect(f"embedded:?store={file}", client_id="c1")
    receiver, sink = subscribe(client, "durable")
    assert take(sink, receiver, 2) == ["b", "c"]
