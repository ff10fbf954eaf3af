"""Run as a program by test_chaos_workers.py: a worker attached to the test's broker, until it is killed.

Arguments: store, history (a URL), trigger name, journal, effects (a file, or a URL of PostgreSQL: then the handler takes the
history's transaction).
"""

from __future__ import annotations

import os
import random
import sys
import time

from jmsclient import Delivery, Worker
from jmsclient.history import HistoryTransaction
from jmsclient.history.opening import open_history
from jmsclient.history.sql_source import run
from jmsclient.options import WorkerOptions


def main(store: str, history_url: str, trigger: str, journal: str, effects: str) -> None:
    history = open_history(history_url)
    options = WorkerOptions(journal=journal)
    worker = Worker(f"embedded:chaos?store={store}&attach=yes", history=history, grace=5.0, options=options)
    settings = {"name": trigger, "lease": 1.0, "concurrency": 4}

    if effects.startswith("postgresql"):

        @worker.trigger("queue:///orders", **settings)  # type: ignore[arg-type]
        def book(body: str, transaction: HistoryTransaction) -> None:
            run(transaction.connection, "INSERT INTO booked (name) VALUES (?)", (f"{trigger}/{body}",))
            time.sleep(random.uniform(0.0, 0.01))

    else:
        file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        @worker.trigger("queue:///orders", **settings)  # type: ignore[arg-type]
        def note(body: str, delivery: Delivery) -> None:
            time.sleep(random.uniform(0.0, 0.005))
            os.write(file, f"{body}\n".encode())
            time.sleep(random.uniform(0.0, 0.005))

    with worker:
        print("running", flush=True)
        worker.wait(120.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
