"""TR-51: a write that counts only when replicas or the disk have it, on real servers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from jmsclient.errors import ConfigurationError, HistoryUnavailableError
from jmsclient.history import State, open_history
from jmsclient.history.redis_address import Confirm
from jmsclient.history.redis_watch import Confirming

from .redis_program import RedisProgram, until

pytestmark = pytest.mark.real
T = "orders"
Start = Callable[..., RedisProgram]


@pytest.fixture
def pair(start_redis: Start) -> tuple[RedisProgram, RedisProgram]:
    """A primary and its replica, in step."""
    primary = start_redis("--repl-diskless-sync-delay", "0")
    replica = start_redis("--replicaof", f"127.0.0.1 {primary.port}")
    until(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"))
    return primary, replica


def test_tr51_what_a_replica_confirmed_is_there(pair: tuple[RedisProgram, RedisProgram]) -> None:
    primary, replica = pair
    with open_history(f"{primary.url}?confirm=replicas(1)") as history:
        claim = history.claim(T, "1")
        history.complete(T, "1", token=claim.token)
    assert len([key for key in replica.ask("KEYS", "*") if b"entry" in key]) == 1


def test_tr51_too_few_replicas_is_a_history_that_does_not_answer(pair: tuple[RedisProgram, RedisProgram]) -> None:
    primary, replica = pair
    with open_history(f"{primary.url}?confirm=replicas(1)") as history, open_history(f"{primary.url}?confirm=replicas(1)") as other:
        claim = history.claim(T, "1", token="a")
        replica.pause()
        started = time.monotonic()
        with pytest.raises(HistoryUnavailableError, match=r"confirm=replicas\(1\): 0 of 1 replicas confirmed within 1.5 s"):
            history.complete(T, "1", token=claim.token)
        assert 1.0 < time.monotonic() - started < 10.0
        # It was written; but neither a repeat nor somebody else's look at it takes it for confirmed, on any connection.
        with pytest.raises(HistoryUnavailableError):
            history.complete(T, "1", token=claim.token)
        with pytest.raises(HistoryUnavailableError):
            other.claim(T, "1", token="b")
        replica.go_on()
        until(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"))
        history.complete(T, "1", token=claim.token)
        refused = other.claim(T, "1", token="b")
        assert refused.entry is not None
        assert refused.entry.state is State.COMPLETED


def test_tr51_a_server_without_replicas_says_so_at_once_or_in_time(start_redis: Start) -> None:
    with open_history(f"{start_redis().url}?confirm=replicas(2)") as history:
        history.check()  # it may get replicas later
        with pytest.raises(HistoryUnavailableError, match="0 of 2 replicas"):
            history.claim(T, "1")


def test_tr51_fsync_needs_redis_7_2_and_the_error_names_the_version(start_redis: Start) -> None:
    server = start_redis()
    (version,) = re.findall(rb"redis_version:(\S+)", server.ask("INFO", "server"))
    with open_history(f"{server.url}?confirm=fsync") as history:
        if tuple(map(int, version.split(b".")[:2])) >= (7, 2):
            history.check()
            return
        says = rf"confirm=fsync needs Redis 7.2 or Valkey, the server is Redis {version.decode()}"
        with pytest.raises(ConfigurationError, match=says):
            history.check()
        with pytest.raises(HistoryUnavailableError, match=says):
            history.claim(T, "1")
        assert server.ask("DBSIZE") == 0  # nothing was claimed without what was asked for


@pytest.mark.parametrize(
    ("product", "version", "can"),
    [
        ("", "7.0.15", False),
        ("", "7.1.9", False),
        ("", "7.2.0", True),
        ("", "8.0", True),
        ("valkey", "7.2.4", True),
        ("", "", True),
    ],
)
def test_tr51_which_servers_can_wait_for_their_disk(product: str, version: str, can: bool) -> None:
    server = {"server_name": product, "redis_version": version}
    assert (Confirming(Confirm(fsync=True), "redis").refusal(server) is None) is can
    assert Confirming(Confirm(replicas=1), "redis").refusal(server) is None


def test_tr51_fsync_on_valkey_is_on_its_disk(start_redis: Start) -> None:
    server = start_redis("--appendonly", "yes", "--appendfsync", "everysec", program="valkey-server")
    with open_history(f"{server.url}?confirm=fsync") as history:
        history.check(strict=True)
        claim = history.claim(T, "1")
        history.complete(T, "1", token=claim.token)
    server.restart()  # killed
    with open_history(server.url) as history:
        entry = history.lookup(T, "1")
        assert entry is not None
        assert entry.state is State.COMPLETED


def test_tr51_fsync_without_a_log_is_a_history_that_does_not_answer(start_redis: Start) -> None:
    with open_history(f"{start_redis(program='valkey-server').url}?confirm=fsync") as history:
        history.check()
        with pytest.raises(HistoryUnavailableError, match=r"confirm=fsync: .*appendonly"):
            history.claim(T, "1")


@pytest.mark.parametrize("wrong", ["replicas", "replicas(0)", "replicas(-1)", "replicas()", "disk", "", "replicas(1)x"])
def test_tr51_what_confirm_may_say(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=r"confirm='.*': expected none, fsync or replicas\(N\) with N from 1 on"):
        open_history(f"redis://localhost?confirm={wrong}")
    with open_history("redis://localhost?confirm=none") as history:
        assert repr(history) == "RedisHistory('redis localhost:6379/0', namespace='default')"
