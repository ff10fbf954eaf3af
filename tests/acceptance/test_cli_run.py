"""`jmsclient run`: the README's worker, signals, and what the command line overrides (O01, O02)."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from jmsclient import connect

if TYPE_CHECKING:
    from .conftest import CommandLine

ROOT = Path(__file__).resolve().parents[2]
STORE = "embedded:?store=shop.db"
SLOW = """
import time
from jmsclient import Worker

worker = Worker("embedded:?store=shop.db", history="sqlite:history.db", grace=20.0)


def say(text: str) -> None:
    print(text + "\\n", end="", flush=True)  # in one piece: handlers speak at once


@worker.trigger("orders", concurrency={concurrency})
def book(body: str) -> None:
    say("begun " + body)
    time.sleep({seconds})
    say("ended " + body)
"""


def readme_worker() -> str:
    (text,) = re.findall(r"^```python file=app\.py\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    return text


def send(jmsclient: CommandLine, body: str, *more: str) -> None:
    done = jmsclient("send", "orders", body, "--url", STORE, *more)
    assert done.returncode == 0, done.stderr


def test_the_worker_of_the_readme_books_each_order_once(jmsclient: CommandLine) -> None:
    jmsclient.write("app.py", readme_worker())
    for number in (17, 18, 17):
        send(jmsclient, json.dumps({"id": number, "customer": "Ada"}), "--property", f"uuid=order-{number}")
    running = jmsclient.start("run", "app:worker", "--url", STORE)
    running.wait_for("was processed before")
    running.wait_for("booking order", times=2)
    running.signal(signal.SIGTERM)
    assert running.end() == 0, running.text()
    said = running.text()
    assert sorted(re.findall(r"booking order (\d+)", said)) == ["17", "18"]
    assert "jmsclient: queue:///orders: " in said
    assert "Traceback" not in said


def test_the_readme_worker_has_about_twelve_lines() -> None:
    assert len([line for line in readme_worker().splitlines() if line.strip()]) <= 12


def test_first_signal_lets_the_handler_end_and_gives_the_rest_back(jmsclient: CommandLine) -> None:
    """RA-14: what was buffered comes again with its count unchanged."""
    jmsclient.write("app.py", SLOW.format(seconds=0.5, concurrency=1))
    send(jmsclient, "tea", "--count", "5")
    running = jmsclient.start("run", "app:worker")
    running.wait_for("begun tea")
    running.signal(signal.SIGINT)
    assert running.end() == 0, running.text()
    said = running.text()
    assert said.count("begun") == said.count("ended")
    finished, released = (int(number) for number in re.findall(r"(\d+) (?:finished|given back)", said.splitlines()[-1]))
    assert released == 5 - said.count("ended")
    assert finished <= said.count("ended")
    again = jmsclient.start("run", "app:worker")
    again.wait_for("ended tea", times=released)
    again.signal(signal.SIGTERM)
    assert again.end() == 0, again.text()
    assert again.text().count("begun") == released


def test_second_signal_ends_the_drain_with_130(jmsclient: CommandLine) -> None:
    jmsclient.write("app.py", SLOW.format(seconds=60, concurrency=1))
    send(jmsclient, "tea")
    running = jmsclient.start("run", "app:worker")
    running.wait_for("begun tea")
    running.signal(signal.SIGTERM)
    running.signal(signal.SIGINT)
    assert running.end(15) == 130, running.text()
    assert "ended tea" not in running.text()
    assert "1 unfinished" in running.text()


def test_o01_what_a_handler_forks_ends_when_it_is_told_to(jmsclient: CommandLine) -> None:
    """It inherits the worker's signal handlers, which only count; whoever told it to end waits for that."""
    jmsclient.write(
        "app.py",
        """
import multiprocessing
import os
import time
from jmsclient import Worker

worker = Worker("embedded:?store=shop.db", history="sqlite:history.db", grace=20.0)
begun, say = os.pipe()


def wait() -> None:
    os.write(say, b".")
    time.sleep(600)


@worker.trigger("orders")
def book(body: str) -> None:
    child = multiprocessing.get_context("fork").Process(target=wait, daemon=True)
    child.start()
    os.read(begun, 1)
    child.terminate()
    child.join(60)
    print("ended with", child.exitcode, flush=True)
""",
    )
    send(jmsclient, "tea")
    running = jmsclient.start("run", "app:worker")
    running.wait_for(f"ended with {-signal.SIGTERM}")
    running.signal(signal.SIGTERM)
    assert running.end() == 0, running.text()


def test_concurrency_of_the_command_line_wins(jmsclient: CommandLine) -> None:
    jmsclient.write("app.py", SLOW.format(seconds=1.0, concurrency=1))
    send(jmsclient, "tea", "--count", "3")
    running = jmsclient.start("run", "app:worker", "--concurrency", "3")
    running.wait_for("ended tea")
    assert running.text().index("ended tea") > [match.start() for match in re.finditer("begun tea", running.text())][2]
    running.signal(signal.SIGTERM)
    assert running.end() == 0


def test_url_of_the_command_line_wins_and_the_app_dir_is_elsewhere(jmsclient: CommandLine) -> None:
    (jmsclient.folder / "code").mkdir()
    (jmsclient.folder / "code" / "app.py").write_text(SLOW.format(seconds=0, concurrency=1), encoding="utf-8")
    done = jmsclient("send", "orders", "tea", "--url", "embedded:?store=other.db")
    assert done.returncode == 0, done.stderr
    running = jmsclient.start("run", "app:worker", "--app-dir", "code", "--url", "embedded:?store=other.db")
    running.wait_for("ended tea")
    running.signal(signal.SIGTERM)
    assert running.end() == 0
    assert not (jmsclient.folder / "shop.db").exists()


def test_what_a_message_says_makes_no_lines_of_its_own_in_the_log(jmsclient: CommandLine) -> None:
    jmsclient.write("app.py", SLOW.format(seconds=0, concurrency=1))
    send(jmsclient, "tea", "--property", "uuid=17\n2026-01-01 ERROR forged: \x1b[31mred")
    send(jmsclient, "tea", "--property", "uuid=17\n2026-01-01 ERROR forged: \x1b[31mred")
    running = jmsclient.start("run", "app:worker")
    running.wait_for("was processed before")
    running.signal(signal.SIGTERM)
    assert running.end() == 0, running.text()
    assert "message 17\\n2026-01-01 ERROR forged: \\x1b[31mred was processed before" in running.text()
    assert not [line for line in running.text().splitlines() if line.startswith("2026-01-01")]


def test_logs_as_json(jmsclient: CommandLine) -> None:
    jmsclient.write("app.py", SLOW.format(seconds=0, concurrency=1))
    running = jmsclient.start("run", "app:worker", "--log-format", "json")
    running.wait_for('"started"')
    running.signal(signal.SIGTERM)
    assert running.end() == 0
    lines = [json.loads(line) for line in running.text().splitlines() if line.startswith("{")]
    started = next(line for line in lines if line.get("event") == "started")
    assert started["level"] == "info"
    assert started["logger"] == "jmsclient.worker"
    assert started["worker"] == "default"
    assert "queue:///orders" in started["message"]


DRAINED = """
import threading
import time
from jmsclient import Delivery, Worker

worker = Worker("embedded:?store=shop.db", history="sqlite:history.db", grace={grace})


@worker.trigger("orders", concurrency=3)
def book(body: str, delivery: Delivery) -> None:
    print(f"begun {{body}} count={{delivery.delivery_count}} redelivered={{delivery.message.redelivered}}", flush=True)
    if {hangs} and body == "0":
        threading.Event().wait()
    time.sleep(0 if {quick} else 2)
    with open("written.txt", "a") as file:
        file.write(body + "\\n")
"""


def test_o01_sigterm_lets_three_handlers_end_and_gives_seventeen_back(jmsclient: CommandLine) -> None:
    jmsclient.write("app.py", DRAINED.format(grace=60.0, hangs=False, quick=False))
    with connect(f"embedded:?store={jmsclient.folder / 'shop.db'}") as connection:
        connection.create_session().create_producer("orders").send_many(map(str, range(20)))
    running = jmsclient.start("run", "app:worker")
    running.wait_for("begun", times=3)
    running.signal(signal.SIGTERM)
    signalled = time.monotonic()
    assert running.end() == 0, running.text()
    assert time.monotonic() - signalled < 20.0
    assert running.text().count("begun") == 3  # no new handler after the signal
    written = (jmsclient.folder / "written.txt").read_text().split()
    assert len(written) == len(set(written)) == 3
    assert "3 finished, 7 given back" in running.text()  # of its window; the others never left the broker
    jmsclient.write("app.py", DRAINED.format(grace=10.0, hangs=False, quick=True))
    second = jmsclient.start("run", "app:worker")
    second.wait_for("begun", times=17)
    second.wait_for("count=1 redelivered=False", times=17)
    second.signal(signal.SIGTERM)
    assert second.end() == 0, second.text()
    written = (jmsclient.folder / "written.txt").read_text().split()
    assert sorted(written, key=int) == [str(number) for number in range(20)]


def test_o01_a_handler_that_hangs_ends_the_grace_and_its_message_comes_again(jmsclient: CommandLine) -> None:
    jmsclient.write("app.py", DRAINED.format(grace=1.0, hangs=True, quick=True))
    send(jmsclient, "0")
    running = jmsclient.start("run", "app:worker")
    running.wait_for("begun 0 count=1")
    running.signal(signal.SIGTERM)
    assert running.end(60) == 1, running.text()
    assert "1 unfinished" in running.text()
    again = jmsclient("browse", "orders", "--url", STORE)
    assert again.returncode == 0, again.stderr
    jmsclient.write("app.py", DRAINED.format(grace=1.0, hangs=False, quick=True).replace('history="sqlite:history.db", ', ""))
    (jmsclient.folder / "app.py").write_text(
        (jmsclient.folder / "app.py")
        .read_text()
        .replace("concurrency=3", "concurrency=3, resolver=lambda request: Status.NEW")
        .replace("import Delivery, Worker", "import Delivery, Status, Worker")
    )
    second = jmsclient.start("run", "app:worker")
    second.wait_for("begun 0 count=2 redelivered=True")
    second.signal(signal.SIGTERM)
    assert second.end() == 0, second.text()


ASYNC = """
import asyncio
from pathlib import Path

from jmsclient import Delivery, Worker

worker = Worker("embedded:?store=shop.db", history="sqlite:history.db", grace=4.0)


@worker.trigger("orders", concurrency=2, prefetch=10, lease=1.0)
async def book(body: str, delivery: Delivery) -> None:
    print(f"begun {body}", flush=True)
    try:
        while body != "short" or not Path("it may end").exists():
            await asyncio.sleep(0.02)
        print(f"booked {body}", flush=True)
    except asyncio.CancelledError:
        print(f"cancelled {body}", flush=True)
        raise
    finally:
        await asyncio.sleep(0)  # a clean-up may wait
        print(f"cleaned up {body}", flush=True)
"""


def test_o01_sigterm_lets_async_handlers_end_within_the_grace_and_cancels_the_others_gently(jmsclient: CommandLine) -> None:
    jmsclient.write("app.py", ASYNC)
    for body in ("short", "long", "never begun"):
        send(jmsclient, body)
    running = jmsclient.start("run", "app:worker")
    running.wait_for("begun", times=2)
    running.signal(signal.SIGTERM)
    signalled = time.monotonic()
    time.sleep(0.5)  # so that it has heard
    jmsclient.write("it may end", "")
    assert running.end(60) == 1, running.text()
    assert 1.5 < time.monotonic() - signalled < 20.0
    text = running.text()
    for expected in ("booked short", "cleaned up short", "cancelled long", "cleaned up long"):
        assert expected in text
    assert "cancelled short" not in text
    assert "begun never begun" not in text
    assert "1 finished, 1 given back, 0 discarded, 1 unfinished" in text

    second = jmsclient.start("run", "app:worker")  # what was cut off may have had its effect: In Doubt
    second.wait_for("begun never begun")
    end = time.monotonic() + 60.0
    while "abandoned" not in (listed := jmsclient("in-doubt", "list", "--history", "sqlite:history.db", "--format", "json")).stdout:
        assert time.monotonic() < end, listed.stdout + listed.stderr
    assert listed.stdout.count("abandoned") == 1
    second.signal(signal.SIGTERM)
    second.signal(signal.SIGTERM)
    second.end(60)
    assert "begun long" not in second.text()
