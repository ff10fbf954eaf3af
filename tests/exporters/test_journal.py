"""The journal: what it writes, that it waits for nobody, and what happens to its file meanwhile."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jmsclient import Delivery, TransientError, Worker
from jmsclient.errors import ConfigurationError, StoreError
from jmsclient.events import Event, emit, subscribe
from jmsclient.exporters import journal as journal_module
from jmsclient.exporters.journal import Journal, SharedJournal
from jmsclient.exporters.journal_check import INCOMPLETE, Check
from jmsclient.options import WorkerOptions
from jmsclient.testing import ScriptedBackend

Q = "queue:///orders"


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.005)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def names(path: Path) -> list[str]:
    return [line["event"] for line in lines(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    one = Journal(path)
    one.start()
    yield one
    one.stop()


def test_each_event_is_a_line_with_its_fields_and_what_was_emitted_before_stop_is_written(journal: Journal, path: Path) -> None:
    emit("trigger", "new", "is New", level=logging.DEBUG, trigger=Q, id="1", attempt=1, answer=None, state=logging)
    emit("trigger", "lease_lost", "was lost", level=logging.ERROR, trigger=Q, id="\ud800é")
    journal.stop()
    opened, new, lost, closed = lines(path)
    assert (opened["event"], closed["event"]) == ("journal_opened", "journal_closed")
    assert {name: new[name] for name in ("event", "area", "trigger", "id", "attempt")} == {
        "event": "new",
        "area": "trigger",
        "trigger": Q,
        "id": "1",
        "attempt": 1,
    }
    assert "answer" not in new
    assert "text" not in new
    assert "logging" in new["state"]
    assert lost["text"] == "was lost"
    assert len({line["run"] for line in (opened, new, lost, closed)}) == 1
    assert opened["time"] <= new["time"] <= lost["time"] <= closed["time"] <= time.time()


def test_a_stopped_journal_hears_nothing_and_stops_twice(journal: Journal, path: Path) -> None:
    journal.stop()
    journal.stop()
    emit("trigger", "new", "later")
    assert "new" not in names(path)
    assert not [thread for thread in threading.enumerate() if thread.name == "jmsclient-journal"]


def test_lines_are_written_while_it_runs_and_a_kill_loses_only_a_moment(journal: Journal, path: Path) -> None:
    emit("trigger", "new", "", trigger=Q)
    until(lambda: "new" in names(path))


def test_whoever_emits_waits_for_nobody(journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, go_on = threading.Event(), threading.Event()
    write = journal._write

    def slowly(batch: list[bytes]) -> None:
        writing.set()
        go_on.wait(60)
        write(batch)

    monkeypatch.setattr(journal, "_write", slowly)
    monkeypatch.setattr(journal_module, "MOST_WAITING", 50)
    emit("trigger", "first", "")
    assert writing.wait(30)
    for number in range(200):
        emit("trigger", "more", "", number=number)
    assert journal.dropped == 150
    go_on.set()
    journal.stop()
    assert names(path).count("more") == 50
    (dropped,) = [line for line in lines(path) if line["event"] == "journal_dropped"]
    assert dropped["count"] == 150


def test_a_file_that_was_rotated_is_opened_anew(journal: Journal, path: Path) -> None:
    emit("trigger", "before", "")
    until(lambda: "before" in names(path))
    path.rename(path.with_suffix(".1"))
    emit("trigger", "after", "")
    until(lambda: path.exists() and "after" in names(path))
    path.unlink()
    emit("trigger", "once more", "")
    until(lambda: path.exists() and "once more" in names(path))
    journal.stop()
    assert names(path.with_suffix(".1")) == ["journal_opened", "before"]
    assert names(path) == ["once more", "journal_closed"]


def test_several_journals_may_share_a_file(path: Path) -> None:
    journals = [Journal(path) for _ in range(3)]
    for one in journals:
        one.start()
    for number in range(500):
        emit("trigger", "new", "", number=number)
    for one in journals:
        one.stop()
    for one in journals:
        assert [line["number"] for line in lines(path) if line["event"] == "new" and line["run"] == one.run] == list(range(500))


def test_a_file_that_two_of_one_process_share_has_each_event_once(path: Path) -> None:
    """Each hears all events of the process: written twice, each message would seem to have run twice."""
    first, second = SharedJournal(path), SharedJournal(path.parent / "." / path.name)
    first.start()
    second.start()
    emit("trigger", "both", "")
    first.stop()
    first.stop()
    emit("trigger", "second", "")
    second.stop()
    emit("trigger", "nobody", "")
    assert names(path) == ["journal_opened", "both", "second", "journal_closed"]
    first.start()
    emit("trigger", "again", "")
    first.stop()
    assert names(path)[4:] == ["journal_opened", "again", "journal_closed"]


def test_two_workers_of_one_process_may_write_one_journal(path: Path) -> None:
    with ScriptedBackend() as backend:
        workers = [Worker(backend.url, name=name, history="memory:", options=WorkerOptions(journal=path)) for name in ("a", "b")]
        for number, worker in enumerate(workers):
            worker.trigger(f"{Q}{number}", in_doubt="acknowledge")(lambda: None)
            worker.start()
        for number in range(2):
            backend.deliver(f"{Q}{number}", ["x"] * 5)
        until(lambda: len(backend.settlements) == 10)
        for worker in workers:
            worker.stop()
    check = Check()
    check.read(path.read_text().splitlines())
    report = check.report()
    assert (report.findings, report.ids, report.runs) == ([], 10, 1)


def test_a_disk_that_is_full_is_told_once_and_its_lines_are_counted(
    journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Event] = []
    unsubscribe = subscribe(heard.append)
    write = os.write

    def full(file: int, data: bytes) -> int:
        if b"torn" in data:
            return write(file, data[:20])
        if b"refused" in data:
            raise OSError(28, "No space left on device")
        return write(file, data)

    until(lambda: path.read_bytes().endswith(b"}\n"))
    monkeypatch.setattr(journal_module.os, "write", full)
    for number in range(2):
        emit("trigger", "refused", "", number=number)
        until(lambda number=number: journal.dropped > number)
    emit("trigger", "torn", "")
    until(lambda: not path.read_bytes().endswith(b"}\n"))
    emit("trigger", "fine", "")
    journal.stop()
    unsubscribe()
    assert [event.name for event in heard].count("journal_failed") == 1
    check = Check()
    check.read(path.read_text().splitlines())
    assert check.report().unreadable == 1
    assert '"fine"' in path.read_text()


@pytest.mark.parametrize("how", ["refused", "cut short"])
def test_what_a_full_disk_dropped_is_said_in_the_journal_once_it_can_be(
    journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A journal that has lost lines must not be taken for a clean one: that is said again until it is written."""
    write, full = os.write, threading.Event()

    def limited(file: int, data: bytes) -> int:
        if not full.is_set():
            return write(file, data)
        if how == "refused":
            raise OSError(28, "No space left on device")
        return write(file, data[:5])

    until(lambda: path.read_bytes().endswith(b"}\n"))
    monkeypatch.setattr(journal_module.os, "write", limited)
    full.set()
    for number in range(1, 4):
        emit("trigger", "lost", "", number=number)
        # What it says of its own trouble, once, is lost too.
        until(lambda number=number: journal.dropped == number + (how == "refused"))
    full.clear()
    emit("trigger", "kept", "")
    journal.stop()
    check = Check()
    check.read(path.read_text().splitlines())
    report = check.report()
    assert sum(int(one.text.split(" ")[0]) for one in report.findings if one.kind == INCOMPLETE) == journal.dropped
    assert not report.clean
    assert '"lost"' not in path.read_text()
    assert '"kept"' in path.read_text()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_childs_events_are_not_the_journals(journal: Journal, path: Path) -> None:
    program = (
        "import os, sys\n"
        "from jmsclient.events import emit\n"
        "from jmsclient.exporters.journal import Journal\n"
        "journal = Journal(sys.argv[1])\n"
        "journal.start()\n"
        "child = os.fork()\n"
        "emit('trigger', 'child' if child == 0 else 'parent', '')\n"
        "os._exit(0) if child == 0 else os.waitpid(child, 0)\n"
        "journal.stop()\n"
    )
    other = path.with_name("other.jsonl")
    import subprocess

    done = subprocess.run([sys.executable, "-c", program, str(other)], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    assert names(other) == ["journal_opened", "parent", "journal_closed"]


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written: No such file or directory"):
        Journal(tmp_path / "no" / "journal.jsonl").start()


@pytest.mark.parametrize("wrong", ["", 5, b"x"])
def test_what_journal_may_be(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"journal=.*: expected the path of a file, or None"):
        WorkerOptions(journal=wrong)


# -- of a worker ------------------------------------------------------------------------------------------------------


def test_a_worker_writes_what_happens_to_each_message(path: Path) -> None:
    with ScriptedBackend() as backend:
        worker = Worker(backend.url, history="memory:", options=WorkerOptions(journal=path))

        @worker.trigger(Q, max_retries=1, retry_interval=0.0, error_destination="queue:///errors")
        def book(body: str, delivery: Delivery) -> None:
            if body == "transient" and delivery.attempt == 1:
                raise TransientError("once")
            if body == "fatal":
                raise ValueError(body)

        with worker:
            for body in ("fine", "transient", "fatal"):
                (id_,) = backend.deliver(Q, body)
                until(lambda id_=id_: (id_, "acknowledged") in happened(path))
            backend.deliver(Q, same_id(happened(path)[0][0]), delivery_count=2)
            until(lambda: [name for _, name in happened(path)].count("acknowledged") == 4)
    seen = happened(path)
    ids = list(dict.fromkeys(id_ for id_, _ in seen))
    assert [[name for id_, name in seen if id_ == wanted] for wanted in ids] == [
        ["claimed", "new", "completed", "acknowledged", "duplicate", "acknowledged"],
        ["claimed", "new", "retrying", "released", "completed", "acknowledged"],
        ["claimed", "new", "handler_failed", "released", "completed", "acknowledged"],
    ]
    assert names(path)[0] == "journal_opened"
    assert names(path)[-1] == "journal_closed"
    assert {"started", "stopped"} <= set(names(path))
    check = Check()
    check.read(path.read_text().splitlines())
    report = check.report()
    assert report.findings == []
    assert (report.ids, report.runs, report.cut, report.unfinished) == (3, 1, 0, 0)


def happened(path: Path) -> list[tuple[str, str]]:
    return [(line["id"], line["event"]) for line in lines(path) if line.get("id")]


def same_id(id_: str) -> Any:
    from jmsclient.message import MessageKind, PlainContent

    return PlainContent(kind=MessageKind.TEXT, body="fine", message_id=id_)
