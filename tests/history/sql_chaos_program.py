"""Run as a program by test_sql_chaos.py: a worker whose handler writes to the database that its history is in, until it is killed.

Arguments: store, database (a path or a URL), trigger name, journal.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from typing import Any

import psycopg

from jmsclient import Worker
from jmsclient.history import HistoryTransaction, SqlHistory
from jmsclient.history.sql_source import run
from jmsclient.options import WorkerOptions


def connect_to(database: str) -> Any:
    return psycopg.connect(database) if database.startswith("postgresql") else sqlite3.connect(database, timeout=10)


def main(store: str, database: str, trigger: str, journal: str) -> None:
    history = SqlHistory(lambda: connect_to(database))
    worker = Worker(f"embedded:chaos?store={store}", history=history, grace=5.0, options=WorkerOptions(journal=journal))

    @worker.trigger("queue:///orders", name=trigger, lease=0.5, concurrency=1 if "postgresql" not in database else 4)
    def book(body: str, transaction: HistoryTransaction) -> None:
        run(transaction.connection, "INSERT INTO booked (name) VALUES (?)", (f"{trigger}/{body}",))
        time.sleep(random.uniform(0.0, 0.004))

    with worker:
        print("running", flush=True)
        worker.wait(60.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
