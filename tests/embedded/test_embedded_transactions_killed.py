"""Transactions on a store when the process is killed, or the disk is full: all of a commit or nothing (IF-28, T5, T6, T12)."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from jmsclient import AcknowledgeMode
from jmsclient import connect as connect_public
from jmsclient.errors import TransactionRolledBackError

from .conftest import Client, Connect, until

PROGRAM = """
    import os, signal, sys
    sys.path[:0] = {path!r}
    from jmsclient import AcknowledgeMode, connect
    point = {point!r}

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def reached(name):
        if name == point:
            die()

    connection = connect("embedded:?store={file}")
    plain = connection.create_session()
    plain.create_producer("in").send_many(["1", "2", "3", "4"])
    session = connection.create_session(AcknowledgeMode.TRANSACTED)
    consumer = session.create_consumer("in", prefetch=2)
    got = [consumer.receive(5).text for _ in range(2)]
    assert got == ["1", "2"], got
    reached("after the receives")
    producer = session.create_producer("out")
    producer.send("a")
    reached("between two sends")
    producer.send("b")
    session.create_producer("out2").send("c")
    reached("before the end")
    statements = 0

    def count(statement):
        global statements
        statements += 1
        if point == statements:
            die()

    connection.transport.broker.store._connection.set_trace_callback(count)
    session.{end}()
    print("ended", flush=True)
    reached("after the end")
    connection.close()
    print("closed", statements, flush=True)
"""


def run(file: Path, point: str | int, end: str) -> tuple[bool, int]:
    """Whether the end of the transaction was confirmed, and how the process ended."""
    program = textwrap.dedent(PROGRAM).format(path=sys.path, point=point, file=file, end=end)
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return b"ended" in done.stdout, done.returncode


def bodies(client: Client, queue: str) -> list[object]:
    return client.bodies(queue) if queue in [one.name for one in client.admin.destinations()] else []


NOTHING = (["1", "2", "3", "4"], [], [])
ALL = (["3", "4"], ["a", "b"], ["c"])


@pytest.mark.parametrize("point", ["after the receives", "between two sends", "before the end", *range(1, 9), "after the end"])
def test_if_28_killed_at_any_point_of_a_commit_it_is_all_or_nothing(connect: Connect, tmp_path: Path, point: str | int) -> None:
    file = tmp_path / "shop.db"
    confirmed, _ = run(file, point, "commit")
    client = connect(f"embedded:?store={file}")
    found = (bodies(client, "in"), bodies(client, "out"), bodies(client, "out2"))
    assert found in (NOTHING, ALL)
    if confirmed:
        assert found == ALL
    if isinstance(point, str):
        assert (found == ALL) is (point == "after the end")
    counts = [count for _, count in client.shown("in")]
    assert counts == ([0, 0] if found == ALL else [1, 1, 0, 0])  # IF-11: what was only in the window does not count


@pytest.mark.parametrize("point", ["before the end", *range(1, 5), "after the end"])
def test_if_28_killed_at_any_point_of_a_rollback_nothing_is_lost(connect: Connect, tmp_path: Path, point: str | int) -> None:
    file = tmp_path / "shop.db"
    run(file, point, "rollback")
    client = connect(f"embedded:?store={file}")
    assert (bodies(client, "in"), bodies(client, "out"), bodies(client, "out2")) == NOTHING
    assert [count for _, count in client.shown("in")] == [1, 1, 0, 0]


def test_the_points_of_the_kill_reach_into_the_commit(tmp_path: Path) -> None:
    """The numbered points above are statements of the commit's one store transaction; the last lie behind it."""
    results = [run(tmp_path / f"{point}.db", point, "commit") for point in (1, 4, 100)]
    assert results == [(False, -signal.SIGKILL), (False, -signal.SIGKILL), (True, 0)]


def test_if_28_a_full_disk_fails_the_commit_of_a_session_and_everything_comes_back(connect: Connect, tmp_path: Path) -> None:
    url = f"embedded:?store={tmp_path / 'shop.db'}"
    client = connect(url)
    client.send("in1", "in2", queue="in")
    store = client.broker.store
    assert store is not None
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    with connect_public(url) as connection, connection.create_session(AcknowledgeMode.TRANSACTED) as session:
        consumer = session.create_consumer("in", prefetch=1)
        first = consumer.receive(5)
        assert first is not None
        session.create_producer("out").send("x" * 100_000)
        store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(TransactionRolledBackError, match="full"):
            session.commit()
        store._connection.execute("PRAGMA max_page_count = 1073741823")
        assert client.numbers("out") == (0, 0)
        again = [consumer.receive(5) for _ in range(2)]
        assert [(one.text, one.delivery_count) for one in again if one is not None] == [("in1", 2), ("in2", 1)]
        session.create_producer("out").send("x" * 100_000)
        session.commit()
    until(lambda: client.numbers("in") == (0, 0))
    assert client.numbers("out") == (1, 0)
    client.transport.close(None)
    again_client = connect(url)
    assert len(again_client.bodies("out")) == 1
    assert bodies(again_client, "in") == []
