"""Owns the conformance checks of settlement: what becomes of a delivery, and of its count.

Must not know any backend: a check asks for a capability, never for a product, and where a backend does not declare one, the check
asks for what the core then relies on. None waits for time to pass. Source: transport/contract.py and rules.md.
"""

from __future__ import annotations

from jmsclient.errors import UnsupportedFeatureError
from jmsclient.testing.check import check, counts_after, received
from jmsclient.testing.trial import Trial
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Arrival, Outcome, Receiver, Verb


@check("IF-11")
def the_first_delivery_count_is_one(trial: Trial) -> None:
    _, arrivals = received(trial, "a")
    assert arrivals[0].delivery_count in counts_after(trial, 0)
    assert arrivals[0].count_derived == (trial.capabilities.delivery_count == "derived")


@check("T12")
def accept_removes(trial: Trial) -> None:
    receiver, arrivals = received(trial, "a", "b", "c")
    trial.hand_over(arrivals)
    receiver.settle(arrivals[1:2], ACCEPT)
    assert arrivals[1].settled
    receiver.settle([arrivals[0], arrivals[2]], ACCEPT)
    trial.session.flush(trial.deadline)
    trial.session.close(trial.deadline)
    assert trial.left().bodies == []


@check("RA-14")
def release_gives_back_with_the_count_unchanged(trial: Trial) -> None:
    receiver, arrivals = received(trial, "a", "b")
    for _ in range(3):
        receiver.settle(arrivals, RELEASE)
        trial.session.flush(trial.deadline)
        receiver, sink = trial.open_receiver()
        receiver.request(2)
        arrivals = trial.wait_for_arrivals(sink, 2)
    assert sorted(str(arrival.content.body()) for arrival in arrivals) == ["a", "b"]
    if trial.capabilities.release_without_count:
        assert [arrival.delivery_count for arrival in arrivals] == counts_after(trial, 0)[:1] * 2


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
    receiver, arrivals = received(trial, "a")
    for failures in (1, 2):
        trial.hand_over(arrivals)
        receiver.settle(arrivals, RETRY)
        trial.session.flush(trial.deadline)
        receiver, sink = trial.open_receiver()
        receiver.request(1)
        arrivals = trial.wait_for_arrivals(sink, 1)
        assert arrivals[0].delivery_count in counts_after(trial, failures)


@check("RA-14")
def settling_twice_is_settling_once(trial: Trial) -> None:
    receiver, arrivals = received(trial, "a", "b")
    receiver.settle(arrivals[:1], ACCEPT)
    receiver.settle(arrivals[:1], RETRY)
    receiver.settle(arrivals, RELEASE)
    receiver.settle(arrivals, RELEASE)
    receiver.settle(arrivals, ACCEPT)
    trial.session.flush(trial.deadline)
    left = trial.left()
    assert left.bodies == ["b"]
    if trial.capabilities.release_without_count:
        assert left.counts[0] in counts_after(trial, 0)


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


@check("IF-25")
def what_is_all_taken_is_not_lost_by_an_orderly_end(trial: Trial) -> None:
    """Whether the backend settles when it sends or has each settled on arrival: what did not arrive is still there."""
    receivers: list[Receiver] = []

    def take(batch: list[Arrival]) -> None:
        receivers[0].settle([arrival for arrival in batch if not arrival.settled], ACCEPT)

    receiver, sink = trial.open_receiver(takes_all=True, on_batch=take)
    receivers.append(receiver)
    sent = [f"{number:02}" for number in range(60)]
    trial.send(*sent, persistent=False)
    receiver.request(10)
    trial.wait_for_arrivals(sink, 10)
    receiver.request(30)
    if trial.capabilities.drain != "no":
        receiver.drain(trial.deadline)
    receiver.close(trial.deadline)
    trial.session.flush(trial.deadline)
    trial.session.close(trial.deadline)
    assert all(arrival.settled for arrival in sink.arrivals)
    assert sorted(map(str, [*sink.bodies, *trial.left().bodies])) == sent


@check("TR-67")
def a_delayed_release_comes_back_later_and_not_before(trial: Trial) -> None:
    delay = 0.15
    receiver, arrivals = received(trial, "late", "soon")
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
        assert all(count in counts_after(trial, 0) for count in sink.counts)


@check("TR-45")
def a_dead_letter_does_what_reject_says(trial: Trial) -> None:
    receiver, arrivals = received(trial, "dead", "alive")
    trial.hand_over(arrivals[:1])
    receiver.settle(arrivals[:1], Outcome(verb=Verb.DEAD_LETTER, reason="unreadable", properties={"why": "test"}))
    receiver.settle(arrivals[1:], RELEASE)
    trial.session.flush(trial.deadline)
    trial.session.close(trial.deadline)
    reject = trial.capabilities.reject
    if reject in ("requeue", "until_limit"):
        left = trial.left()
        assert sorted(left.bodies) == ["alive", "dead"]
        assert left.counts[left.bodies.index("dead")] in counts_after(trial, 1)
        return
    assert trial.left().bodies == ["alive"]
    error_destination = trial.harness.error_destination(trial.queue)
    if reject == "dead_letter" and error_destination is not None:
        assert "dead" in trial.left(error_destination).bodies
