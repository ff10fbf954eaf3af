"""Real servers for the tests that need them: found by URL, or started here on a free port.

Where neither is possible the test is skipped with the reason; with JMSCLIENT_REQUIRE_REAL=1, as in CI, it fails instead.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from .brokers.fixtures import *  # noqa: F403  fixtures for every room
from .brokers.launching import mortal
from .ending import (  # noqa: F401  hooks
    pytest_configure,
    pytest_runtest_teardown,
    pytest_timeout_cancel_timer,
    pytest_timeout_set_timer,
    pytest_unconfigure,
)

with contextlib.suppress(ImportError):
    from .processes import pytest_xdist_make_scheduler  # noqa: F401  a hook; without pytest-xdist there is one process

# How long an example takes says nothing on a shared machine.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

REDIS_URL = "JMSCLIENT_TEST_REDIS_URL"
REQUIRE_REAL = "JMSCLIENT_REQUIRE_REAL"


def unavailable(reason: str) -> None:
    """Skip, or fail where everything is said to be installed."""
    if os.environ.get(REQUIRE_REAL) == "1":
        pytest.fail(f"{reason}, and {REQUIRE_REAL}=1 says that it must be there", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Redis whose data may be changed: the one of JMSCLIENT_TEST_REDIS_URL, else one started for this run."""
    given = os.environ.get(REDIS_URL)
    if given:
        yield given
        return
    server = shutil.which("redis-server")
    if server is None:
        unavailable(f"redis-server is not installed and {REDIS_URL} is not set")
        return
    folder = tmp_path_factory.mktemp("redis")
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen([*mortal(), server, *options], stdout=log, stderr=log)
    try:
        wait_until_it_answers(process, port, folder / "log.txt")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def java() -> None:
    """A Java 17 compiler and Maven are there."""
    missing = [tool for tool in ("mvn", "javac", "java") if shutil.which(tool) is None]
    if missing:
        unavailable(f"{', '.join(missing)} is not installed (Java 17 and Maven)")


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as one:
            one.sendall(b"PING\r\n")
            if one.recv(16).startswith(b"+PONG"):
                return
        time.sleep(0.02)
    pytest.fail(f"redis-server does not answer on port {port}:\n{log.read_text(errors='replace')}", pytrace=False)
