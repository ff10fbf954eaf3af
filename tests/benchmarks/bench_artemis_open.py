"""Against a real Artemis, without targets: TLS, several consumers, latency, and persistent messages.

The last of these start another broker, one with a disk, so they come last. Needs what bench_artemis.py needs.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable

import artemis_clients as clients
from artemis_clients import WINDOW, Measured, Side
from artemis_places import CLIENT, new_queue, on
from bench_artemis import AVAILABLE, pair
from bench_pairs import Ratio, Size, on_a_thread

import jmsclient

PACE = 0.001
"""Seconds between two messages whose latency is measured."""
_SILENCE = 0.5
_FEW = 3


def consumers(number: int) -> Callable[[Size], float]:
    """Messages a second of so many consumers of one queue, each with a session and a thread, on one connection."""

    def measured(size: Size) -> float:
        count, queue = clients.messages(size, 100, 1_000_000), new_queue()
        place = clients.ready(size)
        clients.fill(queue, count, 100)
        spans: list[tuple[float, float]] = []

        def consume() -> None:
            consumer = connection.create_session().create_consumer(f"queue:///{queue}", prefetch=WINDOW)
            ready.wait()
            first = last = 0.0
            while (message := consumer.receive(_SILENCE)) is not None:
                message.message_id  # noqa: B018
                message.body  # noqa: B018
                last = time.perf_counter()
                first = first or last
            if first:
                spans.append((first, last))

        ready = threading.Barrier(number)
        with on(CLIENT), jmsclient.connect(place.url) as connection:
            threads = [threading.Thread(target=consume, name=f"bench-consumer-{one}") for one in range(number)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return count / (max(last for _, last in spans) - min(first for first, _ in spans))

    return measured


class Latency:
    """Milliseconds from before a send to after its receive, a thousand messages a second. Measured once for its median; the line
    about its 99th percentile, which comes after, gets the same."""

    def __init__(self) -> None:
        self._found: deque[list[float]] = deque()

    def median(self, size: Size) -> float:
        found = self._measured(size)
        self._found.append(found)
        return statistics.median(found) * 1e3

    def tail(self, size: Size) -> float:
        found = self._found.popleft() if self._found else self._measured(size)
        return statistics.quantiles(found, n=100)[-1] * 1e3

    def _measured(self, size: Size) -> list[float]:
        count, queue = max(50, size.messages // 10), f"queue:///{new_queue()}"
        place = clients.ready(size)
        sent, found = [0.0] * count, [0.0] * count
        ready = threading.Event()

        def receive() -> None:
            consumer = receiving.create_session().create_consumer(queue, prefetch=WINDOW)
            ready.set()
            next(consumer)
            for number in range(count):
                next(consumer)
                found[number] = time.perf_counter() - sent[number]

        def send() -> float:
            producer = sending.create_session().create_producer(queue, persistent=False)
            producer.send(b"")  # attached
            ready.wait()
            began = time.perf_counter()
            for number in range(count):
                time.sleep(max(0.0, began + number * PACE - time.perf_counter()))
                sent[number] = time.perf_counter()
                producer.send(b"x" * 100)
            return 0.0

        with on(CLIENT), jmsclient.connect(place.url) as sending, jmsclient.connect(place.url) as receiving:
            thread = threading.Thread(target=receive, name="bench-consumer")
            thread.start()
            on_a_thread(send)
            thread.join()
        return found


def _open(name: str, measured: Measured) -> Ratio:
    about = {"bytes": 100, "window": WINDOW, "acknowledge": "AUTO"}
    return Ratio(name=f"Artemis 100 B, {name}", ours=Side(measured).rate, pairs=_FEW, about=about)


def _ratios() -> tuple[Ratio, ...]:
    latency = Latency()
    millis = {"unit": "ms", "better": "lower", "pairs": _FEW}
    return (
        *pair("kept, over TLS, to without", 100, clients.ours(100, tls=True), clients.ours(100), None),
        *pair("send_many, over TLS, to without", 100, clients.our_sending(100, tls=True), clients.our_sending(100), None),
        Ratio(name="Artemis 100 B, four consumers, to one", ours=consumers(4), theirs=consumers(1)),
        Ratio(name="Artemis 100 B, latency at 1,000 a second, median", ours=latency.median, **millis),
        Ratio(name="Artemis 100 B, latency at 1,000 a second, 99th percentile", ours=latency.tail, **millis),
        _open("persistent, kept", clients.ours(100, persistent=True)),
        _open("persistent, send_many", clients.our_sending(100, persistent=True)),
    )


RATIOS = _ratios() if AVAILABLE else ()
