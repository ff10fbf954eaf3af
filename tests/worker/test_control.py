"""A worker's control socket: its triggers seen and changed from another process (TR-59, TR-61, TR-65)."""

from __future__ import annotations

import json
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jmsclient import Worker
from jmsclient.errors import ConfigurationError, StoreError
from jmsclient.events import Event, subscribe
from jmsclient.options import WorkerOptions
from jmsclient.testing import ScriptedBackend
from jmsclient.worker.control import ask

Q = "queue:///orders"
OTHER = "queue:///invoices"


@pytest.fixture
def backend() -> Iterator[ScriptedBackend]:
    with ScriptedBackend() as scripted:
        yield scripted
        assert scripted.violations == []


@pytest.fixture
def control(tmp_path: Path) -> Path:
    return tmp_path / "worker.sock"


def worker_on(backend: ScriptedBackend, control: Path) -> Worker:
    worker = Worker(backend.url, history="memory:", options=WorkerOptions(control=control))
    worker.trigger(Q)(lambda: None)
    worker.trigger(OTHER, name="bill")(lambda: None)
    return worker


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_tr59_triggers_are_seen_and_changed_and_each_change_names_who_did_it(backend: ScriptedBackend, control: Path) -> None:
    heard: list[Event] = []
    unsubscribe = subscribe(heard.append)
    with worker_on(backend, control) as worker:
        assert stat.S_IMODE(control.stat().st_mode) == 0o600
        backend.deliver(Q, ["1", "2"])
        until(lambda: worker.triggers[Q].counters["completed"] == 2)
        shown = ask(control, "list", [], by="ada")
        assert [(one["name"], one["destination"], one["state"], one["running"], one["reason"]) for one in shown] == [
            (Q, Q, "enabled", True, None),
            ("bill", OTHER, "enabled", True, None),
        ]
        assert shown[0]["counters"]["new"] == 2

        assert [(one["name"], one["state"]) for one in ask(control, "suspend", [Q], by="ada")] == [(Q, "suspended")]
        assert (worker.triggers[Q].state, worker.triggers["bill"].state) == ("suspended", "enabled")
        (one,) = ask(control, "resume", [Q], by="ada")
        assert (one["state"], one["reason"]) == ("enabled", None)
        assert [one["state"] for one in ask(control, "disable", [], by="bob", grace=0.0)] == ["disabled"] * 2
        assert [one["state"] for one in ask(control, "enable", ["bill"], by="bob")] == ["enabled"]
        assert (worker.triggers[Q].state, worker.triggers["bill"].state) == ("disabled", "enabled")
    unsubscribe()
    assert not control.exists()
    told = [(one.name, one.fields["trigger"], one.fields["actor"]) for one in heard if "actor" in one.fields]
    assert told == [
        ("suspended", Q, "ada"),
        ("resumed", Q, "ada"),
        ("disabled", Q, "bob"),
        ("disabled", "bill", "bob"),
        ("enabled", "bill", "bob"),
    ]


def test_what_the_worker_cannot_do_is_said(backend: ScriptedBackend, control: Path) -> None:
    with worker_on(backend, control):
        with pytest.raises(ConfigurationError, match="no trigger 'nobody' runs here; there are: 'queue:///orders', 'bill'"):
            ask(control, "suspend", [Q, "nobody"], by="ada")
        with pytest.raises(ConfigurationError, match="'explode' is none of list, suspend, resume, disable, enable"):
            ask(control, "explode", [Q], by="ada")
        with pytest.raises(ConfigurationError, match="grace"):
            ask(control, "disable", [Q], by="ada", grace=-1.0)
        assert [one["state"] for one in ask(control, "list", [], by="ada")] == ["enabled"] * 2
    with pytest.raises(StoreError, match="is it run with --control"):
        ask(control, "list", [], by="ada")


def test_whoever_says_nothing_sensible_does_not_keep_others_from_being_heard(
    backend: ScriptedBackend, control: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jmsclient.worker.control.PATIENCE", 0.1)
    monkeypatch.setattr("jmsclient.worker.control.LONGEST_LINE", 100_000)

    def says(text: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.connect(str(control))
            try:
                peer.sendall(text)
                return peer.recv(65536)
            except OSError:
                return b""

    with worker_on(backend, control):
        for text in (b"", b"\n", b"{", b"no json\n", b"\xff\xfe\n", b"x" * 300_000):
            assert says(text) == b""
        for request in ([], {}, {"do": "list"}, {"do": "list", "triggers": 3}, {"do": "suspend", "triggers": [Q]}):
            assert "not understood" in json.loads(says(json.dumps(request).encode() + b"\n"))["error"]
        assert len(ask(control, "list", [], by="ada")) == 2


def test_two_workers_cannot_listen_at_one_place_and_a_killed_one_is_replaced(backend: ScriptedBackend, control: Path) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(control))
    left.close()
    with worker_on(backend, control):
        second = worker_on(backend, control)
        with pytest.raises(ConfigurationError, match="another worker listens on it"):
            second.start()
        assert second.triggers == {}
        assert len(ask(control, "list", [], by="ada")) == 2
    control.write_text("mine")
    with pytest.raises(ConfigurationError, match="no socket"):
        worker_on(backend, control).start()
    assert control.read_text() == "mine"


def test_a_stop_waits_for_nobody_who_is_connected(backend: ScriptedBackend, control: Path) -> None:
    before = set(threading.enumerate())
    worker = worker_on(backend, control)
    worker.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as idle:
        idle.connect(str(control))
        until(lambda: worker._control is not None and worker._control._peer)
        begun = time.monotonic()
        worker.stop(60.0)
        assert time.monotonic() - begun < 30.0
    until(lambda: not any(thread.name == "jmsclient-control" for thread in set(threading.enumerate()) - before))


def test_a_trigger_that_is_not_there_is_refused_with_those_that_are(backend: ScriptedBackend, control: Path) -> None:
    worker = worker_on(backend, control)
    with pytest.raises(KeyError, match="the worker does not run"):
        worker.triggers[Q]
    with worker, pytest.raises(KeyError, match=r"'orders': there are 'queue:///orders', 'bill'"):
        worker.triggers["orders"]
