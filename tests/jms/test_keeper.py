"""The keeper: order, errors, notes, the end (architecture "Threads, signals, finalizers")."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from jmsclient.errors import RequestTimeoutError
from jmsclient.events import Event, subscribe
from jmsclient.jms.keeper import Keeper
from jmsclient.testing import ManualClock


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    keeper = Keeper("test")
    yield keeper
    keeper.stop()


def test_calls_run_on_its_thread_one_after_the_other(keeper: Keeper) -> None:
    names = [keeper.call(lambda: threading.current_thread().name) for _ in range(3)]
    assert names == ["jmsclient-test-keeper"] * 3


def test_a_call_raises_what_the_work_raised(keeper: Keeper) -> None:
    with pytest.raises(ZeroDivisionError):
        keeper.call(lambda: 1 / 0)
    assert keeper.call(lambda: 7) == 7


def test_a_call_from_its_own_thread_does_not_wait_for_itself(keeper: Keeper) -> None:
    assert keeper.call(lambda: keeper.call(lambda: 7)) == 7


def test_shielded_moves_only_the_main_threads_work(keeper: Keeper) -> None:
    assert keeper.shielded(threading.get_ident) != threading.get_ident()
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(keeper.shielded(threading.get_ident) == threading.get_ident()))
    thread.start()
    thread.join()
    assert found == [True]


def test_a_note_that_fails_is_told_and_the_next_is_done(keeper: Keeper, wait_until: Callable[..., None]) -> None:
    events: list[Event] = []
    unsubscribe = subscribe(events.append)
    done: list[int] = []
    keeper.note(lambda: 1 / 0)
    keeper.note(lambda: done.append(1))
    wait_until(lambda: done)
    unsubscribe()
    assert [event.name for event in events] == ["note_failed"]


def test_what_is_timed_runs_when_due_in_order(wait_until: Callable[..., None]) -> None:
    clock = ManualClock()
    keeper = Keeper("timed", clock)
    done: list[str] = []
    start = clock.monotonic()
    keeper.at(start + 2, lambda: done.append("second"))
    keeper.at(start + 1, lambda: done.append("first"))
    wait_until(lambda: clock.waiters)
    keeper.call(lambda: None)
    assert done == []
    clock.advance(2)
    wait_until(lambda: len(done) == 2)
    keeper.stop()
    assert done == ["first", "second"]


def test_after_the_end_calls_are_done_by_the_caller() -> None:
    keeper = Keeper("ended")
    keeper.stop()
    assert keeper.call(threading.get_ident) == threading.get_ident()


def test_a_call_that_is_not_done_in_time_is_done_all_the_same() -> None:
    keeper = Keeper("test")
    free, done = threading.Event(), threading.Event()
    keeper.note(lambda: free.wait(10))
    for timeout in (0.0, 0.05):
        with pytest.raises(RequestTimeoutError):
            keeper.call(done.set, timeout)
    free.set()
    assert done.wait(20)
    assert keeper.call(lambda: 7, 5.0) == 7
    keeper.stop()
