"""The main job: `jmsclient demo` balances its books with any seed, whatever the worker was doing when killed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

COMMAND = [sys.executable, "-m", "jmsclient", "demo"]
DEMO = ["--seed", "7", "--keep"]


def balanced(done: subprocess.CompletedProcess[str]) -> None:
    """The table says that every departure was announced once, or is listed."""
    assert done.returncode == 0, done.stdout + done.stderr
    numbers = dict(re.findall(r"│ (.+?) +│ +(\d+) │", done.stdout))
    assert numbers["departures"] == "2699"
    assert numbers["announced twice"] == "0"
    assert numbers["lost (neither announced nor parked)"] == "0"
    assert numbers["left on the queue"] == "0"
    assert numbers["worker killed"] == "3"
    assert numbers["findings in the worker's journal"] == "0"
    assert "the books balance" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("history", ["sqlite", pytest.param("redis", marks=pytest.mark.real)])
def test_tr37_every_departure_is_announced_exactly_once(history: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    command = [*COMMAND, *DEMO, str(tmp_path / "demo")]
    if history == "redis":
        command += ["--history", str(request.getfixturevalue("redis_url"))]
    balanced(subprocess.run(command, capture_output=True, text=True, timeout=200, check=False))
    assert (tmp_path / "demo" / "shop.db").is_file(), "without --broker the messages are in the embedded one"


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_tr37_every_departure_is_announced_exactly_once_on_artemis(artemis_url: str, redis_url: str, tmp_path: Path) -> None:
    command = [*COMMAND, *DEMO, str(tmp_path / "demo"), "--broker", artemis_url, "--history", redis_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    balanced(done)
    assert not (tmp_path / "demo" / "shop.db").exists(), "the messages are on the broker only"
    password = urlsplit(artemis_url).password or "a password that it has not"
    assert password not in done.stdout + done.stderr + (tmp_path / "demo" / "worker.log").read_text(encoding="utf-8")


def test_o09_a_broker_that_is_not_there_is_named_without_the_password(tmp_path: Path) -> None:
    command = [*COMMAND, *DEMO, str(tmp_path / "demo"), "--broker", "amqp://user:secret@127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert "secret" not in done.stdout + done.stderr
    assert not (tmp_path / "demo" / "worker.log").exists(), "no worker is started for nothing"
