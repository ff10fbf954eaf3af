"""A broker that refuses a link by ending its session (RabbitMQ 3.10): only that link fails, and a queue of another kind is used.

IF-26, R01; the list "Bad input": no such queue, no rights.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jmsclient.destination import Queue, Topic
from jmsclient.errors import ConfigurationError, InvalidDestinationError
from jmsclient_amqp.primitives import described, listed, symbol, text

from .conftest import Client, wait_for
from .peer import ATTACH, Conversation, Frame, Peer, attach

amqp = pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)

Connect = Callable[..., Client]
MESSAGE = described(0x77, text("hello"))


def address(frame: Frame) -> str:
    return str((frame[5] if frame[2] else frame[6]).value[0])


def refusing(name: str, *unwanted: str) -> Callable[[Conversation, Frame], None]:
    """Ends the session of a link to one of these addresses with that condition."""

    def answer(conversation: Conversation, frame: Frame) -> None:
        if address(frame) in unwanted:
            conversation.end(frame.channel, described(0x1D, listed([symbol(name), text("inequivalent arg")])))
        else:
            attach(conversation, frame)

    return answer


@pytest.fixture
def client(peer: Peer, connect: Connect) -> Client:
    return connect(f"{peer.url}?provider=rabbitmq")


def test_a_queue_of_another_kind_is_received_from(peer: Peer, client: Client) -> None:
    peer.on[ATTACH] = refusing("amqp:precondition-failed", "/queue/q")
    receiver, sink = client.receive()
    assert [address(frame) for frame in peer.last.heard(ATTACH)] == ["/queue/q", "/amq/queue/q"]
    receiver.request(1)
    peer.last.transfer(peer.last.receiving_link(), MESSAGE)
    wait_for(sink, 1)
    assert client.listener.losses == []


def test_a_queue_of_another_kind_is_sent_to(peer: Peer, client: Client) -> None:
    peer.on[ATTACH] = refusing("amqp:precondition-failed", "/queue/q")
    assert client.send("a")[0].message_id == "ID:a"
    assert [address(frame) for frame in peer.last.heard(ATTACH)] == ["/queue/q", "/amq/queue/q"]
    assert client.listener.losses == []


@pytest.mark.parametrize(
    ("name", "destination", "kind"),
    [
        ("amqp:unauthorized-access", Queue("q"), ConfigurationError),
        ("amqp:not-found", Queue("q"), InvalidDestinationError),
        ("amqp:precondition-failed", Topic("q"), InvalidDestinationError),
        ("amqp:precondition-failed", Queue("both"), InvalidDestinationError),
    ],
)
def test_a_refused_sender_fails_alone(peer: Peer, client: Client, name: str, destination: Queue, kind: type[Exception]) -> None:
    """At once, with the reason; what else the session has goes on, a sender by attaching again."""
    other = client.session.open_sender(Queue("other"), client.deadline())
    receiver, sink = client.receive(destination=Queue("third"))
    peer.on[ATTACH] = refusing(name, "/queue/q", "/topic/q", "/queue/both", "/amq/queue/both")
    for _ in range(2):
        with pytest.raises(kind, match="inequivalent arg"):
            client.session.open_sender(destination, client.deadline())
    assert client.send("a", to=Queue("fourth"))[0].message_id == "ID:a"
    other.send([], room_deadline=client.deadline(), confirm_timeout=5.0)
    receiver.request(1)
    peer.last.transfer(peer.last.receiving_link(), MESSAGE)
    wait_for(sink, 1)
    assert (client.listener.losses, sink.closings) == ([], [])
    client.session.close(client.deadline())


@pytest.mark.parametrize("name", ["amqp:unauthorized-access", "amqp:precondition-failed"])
def test_a_refused_receiver_fails_alone(peer: Peer, client: Client, name: str) -> None:
    peer.on[ATTACH] = refusing(name, "/queue/q", "/amq/queue/q")
    with pytest.raises((ConfigurationError, InvalidDestinationError), match="inequivalent arg"):
        client.receive()
    client.receive(destination=Queue("other"))
    assert client.listener.losses == []
