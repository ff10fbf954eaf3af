"""Interleaved pairs: what is measured against what, how often, and when a ratio passes.

Knows nothing of what it measures. Source: a rate says more about the machine than about the code; the ratio of two rates that were
measured in turns says something about the code.
"""

from __future__ import annotations

import gc
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PAIRS = 9
ENOUGH_PAIRS = 6  # of nine


class LeftOut(Exception):  # noqa: N818  it is a reason, not a failure
    """Why a ratio cannot be measured here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How much is measured: `messages` a measurement; `few` and `many` wait where growth is measured."""

    messages: int = 50_000
    few: int = 1_000
    many: int = 1_000_000


QUICK = Size(messages=200, few=50, many=500)
"""To see that it runs; its figures say nothing."""

Measurement = Callable[[Size], float]
Timer = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """`ours` over `theirs`; without `theirs`, `ours` itself. `better` says which way is good; without `target` it only informs.

    `pairs`: of a slow one, fewer than the others.
    """

    name: str
    ours: Measurement
    theirs: Measurement | None = None
    target: float | None = None
    better: str = "higher"
    unit: str = "messages/s"
    pairs: int = PAIRS
    about: dict[str, Any] = field(default_factory=dict)

    def reaches(self, value: float) -> bool:
        """Whether a value is as good as its target."""
        return self.target is None or (value >= self.target if self.better == "higher" else value <= self.target)


def measure(ratio: Ratio, size: Size, pairs: int) -> dict[str, Any]:
    """One line of bench.jsonl. The two sides take turns in going first, so that a drift of the machine hits both. It passes when
    the median reaches its target and six of nine pairs do."""
    theirs = ratio.theirs
    for side in (ratio.ours, theirs):
        if side is not None and ratio.pairs == PAIRS:
            side(size)  # to warm up; not counted
    found: list[tuple[float, float]] = []
    for number in range(min(pairs, ratio.pairs)):
        if theirs is None:
            found.append((ratio.ours(size), 1.0))
        elif number % 2:
            second = theirs(size)
            found.append((ratio.ours(size), second))
        else:
            found.append((ratio.ours(size), theirs(size)))
    ratios = [ours / other for ours, other in found]
    median = statistics.median(ratios)
    return {
        "name": ratio.name,
        "ratio": round(median, 3),
        "target": ratio.target,
        "better": ratio.better,
        "passed": ratio.reaches(median) and sum(map(ratio.reaches, ratios)) >= ENOUGH_PAIRS / PAIRS * len(ratios),
        "low": round(min(ratios), 3),
        "high": round(max(ratios), 3),
        "pairs": [[float(f"{value:.4g}") for value in pair] for pair in found],
        "unit": ratio.unit,
        "messages": size.messages,
        **ratio.about,
    }


def between_threads(produce: Callable[[], None], consume: Callable[[], None], timer: Timer = time.perf_counter) -> float:
    """Seconds from the first send of one thread to the last receive of the other; with `time.process_time`, of both their CPU.
    Neither is the main thread, which hands its work to others (decision 3)."""
    threads = [threading.Thread(target=consume, name="bench-consumer"), threading.Thread(target=produce, name="bench-producer")]
    gc.collect()
    started = timer()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return timer() - started


def on_a_thread(call: Callable[[], float]) -> float:
    """What `call` returns on a thread that is not the main one."""
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(call()), name="bench-thread")
    gc.collect()
    thread.start()
    thread.join()
    return found[0]
