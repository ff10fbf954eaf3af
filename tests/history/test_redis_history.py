"""What only the Redis history has: keys and their time to live, one script call a group, a time limit, no secret told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import fakeredis
import pytest

from jmsclient import Worker
from jmsclient.errors import ConfigurationError, HistoryUnavailableError
from jmsclient.history import Claim, Complete, Park, Release, State, open_history, redis_scripts
from jmsclient.history.entries import Alike
from jmsclient.history.redis import RedisHistory
from jmsclient.options import TriggerOptions
from jmsclient.testing import ScriptedBackend

from .redis_program import until

T = "queue:///orders"


@pytest.fixture(params=["fakeredis", pytest.param("redis", marks=pytest.mark.real)])
def history(request: pytest.FixtureRequest) -> Iterator[RedisHistory]:
    namespace = uuid4().hex
    if request.param == "fakeredis":
        opened = RedisHistory(fakeredis.FakeRedis(), namespace=namespace)
    else:
        opened = RedisHistory.from_url(request.getfixturevalue("redis_url"), namespace=namespace)
    with opened:
        yield opened


def keys(history: RedisHistory) -> list[bytes]:
    return [key for key in history._servers._client.keys("*") if history.namespace.encode() in key]


def test_tr33_one_key_a_message_and_one_hash_tag_a_trigger(history: RedisHistory) -> None:
    history.claim(T, "1", source="uuid")
    history.park(T, "2", token="a", envelope=b"x", reason="r")
    tag = f"{{{history.namespace}:queue%3A///orders}}"
    assert sorted(key.decode() for key in keys(history)) == [
        f"jmsclient:entry:{tag}:JMSMessageID:2",
        f"jmsclient:entry:{tag}:uuid:1",
        f"jmsclient:parked:{tag}",
        f"jmsclient:triggers:{history.namespace}",
    ]


def test_tr42_the_time_to_live_is_the_history_ttl_and_a_parked_copy_has_none(history: RedisHistory) -> None:
    def left(id_: str) -> int:
        return int(history._servers._client.pttl(history._keys.entry(T, "JMSMessageID", id_)))

    history.claim(T, "1", token="a", lease=5.0, history_ttl=500.0)
    assert 490_000 < left("1") <= 500_000
    history.renew(T, "1", token="a", lease=5.0, history_ttl=800.0)
    assert 790_000 < left("1") <= 800_000
    history.park(T, "1", token="a", envelope=b"x", reason="r")
    assert left("1") == -1
    history.complete(T, "1", token="a", history_ttl=300.0)
    assert 290_000 < left("1") <= 300_000


def test_d09_nothing_is_left_of_what_is_settled_or_over(history: RedisHistory) -> None:
    for id_ in ("1", "2"):
        history.park(T, id_, token="a", envelope=b"x" * 100, reason="r")
    history.complete(T, "1", token="a", history_ttl=0.5)
    assert set(history._servers._client.hkeys(history._keys.entry(T, "JMSMessageID", "1"))) == set(
        map(bytes, [b"%c" % c for c in b"stflacurvyo"])
    )
    history.complete(T, "2", token="a", history_ttl=0.05)
    history.claim(T, "3", lease=0.01, history_ttl=0.05)
    until(lambda: keys(history) == [])


def test_a_finished_entry_keeps_nothing_of_what_it_was_made_over(history: RedisHistory) -> None:
    history.release(T, "1", token="a", to=State.RETRYING)
    history.claim(T, "1", token="b")
    assert history._servers._client.hexists(history._keys.entry(T, "JMSMessageID", "1"), "bs")
    history.complete(T, "1", token="b")
    assert not history._servers._client.hexists(history._keys.entry(T, "JMSMessageID", "1"), "bs")


def test_tr38_a_group_is_one_call_whatever_is_in_it(history: RedisHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    history.claim(T, "warm")
    calls: list[str] = []
    send = redis_scripts.send
    monkeypatch.setattr(
        redis_scripts, "send", lambda connection, asked: calls.extend(one[0] for one in asked) or send(connection, asked)
    )
    commands = [Claim(trigger=T, id=str(n), token="a") for n in range(200)]
    assert all(reply.done for reply in history.exchange(commands))
    history.exchange(
        [
            Complete(trigger=T, id="1", token="a"),
            Park(trigger="other", id="2", token="a", envelope=b"x"),
            Release(trigger=T, id="3", token="a"),
        ]
    )
    assert calls == ["EVALSHA", "EVALSHA"]


def test_a_server_that_forgot_the_script_is_sent_it_again(history: RedisHistory) -> None:
    history.claim(T, "1", token="a")
    history._servers._client.script_flush()
    assert not history.claim(T, "1", token="b").claimed
    assert not history.claim(T, "1", token="c").claimed


def test_another_programs_value_under_our_key_is_never_overwritten(history: RedisHistory) -> None:
    key = history._keys.entry(T, "JMSMessageID", "1")
    history._servers._client.set(key, "theirs")
    refused = history.claim(T, "1", take_over=True)
    assert not refused.claimed
    assert refused.entry is not None
    assert (refused.entry.state, refused.entry.version) == (State.UNKNOWN, 0)
    found = history.lookup_many(T, [("1", "JMSMessageID"), ("2", "JMSMessageID")])
    assert [None if entry is None else entry.state for entry in found] == [State.UNKNOWN, None]
    assert not history.park(T, "1", token="a", envelope=b"x", reason="r").done
    assert history._servers._client.get(key) == b"theirs"
    history._servers._client.delete(key)


def test_leases_longer_than_any_number_of_the_script_are_long(history: RedisHistory) -> None:
    history.claim(T, "1", lease=float("inf"), history_ttl=float("inf"))
    entry = history.lookup(T, "1")
    assert entry is not None
    assert entry.lease_left > 1e8


@pytest.fixture
def silent_server() -> Iterator[int]:
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in taken:
            connection.close()


def test_tr49_a_server_that_does_not_answer_is_given_up_after_two_seconds(silent_server: int) -> None:
    with open_history(f"redis://:s3cret@127.0.0.1:{silent_server}/1?socket_timeout=60") as history:
        start = time.monotonic()
        with pytest.raises(HistoryUnavailableError) as raised:
            history.claim(T, "1")
        assert 1.5 < time.monotonic() - start < 20.0  # its own limit would be a minute
    assert "s3cret" not in str(raised.value)
    assert f"127.0.0.1:{silent_server}/1" in str(raised.value)


def test_tr49_a_trigger_says_how_long_a_call_may_take(silent_server: int) -> None:
    took: list[float] = []
    for _ in range(3):  # a busy machine may take its time, but hardly each time
        with ScriptedBackend() as backend:
            worker = Worker(backend.url, history=f"redis://127.0.0.1:{silent_server}/0")
            worker.trigger(T, options=TriggerOptions(operation_timeout=0.2))(print_body)
            with worker:
                start = time.monotonic()
                backend.deliver(T, "one")
                until(lambda: worker.triggers[T].pipeline.suspended is not None)  # noqa: B023  it is called at once
                took.append(time.monotonic() - start)
    assert min(took) < 3.5  # two calls; by the default it would be four seconds


def print_body(body: str) -> None:
    """Takes anything."""


def test_tr49_a_server_that_is_not_there_is_told_at_once(silent_server: int) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # not listening
        with open_history(f"redis://127.0.0.1:{unused.getsockname()[1]}") as history:
            for call in (lambda: history.claim(T, "1"), lambda: history.lookup(T, "1"), history.in_doubt, history.statistics):
                with pytest.raises(HistoryUnavailableError, match=r"redis 127\.0\.0\.1"):
                    call()


@pytest.mark.real
def test_o09_a_refused_password_is_not_in_the_error(redis_url: str) -> None:
    with (
        open_history(redis_url.replace("redis://", "redis://user:s3cret@")) as history,
        pytest.raises(HistoryUnavailableError) as raised,
    ):
        history.claim(T, "1")
    assert "s3cret" not in str(raised.value) + repr(history)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:s3/cret@host:6379/0",
        "redis://:s3cret",
        "redis://:s3cret@host:port/0",
        "redis://:s3cret@host/zero",
        "redis://:s3cret@host/0?unheard_of=1",
        "redis://:s3cret@host/0?socket_timeout=soon",
        "rediss://:s3cret@[::1/0",
    ],
)
def test_o09_a_url_that_cannot_be_read_says_what_is_expected_and_no_secret(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected rediss?://\[USER:PASSWORD@\]HOST") as raised:
        open_history(url)
    assert "s3" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_tr39_redis_py_repeats_nothing_by_itself() -> None:
    with open_history("redis://host:1?decode_responses=true&retry_on_timeout=true&protocol=3") as history:
        assert isinstance(history, RedisHistory)
        settings = history._servers._client.connection_pool.connection_kwargs
        assert (settings["retry"].get_retries(), "retry_on_timeout" in settings, settings["decode_responses"]) == (0, False, False)
        assert repr(history) == "RedisHistory('redis host:1/0', namespace='default')"


def test_tr38_groups_that_are_on_their_way_together_are_answered_each_for_itself(history: RedisHistory) -> None:
    like = Claim(trigger=T, id="", token="")
    names = [[f"{group}-{one}" for one in range(40)] for group in range(3)]
    waiting = [history.begin([Alike(like, of_group, of_group)]) for of_group in names]
    assert history.claim(T, "between").claimed
    for sent in reversed(waiting):
        (replies,) = sent.replies()
        assert [reply.done for reply in replies] == [True] * 40
    assert all(entry is not None and entry.token == name for name in names[2] for entry in [history.lookup(T, name)])
    asked = [Claim(trigger=T, id="0-0", token="another"), Complete(trigger=T, id="0-1", token="0-1")]
    assert [reply.done for (reply,) in history.begin([Alike.of(one) for one in asked]).replies()] == [False, True]


def test_tr39_an_answer_that_was_abandoned_is_not_taken_for_another(history: RedisHistory) -> None:
    history.begin([Alike.of(Claim(trigger=T, id="1", token="1"))]).abandon()
    claimed = history.claim(T, "2", token="2")
    assert (claimed.claimed, claimed.token) == (True, "2")
    assert history.begin([Alike.of(Complete(trigger=T, id="1", token="1"))]).replies()[0][0].done, (
        "it took effect, or is written anew"
    )


def test_tr38_a_script_that_the_server_forgot_is_sent_with_each_group(history: RedisHistory) -> None:
    history.claim(T, "first")
    history._servers._client.script_flush()
    waiting = [history.begin([Alike.of(Claim(trigger=T, id=str(one), token=str(one)))]) for one in range(3)]
    assert [sent.replies()[0][0].done for sent in waiting] == [True] * 3


@pytest.mark.real
def test_tr38_no_more_connections_are_taken_than_the_url_allows(redis_url: str) -> None:
    with open_history(f"{redis_url}?max_connections=2", namespace=uuid4().hex) as history:
        waiting = [history.begin([Alike.of(Claim(trigger=T, id=str(one), token=str(one)))]) for one in range(5)]
        assert [sent.replies()[0][0].done for sent in waiting] == [True] * 5


def test_tr49_a_group_sent_to_a_server_that_is_gone_says_so_where_its_replies_are_asked_for() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        open_history(f"redis://127.0.0.1:{listening.getsockname()[1]}/0") as gone,
    ):
        listening.close()
        sent = gone.begin([Alike.of(Claim(trigger=T, id="1", token="1"))])
        with pytest.raises(HistoryUnavailableError):
            sent.replies()
