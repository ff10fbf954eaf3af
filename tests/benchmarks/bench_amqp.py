"""Receiving over AMQP from a peer that only sends: messages for a second of the client's CPU, so no broker and no neighbour
counts.

Against the engine driven bare (no session, no buffer, no acknowledge modes), and against proton's own handler. Needs
python-qpid-proton.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench_pairs import Ratio, Size, on_a_thread

import jmsclient

try:
    from jmsclient_amqp.content import AmqpContent
    from jmsclient_amqp.engine.connection import Engine
    from jmsclient_amqp.engine.links import Terminus
    from jmsclient_amqp.header import Headers
    from jmsclient_amqp.naming import Naming
    from jmsclient_amqp.outcomes import ACCEPT
    from jmsclient_amqp.primitives import mapped, symbols
    from jmsclient_amqp.reach import reach
    from jmsclient_amqp.sections import scan
    from jmsclient_amqp.settings import settings_of
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = True

WINDOW = 1000
SIZES = (100, 1024, 10240)


@lru_cache
def firehose(size: int) -> str:
    """The URL of one that runs until we end."""
    program = Path(__file__).with_name("firehose.py")
    process = subprocess.Popen([sys.executable, str(program), str(size)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    process.stdout.close()

    def end() -> None:
        process.kill()
        process.wait()

    atexit.register(end)
    return f"amqp://127.0.0.1:{port}?idle_timeout=0"


def _rate(count: int, read: Callable[[int], None]) -> float:
    """Messages for a second of CPU, of all threads."""

    def timed() -> float:
        started = time.process_time()
        read(count)
        return count / (time.process_time() - started)

    return on_a_thread(timed)


def ours(bytes_: int, *, taken: bool) -> Callable[[Size], float]:
    def measured(size: Size) -> float:
        with jmsclient.connect(firehose(bytes_)) as connection:
            name = "queue:///firehose" + ("?readAheadAllowed=YES" if taken else "")
            consumer = connection.create_session().create_consumer(name, prefetch=WINDOW)
            messages = iter(consumer)
            next(messages)

            def read(count: int) -> None:
                for _ in range(count):
                    message = next(messages)
                    message.message_id  # noqa: B018
                    message.body  # noqa: B018

            return _rate(size.messages, read)

    return measured


def bare(bytes_: int) -> Callable[[Size], float]:
    """The engine, a blocking socket, and the same decoding: nothing that a client needs besides."""

    def measured(size: Size) -> float:
        settings = settings_of(jmsclient.transport.registry.parse_url(firehose(bytes_)))
        clock = jmsclient.clock.SYSTEM_CLOCK
        connection, _ = reach(settings, clock, None)
        connection.settimeout(None)
        engine = Engine(
            container="bare", hostname="x", idle_timeout=0, max_frame=65536, properties=mapped([]), desired=symbols(["x"])
        )
        engine.open()
        link = engine.session().receiver("bare", Terminus("firehose"), Terminus("bare"), pre_settled=False)
        link.flow(WINDOW)
        naming, headers = Naming(), Headers()

        def write() -> None:
            while (data := engine.pending()) is not None:
                engine.sent(connection.send(data))

        def read(count: int) -> None:
            found = owed = 0
            while found < count:
                write()
                engine.feed(connection.recv_into(engine.incoming))
                messages = link.take().messages
                for _, raw, _ in messages:
                    at = scan(raw)
                    content = AmqpContent(raw, at, headers.of(raw, at.header), naming, False)
                    content.message_id  # noqa: B018
                    content.body()
                found += len(messages)
                owed += len(messages)
                link.settle([number for number, _, _ in messages], ACCEPT)
                if owed >= WINDOW // 4:
                    link.flow(owed)
                    owed = 0

        try:
            return _rate(size.messages, read)
        finally:
            connection.close()
            engine.free()

    return measured


def handler(bytes_: int) -> Callable[[Size], float]:
    """proton's MessagingHandler with the same window, reading the same."""

    def measured(size: Size) -> float:
        from proton.handlers import MessagingHandler
        from proton.reactor import Container

        count = min(size.messages, 10_000)

        class Taking(MessagingHandler):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__(prefetch=WINDOW)
                self.found = 0

            def on_start(self, event: Any) -> None:
                connection = event.container.connect(firehose(bytes_).partition("?")[0], reconnect=False)
                event.container.create_receiver(connection, "firehose")

            def on_message(self, event: Any) -> None:
                event.message.id  # noqa: B018
                event.message.body  # noqa: B018
                self.found += 1
                if self.found == count:
                    event.connection.close()

        return _rate(count, lambda _: Container(Taking()).run())

    return measured


def _ratios() -> tuple[Ratio, ...]:
    unit = "messages/s of CPU"
    handlers = {100: 8.0, 1024: 8.0, 10240: 15.0}
    found: list[Ratio] = []
    for size in SIZES:
        about = {"bytes": size, "window": WINDOW, "acknowledge": "AUTO"}
        kept = ours(size, taken=False)
        for theirs, name, target in (
            (bare(size), "the engine driven bare", 0.5),
            (handler(size), "proton's MessagingHandler", handlers[size]),
        ):
            named = f"AMQP {size} B, kept, to {name}"
            found.append(Ratio(name=named, ours=kept, theirs=theirs, target=target, unit=unit, about=about))
    taken = ours(100, taken=True)
    found.append(Ratio(name="AMQP 100 B, taken, to kept", ours=taken, theirs=ours(100, taken=False), target=1.0, unit=unit))
    return tuple(found)


RATIOS = _ratios() if AVAILABLE else ()
