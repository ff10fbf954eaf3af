"""Run as a program by test_sql_kill.py: one worker whose handler writes to the database that its history is in.

It kills itself with SIGKILL at a named step of a delivery, or runs to the end. Arguments: store, database (a path or a URL),
trigger name, step. Prints the trigger's counters as JSON when it ends by itself.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from jmsclient import Worker
from jmsclient.history import Claim, Complete, HistoryTransaction, Reply, SqlHistory
from jmsclient.history.entries import Command
from jmsclient.history.sql_source import run
from jmsclient.options import WorkerOptions

LEASE = 0.4


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingHistory(SqlHistory):
    """Death before or after its calls."""

    step = "never"

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        claims = any(isinstance(command, Claim) for command in commands)
        if claims and self.step == "before_claim":
            die()
        replies = super().exchange(commands)
        if claims and self.step == "after_claim":
            die()
        return replies

    @contextmanager
    def transaction(self, completion: Complete | None) -> Iterator[HistoryTransaction]:
        with super().transaction(completion) as transaction:
            yield transaction
        if self.step == "after_commit":
            die()

    def _complete(self, connection: Any, completion: Complete) -> None:
        super()._complete(connection, completion)
        if self.step == "before_commit":
            die()


def connect_to(database: str) -> Any:
    return psycopg.connect(database) if database.startswith("postgresql") else sqlite3.connect(database)


def main(store: str, database: str, trigger: str, step: str) -> None:
    history = DyingHistory(lambda: connect_to(database))
    history.step = step
    options = WorkerOptions(journal=Path(store).with_name("journal.jsonl"))
    worker = Worker(f"embedded:kill?store={store}", history=history, options=options)

    @worker.trigger("queue:///orders", name=trigger, lease=LEASE)
    def book(body: str, transaction: HistoryTransaction) -> None:
        run(transaction.connection, "INSERT INTO booked (name) VALUES (?)", (f"{trigger}/{body}",))
        if step == "after_effect":
            die()

    with worker:
        counters = worker.triggers[trigger].pipeline.counters
        end = time.monotonic() + 30
        while time.monotonic() < end and not (counters.completed or counters.duplicate or counters.parked):
            time.sleep(0.02)
        time.sleep(0.1)  # what would still come would be a fault
        result = counters.as_dict()
    history.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
