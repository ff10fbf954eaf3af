"""A trigger on a scripted backend, run by its worker, and waiting for what it says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jmsclient.events import Event, subscribe
from jmsclient.testing import ScriptedBackend


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
    """Wait for a condition, at most ten seconds of real time."""

    def wait(condition: Callable[[], Any], timeout: float = 10.0) -> None:
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, "the condition did not come true in time"
            time.sleep(0.005)

    return wait
