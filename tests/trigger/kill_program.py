"""Run as a program by test_kill.py: one worker that kills itself with SIGKILL at a named step of a delivery, or runs to the end.

Arguments: store, history URL, effects file, trigger name, step (of `STEPS`, `after_effect`, or `never`), and how many seconds it
waits at most for something to happen. KILL_MODE says what its handler does: `plain`, `retries` (fails for now the first time),
`fails` (for good), `transacted` (sends an invoice), `joins` (orders with payments). Prints the counters as JSON at its own end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import jmsclient.trigger.carrying_out
from jmsclient import Delivery, Session, TransientError, Worker
from jmsclient.history import (
    Claim,
    Complete,
    DocumentHistory,
    Entry,
    Join,
    Park,
    ParkedMessage,
    Release,
    Reply,
    State,
    open_history,
)
from jmsclient.history.entries import Command
from jmsclient.options import WorkerOptions

CONCURRENCY = int(os.environ.get("KILL_CONCURRENCY", "1"))
LEASE = float(os.environ.get("KILL_LEASE", "0.4"))
MODE = os.environ.get("KILL_MODE", "plain")
STEPS: dict[str, tuple[str, Callable[[Command], bool]]] = {
    "before_claim": ("before", lambda command: isinstance(command, Claim)),
    "after_claim": ("after", lambda command: isinstance(command, Claim)),
    "before_complete": ("before", lambda command: isinstance(command, Complete)),
    "after_complete": ("after", lambda command: isinstance(command, Complete)),
    "after_retrying": ("after", lambda command: isinstance(command, Release) and command.to is State.RETRYING),
    "after_failed": ("after", lambda command: isinstance(command, Release) and command.to is State.FAILED),
    "after_park": ("after", lambda command: isinstance(command, Park)),
    "before_join": ("before", lambda command: isinstance(command, Join)),
    "after_join": ("after", lambda command: isinstance(command, Join)),
}
"""Death before or after a call to the history that has such a command in it."""
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
        when, dies = STEPS.get(self._step, ("never", None))
        due = dies is not None and any(dies(command) for command in commands)
        if due and when == "before":
            die()
        replies = self._history.exchange(commands)
        if due:
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


def declare(worker: Worker, effects: str, trigger: str, step: str) -> None:
    """The trigger of this mode."""

    def effect(delivery: Delivery) -> None:
        with open(effects, "a", encoding="utf-8") as file:
            file.write(f"{delivery.message.message_id}\n")
        if step == "after_effect":
            die()

    def plain(body: str, delivery: Delivery) -> None:
        effect(delivery)
        if MODE == "fails":
            raise ValueError("not this one")

    def retries(body: str, delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise TransientError("not yet")
        effect(delivery)

    def transacted(body: str, delivery: Delivery, session: Session) -> None:
        session.create_producer("queue:///invoices").send(f"invoice of {body}")
        effect(delivery)

    def joins(bodies: list[str]) -> None:
        with open(effects, "a", encoding="utf-8") as file:
            file.write(" ".join(bodies) + "\n")

    if MODE == "joins":
        worker.join(["queue:///orders", "queue:///payments"], "and", "activation", name=trigger, lease=LEASE)(joins)
        return
    settings = {"max_retries": 1, "retry_interval": 30.0} if MODE == "retries" else {}
    worker.trigger(
        "queue:///orders",
        name=trigger,
        lease=LEASE,
        concurrency=CONCURRENCY,
        transacted=MODE == "transacted",
        error_destination="queue:///errors",
        **settings,  # type: ignore[arg-type]
    )({"retries": retries, "transacted": transacted}.get(MODE, plain))


def main(store: str, history_url: str, effects: str, trigger: str, step: str, patience: str = "30") -> None:
    history = DyingHistory(open_history(history_url), step)
    options = WorkerOptions(journal=Path(store).with_name("journal.jsonl"))
    worker = Worker(f"embedded:kill?store={store}", history=history, options=options)
    declare(worker, effects, trigger, step)
    with worker:
        counters = worker.triggers[trigger]
        end = time.monotonic() + float(patience)
        while time.monotonic() < end and (step == "work" or not ended(counters.counters)):
            time.sleep(0.02)
        time.sleep(0.2)  # what would still come would be a fault
        result = counters.counters
    print(json.dumps(result))


def ended(counters: dict[str, float]) -> bool:
    """Something has happened to the message, or to all of a set."""
    if MODE == "joins":
        return counters["completed"] > 0
    return any(counters[name] for name in ("completed", "duplicate", "parked"))


if __name__ == "__main__":
    main(*sys.argv[1:])
