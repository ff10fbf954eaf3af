"""kill -9 of who is attached, kill -9 of who holds the store, and forks of both: nothing is lost, and counts say what was seen."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jmsclient.transport.contract import ACCEPT
from jmsclient_embedded.registry import close_broker

from .attached import Attached, fresh_name, holding, wait_until
from .conftest import PATIENCE, Client

PROLOGUE = """
import os, sys, threading, time
from jmsclient.destination import Queue
from jmsclient.transport.contract import *
from jmsclient.transport.registry import find_backend, parse_url
from jmsclient.message import MessageKind, PlainContent

class Sink:
    def __init__(self):
        self.got, self.full = [], threading.Event()
    def delivered(self, batch):
        self.got += batch
        if len(self.got) >= 4: self.full.set()
    def closed(self, error): pass
    def recall(self): pass
    def lost(self, error): pass

sink = Sink()
transport = find_backend("embedded").connect(parse_url(sys.argv[1]), sink, deadline=None)
session = transport.open_session(transacted=False, deadline=None)
receiver = session.open_receiver(ReceiverSpec(destination=Queue("q")), sink, None)

def hand(*arrivals):
    receiver.handing_over(arrivals)
    for one in arrivals: one.handed_over = True

def send(*bodies):
    messages = [PlainContent(kind=MessageKind.TEXT, body=body, message_id=body) for body in bodies]
    session.open_sender(Queue("q"), None).send(messages, room_deadline=None, confirm_timeout=None)

def say(text):
    os.write(1, f"{text}\\n".encode())

def killed():
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def holder(store: Path) -> Iterator[Client]:
    with holding(store) as client:
        yield client


def start(store: Path, program: str, attach: bool) -> subprocess.Popen[str]:
    url = f"embedded:?store={store}{'&attach=yes' if attach else ''}"
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROLOGUE + program, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _started.append(process)
    return process


_started: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    """No process outlives its test, nor does a child that it left behind."""
    yield
    for process in _started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
    _started.clear()


def heard(process: subprocess.Popen[str], text: str) -> str:
    """The line that begins with `text`."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(text):
            return line.strip()
    raise AssertionError(f"it ended without saying {text!r}: {process.stderr and process.stderr.read()}")


def finish(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=30)
    return process.returncode


TAKE_FOUR = """
receiver.request(4)
sink.full.wait(60)
hand(sink.got[0])
receiver.settle([sink.got[1]], ACCEPT)
session.flush(None)
"""


def test_if_10_if_11_kill_9_of_the_attached_process(holder: Client, store: Path) -> None:
    """What it had seen is counted, what it had settled is gone, the rest is as before; within a second."""
    holder.send("seen", "accepted", "windowed", "windowed too", "waiting")
    process = start(store, TAKE_FOUR + "killed()", attach=True)
    assert finish(process) == -signal.SIGKILL
    wait_until(lambda: holder.shown() == [("visible", 1), ("visible", 0), ("visible", 0), ("visible", 0)])
    arrivals = holder.take(4)[1]
    assert [one.content.body() for one in arrivals] == ["seen", "windowed", "windowed too", "waiting"]


def test_if_11_the_last_word_of_a_killed_process_is_heard(holder: Client, store: Path) -> None:
    """A hand-over that returned counts, though the process is killed in the very next step; again and again."""
    holder.send("a", "b", "c", "d")
    for deliveries in range(1, 4):
        process = start(
            store, "receiver.request(4)\nsink.full.wait(60)\nreceiver.handing_over(sink.got[:1])\nkilled()", attach=True
        )
        assert finish(process) == -signal.SIGKILL
        wait_until(lambda: holder.shown() == [("visible", deliveries)] + [("visible", 0)] * 3)  # noqa: B023


def test_if_11_kill_9_of_the_holder_counts_what_attached_processes_saw(store: Path) -> None:
    process = start(store, "send('seen', 'unseen', 'accepted', 'lost accept')\nsay('holding')\nsys.stdin.read()", attach=False)
    heard(process, "holding")
    attached = Attached(store)
    receiver, arrivals = attached.take(4)
    receiver.handing_over([arrivals[0], arrivals[2]])
    receiver.settle(arrivals[2:3], ACCEPT)
    attached.session.flush(None)
    process.kill()
    assert finish(process) == -signal.SIGKILL
    assert attached.listener.heard.wait(PATIENCE)
    again = Client(f"embedded:{fresh_name()}?store={store}")
    assert again.shown() == [("visible", 1), ("visible", 0), ("visible", 0)]
    close_broker(again.broker)
    assert len(attached.listener.errors) == 1


def test_the_stale_socket_of_a_killed_holder_is_replaced_by_the_next(store: Path) -> None:
    path = store.with_name("shop.db.sock")
    process = start(store, "send('a')\nsay('holding')\nkilled()", attach=False)
    heard(process, "holding")
    assert finish(process) == -signal.SIGKILL
    assert path.exists()
    process = start(store, "say('holding')\nsys.stdin.read()\ntransport.close(None)", attach=True)
    heard(process, "holding")
    assert Attached(store).take(1)[1][0].content.body() == "a"
    assert finish(process) == 0
    assert not path.exists()


def test_a_holder_that_exits_gives_everything_back_and_leaves_nothing(store: Path) -> None:
    process = start(store, "send('a', 'b')\nsay('holding')\nsys.stdin.read()", attach=False)
    heard(process, "holding")
    attached = Attached(store)
    receiver, arrivals = attached.take(2)
    receiver.handing_over(arrivals[:1])
    assert finish(process) == 0
    assert attached.listener.heard.wait(PATIENCE)
    assert sorted(path.name for path in store.parent.iterdir()) == ["shop.db"]
    again = Client(f"embedded:{fresh_name()}?store={store}")
    assert again.shown() == [("visible", 1), ("visible", 0)]
    close_broker(again.broker)


def test_two_that_come_at_the_same_time_share_the_store(store: Path) -> None:
    """One holds it, the other attaches, whoever was first; when both have ended, all that was sent is there."""
    program = "for number in range(20): send(f'{os.getpid()}-{number}')\nsay('sent')\nsys.stdin.readline()\ntransport.close(None)"
    processes = [start(store, program, attach=True) for _ in range(3)]
    for process in processes:
        heard(process, "sent")
    assert [finish(process) for process in processes] == [0, 0, 0]
    again = Client(f"embedded:{fresh_name()}?store={store}")
    assert again.shown() == [("visible", 0)] * 60
    close_broker(again.broker)


# -- forks -----------------------------------------------------------------------------------------------------------------

FORK = """
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
"""


def test_if_40_a_child_of_an_attached_process_does_not_keep_its_messages(holder: Client, store: Path) -> None:
    """The child has a copy of the socket, which would hide the death of its parent."""
    holder.send("a", "b", "c", "d")
    program = f"receiver.request(4)\nsink.full.wait(60)\nhand(sink.got[0])\n{FORK}\nsay(f'parent of {{child}}')\nkilled()"
    process = start(store, program, attach=True)
    child = int(heard(process, "parent of").split()[-1])
    try:
        assert process.wait(30) == -signal.SIGKILL
        wait_until(lambda: holder.shown() == [("visible", 1)] + [("visible", 0)] * 3)
    finally:
        os.kill(child, signal.SIGKILL)
    process.communicate(timeout=30)


def test_if_40_a_child_of_the_holder_neither_serves_nor_removes_the_socket(store: Path) -> None:
    program = """
send('a')
child = os.fork()
if child == 0:
    raise SystemExit(0)  # with all that happens at exit
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
say('holding')
sys.stdin.read()
"""
    process = start(store, program, attach=False)
    heard(process, "holding")
    assert store.with_name("shop.db.sock").exists()
    attached = Attached(store)
    assert attached.take(1)[1][0].content.body() == "a"
    assert finish(process) == 0
    assert attached.listener.heard.wait(PATIENCE)


def test_if_40_in_the_child_an_attached_connection_is_dead_and_says_so(holder: Client, store: Path) -> None:
    holder.send("a", "b", "c", "d")
    program = """
receiver.request(4)
sink.full.wait(60)
child = os.fork()
if child == 0:
    code = 1
    try:
        receiver.settle(sink.got[:1], ACCEPT)
        receiver.close(None)
        session.close(None)
        try:
            transport.open_session(transacted=False, deadline=None)
        except Exception as error:
            code = 0 if 'fork' in str(error) else 2
        transport.close(None)
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
receiver.settle(sink.got[1:], ACCEPT)
session.flush(None)
transport.close(None)
"""
    process = start(store, program, attach=True)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, out + err
    assert holder.shown() == [("visible", 0)]
