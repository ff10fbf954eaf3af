"""Texts that were sent at once stay one object while they are stored, and after: nobody can tell (T4 to T6, IF-7, IF-11).

Two queues are driven alike, one by texts, one by entries, and what comes out is compared; then the same through the broker, with
whatever may happen between a send and the moment when it is stored.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jmsclient.errors import JmsClientError, SendError, StoreError
from jmsclient.message import Texts
from jmsclient.transport.contract import ACCEPT, RETRY
from jmsclient_embedded.entry import Entry, Holder
from jmsclient_embedded.invariants import check, check_queue
from jmsclient_embedded.queue import MessageQueue
from jmsclient_embedded.settings import QueueSettings

from .conftest import PATIENCE, Client, Connect, content

NOW, WALL = 50.0, 1000.0
HOW: tuple[dict[str, Any], ...] = ({}, {}, {}, {"unit_of_order": "u"}, {"bytes_threshold_high": 10, "bytes_threshold_low": 5})
"""Settings of a queue: most need no look at each message."""


def texts(*bodies: str, **headers: Any) -> Texts:
    alike = {"destination": "queue:///q", "persistent": True, "priority": 4, "timestamp": 1.0, **headers}
    return Texts(list(bodies), [f"ID:{body}" for body in bodies], **alike)


# -- the queue -----------------------------------------------------------------------------------------------------------------


class Side:
    """A queue with one owner."""

    def __init__(self, *, together: bool, **how: Any) -> None:
        self.queue = MessageQueue("q", QueueSettings(**how))
        self.owner = Holder(self.queue, 1, "consumer-1")
        self.queue.holders[1] = self.owner
        self._together = together
        self._sequence = itertools.count(1)
        self._sent: list[Any] = []

    def _reserve(self, count: int) -> int:
        first, *_ = (next(self._sequence) for _ in range(count))
        return first

    def begin(self, priority: int, number: int) -> None:
        bodies = ["x" * one for one in range(number)]
        if self._together:
            sent = texts(*bodies, priority=priority)
            self.queue.begin_texts(sent, self._reserve)
            self._sent.append(sent)
        else:
            entries = [Entry(next(self._sequence), content(one, priority=priority), stored=True) for one in bodies]
            self.queue.begin_send(entries)
            self._sent.append(entries)

    def end(self, index: int, stored: bool) -> None:
        sent = self._sent.pop(index)
        if self._together:
            self.queue.end_texts(sent, WALL) if stored else self.queue.fail_texts(sent)
        elif stored:
            self.queue.end_send(sent, WALL)
        else:
            self.queue.fail_send(sent)

    def add(self, priority: int) -> None:
        self.queue.add([Entry(next(self._sequence), content("other", priority=priority, persistent=False))], WALL)

    def put(self, priority: int) -> None:
        assert self.queue.put([content("bare", priority=priority, persistent=False)], self._sequence.__next__)

    def take(self, most: int) -> list[tuple[int, bool, str]]:
        granted, _ = self.queue.take(self.owner, most, WALL)
        return [(one.sequence, one.stored, str(one.content.body())) for one in granted]

    def give_back(self) -> None:
        self.queue.give_back([entry for entry in self.owner.held.values() if isinstance(entry, Entry)], counted=True, now=NOW)

    def accept(self) -> None:
        self.queue.accept([entry for entry in self.owner.held.values() if isinstance(entry, Entry)])

    def pause(self, paused: bool) -> None:
        self.queue.pause_insertion(paused)

    def look(self) -> list[tuple[int, str, bool, int]]:
        """Whatever is there and not held."""
        return sorted((one.sequence, one.shown_as, one.stored, one.size) for one in self.queue.unheld())

    def check(self) -> None:
        check_queue(self.queue, [self.owner])


@settings(max_examples=300)
@given(st.data())
def test_t4_t6_texts_and_entries_are_stored_and_taken_alike(data: st.DataObject) -> None:
    how: dict[str, Any] = data.draw(st.sampled_from(HOW))
    sides = [Side(together=True, **how), Side(together=False, **how)]
    open_sends, paused = 0, False
    for _ in range(data.draw(st.integers(1, 25))):
        steps = ["begin", "begin", "take", "take", "accept", "give_back", "look", "check", "add", "put", "pause"]
        what = data.draw(st.sampled_from(steps + ["end"] * 4 * bool(open_sends)))
        arguments: tuple[Any, ...] = ()
        if what == "begin":
            open_sends += 1
            arguments = (data.draw(st.integers(3, 5)), data.draw(st.integers(1, 4)))
        elif what == "end":
            arguments = (data.draw(st.integers(0, open_sends - 1)), data.draw(st.integers(0, 3)) > 0)
            open_sends -= 1
        elif what == "take":
            arguments = (data.draw(st.integers(1, 5)),)
        elif what in ("add", "put"):
            if what == "put" and (how or paused):
                continue
            arguments = (data.draw(st.integers(3, 5)),)
        elif what == "pause":
            paused = not paused
            arguments = (paused,)
        one, other = (getattr(side, what)(*arguments) for side in sides)
        assert one == other
        assert sides[0].queue.statistics() == sides[1].queue.statistics()
    for side in sides:
        side.check()
    assert sides[0].look() == sides[1].look()


def test_t5_texts_that_nobody_looked_at_are_not_made_before_they_are_taken() -> None:
    side = Side(together=True)
    sent = texts("a", "b", "c")
    side.queue.begin_texts(sent, lambda count: 7)
    assert side.queue.uncommitted == side.queue.pending == 3
    side.queue.end_texts(sent, WALL)
    assert sent.untouched
    assert side.take(2) == [(7, True, "a"), (8, True, "b")]
    assert side.queue.visible == 1


# -- the broker ----------------------------------------------------------------------------------------------------------------


class Disk:
    """`held` writes wait until `go_on`, and fail where `error` is set."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        store = client.broker.store
        assert store is not None
        self.error: StoreError | None = None
        self._write = store.write
        self._begun, self._go_on = threading.Event(), threading.Event()
        monkeypatch.setattr(store, "write", self._held)

    def _held(self, changes: Any) -> None:
        self._begun.set()
        assert self._go_on.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        self._write(changes)

    def begun(self) -> None:
        assert self._begun.wait(PATIENCE)

    def go_on(self) -> None:
        self._go_on.set()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"embedded:?store={tmp_path / 'shop.db'}"


@pytest.fixture
def disk(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    client.send("first")
    disk = Disk(client, monkeypatch)
    yield disk
    disk.error = None
    disk.go_on()
    client.session.flush(None)
    check(client.broker)


def sending(client: Client, *bodies: str) -> tuple[threading.Thread, list[JmsClientError]]:
    """A send on a thread of its own, and why it failed."""
    errors: list[JmsClientError] = []

    def send() -> None:
        try:
            client.send(*bodies)
        except JmsClientError as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    return thread, errors


@pytest.mark.parametrize("looked_at", [False, True])
def test_t5_they_are_visible_when_they_are_stored_in_their_place(client: Client, disk: Disk, looked_at: bool) -> None:
    thread, errors = sending(client, "a", "b", "c")
    disk.begun()
    client.send(content("later", persistent=False))
    if looked_at:
        assert client.shown() == [("visible", 0)] * 2 + [("send", 0)] * 3
    assert client.stats().pending_by_kind.uncommitted_sent == 3
    disk.go_on()
    thread.join(PATIENCE)
    assert errors == []
    assert client.bodies() == ["first", "a", "b", "c", "later"]


@pytest.mark.parametrize("looked_at", [False, True])
def test_t6_they_are_not_there_if_they_could_not_be_stored(client: Client, disk: Disk, looked_at: bool) -> None:
    thread, errors = sending(client, "a", "b")
    disk.begun()
    if looked_at:
        client.shown()
    disk.error = StoreError("disk full")
    disk.go_on()
    thread.join(PATIENCE)
    (error,) = errors
    assert isinstance(error, SendError)
    assert len(error.unsent) == 2
    assert client.numbers() == (1, 0)
    assert client.stats().messages_received == 1
    disk.error = None
    client.send("again")
    assert client.bodies() == ["first", "again"]


def test_what_is_removed_meanwhile_takes_them_along(client: Client, disk: Disk) -> None:
    sender = threading.Thread(target=client.send, args=("a", "b"), kwargs={"queue": "gone"})
    sender.start()
    disk.begun()
    assert client.stats("gone").messages_pending == 2
    line = client.broker.granting.lines["gone"]
    client.broker.steps.ask(lambda: setattr(line, "gone", True))
    disk.go_on()
    sender.join(PATIENCE)
    client.session.flush(None)
    assert client.stats("gone").messages_pending == 0
    store = client.broker.store
    assert store is not None
    assert [row.content.body() for row in store.load()] == ["first"]


def test_a_pause_that_comes_meanwhile_holds_them_back(client: Client, disk: Disk) -> None:
    thread, _ = sending(client, "a", "b")
    disk.begun()
    client.broker.steps.ask(lambda: client.broker.granting.lines["q"].queue.pause_insertion(True))
    disk.go_on()
    thread.join(PATIENCE)
    assert client.shown() == [("visible", 0), ("paused", 0), ("paused", 0)]
    client.broker.steps.ask(lambda: client.broker.granting.lines["q"].queue.pause_insertion(False))
    assert client.bodies() == ["first", "a", "b"]


def test_a_selector_that_comes_meanwhile_sees_each(client: Client, disk: Disk) -> None:
    thread, _ = sending(client, "a", "b")
    disk.begun()
    _, sink = client.receiver(demand=5, selector="JMSPriority = 4")
    disk.go_on()
    thread.join(PATIENCE)
    sink.wait(3)
    assert sink.bodies == ["first", "a", "b"]


def test_everything_about_them_comes_back_and_what_is_settled_is_stored(connect: Connect, url: str) -> None:
    client = connect(url)
    client.send("a", "b", "c", "ü", "d")
    client.send("e", "f")
    receiver, arrivals = client.take(7, hand_over=True)
    assert all(one.tag.stored for one in arrivals)
    receiver.settle(arrivals[:1], ACCEPT)
    receiver.settle(arrivals[1:2], RETRY)
    client.transport.close(None)
    client = connect(url)
    assert client.shown() == [("visible", 1)] * 6
    found = client.take(6)[1]
    assert [one.content.body() for one in found] == ["b", "c", "ü", "d", "e", "f"]
    assert [one.content.message_id for one in found] == [one.content.message_id for one in arrivals[1:]]
    for one in found:
        assert [one.content.header(name) for name in ("destination", "priority", "timestamp", "persistent")] == [
            "queue:///q", 4, 1.0, True,
        ]  # fmt: skip


def test_a_quota_a_transaction_and_a_topic_take_them_one_by_one(connect: Connect, url: str) -> None:
    client, tx = connect(url), connect(url, transacted=True)
    client.admin.create_quota("small", messages_maximum=2)
    client.admin.create_queue("limited", quota="small")
    with pytest.raises(SendError) as raised:
        client.send("a", "b", "c", queue="limited", room=0.0)
    assert (len(raised.value.confirmed), len(raised.value.unsent)) == (2, 1)
    assert client.bodies("limited") == ["a", "b"]
    tx.send("d", "e")
    assert client.stats().pending_by_kind.uncommitted_sent == 2
    tx.commit()
    assert client.bodies() == ["d", "e"]
    client.send("nobody listens", queue="topic:///t")
    client.transport.close(None)
    tx.transport.close(None)
    assert connect(url).bodies("limited") == ["a", "b"]


_PROGRAM = """
import os, sys
import jmsclient

connection = jmsclient.connect(sys.argv[1])
session = connection.create_session(jmsclient.AcknowledgeMode.CLIENT)
session.create_producer("q").send_many(["acknowledged", "seen", "windowed", "waiting"])
consumer = session.create_consumer("q", prefetch=3)
consumer.receive(10.0)
session.acknowledge()
assert consumer.receive(10.0).text == "seen"
os.kill(os.getpid(), 9)
"""


def test_if_11_what_send_many_returned_from_survives_kill_9_and_so_does_who_has_seen_what(connect: Connect, url: str) -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    client = connect(url)
    assert client.shown() == [("visible", 1), ("visible", 0), ("visible", 0)]
    assert client.bodies() == ["seen", "windowed", "waiting"]
