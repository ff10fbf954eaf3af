"""TR-36, TR-37: SIGKILL between every two steps of claim → handler → completed → commit → acknowledge, on SQLite and PostgreSQL.

The history is in the handler's own transaction: whatever the step, the effect is there once, and nothing is In Doubt.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from jmsclient import connect
from jmsclient.exporters.journal_check import Check
from jmsclient.history import SqlHistory
from jmsclient.history.sql_source import run

from .sql_kill_program import connect_to

PROGRAM = Path(__file__).with_name("sql_kill_program.py")

# step -> what the second worker counts
EXPECTED = {
    "before_claim": {"completed": 1},
    "after_claim": {"completed": 1, "abandoned": 1},
    "after_effect": {"completed": 1, "abandoned": 1},
    "before_commit": {"completed": 1, "abandoned": 1},
    "after_commit": {"duplicate": 1},
}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found = str(tmp_path / "shop.db") if request.param == "sqlite" else str(request.getfixturevalue("postgresql_url"))
    with closing(connect_to(found)) as connection:
        run(connection, "CREATE TABLE IF NOT EXISTS booked (name TEXT)")
        connection.commit()
    return found


def work(store: Path, database: str, trigger: str, step: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), str(store), database, trigger, step]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("step", EXPECTED)
def test_tr36_a_kill_at_any_step_leaves_one_effect_and_no_doubt(step: str, database: str, tmp_path: Path) -> None:
    trigger = f"orders-{uuid4().hex}"  # a server is shared by the tests
    store = tmp_path / "broker.db"
    with connect(f"embedded:kill?store={store}") as connection:
        connection.create_session().create_producer("queue:///orders").send("one", properties={"uuid": uuid4().hex})

    killed = work(store, database, trigger, step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    second = work(store, database, trigger, "never")
    assert second.returncode == 0, second.stderr
    counters = json.loads(second.stdout)
    seen = {
        name: counters[name] for name in ("completed", "abandoned", "duplicate", "in_doubt", "parked", "failed") if counters[name]
    }
    assert seen == EXPECTED[step]

    with closing(connect_to(database)) as connection:
        assert run(connection, "SELECT count(*) FROM booked WHERE name = ?", (f"{trigger}/one",)).rows[0][0] == 1
        connection.rollback()
    with SqlHistory(lambda: connect_to(database)) as history:
        assert history.in_doubt(trigger) == []
    with connect(f"embedded:kill?store={store}") as connection:  # nothing is left, whatever happened
        assert connection.create_session().create_consumer("queue:///orders").receive_no_wait() is None
    check = Check()
    check.read((tmp_path / "journal.jsonl").read_text(encoding="utf-8").splitlines())
    assert check.report().findings == []
