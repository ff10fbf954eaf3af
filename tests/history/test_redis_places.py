"""Where a Redis history may be: behind a user's rights, TLS, Sentinels, or spread over a cluster. Real servers all."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from jmsclient.errors import ConfigurationError, HistoryUnavailableError
from jmsclient.events import Event
from jmsclient.history import Claim, Complete, Park, Reply, State, open_history, redis_scripts
from jmsclient.history.entries import Alike
from jmsclient.history.redis import RedisHistory

from .conftest import trust
from .redis_program import RedisProgram, free_port, until

pytestmark = pytest.mark.real
T = "orders"
Start = Callable[..., RedisProgram]


# -- users and TLS ----------------------------------------------------------------------------------------------------

RIGHTS = "+eval +evalsha +time +hmget +hget +hset +hdel +del +exists +pttl +pexpire +persist +zadd +zrem +zrange +zrevrangebyscore"
RIGHTS += " +sadd +srem +smembers +scan +info"


def test_a_user_with_these_rights_only_is_enough(start_redis: Start) -> None:
    server = start_redis()
    server.ask("ACL", "SETUSER", "worker", "on", ">p@ss/word", "~jmsclient:*", *RIGHTS.split())
    server.ask("ACL", "SETUSER", "default", "off")
    with open_history(f"redis://worker:p%40ss%2Fword@127.0.0.1:{server.port}/0") as history:
        history.check(strict=True)
        everything(history)
    with open_history(server.url) as nobody, pytest.raises(HistoryUnavailableError, match="Authentication"):
        nobody.claim(T, "1")


def everything(history: RedisHistory) -> None:
    """Each command and each question once."""
    for id_ in ("1", "2"):
        history.claim(T, id_, token="a")
    history.renew(T, "1", token="a")
    history.complete(T, "1", token="a")
    history.release(T, "2", token="a", to=State.RETRYING)
    history.release(T, "2", token="a")
    history.park(T, "3", token="a", envelope=b"x", reason="r")
    history.park("other", "4", token="a", envelope=b"y", reason="r")
    assert {one.id for one in history.in_doubt()} == {"3", "4"}  # nodes tell ages one after the other: of like ones no order
    history.decide(T, "3", "new", by="me")
    assert [one.id for one in history.decided(T)] == ["3"]
    (claimed,) = history.exchange([Claim(trigger=T, id="3", token="b", decided=True)])
    assert claimed.done
    history.complete(T, "3", token="b")
    assert history.statistics() == {"completed": 2, "in_doubt": 1, "retrying": 1}
    entry = history.lookup(T, "1")
    assert entry is not None
    assert entry.state is State.COMPLETED


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """An authority, and a server certificate for 127.0.0.1."""
    steps = (
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=authority "
        "-addext keyUsage=critical,keyCertSign,cRLSign",  # as Python 3.13 wants it
        "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=server",
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile names",
    )
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    for step in steps:
        subprocess.run(["openssl", *step.split()], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


@pytest.fixture
def tls_server(start_redis: Start, certificates: Path) -> RedisProgram:
    port = free_port()
    names = {"cert-file": "server.crt", "key-file": "server.key", "ca-cert-file": "ca.crt"}
    options = [part for name, file in names.items() for part in (f"--tls-{name}", str(certificates / file))]
    return start_redis("--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no", *options, port=port)


def test_tls_verifies_the_server_unless_it_is_told_not_to(tls_server: RedisProgram, certificates: Path) -> None:
    url = f"rediss://127.0.0.1:{tls_server.port}/0"
    with open_history(f"{url}?ssl_ca_certs={certificates / 'ca.crt'}") as history:
        assert history.claim(T, "1").claimed
    with open_history(url) as unknown, pytest.raises(HistoryUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        unknown.claim(T, "1")
    another_name = url.replace("127.0.0.1", "localhost")
    with (
        open_history(f"{another_name}?ssl_ca_certs={certificates / 'ca.crt'}") as history,
        pytest.raises(HistoryUnavailableError, match=r"Hostname mismatch|localhost"),
    ):
        history.claim(T, "1")
    with open_history(f"{url}?ssl_cert_reqs=none&ssl_check_hostname=false") as history:
        assert history.claim(T, "2").claimed


# -- Sentinel ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def watched(start_redis: Start, tmp_path: Path) -> Iterator[tuple[str, RedisProgram, RedisProgram]]:
    """A primary and a replica watched by one Sentinel: the URL, the primary and the replica."""
    primary = start_redis("--repl-diskless-sync-delay", "0")
    replica = start_redis("--replicaof", f"127.0.0.1 {primary.port}", "--repl-diskless-sync-delay", "0")
    until(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"))
    port = free_port()
    file = tmp_path / "sentinel.conf"
    file.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor shop 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds shop 300\nsentinel failover-timeout shop 2000\n"
    )
    with (tmp_path / "sentinel.log").open("wb") as log:
        process = subprocess.Popen(["redis-server", str(file), "--sentinel"], stdout=log, stderr=log)
    try:
        yield f"redis+sentinel://127.0.0.1:1,127.0.0.1:{port}/shop/0", primary, replica
    finally:
        process.kill()
        process.wait(10)


def sentinel_port(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


def test_tr53_after_a_fail_over_the_history_goes_on_and_is_cautious(watched: tuple[str, RedisProgram, RedisProgram]) -> None:
    url, primary, replica = watched
    with redis.Redis(port=sentinel_port(url)) as sentinel:
        until(lambda: sentinel.sentinel_slaves("shop"))
    with open_history(f"{url}?confirm=replicas(1)") as history:
        history.claim(T, "1", token="a")
        trust(history)
        assert history.exchange([Claim(trigger=T, id="2", token="b", delivery_count=2)])[0].done
    with open_history(url) as history:
        history.lookup(T, "1")
        primary.stop()
        assert until_answered(history, Complete(trigger=T, id="1", token="a"))[0].done
        lost = history.exchange([Claim(trigger=T, id="3", token="c", delivery_count=2)])[0]
        assert (lost.done, lost.cautious) == (False, True)
    assert b"role:master" in replica.ask("INFO", "replication")


def until_answered(history: RedisHistory, *commands: object) -> list[Reply]:
    """The commands with the same tokens until they are answered, as a trigger does it."""
    found: list[Reply] = []

    def ask() -> bool:
        try:
            found[:] = history.exchange(commands)  # type: ignore[arg-type]
        except HistoryUnavailableError:
            return False
        return True

    until(ask, timeout=20.0)
    return found


def test_sentinels_that_do_not_answer_are_a_history_that_does_not_answer() -> None:
    with open_history("redis+sentinel://:s3cret@127.0.0.1:1,127.0.0.1:2/shop?sentinel_password=s3cret") as history:
        with pytest.raises(HistoryUnavailableError) as raised:
            history.claim(T, "1")
        assert repr(history) == "RedisHistory('redis 127.0.0.1:1,127.0.0.1:2/shop/0', namespace='default')"
    assert "s3cret" not in str(raised.value)


# -- cluster ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisProgram]]:
    """Three nodes that share the slots."""
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as running:
        nodes = []
        for number in range(3):
            node = RedisProgram(folder, "--cluster-enabled", "yes", "--cluster-config-file", f"nodes-{number}.conf")
            running.callback(node.stop)
            nodes.append(node)
        for number, node in enumerate(nodes):
            first, last = 16384 * number // 3, 16384 * (number + 1) // 3 - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
        for node in nodes:
            until(
                lambda node=node: (
                    b"cluster_state:ok" in node.ask("CLUSTER", "INFO") and node.ask("CLUSTER", "COUNTKEYSINSLOT", 0) == 0
                )
            )
            until(lambda node=node: node.ask("CLUSTER", "NODES").count(b"connected") == 3)
        yield nodes


def cluster_url(nodes: list[RedisProgram]) -> str:
    return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in nodes)}"


TRIGGERS = [f"queue:///{name}" for name in ("orders", "bills", "prices", "parcels", "people", "ships")]


def test_a_cluster_does_all_that_one_server_does(cluster: list[RedisProgram]) -> None:
    with open_history(cluster_url(cluster), namespace="all") as history:
        history.check(strict=True)
        everything(history)


def test_tr33_a_group_is_one_call_a_slot_written_before_any_answer_is_read(
    cluster: list[RedisProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_history(cluster_url(cluster), namespace="group") as history:
        commands = [Claim(trigger=trigger, id=str(number), token="a") for number in range(10) for trigger in TRIGGERS]
        assert all(reply.done for reply in history.exchange(commands))
        calls: list[str] = []
        send, receive = redis_scripts.send, redis_scripts.receive
        monkeypatch.setattr(redis_scripts, "send", lambda at, asked: calls.append(f"send {asked[0][0]}") or send(at, asked))
        monkeypatch.setattr(redis_scripts, "receive", lambda at, number: calls.append("receive") or receive(at, number))
        replies = history.exchange([Complete(trigger=one.trigger, id=one.id, token="a") for one in commands])
        assert [reply.done for reply in replies] == [True] * 60
        assert calls == ["send EVALSHA"] * len(TRIGGERS) + ["receive"] * len(TRIGGERS)
        refused = history.exchange([Claim(trigger=one.trigger, id=one.id, token="b") for one in commands])
        assert [reply.entry.state for reply in refused if reply.entry] == [State.COMPLETED] * 60
    held = [node.ask("DBSIZE") for node in cluster]
    assert all(held), f"the triggers' slots are not spread: {held}"


def test_tr34_what_is_parked_on_any_node_is_listed(cluster: list[RedisProgram]) -> None:
    with open_history(cluster_url(cluster), namespace="parked") as history:
        for trigger in TRIGGERS:
            history.exchange([Park(trigger=trigger, id="1", token="a", envelope=b"x", reason="r")])
        assert sorted(one.trigger for one in history.in_doubt()) == sorted(TRIGGERS)
        history.complete(TRIGGERS[0], "1", token="a")
        assert len(history.in_doubt()) == len(TRIGGERS) - 1


def test_a_slot_that_moved_is_found_again(cluster: list[RedisProgram]) -> None:
    with open_history(cluster_url(cluster[:1]), namespace="moved") as history:
        history.claim(T, "1", token="a")
        manager = history._servers._current().nodes_manager
        nodes = [manager.nodes_cache[name] for name in manager.nodes_cache]
        for slot, holders in manager.slots_cache.items():  # as if every slot had moved to its neighbour
            manager.slots_cache[slot] = [nodes[(nodes.index(holders[0]) + 1) % len(nodes)]]
        history.complete(T, "1", token="a")
        for slot, holders in manager.slots_cache.items():
            manager.slots_cache[slot] = [nodes[(nodes.index(holders[0]) + 1) % len(nodes)]]
        with pytest.raises(HistoryUnavailableError, match=r"MOVED|moved|\d+ 127"):
            history.lookup(T, "1")  # says so once, and looks again
        entry = history.lookup(T, "1")
        assert entry is not None
        assert entry.state is State.COMPLETED


def test_a_cluster_has_groups_on_their_way_and_a_slot_may_move_meanwhile(cluster: list[RedisProgram]) -> None:
    with open_history(cluster_url(cluster), namespace="ahead") as history:
        assert isinstance(history, RedisHistory)
        assert history.sends_ahead
        first = history.begin([Alike.of(Claim(trigger=trigger, id="1", token="a")) for trigger in TRIGGERS])
        second = history.begin([Alike.of(Claim(trigger=trigger, id="2", token="b")) for trigger in TRIGGERS])
        unread = history.begin([Alike(Claim(trigger=TRIGGERS[0], id="", token=""), ["3", "4"], ["a", "b"])])
        unread.abandon()
        assert [reply.done for (reply,) in first.replies()] == [True] * len(TRIGGERS)
        assert [reply.done for (reply,) in second.replies()] == [True] * len(TRIGGERS)
        manager = history._servers._current().nodes_manager  # type: ignore[attr-defined]
        nodes = [manager.nodes_cache[name] for name in manager.nodes_cache]
        for slot, holders in manager.slots_cache.items():  # as if every slot had moved to its neighbour
            manager.slots_cache[slot] = [nodes[(nodes.index(holders[0]) + 1) % len(nodes)]]
        third = history.begin([Alike.of(Complete(trigger=trigger, id="1", token="a")) for trigger in TRIGGERS])
        assert [reply.done for (reply,) in third.replies()] == [True] * len(TRIGGERS)


def test_a_group_that_reaches_some_servers_only_leaves_no_answer_to_the_next(
    cluster: list[RedisProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it wrote already is answered, to nobody: on that connection nothing is asked any more."""
    with open_history(cluster_url(cluster), namespace="partly") as history:
        assert isinstance(history, RedisHistory)
        groups = [Claim(trigger=trigger, id="1", token="a") for trigger in TRIGGERS]
        assert all(reply.done for reply in history.exchange(groups))
        pool = history._servers.pool
        asked: list[bytes | str] = []

        def down(key: bytes | str) -> Any:
            asked.append(key)
            if len(asked) == 3:
                raise redis.exceptions.ClusterDownError("the cluster is down")
            return pool(key)

        with monkeypatch.context() as patched:
            patched.setattr(history._servers, "pool", down)
            with pytest.raises(HistoryUnavailableError, match="down"):
                history.exchange([Claim(trigger=trigger, id="1", token="b") for trigger in TRIGGERS])
        replies = history.exchange([Complete(trigger=trigger, id="1", token="a") for trigger in TRIGGERS])
        assert [reply.done for reply in replies] == [True] * len(TRIGGERS)


def test_tr49_a_node_that_is_gone_is_a_history_that_does_not_answer_until_it_is_back(cluster: list[RedisProgram]) -> None:
    with open_history(cluster_url(cluster), namespace="gone") as history:
        assert isinstance(history, RedisHistory)
        history.claim(T, "1", token="a")
        port = history._servers.pool(history._keys.mark(T)).connection_kwargs["port"]
        (node,) = [one for one in cluster if one.port == port]
        node.stop()
        for _ in range(3):
            with pytest.raises(HistoryUnavailableError):
                history.complete(T, "1", token="a")
        node.start()
        until_answered(history, Complete(trigger=T, id="1", token="a"))
        assert not history.claim(T, "1").claimed
    until(lambda: all(b"cluster_state:ok" in one.ask("CLUSTER", "INFO") for one in cluster))


def test_tr49_a_cluster_that_is_not_there_is_a_history_that_does_not_answer() -> None:
    with open_history("redis+cluster://:s3cret@127.0.0.1:1,127.0.0.1:2") as history:
        for call in (lambda: history.claim(T, "1"), lambda: history.lookup(T, "1"), history.in_doubt, history.statistics):
            with pytest.raises(HistoryUnavailableError) as raised:
                call()
            assert "s3cret" not in str(raised.value)
        history.check(strict=True)


def test_tr53_a_cluster_remembers_its_losses_once_a_trigger(cluster: list[RedisProgram], events: list[Event]) -> None:
    with open_history(cluster_url(cluster), namespace="lost") as history:
        for trigger in TRIGGERS[:2]:
            assert not history.exchange([Claim(trigger=trigger, id="1", token="a", delivery_count=2)])[0].done
        trust(history)  # one trigger's
        assert history.exchange([Claim(trigger="mark", id="2", token="a", delivery_count=2)])[0].done
        assert not history.exchange([Claim(trigger=TRIGGERS[0], id="1", token="b", delivery_count=2)])[0].done
    said = [event for event in events if event.name == "history_lost"]
    assert [(event.fields["reason"], event.level) for event in said] == [("missing", logging.INFO)] * 3


@pytest.mark.parametrize(
    ("url", "expects"),
    [
        ("redis+sentinel://:s3cret@host:26379", r"redis\+sentinel://\[USER:PASSWORD@\]HOST\[:PORT\]\[,…\]/SERVICE"),
        ("redis+sentinel://:s3cret@host/shop/zero", "SERVICE"),
        ("redis+cluster://:s3cret@host:7000/1", r"redis\+cluster://\[USER:PASSWORD@\]HOST\[:PORT\]\[,…\],"),
        ("redis://:s3cret@one:1,two:2/0", r"redis://\[USER"),
        ("redis+mesh://:s3cret@host", "unknown kind"),
    ],
)
def test_o09_a_wrong_place_says_what_is_expected_and_no_secret(url: str, expects: str) -> None:
    with pytest.raises(ConfigurationError, match=expects) as raised:
        open_history(url)
    assert "s3cret" not in str(raised.value)
