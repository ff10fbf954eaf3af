"""Idle release and purge of the intake (RA-11, RA-13, RA-26, IF-17, IF-18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jmsclient.errors import RequestTimeoutError
from jmsclient.intake import Intake
from jmsclient.testing import ManualClock

Attached = Callable[..., Intake]


def balanced(intake: Intake) -> bool:
    """RA-26: the equation."""
    c = intake.counters
    return c.fetched == c.delivered + c.buffered + c.held + c.released + c.purged + c.expired + c.discarded + c.refused


def test_ra13_idle_takes_demand_back_until_asked(receiver: Any, attached: Attached) -> None:
    rings: list[int] = []
    intake = attached(window=4, on_arrival=lambda: rings.append(1))
    intake.start()
    receiver.put()
    receiver.put()
    rings.clear()
    assert intake.give_back_idle(None) == 2
    assert (receiver.demand, receiver.drains, intake.counters.granted, intake.buffered, len(rings)) == (0, 1, 0, 0, 1)
    intake.top_up()
    assert receiver.demand == 0
    assert intake.give_back_idle(None) is None
    intake.asked()
    assert (receiver.demand, intake.idle, balanced(intake)) == (4, False, True)


def test_ra13_asked_while_it_drains_grants_the_window_afterwards(receiver: Any, attached: Attached) -> None:
    """Nothing is requested while a drain runs, and no demand is forgotten (IF-17, IF-18)."""
    intake = attached(window=4)
    intake.start()
    receiver.put()
    drain = receiver.drain

    def ask_meanwhile(deadline: float | None) -> None:
        before = list(receiver.requests)
        intake.asked()
        assert receiver.requests == before
        drain(deadline)

    receiver.drain = ask_meanwhile
    assert intake.give_back_idle(None) == 1
    counters = intake.counters
    assert (counters.granted + counters.buffered, receiver.demand, balanced(intake)) == (4, 4, True)


def test_ra13_a_drain_that_fails_still_gives_back(receiver: Any, attached: Attached) -> None:
    intake = attached(window=4)
    intake.start()
    receiver.put()

    def fail(deadline: float | None) -> None:
        raise RequestTimeoutError("no answer")

    receiver.drain = fail
    with pytest.raises(RequestTimeoutError):
        intake.give_back_idle(None)
    assert (intake.buffered, intake.counters.released, intake.unsure, balanced(intake)) == (0, 1, True, True)


@pytest.mark.parametrize("releasable", [True, False])
def test_ra11_purge(receiver: Any, attached: Attached, releasable: bool) -> None:
    """RA-11: a kept one is released where the provider can, else it stays; taken ones are dropped."""
    clock = ManualClock()
    intake = attached(window=4, takes=True, clock=clock)
    intake.start()
    taken, kept = receiver.put(persistent=False), receiver.put()
    clock.advance(10)
    young = receiver.put(persistent=False)
    purged = [(taken, 10.0, False), (kept, 10.0, True)]
    assert intake.purge(5.0, releasable=releasable) == (purged if releasable else purged[:1])
    assert list(intake.queue) == ([young] if releasable else [kept, young])
    assert (intake.counters.purged, intake.counters.released, balanced(intake)) == (2 if releasable else 1, 0, True)
    assert intake.purge(11.0, releasable=releasable) == []
