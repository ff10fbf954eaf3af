"""Owns the conformance checks of closing, sending and losing the link.

Must not know any backend: a check asks for a capability, never for a product, and where a backend does not declare one, the check
asks for what the core then relies on. None waits for time to pass. Source: transport/contract.py and rules.md.
"""

from __future__ import annotations

import threading

import pytest

from jmsclient.errors import ConnectionLostError, IllegalStateError, UnsupportedFeatureError
from jmsclient.testing.check import assert_seen_counted_unseen_not, check, counts_after, counts_of_unseen, received
from jmsclient.testing.trial import Trial
from jmsclient.transport.contract import ACCEPT, RETRY, Receiver


@check("IF-9")
def close_of_a_receiver_returns_what_is_unsettled(trial: Trial) -> None:
    receiver, arrivals = received(trial, "seen", "unseen", "accepted")
    trial.hand_over(arrivals[:1])
    receiver.settle(arrivals[2:], ACCEPT)
    receiver.close(trial.deadline)
    if trial.capabilities.close_returns_unsettled == "at_close":
        assert_seen_counted_unseen_not(trial)
        return
    receiver.settle(arrivals[:1], ACCEPT)
    trial.session.flush(trial.deadline)
    trial.session.close(trial.deadline)
    left = trial.left()
    assert left.bodies == ["unseen"]
    assert left.counts[0] in counts_of_unseen(trial)


@check("IF-9")
def close_of_a_session_counts_what_was_seen_and_nothing_else(trial: Trial) -> None:
    receiver, arrivals = received(trial, "seen", "unseen", "accepted")
    trial.hand_over([arrivals[0], arrivals[2]])
    receiver.settle(arrivals[2:], ACCEPT)
    trial.session.flush(trial.deadline)
    trial.session.close(trial.deadline)
    assert_seen_counted_unseen_not(trial)


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
    receiver, arrivals = received(trial, "seen", "unseen")
    trial.hand_over(arrivals[:1])
    trial.transport.close(trial.deadline)
    assert_seen_counted_unseen_not(trial)
    receiver.settle(arrivals, ACCEPT)
    receiver.request(1)
    assert trial.listener.losses == []
    with pytest.raises((ConnectionLostError, IllegalStateError)):
        trial.transport.open_session(transacted=False, deadline=trial.deadline)


@check("IF-30")
def sends_are_confirmed_in_order(trial: Trial) -> None:
    sender = trial.session.open_sender(trial.queue, trial.deadline)
    contents = [trial.content(str(number)) for number in range(30)]
    receipts = sender.send(contents, room_deadline=trial.deadline, confirm_timeout=trial.harness.patience)
    assert len(receipts) == 30
    left = trial.left()
    assert left.bodies == [str(number) for number in range(30)]
    assert [receipt.message_id for receipt in receipts] == [arrival.content.message_id for arrival in left.arrivals]


@check("IF-30")
def sends_that_begin_before_others_end_keep_their_order(trial: Trial) -> None:
    """Where a sender has no `begin`, it says so, and `send_many` sends one part after the other."""
    sender = trial.session.open_sender(trial.queue, trial.deadline)
    parts = [[trial.content(f"{part} {number}") for number in range(30)] for part in range(3)]
    if not sender.most_ahead:
        with pytest.raises(UnsupportedFeatureError):
            sender.begin(parts[0])
        return
    begun = [sender.begin(part) for part in parts]
    last = sender.send([trial.content("last")], room_deadline=trial.deadline, confirm_timeout=trial.harness.patience)
    receipts = [one.finish(room_deadline=trial.deadline, confirm_timeout=trial.harness.patience) for one in begun]
    assert not any(one.failed for one in begun)
    left = trial.left()
    assert left.bodies == [*(f"{part} {number}" for part in range(3) for number in range(30)), "last"]
    ids = [receipt.message_id for one in (*receipts, last) for receipt in one]
    assert ids == [arrival.content.message_id for arrival in left.arrivals]
    assert ids[:-1] == [one for part in begun for one in part.ids]


@check("IF-10")
def a_lost_link_is_told_once_and_its_messages_come_back(trial: Trial) -> None:
    receiver, arrivals = received(trial, "seen", "unseen")
    trial.hand_over(arrivals[:1])
    trial.harness.lose_link(trial.transport)
    trial.wait_for(lambda: trial.listener.losses, "listener.lost was not called")
    left = trial.left()
    counts = dict(zip(left.bodies, left.counts, strict=True))
    assert counts.keys() == {"seen", "unseen"}
    if trial.capabilities.count_after_loss != "unspecified":
        assert counts["seen"] in counts_after(trial, 1 if trial.capabilities.count_after_loss == "raised" else 0)
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
    receiver, arrivals = received(trial, "a", "b")
    trial.harness.lose_link(trial.transport)
    trial.wait_for(lambda: trial.listener.losses, "listener.lost was not called")
    receiver.settle(arrivals[:1], ACCEPT)
    receiver.settle(arrivals, RETRY)
    receiver.handing_over(arrivals)
    receiver.request(5)
    left = trial.left()
    assert sorted(left.bodies) == ["a", "b"]
    assert len(trial.sinks[0].arrivals) == 2
