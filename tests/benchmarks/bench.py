"""`make bench`: how fast this is, as ratios against something measured in the same breath.

A rate says more about the machine than about the code; the ratio of two rates, measured in turns, says something about the code.
Each ratio is the median of nine interleaved pairs; it passes when the median reaches its target and six of nine pairs do. Prints a
table and writes `bench.jsonl`, a line a ratio: name, ratio, target, better, and the figures behind it.
"""

from __future__ import annotations

import argparse
import gc
import json
import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import jmsclient
from jmsclient import Connection, MessageConsumer, Queue

PAIRS = 9
ENOUGH_PAIRS = 6
MESSAGES = 50_000
BATCH = 64
BODY = "x" * 100

Measurement = Callable[[int], float]  # a number of messages -> messages a second

_brokers = count(1)


@contextmanager
def connection() -> Iterator[Connection]:
    """A connection to an embedded broker that nothing else uses."""
    with jmsclient.connect(f"embedded:bench-{next(_brokers)}") as made:
        yield made


# -- what is measured -----------------------------------------------------------------------------------------------------


def between_threads(produce: Callable[[], None], consume: Callable[[], None], messages: int) -> float:
    """Messages a second from one thread to another, from the first send to the last receive. Neither is the main thread, where a
    consumer pays for its safety from signal handlers."""
    threads = [threading.Thread(target=consume, name="bench-consumer"), threading.Thread(target=produce, name="bench-producer")]
    gc.collect()
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return messages / (time.perf_counter() - started)


def standard_queue(messages: int) -> float:
    """`queue.Queue`, put and get, one by one."""
    line: queue.Queue[str] = queue.Queue()

    def produce() -> None:
        for _ in range(messages):
            line.put(BODY)

    def consume() -> None:
        for _ in range(messages):
            line.get()

    return between_threads(produce, consume, messages)


def send_one_receive_one(messages: int) -> float:
    """A session and a thread on either side; `send` and `receive` one by one."""
    with connection() as made:
        producer = made.create_session().create_producer("queue:///bench", persistent=False)
        consumer = made.create_session().create_consumer("queue:///bench")

        def produce() -> None:
            for _ in range(messages):
                producer.send(BODY)

        def consume() -> None:
            for _ in range(messages):
                received = consumer.receive(30.0)
                assert received is not None
                assert received.body == BODY

        return between_threads(produce, consume, messages)


def send_many_iterate(messages: int) -> float:
    """`send_many` of 64 on one side, `for message in consumer` on the other."""
    with connection() as made:
        producer = made.create_session().create_producer("queue:///bench", persistent=False)
        consumer = made.create_session().create_consumer("queue:///bench")

        def produce() -> None:
            for start in range(0, messages, BATCH):
                producer.send_many([BODY] * min(BATCH, messages - start))

        def consume() -> None:
            left = messages
            for received in consumer:
                assert received.body == BODY
                left -= 1
                if not left:
                    return

        return between_threads(produce, consume, messages)


def _receive_all(made: Connection, messages: int, open_consumer: Callable[[Connection], MessageConsumer]) -> float:
    """Messages a second out of a queue that is full, on a thread that is not the main one."""
    made.create_session().create_producer("queue:///bench", persistent=False).send_many([BODY] * messages)
    took = 0.0

    def receive() -> None:
        nonlocal took
        consumer = open_consumer(made)
        started = time.perf_counter()
        for _ in range(messages):
            received = consumer.receive(30.0)
            assert received is not None
            assert received.body == BODY
        took = time.perf_counter() - started

    thread = threading.Thread(target=receive, name="bench-receiver")
    gc.collect()
    thread.start()
    thread.join()
    return messages / took


def read_ahead(messages: int) -> float:
    """Out of a full queue with read ahead."""
    with connection() as made:
        where = Queue("bench", read_ahead_allowed="yes")
        return _receive_all(made, messages, lambda one: one.create_session().create_consumer(where))


def pull(messages: int) -> float:
    """Out of a full queue, each message asked for when it is wanted."""
    with connection() as made:
        return _receive_all(made, messages, lambda one: one.create_session().create_consumer("queue:///bench", prefetch=0))


# -- ratios ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """`ours` over `theirs`; `better` says which way is good."""

    name: str
    ours: Measurement
    theirs: Measurement
    target: float
    better: str = "higher"
    messages: int = MESSAGES
    about: dict[str, Any] = field(default_factory=dict)


RATIOS = (
    Ratio(
        name="embedded: send one, receive one, to queue.Queue",
        ours=send_one_receive_one,
        theirs=standard_queue,
        target=0.4,
        about={"acknowledge": "AUTO", "persistent": False, "threads": 2},
    ),
    Ratio(
        name="embedded: send_many 64, iterate, to queue.Queue",
        ours=send_many_iterate,
        theirs=standard_queue,
        target=0.8,
        about={"acknowledge": "AUTO", "persistent": False, "threads": 2},
    ),
    Ratio(
        name="embedded: read ahead to pull",
        ours=read_ahead,
        theirs=pull,
        target=2.0,
        about={"acknowledge": "AUTO", "persistent": False, "threads": 1},
    ),
)


def measure(ratio: Ratio, *, pairs: int, messages: int) -> dict[str, Any]:
    """One line of bench.jsonl. The two sides take turns in going first, so that a drift of the machine hits both."""
    for side in (ratio.ours, ratio.theirs):
        side(messages)  # to warm up; not counted
    rates: list[tuple[float, float]] = []
    for number in range(pairs):
        if number % 2:
            theirs, ours = ratio.theirs(messages), ratio.ours(messages)
        else:
            ours, theirs = ratio.ours(messages), ratio.theirs(messages)
        rates.append((ours, theirs))
    ratios = [ours / theirs for ours, theirs in rates]
    median = statistics.median(ratios)

    def reaches(value: float) -> bool:
        return value >= ratio.target if ratio.better == "higher" else value <= ratio.target

    return {
        "name": ratio.name,
        "ratio": round(median, 3),
        "target": ratio.target,
        "better": ratio.better,
        "passed": reaches(median) and sum(map(reaches, ratios)) >= ENOUGH_PAIRS * pairs / PAIRS,
        "low": round(min(ratios), 3),
        "high": round(max(ratios), 3),
        "pairs": [[round(ours), round(theirs)] for ours, theirs in rates],
        "unit": "messages/s",
        "messages": messages,
        **ratio.about,
    }


def table(lines: list[dict[str, Any]]) -> Table:
    shown = Table(title="medians of interleaved pairs")
    shown.add_column("ratio", min_width=48)
    for heading in ("median", "low", "high", "target", "ours/s", "theirs/s", ""):
        shown.add_column(heading, justify="right")
    for line in lines:
        ours, theirs = (statistics.median(side) for side in zip(*line["pairs"], strict=True))
        sign = "≥" if line["better"] == "higher" else "≤"
        shown.add_row(
            line["name"],
            f"{line['ratio']:.2f}",
            f"{line['low']:.2f}",
            f"{line['high']:.2f}",
            f"{sign} {line['target']:.2f}",
            f"{ours:,.0f}",
            f"{theirs:,.0f}",
            "reached" if line["passed"] else "missed",
        )
    return shown


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Print ratios and write them to bench.jsonl.")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="interleaved pairs a ratio")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="messages a measurement")
    parser.add_argument("--output", type=Path, default=Path("bench.jsonl"))
    given = parser.parse_args(arguments)
    lines = [measure(ratio, pairs=given.pairs, messages=given.messages) for ratio in RATIOS]
    given.output.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    Console(width=120).print(table(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
