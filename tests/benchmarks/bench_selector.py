"""A compiled selector against a lambda written by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from bench_pairs import Ratio, Size

from jmsclient.message import MessageKind, PlainContent
from jmsclient.selector import compile_selector

TEXT = "region = 'EU' AND amount > 100"
CONTENTS = [
    PlainContent(kind=MessageKind.TEXT, body="", properties={"region": region, "amount": amount, "other": "x"})
    for region in ("EU", "US")
    for amount in (50, 101, 250.5)
]


def compiled(size: Size) -> float:
    """Seconds an evaluation of the compiled selector, as the broker evaluates it."""
    selector = compile_selector(TEXT)
    assert selector is not None
    rounds = range(max(1, size.messages // len(CONTENTS)))
    started = time.thread_time()
    for _ in rounds:
        for content in CONTENTS:
            selector(content, 1)
    return (time.thread_time() - started) / (len(rounds) * len(CONTENTS))


def by_hand(size: Size) -> float:
    """Seconds an evaluation of a lambda on the same properties."""
    select: Callable[[Mapping[str, Any]], bool] = lambda one: one.get("region") == "EU" and one.get("amount", 0) > 100  # noqa: E731
    rounds = range(max(1, size.messages // len(CONTENTS)))
    started = time.thread_time()
    for _ in rounds:
        for content in CONTENTS:
            select(content.properties())
    return (time.thread_time() - started) / (len(rounds) * len(CONTENTS))


RATIOS = (
    Ratio(
        name=f"selector: {TEXT}, to a lambda",
        ours=compiled,
        theirs=by_hand,
        target=10.0,
        better="lower",
        unit="s/evaluation",
    ),
)
