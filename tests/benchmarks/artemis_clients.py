"""What each client does in a measurement against a real Artemis: ours, proton's three, and the two Java ones.

Each function gives a measurement: how many messages a second, and the client's CPU a message. A queue is filled by our sender for
whoever receives from it, so all get the same messages. Must not know targets.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from artemis_places import CLIENT, BenchArtemis, broker, java, new_queue, on
from bench_pairs import QUICK, Size, on_a_thread

import jmsclient

WINDOW = 1000
SHARES = {100: 1.0, 1024: 1.0, 10240: 0.25}
"""Of the messages of a measurement, by their size: 10 KB each would need gigabytes."""
AUTO, DUPS_OK = jmsclient.AcknowledgeMode.AUTO, jmsclient.AcknowledgeMode.DUPS_OK
TAKEN = "?readAheadAllowed=YES"


class Figures(NamedTuple):
    """Messages a second, and microseconds of the client's CPU, of all its threads, for one."""

    rate: float
    cpu: float


Measured = Callable[[Size], Figures]


class Side:
    """One side of a pair. Each measurement is made once, for its rate; the line about its CPU, which comes after, gets the same."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._found: deque[Figures] = deque()

    def rate(self, size: Size) -> float:
        found = self._measured(size)
        self._found.append(found)
        return found.rate

    def cpu(self, size: Size) -> float:
        return (self._found.popleft() if self._found else self._measured(size)).cpu


def messages(size: Size, bytes_: int, most: int) -> int:
    """How many: of a slow client no more than `most`."""
    return min(max(50, int(size.messages * SHARES.get(bytes_, 1.0))), most)


def ready(size: Size, *, persistent: bool = False) -> BenchArtemis:
    """The broker; a new one is warm, for a cold one is five times slower and would hide the client."""
    place = broker(persistent=persistent)
    if not place.warm:
        place.warm = True
        for _ in range(5 if size.messages > QUICK.messages else 0):
            ours(100, persistent=persistent)(Size(messages=40_000))
    return place


def fill(queue: str, count: int, bytes_: int, *, persistent: bool = False) -> None:
    """Put so many messages with two properties into a queue."""
    message = jmsclient.Message(b"x" * bytes_, properties={"kind": "order", "n": 7})
    with jmsclient.connect(broker(persistent=persistent).url) as connection:
        connection.create_session().create_producer(f"queue:///{queue}", persistent=persistent).send_many([message] * count)


def empty(place: BenchArtemis, queue: str, count: int) -> None:
    """Take what was sent out again: a broker that is full has other things to do than to listen."""
    with jmsclient.connect(place.url) as connection:
        stream = iter(connection.create_session().create_consumer(f"queue:///{queue}", prefetch=WINDOW))
        for _ in range(count):
            next(stream)


class Clock:
    """Time and CPU time between a start and an end."""

    def start(self) -> None:
        self._began, self._busy = time.perf_counter(), time.process_time()

    def figures(self, count: int) -> Figures:
        elapsed, busy = time.perf_counter() - self._began, time.process_time() - self._busy
        return Figures(count / elapsed, busy / count * 1e6)


# -- receiving ----------------------------------------------------------------------------------------------------------


def ours(
    bytes_: int,
    *,
    mode: Any = AUTO,
    prefetch: int = WINDOW,
    flags: str = "",
    most: int = 1_000_000,
    persistent: bool = False,
    tls: bool = False,
) -> Measured:
    """`for message in consumer`, from the second message on, its id and body read."""

    def measured(size: Size) -> Figures:
        count, queue = messages(size, bytes_, most), new_queue()
        place = ready(size, persistent=persistent)
        fill(queue, count, bytes_, persistent=persistent)
        clock = Clock()

        def run() -> None:
            session = connection.create_session(mode)
            stream = iter(session.create_consumer(f"queue:///{queue}{flags}", prefetch=prefetch))
            next(stream)
            clock.start()
            for _ in range(count - 1):
                message = next(stream)
                message.message_id  # noqa: B018
                message.body  # noqa: B018
            found.append(clock.figures(count - 1))

        found: list[Figures] = []
        with on(CLIENT), jmsclient.connect(place.tls_url if tls else place.url) as connection:
            on_a_thread(lambda: run() or 0.0)
        return found[0]

    return measured


def java_receiving(bytes_: int, client: str, mode: str) -> Measured:
    """The same in Java: `qpid` or `core`, `auto` or `dups`."""

    def measured(size: Size) -> Figures:
        count, queue = messages(size, bytes_, 1_000_000), new_queue()
        url = _java_url(client, ready(size).port)
        if size.messages > QUICK.messages:
            _warm_java(client, mode)
        fill(queue, count, bytes_)
        seconds, busy = java().run("receive", client, mode, url, queue, count)
        return Figures((count - 1) / seconds, busy / (count - 1) * 1e6)

    return measured


@cache
def _warm_java(client: str, mode: str) -> None:
    """Four times what the pairs begin with anyway: the compiler of a virtual machine takes its time."""
    url = _java_url(client, broker().port)
    for _ in range(4):
        queue = new_queue()
        if mode == "send":
            java().run("send", client, url, queue, 50_000, 100)
            empty(broker(), queue, 50_000)
        else:
            fill(queue, 50_000, 100)
            java().run("receive", client, mode, url, queue, 50_000)


def _java_url(client: str, port: int) -> str:
    return f"tcp://127.0.0.1:{port}" if client == "core" else f"amqp://127.0.0.1:{port}?jms.prefetchPolicy.all={WINDOW}"


def handler(bytes_: int) -> Measured:
    """proton's MessagingHandler with the same window."""

    def measured(size: Size) -> Figures:
        from proton.handlers import MessagingHandler
        from proton.reactor import Container

        count, queue, url = messages(size, bytes_, 5000), new_queue(), ready(size).url
        fill(queue, count, bytes_)
        clock, found = Clock(), list[Figures]()

        class Taking(MessagingHandler):  # type: ignore[misc]
            left = count

            def __init__(self) -> None:
                super().__init__(prefetch=WINDOW)

            def on_start(self, event: Any) -> None:
                connection = event.container.connect(url, allowed_mechs="ANONYMOUS", reconnect=False)
                event.container.create_receiver(connection, queue)

            def on_message(self, event: Any) -> None:
                if self.left == count:
                    clock.start()
                self.left -= 1
                event.message.id  # noqa: B018
                event.message.body  # noqa: B018
                if not self.left:
                    found.append(clock.figures(count - 1))
                    event.connection.close()

        with on(CLIENT):
            on_a_thread(lambda: Container(Taking()).run() or 0.0)
        return found[0]

    return measured


def blocking_receiver(bytes_: int) -> Measured:
    """proton's BlockingReceiver with the same window, each message accepted."""

    def measured(size: Size) -> Figures:
        count, queue, url = messages(size, bytes_, 5000), new_queue(), ready(size).url
        fill(queue, count, bytes_)
        clock, found = Clock(), list[Figures]()

        def run() -> None:
            from proton.utils import BlockingConnection

            connection = BlockingConnection(url, timeout=30, allowed_mechs="ANONYMOUS")
            receiver = connection.create_receiver(queue, credit=WINDOW)
            for number in range(count):
                message = receiver.receive()
                message.id  # noqa: B018
                message.body  # noqa: B018
                receiver.accept()
                if number == 0:
                    clock.start()
            found.append(clock.figures(count - 1))
            connection.close()

        with on(CLIENT):
            on_a_thread(lambda: run() or 0.0)
        return found[0]

    return measured


# -- sending ------------------------------------------------------------------------------------------------------------


def our_sending(bytes_: int, *, persistent: bool = False, tls: bool = False) -> Measured:
    """`send_many`: every outcome has come when it returns."""

    def measured(size: Size) -> Figures:
        count, queue = messages(size, bytes_, 1_000_000), new_queue()
        place = ready(size, persistent=persistent)
        bodies = [b"x" * bytes_] * count
        clock, found = Clock(), list[Figures]()

        def run() -> None:
            producer = connection.create_session().create_producer(f"queue:///{queue}", persistent=persistent)
            producer.send(bodies[0])  # attached
            clock.start()
            producer.send_many(bodies)
            found.append(clock.figures(count))

        with on(CLIENT), jmsclient.connect(place.tls_url if tls else place.url) as connection:
            on_a_thread(lambda: run() or 0.0)
        empty(place, queue, count + 1)
        return found[0]

    return measured


def blocking_sender(bytes_: int) -> Measured:
    """proton's BlockingSender: one after the other, for it waits for each outcome."""

    def measured(size: Size) -> Figures:
        count, queue, place = messages(size, bytes_, 2000), new_queue(), ready(size)
        clock, found = Clock(), list[Figures]()

        def run() -> None:
            from proton import Message
            from proton.utils import BlockingConnection

            connection = BlockingConnection(place.url, timeout=30, allowed_mechs="ANONYMOUS")
            sender = connection.create_sender(queue)
            body = b"x" * bytes_
            clock.start()
            for _ in range(count):
                sender.send(Message(body=body, durable=False))
            found.append(clock.figures(count))
            connection.close()

        with on(CLIENT):
            on_a_thread(lambda: run() or 0.0)
        empty(place, queue, count)
        return found[0]

    return measured


def java_sending(bytes_: int, client: str) -> Measured:
    """The same in Java, which does not wait for the outcome of a non-persistent message."""

    def measured(size: Size) -> Figures:
        count, queue, place = messages(size, bytes_, 1_000_000), new_queue(), ready(size)
        url = _java_url(client, place.port)
        if size.messages > QUICK.messages:
            _warm_java(client, "send")
        seconds, busy = java().run("send", client, url, queue, count, bytes_)
        empty(place, queue, count)
        return Figures(count / seconds, busy / count * 1e6)

    return measured
