"""Several workers on one queue, killed at random, with a sender that repeats itself: each id runs once, or is In Doubt and listed.

TR-37, TR-38, TR-39. With the history in the handler's transaction (TR-36) nothing is In Doubt. All workers' journals are clean.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from jmsclient import connect
from jmsclient.history import open_history
from jmsclient.history.sql_source import run

from .chaos_fleet import Fleet, checked, quiet, send
from .conftest import trust
from .redis_program import until

QUEUE = "queue:///orders"
WORKERS, MESSAGES, REPEATED, KILLS = 3, 900, 200, 6

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(180)]


def test_tr37_on_redis_each_id_runs_once_or_is_in_doubt(redis_url: str, tmp_path: Path) -> None:
    trigger, store = f"orders-{uuid4().hex}", tmp_path / "broker.db"
    journal, effects = tmp_path / "journal.jsonl", tmp_path / "effects"
    names = [str(number) for number in range(MESSAGES)]
    with open_history(redis_url) as history:
        trust(history)  # type: ignore[arg-type]
    with connect(f"embedded:chaos?store={store}") as connection:
        send(connection, QUEUE, names, REPEATED)
        fleet = Fleet(WORKERS, f"embedded:chaos?store={store}&attach=yes", QUEUE, redis_url, trigger, str(journal), str(effects))
        try:
            fleet.wait_until_they_run()
            for kill in range(KILLS):
                goal = MESSAGES * (kill + 1) // (KILLS + 2)
                until(lambda goal=goal: effects.exists() and effects.read_bytes().count(b"\n") >= goal, timeout=60.0)
                fleet.kill_one()
            until(lambda: quiet(journal), timeout=60.0)
        finally:
            fleet.end()
        assert connection.create_session().create_consumer(QUEUE).receive_no_wait() is None
    ran = Counter(effects.read_text().split())
    with open_history(redis_url) as history:
        parked = {one.id for one in history.in_doubt(trigger)}
        states = history.lookup_many(trigger, [(name, "uuid") for name in names])
    assert {name: times for name, times in ran.items() if times > 1} == {}
    assert {name for name in names if not ran[name]} <= parked
    assert {entry.state.value if entry else None for entry in states} <= {"completed", "in_doubt"}
    assert len(parked) <= KILLS * 4  # one a handler and kill
    report = checked(journal)
    assert [one for one in report.findings if one.certain] == []
    assert report.runs == WORKERS + KILLS


def test_tr36_on_postgresql_in_the_handlers_transaction_each_id_runs_once(postgresql_url: str, tmp_path: Path) -> None:
    trigger, store, journal = f"orders-{uuid4().hex}", tmp_path / "broker.db", tmp_path / "journal.jsonl"
    names = [str(number) for number in range(MESSAGES)]
    with closing(psycopg.connect(postgresql_url, autocommit=True)) as database:
        run(database, "CREATE TABLE IF NOT EXISTS booked (name TEXT)")

        def booked() -> list[str]:
            rows = run(database, "SELECT name FROM booked WHERE name LIKE ?", (f"{trigger}/%",)).rows
            return [name.partition("/")[2] for (name,) in rows]

        with connect(f"embedded:chaos?store={store}") as connection:
            send(connection, QUEUE, names, REPEATED)
            fleet = Fleet(
                WORKERS, f"embedded:chaos?store={store}&attach=yes", QUEUE, postgresql_url, trigger, str(journal), postgresql_url
            )
            try:
                fleet.wait_until_they_run()
                for kill in range(KILLS):
                    goal = MESSAGES * (kill + 1) // (KILLS + 2)
                    until(lambda goal=goal: len(booked()) >= goal, timeout=60.0)
                    fleet.kill_one()
                until(lambda: len(booked()) == MESSAGES and quiet(journal), timeout=60.0)
            finally:
                fleet.end()
            assert connection.create_session().create_consumer(QUEUE).receive_no_wait() is None
        assert Counter(booked()) == dict.fromkeys(names, 1)
    with open_history(postgresql_url) as history:
        assert history.in_doubt(trigger) == []
    assert [one for one in checked(journal).findings if one.certain] == []
