"""What became of which message, however many are under way; long messages, which reach the peer whole (IF-30, O07, C12)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jmsclient.errors import ResourceAllocationError, SendError
from jmsclient.message import MessageKind, PlainContent
from jmsclient.transport.contract import Sender
from jmsclient_amqp.primitives import described, listed, symbol, uint

from .conftest import PATIENCE, QUEUE, Client
from .peer import ACCEPTED, DISPOSITION, TRANSFER, TRUE, Conversation, Frame, Peer, accept, grant

sending = pytest.importorskip("jmsclient_amqp.sending", reason="python-qpid-proton is not installed", exc_type=ImportError)

Connect = Callable[..., Client]
REJECTED = described(0x25, listed([described(0x1D, listed([symbol("amqp:precondition-failed")]))]))


def contents(*names: str) -> list[PlainContent]:
    return [PlainContent(kind=MessageKind.TEXT, body=name, message_id=f"ID:{name}", persistent=False) for name in names]


def send(client: Client, sender: Sender, *names: str, confirm: float = PATIENCE) -> list[str]:
    receipts = sender.send(contents(*names), room_deadline=client.deadline(), confirm_timeout=confirm)
    return [receipt.message_id for receipt in receipts]


def decide(peer: Peer, number: int, outcome: bytes) -> None:
    channel = peer.last.heard(TRANSFER)[number].channel
    peer.last.send(channel, DISPOSITION, TRUE, uint(number), uint(number), TRUE, outcome)


def silent(conversation: Conversation, frame: Frame) -> None:
    """The peer says nothing of what it got."""


def test_if_30_outcomes_are_those_of_their_message_behind_one_that_nobody_waits_for_any_more(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    sender = client.session.open_sender(QUEUE, client.deadline())
    peer.on[TRANSFER] = silent
    first = sender.begin(contents("a", "b"))
    with pytest.raises(SendError, match="no confirmation") as caught:
        send(client, sender, "c", "d", confirm=0.1)
    assert caught.value.in_doubt == ("ID:c", "ID:d")
    last = sender.begin(contents("e", "f"))
    client.session.flush(client.deadline())
    for number, outcome in enumerate((ACCEPTED, ACCEPTED, REJECTED, ACCEPTED, REJECTED, ACCEPTED)):
        decide(peer, number, outcome)
    assert [one.message_id for one in first.finish(room_deadline=None, confirm_timeout=PATIENCE)] == ["ID:a", "ID:b"]
    with pytest.raises(SendError) as caught:
        last.finish(room_deadline=None, confirm_timeout=PATIENCE)
    assert (caught.value.confirmed, caught.value.in_doubt, caught.value.unsent) == (("ID:f",), (), ("ID:e",))
    peer.on.clear()
    assert send(client, sender, "g") == ["ID:g"]


def test_if_30_a_late_outcome_changes_nothing_and_is_nobody_elses(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    sender = client.session.open_sender(QUEUE, client.deadline())
    peer.on[TRANSFER] = silent
    with pytest.raises(SendError, match="no confirmation"):
        send(client, sender, "a", "b", confirm=0.1)
    decide(peer, 0, ACCEPTED)

    def reject(conversation: Conversation, frame: Frame) -> None:
        for number in (1, 2):
            decide(peer, number, REJECTED if number == 1 else ACCEPTED)

    peer.on[TRANSFER] = reject
    assert send(client, sender, "c") == ["ID:c"]


@pytest.mark.parametrize("refused", range(5))
def test_o07_credit_in_pieces_keeps_the_order_and_names_the_one_that_was_refused(
    peer: Peer, connect: Connect, refused: int
) -> None:
    client = connect(peer.url)
    peer.credit = 1

    def decide_and_grant(conversation: Conversation, frame: Frame) -> None:
        decide(peer, frame[1], REJECTED if frame[1] == refused else ACCEPTED)
        (link,) = conversation.links.values()
        link.sent = frame[1] + 1
        grant(conversation, link, 2 if frame[1] == 0 else 1)

    peer.on[TRANSFER] = decide_and_grant
    sender = client.session.open_sender(QUEUE, client.deadline())
    with pytest.raises(SendError) as caught:
        send(client, sender, *"abcde")
    names = [f"ID:{name}" for name in "abcde"]
    assert caught.value.unsent == (names.pop(refused),)
    assert caught.value.confirmed == tuple(names)
    bodies = [frame.payload[-1:] for frame in peer.last.heard(TRANSFER)]
    assert bodies == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize(("size", "count"), [(3000, 150), (10_000, 150), (200_000, 7)], ids=["whole", "long", "many frames"])
def test_c12_long_messages_reach_the_peer_whole_and_in_order(peer: Peer, connect: Connect, size: int, count: int) -> None:
    """More of them than go to the socket at once, and of some more than a frame has room for."""
    peer.credit = 1000
    got: list[bytes] = []
    parts: list[bytes] = []

    def take(conversation: Conversation, frame: Frame) -> None:
        parts.append(frame.payload)
        if not frame[5]:
            got.append(b"".join(parts))
            parts.clear()
            accept(conversation, frame)

    peer.on[TRANSFER] = take
    client = connect(peer.url)
    sender = client.session.open_sender(QUEUE, client.deadline())
    bodies = [bytes(range(number, number + 50)) * (size // 50) for number in range(count)]
    made = [
        PlainContent(kind=MessageKind.BYTES, body=body, message_id=f"ID:{number}", persistent=False)
        for number, body in enumerate(bodies)
    ]
    sender.send(made, room_deadline=client.deadline(), confirm_timeout=PATIENCE)
    assert len(got) == count
    for whole, body in zip(got, bodies, strict=True):
        assert whole.endswith(b"\x53\x75\xb0" + len(body).to_bytes(4, "big") + body)


def test_o07_a_peer_that_does_not_read_gets_nothing_that_is_called_unsent(peer: Peer, connect: Connect) -> None:
    """There is credit for all, and no room in the socket: past the deadline the rest stays here."""
    peer.credit = 1000
    client = connect(peer.url)
    sender = client.session.open_sender(QUEUE, client.deadline())
    reading = threading.Event()
    first = threading.Event()

    def wait(conversation: Conversation, frame: Frame) -> None:
        first.set()
        assert reading.wait(PATIENCE)

    peer.on[TRANSFER] = wait
    made = [
        PlainContent(kind=MessageKind.BYTES, body=b"%03d" % number + b"x" * 250_000, message_id=f"ID:{number}", persistent=False)
        for number in range(200)
    ]
    begun = sender.begin(made)
    with pytest.raises(ResourceAllocationError, match="read too little"):
        sender.send(contents("behind"), room_deadline=client.deadline(0.5), confirm_timeout=0.5)
    with pytest.raises(SendError, match="no confirmation") as caught:
        begun.finish(room_deadline=client.deadline(0.2), confirm_timeout=0.2)
    error = caught.value
    assert first.is_set()
    assert error.confirmed == ()
    assert error.in_doubt == tuple(f"ID:{number}" for number in range(len(error.in_doubt)))
    assert error.unsent == tuple(f"ID:{number}" for number in range(len(error.in_doubt), 200))
    assert error.in_doubt
    assert error.unsent
    peer.on[TRANSFER] = silent
    reading.set()
    client.session.flush(client.deadline())
    assert len([frame for frame in peer.last.heard(TRANSFER) if not frame[5]]) == len(error.in_doubt)
    peer.on.clear()
    assert send(client, sender, "after") == ["ID:after"]


def test_if_30_a_large_batch_is_handed_to_the_engine_in_portions(
    peer: Peer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outcomes of the first are read before the last are written, and all come out well and in order."""
    monkeypatch.setattr(sending, "PORTION", 3000)
    peer.credit = 1000
    client = connect(peer.url)
    sender = client.session.open_sender(QUEUE, client.deadline())
    undecided: list[int] = []
    at_once = sending.SendingLink.send_some

    def counted(link: Any, messages: Sequence[Any], transaction: bytes | None = None) -> int:
        undecided.append(len(messages))
        return at_once(link, messages, transaction)

    monkeypatch.setattr(sending.SendingLink, "send_some", counted)
    names = [f"{number:04}" for number in range(300)]
    assert send(client, sender, *names) == [f"ID:{name}" for name in names]
    assert max(undecided) < 60
    assert sum(undecided) == 300
    assert [frame.payload[-4:].decode() for frame in peer.last.heard(TRANSFER)] == names
