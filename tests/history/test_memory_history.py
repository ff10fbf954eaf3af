"""What only the history in memory has: the clock it is given, and a sweep that needs no reader (TR-43, TR-44, D09)."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest

from jmsclient.history import State
from jmsclient.history.memory import MemoryHistory
from jmsclient.history.sweeper import LONGEST_INTERVAL, Sweeper
from jmsclient.testing import ManualClock

T = "orders"


def until(condition: object) -> None:
    end = time.monotonic() + 30
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.005)


def test_tr43_leases_and_lives_are_measured_on_the_clock_given() -> None:
    clock = ManualClock()
    with MemoryHistory(clock=clock) as history:
        history.claim(T, "1", token="a", lease=60.0, history_ttl=86_400.0)
        clock.jump_wall(10_000)
        clock.advance(59.0)
        entry = history.lookup(T, "1")
        assert entry is not None
        assert (entry.lease_left, entry.started, entry.updated) == (1.0, 59.0, 59.0)
        clock.advance(1.0)
        entry = history.lookup(T, "1")
        assert entry is not None
        assert entry.lease_alive is False
        clock.advance(86_400.0)
        assert history.lookup(T, "1") is None


def test_tr44_purge_expired_returns_what_it_removed_and_spares_the_rest() -> None:
    clock = ManualClock()
    with MemoryHistory(clock=clock) as history:
        for number in range(1500):
            history.claim(T, str(number), history_ttl=5000.0 if number % 2 else 2000.0)
        history.park(T, "parked", token="a", envelope=b"x", reason="r")
        clock.advance(500.0)
        assert history.purge_expired() == 0
        history._sweeper.close()
        clock.advance(2000.0)
        assert history.purge_expired() == 750
        assert history.statistics() == {"processing": 750, "in_doubt": 1}


def test_d09_memory_shrinks_without_being_read() -> None:
    clock = ManualClock()
    with MemoryHistory(clock=clock) as history:
        history.claim(T, "1", lease=1.0, history_ttl=2.0)
        until(lambda: clock.waiters == 1)
        clock.advance(1.5)
        time.sleep(0.02)
        assert len(history._records) == 1
        until(lambda: clock.waiters == 1)
        clock.advance(1.0)
        until(lambda: not history._records)
        assert history.claim(T, "1").entry is None


def test_tr44_a_shorter_history_ttl_shortens_the_interval_to_half_of_it() -> None:
    clock = ManualClock()
    with MemoryHistory(clock=clock) as history:
        history.claim(T, "1", history_ttl=86_400.0)
        assert history._sweeper.interval == LONGEST_INTERVAL
        history.claim(T, "2", history_ttl=30.0)
        assert history._sweeper.interval == 15.0


def sweepers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "jmsclient-history-sweeper"}


@pytest.mark.parametrize("how", ["closed", "forgotten"])
def test_the_sweeper_ends_with_its_history(how: str) -> None:
    before = sweepers()  # of tests before this one: they may end meanwhile
    history = MemoryHistory()
    history.claim(T, "1")
    (own,) = sweepers() - before
    if how == "closed":
        history.close()
    seen = weakref.ref(history)
    del history
    gc.collect()
    until(lambda: seen() is None)  # the sweeper may hold it for a moment
    until(lambda: not own.is_alive())


def test_a_sweep_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    swept = []

    class Store:
        def sweep(self) -> None:
            swept.append(1)
            if len(swept) == 1:
                raise OSError("no")

    store = Store()
    sweeper = Sweeper(clock, store.sweep)
    sweeper.watch(2.0)
    for times in (1, 2):
        until(lambda: clock.waiters == 1)
        clock.advance(1.0)
        until(lambda times=times: len(swept) == times)  # type: ignore[misc]
    sweeper.close()
    assert "tried again" in caplog.text


def test_not_durable_but_parks_for_whoever_asks() -> None:
    with MemoryHistory() as history:
        assert history.durable is False
        history.park(T, "1", token="a", envelope=b"x", reason="r")
        entry = history.lookup(T, "1")
        assert entry is not None
        assert entry.state is State.IN_DOUBT
