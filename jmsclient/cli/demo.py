"""`jmsclient demo`: every departure announced exactly once, with a sender that repeats itself and a worker killed three times.

It sends real departures into a durable embedded queue, or to a broker, runs the worker of `examples/departures` as a process of
its own, kills it with SIGKILL while handlers run, starts it again, and balances the books at the end. It knows the public API and
the command line only.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from jmsclient import Message, connect
from jmsclient.errors import ConfigurationError, JmsClientError
from jmsclient.exporters.journal_check import Check
from jmsclient.history import DocumentHistory, open_history

KILLS = 3
REPEATED_SHARE = 3  # the unreliable gateway sends every third departure again
TRIGGER = "departures"
TIME_LIMIT = 300.0
ANSWER = 1.0
"""Seconds in which a broker sends what is on a queue."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the messages go: which URL, which queue, and the one for those that failed. A run has queues of its own on a broker,
    which others use too and which may remember an earlier run."""

    url: str
    queue: str
    errors: str
    wait: float

    @classmethod
    def choose(cls, broker: str | None, folder: Path, namespace: str) -> Place:
        if broker is None:
            return cls(f"embedded:departures?store={folder / 'shop.db'}", "queue:///departures", "queue:///DLQ", 0.0)
        queue = f"queue:///departures.{namespace}"
        return cls(broker, queue, f"{queue}.errors", ANSWER)

    def environment(self) -> dict[str, str]:
        """What the worker reads; not its command line, which everybody on this machine sees."""
        return {"DEPARTURES_BROKER": self.url, "DEPARTURES_QUEUE": self.queue, "DEPARTURES_ERRORS": self.errors}


@dataclass(frozen=True, slots=True)
class Books:
    """What the demo's table says."""

    departures: int
    messages: int
    new: int
    duplicate: int
    resolver_new: int
    resolver_duplicate: int
    parked: int
    once: int
    twice: int
    lost: int
    left_on_queue: int
    dead_lettered: int
    kills: int
    findings: int

    @property
    def balanced(self) -> bool:
        nothing_wrong = self.twice == self.lost == self.left_on_queue == self.findings == 0
        return nothing_wrong and self.once + self.parked >= self.departures


def example_folder() -> Path:
    """Where the example lives: beside the code in a checkout, inside the package in a wheel."""
    for folder in (
        Path(__file__).resolve().parents[2] / "examples" / "departures",
        Path(__file__).resolve().parents[1] / "examples" / "departures",
    ):
        if (folder / "departures.csv").is_file():
            return folder
    raise ConfigurationError("the demo's data (examples/departures) is not installed; run it from a checkout")


def read_departures(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def departure_id(row: dict[str, str]) -> str:
    return f"{row['carrier']}{row['flight']}-{row['date']}-{row['origin']}"


def messages_to_send(rows: list[dict[str, str]], chance: random.Random) -> list[Message]:
    """One message a departure in order, and every third again, at most a hundred places later."""
    order = [(float(index), row) for index, row in enumerate(rows)]
    again = chance.sample(order, len(rows) // REPEATED_SHARE)
    order += [(place + chance.uniform(0.5, 100.0), row) for place, row in again]
    order.sort(key=lambda pair: pair[0])
    return [Message(dict(row), properties={"uuid": departure_id(row)}) for _, row in order]


def send_all(place: Place, messages: list[Message]) -> None:
    with connect(place.url) as connection:
        producer = connection.create_session().create_producer(place.queue)
        for start in range(0, len(messages), 500):
            producer.send_many(messages[start : start + 500])


class WorkerProcess:
    """The example's worker as a process of its own."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        environment = {**os.environ, **settings, "DEPARTURES_DIR": str(folder)}
        command = [sys.executable, "-m", "jmsclient", "run", "announcer:worker", "--app-dir", str(example_folder())]
        self._log = (folder / "worker.log").open("ab")
        self.process = subprocess.Popen(command, env=environment, stdout=self._log, stderr=self._log)  # noqa: S603  our own program

    def end(self, number: signal.Signals) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(30)
        self._log.close()
        return code


def last_line(log: Path) -> str:
    """What the worker said last; its folder may be gone when this is read."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def run_until_finished(folder: Path, settings: dict[str, str], history: DocumentHistory, total: int, chance: random.Random) -> int:
    """Run the worker, kill it at three random points with a handler running, let it finish. Returns the number of kills."""
    kills = 0
    shares = sorted(chance.uniform(0.08 + 0.3 * part, 0.28 + 0.3 * part) for part in range(KILLS))
    worker = WorkerProcess(folder, settings)
    end_at = time.monotonic() + TIME_LIMIT
    quiet_since: float | None = None
    journal_size = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            bar = progress.add_task("announcing", total=total)
            while time.monotonic() < end_at:
                if worker.process.poll() is not None:
                    raise JmsClientError(f"the worker ended by itself: {last_line(folder / 'worker.log')}")
                states = history.statistics()
                finished = states.get("completed", 0) + states.get("in_doubt", 0)
                in_flight = states.get("processing", 0)
                progress.update(bar, completed=finished, description=f"announcing (killed {kills} times)")
                if kills < KILLS and finished >= shares[kills] * total and in_flight:
                    worker.end(signal.SIGKILL)
                    kills += 1
                    worker = WorkerProcess(folder, settings)
                if finished < total or in_flight:
                    quiet_since = None
                    time.sleep(0.02)
                    continue
                size = (folder / "journal.jsonl").stat().st_size
                if quiet_since is None or size != journal_size:
                    quiet_since, journal_size = time.monotonic(), size
                elif time.monotonic() - quiet_since > 1.5:
                    break
                time.sleep(0.05)
    finally:
        worker.end(signal.SIGTERM)
    return kills


def left_on(place: Place, queue: str) -> int:
    """Messages that nobody took: there must be none."""
    with connect(place.url) as connection:
        consumer = connection.create_session().create_consumer(queue)
        left = 0
        while consumer.receive(place.wait) is not None:
            left += 1
        return left


def balance(folder: Path, place: Place, history: DocumentHistory, rows: list[dict[str, str]], messages: int, kills: int) -> Books:
    with closing(sqlite3.connect(folder / "ledger.db")) as ledger:
        announced = Counter(id for (id,) in ledger.execute("SELECT departure FROM announcements"))  # noqa: A001
    events: Counter[str] = Counter()
    for line in (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        events[entry["event"] + (f":{entry['answer']}" if entry.get("answer") else "")] += 1
    checked = Check()
    checked.read((folder / "journal.jsonl").read_text(encoding="utf-8").splitlines())
    parked = {one.id for one in history.in_doubt(TRIGGER)}
    left, dead = (left_on(place, queue) for queue in (place.queue, place.errors))
    ids = [departure_id(row) for row in rows]
    return Books(
        departures=len(rows),
        messages=messages,
        new=events["new"],
        duplicate=events["duplicate"],
        resolver_new=events["resolved:new"],
        resolver_duplicate=events["resolved:duplicate"],
        parked=len(parked),
        once=sum(1 for id in ids if announced[id] == 1),  # noqa: A001
        twice=sum(1 for number in announced.values() if number > 1),
        lost=sum(1 for id in ids if not announced[id] and id not in parked),  # noqa: A001
        left_on_queue=left,
        dead_lettered=dead,
        kills=kills,
        findings=len([one for one in checked.report().findings if one.certain]),
    )


def show(books: Books, seconds: float) -> None:
    """The table, and whether the books balance."""
    table = Table(title="Every departure announced exactly once", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    rows = [
        ("departures", books.departures),
        ("messages sent (a third of the departures twice)", books.messages),
        ("worker killed", books.kills),
        ("New", books.new),
        ("Duplicate", books.duplicate),
        ("decided by the resolver: New", books.resolver_new),
        ("decided by the resolver: Duplicate", books.resolver_duplicate),
        ("parked as In Doubt", books.parked),
        ("announced exactly once", books.once),
        ("announced twice", books.twice),
        ("lost (neither announced nor parked)", books.lost),
        ("left on the queue", books.left_on_queue),
        ("on the error destination", books.dead_lettered),
        ("findings in the worker's journal", books.findings),
    ]
    for name, number in rows:
        table.add_row(name, str(number))
    console = Console()
    console.print(table)
    verdict = "the books balance" if books.balanced else "THE BOOKS DO NOT BALANCE"
    console.print(f"{verdict}, after {seconds:.1f} s")


def run_demo(*, seed: int | None, broker: str | None, history_url: str | None, keep: str | None) -> int:
    """The whole demo; returns the exit code. `broker` is a URL as for `connect`, None the embedded one; `keep` a folder, made if
    need be, that is left there afterwards."""
    seed = random.randrange(1_000_000) if seed is None else seed  # noqa: S311  dice, not a secret
    chance = random.Random(seed)  # noqa: S311  the same
    started = time.monotonic()
    rows = read_departures(example_folder() / "departures.csv")
    with tempfile.TemporaryDirectory(prefix="departures-") as scratch:
        folder = Path(keep) if keep else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigurationError(f"--keep {folder}: expected an empty or new folder; give another one")
        url = history_url or f"sqlite:{folder / 'history.db'}"
        namespace = f"demo-{seed}-{os.getpid()}"
        place = Place.choose(broker, folder, namespace)
        kinds = f"broker {place.url.partition(':')[0]}:, history {url.partition(':')[0]}:"
        click.echo(f"seed {seed}: {len(rows)} departures, {kinds}, kills {KILLS}", err=True)
        with open_history(url, namespace=namespace) as history:
            messages = messages_to_send(rows, chance)
            send_all(place, messages)
            settings = {**place.environment(), "DEPARTURES_HISTORY": url, "DEPARTURES_NAMESPACE": namespace}
            kills = run_until_finished(folder, settings, history, len(rows), chance)
            books = balance(folder, place, history, rows, len(messages), kills)
        show(books, time.monotonic() - started)
        return 0 if books.balanced and books.kills == KILLS else 1
