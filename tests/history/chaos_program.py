"""Run as a program by the tests of chaos: a worker on a queue, until it is killed.

Arguments: URL of the provider, queue, history (a URL), trigger name, journal, effects (a file, or a URL of PostgreSQL: then the
handler takes the history's transaction). In the environment: CHAOS_PACE, seconds that a handler runs on average; CHAOS_SETTINGS,
more settings of the trigger, JSON; CHAOS_OUT, a queue that the handler sends each body to; CHAOS_AHEAD, how many seconds this
machine's clock is wrong.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time

from jmsclient import Delivery, Worker
from jmsclient.history import HistoryTransaction
from jmsclient.history.opening import open_history
from jmsclient.history.sql_source import run
from jmsclient.options import WorkerOptions

PACE = float(os.environ.get("CHAOS_PACE", "0.005"))
SETTINGS = json.loads(os.environ.get("CHAOS_SETTINGS", "{}"))
OUT = os.environ.get("CHAOS_OUT")
AHEAD = float(os.environ.get("CHAOS_AHEAD", "0"))
LONGEST = 600.0


def set_the_clock(ahead: float) -> None:
    """Every clock that says the time of day; those that measure how long something takes are right on every machine."""
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + ahead
    time.time_ns = lambda: right_ns() + int(ahead * 1e9)


def main(url: str, queue: str, history_url: str, trigger: str, journal: str, effects: str) -> None:
    if AHEAD:
        set_the_clock(AHEAD)
    history = open_history(history_url)
    worker = Worker(url, history=history, grace=5.0, options=WorkerOptions(journal=journal))
    settings = {"name": trigger, "lease": 1.0, "concurrency": 4, **SETTINGS}

    if effects.startswith("postgresql"):

        @worker.trigger(queue, **settings)
        def book(body: str, transaction: HistoryTransaction) -> None:
            run(transaction.connection, "INSERT INTO booked (name) VALUES (?)", (f"{trigger}/{body}",))
            time.sleep(random.uniform(0.0, 2 * PACE))

    else:
        file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        @worker.trigger(queue, **settings)
        def note(body: str, delivery: Delivery) -> None:
            time.sleep(random.uniform(0.0, PACE))
            os.write(file, f"{body}\n".encode())
            if OUT:
                delivery.send(OUT, body)
            time.sleep(random.uniform(0.0, PACE))

    with worker:
        print("running", flush=True)
        worker.wait(LONGEST)


if __name__ == "__main__":
    main(*sys.argv[1:])
