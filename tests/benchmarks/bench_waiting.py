"""Many messages wait: what each costs in memory, and how much dearer the next one becomes, against a bare deque.

The cost of a message is the CPU time of sending one and receiving one while so many wait. With them: delayed messages on the same
queue, other destinations that hold messages, consumers that wait elsewhere.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench_embedded import BODY, connection, fill
from bench_pairs import Ratio, Size, on_a_thread

from jmsclient import Connection

PAIRS_OF_GROWTH = 3  # each fills a queue with a million messages
CYCLES = 20_000
ONE_DAY = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """What else the broker has while growth is measured."""

    delayed: int = 0
    destinations: int = 0
    consumers: int = 0


class Like:
    """As many references as a message has on the broker."""

    __slots__ = ("body", "message_id", "priority", "state")

    def __init__(self, body: str, message_id: str) -> None:
        self.body = body
        self.message_id = message_id
        self.priority = 4
        self.state = 0


def _body(number: int) -> str:
    return f"{number:0100d}"


@contextmanager
def _beside(made: Connection, beside: Beside) -> Iterator[None]:
    session = made.create_session()
    if beside.delayed:
        producer = session.create_producer("queue:///bench", persistent=False, delivery_delay=ONE_DAY)
        producer.send_many([BODY] * beside.delayed)
    for number in range(beside.destinations):
        session.create_producer(f"queue:///other-{number}", persistent=False).send(BODY)
    waiting = [made.create_session().create_consumer("queue:///empty") for _ in range(beside.consumers)]
    yield
    for consumer in waiting:
        consumer.close()


def _cost(waiting: int, cycles: int, beside: Beside) -> float:
    """Seconds a message, sent and received while `waiting` wait."""
    with connection() as made, _beside(made, beside):
        producer = made.create_session().create_producer("queue:///bench", persistent=False)
        fill(made, map(_body, range(waiting)))

        def cycle() -> float:
            consumer = made.create_session().create_consumer("queue:///bench")
            started = time.thread_time()
            for number in range(cycles):
                producer.send(_body(number))
                assert consumer.receive(30.0) is not None
            return time.thread_time() - started

        return on_a_thread(cycle) / cycles


def _cost_of_deque(waiting: int, cycles: int) -> float:
    line = deque(Like(_body(number), f"ID:{number}") for number in range(waiting))

    def cycle() -> float:
        started = time.thread_time()
        for number in range(cycles):
            line.append(Like(_body(number), f"ID:{number}"))
            line.popleft()
        return time.thread_time() - started

    return on_a_thread(cycle) / cycles


def _cycles(size: Size) -> int:
    return min(CYCLES, size.messages)


def growth_of_deque(size: Size) -> float:
    """How many times dearer a message is with many in a deque than with few."""
    return _cost_of_deque(size.many, _cycles(size)) / _cost_of_deque(size.few, _cycles(size))


def _growth(name: str, beside: Beside) -> Ratio:
    def growth(size: Size) -> float:
        return _cost(size.many, _cycles(size), beside) / _cost(size.few, _cycles(size), beside)

    return Ratio(
        name=f"waiting: growth of cost, {name}, to a deque",
        ours=growth,
        theirs=growth_of_deque,
        target=1.25,
        better="lower",
        unit="times",
        pairs=PAIRS_OF_GROWTH,
        about={"acknowledge": "AUTO", "persistent": False, "threads": 1},
    )


# -- memory -----------------------------------------------------------------------------------------------------------------------


def _resident() -> int:
    """Bytes that this process has in memory. Linux."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmRSS")


def _fill_and_tell(waiting: int) -> None:
    """In a process of its own: print the bytes each message takes beyond its body."""
    with connection() as made:
        fill(made, [BODY] * 100)
        before = _resident()
        fill(made, map(_body, range(waiting)))
        print((_resident() - before) / waiting - sys.getsizeof(BODY))


def bytes_beyond_body(size: Size) -> float:
    """Bytes a waiting message takes beyond its body, by what the operating system says of a fresh process."""
    command = [sys.executable, __file__, str(size.many)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return max(float(done.stdout), 1.0)


RATIOS = (
    Ratio(
        name="waiting: bytes a message beyond its body",
        ours=bytes_beyond_body,
        target=700.0,
        better="lower",
        unit="bytes",
        pairs=1,
        about={"persistent": False},
    ),
    _growth("alone", Beside()),
    _growth("1 delayed", Beside(delayed=1)),
    _growth("100 delayed", Beside(delayed=100)),
    _growth("10,000 delayed", Beside(delayed=10_000)),
    _growth("1,000 destinations", Beside(destinations=1_000)),
    _growth("100 waiting consumers", Beside(consumers=100)),
)

if __name__ == "__main__":
    _fill_and_tell(int(sys.argv[1]))
