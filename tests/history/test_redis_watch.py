"""TR-52 and TR-53: what the history warns of about its server, and what it does when the server lost what it knew."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import Worker
from jmsclient.errors import ConfigurationError, HistoryUnavailableError
from jmsclient.events import Event
from jmsclient.history import Claim, State, open_history
from jmsclient.history.redis import RedisHistory
from jmsclient.options import TriggerOptions
from jmsclient.testing import ScriptedBackend

from ..seen import named  # noqa: TID252  tests are no package that has a name
from .conftest import trust
from .redis_program import RedisProgram, until

pytestmark = pytest.mark.real
T = "orders"
Start = Callable[..., RedisProgram]
EVICTING = ("--maxmemory-policy", "allkeys-lru")


# -- eviction (TR-52) -------------------------------------------------------------------------------------------------


def test_d06_c_one_warning_at_the_start_names_the_policy(start_redis: Start, events: list[Event]) -> None:
    url = start_redis(*EVICTING).url
    with ScriptedBackend() as backend:
        worker = Worker(backend.url, history=url)
        ran: list[str] = []

        @worker.trigger("queue:///orders")
        def book(body: str) -> None:
            ran.append(body)

        with worker:
            backend.deliver("queue:///orders", ["1", "2", "3"])
            until(lambda: len(ran) == 3)
    (warning,) = named(events, "history_evicts")
    assert warning.level == logging.WARNING
    assert warning.fields["policy"] == "allkeys-lru"
    assert "allkeys-lru" in warning.text
    assert "noeviction" in warning.text


def test_d06_c_strict_refuses_to_start(start_redis: Start) -> None:
    url = start_redis(*EVICTING).url
    with ScriptedBackend() as backend:
        worker = Worker(backend.url, history=url)
        worker.trigger("queue:///orders", options=TriggerOptions(strict=True))(print_body)
        with pytest.raises(ConfigurationError, match="maxmemory-policy is allkeys-lru"):
            worker.start()


def print_body(body: str) -> None:
    """Takes anything."""


def test_tr52_noeviction_is_fine_and_strict_takes_it(start_redis: Start, events: list[Event]) -> None:
    with open_history(start_redis().url) as history:
        history.check(strict=True)
        history.claim(T, "1")
    assert [event.name for event in events if event.name.startswith("history_") and event.name != "history_lost"] == []


def test_tr52_a_policy_that_changes_is_noticed_within_a_minute_of_use_and_said_once(
    start_redis: Start, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_redis()
    now = [1000.0]
    monkeypatch.setattr("jmsclient.history.redis_watch.time.monotonic", lambda: now[0])
    with open_history(server.url) as history:
        history.claim(T, "1")
        server.ask("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        now[0] += 59.0
        history.claim(T, "2")
        assert named(events, "history_evicts") == []
        for _ in range(3):
            now[0] += 61.0
            history.claim(T, "3")
        assert [event.fields["policy"] for event in named(events, "history_evicts")] == ["volatile-lru"]
        server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        now[0] += 61.0
        history.claim(T, "4")
        server.ask("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        now[0] += 61.0
        history.claim(T, "5")
        assert len(named(events, "history_evicts")) == 2


def test_tr52_a_policy_that_cannot_be_read_is_said_once_and_is_no_error(start_redis: Start, events: list[Event]) -> None:
    server = start_redis()
    rights = ("~jmsclient:*", "+evalsha", "+eval", "+time", "+hmget", "+pttl", "+hset", "+hdel", "+del", "+pexpire", "+exists")
    server.ask("ACL", "SETUSER", "worker", "on", ">s3cret", *rights, "+persist", "+zadd", "+zrem", "+sadd", "+srem")
    with open_history(f"redis://worker:s3cret@127.0.0.1:{server.port}/0") as history:
        for _ in range(2):
            history.check(strict=True)
        claim = history.claim(T, "1")
        history.complete(T, "1", token=claim.token)
        entry = history.lookup(T, "1")
        assert entry is not None
        assert entry.state is State.COMPLETED
    (said,) = named(events, "history_policy_unreadable")
    assert "s3cret" not in said.text


def test_tr49_a_server_that_is_down_at_the_start_is_no_configuration_error(start_redis: Start) -> None:
    server = start_redis()
    server.stop()
    with open_history(server.url) as history:
        history.check(strict=True)
        with pytest.raises(HistoryUnavailableError):
            history.claim(T, "1")


# -- loss (TR-53) -----------------------------------------------------------------------------------------------------


def claim(history: Any, id_: str, count: int, **more: Any) -> Any:
    (reply,) = history.exchange([Claim(trigger=T, id=id_, token=f"{id_}-{count}", delivery_count=count, **more)])
    return reply


def known(url: str) -> RedisHistory:
    """A history on a server that has been there for long."""
    history = open_history(url)
    assert isinstance(history, RedisHistory)
    trust(history)
    return history


def settled(history: Any) -> None:
    """The next call has a connection that works: one to a server that restarted is found dead once."""
    try:
        history.lookup(T, "0")
    except HistoryUnavailableError:
        history.lookup(T, "0")


LOSSES = {
    "restarted": RedisProgram.restart,
    "emptied": lambda server: server.ask("FLUSHALL"),
    "emptied and restarted": lambda server: (server.ask("FLUSHALL"), server.restart()),
}


@pytest.mark.parametrize("how", LOSSES)
def test_tr53_a_server_that_lost_something_makes_the_history_cautious(how: str, start_redis: Start, events: list[Event]) -> None:
    server = start_redis()
    with known(server.url) as history, known(server.url) as other:
        assert not claim(history, "1", 2).cautious
        LOSSES[how](server)
        settled(history)
        again = claim(history, "1", 2)
        assert (again.done, again.entry, again.cautious) == (False, None, True)
        assert not claim(history, "2", -1).done
        first = claim(history, "3", 1)
        assert (first.done, first.entry, first.cautious) == (True, None, True)
        assert claim(history, "1", 2, despite_loss=True).done
        settled(other)  # another worker, which comes later and finds the mark renewed, knows it too
        assert not claim(other, "4", 2).done
        with open_history(server.url) as third:
            assert not claim(third, "4", 2).done
    assert [event.level for event in named(events, "history_lost") if event.fields["reason"] == "changed"] == [logging.WARNING]


def test_tr53_a_restart_counts_as_a_loss_whatever_was_kept(start_redis: Start) -> None:
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    with known(server.url) as history:
        claim(history, "1", 1)
        server.restart()
        settled(history)
        there, absent = claim(history, "1", 2), claim(history, "2", 2)
        assert there.entry is not None
        assert (absent.done, absent.cautious) == (False, True)


def test_tr53_it_is_over_after_history_ttl(start_redis: Start) -> None:
    server = start_redis()
    with open_history(server.url) as history:
        assert not claim(history, "1", 2, history_ttl=0.3).done
        assert not claim(history, "1", 2, history_ttl=60.0).done
        until(lambda: claim(history, "1", 2, history_ttl=0.3).done)
        assert not claim(history, "2", 2, history_ttl=60.0).done  # another trigger remembers for longer


def test_tr53_the_mark_has_no_time_to_live_and_holds_the_run_id(start_redis: Start) -> None:
    server = start_redis()
    with open_history(server.url) as history:
        claim(history, "1", 1)
    assert server.ask("TTL", "jmsclient:mark") == -1
    run_id = next(line for line in server.ask("INFO", "server").splitlines() if line.startswith(b"run_id:"))
    assert server.ask("HGET", "jmsclient:mark", "r") == run_id.partition(b":")[2]


def test_tr53_a_trigger_parks_what_came_again_and_marks_what_came_first(start_redis: Start, events: list[Event]) -> None:
    server = start_redis()
    with ScriptedBackend() as backend:
        worker = Worker(backend.url, history=server.url)
        ran: list[str] = []

        @worker.trigger("queue:///orders")
        def book(body: str) -> None:
            ran.append(body)

        with worker:
            backend.deliver("queue:///orders", "again", delivery_count=2)
            backend.deliver("queue:///orders", "first")
            until(lambda: ran == ["first"] and named(events, "parked"))
        assert worker.triggers == {}
    (parked,) = named(events, "parked")
    assert parked.fields["reason"] == "history_lost"
    (new,) = named(events, "new")
    assert new.fields["history_lost"] is True
