"""Clocks, bells and time-outs (IF-1, IF-2)."""

from __future__ import annotations

import math
import threading
import time

import pytest

from jmsclient.clock import LONGEST_WAIT, SYSTEM_CLOCK, SystemBell, checked_timeout


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (None, None),
        (0, 0.0),
        (0.5, 0.5),
        (3, 3.0),
        (math.inf, None),
        (LONGEST_WAIT * 2, None),
        (10**400, None),
    ],
    ids=["for_ever", "no_wait", "half", "whole", "infinite", "beyond", "any_size"],
)
def test_if_1_timeouts_are_seconds(given: float | None, taken: float | None) -> None:
    assert checked_timeout(given) == taken


@pytest.mark.parametrize("given", [-1, -0.001, math.nan, -math.inf, "1", True, b"1", [1]], ids=repr)
def test_if_1_anything_else_is_a_value_error_that_names_it(given: object) -> None:
    with pytest.raises(ValueError, match="grace=") as caught:
        checked_timeout(given, "grace")  # type: ignore[arg-type]
    assert repr(given) in str(caught.value)


def test_deadlines_are_monotonic_times_and_none_stays_none() -> None:
    deadline = SYSTEM_CLOCK.deadline(10.0)
    assert deadline is not None
    assert 9.0 < (SYSTEM_CLOCK.left(deadline) or 0.0) <= 10.0
    assert SYSTEM_CLOCK.deadline(None) is None
    assert SYSTEM_CLOCK.deadline(math.inf) is None
    assert SYSTEM_CLOCK.left(None) is None
    assert SYSTEM_CLOCK.left(SYSTEM_CLOCK.monotonic() - 5) == 0.0


def test_a_bell_keeps_one_ring_however_often_it_was_rung() -> None:
    bell = SystemBell()
    assert bell.wait(0) is False
    bell.ring()
    bell.ring()
    assert bell.wait(0) is True
    assert bell.wait(-5) is False


def test_a_bell_gives_up_after_its_timeout() -> None:
    start = time.monotonic()
    assert SYSTEM_CLOCK.bell().wait(0.03) is False
    assert 0.025 <= time.monotonic() - start < 2


def test_a_bell_wakes_a_waiter_in_another_thread() -> None:
    bell = SYSTEM_CLOCK.bell()
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(bell.wait(math.inf)))
    thread.start()
    bell.ring()
    thread.join(5)
    assert answers == [True]


def test_wall_and_monotonic_are_the_systems() -> None:
    assert abs(SYSTEM_CLOCK.wall() - time.time()) < 5
    assert SYSTEM_CLOCK.monotonic() <= SYSTEM_CLOCK.monotonic()
