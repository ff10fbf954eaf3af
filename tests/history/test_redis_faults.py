"""What a trigger does while its Redis is stopped, paused, filled or replaced: D06, TR-49, TR-50, TR-53, on real servers.

In none of these a message that was delivered before runs twice unseen.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jmsclient import Message, Worker
from jmsclient.events import Event
from jmsclient.exporters.journal_check import Check, Report
from jmsclient.history import open_history
from jmsclient.options import WorkerOptions
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.contract import Verb

from ..seen import named  # noqa: TID252  tests are no package that has a name
from .conftest import trust
from .redis_program import RedisProgram, until

pytestmark = pytest.mark.real
Q = "queue:///orders"
LEASE = 1.0
Start = Callable[..., RedisProgram]


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jmsclient.trigger.outage.FIRST_PROBE", 0.1)
    monkeypatch.setattr("jmsclient.trigger.outage.LONGEST_PROBE", 0.2)


@dataclass
class Shop:
    """A worker with one trigger on a scripted provider, and what its handler did."""

    backend: ScriptedBackend
    url: str
    journal: Path
    in_handler: Callable[[str], None] = lambda body: None
    ran: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def open(self, **settings: Any) -> Iterator[Worker]:
        worker = Worker(self.backend.url, history=self.url, options=WorkerOptions(journal=self.journal))

        @worker.trigger(Q, **{"lease": LEASE, **settings})
        def book(body: str) -> None:
            self.ran.append(body)
            self.in_handler(body)

        with worker:
            yield worker

    def deliver(self, body: str, delivery_count: int = 1) -> None:
        self.backend.deliver(Q, Message(body, properties={"uuid": body}), delivery_count)

    def verbs(self) -> list[Verb]:
        return [settlement.outcome.verb for settlement in self.backend.settlements]

    def checked(self) -> Report:
        check = Check()
        check.read(self.journal.read_text(encoding="utf-8").splitlines())
        return check.report()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with ScriptedBackend() as backend:
        yield Shop(backend, "", tmp_path / "journal.jsonl")


def counters(worker: Worker) -> dict[str, int]:
    return worker.triggers[Q].pipeline.counters.as_dict()


def trusted(server: RedisProgram) -> str:
    """The URL of a server that has been there for long."""
    with open_history(server.url) as history:
        trust(history)  # type: ignore[arg-type]
    return server.url


def test_d06_a_stopped_and_started_it_runs_what_came_meanwhile_once(shop: Shop, start_redis: Start, events: list[Event]) -> None:
    server = start_redis()
    shop.url = trusted(server)
    with shop.open() as worker:
        shop.deliver("before")
        until(lambda: shop.verbs() == [Verb.ACCEPT])
        server.stop()
        shop.deliver("m1")
        until(lambda: worker.triggers[Q].pipeline.suspended == "history_unavailable")
        time.sleep(0.5)  # while it is away nothing runs and nothing is acknowledged
        assert shop.ran == ["before"]
        assert shop.verbs().count(Verb.ACCEPT) == 1
        server.start()
        until(lambda: shop.verbs().count(Verb.ACCEPT) == 2)
        assert shop.ran == ["before", "m1"]
        assert worker.triggers[Q].pipeline.suspended is None
    # It forgot everything, and says so; a message that was delivered before is not run again unseen.
    assert [event.fields["history_lost"] for event in named(events, "new")] == [False, True]
    assert shop.checked().findings == []


def test_d06_b_what_ran_and_could_not_be_recorded_is_in_doubt_when_it_comes_again(
    shop: Shop, start_redis: Start, events: list[Event]
) -> None:
    server = start_redis()
    shop.url = trusted(server)
    shop.in_handler = lambda body: server.stop() if body == "m1" and shop.ran == ["m1"] else None
    with shop.open() as worker:
        shop.deliver("m1")
        until(lambda: named(events, "completed_not_recorded"))  # the lease is over
        assert Verb.ACCEPT not in shop.verbs()
        server.start()
        until(lambda: counters(worker)["parked"] == 1)
    assert shop.ran == ["m1"]
    (parked,) = named(events, "parked")
    assert parked.fields["reason"] == "history_lost"
    assert shop.checked().findings == []


@pytest.mark.parametrize("settings", [{}, {"concurrency": 2}, {"transacted": True}], ids=str)
def test_tr50_paused_for_longer_than_the_lease_nothing_runs_twice(
    shop: Shop, start_redis: Start, events: list[Event], settings: dict[str, Any]
) -> None:
    server = start_redis()
    shop.url = trusted(server)
    shop.in_handler = lambda body: server.pause() if body == "m1" and shop.ran == ["m1"] else None
    with shop.open(**settings) as worker:
        shop.deliver("m1")
        if settings.get("transacted"):  # committed: it does not come again by itself
            until(lambda: worker.triggers[Q].state == "suspended")
            time.sleep(LEASE)
            server.go_on()
            shop.deliver("m1")
        else:
            until(lambda: named(events, "completed_not_recorded"))
            server.go_on()
        # What was on its way to the paused server may have arrived or not: Duplicate or In Doubt, never New.
        until(lambda: counters(worker)["duplicate"] + counters(worker)["parked"] == 1)
        shop.deliver("m2")
        until(lambda: "m2" in shop.ran)
    assert shop.ran == ["m1", "m2"]
    assert shop.checked().findings == []


def test_tr49_paused_for_a_moment_it_waits_and_goes_on(shop: Shop, start_redis: Start) -> None:
    server = start_redis()
    shop.url = trusted(server)
    with shop.open(lease=30.0) as worker:
        shop.deliver("m1")
        until(lambda: shop.verbs() == [Verb.ACCEPT])
        server.pause()
        shop.deliver("m2")
        until(lambda: worker.triggers[Q].pipeline.suspended == "history_unavailable")
        server.go_on()
        until(lambda: shop.verbs().count(Verb.ACCEPT) == 2)
    assert shop.ran == ["m1", "m2"]
    assert shop.checked().findings == []


def test_a_server_full_under_noeviction_refuses_and_the_trigger_waits(shop: Shop, start_redis: Start, events: list[Event]) -> None:
    server = start_redis("--maxmemory-policy", "noeviction")
    shop.url = trusted(server)
    with shop.open() as worker:
        shop.deliver("m1")
        until(lambda: shop.verbs() == [Verb.ACCEPT])
        server.ask("CONFIG", "SET", "maxmemory", "1mb")
        shop.deliver("m2")
        until(lambda: worker.triggers[Q].pipeline.suspended == "history_unavailable")
        assert any("out of memory" in event.text for event in named(events, "suspended"))
        time.sleep(0.3)
        assert shop.ran == ["m1"]
        server.ask("CONFIG", "SET", "maxmemory", "0")
        until(lambda: shop.verbs().count(Verb.ACCEPT) == 2)
        shop.deliver("m1", delivery_count=2)
        until(lambda: counters(worker)["duplicate"] == 1)  # nothing was evicted
    assert shop.ran == ["m1", "m2"]
    assert shop.checked().findings == []


@pytest.mark.parametrize("settings", [{}, {"concurrency": 2}], ids=str)
def test_a_server_that_fills_up_under_a_handler_is_told_when_it_has_room(
    shop: Shop, start_redis: Start, events: list[Event], settings: dict[str, Any]
) -> None:
    server = start_redis("--maxmemory-policy", "noeviction")
    shop.url = trusted(server)
    shop.in_handler = lambda body: server.ask("CONFIG", "SET", "maxmemory", "1mb")
    with shop.open(lease=30.0, **settings) as worker:
        shop.deliver("m1")
        until(lambda: counters(worker)["store_errors"] >= 1)
        assert (shop.ran, shop.verbs()) == (["m1"], [])  # it ran, and is not acknowledged before that is written down
        server.ask("CONFIG", "SET", "maxmemory", "0")
        until(lambda: shop.verbs() == [Verb.ACCEPT])
        shop.deliver("m1", delivery_count=2)
        until(lambda: counters(worker)["duplicate"] == 1)
    assert shop.ran == ["m1"]
    assert shop.checked().findings == []


class Address:
    """A TCP address that leads to a server, and after a fail-over to another."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._links: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def fail_over(self, port: int) -> None:
        self.target = port
        for one in self._links:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.fail_over(self.target)
        self._thread.join(5)
        for one in self._links:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            self._links += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def lagging(start_redis: Start) -> Iterator[tuple[Address, RedisProgram, RedisProgram]]:
    """An address of a primary whose replica can be left behind."""
    primary = start_redis("--repl-diskless-sync-delay", "0")
    replica = start_redis("--replicaof", f"127.0.0.1 {primary.port}")
    until(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"))
    address = Address(primary.port)
    yield address, primary, replica
    address.close()


def test_tr53_failed_over_to_a_replica_that_lags(
    shop: Shop, lagging: tuple[Address, RedisProgram, RedisProgram], events: list[Event]
) -> None:
    address, primary, replica = lagging
    trusted(primary)
    shop.url = f"redis://127.0.0.1:{address.port}/0"
    with shop.open() as worker:
        shop.deliver("m1")
        until(lambda: shop.verbs() == [Verb.ACCEPT])
        until(lambda: any(b":uuid:m1" in key for key in replica.ask("KEYS", "*")))
        replica.ask("REPLICAOF", "NO", "ONE")  # from here on it misses what the primary writes
        shop.deliver("m2")
        shop.deliver("m3")
        until(lambda: shop.verbs().count(Verb.ACCEPT) == 3)
        primary.stop()
        address.fail_over(replica.port)

        shop.deliver("m1", delivery_count=2)  # known to the replica
        until(lambda: counters(worker)["duplicate"] == 1)
        shop.deliver("m2", delivery_count=2)  # the replica never heard of it
        until(lambda: counters(worker)["parked"] == 1)
        assert shop.ran == ["m1", "m2", "m3"]
        shop.deliver("m3")  # a second copy that the sender made: count 1, and nobody can know
        until(lambda: shop.ran == ["m1", "m2", "m3", "m3"])
    assert [event.fields["reason"] for event in named(events, "in_doubt") if "reason" in event.fields] in ([], ["history_lost"])
    assert [event.fields["reason"] for event in named(events, "parked")] == ["history_lost"]
    assert [event.fields["history_lost"] for event in named(events, "new")] == [False, False, False, True]
    (found,) = shop.checked().findings  # run twice, but not unseen
    assert (found.kind, found.id) == ("run twice", "m3")
    assert "the history had lost it" in found.text


def test_tr51_with_confirm_nothing_runs_that_the_replica_does_not_know(
    shop: Shop, lagging: tuple[Address, RedisProgram, RedisProgram]
) -> None:
    address, primary, replica = lagging
    trusted(primary)
    shop.url = f"redis://127.0.0.1:{address.port}/0?confirm=replicas(1)"
    with shop.open(lease=30.0) as worker:
        shop.deliver("m1")
        until(lambda: shop.verbs() == [Verb.ACCEPT])
        replica.ask("REPLICAOF", "NO", "ONE")
        shop.deliver("m2")
        until(lambda: worker.triggers[Q].pipeline.suspended == "history_unavailable")
        assert shop.ran == ["m1"]
        primary.stop()
        address.fail_over(replica.port)
        second = start_beside(replica)
        try:
            until(lambda: shop.verbs().count(Verb.ACCEPT) == 2)
            shop.deliver("m1", delivery_count=2)
            until(lambda: counters(worker)["duplicate"] == 1)
        finally:
            second.stop()
    assert shop.ran == ["m1", "m2"]
    assert shop.checked().findings == []


def start_beside(primary: RedisProgram) -> RedisProgram:
    """A replica of what is the primary now."""
    return RedisProgram(primary.folder.parent, "--replicaof", f"127.0.0.1 {primary.port}", program="redis-server")


def test_tr51_too_few_after_the_handler_is_not_acknowledged_until_it_is_confirmed(
    shop: Shop, lagging: tuple[Address, RedisProgram, RedisProgram]
) -> None:
    _, primary, replica = lagging
    shop.url = f"{trusted(primary)}?confirm=replicas(1)"
    shop.in_handler = lambda body: replica.pause()
    with shop.open(lease=30.0) as worker:
        shop.deliver("m1")
        until(lambda: counters(worker)["store_errors"] >= 1)
        assert (shop.ran, shop.verbs()) == (["m1"], [])
        replica.go_on()
        until(lambda: shop.verbs() == [Verb.ACCEPT])
        assert counters(worker)["completed"] == 1
    assert shop.ran == ["m1"]
