"""A trigger with its history on a real Redis, against what people write by hand with redis-py, and against the bare script.

The handlers do nothing, the messages wait on an embedded broker, and the history is a Redis server that this file starts, in memory
only. A duplicate that the history knows is measured against a new message. Source: "Speed" of the trigger's issue.
"""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import redis
from bench_pairs import Ratio, Size, on_a_thread

import jmsclient
from jmsclient import Message, Worker
from jmsclient.history import open_history
from jmsclient.history.contract import new_token
from jmsclient.history.redis_format import escaped
from jmsclient.history.redis_scripts import SCRIPT, SHA

Q = "queue:///bench"
SHARE = 10  # one in so many of the messages of other measurements: each is a round trip for the other side
GROUP = 32
_names = count(1)


@cache
def redis_port() -> int:
    """Of a server that ends with this process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    folder = tempfile.mkdtemp(prefix="bench-redis-")
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end() -> None:
        server.terminate()
        server.wait(10)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    for _ in range(200):
        try:
            redis.Redis(port=port).ping()
        except redis.exceptions.RedisError:
            time.sleep(0.05)
        else:
            break
    return port


def client() -> redis.Redis:
    """As an application would make it."""
    return redis.Redis(port=redis_port())


def flushed() -> redis.Redis:
    made = client()
    made.flushall()
    return made


def messages(size: Size) -> int:
    return max(100, size.messages // SHARE)


# -- ours ---------------------------------------------------------------------------------------------------------------


class Run:
    """What a trigger took for `number` messages that wait, from the first that its handler sees to the last `completed`."""

    def __init__(self, number: int, *, history: bool = True, copies: int = 1, look: float = 0.001, **settings: Any) -> None:
        """`look`: seconds from one look whether it has ended to the next; each costs processor time."""
        flushed().close()
        url = f"redis://127.0.0.1:{redis_port()}/0"
        name = f"bench-{next(_names)}"
        place = f"embedded:{name}"
        with jmsclient.connect(place) as made, open_history(url, namespace=name) as store:
            producer = made.create_session().create_producer(Q, persistent=False)
            for _ in range(copies):
                producer.send_many([Message("x" * 100, properties={"uuid": str(one)}) for one in range(number)])
            worker = Worker(place, name=name, history=store if history else None)

            begun: list[tuple[float, float]] = []

            @worker.trigger(Q, prefetch=1000, **settings)
            def handle(message: Message) -> None:
                if not begun:
                    begun.append((time.perf_counter(), time.process_time()))

            worker.start()
            counters = worker.triggers[Q].pipeline.counters
            self._until(lambda: counters.completed >= number, look)
            started, cpu = begun[0]
            self.seconds_of_new = time.perf_counter() - started
            self.cpu = time.process_time() - cpu
            self._until(lambda: counters.completed + counters.duplicate >= number * copies, look)
            self.seconds = time.perf_counter() - started
            worker.stop()

    @staticmethod
    def _until(done: Callable[[], bool], look: float) -> None:
        while not done():
            time.sleep(look)


def trigger(**settings: Any) -> Callable[[Size], float]:
    """Messages a second."""
    return lambda size: messages(size) / Run(messages(size), **settings).seconds


def trigger_cpu(**settings: Any) -> Callable[[Size], float]:
    """Seconds of this process's processor a message."""
    return lambda size: Run(messages(size), look=0.02, **settings).cpu / messages(size)


def duplicate_cost(size: Size) -> float:
    """Seconds a message that the history knows already; each was sent twice, the second time after all."""
    run = Run(messages(size), copies=2, concurrency=32)
    return (run.seconds - run.seconds_of_new) / messages(size)


def new_cost(size: Size) -> float:
    return Run(messages(size), concurrency=32).seconds / messages(size)


# -- theirs -------------------------------------------------------------------------------------------------------------


def set_and_set(size: Size) -> float:
    """The loop that people write: SET NX, the work, SET."""

    def loop() -> float:
        made, number = flushed(), messages(size)
        started = time.perf_counter()
        for one in range(number):
            key = f"h:{one}"
            if made.set(key, "P", nx=True, ex=600):
                made.set(key, "C", ex=600)
        return number / (time.perf_counter() - started)

    return on_a_thread(loop)


CLAIM = """local now = redis.call('TIME')
if redis.call('SET', KEYS[1], ARGV[1] .. ':' .. now[1] + ARGV[2], 'NX', 'EX', ARGV[3]) then return 1 end
return redis.call('GET', KEYS[1])"""
COMPLETE = """local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #ARGV[1]) == ARGV[1] then redis.call('SET', KEYS[1], 'C', 'EX', ARGV[2]) return 1 end
return 0"""


def with_token(size: Size) -> float:
    """The same done right: a token, the store's time and two lifetimes, in two scripts, two round trips a message."""

    def loop() -> float:
        made, number = flushed(), messages(size)
        claim, complete = made.register_script(CLAIM), made.register_script(COMPLETE)
        started = time.perf_counter()
        for one in range(number):
            key, token = f"h:{one}", new_token()
            if claim(keys=[key], args=[token, 60, 86400]) == 1:
                complete(keys=[key], args=[token, 86400])
        return number / (time.perf_counter() - started)

    return on_a_thread(loop)


def bare_script(group: int, measure: Callable[[], float]) -> Callable[[Size], float]:
    """The history's own script called through redis-py with groups of so many completions and claims; what `measure` says it took
    for each message."""

    def loop(size: Size) -> float:
        made, number = flushed(), messages(size)
        made.script_load(SCRIPT)
        run_id = made.info("server")["run_id"]
        prefix = f"jmsclient:entry:{{bench:{escaped(Q)}}}:uuid:"
        started = measure()
        before: list[tuple[str, str]] = []
        for start in range(0, number + group, group):
            claims = [(str(one), new_token()) for one in range(start, min(number, start + group))]
            keys = [prefix + id_ for id_, _ in (*before, *claims)]
            done = (4, "complete", 1, 86400000, "done")
            claim = (10, "claim", 1, 86400000, 60000000, 0, "=host:1", "", 0, 1, 1)
            arguments: list[Any] = [2, *done, *claim]
            for setting, run in ((1, before), (2, claims)):
                if run:
                    arguments += (setting, len(run), *(token for _, token in run))
            if keys:
                fixed = ("jmsclient:triggers:bench", "jmsclient:mark:bench", "jmsclient:parked:{bench}")
                made.execute_command("EVALSHA", SHA, 3 + len(keys), *fixed, *keys, 1, run_id, 0, *arguments)
            before = claims
        return (measure() - started) / number

    return lambda size: on_a_thread(lambda: loop(size))


def rate(cost: Callable[[Size], float]) -> Callable[[Size], float]:
    return lambda size: 1.0 / cost(size)


RATIOS = (
    Ratio(
        name="trigger: history on, 32 handlers, to SET NX and SET one by one",
        ours=trigger(concurrency=32),
        theirs=set_and_set,
        target=8.0,
    ),
    Ratio(
        name="trigger: its processor time, to the bare script with groups of 32",
        ours=trigger_cpu(concurrency=32),
        theirs=bare_script(GROUP, time.process_time),
        target=2.5,
        better="lower",
        unit="s/message",
    ),
    Ratio(
        name="trigger: micro_batch 16, to SET NX and SET one by one",
        ours=trigger(concurrency=32, micro_batch=16),
        theirs=set_and_set,
        target=12.0,
    ),
    Ratio(
        name="trigger: micro_batch 16, to the rate of the bare script, groups of 512",
        ours=trigger(concurrency=32, micro_batch=16),
        theirs=rate(bare_script(GROUP * 16, time.perf_counter)),
        target=0.5,
    ),
    Ratio(
        name="trigger: serial, to token, store time and two lifetimes by hand",
        ours=trigger(),
        theirs=with_token,
        target=1.3,
    ),
    Ratio(
        name="trigger: a duplicate that is known, to a new message",
        ours=duplicate_cost,
        theirs=new_cost,
        target=0.5,
        better="lower",
        unit="s/message",
    ),
    Ratio(
        name="trigger: history on, to the same without a history",
        ours=trigger(concurrency=32),
        theirs=trigger(concurrency=32, history=False),
    ),
)
