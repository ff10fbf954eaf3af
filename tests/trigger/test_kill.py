"""SIGKILL between every two steps of claim → handler → complete → acknowledge, and of all that may come between, on SQLite and on
real Redis: the table of docs/explanation/exactly-once.md. TR-34, TR-37, TR-45, TR-57, TR-63."""

from __future__ import annotations

import json
import os
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
from jmsclient.history import State, open_history
from jmsclient.message import MessageKind, PlainContent

PROGRAM = Path(__file__).with_name("kill_program.py")


def run(
    store: Path, history: str, effects: Path, trigger: str, step: str, *more: str, mode: str = "plain"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), str(store), history, str(effects), trigger, step, *more]
    env = {**os.environ, "KILL_MODE": mode}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)


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


class Shop:
    """A store, a history and a worker that dies where it is told, then one that does not."""

    def __init__(self, folder: Path, history_url: str, mode: str) -> None:
        self.trigger = f"orders-{uuid4().hex}"  # a Redis server is shared by the tests
        self._store, self._effects = folder / "shop.db", folder / "effects"
        self._history_url, self._mode = history_url, mode

    def send(self, queue: str, body: str, uuid: str, **properties: str) -> None:
        with connect(f"embedded:kill?store={self._store}") as connection:
            connection.create_session().create_producer(queue).send(body, properties={"uuid": uuid, **properties})

    def dies(self, step: str) -> None:
        killed = run(self._store, self._history_url, self._effects, self.trigger, step, mode=self._mode)
        assert killed.returncode == -signal.SIGKILL, killed.stderr

    def lives(self, patience: str = "10") -> dict[str, float]:
        second = run(self._store, self._history_url, self._effects, self.trigger, "never", patience, mode=self._mode)
        assert second.returncode == 0, second.stderr
        return {name: value for name, value in json.loads(second.stdout).items() if not name.endswith("_time")}

    def effects(self) -> list[str]:
        return self._effects.read_text().splitlines() if self._effects.exists() else []

    def waiting(self, queue: str) -> list[str | None]:
        """The bodies that are left there; they are gone then."""
        with connect(f"embedded:kill?store={self._store}") as connection:
            consumer = connection.create_session().create_consumer(queue)
            found = []
            while (message := consumer.receive_no_wait()) is not None:
                found.append(message.text)
            return found

    def state(self, uuid: str) -> State | None:
        with open_history(self._history_url) as history:
            entry = history.lookup(self.trigger, uuid, source="uuid")
            return entry.state if entry else None

    def in_doubt(self) -> list[tuple[str, str, int]]:
        with open_history(self._history_url) as history:
            return [(one.id, one.reason, one.copies) for one in history.in_doubt(self.trigger)]

    def findings(self) -> list[str]:
        check = Check()
        check.read(self._store.with_name("journal.jsonl").read_text(encoding="utf-8").splitlines())
        return [one.text for one in check.report().findings]


@pytest.fixture
def shop(history_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Shop:
    return Shop(tmp_path, history_url, request.param)


@pytest.mark.parametrize("shop", ["retries"], indirect=True)
def test_tr57_killed_in_the_pause_between_retries_it_is_the_next_attempt(shop: Shop) -> None:
    uuid = uuid4().hex
    shop.send("orders", "one", uuid)
    shop.dies("after_retrying")
    assert (shop.state(uuid), shop.effects()) == (State.RETRYING, [])
    counters = shop.lives()
    assert (counters["completed"], counters["retrying"], counters["in_doubt"]) == (1, 0, 0)  # attempt 2 at once: no new pause
    assert len(shop.effects()) == 1
    assert shop.waiting("orders") == []
    assert shop.findings() == []


@pytest.mark.parametrize("shop", ["fails"], indirect=True)
@pytest.mark.parametrize(("step", "copies"), [("after_failed", 1), ("before_complete", 2)])
def test_tr45_killed_while_it_is_dead_lettered_that_is_finished_and_nothing_runs(shop: Shop, step: str, copies: int) -> None:
    """Killed after the copy was sent, it is sent again: both say which message they are."""
    uuid = uuid4().hex
    shop.send("orders", "one", uuid)
    shop.dies(step)
    assert (shop.state(uuid), len(shop.effects())) == (State.FAILED, 1)
    assert shop.lives()["dead_lettered"] == 1
    assert (shop.state(uuid), len(shop.effects())) == (State.COMPLETED, 1)
    assert shop.waiting("errors") == ["one"] * copies
    assert shop.waiting("orders") == []
    assert shop.findings() == []


@pytest.mark.parametrize("shop", ["plain"], indirect=True)
def test_tr34_killed_between_the_parked_copy_and_its_acknowledge_it_is_counted_and_acknowledged(shop: Shop) -> None:
    uuid = uuid4().hex
    shop.send("orders", "one", uuid)
    shop.dies("after_claim")
    shop.dies("after_park")
    assert shop.in_doubt() == [(uuid, "abandoned", 0)]
    shop.lives()
    assert shop.in_doubt() == [(uuid, "abandoned", 1)]
    assert (shop.effects(), shop.waiting("orders")) == ([], [])
    assert shop.findings() == []


@pytest.mark.parametrize("shop", ["transacted"], indirect=True)
def test_tr37_killed_before_its_commit_nothing_was_sent_and_it_is_in_doubt(shop: Shop) -> None:
    uuid = uuid4().hex
    shop.send("orders", "one", uuid)
    shop.dies("after_effect")
    assert shop.state(uuid) is State.PROCESSING
    assert shop.lives()["parked"] == 1
    assert shop.in_doubt() == [(uuid, "abandoned", 0)]
    assert (len(shop.effects()), shop.waiting("invoices"), shop.waiting("orders")) == (1, [], [])
    assert shop.findings() == []


@pytest.mark.parametrize("shop", ["transacted"], indirect=True)
def test_tr37_killed_after_its_commit_it_is_gone_and_a_second_copy_is_in_doubt(shop: Shop) -> None:
    uuid = uuid4().hex
    shop.send("orders", "one", uuid)
    shop.dies("before_complete")
    assert shop.state(uuid) is State.PROCESSING
    assert shop.waiting("orders") == []
    shop.send("orders", "one", uuid)
    assert shop.lives()["parked"] == 1
    assert shop.in_doubt() == [(uuid, "abandoned", 0)]
    assert (len(shop.effects()), shop.waiting("invoices"), shop.waiting("orders")) == (1, ["invoice of one"], [])


@pytest.mark.parametrize("shop", ["joins"], indirect=True)
@pytest.mark.parametrize("step", ["before_join", "after_join"])
def test_tr63_killed_while_it_joins_it_joins_again_and_the_set_runs_once(shop: Shop, step: str) -> None:
    order, payment = uuid4().hex, uuid4().hex
    shop.send("orders", "order", order, activation="a1")
    shop.dies(step)
    assert shop.state(order) is State.PROCESSING
    shop.send("payments", "payment", payment, activation="a1")
    assert shop.lives()["completed"] >= 1
    assert shop.effects() == ["order payment"]
    assert (shop.waiting("orders"), shop.waiting("payments"), shop.in_doubt()) == ([], [], [])


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
