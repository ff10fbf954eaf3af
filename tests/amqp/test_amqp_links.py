"""What goes over the wire and what becomes of what comes: against a scripted peer, frame by frame (IF-23, IF-26, S01, C12)."""

from __future__ import annotations

import ast
import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jmsclient.destination import Queue, Topic
from jmsclient.errors import (
    ConfigurationError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsClientError,
    RequestTimeoutError,
    ResourceAllocationError,
    SendError,
    TransactionInDoubtError,
    TransactionRolledBackError,
    UnsupportedFeatureError,
)
from jmsclient.events import subscribe
from jmsclient.message import MessageKind, PlainContent
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, RETRY_ELSEWHERE, Outcome, ReceiverSpec, Verb
from jmsclient_amqp.primitives import NULL, Described, binary, described, listed, symbol, text, uint

from . import conftest as tools
from .conftest import QUEUE, Client, wait_for
from .peer import (
    ACCEPTED,
    ATTACH,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    TRANSFER,
    TRUE,
    Conversation,
    Frame,
    Link,
    Peer,
    answer,
    attach,
    flow,
    grant,
)

amqp = pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)

Connect = Callable[..., Client]
MESSAGE = described(0x77, text("hello"))
PATIENCE = tools.PATIENCE


def error(name: str, said: str = "because") -> bytes:
    return described(0x1D, listed([symbol(name), text(said)]))


def dispositions(conversation: Conversation) -> list[tuple[int, int, bool, Any]]:
    """Those of our receivers: first, last, settled, state."""
    return [(one[1], one[2] if one[2] is not None else one[1], one[3], one[4]) for one in conversation.heard(DISPOSITION) if one[0]]


def deliver(client: Client, peer: Peer, *messages: bytes, **spec: Any) -> tuple[Any, Any, Link]:
    """A receiver that has asked for these and got them."""
    receiver, sink = client.receive(**spec)
    receiver.request(len(messages))
    link = peer.last.receiving_link()
    for message in messages:
        peer.last.transfer(link, message)
    wait_for(sink, len(messages))
    return receiver, sink, link


# -- attach -------------------------------------------------------------------------------------------------------------


def test_if_26_what_an_attach_asks_for(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    client.receive()
    client.session.open_sender(Topic("t"), client.deadline())
    receiving, sending = peer.last.heard(ATTACH)
    source, target = receiving[5].value, sending[6].value
    assert (receiving[3], receiving[4] or 0) == (0, 0)  # unsettled, receiver settles first
    assert source[0] == "q"
    assert source[9] == ["amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"]
    assert source[10] == ["queue"]
    assert (target[0], target[6]) == ("t", ["topic"])
    assert source[8] is None, "the engine cannot send a default outcome, so none is relied on (DO-2, IF-24)"


def test_if_26_a_selector_that_is_not_echoed_is_refused(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    client.receive(selector="a = 1")
    filters = peer.last.heard(ATTACH)[0][5].value[7]
    assert filters == {"jms-selector": Described("apache.org:selector-filter:string", "a = 1")}
    peer.on[ATTACH] = lambda conversation, frame: attach(conversation, frame, source=described(0x28, listed([text("q")]))) and None
    with pytest.raises(InvalidSelectorError, match="did not say"):
        client.receive(selector="a = 1")
    peer.last.wait_for(lambda: peer.last.heard(DETACH), "no detach")
    with pytest.raises(UnsupportedFeatureError, match="no-local"):
        client.receive(destination=Topic("t"), kind="topic", no_local=True)


def test_no_local_is_refused_where_the_broker_echoes_it_and_ignores_it(peer: Peer, connect: Connect) -> None:
    client = connect(f"{peer.url}?provider=rabbitmq")
    with pytest.raises(UnsupportedFeatureError, match="no_local"):
        client.receive(destination=Topic("t"), kind="topic", no_local=True)


REFUSALS: list[tuple[str, type[JmsClientError], dict[str, Any]]] = [
    ("amqp:not-found", InvalidDestinationError, {}),
    ("amqp:unauthorized-access", ConfigurationError, {}),
    ("amqp:invalid-field", InvalidSelectorError, {"selector": "a = 1"}),
    ("amqp:invalid-field", InvalidDestinationError, {}),
    ("amqp:not-implemented", UnsupportedFeatureError, {}),
    ("amqp:resource-limit-exceeded", ResourceAllocationError, {}),
]


@pytest.mark.parametrize(("name", "kind", "spec"), REFUSALS, ids=[row[0] for row in REFUSALS])
def test_a_refused_link_says_why(peer: Peer, connect: Connect, name: str, kind: type[JmsClientError], spec: dict[str, Any]) -> None:
    def refuse(conversation: Conversation, frame: Frame) -> None:
        conversation.detach(attach(conversation, frame, source=NULL, target=NULL), error(name))

    client = connect(peer.url)
    peer.on[ATTACH] = refuse
    with pytest.raises(kind, match="because") as caught:
        client.receive(**spec)
    assert type(caught.value) is kind
    if not spec:
        with pytest.raises(kind, match="because"):
            client.session.open_sender(QUEUE, client.deadline())
    peer.on.clear()
    client.receive()


def test_an_attach_that_is_never_answered(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    peer.on[ATTACH] = lambda conversation, frame: None
    with pytest.raises(RequestTimeoutError, match="attach"):
        client.session.open_sender(QUEUE, client.deadline(0.1))
    sink = tools.RecordingSink()
    with pytest.raises(RequestTimeoutError, match="attach"):
        client.session.open_receiver(ReceiverSpec(destination=QUEUE), sink, client.deadline(0.1))
    peer.on.clear()
    client.receive()


# -- settlement ---------------------------------------------------------------------------------------------------------

FAILED = Described(0x27, [True, False])
SETTLEMENTS: list[tuple[Outcome, Any]] = [
    (ACCEPT, Described(0x24, [])),
    (RELEASE, Described(0x26, [])),
    (RETRY, FAILED),
    (RETRY_ELSEWHERE, Described(0x27, [True, True])),
    (
        Outcome(verb=Verb.DEAD_LETTER, reason="unreadable"),
        Described(0x25, [Described(0x1D, ["jmsclient:rejected", "unreadable"])]),
    ),
]


@pytest.mark.parametrize(("outcome", "state"), SETTLEMENTS, ids=[row[0].verb.value for row in SETTLEMENTS])
def test_if_23_outcomes_on_the_wire(peer: Peer, connect: Connect, outcome: Outcome, state: Any) -> None:
    client = connect(peer.url)
    receiver, sink, _ = deliver(client, peer, MESSAGE, MESSAGE)
    receiver.settle(sink.arrivals, outcome)
    conversation = peer.last
    conversation.wait_for(lambda: dispositions(conversation), "no disposition")
    client.session.flush(client.deadline())
    found = dispositions(conversation)
    assert [(settled, said) for _, _, settled, said in found] == [(True, state)] * len(found)
    assert sorted(number for first, last, _, _ in found for number in range(first, last + 1)) == [0, 1]


def test_neighbours_are_settled_by_one_frame(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    receiver, sink, _ = deliver(client, peer, *[MESSAGE] * 50)
    receiver.settle(sink.arrivals, ACCEPT)
    client.session.flush(client.deadline())
    assert dispositions(peer.last) == [(0, 49, True, Described(0x24, []))]


def test_s01_what_the_peer_has_settled_is_never_answered(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    receiver, sink, _ = deliver(client, peer, *[MESSAGE] * 5, pre_settled=True)
    assert peer.last.heard(ATTACH)[0][3] == 1
    assert all(arrival.settled for arrival in sink.arrivals)
    receiver.settle(sink.arrivals, RELEASE)
    receiver.close(client.deadline())
    client.session.close(client.deadline())
    assert peer.last.heard(DISPOSITION) == []


def test_if_25_what_is_all_taken_is_sent_settled(peer: Peer, connect: Connect) -> None:
    """Read ahead from a destination that is declared non-persistent: settling costs nothing, on neither side."""
    client = connect(peer.url)
    told: list[str] = []
    unsubscribe = subscribe(lambda event: told.append(event.name))
    receiver, sink, link = deliver(client, peer, *[MESSAGE] * 5, takes_all=True)
    assert peer.last.heard(ATTACH)[-1][3] == 1, "the attach asks for settled transfers"
    assert all(arrival.settled for arrival in sink.arrivals)
    receiver.settle(sink.arrivals, ACCEPT)
    receiver.request(2)
    peer.last.wait_for(lambda: link.credit == 2, "no credit")
    durable = described(0x70, listed([TRUE])) + MESSAGE
    peer.last.transfer(link, durable)
    peer.last.transfer(link, durable)
    wait_for(sink, 7)
    receiver.close(client.deadline())
    unsubscribe()
    assert dispositions(peer.last) == []
    assert told.count("persistent_taken") == 1, "the declaration is wrong, and that is told once"


@pytest.mark.parametrize("provider", ["rabbitmq", "activemq", "generic"])
def test_if_25_a_broker_that_settles_more_than_arrives_never_settles_when_it_sends(
    peer: Peer, connect: Connect, provider: str
) -> None:
    """One cannot drain, one settles what it has only prepared to send: an orderly close would lose that."""
    client = connect(f"{peer.url}?provider={provider}")
    client.receive(takes_all=True)
    assert not peer.last.heard(ATTACH)[-1][3]


def test_if_22_nothing_is_settled_without_an_outcome() -> None:
    """Each call that settles in the engine's code follows an update of the same delivery, unless the other side has settled it."""
    source = Path(amqp.__file__).with_name("engine") / "links.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    settling = {"take": 2, "settle": 1, "confirmed": 1, "abandon": 1}
    found: dict[str, int] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            names = [node.func.id for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
            if "_settle" in names:
                found[function.name] = names.count("_settle")
                assert function.name == "take" or "_update" in names, f"{function.name} settles and never says how"
    assert found == settling
    others = [path for path in source.parents[1].rglob("*.py") if path != source and "pn_delivery_settle" in path.read_text()]
    assert [path.name for path in others] in ([], ["library.py"])


def test_a_settlement_that_comes_too_late_is_counted_and_told_once(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    receiver, sink, _ = deliver(client, peer, MESSAGE, MESSAGE)
    heard: list[str] = []
    stop = subscribe(lambda event: heard.append(event.name))
    try:
        amqp.cut(client.transport)
        end = time.monotonic() + PATIENCE
        while not client.listener.losses:
            assert time.monotonic() < end
            time.sleep(0.002)
        receiver.settle(sink.arrivals[:1], ACCEPT)
        receiver.accept(sink.arrivals[1])
    finally:
        stop()
    assert heard.count("stale_settlement") == 1
    assert all(arrival.settled for arrival in sink.arrivals)


# -- messages in many frames, aborted ones, and what is none -------------------------------------------------------------


def test_c12_a_message_in_many_frames_with_small_ones_behind_it(peer: Peer, connect: Connect) -> None:
    client = connect(f"{peer.url}?max_frame_bytes=16384")
    body = bytes(range(256)) * 4096  # 1 MiB
    raw = described(0x75, binary(body))
    receiver, sink = client.receive()
    receiver.request(3)
    link = peer.last.receiving_link()
    pieces = [raw[start : start + 16000] for start in range(0, len(raw), 16000)]
    for number, piece in enumerate(pieces[:-1]):
        peer.last.transfer(link, piece, more=True, first=number == 0)
    client.session.flush(client.deadline())
    assert sink.arrivals == []
    peer.last.transfer(link, pieces[-1], first=False)
    for _ in range(2):
        peer.last.transfer(link, MESSAGE)
    arrivals = wait_for(sink, 3)
    assert arrivals[0].content.body() == body
    assert sink.bodies[1:] == ["hello", "hello"]
    receiver.settle(arrivals, ACCEPT)
    client.session.flush(client.deadline())
    assert dispositions(peer.last) == [(0, 2, True, Described(0x24, []))]


def test_c12_an_aborted_message_never_surfaces_and_its_credit_is_used_again(peer: Peer, connect: Connect) -> None:
    client = connect(f"{peer.url}?max_frame_bytes=65536")
    receiver, sink = client.receive()
    receiver.request(1)
    link = peer.last.receiving_link()
    peer.last.transfer(link, b"\x00" * 60000, more=True)
    peer.last.transfer(link, b"", first=False, aborted=True)
    peer.last.wait_for(lambda: link.credit == 1, "the credit was not granted anew")
    peer.last.transfer(link, MESSAGE)
    wait_for(sink, 1)
    assert sink.bodies == ["hello"]


def test_if_19_a_thousand_undecodable_messages_never_stall_a_consumer(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    receiver, sink = client.receive()
    receiver.request(10)
    link = peer.last.receiving_link()
    for _ in range(1000):
        peer.last.wait_for(lambda: link.credit > 0, "no credit")
        peer.last.transfer(link, b"this is no message")
    peer.last.wait_for(lambda: link.credit > 0, "no credit")
    peer.last.transfer(link, MESSAGE)
    wait_for(sink, 1)
    assert sink.bodies == ["hello"]
    client.session.flush(client.deadline())
    said = dispositions(peer.last)
    assert all(state == Described(0x27, [True, True]) for _, _, _, state in said)
    assert sum(last - first + 1 for first, last, _, _ in said) == 1000


# -- drain and close ----------------------------------------------------------------------------------------------------


def test_if_17_a_broker_that_sends_more_than_it_was_asked_for_owes_nothing(peer: Peer, connect: Connect) -> None:
    """What was too much is not held against what is asked for later: else the two sides drift apart until nothing comes."""
    client = connect(peer.url)
    receiver, sink, link = deliver(client, peer, *[MESSAGE] * 2)
    for asked in (1, 3):
        for _ in range(3):  # nobody asked for these
            peer.last.transfer(link, MESSAGE)
        wait_for(sink, link.sent)
        receiver.request(asked)
        peer.last.wait_for(lambda asked=asked: link.credit == asked, f"{asked} asked for, not so on the wire")  # type: ignore[misc]
        for _ in range(asked):
            peer.last.transfer(link, MESSAGE)
        wait_for(sink, link.sent)
    receiver.settle(sink.arrivals, ACCEPT)


def test_if_18_a_drain_adds_no_credit_and_respects_its_deadline(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    receiver, sink = client.receive()
    receiver.request(5)
    link = peer.last.receiving_link()
    peer.on[FLOW] = lambda conversation, frame: None
    with pytest.raises(RequestTimeoutError, match="drain"):
        receiver.drain(client.deadline(0.1))
    asked = peer.last.heard(FLOW)[-1]
    assert (asked[6], asked[8]) == (5, True)
    peer.on.clear()
    peer.last.transfer(link, MESSAGE)
    receiver.drain(client.deadline())
    assert sink.bodies == ["hello"]
    before = len(peer.last.heard(FLOW))
    receiver.drain(client.deadline())
    assert len(peer.last.heard(FLOW)) == before, "without demand there is nothing to drain"
    receiver.request(2)
    peer.last.wait_for(lambda: link.credit == 2, "no credit after a drain")
    assert not peer.last.heard(FLOW)[-1][8]


@pytest.mark.parametrize("how", ["drain", "close"])
def test_if_18_a_drain_that_the_peer_overlooks_is_asked_again(peer: Peer, connect: Connect, how: str) -> None:
    """As Artemis does with one that comes while it still answers the one before."""
    client = connect(peer.url)
    receiver, _ = client.receive()
    receiver.request(5)
    peer.last.receiving_link()
    drains: list[Frame] = []

    def overlook_the_first(conversation: Conversation, frame: Frame) -> None:
        if frame[8]:
            drains.append(frame)
        if len(drains) != 1:
            flow(conversation, frame)

    peer.on[FLOW] = overlook_the_first
    getattr(receiver, how)(client.deadline())
    assert [(frame[6], frame[8]) for frame in drains] == [(5, True), (5, True)], "the same again, and no more credit"


def test_if_27_the_order_of_closing(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    receiver, sink, link = deliver(client, peer, MESSAGE, MESSAGE)
    receiver.request(3)
    peer.last.wait_for(lambda: link.credit == 3, "no credit")
    sink.arrivals[0].handed_over = True
    receiver.settle(sink.arrivals[1:], RELEASE)
    receiver.close(client.deadline())
    assert peer.last.heard(DETACH) == [], "the link stays for what its session has to settle"
    receiver.request(1)
    client.session.close(client.deadline())
    codes = [frame.code for frame in peer.last.frames if frame.code in (FLOW, DISPOSITION, DETACH, END)]
    assert codes[-3:] == [DISPOSITION, DETACH, END]
    assert sorted(codes[-5:-3]) == [FLOW, DISPOSITION], "the session's own settlement comes after the drain"
    assert any(frame[8] for frame in peer.last.heard(FLOW)), "what is out is drained"
    assert dispositions(peer.last) == [(1, 1, True, Described(0x26, [])), (0, 0, True, FAILED)]


def test_if_27_a_link_without_unsettled_messages_is_closed_at_once(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    receiver, sink, _ = deliver(client, peer, MESSAGE)
    receiver.close(client.deadline())
    assert peer.last.heard(DETACH) == []
    receiver.settle(sink.arrivals, ACCEPT)
    closed = peer.last.wait_for(lambda: peer.last.heard(DETACH), "the last settlement closes it")
    assert closed[0][1] is True


def test_a_close_whose_drain_is_never_answered_detaches_all_the_same(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    receiver, _ = client.receive()
    receiver.request(5)
    peer.last.receiving_link()
    peer.on[FLOW] = lambda conversation, frame: None
    with pytest.raises(RequestTimeoutError, match="close"):
        receiver.close(client.deadline(0.1))
    peer.last.wait_for(lambda: peer.last.heard(DETACH), "no detach")


def test_where_a_release_counts_what_is_unread_goes_back_with_its_link(peer: Peer, connect: Connect) -> None:
    """ActiveMQ Classic: it counts what is released; a link that is closed gives back uncounted, and in order."""
    client = connect(f"{peer.url}?provider=activemq")
    receiver, sink, _ = deliver(client, peer, *[MESSAGE] * 4)
    receiver.settle(sink.arrivals[:1], ACCEPT)
    receiver.settle(sink.arrivals[1:2], RELEASE)  # others are in hand: the link stays, so this is said
    receiver.settle(sink.arrivals[2:], RELEASE)
    receiver.close(client.deadline())
    client.session.flush(client.deadline())
    assert [(one[0], one[1]) for one in dispositions(peer.last)] == [(0, 0), (1, 1)]
    peer.last.wait_for(lambda: peer.last.heard(DETACH), "the link was not closed")


def test_a_durable_subscription_is_detached_and_not_closed(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url, client_id="me")
    receiver, _ = client.receive(destination=Topic("t"), kind="durable", name="sub")
    receiver.close(client.deadline())
    asked = peer.last.heard(ATTACH)[0]
    assert (asked[0], asked[5].value[1], asked[5].value[2]) == ("sub", 2, "never")
    assert not peer.last.heard(DETACH)[0][1]
    client.receive(destination=Topic("t"), kind="durable", name="sub")


def look_up(conversation: Conversation, frame: Frame, source: bytes) -> None:
    """Answer an attach without a source: with the one that the name stands for, or that there is none."""
    link = attach(conversation, frame, source=source)
    if source == NULL:
        conversation.detach(link, error("amqp:not-found"))


def test_unsubscribe_without_a_client_id_looks_for_a_shared_one(peer: Peer, connect: Connect) -> None:
    """The engine cannot say what a link desires, so that is written into its frame; nothing else is changed."""
    client = connect(peer.url)
    there = [described(0x28, listed([text("t")])), NULL]
    peer.on[ATTACH] = lambda conversation, frame: look_up(conversation, frame, there.pop(0))
    client.session.unsubscribe("s", client.deadline())
    del peer.on[ATTACH]
    first, second = peer.last.heard(ATTACH)
    for found in (first, second):  # it is looked for again, for a broker that keeps it does not say so
        assert (found[0], found[2], found[5]) == ("s|global", True, None)
        assert found[12] == ["shared", "global"]
    assert peer.last.heard(DETACH)[0][1], "closed, not only detached"
    there = [described(0x28, listed([text("t")]))] * 2
    peer.on[ATTACH] = lambda conversation, frame: look_up(conversation, frame, there.pop(0))
    with pytest.raises(IllegalStateError, match="a consumer is open"):
        client.session.unsubscribe("s", client.deadline())
    del peer.on[ATTACH]
    receiver, sink, _ = deliver(client, peer, MESSAGE)
    assert len(peer.last.heard(ATTACH)[-1].fields) <= 12 or peer.last.heard(ATTACH)[-1][12] is None
    receiver.settle(sink.arrivals, ACCEPT)


def test_unsubscribe_without_a_client_id_where_nothing_is_shared(peer: Peer, connect: Connect) -> None:
    peer.offers = ()
    client = connect(peer.url)
    with pytest.raises(UnsupportedFeatureError, match="client_id="):
        client.session.unsubscribe("s", client.deadline())


def test_a_link_that_the_peer_closes_is_told_to_the_sink(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    receiver, sink, link = deliver(client, peer, MESSAGE)
    peer.last.detach(link, error("amqp:resource-deleted"))
    peer.last.wait_for(lambda: sink.closings, "the sink was not told")
    assert "amqp:resource-deleted" in str(sink.closings[0])
    receiver.settle(sink.arrivals, ACCEPT)
    receiver.close(client.deadline())
    assert len(sink.closings) == 1
    assert client.send("still")[0].message_id == "ID:still"


@pytest.mark.parametrize("how", ["detach", "end", "cut"])
def test_if_18_a_drain_that_its_link_does_not_survive_says_so(peer: Peer, connect: Connect, how: str) -> None:
    """Nobody knows whether something was on its way: it is not as if nothing was there."""
    client = connect(peer.url)

    def lose(conversation: Conversation, frame: Frame) -> None:
        answer_flow = not frame[8]
        if answer_flow:
            answer(conversation, frame)
        elif how == "detach":
            conversation.detach(conversation.links[frame.channel, frame[4]], error("amqp:resource-deleted"))
        elif how == "end":
            conversation.end(frame.channel, error("amqp:internal-error"))
        else:
            conversation.socket.shutdown(socket.SHUT_RDWR)

    peer.on[FLOW] = lose
    receiver, sink = client.receive(kind="browse")
    receiver.request(5)
    for _ in range(2):  # the second finds it gone
        with pytest.raises(ConnectionLostError):
            receiver.drain(client.deadline())
    assert sink.arrivals == []


def test_a_session_that_the_peer_ends(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    _, sink, link = deliver(client, peer, MESSAGE)
    peer.last.end(link.channel, error("amqp:internal-error", "a bug"))
    peer.last.wait_for(lambda: sink.closings, "the sink was not told")
    with pytest.raises(ConnectionLostError, match="a bug"):
        client.send("a")
    assert client.listener.losses == []
    client.session = client.transport.open_session(transacted=False, deadline=client.deadline())
    client.send("a")


def test_if_10_a_connection_that_the_peer_closes(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    client.receive()
    peer.last.send(0, CLOSE, error("amqp:connection:forced", "going down"))
    peer.last.wait_for(lambda: client.listener.losses, "nobody was told")
    assert "going down" in str(client.listener.losses[0])
    with pytest.raises(ConnectionLostError, match="going down"):
        client.receive()


# -- sending ------------------------------------------------------------------------------------------------------------

NOT_ACCEPTED = {
    "rejected": (described(0x25, listed([error("amqp:precondition-failed")])), "rejected it"),
    "released": (described(0x26, b"\x45"), "released it"),
    "modified": (described(0x27, b"\x45"), "modified"),
    "nothing": (NULL, "without saying"),
}


@pytest.mark.parametrize(("state", "says"), NOT_ACCEPTED.values(), ids=NOT_ACCEPTED.keys())
def test_if_30_what_is_not_accepted_is_an_error(peer: Peer, connect: Connect, state: bytes, says: str) -> None:
    client = connect(peer.url)

    def decide(conversation: Conversation, frame: Frame) -> None:
        outcome = state if frame[1] == 1 else ACCEPTED
        conversation.send(frame.channel, DISPOSITION, TRUE, uint(frame[1]), uint(frame[1]), TRUE, outcome)

    peer.on[TRANSFER] = decide
    with pytest.raises(SendError, match=says) as caught:
        client.send("a", "b", "c")
    assert (caught.value.confirmed, caught.value.in_doubt, caught.value.unsent) == (("ID:a", "ID:c"), (), ("ID:b",))


def test_o07_no_credit_in_time_sends_nothing(peer: Peer, connect: Connect) -> None:
    peer.credit = 0
    client = connect(peer.url)
    start = time.monotonic()
    with pytest.raises(ResourceAllocationError, match="no credit"):
        client.send("a", "b", room=0.2)
    assert 0.2 <= time.monotonic() - start < 5.0
    (link,) = peer.last.links.values()
    grant(peer.last, link, 5)
    client.session.flush(client.deadline())
    assert peer.last.heard(TRANSFER) == [], "what timed out is never sent later"


def test_o07_credit_for_some(peer: Peer, connect: Connect) -> None:
    peer.credit = 2
    client = connect(peer.url)
    with pytest.raises(SendError) as caught:
        client.send("a", "b", "c", room=0.2)
    assert (caught.value.confirmed, caught.value.unsent) == (("ID:a", "ID:b"), ("ID:c",))


def test_o07_credit_that_comes_later_is_used(peer: Peer, connect: Connect) -> None:
    peer.credit = 0
    client = connect(peer.url)
    timer = threading.Timer(0.1, lambda: grant(peer.last, next(iter(peer.last.links.values())), 3))
    timer.start()
    assert [receipt.message_id for receipt in client.send("a", "b", "c")] == ["ID:a", "ID:b", "ID:c"]
    timer.join()


def test_o07_close_from_another_thread_ends_a_send_that_waits(peer: Peer, connect: Connect) -> None:
    peer.credit = 0
    client = connect(peer.url)
    caught: list[Exception] = []

    def send() -> None:
        try:
            client.send("a")
        except JmsClientError as error:
            caught.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    peer.last.wait_for(lambda: peer.last.heard(ATTACH), "no sender")
    client.transport.close(client.deadline(2.0))
    thread.join(PATIENCE)
    assert len(caught) == 1


def test_a_send_that_is_never_confirmed_is_in_doubt(peer: Peer, connect: Connect) -> None:
    peer.on[TRANSFER] = lambda conversation, frame: None
    client = connect(peer.url)
    with pytest.raises(SendError, match=r"no confirmation within 0\.1 s") as caught:
        client.send("a", "b", confirm=0.1)
    assert caught.value.in_doubt == ("ID:a", "ID:b")
    peer.on.clear()
    client.send("c")


def test_s08_a_send_that_the_connection_does_not_survive_is_in_doubt(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    peer.on[TRANSFER] = lambda conversation, frame: conversation.socket.shutdown(2)
    with pytest.raises(SendError) as caught:
        client.send("a")
    assert caught.value.in_doubt == ("ID:a",)
    with pytest.raises(ConnectionLostError):
        client.send("b")


def test_a_sender_that_the_peer_closed_is_attached_again(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    sender = client.session.open_sender(QUEUE, client.deadline())
    content = PlainContent(kind=MessageKind.TEXT, body="x", message_id="ID:x")
    sender.send([content], room_deadline=client.deadline(), confirm_timeout=PATIENCE)
    (link,) = peer.last.links.values()
    peer.last.detach(link, error("amqp:resource-deleted"))
    peer.last.wait_for(lambda: peer.last.heard(DETACH), "no answer to the detach")
    sender.send([content], room_deadline=client.deadline(), confirm_timeout=PATIENCE)
    assert len(peer.last.heard(ATTACH)) == 2


def test_delayed_delivery_needs_a_broker_that_offers_it(peer: Peer, connect: Connect) -> None:
    peer.offers = ()
    client = connect(peer.url)
    assert not client.transport.capabilities.delayed_delivery
    sender = client.session.open_sender(QUEUE, client.deadline())
    content = PlainContent(kind=MessageKind.TEXT, body="x", message_id="ID:x", delivery_time=5.0)
    with pytest.raises(UnsupportedFeatureError, match="deliver later"):
        sender.send([content], room_deadline=None, confirm_timeout=None)


# -- transactions -------------------------------------------------------------------------------------------------------


def test_if_28_receipts_and_sends_carry_the_transaction(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url, transacted=True)
    receiver, sink, _ = deliver(client, peer, MESSAGE, MESSAGE)
    receiver.settle(sink.arrivals[:1], ACCEPT)
    receiver.settle(sink.arrivals[1:], RELEASE)
    client.send("a")
    client.session.commit(client.deadline())
    coordinator = next(
        frame for frame in peer.last.heard(ATTACH) if isinstance(frame[6], Described) and frame[6].descriptor == 0x30
    )
    assert coordinator[6].value == [["amqp:local-transactions"]] or coordinator[6].value == ["amqp:local-transactions"]
    states = {first: state for first, _, _, state in dispositions(peer.last)}
    identity = states[0].value[0]
    assert states[0] == Described(0x34, [identity, Described(0x24, [])])
    assert states[1] == Described(0x26, [])
    sent = [frame for frame in peer.last.heard(TRANSFER) if isinstance(frame[7], Described)]
    assert [frame[7] for frame in sent] == [Described(0x34, [identity])]
    discharge = described(0x77, described(0x32, listed([binary(identity), b"\x42"])))
    assert discharge in [frame.payload for frame in peer.last.heard(TRANSFER)]


def swallow_discharges(conversation: Conversation, frame: Frame) -> None:
    if not frame.payload.startswith(b"\x00\x53\x77\x00\x53\x32"):
        answer(conversation, frame)


def test_s08_a_commit_whose_answer_never_comes_is_in_doubt(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url, transacted=True)
    client.send("a")
    peer.on[TRANSFER] = swallow_discharges
    start = time.monotonic()
    with pytest.raises(TransactionInDoubtError):
        client.session.commit(client.deadline(0.2))
    assert time.monotonic() - start < 5.0
    peer.on.clear()
    client.send("b")
    client.session.commit(client.deadline())
    discharged = [frame.payload for frame in peer.last.heard(TRANSFER) if frame.payload.startswith(b"\x00\x53\x77\x00\x53\x32")]
    assert len(discharged) == len(set(discharged)) == 2, "the commit in doubt is never sent again"


def test_s08_a_commit_that_the_connection_does_not_survive_is_in_doubt(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url, transacted=True)
    client.send("a")

    def drop(conversation: Conversation, frame: Frame) -> None:
        conversation.socket.shutdown(2)

    peer.on[TRANSFER] = drop
    with pytest.raises(TransactionInDoubtError):
        client.session.commit(client.deadline())


def test_s08_a_connection_lost_before_the_commit_has_rolled_it_back(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url, transacted=True)
    client.send("a")
    amqp.cut(client.transport)
    peer.last.wait_for(lambda: client.listener.losses, "the loss was not noticed")
    client.session.rollback(redelivery_delay=0.0, deadline=client.deadline())
    with pytest.raises(TransactionRolledBackError):
        client.session.commit(client.deadline())


def test_if_28_a_coordinator_lost_before_the_commit_has_rolled_it_back(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url, transacted=True)
    client.send("a")
    coordinator = next(link for link in peer.last.links.values() if "coordinator" in link.name)
    peer.last.detach(coordinator, error("amqp:transaction:rollback"))
    peer.last.wait_for(lambda: peer.last.heard(DETACH), "no answer to the detach")
    with pytest.raises(TransactionRolledBackError, match="amqp:transaction:rollback"):
        client.session.commit(client.deadline())
    client.send("b")
    client.session.commit(client.deadline())


def test_if_28_a_commit_that_the_broker_rejects_has_rolled_it_back(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url, transacted=True)
    client.send("a")

    def reject(conversation: Conversation, frame: Frame) -> None:
        if frame.payload.startswith(b"\x00\x53\x77\x00\x53\x32"):
            state = described(0x25, listed([error("amqp:transaction:rollback", "no space")]))
            conversation.send(frame.channel, DISPOSITION, TRUE, uint(frame[1]), uint(frame[1]), TRUE, state)
        else:
            answer(conversation, frame)

    peer.on[TRANSFER] = reject
    with pytest.raises(TransactionRolledBackError, match="no space"):
        client.session.commit(client.deadline())


def test_if_28_a_send_in_doubt_dooms_its_transaction(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url, transacted=True)
    peer.on[TRANSFER] = lambda conversation, frame: None
    with pytest.raises(SendError):
        client.send("a", confirm=0.1)
    peer.on.clear()
    with pytest.raises(TransactionRolledBackError, match="not confirmed"):
        client.session.commit(client.deadline())
    peer.last.wait_for(
        lambda: any(frame.payload.endswith(b"\x41") for frame in peer.last.heard(TRANSFER)), "it was not rolled back"
    )


def test_if_28_an_open_transaction_is_rolled_back_when_its_session_closes(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url, transacted=True)
    client.send("a")
    client.session.close(client.deadline())
    discharged = [frame.payload for frame in peer.last.heard(TRANSFER) if frame.payload.startswith(b"\x00\x53\x77\x00\x53\x32")]
    assert [payload[-1:] for payload in discharged] == [b"\x41"]


# -- time ---------------------------------------------------------------------------------------------------------------


def test_o04_a_peer_that_falls_silent_is_noticed_within_the_idle_time_out(peer: Peer, connect: Connect) -> None:
    client = connect(f"{peer.url}?idle_timeout=2")
    client.receive()
    start = time.monotonic()
    peer.last.wait_for(lambda: client.listener.losses, "the silence was not noticed")
    assert time.monotonic() - start < 10.0
    assert "idle time-out" in str(client.listener.losses[0])


def test_o04_heartbeats_go_out_while_everybody_is_busy(connect: Connect) -> None:
    with Peer(idle_timeout=400) as peer:
        client = connect(f"{peer.url}?idle_timeout=0")
        heartbeats = 0
        conversation = peer.last
        peer.on[FLOW] = lambda conversation, frame: None
        original = peer._frame

        def frame(connection: Any) -> Any:
            nonlocal heartbeats
            found = original(connection)
            heartbeats += found is None
            return found

        peer._frame = frame  # type: ignore[method-assign]
        conversation.wait_for(lambda: heartbeats >= 3, "no heartbeats")
        assert client.listener.losses == []


def test_nothing_is_left_of_a_closed_connection(peer: Peer) -> None:
    client = Client(peer.url)
    client.receive()
    client.transport.close(client.deadline())
    peer.last.wait_for(lambda: peer.last.ended, "the socket is still open")
    assert not [thread for thread in threading.enumerate() if thread.name.endswith(f":{peer.port}")]


def test_a_destination_of_any_name_is_an_address(peer: Peer, connect: Connect) -> None:
    client = connect(peer.url)
    client.session.open_sender(Queue("größe/ä b"), client.deadline())
    assert peer.last.heard(ATTACH)[0][6].value[0] == "größe/ä b"


@pytest.mark.parametrize("seed", range(25))
def test_a_peer_that_sends_garbage_after_the_handshake_is_lost(peer: Peer, connect: Connect, seed: int) -> None:
    """Frames with random bytes, wrong sizes or cut ends: the connection ends, told once, and no call waits for ever."""
    chance = random.Random(seed)
    client = connect(peer.url)
    _, sink = client.receive()
    body = chance.randbytes(chance.randrange(1, 400))
    size = chance.choice([len(body) + 8, len(body) + 8, 4, 0xFFFFFFFF, 70000])
    header = struct.pack(">IBBH", size, chance.choice([2, 2, 2, 255]), 0, chance.choice([0, 0, 9]))
    with contextlib.suppress(OSError):  # it may hang up in the middle
        peer.last.socket.sendall(header + body)
        if chance.random() < 0.5:
            peer.last.socket.sendall(described(TRANSFER, listed([uint(0), NULL])) + body)
        peer.last.socket.shutdown(socket.SHUT_WR)
    peer.last.wait_for(lambda: client.listener.losses, "nobody was told")
    with pytest.raises(ConnectionLostError):
        client.send("a")
    assert len(client.listener.losses) == 1
    assert not sink.faults
    peer.last.wait_for(
        lambda: not [thread for thread in threading.enumerate() if thread.name.endswith(f":{peer.port}")], "a thread is left"
    )
