"""The main job: `jmsclient demo` balances its books with any seed, whatever the worker was doing when killed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("history", ["sqlite", pytest.param("redis", marks=pytest.mark.real)])
def test_tr37_every_departure_is_announced_exactly_once(history: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jmsclient", "demo", "--seed", "7", "--keep", str(tmp_path / "demo")]
    if history == "redis":
        command += ["--history", str(request.getfixturevalue("redis_url"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    numbers = dict(re.findall(r"│ (.+?) +│ +(\d+) │", done.stdout))
    assert numbers["departures"] == "2699"
    assert numbers["announced twice"] == "0"
    assert numbers["lost (neither announced nor parked)"] == "0"
    assert numbers["worker killed"] == "3"
    assert numbers["findings in the worker's journal"] == "0"
    assert "the books balance" in done.stdout
