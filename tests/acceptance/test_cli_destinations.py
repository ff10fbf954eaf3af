"""`jmsclient destinations`: numbers, pauses and moves from a second terminal, while a worker holds the store, or nobody does."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from .conftest import STORE

if TYPE_CHECKING:
    from .conftest import CommandLine, Running


WORKER = """
from jmsclient import Worker

worker = Worker("embedded:?store=shop.db", history="sqlite:history.db")


@worker.trigger("queue:///orders")
def book(order: str) -> None:
    print("booked", order, flush=True)
"""


@pytest.fixture
def held(jmsclient: CommandLine) -> CommandLine:
    jmsclient.hold()
    return jmsclient


@pytest.fixture(params=["held", "free"])
def store(request: pytest.FixtureRequest, jmsclient: CommandLine) -> CommandLine:
    if request.param == "held":
        jmsclient.hold()
    return jmsclient


def ask(jmsclient: CommandLine, *arguments: str) -> str:
    done = jmsclient("destinations", *arguments, "--url", STORE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def send(jmsclient: CommandLine, body: str = "tea", count: int = 1, queue: str = "orders", *arguments: str) -> list[str]:
    done = jmsclient("send", queue, body, "--count", str(count), "--url", STORE, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def numbers(jmsclient: CommandLine, queue: str = "orders") -> dict[str, Any]:
    (found,) = json.loads(ask(jmsclient, "stats", queue, "--format", "json"))
    assert found["destination"] == f"queue:///{queue}"
    return found  # type: ignore[no-any-return]


# -- list and stats ------------------------------------------------------------------------------------------------------


def test_list(store: CommandLine) -> None:
    send(store)
    send(store, queue="a b")
    lines = ask(store, "list").splitlines()
    assert lines == sorted(lines)
    assert {"queue:///orders", "queue:///a%20b"} <= set(lines)
    assert json.loads(ask(store, "list", "--format", "json")) == lines


def test_stats_count_as_the_rules_do(store: CommandLine) -> None:
    """IF-15."""
    send(store, "tea!", 3)
    send(store, "later", 1, "orders", "--delivery-delay", "3600")
    found = numbers(store)
    assert (found["messages_current"], found["messages_pending"], found["messages_received"]) == (3, 1, 4)
    assert (found["bytes_current"], found["bytes_pending"]) == (12, 5)
    assert found["messages_high"] >= 3
    assert found["pending_by_kind"]["unborn"] == 1
    assert sum(found["pending_by_kind"].values()) == 1
    assert (found["blocked_senders"], found["consumption_paused"]) == (0, False)


def test_stats_of_all_as_a_table(store: CommandLine) -> None:
    send(store, "tea!", 3)
    head, *rows = ask(store, "stats").splitlines()
    assert head.split()[:5] == ["destination", "current", "pending", "high", "received"]
    (row,) = [row for row in rows if row.startswith("queue:///orders ")]
    assert row.split() == ["queue:///orders", "3", "0", "3", "3", "12", "0", "0", "-", "-"]


def test_stats_show_the_workers_consumer(held: CommandLine) -> None:
    assert numbers(held, "work")["consumers_current"] == 1


def test_stats_of_a_destination_that_is_not_there(store: CommandLine) -> None:
    send(store)
    done = store("destinations", "stats", "nowhere", "--url", STORE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "queue:///nowhere" in done.stderr


# -- pausing -------------------------------------------------------------------------------------------------------------


def test_pause_consumption_then_resume(held: CommandLine) -> None:
    """The worker gets nothing while it is paused, and what waited when it is resumed (IF-20)."""
    worker = held.started[0]
    assert ask(held, "pause", "consumption", "work") == "consumption of queue:///work is paused\n"
    assert ask(held, "pause", "consumption", "work") == "consumption of queue:///work is paused, as it was before\n"
    send(held, "order 1", queue="work")
    assert numbers(held, "work")["consumption_paused"]
    assert numbers(held, "work")["messages_current"] == 1
    assert "worked" not in worker.text()
    done = held("receive", "work", "--url", STORE)
    assert done.stderr == "jmsclient: no message came from queue:///work within 0 s; its consumption is paused\n"
    assert ask(held, "resume", "consumption", "work") == "consumption of queue:///work is not paused\n"
    worker.wait_for("worked order 1\n")
    assert ask(held, "resume", "consumption", "work") == "consumption of queue:///work is not paused, as it was before\n"


@pytest.mark.parametrize("kind", ["production", "insertion"])
def test_a_paused_destination_refuses_sends(held: CommandLine, kind: str) -> None:
    send(held)
    ask(held, "pause", kind, "orders")
    done = held("send", "orders", "tea", "--url", STORE)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("jmsclient: DestinationPausedError: ")
    send(held, queue="others")
    ask(held, "resume", kind, "orders")
    send(held)


def test_pause_all_covers_what_is_to_come(held: CommandLine) -> None:
    assert ask(held, "pause", "production", "--all") == "production of every destination is paused\n"
    assert held("send", "new", "tea", "--url", STORE).returncode == 1
    ask(held, "resume", "production", "--all")
    send(held, queue="new")


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_store_that_nobody_holds_cannot_be_paused_and_says_why(jmsclient: CommandLine, verb: str) -> None:
    send(jmsclient)
    done = jmsclient("destinations", verb, "consumption", "orders", "--url", STORE)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "nobody holds this store" in done.stderr
    assert "consumption_paused=true" in done.stderr


def test_pause_of_a_destination_that_is_not_there(held: CommandLine) -> None:
    done = held("destinations", "pause", "consumption", "nowhere", "--url", STORE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "queue:///nowhere" in done.stderr


# -- moving --------------------------------------------------------------------------------------------------------------


def test_move_some_by_selector_ids_kept(held: CommandLine) -> None:
    """IF-35."""
    first = send(held, "tea", 2, "orders", "--property", "n:int=1")
    second = send(held, "milk", 2, "orders", "--property", "n:int=2")
    send(held, queue="rest")
    ask(held, "pause", "consumption", "orders")
    assert ask(held, "move", "orders", "rest", "--selector", "n = 1").splitlines() == [f"moved {one}" for one in first]
    moved = ask(held, "move", "orders", "rest", "--id", second[1], "--format", "json")
    assert json.loads(moved) == {"moved": [second[1]], "not_moved": []}
    ask(held, "resume", "consumption", "orders")
    left = held("receive", "orders", "--all", "--format", "json", "--url", STORE).stdout.splitlines()
    assert [json.loads(line)["message_id"] for line in left] == [second[0]]
    there = held("browse", "rest", "--format", "json", "--url", STORE).stdout.splitlines()
    assert [json.loads(line)["message_id"] for line in there][1:] == [*first, second[1]]


def test_move_says_what_was_not_moved_and_why(held: CommandLine) -> None:
    (known,) = send(held)
    send(held, queue="rest")
    ask(held, "pause", "consumption", "orders")
    done = held("destinations", "move", "orders", "rest", "--id", known, "--id", "ID:unknown", "--url", STORE)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [f"moved {known}", "not moved ID:unknown: not there"]
    assert done.stderr == "1 moved, 1 not moved\n"


def test_move_needs_a_pause_and_says_how(held: CommandLine) -> None:
    send(held)
    send(held, queue="rest")
    done = held("destinations", "move", "orders", "rest", "--url", STORE)
    assert (done.returncode, done.stdout) == (1, "")
    assert "jmsclient destinations pause consumption queue:///orders" in done.stderr
    assert numbers(held)["messages_current"] == 1


def test_move_in_a_store_that_nobody_holds_needs_no_pause(jmsclient: CommandLine) -> None:
    ids = send(jmsclient, "tea", 3)
    send(jmsclient, queue="rest")
    assert ask(jmsclient, "move", "orders", "rest").splitlines() == [f"moved {one}" for one in ids]
    assert numbers(jmsclient, "rest")["messages_current"] == 4
    assert not numbers(jmsclient, "rest")["consumption_paused"], "the pause ended with the command"


# -- a worker ------------------------------------------------------------------------------------------------------------


def test_a_worker_is_looked_into_stopped_and_let_flow_again_from_a_second_terminal(jmsclient: CommandLine) -> None:
    jmsclient.write("app.py", WORKER)
    worker = jmsclient.start("run", "app:worker", "--log-level", "warning")
    send_when_ready(jmsclient)
    attached = jmsclient.start("run", "app:worker", "--log-level", "warning", "--url", f"{STORE}&attach=yes")
    wait_for_either(worker, attached, "booked first")
    wait_until_two_consume(jmsclient)
    ask(jmsclient, "pause", "consumption", "orders")
    ids = send(jmsclient, "second", 2)
    assert jmsclient("browse", "orders", "--url", STORE).stdout == "second\nsecond\n"
    assert (numbers(jmsclient)["messages_current"], numbers(jmsclient)["messages_pending"]) == (2, 0)
    assert "second" not in worker.text() + attached.text()
    send(jmsclient, queue="parked")
    assert ask(jmsclient, "move", "orders", "parked", "--id", ids[0]) == f"moved {ids[0]}\n"
    ask(jmsclient, "resume", "consumption", "orders")
    wait_for_either(worker, attached, "booked second")
    for running in (attached, worker):
        running.signal(signal.SIGTERM)
        assert running.end() == 0, running.text()
        assert "Traceback" not in running.text()
    assert (worker.text() + attached.text()).count("booked") == 2


def send_when_ready(jmsclient: CommandLine) -> None:
    """The first message, as soon as the worker has made its store."""
    end = time.monotonic() + 60
    while not (jmsclient.folder / "shop.db.sock").exists():
        assert time.monotonic() < end, [one.text() for one in jmsclient.started]
        time.sleep(0.02)
    send(jmsclient, "first")


def wait_until_two_consume(jmsclient: CommandLine) -> None:
    end = time.monotonic() + 60
    while numbers(jmsclient)["consumers_current"] < 2:
        assert time.monotonic() < end, [one.text() for one in jmsclient.started]


def wait_for_either(one: Running, other: Running, text: str) -> None:
    end = time.monotonic() + 60
    while text not in one.text() + other.text():
        assert time.monotonic() < end, one.text() + other.text()
        time.sleep(0.02)


# -- bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["list"], ["destinations list", "--url"], id="no url"),
        pytest.param(["list", "--url", "embedded:"], ["'embedded:'", "store"], id="embedded without a store"),
        pytest.param(["stats", "--url", STORE], ["'shop.db'", "there is no store"], id="no such store"),
        pytest.param(["pause", "everything", "orders", "--url", STORE], ["'everything'", "consumption"], id="kind"),
        pytest.param(["pause", "consumption", "--url", STORE], ["DESTINATION", "--all"], id="neither"),
        pytest.param(["pause", "consumption", "orders", "--all", "--url", STORE], ["DESTINATION", "--all"], id="both"),
        pytest.param(["move", "orders", "--url", STORE], ["TARGET"], id="no target"),
        pytest.param(["move", "queue:orders", "rest", "--url", STORE], ["'queue:orders'"], id="malformed source"),
    ],
)
def test_bad_input(jmsclient: CommandLine, arguments: list[str], said: list[str]) -> None:
    done = jmsclient("destinations", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("jmsclient: ")
    assert done.stderr.count("\n") == 1
    for text in said:
        assert text in done.stderr
    assert jmsclient.files() == []
