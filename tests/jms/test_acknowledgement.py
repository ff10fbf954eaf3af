"""What acknowledge means, as pure functions (IF-39, S04)."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from jmsclient.clock import SYSTEM_CLOCK
from jmsclient.errors import ConfigurationError, IllegalStateError, UnsupportedFeatureError
from jmsclient.jms.acknowledgement import PRUNE_FROM, Unacknowledged, checked_mode, when_asked
from jmsclient.jms.gathering import Gathered
from jmsclient.message import MessageKind, PlainContent
from jmsclient.options import AcknowledgeMode
from jmsclient.transport.contract import Arrival, Outcome

AUTO, CLIENT = AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT
DUPS_OK, INDIVIDUAL = AcknowledgeMode.DUPS_OK, AcknowledgeMode.INDIVIDUAL


@pytest.mark.parametrize(
    ("mode", "closed", "settled", "answer"),
    [
        (AUTO, False, False, "ignore"),
        (AUTO, True, True, "ignore"),
        (CLIENT, False, False, "session"),
        (CLIENT, False, True, "ignore"),
        (DUPS_OK, False, False, "ignore"),
        (DUPS_OK, True, False, "ignore"),
        (INDIVIDUAL, False, False, "message"),
        (INDIVIDUAL, False, True, "ignore"),
    ],
)
def test_s04_when_asked(mode: AcknowledgeMode, closed: bool, settled: bool, answer: str) -> None:
    assert when_asked(mode, closed=closed, settled=settled) == answer


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
@pytest.mark.parametrize("settled", [True, False])
def test_s04_on_a_closed_session_it_raises(mode: AcknowledgeMode, settled: bool) -> None:
    with pytest.raises(IllegalStateError):
        when_asked(mode, closed=True, settled=settled)


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_transacted_needs_a_provider_with_transactions(mode: AcknowledgeMode) -> None:
    assert checked_mode(mode, transactions=True) is mode
    if mode is not AcknowledgeMode.TRANSACTED:
        assert checked_mode(mode, transactions=False) is mode
    else:
        with pytest.raises(UnsupportedFeatureError, match=mode.name):
            checked_mode(mode, transactions=False)


@pytest.mark.parametrize("mode", ["client", 1, None])
def test_what_is_no_mode_is_refused(mode: Any) -> None:
    with pytest.raises(ConfigurationError, match="AUTO"):
        checked_mode(mode, transactions=True)


def test_unacknowledged_keeps_order_and_forgets_by_identity() -> None:
    receivers: list[Any] = [object(), object()]
    content = PlainContent(kind=MessageKind.TEXT, body="x")
    arrivals = [Arrival(receivers[number % 2], number, content, delivery_count=1, persistent=True, size=1) for number in range(4)]
    kept = Unacknowledged()
    for arrival in arrivals:
        kept.append(arrival)
    kept.undo(arrivals[0])
    assert kept.all() == arrivals
    kept.undo(arrivals[3])
    kept.forget([arrivals[1]])
    assert kept.all() == [arrivals[0], arrivals[2]]
    assert (kept.any_of(receivers[0]), kept.any_of(receivers[1]), len(kept)) == (True, False, 2)


def test_if39_what_any_thread_acknowledged_is_forgotten_in_time() -> None:
    """IF-39: in INDIVIDUAL the list stays small though nobody but the session's thread changes it."""
    receiver: Any = object()
    content = PlainContent(kind=MessageKind.TEXT, body="x")
    kept = Unacknowledged()
    for number in range(3 * PRUNE_FROM):
        arrival = Arrival(receiver, number, content, delivery_count=1, persistent=True, size=1)
        kept.append(arrival)
        arrival.settled = True
    assert (len(kept) <= PRUNE_FROM, kept.all(), kept.any_of(receiver)) == (True, [], False)


class SlowReceiver:
    """The settlement that it is told of first takes until it may end; messages are marked at its end, as backends do."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.settled: list[Arrival] = []

    def settle(self, arrivals: list[Arrival], outcome: Outcome) -> None:
        self.begun.set()
        assert self.may_end.wait(10.0)
        self.settled += arrivals
        for arrival in arrivals:
            arrival.settled = True


def test_if39_what_is_gathered_is_settled_once_though_two_threads_flush() -> None:
    """The keeper, whose time has come, and the consumer, before it waits: a provider takes a second settlement for one too late."""
    receiver = SlowReceiver()
    gathered = Gathered(100, SYSTEM_CLOCK, lambda due, call: None)
    content = PlainContent(kind=MessageKind.TEXT, body="x")
    arrivals = [Arrival(cast(Any, receiver), n, content, delivery_count=1, persistent=False, size=1) for n in range(3)]
    for arrival in arrivals:
        gathered.add(arrival)
    threads = [threading.Thread(target=gathered.flush) for _ in range(2)]
    threads[0].start()
    assert receiver.begun.wait(10.0)
    threads[1].start()
    threads[1].join(0.05)
    assert threads[1].is_alive(), "whoever flushes returns when all is handed over, by whomever"
    receiver.may_end.set()
    for thread in threads:
        thread.join(10.0)
    assert receiver.settled == arrivals
    assert len(gathered) == 0
