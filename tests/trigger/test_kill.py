"""TR-37: SIGKILL between every two steps of claim → handler → complete → acknowledge, on SQLite and on real Redis."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from jmsclient import connect
from jmsclient.history import open_history

PROGRAM = Path(__file__).with_name("kill_program.py")


def run(store: Path, history: str, effects: Path, trigger: str, step: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), str(store), history, str(effects), trigger, step]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.real)])
def history_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'history.db'}"
    return str(request.getfixturevalue("redis_url"))


# step -> what the second worker says, how often the effect is there in the end
EXPECTED = {
    "before_claim": ("completed", 1),
    "after_claim": ("parked", 0),
    "after_effect": ("parked", 1),
    "after_complete": ("duplicate", 1),
}


@pytest.mark.parametrize("step", EXPECTED)
def test_tr37_a_kill_after_each_step_is_told_apart(step: str, history_url: str, tmp_path: Path) -> None:
    trigger = f"orders-{uuid4().hex}"  # a Redis server is shared by the tests
    store, effects = tmp_path / "shop.db", tmp_path / "effects"
    with connect(f"embedded:kill?store={store}") as connection:
        sent = connection.create_session().create_producer("queue:///orders").send("one", properties={"uuid": uuid4().hex})

    killed = run(store, history_url, effects, trigger, step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    second = run(store, history_url, effects, trigger, "never")
    assert second.returncode == 0, second.stderr
    counters = json.loads(second.stdout)

    counter, times = EXPECTED[step]
    assert {name: counters[name] for name in ("completed", "parked", "duplicate")} == {
        "completed": 0,
        "parked": 0,
        "duplicate": 0,
        counter: 1,
    }
    done = effects.read_text().split() if effects.exists() else []
    assert done == [sent] * times
    with open_history(history_url) as history:
        assert len(history.in_doubt(trigger)) == (counter == "parked")
    with connect(f"embedded:kill?store={store}") as connection:  # nothing is left, whatever happened
        assert connection.create_session().create_consumer("queue:///orders").receive_no_wait() is None
