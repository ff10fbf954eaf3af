"""Owns the conformance checks of transactions, browsing and temporary queues.

Must not know any backend: a check asks for a capability, never for a product, and a backend that does not declare one refuses the
call that needs it. None waits for time to pass. Source: transport/contract.py and rules.md (T4 to T6, T12, T14, IF-14, IF-28,
RA-7).
"""

from __future__ import annotations

import contextlib

import pytest

from jmsclient.errors import IllegalStateError, InvalidDestinationError, UnsupportedFeatureError
from jmsclient.testing.check import check, counts_after
from jmsclient.testing.trial import RecordingSink, Trial
from jmsclient.transport.contract import ACCEPT, RELEASE, Arrival, Receiver, ReceiverSpec, TransportSession


def transacted(trial: Trial) -> TransportSession | None:
    """A transacted session; None where there is none, and the refusal is as it should be."""
    if trial.capabilities.transactions:
        return trial.transport.open_session(transacted=True, deadline=trial.deadline)
    with pytest.raises(UnsupportedFeatureError):
        trial.transport.open_session(transacted=True, deadline=trial.deadline)
    return None


def accepted(trial: Trial, session: TransportSession, number: int) -> tuple[Receiver, RecordingSink, list[Arrival]]:
    """So many messages, handed over and accepted into the transaction."""
    receiver, sink = trial.open_receiver(session=session)
    receiver.request(number)
    arrivals = trial.wait_for_arrivals(sink, number)
    trial.hand_over(arrivals)
    receiver.settle(arrivals, ACCEPT)
    assert all(arrival.settled for arrival in arrivals)
    return receiver, sink, arrivals


@check("T5")
def what_is_sent_is_there_after_the_commit(trial: Trial) -> None:
    session = transacted(trial)
    if session is None:
        return
    trial.send("a", "b", session=session)
    trial.send("before")
    session.commit(trial.deadline)
    session.commit(trial.deadline)  # there is nothing left to commit
    assert trial.left().bodies == ["before", "a", "b"]


@check("T6")
def what_is_sent_is_gone_after_the_rollback(trial: Trial) -> None:
    session = transacted(trial)
    if session is None:
        return
    trial.send("a", session=session)
    session.rollback(redelivery_delay=0.0, deadline=trial.deadline)
    trial.send("b", session=session)
    session.commit(trial.deadline)
    assert trial.left().bodies == ["b"]


@check("T12")
def what_is_accepted_is_gone_after_the_commit(trial: Trial) -> None:
    session = transacted(trial)
    if session is None:
        return
    trial.send("a", "b", "c")
    receiver, _, _ = accepted(trial, session, 2)
    session.commit(trial.deadline)
    session.rollback(redelivery_delay=0.0, deadline=trial.deadline)  # the next transaction, which is empty
    receiver.close(trial.deadline)
    session.close(trial.deadline)
    assert trial.left().bodies == ["c"]


@check("T14")
def what_is_accepted_comes_again_after_the_rollback_counted_and_first(trial: Trial) -> None:
    session = transacted(trial)
    if session is None:
        return
    trial.send("a", "b", "c", "d")
    receiver, sink = trial.open_receiver(session=session)
    receiver.request(4)
    arrivals = trial.wait_for_arrivals(sink, 4)
    trial.hand_over(arrivals[:2])
    receiver.settle(arrivals[:2], ACCEPT)
    receiver.settle(arrivals[2:], RELEASE)
    session.rollback(redelivery_delay=0.0, deadline=trial.deadline)
    receiver.request(4)
    again = trial.wait_for_arrivals(sink, 8)[4:]
    assert [arrival.content.body() for arrival in again] == ["a", "b", "c", "d"]
    assert all(arrival.delivery_count in counts_after(trial, 1) for arrival in again[:2])
    if trial.capabilities.release_without_count:
        assert all(arrival.delivery_count in counts_after(trial, 0) for arrival in again[2:])
    receiver.settle(again, ACCEPT)
    session.commit(trial.deadline)
    assert trial.left().bodies == []


@check("IF-14")
def a_closed_session_rolls_back_at_once(trial: Trial) -> None:
    session = transacted(trial)
    if session is None:
        return
    trial.send("a", "b")
    accepted(trial, session, 1)
    trial.send("sent", session=session)
    session.close(trial.deadline)
    left = trial.left()
    assert sorted(left.bodies) == ["a", "b"]
    assert left.counts[left.bodies.index("a")] in counts_after(trial, 1)


@check("IF-28")
def a_session_that_is_not_transacted_refuses(trial: Trial) -> None:
    error = IllegalStateError if trial.capabilities.transactions else (IllegalStateError, UnsupportedFeatureError)
    with pytest.raises(error):
        trial.session.commit(trial.deadline)
    with pytest.raises(error):
        trial.session.rollback(redelivery_delay=0.0, deadline=trial.deadline)


# -- browsing ----------------------------------------------------------------------------------------------------------


@check("RA-7")
def a_browser_shows_all_in_order_and_changes_nothing(trial: Trial) -> None:
    sink = RecordingSink()
    spec = ReceiverSpec(destination=trial.queue, kind="browse")
    if not trial.capabilities.browse:
        return  # the core refuses by the capability
    trial.send("a", "b", "c")
    browser = trial.session.open_receiver(spec, sink, trial.deadline)
    browser.request(2)
    browser.drain(trial.deadline)
    assert sink.bodies == ["a", "b"]
    browser.request(10)
    browser.drain(trial.deadline)
    assert sink.bodies == ["a", "b", "c"]
    assert all(arrival.settled for arrival in sink.arrivals)
    browser.close(trial.deadline)
    left = trial.left()
    assert left.bodies == ["a", "b", "c"]
    assert all(count in counts_after(trial, 0) for count in left.counts)


# -- temporary queues --------------------------------------------------------------------------------------------------


@check("JM-6.2.2")
def a_temporary_queue_is_its_connections_own(trial: Trial) -> None:
    try:
        queue = trial.session.create_temporary("queue", trial.deadline)
    except UnsupportedFeatureError:
        return
    other = trial.open_session(trial.connect())
    trial.send("a", session=other, queue=queue)
    with contextlib.suppress(InvalidDestinationError):  # where the provider can tell whose it is
        trial.open_receiver(session=other, queue=queue)[0].close(trial.deadline)
    receiver, sink = trial.open_receiver(queue=queue)
    receiver.request(1)
    trial.wait_for_arrivals(sink, 1)
    receiver.settle(sink.arrivals, ACCEPT)
    with pytest.raises(IllegalStateError):
        trial.session.delete_temporary(queue, trial.deadline)
    receiver.close(trial.deadline)
    trial.session.delete_temporary(queue, trial.deadline)
    with contextlib.suppress(InvalidDestinationError):
        trial.session.delete_temporary(queue, trial.deadline)
