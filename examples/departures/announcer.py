"""Announce each departure exactly once: the worker of `jmsclient demo`.

Run it as `jmsclient run announcer:worker --app-dir examples/departures` with DEPARTURES_DIR (a folder for its files) and
DEPARTURES_HISTORY (a history URL) set; DEPARTURES_BROKER names another broker than the embedded one. Its effect is one row an
announcement in a ledger of its own; the resolver looks there when a delivery may have been announced before.
"""

import os
import random
import sqlite3
import threading
import time
from pathlib import Path

from jmsclient import Delivery, Status, Worker
from jmsclient.options import WorkerOptions
from jmsclient.trigger.delivery import ResolverRequest

FOLDER = Path(os.environ.get("DEPARTURES_DIR", "."))
HISTORY = os.environ.get("DEPARTURES_HISTORY") or f"sqlite:{FOLDER / 'history.db'}"
BROKER = os.environ.get("DEPARTURES_BROKER") or f"embedded:departures?store={FOLDER / 'shop.db'}"
QUEUE = os.environ.get("DEPARTURES_QUEUE") or "queue:///departures"
ERRORS = os.environ.get("DEPARTURES_ERRORS") or "queue:///DLQ"
UNSURE_AIRPORT = "LGA"  # departures from here are left to a person, so that the In Doubt list has something to show
LEDGER = FOLDER / "ledger.db"

_local = threading.local()


def prepare_ledger() -> None:
    """Once, before any handler runs: turning on the write-ahead log needs the file for itself."""
    connection = sqlite3.connect(LEDGER, timeout=10, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS announcements (departure TEXT, at REAL)")
    connection.close()


def ledger() -> sqlite3.Connection:
    """This thread's connection to the ledger."""
    connection: sqlite3.Connection | None = getattr(_local, "connection", None)
    if connection is None:
        connection = _local.connection = sqlite3.connect(LEDGER, timeout=10, isolation_level=None)
    return connection


def already_announced(request: ResolverRequest) -> tuple[Status, str]:
    """The resolver: the ledger knows what was done. It must not guess for the airport whose board cannot be asked."""
    body = request.message.body
    assert isinstance(body, dict)
    if body["origin"] == UNSURE_AIRPORT:
        return Status.IN_DOUBT, "this airport's board cannot be asked"
    row = ledger().execute("SELECT 1 FROM announcements WHERE departure = ?", (request.id,)).fetchone()
    return (Status.DUPLICATE, "found in the ledger") if row else (Status.NEW, "not in the ledger")


worker = Worker(
    BROKER,
    name=os.environ.get("DEPARTURES_NAMESPACE"),
    history=HISTORY,
    grace=10.0,
    options=WorkerOptions(journal=FOLDER / "journal.jsonl" if "DEPARTURES_DIR" in os.environ else None),
)


@worker.trigger(QUEUE, name="departures", error_destination=ERRORS, resolver=already_announced, concurrency=4, lease=1.0)
def announce(departure: dict, delivery: Delivery) -> None:  # type: ignore[type-arg]
    time.sleep(random.uniform(0.005, 0.020))
    ledger().execute("INSERT INTO announcements VALUES (?, ?)", (delivery.message.properties["uuid"], time.time()))


if "DEPARTURES_DIR" in os.environ:
    prepare_ledger()
