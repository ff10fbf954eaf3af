"""At most one message a handler is in doubt after any kill, whatever waits, and none is lost (TR-37, TR-62)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jmsclient import Worker, connect
from jmsclient.history import open_history

PROGRAM = Path(__file__).with_name("kill_program.py")
Q = "queue:///orders"
MESSAGES = 400


@pytest.mark.parametrize("concurrency", [1, 4])
def test_tr37_after_a_kill_at_most_one_message_a_handler_is_in_doubt(tmp_path: Path, concurrency: int) -> None:
    store, effects, url = tmp_path / "shop.db", tmp_path / "effects", f"sqlite:{tmp_path / 'history.db'}"
    with connect(f"embedded:kill?store={store}") as connection:
        producer = connection.create_session().create_producer(Q)
        sent = producer.send_many([str(number) for number in range(MESSAGES)])
    seed = random.randrange(1 << 30)
    dice = random.Random(seed)
    doubtful: list[int] = []
    for _ in range(3):
        _kill_while_it_works(store, url, effects, concurrency, dice.randrange(5, 60))
        with open_history(url) as history:
            processing = history.statistics().get("processing", 0)
        assert processing <= concurrency * (len(doubtful) + 1), f"seed {seed}"  # what earlier kills left is there still
        doubtful.append(processing)
    worker = Worker(f"embedded:kill?store={store}", history=url)
    ran = effects.read_text().split()

    @worker.trigger(Q, name="orders", lease=0.4, concurrency=8)
    def book(body: str) -> None: ...

    with worker, open_history(url) as history:
        counters = worker.triggers["orders"].pipeline.counters
        end = time.monotonic() + 30
        while sum(history.statistics().get(state, 0) for state in ("completed", "in_doubt")) < MESSAGES:
            assert time.monotonic() < end, counters
            time.sleep(0.02)
        parked = {one.id for one in history.in_doubt("orders")}
    assert len(parked) <= concurrency * 3, f"seed {seed}"
    assert len(ran) == len(set(ran)), f"seed {seed}: an effect happened twice"
    assert set(ran) <= set(sent)


def _kill_while_it_works(store: Path, url: str, effects: Path, concurrency: int, after: int) -> None:
    before = _lines(effects)
    command = [sys.executable, str(PROGRAM), str(store), url, str(effects), "orders", "work", "30"]
    environment = {**os.environ, "KILL_CONCURRENCY": str(concurrency)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + 30
        while _lines(effects) < before + after and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)


def _lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0
