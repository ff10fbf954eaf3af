"""Workers that are killed at random and replaced, the sender that repeats itself, and what the tests ask when all is quiet."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from jmsclient import Connection, Message
from jmsclient.exporters.journal_check import Check, Report

PROGRAM = Path(__file__).with_name("chaos_program.py")
QUIET = 2.5
"""Seconds: longer than a lease of the program's workers, and than a claim waits for one."""


class Fleet:
    """`size` processes of chaos_program.py. `settings` are its environment; `ahead[n]` by how many seconds the clock of worker n,
    and of those that replace it, is wrong."""

    def __init__(self, size: int, *arguments: str, ahead: tuple[float, ...] = (), **settings: str) -> None:
        self._command = [sys.executable, str(PROGRAM), *arguments]
        self._environment = {**os.environ, **settings}
        self._ahead = ahead or (0.0,) * size
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  a pipe that nobody reads would stop them when it is full
        self._run: set[int] = set()
        self.kills = 0
        self.workers = [self._start(number) for number in range(size)]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        environment = {**self._environment, "CHAOS_AHEAD": str(self._ahead[number])}
        return subprocess.Popen(self._command, env=environment, stdout=subprocess.PIPE, stderr=self._said)

    def wait_until_they_run(self) -> None:
        for worker in self.workers:
            self._wait_until_it_runs(worker)

    def kill_one(self, *, wait: bool = True) -> None:
        """One of them, and start another; `wait` until that one runs, so that each killed one has had its chance."""
        number = random.randrange(len(self.workers))
        self._check(self.workers[number])
        _end(self.workers[number])
        self.kills += 1
        self.workers[number] = self._start(number)
        if wait:
            self._wait_until_it_runs(self.workers[number])

    def check(self) -> None:
        """None has ended by itself."""
        for worker in self.workers:
            self._check(worker)

    def _check(self, worker: subprocess.Popen[bytes]) -> None:
        if worker.poll() is not None:
            pytest.fail(f"a worker ended by itself with {worker.returncode}: {self._last_words()}")

    def _wait_until_it_runs(self, worker: subprocess.Popen[bytes]) -> None:
        assert worker.stdout is not None
        if worker.pid in self._run:
            return
        if worker.stdout.readline() != b"running\n":
            pytest.fail(f"a worker does not run: {self._last_words()}")
        self._run.add(worker.pid)

    def _last_words(self) -> str:
        self._said.seek(0)
        return self._said.read()[-4000:].decode()

    def end(self) -> None:
        for worker in self.workers:
            _end(worker)
        self._said.close()


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.communicate()


def send(connection: Connection, queue: str, names: list[str], repeated: int) -> None:
    """Each once, and so many again, at most a hundred places later."""
    order = [(float(place), name) for place, name in enumerate(names)]
    order += [(place + random.uniform(0.5, 100.0), name) for place, name in random.sample(order, repeated)]
    messages = [Message(name, properties={"uuid": name}) for _, name in sorted(order)]
    producer = connection.create_session().create_producer(queue)
    for start in range(0, len(messages), 1000):
        producer.send_many(messages[start : start + 1000])


def checked(journal: Path) -> Report:
    check = Check()
    check.read(journal.read_text(encoding="utf-8").splitlines())
    return check.report()


def quiet(journal: Path) -> bool:
    """Nobody wrote anything for longer than a lease."""
    return time.time() - journal.stat().st_mtime > QUIET
