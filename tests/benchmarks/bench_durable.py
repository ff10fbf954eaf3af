"""Messages that survive a power cut, against a bare `sqlite3` program with the same bodies, batches and settings."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_embedded import BATCH, BODY, connection
from bench_pairs import Ratio, Size, on_a_thread

from jmsclient import AcknowledgeMode

SHARE = 5  # one in so many of the messages of other measurements: each batch is a round trip to the disk


def _messages(size: Size) -> int:
    return max(BATCH, size.messages // SHARE // BATCH * BATCH)


def durable(size: Size) -> float:
    """`send_many` of 64 until all are stored, then 64 received and acknowledged at a time."""
    messages = _messages(size)
    with TemporaryDirectory() as folder, connection(f"?store={Path(folder) / 'bench.db'}") as made:

        def run() -> float:
            producer = made.create_session().create_producer("queue:///bench")
            session = made.create_session(AcknowledgeMode.CLIENT)
            consumer = session.create_consumer("queue:///bench", prefetch=4 * BATCH)
            started = time.perf_counter()
            for _ in range(0, messages, BATCH):
                producer.send_many([BODY] * BATCH)
            for _ in range(0, messages, BATCH):
                for _ in range(BATCH):
                    received = consumer.receive(30.0)
                    assert received is not None
                    assert received.body == BODY
                session.acknowledge()
            return time.perf_counter() - started

        return messages / on_a_thread(run)


def bare_sqlite(size: Size, synchronous: str = "FULL") -> float:
    """Insert 64 and commit, then select 64, delete them and commit."""
    messages = _messages(size)
    with TemporaryDirectory() as folder:

        def run() -> float:
            store = sqlite3.connect(Path(folder) / "bench.db", isolation_level=None)
            store.execute("PRAGMA journal_mode = WAL")
            store.execute(f"PRAGMA synchronous = {synchronous}")
            store.execute("CREATE TABLE messages (sequence INTEGER PRIMARY KEY, body TEXT NOT NULL)")
            started = time.perf_counter()
            for _ in range(0, messages, BATCH):
                store.execute("BEGIN IMMEDIATE")
                store.executemany("INSERT INTO messages (body) VALUES (?)", [(BODY,)] * BATCH)
                store.execute("COMMIT")
            for _ in range(0, messages, BATCH):
                store.execute("BEGIN IMMEDIATE")
                rows = store.execute("SELECT sequence, body FROM messages ORDER BY sequence LIMIT ?", (BATCH,)).fetchall()
                assert all(body == BODY for _, body in rows)
                store.executemany("DELETE FROM messages WHERE sequence = ?", [(sequence,) for sequence, _ in rows])
                store.execute("COMMIT")
            took = time.perf_counter() - started
            store.close()
            return took

        return messages / on_a_thread(run)


RATIOS = (
    Ratio(
        name="durable: batches of 64, to bare sqlite3",
        ours=durable,
        theirs=bare_sqlite,
        target=0.6,
        about={"acknowledge": "CLIENT", "persistent": True, "threads": 1, "synchronous": "FULL"},
    ),
    Ratio(
        name="durable: what FULL costs bare sqlite3, to NORMAL",
        ours=bare_sqlite,
        theirs=lambda size: bare_sqlite(size, "NORMAL"),
        about={"threads": 1},
    ),
)
