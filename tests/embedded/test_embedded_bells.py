"""The bells that threads of the broker ring for each other: nothing rung is lost, whatever is rung for something else."""

from __future__ import annotations

import errno
import gc
import os
import threading
import time
from collections.abc import Callable

import pytest

from jmsclient.clock import SYSTEM_CLOCK, Bell
from jmsclient.errors import RequestTimeoutError
from jmsclient.testing import ManualClock
from jmsclient_embedded.bells import EventBell, new_bell, own_bell
from jmsclient_embedded.steps import Answer

PATIENCE = 20.0
ROUNDS = 3_000


def on_a_thread(call: Callable[[], object]) -> None:
    """Has `call` done on a thread that is not the main one."""
    done = []

    def run() -> None:
        call()
        done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    assert done


def test_a_ring_before_the_wait_is_kept_and_several_count_as_one() -> None:
    bell = EventBell()
    for _ in range(3):
        bell.ring()
    assert bell.wait(PATIENCE)
    assert not bell.wait(0)
    assert not bell.wait(0.001)
    assert not bell.wait(-1.0)
    bell.ring()
    assert bell.wait(0)
    bell.ring()
    assert bell.wait()
    bell.ring()
    assert bell.wait(1e9)


def test_a_wait_takes_as_long_as_it_may() -> None:
    started = time.monotonic()
    assert not EventBell().wait(0.02)
    assert time.monotonic() - started >= 0.02


def test_nothing_rung_is_lost_between_two_threads() -> None:
    there, back = EventBell(), EventBell()
    seen, sent = [0], [0]

    def answer() -> None:
        while seen[0] < ROUNDS:
            assert there.wait(PATIENCE)
            while seen[0] < sent[0]:
                seen[0] = sent[0]
                back.ring()

    thread = threading.Thread(target=answer)
    thread.start()
    for number in range(1, ROUNDS + 1):
        sent[0] = number
        there.ring()
        while seen[0] < number:
            assert back.wait(PATIENCE if number % 2 else None)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_many_ringers_lose_nothing() -> None:
    bell, left = EventBell(), list(range(8 * ROUNDS))
    done = []

    def ring() -> None:
        for _ in range(ROUNDS):
            done.append(left.pop())
            bell.ring()

    threads = [threading.Thread(target=ring) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(done) < 8 * ROUNDS:
        assert bell.wait(PATIENCE)
    for thread in threads:
        thread.join(PATIENCE)


def test_each_thread_has_its_own_and_closes_it_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine() -> tuple[Bell, Bell]:
        return own_bell(SYSTEM_CLOCK), own_bell(SYSTEM_CLOCK)

    pairs: list[tuple[Bell, Bell]] = []
    for _ in range(2):
        on_a_thread(lambda: pairs.append(mine()))
    (first, again), (other, _) = pairs
    assert first is again is not other
    assert isinstance(first, EventBell)
    file = first._file
    os.fstat(file)
    closed: list[int] = []  # whether the number is in use again nobody knows
    close = os.close
    monkeypatch.setattr(os, "close", lambda number: (closed.append(number), close(number)))
    del first, again
    pairs.clear()
    gc.collect()
    assert file in closed


def test_if_40_the_main_thread_and_another_clock_have_bells_of_their_own() -> None:
    assert threading.current_thread() is threading.main_thread()
    assert not isinstance(own_bell(SYSTEM_CLOCK), EventBell)
    others: list[Bell] = []
    on_a_thread(lambda: others.append(own_bell(ManualClock())))
    assert not isinstance(others[0], EventBell)
    assert not isinstance(new_bell(ManualClock()), EventBell)
    assert isinstance(new_bell(SYSTEM_CLOCK), EventBell)


def test_with_too_many_open_files_a_lock_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(value: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "eventfd", refused)
    bell = new_bell(SYSTEM_CLOCK)
    bell.ring()
    assert bell.wait(PATIENCE)


def test_an_answer_is_not_given_by_what_was_rung_for_another() -> None:
    def waits() -> None:
        late: Answer[int] = Answer(SYSTEM_CLOCK)
        with pytest.raises(RequestTimeoutError):
            late.wait(SYSTEM_CLOCK.deadline(0.001))
        one: Answer[int] = Answer(SYSTEM_CLOCK)
        late.give(1)  # rings for nobody any more
        threading.Timer(0.02, lambda: one.give(2)).start()
        assert one.wait(SYSTEM_CLOCK.deadline(PATIENCE)) == 2
        both = one.another()
        third: Answer[int] = Answer(SYSTEM_CLOCK)

        def give() -> None:
            both.give(3)
            third.give(4)

        on_a_thread(give)
        assert third.wait(SYSTEM_CLOCK.deadline(PATIENCE)) == 4
        assert both.wait(SYSTEM_CLOCK.deadline(PATIENCE)) == 3

    on_a_thread(waits)


def test_an_answer_that_its_own_waiter_gives_is_there_without_a_ring() -> None:
    def waits() -> None:
        rung: list[Bell] = []
        one: Answer[int] = Answer(SYSTEM_CLOCK, rung.append)
        one.give(1)
        assert one.wait(SYSTEM_CLOCK.deadline(PATIENCE)) == 1
        other: Answer[int] = Answer(SYSTEM_CLOCK, rung.append)
        on_a_thread(lambda: other.give(2))
        assert rung == [own_bell(SYSTEM_CLOCK)]
        assert other.wait(SYSTEM_CLOCK.deadline(PATIENCE)) == 2

    on_a_thread(waits)
