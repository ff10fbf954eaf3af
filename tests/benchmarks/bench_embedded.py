"""The embedded broker and the consumer, in memory: sending, receiving, read ahead, iterating, through the public calls.

What one thread does alone is measured by its CPU time, so that neighbours on the machine do not count; what two do, by the clock.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count, islice

from bench_pairs import Measurement, Ratio, Size, Timer, between_threads, on_a_thread

import jmsclient
from jmsclient import Connection, MessageConsumer, Queue

BATCH = 64
BODY = "x" * 100
WINDOW = 1_000

_brokers = count(1)


@contextmanager
def connection(parameters: str = "") -> Iterator[Connection]:
    """A connection to an embedded broker that nothing else uses."""
    with jmsclient.connect(f"embedded:bench-{next(_brokers)}{parameters}") as made:
        yield made


def fill(made: Connection, bodies: Iterable[str]) -> None:
    """Put these on the queue, and return when they are there: what the main thread sends may still be on its way."""

    def send() -> float:
        made.create_session().create_producer("queue:///bench", persistent=False).send_many(bodies)
        return 0.0

    on_a_thread(send)


# -- between two threads ----------------------------------------------------------------------------------------------------------


def standard_queue(size: Size, timer: Timer = time.perf_counter) -> float:
    """`queue.Queue`, put and get, one by one."""
    line: queue.Queue[str] = queue.Queue()

    def produce() -> None:
        for _ in range(size.messages):
            line.put(BODY)

    def consume() -> None:
        for _ in range(size.messages):
            assert line.get() == BODY

    return size.messages / between_threads(produce, consume, timer)


def send_one_receive_one(size: Size, timer: Timer = time.perf_counter) -> float:
    """A session and a thread on either side; `send` and `receive` one by one."""
    with connection() as made:
        producer = made.create_session().create_producer("queue:///bench", persistent=False)
        consumer = made.create_session().create_consumer("queue:///bench")

        def produce() -> None:
            for _ in range(size.messages):
                producer.send(BODY)

        def consume() -> None:
            for _ in range(size.messages):
                received = consumer.receive(30.0)
                assert received is not None
                assert received.body == BODY

        return size.messages / between_threads(produce, consume, timer)


def send_many_iterate(size: Size, timer: Timer = time.perf_counter) -> float:
    """`send_many` of 64 on one side, `for message in consumer` on the other."""
    with connection() as made:
        producer = made.create_session().create_producer("queue:///bench", persistent=False)
        consumer = made.create_session().create_consumer("queue:///bench")

        def produce() -> None:
            for start in range(0, size.messages, BATCH):
                producer.send_many([BODY] * min(BATCH, size.messages - start))

        def consume() -> None:
            for received in islice(consumer, size.messages):
                assert received.body == BODY

        return size.messages / between_threads(produce, consume, timer)


def by_cpu(measured: Callable[[Size, Timer], float]) -> Measurement:
    """The same by the CPU time of both threads: messages a second of it."""
    return lambda size: measured(size, time.process_time)


# -- out of a full queue ----------------------------------------------------------------------------------------------------------


def _receive_all(size: Size, open_consumer: Callable[[Connection], MessageConsumer]) -> float:
    """Messages a second out of a queue that is full."""
    with connection() as made:
        fill(made, [BODY] * size.messages)

        def receive() -> float:
            consumer = open_consumer(made)
            started = time.thread_time()
            for _ in range(size.messages):
                received = consumer.receive(30.0)
                assert received is not None
                assert received.body == BODY
            return time.thread_time() - started

        return size.messages / on_a_thread(receive)


def taken(size: Size) -> float:
    """With read ahead: non-persistent messages are settled as they arrive."""
    where = Queue("bench", read_ahead_allowed="yes")
    return _receive_all(size, lambda made: made.create_session().create_consumer(where))


def kept(size: Size) -> float:
    """The same window without read ahead: each message is settled when it is handed over."""
    where = Queue("bench", read_ahead_allowed="no")
    return _receive_all(size, lambda made: made.create_session().create_consumer(where, prefetch=WINDOW))


def pull(size: Size) -> float:
    """Each message is asked for when it is wanted."""
    return _receive_all(size, lambda made: made.create_session().create_consumer("queue:///bench", prefetch=0))


# -- iterating --------------------------------------------------------------------------------------------------------------------


def iterate_consumer(size: Size) -> float:
    """Seconds a message of `for message in consumer: message.body`, out of a full queue."""
    with connection() as made:
        fill(made, [BODY] * size.messages)

        def iterate() -> float:
            messages = islice(made.create_session().create_consumer("queue:///bench"), size.messages)
            started = time.thread_time()
            for message in messages:
                message.body  # noqa: B018  reading it is what is measured
            return time.thread_time() - started

        return on_a_thread(iterate) / size.messages


def iterate_deque(size: Size) -> float:
    """Seconds a message of the same loop over a deque of the same objects, whose bodies nobody has read either."""
    with connection() as made:
        fill(made, [BODY] * size.messages)

        def iterate() -> float:
            messages = deque(islice(made.create_session().create_consumer("queue:///bench"), size.messages))
            started = time.thread_time()
            for message in messages:
                message.body  # noqa: B018
            return time.thread_time() - started

        return on_a_thread(iterate) / size.messages


# -- the main thread --------------------------------------------------------------------------------------------------------------


def _send_all(size: Size, run: Callable[[Callable[[], float]], float]) -> float:
    with connection() as made:
        producer = made.create_session().create_producer("queue:///bench", persistent=False)

        def send() -> float:
            started = time.perf_counter()
            for _ in range(size.messages):
                producer.send(BODY)
            return time.perf_counter() - started

        return size.messages / run(send)


def send_on_main_thread(size: Size) -> float:
    """`send` one by one where signal handlers may raise (decision 3)."""
    return _send_all(size, lambda send: send())


def send_on_a_thread(size: Size) -> float:
    """`send` one by one on any other thread."""
    return _send_all(size, on_a_thread)


def _ratio(name: str, ours: Measurement, theirs: Measurement, target: float | None, **more: object) -> Ratio:
    about = {"acknowledge": "AUTO", "persistent": False, **more}
    return Ratio(name=f"embedded: {name}", ours=ours, theirs=theirs, target=target, about=about)


RATIOS = (
    _ratio("send one, receive one, to queue.Queue", send_one_receive_one, standard_queue, 0.4, threads=2),
    _ratio("send_many 64, iterate, to queue.Queue", send_many_iterate, standard_queue, 1.2, threads=2),
    _ratio("send one, receive one, to queue.Queue, by CPU", by_cpu(send_one_receive_one), by_cpu(standard_queue), None, threads=2),
    _ratio("send_many 64, iterate, to queue.Queue, by CPU", by_cpu(send_many_iterate), by_cpu(standard_queue), None, threads=2),
    _ratio("read ahead to pull", taken, pull, 2.0, threads=1),
    _ratio("taken to kept", taken, kept, 1.0, threads=1),
    Ratio(
        name="embedded: iterate and read the body, to a deque",
        ours=iterate_consumer,
        theirs=iterate_deque,
        target=25.0,
        better="lower",
        unit="s/message",
        about={"acknowledge": "AUTO", "persistent": False, "threads": 1},
    ),
    _ratio("send one on the main thread, to another thread", send_on_main_thread, send_on_a_thread, None, threads=1),
)
