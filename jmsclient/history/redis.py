"""A history on a Redis server, shared by every worker that reaches it. Durable: messages may be parked in it.

Owns the keys, the talk with the server and its time limit; the script beside this file repeats the transitions of `entries`. One
key a message and one EVALSHA a group; no function library on the server, where two client versions would overwrite each
other's. Time is the server's (TR-43), expiry too. redis-py's own retries are off: the caller repeats with the same token (TR-39).
All keys of one trigger carry one hash tag, so that a group and the list of what is parked stay in one slot of a cluster
(TR-33). Source: rules TR-33, TR-34, TR-38 to TR-44, TR-49.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool, parse_url
from redis.retry import Retry

from jmsclient.errors import ConfigurationError, HistoryUnavailableError
from jmsclient.history.contract import DocumentHistory, ParkedMessage
from jmsclient.history.entries import Claim, Command, Complete, Decide, Entry, Park, Release, Renew, Reply, State

OPERATION_TIMEOUT = 2.0
SCRIPT = Path(__file__).with_name("redis.lua").read_bytes()
SHA = hashlib.sha1(SCRIPT).hexdigest()  # noqa: S324  the name Redis gives a script
PREFIX = "jmsclient"
LONGEST = 1e9
"""Seconds: longer leases and lives are cut to it, about 31 years, so that times stay whole numbers in a script."""
READ_AT_ONCE = 100
_SHOWN = ("s", "t", "f", "l", "a", "c", "u", "o", "r", "w", "h", "n", "v", "k", "q", "z")
_COPY = ("p", "r", "d", "n", "w", "a", "e", "k", "q", "z", "s", "l")

T = TypeVar("T")


class RedisHistory(DocumentHistory):
    """Thread-safe, as redis-py's pool is. `client` is a redis-py client that decodes nothing and repeats nothing; the history
    closes it. `shown` stands for the server in errors, without secrets."""

    durable = True

    def __init__(self, client: Any, *, namespace: str = "default", shown: str = "redis") -> None:
        self.namespace = namespace
        self._client = client
        self._shown = shown
        self._closed = False
        self._triggers = f"{PREFIX}:triggers:{_escaped(namespace)}"

    @classmethod
    def from_url(cls, url: str, *, namespace: str = "default") -> RedisHistory:
        """A history on the server that `url` names; connects when first used. Raises ConfigurationError, without secrets."""
        try:
            settings = _settings(url)
            pool = ConnectionPool(**settings)
            pool.connection_class(**pool.connection_kwargs)  # not connected yet: only to see that the options are known
        except (ValueError, TypeError):  # their text may hold a piece of the password
            scheme = url.partition(":")[0]
            raise ConfigurationError(
                f"history {scheme + '://…'!r}: the URL cannot be read; expected {scheme}://[USER:PASSWORD@]HOST[:PORT][/DB], "
                "user and password percent-encoded"
            ) from None
        host, port, database = settings.get("host", "localhost"), settings.get("port", 6379), settings.get("db", 0)
        return cls(redis.Redis(connection_pool=pool), namespace=namespace, shown=f"redis {host}:{port}/{database}")

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        if not commands:
            return []
        triggers: dict[str, int] = {}
        keys: list[bytes] = []
        arguments: list[str | bytes | int] = []
        for number, command in enumerate(commands, 1):
            trigger = triggers.setdefault(command.trigger, len(triggers) + 1)
            keys.append(self._key(command.trigger, command.source, command.id))
            arguments += (_VERBS[type(command)], trigger, number, command.token, _milliseconds(command.history_ttl))
            arguments += _details(command)
        indexes = [self._index(trigger) for trigger in triggers]
        count = 1 + len(indexes) + len(keys)
        answers = self._call(lambda: self._evaluate(count, self._triggers, *indexes, *keys, len(triggers), *arguments))
        now = int(answers[0])
        return [_reply(answer, now) for answer in answers[1:]]

    def lookup_many(self, trigger: str, ids: Iterable[tuple[str, str]]) -> list[Entry | None]:
        keys = [self._key(trigger, source, id_) for id_, source in ids]
        if not keys:
            return []

        def read() -> list[Any]:
            with self._client.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("TIME")
                for key in keys:
                    pipeline.hmget(key, _SHOWN)
                    pipeline.pttl(key)
                return pipeline.execute(raise_on_error=False)  # type: ignore[no-any-return]

        clock, *values = self._call(read)
        if isinstance(clock, Exception):
            raise HistoryUnavailableError(f"history {self._shown}: {clock}") from clock
        now = int(clock[0]) * 1_000_000 + int(clock[1])
        return [_looked_up(fields, left, now) for fields, left in zip(values[::2], values[1::2], strict=True)]

    def in_doubt(self, trigger: str | None = None) -> list[ParkedMessage]:
        indexes = [self._index(trigger)] if trigger is not None else self._call(lambda: self._client.smembers(self._triggers))
        clock = self._call(lambda: self._client.execute_command("TIME"))
        now = int(clock[0]) * 1_000_000 + int(clock[1])  # one for all, or ages of two triggers could not be compared
        parked: list[ParkedMessage] = []
        for index in indexes:
            keys = self._call(lambda index=index: self._client.zrange(index, 0, -1))  # type: ignore[misc]
            for start in range(0, len(keys), READ_AT_ONCE):
                parked += self._copies(keys[start : start + READ_AT_ONCE], now, _undecided)
        return sorted(parked, key=lambda one: -one.age)

    def decided(self, trigger: str | None = None, *, limit: int = 100) -> list[ParkedMessage]:
        indexes = [self._index(trigger)] if trigger is not None else self._call(lambda: self._client.smembers(self._triggers))
        parked: list[ParkedMessage] = []
        for index in indexes:
            asked = (index, "(0", "-inf", "LIMIT", 0, limit)
            keys = self._call(lambda asked=asked: self._client.execute_command("ZREVRANGEBYSCORE", *asked))  # type: ignore[misc]
            if not keys:
                continue
            clock = self._call(lambda: self._client.execute_command("TIME"))
            now = int(clock[0]) * 1_000_000 + int(clock[1])
            for start in range(0, len(keys), READ_AT_ONCE):
                parked += self._copies(keys[start : start + READ_AT_ONCE], now, _to_carry_out)
        return sorted(parked, key=lambda one: -one.age)[:limit]

    def purge_expired(self) -> int:
        """Always 0: the server removes what is past its history_ttl by itself."""
        return 0

    def statistics(self) -> dict[str, int]:
        """Entries by state, by a walk over the server's keys: for people, not for a hot path."""
        pattern = f"{PREFIX}:entry:{{{_escaped(self.namespace)}:*"
        counts: Counter[str] = Counter()
        cursor = 0
        seen: set[bytes] = set()
        while True:
            cursor, keys = self._call(lambda cursor=cursor: self._client.scan(cursor, match=pattern, count=1000))  # type: ignore[misc]
            fresh = [key for key in keys if key not in seen]  # a walk may name a key twice
            seen.update(fresh)
            states = self._pipelined(fresh, lambda pipeline, key: pipeline.hget(key, "s"))
            counts.update(state.decode() for state in states if isinstance(state, bytes))
            if cursor == 0:
                return dict(counts)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._client.close()
            self._client.connection_pool.disconnect()

    def __repr__(self) -> str:
        return f"RedisHistory({self._shown!r}, namespace={self.namespace!r})"

    # -- keys -------------------------------------------------------------------------------------------------------

    def _key(self, trigger: str, source: str, id_: str) -> bytes:
        return _entry_prefix(self.namespace, trigger, source) + id_.encode("utf-8", "surrogatepass")

    def _index(self, trigger: str) -> bytes:
        return f"{PREFIX}:parked:{{{_escaped(self.namespace)}:{_escaped(trigger)}}}".encode()

    # -- the server -------------------------------------------------------------------------------------------------

    def _evaluate(self, count: int, *rest: str | bytes | int) -> Any:
        try:
            return self._client.execute_command("EVALSHA", SHA, count, *rest)
        except redis.exceptions.NoScriptError:  # a server that restarted, or has never seen us
            return self._client.execute_command("EVAL", SCRIPT, count, *rest)

    def _call(self, ask: Callable[[], T]) -> T:
        if self._closed:
            raise HistoryUnavailableError(f"history {self._shown} is closed")
        try:
            return ask()
        except (redis.exceptions.RedisError, OSError) as error:
            raise HistoryUnavailableError(f"history {self._shown}: {error}") from error

    def _pipelined(self, keys: Sequence[bytes], add: Callable[[Any, bytes], Any]) -> list[Any]:
        if not keys:
            return []

        def run() -> list[Any]:
            with self._client.pipeline(transaction=False) as pipeline:
                for key in keys:
                    add(pipeline, key)
                return pipeline.execute(raise_on_error=False)  # type: ignore[no-any-return]

        return self._call(run)

    def _copies(self, keys: Sequence[bytes], now: int, which: Callable[[bytes, bool, bool], bool]) -> Iterator[ParkedMessage]:
        for key, values in zip(keys, self._pipelined(keys, lambda pipeline, key: pipeline.hmget(key, _COPY)), strict=True):
            if isinstance(values, list) and values[0] is not None:  # not settled since it was listed
                state, lease = values.pop(-2), values.pop()
                if which(state, values[7] is not None, int(lease or 0) <= now):
                    yield _parked(key, values, now)


def _undecided(state: bytes, decided: bool, over: bool) -> bool:
    return (state == b"in_doubt" and not decided) or (state == b"processing" and over)


def _to_carry_out(state: bytes, decided: bool, over: bool) -> bool:
    return decided and over


_VERBS: dict[type[Command], str] = {
    Claim: "claim",
    Complete: "complete",
    Release: "release",
    Renew: "renew",
    Park: "park",
    Decide: "decide",
}

_STATES = {state.value.encode(): state for state in State}


def _settings(url: str) -> dict[str, Any]:
    """What the URL says, and what it cannot change: no retries, whole bytes, the time limit (TR-39, TR-49)."""
    parts = urlsplit(url)
    database = parts.path.strip("/")
    if "@" in parts.path or (database and not database.isdigit()):
        raise ValueError
    settings: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call,unused-ignore]
    for name in ("socket_timeout", "socket_connect_timeout"):
        settings[name] = min(float(settings.get(name, OPERATION_TIMEOUT)), OPERATION_TIMEOUT)
    return {**settings, "retry": Retry(NoBackoff(), 0), "retry_on_timeout": False, "decode_responses": False, "protocol": 2}


@lru_cache(maxsize=1024)
def _escaped(text: str) -> str:
    """Without colons and braces, so that no two names give one key."""
    return quote(text, safe="/", errors="surrogatepass")


@lru_cache(maxsize=1024)
def _entry_prefix(namespace: str, trigger: str, source: str) -> bytes:
    return f"{PREFIX}:entry:{{{_escaped(namespace)}:{_escaped(trigger)}}}:{_escaped(source)}:".encode()


def _milliseconds(seconds: float) -> int:
    return math.ceil(min(seconds, LONGEST) * 1000)


def _microseconds(seconds: float | None) -> int | str:
    return "" if seconds is None else int(max(-LONGEST, min(seconds, LONGEST)) * 1_000_000)


def _optional(value: str | bytes | None) -> str | bytes:
    if value is None:
        return ""
    return "=" + value if isinstance(value, str) else b"=" + value


def _details(command: Command) -> tuple[str | bytes | int, ...]:
    """What the verb needs beside token and history_ttl, in the script's order."""
    match command:
        case Claim():
            lease = _microseconds(command.lease)
            owner, body_hash = _optional(command.owner), _optional(command.body_hash)
            return lease, int(command.take_over), owner, body_hash, int(command.decided)
        case Complete():
            return (command.outcome,)
        case Release():
            to = "" if command.to is None else command.to.value
            return to, _microseconds(command.lease), _optional(command.reason)
        case Renew():
            return (_microseconds(command.lease),)
        case Park():
            return command.reason, command.delivery_count, _optional(command.owner), command.envelope
        case Decide():
            return command.decision, command.by
    raise TypeError(f"not a history command: {command!r}")


def _reply(answer: Sequence[Any], now: int) -> Reply:
    done, lost, fencing_token, attempt, token, fields = answer
    return Reply(
        done=done == 1,
        entry=None if fields is None else _entry(fields, now),
        token=token.decode(),
        fencing_token=fencing_token,
        attempt=attempt,
        lease_lost=lost == 1,
    )


def _looked_up(fields: Any, left: int, now: int) -> Entry | None:
    if isinstance(fields, Exception):  # another program's value under our key
        return Entry(state=State.UNKNOWN, version=0)
    if fields[0] is None:
        return None
    if not fields[3]:  # no deadline: locked as long as the key lives (TR-41)
        fields[3] = b"%d" % (now + left * 1000 if left >= 0 else 2**53)
    return _entry(fields, now)


def _entry(fields: Sequence[Any], now: int) -> Entry:
    state, token, fence, lease, attempt, started, updated, outcome, reason, owner, body_hash, copies, version, *decided = fields
    return Entry(
        state=_STATES.get(state, State.UNKNOWN),
        token=_text(token) or "",
        fencing_token=int(fence or 0),
        lease_left=max(0, int(lease) - now) / 1_000_000,
        attempt=int(attempt or 1),
        outcome=_text(outcome),
        reason=_text(reason),
        owner=_text(owner),
        body_hash=body_hash,
        copies=int(copies or 0),
        started=max(0, now - int(started or now)) / 1_000_000,
        updated=max(0, now - int(updated or now)) / 1_000_000,
        version=int(version or 0),
        decision=_text(decided[0]),
        decided_by=_text(decided[1]),
        decided=max(0, now - int(decided[2] or now)) / 1_000_000,
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _parked(key: bytes, values: Sequence[Any], now: int) -> ParkedMessage:
    parked_at, reason, delivery_count, copies, owner, attempt, envelope, decision, by, decided_at = values
    tag, _, place = key.decode("utf-8", "surrogatepass").partition("}:")
    source, _, id_ = place.partition(":")
    return ParkedMessage(
        trigger=unquote(tag.rpartition(":")[2], errors="surrogatepass"),
        id=id_,
        source=unquote(source, errors="surrogatepass"),
        reason=_text(reason) or "",
        delivery_count=int(delivery_count or -1),
        age=max(0, now - int(parked_at or now)) / 1_000_000,
        copies=int(copies or 0),
        owner=_text(owner),
        attempt=int(attempt or 1),
        envelope=envelope or b"",
        decision=_text(decision),
        decided_by=_text(by),
        decided=max(0, now - int(decided_at or now)) / 1_000_000,
    )
