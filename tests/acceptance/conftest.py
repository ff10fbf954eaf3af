"""The command line as a user has it: a process of its own, in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

STORE = "embedded:?store=shop.db"
HOLDER = f"""
from jmsclient import connect

with connect({STORE!r}) as connection:
    session = connection.create_session()
    print("holding", flush=True)
    for message in session.create_consumer("work"):
        print("worked", message.text, flush=True)
"""
COMMAND = [sys.executable, "-W", "error", "-m", "jmsclient"]


def environment(**more: str) -> dict[str, str]:
    """The caller's, without what would change what the command line does."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JMSCLIENT_")}
    return {**clean, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", **more}


@dataclass
class Running:
    """A command that runs; what it says is gathered in a file, so that waiting for a line can never dead-lock."""

    process: subprocess.Popen[bytes]
    output: Path

    def text(self) -> str:
        return self.output.read_text(encoding="utf-8")

    def wait_for(self, text: str, times: int = 1, timeout: float = 60.0) -> None:
        """Until it has said `text` so many times."""
        end = time.monotonic() + timeout
        while self.text().count(text) < times:
            assert self.process.poll() is None, f"ended with {self.process.returncode} before saying {text!r}:\n{self.text()}"
            assert time.monotonic() < end, f"did not say {text!r} {times} times:\n{self.text()}"
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, timeout: float = 60.0) -> int:
        return self.process.wait(timeout)


@dataclass
class CommandLine:
    """`jmsclient` in a folder."""

    folder: Path
    started: list[Running] = field(default_factory=list)

    def __call__(self, *arguments: str, stdin: bytes = b"", **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=environment(**more),
            input=stdin,
            capture_output=True,
            timeout=100,
            check=False,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str, **more: str) -> Running:
        """Start a command that runs until it is told to end."""
        output = self.folder / f"output-{len(self.started)}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen([*COMMAND, *arguments], cwd=self.folder, env=environment(**more), stdout=file, stderr=file)
        running = Running(process, output)
        self.started.append(running)
        return running

    def hold(self) -> Running:
        """Start a process that holds the store of STORE and works off the queue `work`."""
        output = self.folder / "output-holder.txt"
        command = [sys.executable, "-W", "error", str(self.write("holder.py", HOLDER))]
        with output.open("wb") as file:
            process = subprocess.Popen(command, cwd=self.folder, env=environment(), stdout=file, stderr=file)
        running = Running(process, output)
        self.started.append(running)
        running.wait_for("holding")
        return running

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def files(self) -> list[str]:
        """What lies in the folder, without what starting commands and importing modules leaves."""
        return sorted(
            path.name for path in self.folder.iterdir() if path.name != "__pycache__" and not path.name.startswith("output-")
        )


@pytest.fixture
def jmsclient(tmp_path: Path) -> Iterator[CommandLine]:
    commands = CommandLine(tmp_path)
    yield commands
    for running in commands.started:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait(10)
