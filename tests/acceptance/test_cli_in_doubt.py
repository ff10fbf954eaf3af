"""`jmsclient in-doubt list|show|decide`: what is parked, and what becomes of it, for people and for programs (TR-34)."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from jmsclient.envelope import encode
from jmsclient.history import Join, open_history
from jmsclient.history.contract import new_token
from jmsclient.message import MessageKind, PlainContent

if TYPE_CHECKING:
    from .conftest import CommandLine

HISTORY = ("--history", "sqlite:history.db")


def park(jmsclient: CommandLine, trigger: str, key: str, *, body: str = "tea", namespace: str = "default") -> None:
    content = PlainContent(
        kind=MessageKind.TEXT, body=body, message_id="ID:1", destination="queue:///orders", properties={"uuid": key, "n": 5}
    )
    with open_history(f"sqlite:{jmsclient.folder / 'history.db'}", namespace=namespace) as history:
        history.park(trigger, key, source="uuid", token=new_token(), envelope=encode(content), reason="abandoned", delivery_count=2)


@pytest.fixture
def parked(jmsclient: CommandLine) -> CommandLine:
    park(jmsclient, "queue:///orders", "order-17")
    park(jmsclient, "queue:///orders", "order-[18]", body="\x1b[31mred\x07")
    park(jmsclient, "billing", "order-17")
    park(jmsclient, "queue:///orders", "elsewhere", namespace="shop")
    return jmsclient


def test_list_is_a_table_that_can_be_searched(parked: CommandLine) -> None:
    done = parked("in-doubt", "list", *HISTORY)
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["trigger", "id", "reason", "count", "age", "copies"]
    assert [row.split()[:4] for row in rows] == [
        ["queue:///orders", "order-17", "abandoned", "2"],
        ["queue:///orders", "order-[18]", "abandoned", "2"],
        ["billing", "order-17", "abandoned", "2"],
    ]


def test_list_as_json_of_one_trigger(parked: CommandLine) -> None:
    done = parked("in-doubt", "list", "--trigger", "billing", "--format", "json", JMSCLIENT_HISTORY=HISTORY[1])
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)
    assert (one["trigger"], one["id"], one["id_source"], one["delivery_count"], one["copies"]) == (
        "billing",
        "order-17",
        "uuid",
        2,
        0,
    )


def test_list_of_another_namespace(parked: CommandLine) -> None:
    done = parked("in-doubt", "list", "--namespace", "shop", "--format", "json", *HISTORY)
    assert [one["id"] for one in json.loads(done.stdout)] == ["elsewhere"]


@pytest.mark.parametrize("key", ["a\nb", "\x1b[31mred", "a\\nb", "tab\t", "ünïcödé"])
def test_an_id_that_nobody_can_type_is_decided_as_it_is_shown(jmsclient: CommandLine, key: str) -> None:
    park(jmsclient, "queue:///orders", key)
    shown = jmsclient("in-doubt", "list", *HISTORY).stdout.splitlines()[1].split()[1]
    assert jmsclient("in-doubt", "show", shown, *HISTORY).returncode == 0
    done = jmsclient("in-doubt", "decide", shown, "--duplicate", *HISTORY)
    assert done.returncode == 0, done.stderr
    with open_history(f"sqlite:{jmsclient.folder / 'history.db'}") as history:
        assert [one.id for one in history.decided()] == [key]


def test_nothing_in_doubt_says_so(parked: CommandLine) -> None:
    done = parked("in-doubt", "list", "--trigger", "other", *HISTORY)
    assert (done.returncode, done.stdout) == (0, "nothing is In Doubt of trigger other\n")


def test_show_has_the_whole_message(parked: CommandLine) -> None:
    done = parked("in-doubt", "show", "order-17", "--trigger", "billing", "--format", "json", *HISTORY)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["body"] == "tea"
    assert shown["properties"] == {"uuid": "order-17", "n": 5}
    assert (shown["message_id"], shown["destination"], shown["kind"]) == ("ID:1", "queue:///orders", "TEXT")


def test_show_for_people_does_not_steer_their_terminal(parked: CommandLine) -> None:
    done = parked("in-doubt", "show", "order-[18]", *HISTORY)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\\x1b[31mred\\x07" in done.stdout


def test_show_of_an_id_that_two_triggers_have(parked: CommandLine) -> None:
    done = parked("in-doubt", "show", "order-17", *HISTORY)
    assert done.returncode == 2
    assert "--trigger" in done.stderr
    assert "billing" in done.stderr


def test_show_of_an_unknown_id(parked: CommandLine) -> None:
    done = parked("in-doubt", "show", "order-99", *HISTORY)
    assert done.returncode == 1
    assert done.stderr == "jmsclient: no message 'order-99' is In Doubt; see: jmsclient in-doubt list\n"


def test_a_file_that_is_no_history_is_left_alone(jmsclient: CommandLine) -> None:
    path = jmsclient.write("history.db", "not a database, but long enough to look at " * 40)
    before = path.read_bytes()
    done = jmsclient("in-doubt", "list", *HISTORY)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "history.db" in done.stderr
    assert path.read_bytes() == before


def test_decide_is_kept_with_who_and_when(parked: CommandLine) -> None:
    done = parked("in-doubt", "decide", "order-17", "--new", "--by", "ada", "--trigger", "billing", *HISTORY)
    assert (done.returncode, done.stdout) == (0, "billing order-17: new, decided by ada\n"), done.stderr
    again = parked("in-doubt", "decide", "order-[18]", "--duplicate", *HISTORY)
    assert again.returncode == 0, again.stderr
    listed = parked("in-doubt", "list", "--format", "json", *HISTORY)
    assert [(one["trigger"], one["id"]) for one in json.loads(listed.stdout)] == [("queue:///orders", "order-17")]
    decided = parked("in-doubt", "list", "--decided", "--format", "json", *HISTORY)
    by_id = {one["id"]: one for one in json.loads(decided.stdout)}
    assert (by_id["order-17"]["decision"], by_id["order-17"]["decided_by"]) == ("new", "ada")
    assert by_id["order-17"]["decided"] >= 0
    assert by_id["order-[18]"]["decision"] == "duplicate"
    assert "@" in by_id["order-[18]"]["decided_by"]
    head, *rows = parked("in-doubt", "list", "--decided", *HISTORY).stdout.splitlines()
    assert head.split() == ["trigger", "id", "reason", "count", "age", "copies", "decision", "by", "decided"]
    assert len(rows) == 2
    shown = parked("in-doubt", "show", "order-17", "--trigger", "billing", "--format", "json", *HISTORY)
    assert json.loads(shown.stdout)["decided_by"] == "ada"


@pytest.mark.parametrize("said", [(), ("--new", "--duplicate"), ("--duplicate", "--new")], ids=str)
def test_decide_needs_to_be_told_one_of_the_two(parked: CommandLine, said: tuple[str, ...]) -> None:
    done = parked("in-doubt", "decide", "order-[18]", *said, *HISTORY)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--new" in done.stderr
    assert "--duplicate" in done.stderr
    assert parked("in-doubt", "list", "--decided", *HISTORY).stdout == "nothing decided waits\n"


def test_decide_of_several_of_which_one_is_unknown_decides_none(parked: CommandLine) -> None:
    done = parked("in-doubt", "decide", "order-[18]", "order-99", "--new", *HISTORY)
    assert (done.returncode, done.stdout) == (1, "")
    assert "order-99" in done.stderr
    assert parked("in-doubt", "list", "--decided", *HISTORY).stdout == "nothing decided waits\n"


def test_a_running_worker_carries_decisions_out(jmsclient: CommandLine) -> None:
    park(jmsclient, "queue:///orders", "order-17")
    park(jmsclient, "queue:///orders", "order-18")
    jmsclient.write(
        "app.py",
        """
from jmsclient import Worker

worker = Worker("embedded:in-doubt?private=yes", history="sqlite:history.db")


@worker.trigger("queue:///orders")
def book(body: str) -> None:
    print("booked", body, flush=True)
""",
    )
    running = jmsclient.start("run", "app:worker")
    running.wait_for("runs queue:///orders")
    for key, decision in (("order-17", "--new"), ("order-18", "--duplicate")):
        assert jmsclient("in-doubt", "decide", key, decision, *HISTORY).returncode == 0
    running.wait_for("booked tea")
    running.wait_for("was decided to be", times=2)
    running.signal(signal.SIGTERM)
    assert running.end() == 0
    assert running.text().count("booked") == 1
    assert jmsclient("in-doubt", "list", "--decided", *HISTORY).stdout == "nothing decided waits\n"


def test_show_of_a_set_of_a_join_has_its_members(jmsclient: CommandLine) -> None:
    with open_history(f"sqlite:{jmsclient.folder / 'history.db'}") as history:
        for place in ("a", "b"):
            content = PlainContent(kind=MessageKind.TEXT, body=f"from {place}", message_id=place, destination=place)
            history.exchange(
                [
                    Join(
                        trigger="booking",
                        id="x",
                        source="activation",
                        token="activation",
                        place=place,
                        member=place,
                        envelope=encode(content),
                        needed=2,
                    )
                ]
            )
    done = jmsclient("in-doubt", "show", "x", "--format", "json", *HISTORY)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["body"] == ["from a", "from b"]


def test_one_id_from_two_sources_needs_the_source(parked: CommandLine) -> None:
    with open_history(f"sqlite:{parked.folder / 'history.db'}") as history:
        content = PlainContent(kind=MessageKind.TEXT, body="other", message_id="order-17", destination="queue:///orders")
        history.park("billing", "order-17", token=new_token(), envelope=encode(content), reason="abandoned")
    refused = parked("in-doubt", "decide", "order-17", "--new", "--trigger", "billing", *HISTORY)
    assert refused.returncode == 2
    assert "--source" in refused.stderr
    shown = parked("in-doubt", "show", "order-17", "--trigger", "billing", "--source", "JMSMessageID", "--format", "json", *HISTORY)
    assert json.loads(shown.stdout)["body"] == "other"
    done = parked("in-doubt", "decide", "order-17", "--new", "--trigger", "billing", "--source", "uuid", *HISTORY)
    assert done.returncode == 0, done.stderr
    left = json.loads(parked("in-doubt", "list", "--trigger", "billing", "--format", "json", *HISTORY).stdout)
    assert [one["id_source"] for one in left] == ["JMSMessageID"]
