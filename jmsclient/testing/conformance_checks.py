"""Owns the conformance checks: what every backend must do, each with the rule it comes from.

Must not know any backend: a check asks for a capability, never for a product, and where a backend does not declare one, the check
asks for what the core then relies on. None waits for time to pass. Source: transport/contract.py and rules.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from jmsclient.errors import ConnectionLostError, IllegalStateError, RequestTimeoutError, UnsupportedFeatureError
from jmsclient.message import MessageKind, PlainContent
from jmsclient.testing.trial import Trial
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Arrival, Outcome, Receiver, Verb


@dataclass(frozen=True, slots=True)
class Check:
    """One check: the rule, a name for its test, the function."""

    rule: str
    name: str
    run: Callable[[Trial], None]

    def __str__(self) -> str:
        return f"{self.rule}-{self.name}"


CHECKS: list[Check] = []


def check(rule: str) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    def register(run: Callable[[Trial], None]) -> Callable[[Trial], None]:
        CHECKS.append(Check(rule, run.__name__, run))
        return run

    return register


# -- demand and delivery --------------------------------------------------------------------------------------------------


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
    assert sink.bodies == ["größe", b"\x00\xff", {"a": 1, "b": "x", "c": None}, ""]
    assert [arrival.content.kind for arrival in arrivals] == [content.kind for content in sent]
    assert [arrival.content.message_id for arrival in arrivals] == [content.message_id for content in sent]
    assert [arrival.persistent for arrival in arrivals] == [True, False, True, True]
    assert [bool(arrival.content.header("persistent")) for arrival in arrivals] == [True, False, True, True]
    assert dict(arrivals[3].content.properties()) == {"uuid": "u", "n": 7, "yes": True, "x": 0.5}
    for name, value in (("correlation_id", "c-1"), ("reply_to", "queue:///answers"), ("type", "t")):
        assert arrivals[0].content.header(name) == value
        assert arrivals[3].content.header(name) is None
    assert all(arrival.receiver is receiver and not arrival.settled and not arrival.handed_over for arrival in arrivals)


# -- settlement -----------------------------------------------------------------------------------------------------------


def _received(trial: Trial, *bodies: str, persistent: bool = True) -> tuple[Receiver, list[Arrival]]:
    trial.send(*bodies, persistent=persistent)
    receiver, sink = trial.open_receiver()
    receiver.request(len(bodies))
    return receiver, trial.wait_for_arrivals(sink, len(bodies))


def _counts_after(trial: Trial, failures: int) -> list[int]:
    """What a delivery count may be after so many counted deliveries."""
    says = trial.capabilities.delivery_count
    if says == "none":
        return [-1]
    return [failures + 1] if says == "exact" else [min(failures + 1, 2), failures + 1]


@check("IF-11")
def the_first_delivery_count_is_one(trial: Trial) -> None:
    _, arrivals = _received(trial, "a")
    assert arrivals[0].delivery_count in _counts_after(trial, 0)
    assert arrivals[0].count_derived == (trial.capabilities.delivery_count == "derived")


@check("T12")
def accept_removes(trial: Trial) -> None:
    receiver, arrivals = _received(trial, "a", "b", "c")
    trial.hand_over(arrivals)
    receiver.settle(arrivals[1:2], ACCEPT)
    assert arrivals[1].settled
    receiver.settle([arrivals[0], arrivals[2]], ACCEPT)
    trial.session.flush(trial.deadline)
    trial.session.close(trial.deadline)
    assert trial.left().bodies == []


@check("RA-14")
def release_gives_back_with_the_count_unchanged(trial: Trial) -> None:
    receiver, arrivals = _received(trial, "a", "b")
    for _ in range(3):
        receiver.settle(arrivals, RELEASE)
        trial.session.flush(trial.deadline)
        receiver, sink = trial.open_receiver()
        receiver.request(2)
        arrivals = trial.wait_for_arrivals(sink, 2)
    assert sorted(str(arrival.content.body()) for arrival in arrivals) == ["a", "b"]
    if trial.capabilities.release_without_count:
        assert [arrival.delivery_count for arrival in arrivals] == _counts_after(trial, 0)[:1] * 2


@check("T13")
def a_released_message_returns_to_its_place(trial: Trial) -> None:
    trial.send("a", "b", "c", "d")
    receiver, sink = trial.open_receiver()
    receiver.request(2)
    receiver.settle(trial.wait_for_arrivals(sink, 2), RELEASE)
    trial.session.flush(trial.deadline)
    assert trial.left().bodies == ["a", "b", "c", "d"]


@check("IF-11")
def retry_raises_the_count(trial: Trial) -> None:
    receiver, arrivals = _received(trial, "a")
    for failures in (1, 2):
        trial.hand_over(arrivals)
        receiver.settle(arrivals, RETRY)
        trial.session.flush(trial.deadline)
        receiver, sink = trial.open_receiver()
        receiver.request(1)
        arrivals = trial.wait_for_arrivals(sink, 1)
        assert arrivals[0].delivery_count in _counts_after(trial, failures)


@check("RA-14")
def settling_twice_is_settling_once(trial: Trial) -> None:
    receiver, arrivals = _received(trial, "a", "b")
    receiver.settle(arrivals[:1], ACCEPT)
    receiver.settle(arrivals[:1], RETRY)
    receiver.settle(arrivals, RELEASE)
    receiver.settle(arrivals, RELEASE)
    receiver.settle(arrivals, ACCEPT)
    trial.session.flush(trial.deadline)
    left = trial.left()
    assert left.bodies == ["b"]
    if trial.capabilities.release_without_count:
        assert left.counts[0] in _counts_after(trial, 0)


@check("IF-17")
def settle_from_inside_delivered(trial: Trial) -> None:
    receivers: list[Receiver] = []
    receiver, sink = trial.open_receiver(on_batch=lambda batch: receivers[0].settle(batch, ACCEPT))
    receivers.append(receiver)
    trial.send("a", "b", "c")
    receiver.request(10)
    trial.wait_for_arrivals(sink, 3)
    receiver.close(trial.deadline)
    trial.session.flush(trial.deadline)
    assert trial.left().bodies == []
    assert sink.bodies == ["a", "b", "c"]


@check("RA-3")
def taken_messages_are_gone_whatever_happens(trial: Trial) -> None:
    receivers: list[Receiver] = []
    receiver, sink = trial.open_receiver(on_batch=lambda batch: receivers[0].settle(batch, ACCEPT))
    receivers.append(receiver)
    trial.send("a", "b", persistent=False)
    receiver.request(2)
    taken = trial.wait_for_arrivals(sink, 2)
    trial.session.flush(trial.deadline)
    trial.session.close(trial.deadline)
    assert all(arrival.settled and not arrival.persistent for arrival in taken)
    assert trial.left().bodies == []


@check("IF-25")
def pre_settled_deliveries_are_settled_or_refused(trial: Trial) -> None:
    try:
        receiver, sink = trial.open_receiver(pre_settled=True)
    except UnsupportedFeatureError:
        return
    trial.send("a", "b", persistent=False)
    receiver.request(2)
    arrivals = trial.wait_for_arrivals(sink, 2)
    assert all(arrival.settled for arrival in arrivals)
    receiver.settle(arrivals, RELEASE)
    receiver.close(trial.deadline)
    assert trial.left().bodies == []


@check("TR-67")
def a_delayed_release_comes_back_later_and_not_before(trial: Trial) -> None:
    delay = 0.15
    receiver, arrivals = _received(trial, "late", "soon")
    start = trial.clock.monotonic()
    if trial.capabilities.delayed_release:
        receiver.settle(arrivals[:1], Outcome(verb=Verb.RELEASE, delay=delay))
    receiver.settle(arrivals, RELEASE)
    trial.session.flush(trial.deadline)
    again, sink = trial.open_receiver()
    again.request(2)
    trial.wait_for_arrivals(sink, 2)
    if trial.capabilities.delayed_release:
        assert trial.clock.monotonic() - start >= delay - 0.002
        assert sink.bodies == ["soon", "late"]
    if trial.capabilities.release_without_count:
        assert all(count in _counts_after(trial, 0) for count in sink.counts)


@check("TR-45")
def a_dead_letter_does_what_reject_says(trial: Trial) -> None:
    receiver, arrivals = _received(trial, "dead", "alive")
    trial.hand_over(arrivals[:1])
    receiver.settle(arrivals[:1], Outcome(verb=Verb.DEAD_LETTER, reason="unreadable", properties={"why": "test"}))
    receiver.settle(arrivals[1:], RELEASE)
    trial.session.flush(trial.deadline)
    trial.session.close(trial.deadline)
    reject = trial.capabilities.reject
    if reject in ("requeue", "until_limit"):
        left = trial.left()
        assert sorted(left.bodies) == ["alive", "dead"]
        assert left.counts[left.bodies.index("dead")] in _counts_after(trial, 1)
        return
    assert trial.left().bodies == ["alive"]
    error_destination = trial.harness.error_destination(trial.queue)
    if reject == "dead_letter" and error_destination is not None:
        assert "dead" in trial.left(error_destination).bodies


# -- drain ----------------------------------------------------------------------------------------------------------------


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


# -- closing --------------------------------------------------------------------------------------------------------------


@check("IF-9")
def close_of_a_receiver_returns_what_is_unsettled(trial: Trial) -> None:
    receiver, arrivals = _received(trial, "seen", "unseen", "accepted")
    trial.hand_over(arrivals[:1])
    receiver.settle(arrivals[2:], ACCEPT)
    receiver.close(trial.deadline)
    if trial.capabilities.close_returns_unsettled == "at_close":
        _assert_seen_counted_unseen_not(trial)
        return
    receiver.settle(arrivals[:1], ACCEPT)
    trial.session.flush(trial.deadline)
    trial.session.close(trial.deadline)
    left = trial.left()
    assert left.bodies == ["unseen"]
    assert left.counts[0] in _counts_after(trial, 0)


def _assert_seen_counted_unseen_not(trial: Trial) -> None:
    left = trial.left()
    counts = dict(zip(left.bodies, left.counts, strict=True))
    assert counts.keys() == {"seen", "unseen"}
    assert counts["seen"] in _counts_after(trial, 1)
    assert counts["unseen"] in _counts_after(trial, 0)


@check("IF-9")
def close_of_a_session_counts_what_was_seen_and_nothing_else(trial: Trial) -> None:
    receiver, arrivals = _received(trial, "seen", "unseen", "accepted")
    trial.hand_over([arrivals[0], arrivals[2]])
    receiver.settle(arrivals[2:], ACCEPT)
    trial.session.flush(trial.deadline)
    trial.session.close(trial.deadline)
    _assert_seen_counted_unseen_not(trial)


@check("IF-5")
def nothing_is_delivered_after_close(trial: Trial) -> None:
    receiver, sink = trial.open_receiver()
    receiver.request(50)
    trial.send("1")
    trial.wait_for_arrivals(sink, 1)
    receiver.settle(sink.arrivals, ACCEPT)
    receiver.close(trial.deadline)
    receiver.request(5)
    trial.send("2", "3")
    assert trial.left().bodies == ["2", "3"]
    assert sink.bodies == ["1"]
    assert sink.closings == []


@check("IF-5")
def close_while_messages_stream_in_loses_none(trial: Trial) -> None:
    receiver, sink = trial.open_receiver()
    session = trial.open_session(trial.connect())
    bodies = [str(number) for number in range(100)]
    sender = threading.Thread(target=lambda: [trial.send(body, session=session) for body in bodies])
    receiver.request(1000)
    sender.start()
    trial.wait_for_arrivals(sink, 10)
    receiver.close(trial.deadline)
    seen = len(sink.arrivals)
    sender.join(trial.harness.patience)
    trial.session.close(trial.deadline)
    assert len(sink.arrivals) == seen
    assert sorted(trial.left().bodies, key=int) == bodies


@check("RA-24")
def close_from_inside_delivered_does_not_hang(trial: Trial) -> None:
    receivers: list[Receiver] = []
    receiver, sink = trial.open_receiver(on_batch=lambda batch: receivers[0].close(trial.deadline))
    receivers.append(receiver)
    trial.send("1", "2", "3")
    receiver.request(1)
    trial.wait_for_arrivals(sink, 1)
    trial.session.close(trial.deadline)
    assert trial.left().bodies == ["1", "2", "3"]
    assert sink.bodies == ["1"]


@check("IF-27")
def closing_twice_is_silent(trial: Trial) -> None:
    receiver, sink = trial.open_receiver()
    sender = trial.session.open_sender(trial.queue, trial.deadline)
    for thing in (receiver, sender, trial.session, trial.transport):
        thing.close(trial.deadline)
        thing.close(trial.deadline)
    receiver.close(trial.deadline)
    sender.close(trial.deadline)
    trial.session.close(trial.deadline)
    assert sink.closings == []
    assert trial.listener.losses == []


@check("IF-9")
def close_of_a_transport_closes_its_sessions(trial: Trial) -> None:
    receiver, arrivals = _received(trial, "seen", "unseen")
    trial.hand_over(arrivals[:1])
    trial.transport.close(trial.deadline)
    _assert_seen_counted_unseen_not(trial)
    receiver.settle(arrivals, ACCEPT)
    receiver.request(1)
    assert trial.listener.losses == []
    with pytest.raises((ConnectionLostError, IllegalStateError)):
        trial.transport.open_session(transacted=False, deadline=trial.deadline)


# -- sending and losing ---------------------------------------------------------------------------------------------------


@check("IF-30")
def sends_are_confirmed_in_order(trial: Trial) -> None:
    sender = trial.session.open_sender(trial.queue, trial.deadline)
    contents = [trial.content(str(number)) for number in range(30)]
    receipts = sender.send(contents, room_deadline=trial.deadline, confirm_timeout=trial.harness.patience)
    assert len(receipts) == 30
    left = trial.left()
    assert left.bodies == [str(number) for number in range(30)]
    assert [receipt.message_id for receipt in receipts] == [arrival.content.message_id for arrival in left.arrivals]


@check("IF-10")
def a_lost_link_is_told_once_and_its_messages_come_back(trial: Trial) -> None:
    receiver, arrivals = _received(trial, "seen", "unseen")
    trial.hand_over(arrivals[:1])
    trial.harness.lose_link(trial.transport)
    trial.wait_for(lambda: trial.listener.losses, "listener.lost was not called")
    left = trial.left()
    counts = dict(zip(left.bodies, left.counts, strict=True))
    assert counts.keys() == {"seen", "unseen"}
    if trial.capabilities.count_after_loss != "unspecified":
        assert counts["seen"] in _counts_after(trial, 1 if trial.capabilities.count_after_loss == "raised" else 0)
    receiver.close(trial.deadline)
    trial.transport.close(trial.deadline)
    assert len(trial.listener.losses) == 1


@check("IF-10")
def a_lost_link_is_dead_for_good(trial: Trial) -> None:
    receiver, _ = trial.open_receiver()
    sender = trial.session.open_sender(trial.queue, trial.deadline)
    trial.harness.lose_link(trial.transport)
    trial.wait_for(lambda: trial.listener.losses, "listener.lost was not called")
    with pytest.raises(ConnectionLostError):
        sender.send([trial.content("a")], room_deadline=trial.deadline, confirm_timeout=trial.harness.patience)
    with pytest.raises(ConnectionLostError):
        trial.transport.open_session(transacted=False, deadline=trial.deadline)
    with pytest.raises(ConnectionLostError):
        trial.open_receiver()
    if trial.capabilities.drain != "no":
        with pytest.raises(ConnectionLostError):
            receiver.drain(trial.deadline)
    assert trial.left().bodies == []


@check("IF-10")
def settling_on_a_dead_receiver_does_nothing(trial: Trial) -> None:
    receiver, arrivals = _received(trial, "a", "b")
    trial.harness.lose_link(trial.transport)
    trial.wait_for(lambda: trial.listener.losses, "listener.lost was not called")
    receiver.settle(arrivals[:1], ACCEPT)
    receiver.settle(arrivals, RETRY)
    receiver.handing_over(arrivals)
    receiver.request(5)
    left = trial.left()
    assert sorted(left.bodies) == ["a", "b"]
    assert len(trial.sinks[0].arrivals) == 2
