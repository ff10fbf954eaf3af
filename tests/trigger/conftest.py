"""A trigger on a scripted backend, run by its worker, and waiting for what it says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from jmsclient import Worker
from jmsclient.errors import HistoryUnavailableError
from jmsclient.events import Event, subscribe
from jmsclient.history import DocumentHistory, Reply
from jmsclient.history.entries import Command, Renew
from jmsclient.history.memory import MemoryHistory
from jmsclient.testing import ManualClock, ScriptedBackend
from jmsclient.trigger.stand_in import StandIn


@pytest.fixture
def backend() -> Iterator[ScriptedBackend]:
    with ScriptedBackend() as scripted:
        yield scripted
        assert scripted.violations == []


@pytest.fixture
def events() -> Iterator[list[Event]]:
    """Every event of the test, in order."""
    heard: list[Event] = []
    unsubscribe = subscribe(heard.append)
    yield heard
    unsubscribe()


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], None]:
    """Wait for a condition, at most half a minute of real time."""

    def wait(condition: Callable[[], Any], timeout: float = 30.0) -> None:
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, "the condition did not come true in time"
            time.sleep(0.005)

    return wait


@pytest.fixture
def when(until: Callable[..., None]) -> Callable[[Callable[[], Any], Callable[[], Any]], None]:
    """Have something done by another thread once a condition is true."""

    def when(condition: Callable[[], Any], call: Callable[[], Any]) -> None:
        threading.Thread(target=lambda: (until(condition), call()), daemon=True).start()

    return when


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def by_hand(clock: ManualClock) -> Callable[[Worker], Worker]:
    """Have a worker that was not started yet live on `clock`."""

    def by_hand(worker: Worker) -> Worker:
        worker._clock = clock
        worker._bell = clock.bell()
        worker._stand_in = StandIn(worker.name, clock)
        return worker

    return by_hand


class Leased(MemoryHistory):
    """Its leases end by hand, and it counts how often they were renewed."""

    def __init__(self, clock: ManualClock, until: Callable[..., None]) -> None:
        super().__init__(clock=clock)
        self._by_hand, self._until = clock, until
        self._renewals = 0

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        replies = super().exchange(commands)
        self._renewals += sum(isinstance(one, Renew) for one in commands)
        return replies

    def outlast(self, lease: float) -> None:
        """Let more than twice this lease pass, each third of which somebody renews it, counted from when it had the claim's reply:
        that may be a moment after the claim."""
        for _ in range(4):
            before = self._renewals
            for _ in range(3):
                self._by_hand.advance(lease * 0.2)
            self._until(lambda: self._renewals > before)  # noqa: B023  it is called at once


@pytest.fixture
def leased(clock: ManualClock, until: Callable[..., None]) -> Leased:
    return Leased(clock, until)


class Switchable(DocumentHistory):
    """A history that can be switched off, for the commands that `off` names."""

    def __init__(self, inner: DocumentHistory) -> None:
        self.inner = inner
        self.off: type[Command] | None = None

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        if self.off is not None and any(isinstance(one, self.off) for one in commands):
            raise HistoryUnavailableError("switched off")
        return self.inner.exchange(commands)

    def lookup_many(self, trigger: str, ids: Any) -> Any:
        if self.off is not None:
            raise HistoryUnavailableError("switched off")
        return self.inner.lookup_many(trigger, ids)

    def in_doubt(self, trigger: str | None = None) -> Any:
        return self.inner.in_doubt(trigger)

    def decided(self, trigger: str | None = None, *, limit: int = 100) -> Any:
        if self.off is not None:
            raise HistoryUnavailableError("switched off")
        return self.inner.decided(trigger, limit=limit)

    def purge_expired(self) -> int:
        return self.inner.purge_expired()

    def statistics(self) -> dict[str, int]:
        return self.inner.statistics()

    def close(self) -> None:
        self.inner.close()


@pytest.fixture
def switchable() -> type[Switchable]:
    return Switchable
