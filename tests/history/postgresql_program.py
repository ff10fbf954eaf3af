"""A PostgreSQL server of the tests' own: made in a temporary folder, run by a user who is not root, on a free port."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from .redis_program import free_port

PROGRAMS = Path("/usr/lib/postgresql")


def postgresql_programs() -> Path | None:
    """The folder with initdb and postgres, of the newest version; None where there is none."""
    folders = sorted(PROGRAMS.glob("*/bin"), key=lambda one: float(one.parent.name)) if PROGRAMS.is_dir() else []
    if folders:
        return folders[-1]
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found is not None else None


class PostgresqlProgram:
    """One server process without a password. Durability is off: what is killed in these tests is whoever uses it."""

    def __init__(self, programs: Path) -> None:
        self.port = free_port()
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
        self._user = self._someone()
        os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        data = self._folder / "data"
        self._run("initdb", "-D", str(data), "-A", "trust", "-U", "test", "-E", "UTF8", "--locale=C", "--no-sync")
        with (self._folder / "log.txt").open("wb") as log:
            options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(self._folder), "fsync": "off"}
            settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
            self.process = subprocess.Popen(
                [str(programs / "postgres"), "-D", str(data), "-p", str(self.port), *settings],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                **self._as_user(),
            )
        self._wait()

    @property
    def url(self) -> str:
        return f"postgresql://test@127.0.0.1:{self.port}/postgres"

    def pause(self) -> None:
        self._signal_all(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal_all(signal.SIGCONT)

    def stop(self) -> None:
        self.go_on()
        self.process.send_signal(signal.SIGINT)  # a fast shutdown
        self.process.wait(20)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _signal_all(self, number: signal.Signals) -> None:
        """The server and its backends."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in (str(self.process.pid), *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), number)

    def _someone(self) -> pwd.struct_passwd:
        if os.getuid() != 0:
            return pwd.getpwuid(os.getuid())
        for name in ("postgres", "nobody"):
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(name)
        raise AssertionError("PostgreSQL does not run as root, and there is no other user")

    def _as_user(self) -> dict[str, int]:
        return {"user": self._user.pw_uid, "group": self._user.pw_gid} if os.getuid() == 0 else {}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
            timeout=60,
            **self._as_user(),
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _wait(self) -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url, connect_timeout=2):
                return
            time.sleep(0.05)
        self.process.kill()
        self.process.wait(10)
        raise AssertionError((self._folder / "log.txt").read_text(errors="replace"))
