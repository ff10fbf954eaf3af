"""Owns the conformance checks of demand, delivery and drain.

Must not know any backend: a check asks for a capability, never for a product, and where a backend does not declare one, the check
asks for what the core then relies on. None waits for time to pass. Source: transport/contract.py and rules.md.
"""

from __future__ import annotations

import threading

import pytest

from jmsclient.errors import RequestTimeoutError, UnsupportedFeatureError
from jmsclient.message import MessageKind, PlainContent
from jmsclient.testing.check import check
from jmsclient.testing.trial import Trial
from jmsclient.transport.contract import Arrival, Receiver


@check("IF-16")
def nothing_arrives_before_it_is_requested(trial: Trial) -> None:
    _, idle = trial.open_receiver()
    trial.send("a", "b")
    assert trial.left().bodies == ["a", "b"]
    assert idle.arrivals == []


@check("IF-17")
def demands_add_up_and_are_never_exceeded(trial: Trial) -> None:
    receiver, sink = trial.open_receiver()
    trial.send("1", "2", "3", "4", "5", "6")
    receiver.request(1)
    receiver.request(2)
    trial.wait_for_arrivals(sink, 3)
    assert trial.left().bodies == ["4", "5", "6"]
    assert sink.bodies == ["1", "2", "3"]


@check("IF-17")
def demand_waits_for_messages_that_come_later(trial: Trial) -> None:
    receiver, sink = trial.open_receiver()
    receiver.request(2)
    trial.send("1")
    trial.send("2", "3")
    trial.wait_for_arrivals(sink, 2)
    assert trial.left().bodies == ["3"]
    assert sink.bodies == ["1", "2"]


@check("RA-6")
def order_within_a_receiver_is_the_order_sent(trial: Trial) -> None:
    bodies = [str(number) for number in range(60)]
    mixed = trial.capabilities.order_of_mixed_persistence
    receiver, sink = trial.open_receiver()
    receiver.request(7)
    for start in range(0, 60, 6):
        trial.send(*bodies[start : start + 6], persistent=[not mixed or number % 3 != 1 for number in range(6)])
        receiver.request(5)
    receiver.request(3)
    trial.wait_for_arrivals(sink, 60)
    assert sink.bodies == bodies
    if mixed:
        assert [arrival.persistent for arrival in sink.arrivals] == [number % 6 % 3 != 1 for number in range(60)]


@check("IF-7")
def two_receivers_never_get_the_same_message(trial: Trial) -> None:
    first, first_sink = trial.open_receiver()
    second, second_sink = trial.open_receiver(session=trial.open_session(trial.connect()))
    bodies = [str(number) for number in range(40)]
    first.request(20)
    trial.send(*bodies[:30])
    second.request(20)
    trial.send(*bodies[30:])
    trial.wait_for_arrivals(first_sink, 20)
    trial.wait_for_arrivals(second_sink, 20)
    assert sorted(first_sink.bodies + second_sink.bodies, key=int) == bodies


@check("IF-17")
def request_from_inside_delivered(trial: Trial) -> None:
    receivers: list[Receiver] = []
    receiver, sink = trial.open_receiver(on_batch=lambda batch: receivers[0].request(len(batch)))
    receivers.append(receiver)
    bodies = [str(number) for number in range(50)]
    trial.send(*bodies[:25])
    receiver.request(1)
    trial.send(*bodies[25:])
    trial.wait_for_arrivals(sink, 50)
    assert sink.bodies == bodies


@check("JMS-3.4")
def a_message_arrives_as_it_was_sent(trial: Trial) -> None:
    sent = [
        trial.content("größe", correlation_id="c-1", reply_to="queue:///answers", type="t"),
        PlainContent(kind=MessageKind.BYTES, body=b"\x00\xff", message_id="ID:b", persistent=False),
        PlainContent(kind=MessageKind.MAP, body={"a": 1, "b": "x", "c": None}, message_id="ID:m"),
        PlainContent(kind=MessageKind.TEXT, body="", message_id="ID:t", properties={"uuid": "u", "n": 7, "yes": True, "x": 0.5}),
    ]
    trial.session.open_sender(trial.queue, trial.deadline).send(sent, room_deadline=None, confirm_timeout=trial.harness.patience)
    receiver, sink = trial.open_receiver()
    receiver.request(len(sent))
    arrivals = trial.wait_for_arrivals(sink, len(sent))
    if not trial.capabilities.order_of_mixed_persistence:
        ids = [content.message_id for content in sent]
        arrivals.sort(key=lambda arrival: ids.index(arrival.content.message_id))
    bodies = [arrival.content.body() for arrival in arrivals]
    assert bodies == ["größe", b"\x00\xff", {"a": 1, "b": "x", "c": None}, ""]
    assert [arrival.content.kind for arrival in arrivals] == [content.kind for content in sent]
    assert [arrival.content.message_id for arrival in arrivals] == [content.message_id for content in sent]
    assert [arrival.persistent for arrival in arrivals] == [True, False, True, True]
    assert [bool(arrival.content.header("persistent")) for arrival in arrivals] == [True, False, True, True]
    assert dict(arrivals[3].content.properties()) == {"uuid": "u", "n": 7, "yes": True, "x": 0.5}
    for name, value in (("correlation_id", "c-1"), ("reply_to", "queue:///answers"), ("type", "t")):
        assert arrivals[0].content.header(name) == value
        assert arrivals[3].content.header(name) is None
    assert all(arrival.receiver is receiver.present and not arrival.settled and not arrival.handed_over for arrival in arrivals)


@check("IF-18")
def drain_delivers_what_is_on_its_way_and_leaves_no_demand(trial: Trial) -> None:
    receiver, sink = trial.open_receiver()
    if trial.capabilities.drain == "no":
        with pytest.raises(UnsupportedFeatureError):
            receiver.drain(trial.deadline)
        return
    trial.send("1", "2", "3")
    receiver.request(10)
    receiver.drain(trial.deadline)
    seen = list(sink.bodies)
    if trial.capabilities.drain == "yes":
        assert seen == ["1", "2", "3"]
    trial.send("4", "5")
    assert trial.left().bodies == [*(body for body in ("1", "2", "3") if body not in seen), "4", "5"]
    assert sink.bodies == seen
    trial.send("6", "7")
    receiver.request(1)
    trial.wait_for_arrivals(sink, len(seen) + 1)
    receiver.drain(trial.deadline)
    assert sink.bodies == [*seen, "6"]


@check("RA-9")
def what_is_withdrawn_brings_nothing(trial: Trial) -> None:
    """Where a backend can take demand back at once; elsewhere it says 0, and the demand stands."""
    receivers: list[Receiver] = []
    withdrawn: list[int] = []

    def look(batch: list[Arrival]) -> None:
        if not withdrawn:
            withdrawn.append(receivers[0].withdraw())

    receiver, sink = trial.open_receiver(on_batch=look)
    receivers.append(receiver)
    trial.send("a")
    receiver.request(5)
    trial.wait_for_arrivals(sink, 1)
    trial.wait_for(lambda: withdrawn, "withdraw never returned")
    assert 0 <= withdrawn[0] <= 4
    trial.send("b", "c")
    if withdrawn[0] == 4:
        trial.session.flush(trial.deadline)
        other, others = trial.open_receiver()
        other.request(2)
        trial.wait_for_arrivals(others, 2)
        assert sink.bodies == ["a"]
        trial.send("d")
        receiver.request(1)
        trial.wait_for_arrivals(sink, 2)
        assert sink.bodies == ["a", "d"]
    else:
        trial.wait_for_arrivals(sink, min(3, 5 - withdrawn[0]))


@check("IF-18")
def drain_of_an_empty_queue_returns(trial: Trial) -> None:
    receiver, sink = trial.open_receiver()
    if trial.capabilities.drain == "no":
        with pytest.raises(UnsupportedFeatureError):
            receiver.drain(trial.deadline)
        return
    receiver.request(5)
    receiver.drain(trial.deadline)
    receiver.drain(trial.deadline)
    trial.send("a")
    assert trial.left().bodies == ["a"]
    assert sink.arrivals == []


@check("IF-18")
def what_waits_respects_its_deadline(trial: Trial) -> None:
    entered, gate = threading.Event(), threading.Event()

    def block(batch: list[Arrival]) -> None:
        entered.set()
        gate.wait(trial.harness.patience)

    receiver, _ = trial.open_receiver(on_batch=block)
    trial.send("a")
    requester = threading.Thread(target=receiver.request, args=(1,))
    requester.start()
    try:
        assert entered.wait(trial.harness.patience), "the message never came"
        if trial.capabilities.drain != "no":
            with pytest.raises(RequestTimeoutError):
                receiver.drain(trial.clock.deadline(0.05))
    finally:
        gate.set()
        requester.join(trial.harness.patience)
    assert not requester.is_alive()
