"""`jmsclient receive`, and `send` and `receive` from a second terminal: a worker holds the store and goes on undisturbed."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from .conftest import COMMAND, STORE, environment

if TYPE_CHECKING:
    from .conftest import CommandLine


def send(jmsclient: CommandLine, *bodies: str, queue: str = "orders") -> None:
    for body in bodies:
        done = jmsclient("send", queue, body, "--url", STORE)
        assert done.returncode == 0, done.stderr


def bodies(jmsclient: CommandLine, *arguments: str) -> list[str]:
    done = jmsclient("receive", "orders", "--url", STORE, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(params=["held", "free"])
def store(request: pytest.FixtureRequest, jmsclient: CommandLine) -> CommandLine:
    """A folder with a store that another process holds, or nobody."""
    if request.param == "held":
        jmsclient.hold()
    return jmsclient


def test_takes_one_and_leaves_the_others(store: CommandLine) -> None:
    send(store, "tea", "milk", "jam")
    assert bodies(store) == ["tea"]
    assert bodies(store, "--count", "2") == ["milk", "jam"]


def test_all_takes_what_is_there(store: CommandLine) -> None:
    assert store("send", "orders", "tea", "--count", "250", "--url", STORE).returncode == 0
    assert bodies(store, "--all") == ["tea"] * 250
    assert bodies(store, "--all") == []


def test_nothing_there_is_a_failure_that_says_so(store: CommandLine) -> None:
    send(store, "tea")
    done = store("receive", "orders", "--url", STORE, "--count", "2", "--timeout", "0.1")
    assert (done.returncode, done.stdout) == (1, "tea\n")
    assert done.stderr == "jmsclient: 1 of 2 messages came from queue:///orders within 0.1 s\n"
    assert store("receive", "orders", "--url", STORE).stderr == "jmsclient: no message came from queue:///orders within 0 s\n"


def test_a_selector_leaves_the_others(store: CommandLine) -> None:
    for number in range(4):
        assert store("send", "orders", f"tea {number}", "--property", f"n:int={number}", "--url", STORE).returncode == 0
    assert bodies(store, "--all", "--selector", "n > 1") == ["tea 2", "tea 3"]
    assert bodies(store, "--all") == ["tea 0", "tea 1"]


def test_json_has_everything(store: CommandLine) -> None:
    arguments = ("--property", "n:int=5", "--priority", "7", "--correlation-id", "c1", "--type", "order", "--reply-to", "answers")
    sent = store("send", "orders", '{"a": 1, "b": null}', "--kind", "map", "--url", STORE, *arguments)
    done = store("receive", "orders", "--url", STORE, "--format", "json")
    message = json.loads(done.stdout)
    assert message["message_id"] + "\n" == sent.stdout
    assert message["timestamp"] == pytest.approx(time.time(), abs=60)
    assert {name: value for name, value in message.items() if name not in ("message_id", "timestamp")} == {
        "destination": "queue:///orders",
        "expiration": None,
        "delivery_time": None,
        "persistent": True,
        "priority": 7,
        "delivery_count": 1,
        "redelivered": False,
        "correlation_id": "c1",
        "reply_to": "queue:///answers",
        "type": "order",
        "properties": {"n": 5},
        "kind": "MAP",
        "body": {"a": 1, "b": None},
    }


def test_bytes_and_what_steers_terminals_are_one_harmless_line(store: CommandLine) -> None:
    store("send", "orders", "-", "--kind", "bytes", "--url", STORE, stdin=b"\x00\xff")
    send(store, "\x1b[31mred\nline")
    store("send", "orders", "-", "--kind", "bytes", "--url", STORE, stdin=b"\x00\xff")
    assert bodies(store, "--count", "2") == ["\\x00\\xff", "\\x1b[31mred\\nline"]
    assert json.loads(bodies(store, "--format", "json")[0])["body"] == {"$bytes": "AP8="}


def test_follow_until_ctrl_c_then_nothing_is_lost(store: CommandLine) -> None:
    """IF-7: what came is printed, what did not is there."""
    send(store, "tea")
    following = store.start("receive", "orders", "--follow", "--url", STORE)
    following.wait_for("tea\n")
    if (store.folder / "output-holder.txt").exists():
        send(store, "milk")
        following.wait_for("milk\n")
    following.signal(signal.SIGINT)
    assert following.end() == 130
    assert following.text().endswith("jmsclient: interrupted\n")
    assert bodies(store, "--all") == []
    send(store, "jam")
    assert bodies(store) == ["jam"]


def test_sigterm_ends_it_as_ctrl_c_does(store: CommandLine) -> None:
    send(store, "tea")
    following = store.start("receive", "orders", "--follow", "--url", STORE)
    following.wait_for("tea\n")
    following.signal(signal.SIGTERM)
    assert following.end() == 130
    assert bodies(store, "--all") == []


def test_a_reader_that_goes_away_loses_nothing(store: CommandLine) -> None:
    """What could not be written is not acknowledged: all 2,000 are printed once, by one command or the other."""
    assert store("send", "orders", "tea" * 100, "--count", "2000", "--url", STORE).returncode == 0
    command = [*COMMAND, "receive", "orders", "--all", "--format", "json", "--url", STORE]
    with subprocess.Popen(command, cwd=store.folder, env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = [json.loads(process.stdout.readline())["message_id"] for _ in range(3)]
        process.stdout.close()
        assert process.wait(60) == 1
    rest = [json.loads(line) for line in bodies(store, "--all", "--format", "json")]
    assert rest
    assert not {message["message_id"] for message in rest} & set(first)
    written = 2000 - len(rest)  # acknowledged, for the pipe had taken their lines
    assert written >= len(first)
    assert rest[0]["delivery_count"] == 2, "the one in hand was seen"
    assert {message["delivery_count"] for message in rest[1:]} == {1}


def test_kill_9_of_the_second_terminal_gives_everything_back(jmsclient: CommandLine) -> None:
    """IF-10, IF-11."""
    jmsclient.hold()
    assert jmsclient("send", "orders", "tea", "--count", "300", "--url", STORE).returncode == 0
    following = jmsclient.start("receive", "orders", "--follow", "--format", "json", "--url", STORE)
    following.wait_for("\n", times=20)
    following.process.kill()
    following.end()
    seen = {json.loads(line)["message_id"] for line in following.text().splitlines() if line.endswith("}")}
    rest = [json.loads(line) for line in bodies(jmsclient, "--all", "--format", "json", "--timeout", "1")]
    ids = [message["message_id"] for message in rest]
    assert len(set(ids)) == len(ids)
    assert len(seen | set(ids)) == 300
    again = [message for message in rest if message["message_id"] in seen]
    assert all(message["delivery_count"] == 2 for message in again)
    assert len(again) <= 101  # a group and the one in hand
    unseen = [message["delivery_count"] for message in rest if message["message_id"] not in seen]
    assert set(unseen[2:]) <= {1}


def test_the_worker_goes_on_undisturbed(jmsclient: CommandLine) -> None:
    worker = jmsclient.hold()
    for number in range(5):
        send(jmsclient, f"order {number}", queue="work")
        send(jmsclient, f"tea {number}")
        worker.wait_for(f"worked order {number}\n")
        assert bodies(jmsclient) == [f"tea {number}"]
    assert stat.S_IMODE(os.stat(jmsclient.folder / "shop.db.sock").st_mode) == 0o600
    assert worker.process.poll() is None
    worker.signal(signal.SIGINT)
    worker.end()
    assert not (jmsclient.folder / "shop.db.sock").exists()


def test_the_end_of_the_worker_ends_a_follower_which_says_why(jmsclient: CommandLine) -> None:
    worker = jmsclient.hold()
    following = jmsclient.start("receive", "orders", "--follow", "--url", STORE)
    send(jmsclient, "tea")
    following.wait_for("tea")
    worker.signal(signal.SIGINT)
    assert following.end() == 1
    assert "jmsclient: ConnectionLostError: the link to the process that holds store" in following.text()
    assert bodies(jmsclient, "--all") == []


def test_kill_9_of_the_worker_then_its_socket_is_stale_and_the_store_opens(jmsclient: CommandLine) -> None:
    worker = jmsclient.hold()
    send(jmsclient, "tea")
    worker.process.kill()
    worker.end()
    assert (jmsclient.folder / "shop.db.sock").exists()
    assert bodies(jmsclient) == ["tea"]
    assert not (jmsclient.folder / "shop.db.sock").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["orders"], ["receive", "--url", "JMSCLIENT_URL"], id="no url"),
        pytest.param(["orders", "--url", "embedded:"], ["'embedded:'", "store"], id="embedded without a store"),
        pytest.param(["orders", "--url", STORE], ["'shop.db'", "there is no store"], id="no such store"),
        pytest.param(["orders", "--follow", "--timeout", "1", "--url", STORE], ["--follow", "--timeout"], id="two ends"),
        pytest.param(["orders", "--all", "--count", "1", "--url", STORE], ["--all", "--count"], id="two counts"),
        pytest.param(["orders", "--timeout", "nan", "--url", STORE], ["'nan'"], id="IF-1 NaN"),
        pytest.param(["queue:orders", "--url", STORE], ["'queue:orders'", "queue:///NAME"], id="malformed destination"),
    ],
)
def test_bad_input(jmsclient: CommandLine, arguments: list[str], said: list[str]) -> None:
    done = jmsclient("receive", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("jmsclient: ")
    assert done.stderr.count("\n") == 1
    for text in said:
        assert text in done.stderr
    assert jmsclient.files() == []


def test_a_wrong_selector_is_refused_and_takes_nothing(store: CommandLine) -> None:
    send(store, "tea")
    done = store("receive", "orders", "--selector", "n >", "--url", STORE)
    assert (done.returncode, done.stdout) == (2, "")
    assert bodies(store) == ["tea"]
