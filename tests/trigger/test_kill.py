"""TR-37: SIGKILL between every two steps of claim → handler → complete → acknowledge, on SQLite and on real Redis."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from jmsclient import Status, connect
from jmsclient.envelope import encode
from jmsclient.exporters.journal_check import Check
from jmsclient.history import open_history
from jmsclient.message import MessageKind, PlainContent

PROGRAM = Path(__file__).with_name("kill_program.py")


def run(store: Path, history: str, effects: Path, trigger: str, step: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), str(store), history, str(effects), trigger, step, *more]
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
    check = Check()
    check.read(store.with_name("journal.jsonl").read_text(encoding="utf-8").splitlines())
    assert check.report().findings == []


# step -> what the second worker says, how often the effect is there in the end
CARRIED_OUT = {
    "before_claim": ("completed", 1),
    "after_claim": ("parked", 0),
    "after_effect": ("parked", 1),
    "after_complete": (None, 1),
}


@pytest.mark.parametrize("step", CARRIED_OUT)
def test_tr34_a_kill_while_a_decision_is_carried_out_leaves_it_decidable_or_done(
    step: str, history_url: str, tmp_path: Path
) -> None:
    trigger = f"orders-{uuid4().hex}"
    store, effects = tmp_path / "shop.db", tmp_path / "effects"
    content = PlainContent(kind=MessageKind.TEXT, body="one", message_id="ID:1", destination="queue:///orders")
    with open_history(history_url) as history:
        history.park(trigger, "ID:1", token="t", envelope=encode(content), reason="abandoned", delivery_count=2)
        history.decide(trigger, "ID:1", Status.NEW, "ada")

    killed = run(store, history_url, effects, trigger, step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    counter, times = CARRIED_OUT[step]
    with open_history(history_url) as history:  # without any worker: decidable as soon as the dead one's lease is over
        if counter == "parked":
            wait_until(lambda: [one.id for one in history.in_doubt(trigger)] == ["ID:1"])
    second = run(store, history_url, effects, trigger, "never", *([] if counter else ["0.5"]))
    assert second.returncode == 0, second.stderr
    counters = json.loads(second.stdout)
    for name in ("completed", "parked", "duplicate"):
        assert counters[name] == (name == counter)
    done = effects.read_text().split() if effects.exists() else []
    assert done == ["ID:1"] * times
    with open_history(history_url) as history:
        assert [one.reason for one in history.in_doubt(trigger)] == (["abandoned"] if counter == "parked" else [])


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
