"""TR-36, TR-39: a worker that stood still for longer than its lease goes on in its transaction when another has done its work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from jmsclient import connect
from jmsclient.history import Complete, SqlHistory
from jmsclient.history.sql_source import run

from .redis_program import until

PROGRAM = Path(__file__).with_name("sql_late_program.py")


@pytest.mark.real
def test_tr36_the_effects_of_a_process_that_stood_still_roll_back_and_its_message_is_a_duplicate(
    postgresql_url: str, tmp_path: Path
) -> None:
    trigger, store, go_on = f"orders-{uuid4().hex}", tmp_path / "broker.db", tmp_path / "go on"
    with closing(psycopg.connect(postgresql_url)) as one:
        run(one, "CREATE TABLE IF NOT EXISTS booked (name TEXT)")
        one.commit()
    with connect(f"embedded:late?store={store}") as connection:
        connection.create_session().create_producer("queue:///orders").send("one", properties={"uuid": "1"})

    command = [sys.executable, str(PROGRAM), str(store), postgresql_url, trigger, str(go_on)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "inside\n"
        os.kill(worker.pid, signal.SIGSTOP)
        with SqlHistory(lambda: psycopg.connect(postgresql_url)) as history:
            assert not history.claim(trigger, "1", source="uuid", token="early", take_over=True).claimed  # its lease is alive
            until(lambda: history.claim(trigger, "1", source="uuid", token="mine", take_over=True).claimed)
            with history.transaction(Complete(trigger=trigger, id="1", source="uuid", token="mine")) as transaction:
                run(transaction.connection, "INSERT INTO booked (name) VALUES (?)", (f"{trigger}/mine",))
        os.kill(worker.pid, signal.SIGCONT)
        go_on.touch()
        counters = json.loads(worker.communicate(timeout=30)[0])
    finally:
        worker.kill()
        worker.wait()
    assert (counters["lease_lost"], counters["duplicate"], counters["completed"]) == (1, 1, 0)
    with closing(psycopg.connect(postgresql_url)) as one:
        booked = run(one, "SELECT name FROM booked WHERE name LIKE ?", (f"{trigger}/%",)).rows
        one.rollback()
    assert booked == [(f"{trigger}/mine",)]
