"""A broker that refuses a link by ending its session (RabbitMQ 3.10): only that link fails, and a queue of another kind is used.

IF-26, R01; the list "Bad input": no such queue, no rights.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jmsclient.destination import Queue, Topic
from jmsclient.errors import ConfigurationError, ConnectionLostError, InvalidDestinationError, SendError
from jmsclient.message import MessageKind, PlainContent
from jmsclient_amqp.primitives import described, listed, symbol, text

from .conftest import PATIENCE, Client, wait_for
from .peer import ATTACH, BEGIN, END, TRANSFER, Conversation, Frame, Peer, attach

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


def test_a_refused_message_fails_alone(peer: Peer, client: Client) -> None:
    """Such as one without the right to send it: the error comes at once each time, and consumers hear nothing of it."""
    receiver, sink = client.receive(destination=Queue("third"))
    sender = client.session.open_sender(Queue("q"), client.deadline())
    peer.on[TRANSFER] = lambda conversation, frame: conversation.end(
        frame.channel, described(0x1D, listed([symbol("amqp:unauthorized-access"), text("not you")]))
    )
    for number in range(3):
        content = PlainContent(kind=MessageKind.TEXT, body="x", message_id=f"ID:{number}")
        with pytest.raises(SendError, match=r"not you.*has not the right") as caught:
            sender.send([content], room_deadline=client.deadline(), confirm_timeout=PATIENCE)
        assert caught.value.in_doubt == (f"ID:{number}",)
    del peer.on[TRANSFER]
    assert client.send("a")[0].message_id == "ID:a"
    receiver.request(1)
    peer.last.transfer(peer.last.receiving_link(), MESSAGE)
    wait_for(sink, 1)
    assert (client.listener.losses, sink.closings) == ([], [])


def test_a_session_that_is_ended_without_a_sender_is_not_begun_again(peer: Peer, client: Client) -> None:
    """It would go on for ever, where the broker allows none."""
    client.receive()
    peer.last.end(
        peer.last.heard(BEGIN)[1].channel, described(0x1D, listed([symbol("amqp:resource-limit-exceeded"), text("none")]))
    )
    peer.last.wait_for(lambda: len(peer.last.heard(END)) > 1, "the end was not answered")
    with pytest.raises(ConnectionLostError, match="none"):
        client.send("a")


@pytest.mark.parametrize("name", ["amqp:unauthorized-access", "amqp:precondition-failed"])
def test_a_refused_receiver_fails_alone(peer: Peer, client: Client, name: str) -> None:
    peer.on[ATTACH] = refusing(name, "/queue/q", "/amq/queue/q")
    with pytest.raises((ConfigurationError, InvalidDestinationError), match="inequivalent arg"):
        client.receive()
    client.receive(destination=Queue("other"))
    assert client.listener.losses == []
