"""`jmsclient browse`: what waits, without changing anything, whoever holds the store."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from .conftest import COMMAND, STORE, environment

if TYPE_CHECKING:
    from .conftest import CommandLine


@pytest.fixture(params=["held", "free"])
def store(request: pytest.FixtureRequest, jmsclient: CommandLine) -> CommandLine:
    """A store with three messages that another process holds, or nobody."""
    if request.param == "held":
        jmsclient.hold()
    for number, body in enumerate(("tea", "milk", "jam")):
        arguments = ("--property", f"n:int={number}", "--priority", str(number))
        assert jmsclient("send", "orders", body, "--url", STORE, *arguments).returncode == 0
    return jmsclient


def browse(jmsclient: CommandLine, *arguments: str, queue: str = "orders") -> list[str]:
    done = jmsclient("browse", queue, "--url", STORE, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_head_first_and_again_the_same(store: CommandLine) -> None:
    """RA-7, IF-11: looking changes neither order nor count."""
    for _ in range(3):
        assert browse(store) == ["jam", "milk", "tea"]
    done = store("receive", "orders", "--all", "--format", "json", "--url", STORE)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(message["body"], message["delivery_count"]) for message in messages] == [("jam", 1), ("milk", 1), ("tea", 1)]
    assert browse(store) == []


def test_only_what_a_selector_selects_and_the_first_of_them(store: CommandLine) -> None:
    assert browse(store, "--selector", "n < 2") == ["milk", "tea"]
    assert browse(store, "--selector", "n < 2", "--count", "1") == ["milk"]
    assert browse(store, "--selector", "n > 7") == []


def test_json_has_everything(store: CommandLine) -> None:
    first = json.loads(browse(store, "--format", "json")[0])
    assert (first["body"], first["properties"], first["priority"], first["kind"]) == ("jam", {"n": 2}, 2, "TEXT")
    assert first["destination"] == "queue:///orders"


def test_a_queue_that_nobody_used_is_empty_and_stays_unknown(store: CommandLine) -> None:
    assert browse(store, queue="nowhere") == []
    assert "nowhere" not in store("destinations", "list", "--url", STORE).stdout


def test_a_reader_that_goes_away(store: CommandLine) -> None:
    assert store("send", "many", "tea" * 200, "--count", "3000", "--url", STORE).returncode == 0
    command = [*COMMAND, "browse", "many", "--url", STORE]
    with subprocess.Popen(command, cwd=store.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr.read() == b""
    assert len(browse(store, queue="many")) == 3000


def test_looking_writes_nothing_into_a_store_that_nobody_holds(jmsclient: CommandLine) -> None:
    assert jmsclient("send", "orders", "tea", "--count", "3", "--url", STORE).returncode == 0
    before = rows(jmsclient)
    assert browse(jmsclient) == ["tea"] * 3
    assert rows(jmsclient) == before
    assert jmsclient.files() == ["shop.db"]


def rows(jmsclient: CommandLine) -> list[object]:
    with closing(sqlite3.connect(jmsclient.folder / "shop.db")) as connection:
        return connection.execute("SELECT * FROM messages ORDER BY 1").fetchall()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["orders"], ["browse", "--url"], id="no url"),
        pytest.param(["orders", "--url", "embedded:shop"], ["'embedded:shop'", "store"], id="embedded without a store"),
        pytest.param(["orders", "--url", STORE], ["'shop.db'", "there is no store"], id="no such store"),
        pytest.param(["queue:orders", "--url", STORE], ["'queue:orders'"], id="malformed destination"),
        pytest.param(["orders", "--count", "0", "--url", STORE], ["0", "x>=1"], id="no count"),
    ],
)
def test_bad_input(jmsclient: CommandLine, arguments: list[str], said: list[str]) -> None:
    done = jmsclient("browse", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    for text in said:
        assert text in done.stderr
    assert jmsclient.files() == []


def test_a_topic_cannot_be_browsed(store: CommandLine) -> None:
    done = store("browse", "topic:///prices", "--url", STORE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "topic:///prices" in done.stderr
