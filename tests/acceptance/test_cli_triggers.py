"""`jmsclient triggers`: a worker that runs, seen and changed from a second terminal (TR-59, TR-61)."""

from __future__ import annotations

import json
import signal

from .conftest import STORE, CommandLine

APP = """
from jmsclient import Worker

worker = Worker("embedded:?store=shop.db", history="sqlite:history.db")


@worker.trigger("orders")
def book(body: str) -> None:
    print(f"booked {body}", flush=True)
"""
NAME = "queue:///orders"


def test_suspended_it_takes_nothing_and_resumed_it_goes_on(jmsclient: CommandLine) -> None:
    jmsclient.write("app.py", APP)
    running = jmsclient.start("run", "app:worker", "--control", "worker.sock")
    running.wait_for("runs queue:///orders")
    at = ("--control", "worker.sock")
    for verb, state in (("suspend", "suspended (application)"), ("disable", "disabled (disabled)")):
        done = jmsclient("triggers", verb, NAME, *at)
        assert (done.returncode, done.stdout) == (0, f"{NAME} is {state}\n"), done.stderr
        assert jmsclient("send", "orders", verb, "--url", STORE).returncode == 0
        back = jmsclient("triggers", {"suspend": "resume", "disable": "enable"}[verb], "--all", *at)
        assert (back.returncode, back.stdout) == (0, f"{NAME} is enabled\n"), back.stderr
        running.wait_for(f"booked {verb}")

    table = jmsclient("triggers", "list", *at)
    assert [line.split()[:2] for line in table.stdout.splitlines()[1:]] == [[NAME, "enabled"]]
    (shown,) = json.loads(jmsclient("triggers", "list", "--format", "json", *at).stdout)
    assert (shown["name"], shown["state"], shown["counters"]["new"]) == (NAME, "enabled", 2)

    running.signal(signal.SIGTERM)
    assert running.end() == 0, running.text()
    gone = jmsclient("triggers", "list", *at)
    assert gone.returncode == 2
    assert "no worker answers at 'worker.sock'" in gone.stderr


def test_wrong_use_is_one_line(jmsclient: CommandLine) -> None:
    for arguments in (("list",), ("suspend", "--control", "x.sock"), ("suspend", "a", "--all", "--control", "x.sock")):
        wrong = jmsclient("triggers", *arguments)
        assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1), wrong.stderr
