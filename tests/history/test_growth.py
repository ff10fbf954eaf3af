"""D09: a history under a steady stream of new ids stays as small as history_ttl says, and an id that is over is New again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from jmsclient.history import Claim, Complete, open_history
from jmsclient.history.memory import MemoryHistory
from jmsclient.testing import ManualClock

from .redis_program import RedisProgram, until

T = "orders"


def work(history: MemoryHistory, first: int, number: int, *, lease: float, history_ttl: float) -> None:
    """So many new messages, claimed and completed in groups."""
    for start in range(first, first + number, 100):
        ids = [str(one) for one in range(start, min(start + 100, first + number))]
        history.exchange([Claim(trigger=T, id=one, token="a", lease=lease, history_ttl=history_ttl) for one in ids])
        history.exchange([Complete(trigger=T, id=one, token="a", history_ttl=history_ttl) for one in ids])


def test_d09_ten_thousand_ids_in_memory_never_take_more_than_three_seconds_worth() -> None:
    clock = ManualClock()
    with MemoryHistory(clock=clock) as history:
        for second in range(10):
            work(history, second * 1000, 1000, lease=1.0, history_ttl=2.0)
            assert len(history._records) <= 3000
            clock.advance(1.0)  # the sweeper runs each second, unasked
            until(lambda: len(history._records) <= 2000)
        for _ in range(3):
            clock.advance(1.0)
        until(lambda: not history._records)
        assert history.claim(T, "0").claimed


@pytest.mark.real
def test_d09_on_redis_nothing_is_left_but_the_mark(start_redis: Callable[..., RedisProgram]) -> None:
    server = start_redis()
    ttl, rate = 0.5, 2000
    with open_history(server.url) as history:
        most = 0
        for batch in range(20):
            began = time.monotonic()
            work(history, batch * 200, 200, lease=0.2, history_ttl=ttl)
            until(lambda due=began + 200 / rate: time.monotonic() >= due)
            most = max(most, server.ask("DBSIZE"))
        assert most <= rate * (ttl + 1.0) + 200, "more than what a lifetime and the server's own sweep account for"
        until(lambda: server.ask("KEYS", "*") == [b"jmsclient:mark"])
        assert history.claim(T, "0").claimed


def test_tr44_what_is_over_is_absent_although_nothing_swept_it() -> None:
    clock = ManualClock()
    with MemoryHistory(clock=clock) as history:
        history._sweeper.close()
        history.complete(T, "1", token="a", history_ttl=2.0)
        history.claim(T, "2", token="a", lease=0.5, history_ttl=2.0)
        clock.advance(1.0)
        assert history.lookup(T, "2") is not None  # its lease is over, which is not absence
        clock.advance(1.0)
        assert (history.lookup(T, "1"), history.lookup(T, "2"), len(history._records)) == (None, None, 2)
        assert history.claim(T, "1").entry is None
        assert history.purge_expired() == 1
