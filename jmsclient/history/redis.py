"""A history on Redis or Valkey, shared by every worker that reaches it. Durable: messages may be parked in it.

Owns how a group becomes script calls; the script beside this file repeats the transitions of `entries`, `redis_format` has the
keys and fields, `redis_scripts` the calls that are on their way, `redis_servers` the connections. One key a message and one EVALSHA
a group (on a cluster one a slot, all written before any answer is read); no function library on the server, where two clients
would overwrite each other. Time is the server's (TR-43), expiry too. redis-py's own retries are off: the caller repeats with the
same token (TR-39).
Source: rules TR-33, TR-34, TR-38 to TR-44, TR-49, TR-51 to TR-53.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import redis

from jmsclient.errors import ConfigurationError, HistoryUnavailableError
from jmsclient.history.contract import OPERATION_TIMEOUT, DocumentHistory, ParkedMessage, Sent
from jmsclient.history.entries import Alike, Command, Entry, Reply
from jmsclient.history.redis_address import Confirm, parse_address
from jmsclient.history.redis_format import (
    COPY,
    SHOWN,
    Keys,
    KnownSettings,
    ScriptCall,
    entry_looked_up,
    parked_of,
    replies_of,
    to_carry_out,
    undecided,
)
from jmsclient.history.redis_scripts import Calls, Scripts
from jmsclient.history.redis_servers import FAILURES, Connections, OneServer, Question, Servers, open_servers
from jmsclient.history.redis_watch import Confirming, Eviction, Loss, unavailable

READ_AT_ONCE = 100

T = TypeVar("T")


class RedisHistory(DocumentHistory):
    """Thread-safe, as redis-py's pools are. `client` is a redis-py client that decodes nothing and repeats nothing, or a `Servers`;
    the history closes it. `shown` stands for the server in errors, without secrets; `confirm` says when a write counts as made.
    The time limit is the client's; `operation_timeout` says what it is."""

    durable = True
    sends_ahead = True

    def __init__(
        self,
        client: Any,
        *,
        namespace: str = "default",
        shown: str = "redis",
        confirm: Confirm | None = None,
        operation_timeout: float = OPERATION_TIMEOUT,
    ) -> None:
        self.namespace = namespace
        self._servers: Servers = client if isinstance(client, Servers) else OneServer(client)
        self._connections = Connections(self._servers)
        self._keys = Keys(namespace, slotted=self._servers.slotted)
        self._shown = shown
        self._confirming = Confirming(confirm or Confirm(), shown, operation_timeout)
        self._scripts = Scripts(self._connections, self._confirming)
        self._eviction = Eviction(self._connections, shown)
        self._loss = Loss(shown)
        self._known = KnownSettings()
        self._closed = False

    @classmethod
    def from_url(cls, url: str, *, namespace: str = "default", operation_timeout: float = OPERATION_TIMEOUT) -> RedisHistory:
        """A history on the server or servers that `url` names; connects when first used. Raises ConfigurationError, without
        secrets."""
        address = parse_address(url, operation_timeout)
        return cls(
            open_servers(address),
            namespace=namespace,
            shown=address.shown,
            confirm=address.confirm,
            operation_timeout=operation_timeout,
        )

    def check(self, *, strict: bool = False) -> None:
        """Eviction policy (TR-52) and what `confirm` needs (TR-51). A server that does not answer is looked at when it does."""
        self._eviction.strict = self._eviction.strict or strict
        try:
            refusal = self._refusal()
            policy = self._eviction.look()
        except FAILURES:
            return
        if refusal is not None:
            raise ConfigurationError(refusal)
        if policy is not None and strict:
            raise ConfigurationError(self._eviction.text(policy))

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        if not commands:
            return []
        replies = self._sent([Alike.of(command) for command in commands]).replies()
        for (reply,), command in zip(replies, commands, strict=True):
            if reply.done and not reply.token:
                reply.token = command.token
        return [reply for (reply,) in replies]

    def begin(self, asked: Sequence[Alike]) -> Sent:
        if not asked:
            return super().begin(asked)
        try:
            return self._sent(asked)
        except HistoryUnavailableError as error:
            if isinstance(error.__cause__, redis.exceptions.MaxConnectionsError):  # sent when an earlier group's is free again
                return super().begin(asked)
            return Sent(partial(_raise, error))

    def lookup_many(self, trigger: str, ids: Iterable[tuple[str, str]]) -> list[Entry | None]:
        keys = [self._keys.entry(trigger, source, id_) for id_, source in ids]
        if not keys:
            return []
        questions: list[Question] = [("TIME",)]
        for key in keys:
            questions += (("HMGET", key, *SHOWN), ("PTTL", key))
        clock, *values = self._ask(self._keys.index(trigger), questions)
        now = self._microseconds(clock)
        return [entry_looked_up(fields, left, now) for fields, left in zip(values[::2], values[1::2], strict=True)]

    def in_doubt(self, trigger: str | None = None) -> list[ParkedMessage]:
        parked: list[ParkedMessage] = []
        started: int | None = None
        for index in self._indexes(trigger):
            clock, keys = self._ask(index, [("TIME",), ("ZRANGE", index, 0, -1)])
            # One time for all, or ages of two triggers could not be compared.
            started = now = self._microseconds(clock) if started is None or self._servers.slotted else started
            parked += self._copies(index, keys, now, undecided)
        return sorted(parked, key=lambda one: -one.age)

    def decided(self, trigger: str | None = None, *, limit: int = 100) -> list[ParkedMessage]:
        parked: list[ParkedMessage] = []
        for index in self._indexes(trigger):
            (clock,) = self._ask(index, [("TIME",)])
            now = self._microseconds(clock)
            (keys,) = self._ask(index, [("ZREVRANGEBYSCORE", index, "(0", -now, "LIMIT", 0, limit)])
            parked += self._copies(index, keys, now, to_carry_out)
        return sorted(parked, key=lambda one: -one.age)[:limit]

    def purge_expired(self) -> int:
        """Always 0: the server removes what is past its history_ttl by itself."""
        return 0

    def statistics(self) -> dict[str, int]:
        """Entries by state, by a walk over the server's keys: for people, not for a hot path."""
        counts: Counter[str] = Counter()
        for pool in self._call(self._servers.pools):
            seen: set[bytes] = set()
            for keys in self._walk(pool, self._keys.entries):
                fresh = [key for key in keys if key not in seen]  # a walk may name a key twice
                seen.update(fresh)
                states = self._states(pool, fresh)
                counts.update(state.decode() for state in states if isinstance(state, bytes))
        return dict(counts)

    def _states(self, pool: Any, keys: Sequence[bytes]) -> list[Any]:
        return self._call(lambda: self._connections.ask(pool, [("HGET", key, "s") for key in keys]))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._servers.close()

    def __repr__(self) -> str:
        return f"RedisHistory({self._shown!r}, namespace={self.namespace!r})"

    # -- a group --------------------------------------------------------------------------------------------------------

    def _sent(self, asked: Sequence[Alike]) -> Sent:
        places, parts = self._parts(asked)
        calls = self._call(lambda: self._send(parts))

        def replies() -> list[list[Reply]]:
            found: list[list[Reply]] = [[]] * len(asked)  # each is replaced: its position is in one part
            for place, part, (times, *answers) in zip(places, parts, self._call(calls.answers), strict=True):
                now, mark = times
                self._loss.noticed(part.mark, mark)
                start = 0
                for position in place:
                    end = start + len(asked[position].ids)
                    found[position] = replies_of(answers[start:end], int(now))
                    start = end
            return found

        return Sent(replies, calls.abandon)

    def _parts(self, asked: Sequence[Alike]) -> tuple[list[Sequence[int]], list[ScriptCall]]:
        """Which commands belong together: all of them; on a cluster those of one trigger, whose keys are in one slot."""
        if not self._servers.slotted:
            return [range(len(asked))], [ScriptCall(self._keys, asked, self._known)]
        positions: dict[str, list[int]] = {}
        for position, one in enumerate(asked):
            positions.setdefault(one.like.trigger, []).append(position)
        places: list[Sequence[int]] = list(positions.values())
        return places, [ScriptCall(self._keys, [asked[one] for one in place], self._known) for place in places]

    def _send(self, parts: Sequence[ScriptCall]) -> Calls:
        if self._eviction.due:
            self._eviction.look()
        return self._scripts.send(parts)

    def _refusal(self) -> str | None:
        for pool in self._servers.pools():
            with self._connections.on(pool) as connection:
                refusal = self._confirming.refusal(self._connections.server(connection))
            if refusal is not None:
                return refusal
        return None

    # -- other questions ----------------------------------------------------------------------------------------------

    def _call(self, ask: Callable[[], T]) -> T:
        if self._closed:
            raise HistoryUnavailableError(f"history {self._shown} is closed")
        try:
            return ask()
        except FAILURES as error:
            self._servers.moved()
            raise unavailable(self._shown, error) from error

    def _ask(self, key: bytes | str, questions: Sequence[Question]) -> list[Any]:
        """The answers of the server that has the key; errors about single keys are among them. Raises HistoryUnavailableError."""

        def ask() -> list[Any]:
            answers = self._connections.ask(self._servers.pool(key), questions)
            moved = next((one for one in answers if isinstance(one, redis.exceptions.MovedError)), None)
            if moved is not None:
                raise moved
            return answers

        return self._call(ask)

    def _microseconds(self, clock: Any) -> int:
        if isinstance(clock, Exception):
            raise unavailable(self._shown, clock) from clock
        return int(clock[0]) * 1_000_000 + int(clock[1])

    def _indexes(self, trigger: str | None) -> list[bytes]:
        """Of one trigger, or of all that have parked messages."""
        if trigger is not None:
            return [self._keys.index(trigger)]
        sets: list[bytes | str] = [self._keys.all_triggers]
        if self._servers.slotted:
            pools = self._call(self._servers.pools)
            sets = sorted({key for pool in pools for keys in self._walk(pool, self._keys.all_triggers) for key in keys})
        found = [self._ask(one, [("SMEMBERS", one)])[0] for one in sets]
        for members in found:
            if isinstance(members, Exception):
                raise unavailable(self._shown, members) from members
        return sorted(index for members in found for index in members)

    def _walk(self, pool: Any, pattern: str) -> Iterator[list[bytes]]:
        cursor: Any = 0
        while True:
            question = ("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            (answer,) = self._call(partial(self._connections.ask, pool, [question]))
            if isinstance(answer, Exception):
                raise unavailable(self._shown, answer) from answer
            cursor, keys = int(answer[0]), answer[1]
            if keys:
                yield keys
            if cursor == 0:
                return

    def _copies(self, index: bytes, keys: Any, now: int, which: Callable[[bytes, bool, bool], bool]) -> Iterator[ParkedMessage]:
        if isinstance(keys, Exception):
            raise unavailable(self._shown, keys) from keys
        for start in range(0, len(keys), READ_AT_ONCE):
            chunk = keys[start : start + READ_AT_ONCE]
            for key, values in zip(chunk, self._ask(index, [("HMGET", key, *COPY) for key in chunk]), strict=True):
                if isinstance(values, list) and values[0] is not None:  # not settled since it was listed
                    state, lease = values.pop(-2), values.pop()
                    if which(state, values[7] is not None, int(lease or 0) <= now):
                        yield parked_of(key, values, now)


def _raise(error: HistoryUnavailableError) -> list[list[Reply]]:
    raise error
