"""`jmsclient send`: what it sends is what was asked for, and it survives the command."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import CommandLine

STORE = "embedded:?store=shop.db"
NAMES = ("message_id", "body", "persistent", "priority", "correlation_id", "type", "delivery_count")
RECEIVE = f"""
import json
from jmsclient import connect

def shown(message):
    return {{name: getattr(message, name) for name in {NAMES}}} | {{
        "kind": message.kind.name, "properties": dict(message.properties), "reply_to": message.reply_to and str(message.reply_to)}}

with connect("embedded:?store=shop.db") as connection:
    consumer = connection.create_session().create_consumer("orders")
    while (message := consumer.receive_no_wait()) is not None:
        print(json.dumps(shown(message), default=bytes.hex))
"""


def received(jmsclient: CommandLine) -> list[dict[str, Any]]:
    """All that the store has, taken by a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", RECEIVE], cwd=jmsclient.folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_message_with_everything(jmsclient: CommandLine) -> None:
    done = jmsclient(
        *("send", "orders", "tea", "--url", STORE, "--property", "uuid=17", "--property", "n:int=5", "--property", "ok:bool=true"),
        *("--priority", "7", "--correlation-id", "c1", "--type", "order", "--reply-to", "answers"),
    )
    assert done.returncode == 0, done.stderr
    (message,) = received(jmsclient)
    assert done.stdout == message["message_id"] + "\n"
    assert message == {
        "message_id": message["message_id"],
        "kind": "TEXT",
        "body": "tea",
        "properties": {"uuid": "17", "n": 5, "ok": True},
        "persistent": True,
        "priority": 7,
        "correlation_id": "c1",
        "type": "order",
        "reply_to": "queue:///answers",
        "delivery_count": 1,
    }


@pytest.mark.parametrize(
    ("kind", "given", "body"),
    [("map", '{"a": 1}', {"a": 1}), ("stream", '[1, "b"]', [1, "b"]), ("bytes", "tea", b"tea".hex()), ("text", "tää", "tää")],
)
def test_kinds(jmsclient: CommandLine, kind: str, given: str, body: object) -> None:
    assert jmsclient("send", "orders", given, "--kind", kind, "--url", STORE).returncode == 0
    (message,) = received(jmsclient)
    assert (message["kind"], message["body"]) == (kind.upper(), body)


def test_body_from_stdin(jmsclient: CommandLine) -> None:
    assert jmsclient("send", "orders", "-", "--kind", "bytes", "--url", STORE, stdin=b"\x00\xff").returncode == 0
    assert received(jmsclient)[0]["body"] == "00ff"


def test_count_sends_as_many_with_an_id_each_in_order(jmsclient: CommandLine) -> None:
    done = jmsclient("send", "orders", "tea", "--count", "1200", JMSCLIENT_URL=STORE)
    assert done.returncode == 0, done.stderr
    ids = done.stdout.splitlines()
    assert len(set(ids)) == 1200
    assert [message["message_id"] for message in received(jmsclient)] == ids


def test_non_persistent_does_not_outlive_the_command(jmsclient: CommandLine) -> None:
    assert jmsclient("send", "orders", "tea", "--non-persistent", "--url", STORE).returncode == 0
    assert received(jmsclient) == []
