"""TR-36: a worker killed at any moment, again and again: each effect is in the database once, and nothing is In Doubt."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from jmsclient import Message, connect
from jmsclient.exporters.journal_check import Check
from jmsclient.history import SqlHistory
from jmsclient.history.sql_source import run

from .redis_program import until
from .sql_chaos_program import connect_to

PROGRAM = Path(__file__).with_name("sql_chaos_program.py")
MESSAGES, REPEATED, KILLS = 300, 60, 5


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found = str(tmp_path / "shop.db") if request.param == "sqlite" else str(request.getfixturevalue("postgresql_url"))
    with closing(connect_to(found)) as connection:
        run(connection, "CREATE TABLE IF NOT EXISTS booked (name TEXT)")
        connection.commit()
    return found


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_tr36_whatever_is_killed_each_effect_is_there_once(database: str, tmp_path: Path) -> None:
    trigger, store, journal = f"orders-{uuid4().hex}", tmp_path / "broker.db", tmp_path / "journal.jsonl"
    names = [str(number) for number in range(MESSAGES)]
    again = random.sample(names, REPEATED)
    with connect(f"embedded:chaos?store={store}") as connection:
        messages = [Message(name, properties={"uuid": name}) for name in (*names, *again)]
        connection.create_session().create_producer("queue:///orders").send_many(messages)

    def booked() -> list[str]:
        with closing(connect_to(database)) as one:
            rows = run(one, "SELECT name FROM booked WHERE name LIKE ?", (f"{trigger}/%",)).rows
            one.rollback()
        return [name.partition("/")[2] for (name,) in rows]

    for kill in range(KILLS + 1):
        command = [sys.executable, str(PROGRAM), str(store), database, trigger, str(journal)]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert worker.stdout is not None
        try:
            assert worker.stdout.readline() == b"running\n", worker.stderr.read() if worker.stderr else b""
            if kill < KILLS:
                goal = MESSAGES * (kill + 1) // (KILLS + 2)
                until(lambda goal=goal: len(booked()) >= goal, timeout=60.0)
                time.sleep(random.uniform(0.0, 0.02))
                worker.send_signal(signal.SIGKILL)
            else:
                until(lambda: len(set(booked())) == MESSAGES, timeout=60.0)
                until(lambda: emptied(journal), timeout=30.0)
                worker.send_signal(signal.SIGKILL)
        finally:
            worker.kill()
            worker.communicate()

    assert Counter(booked()) == dict.fromkeys(names, 1)
    with SqlHistory(lambda: connect_to(database)) as history:
        assert history.in_doubt(trigger) == []
    with connect(f"embedded:chaos?store={store}") as connection:
        assert connection.create_session().create_consumer("queue:///orders").receive_no_wait() is None
    check = Check()
    check.read(journal.read_text(encoding="utf-8").splitlines())
    report = check.report()
    assert [one for one in report.findings if one.certain] == []
    assert report.runs == KILLS + 1


def emptied(journal: Path) -> bool:
    """Every message, repeated ones too, is acknowledged, as far as the killed told: nothing was written for a while."""
    return time.time() - journal.stat().st_mtime > 2.0
