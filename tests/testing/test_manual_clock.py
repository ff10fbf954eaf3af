"""Time moved by hand: waits end when it passes, and only then (IF-1 to IF-3)."""

from __future__ import annotations

import threading
import time

import pytest

from jmsclient.testing.manual_clock import ManualClock


def wait_for_waiter(clock: ManualClock) -> None:
    end = time.monotonic() + 30
    while not clock.waiters:
        assert time.monotonic() < end, "nobody waits"
        time.sleep(0.001)


def test_it_stands_still_until_moved() -> None:
    clock = ManualClock(monotonic=5.0, wall=100.0)
    assert (clock.monotonic(), clock.wall()) == (5.0, 100.0)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.wall()) == (7.5, 102.5)


def test_if_2_a_jump_of_the_wall_clock_is_no_time() -> None:
    clock = ManualClock()
    before = clock.monotonic()
    deadline = clock.deadline(1.0)
    clock.jump_wall(-3600.0)
    assert clock.monotonic() == before
    assert clock.left(deadline) == 1.0


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_time_does_not_run_back(seconds: float) -> None:
    with pytest.raises(ValueError, match="advance"):
        ManualClock().advance(seconds)


def test_a_wait_ends_when_its_time_has_passed_and_not_before() -> None:
    clock = ManualClock()
    bell = clock.bell()
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(bell.wait(10.0)))
    thread.start()
    wait_for_waiter(clock)
    clock.advance(9.0)
    thread.join(0.05)
    assert thread.is_alive()
    clock.advance(1.0)
    thread.join(5)
    assert answers == [False]
    assert clock.waiters == 0


@pytest.mark.parametrize("timeout", [None, 60.0, float("inf")], ids=["for_ever", "a_minute", "infinite"])
def test_a_ring_wakes_the_waiter(timeout: float | None) -> None:
    bell = ManualClock().bell()
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(bell.wait(timeout)))
    thread.start()
    bell.ring()
    thread.join(5)
    assert answers == [True]


def test_rings_before_the_wait_are_kept_as_one() -> None:
    bell = ManualClock().bell()
    bell.ring()
    bell.ring()
    assert bell.wait(0) is True
    assert bell.wait(0) is False
    assert bell.wait(-1) is False
