"""Run as a program by test_sql_late.py: a worker whose first run waits inside its transaction until it is told to go on.

Arguments: store, URL of the database, trigger name, a file that appears when it may go on. Prints `inside` in the handler, and the
counters as JSON when it ends.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import psycopg

from jmsclient import Delivery, Worker
from jmsclient.history import HistoryTransaction, SqlHistory
from jmsclient.history.sql_source import run


def main(store: str, database: str, trigger: str, go_on: str) -> None:
    with SqlHistory(lambda: psycopg.connect(database)) as history:
        worker = Worker(f"embedded:late?store={store}", history=history)

        @worker.trigger("queue:///orders", name=trigger, lease=2.0)
        def book(body: str, delivery: Delivery, transaction: HistoryTransaction) -> None:
            run(transaction.connection, "INSERT INTO booked (name) VALUES (?)", (f"{trigger}/late {delivery.fencing_token}",))
            print("inside", flush=True)
            while not Path(go_on).exists():
                time.sleep(0.01)

        with worker:
            counters = worker.triggers[trigger].pipeline.counters
            end = time.monotonic() + 25
            while time.monotonic() < end and not counters.duplicate:
                time.sleep(0.02)
            print(json.dumps(counters.as_dict()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
