"""Run as a program by test_kill.py: one worker that kills itself with SIGKILL at a named step of a delivery, or runs to the end.

Arguments: store, history URL, effects file, trigger name, step (`before_claim`, `after_claim`, `after_effect`,
`after_complete`, `never`), and how many seconds it waits at most for something to happen. Prints the trigger's counters as
JSON when it ends by itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import jmsclient.trigger.carrying_out
from jmsclient import Delivery, Worker
from jmsclient.history import Claim, Complete, DocumentHistory, Entry, ParkedMessage, Reply, open_history
from jmsclient.history.entries import Command
from jmsclient.options import WorkerOptions

CONCURRENCY = int(os.environ.get("KILL_CONCURRENCY", "1"))
LEASE = float(os.environ.get("KILL_LEASE", "0.4"))
jmsclient.trigger.carrying_out.LOOK_INTERVAL = 0.1


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingHistory(DocumentHistory):
    """A real history, and death before or after its calls."""

    def __init__(self, history: DocumentHistory, step: str) -> None:
        self._history = history
        self._step = step
        self.durable = history.durable

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        claims = any(isinstance(command, Claim) for command in commands)
        if claims and self._step == "before_claim":
            die()
        replies = self._history.exchange(commands)
        if claims and self._step == "after_claim":
            die()
        if self._step == "after_complete" and any(isinstance(command, Complete) for command in commands):
            die()
        return replies

    def lookup_many(self, trigger: str, ids: Iterable[tuple[str, str]]) -> list[Entry | None]:
        return self._history.lookup_many(trigger, ids)

    def in_doubt(self, trigger: str | None = None) -> list[ParkedMessage]:
        return self._history.in_doubt(trigger)

    def decided(self, trigger: str | None = None, *, limit: int = 100) -> list[ParkedMessage]:
        return self._history.decided(trigger, limit=limit)

    def purge_expired(self) -> int:
        return self._history.purge_expired()

    def statistics(self) -> dict[str, int]:
        return self._history.statistics()

    def close(self) -> None:
        self._history.close()


def main(store: str, history_url: str, effects: str, trigger: str, step: str, patience: str = "10") -> None:
    history = DyingHistory(open_history(history_url), step)
    options = WorkerOptions(journal=Path(store).with_name("journal.jsonl"))
    worker = Worker(f"embedded:kill?store={store}", history=history, options=options)

    @worker.trigger("queue:///orders", name=trigger, lease=LEASE, concurrency=CONCURRENCY)
    def book(body: str, delivery: Delivery) -> None:
        with open(effects, "a", encoding="utf-8") as file:
            file.write(f"{delivery.message.message_id}\n")
        if step == "after_effect":
            die()

    with worker:
        counters = worker.triggers[trigger].pipeline.counters
        end = time.monotonic() + float(patience)
        while time.monotonic() < end and (step == "work" or not (counters.completed or counters.duplicate or counters.parked)):
            time.sleep(0.02)
        time.sleep(0.2)  # what would still come would be a fault
        result = counters.as_dict()
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
