"""A history on Redis or Valkey, shared by every worker that reaches it. Durable: messages may be parked in it.

Owns how a group becomes script calls; the script beside this file repeats the transitions of `entries`, `redis_format` has the
keys and fields, `redis_servers` the connections. One key a message and one EVALSHA a group (on a cluster one a slot, all written
before any answer is read); no function library on the server, where two client versions would overwrite each other's. Time is the
server's (TR-43), expiry too. redis-py's own retries are off: the caller repeats with the same token (TR-39).
Source: rules TR-33, TR-34, TR-38 to TR-44, TR-49, TR-51 to TR-53.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import redis

from jmsclient.errors import ConfigurationError, HistoryUnavailableError
from jmsclient.history.contract import OPERATION_TIMEOUT, DocumentHistory, ParkedMessage, Sent
from jmsclient.history.entries import Command, Entry, Reply
from jmsclient.history.redis_address import Confirm, parse_address
from jmsclient.history.redis_format import (
    COPY,
    SHOWN,
    Keys,
    KnownTerms,
    ScriptCall,
    entry_looked_up,
    parked_of,
    reply_of,
    to_carry_out,
    undecided,
)
from jmsclient.history.redis_servers import (
    FAILURES,
    Borrowed,
    Connections,
    OneServer,
    Question,
    Servers,
    open_servers,
    receive,
    send,
)
from jmsclient.history.redis_watch import Confirming, Eviction, Loss, unavailable

SCRIPT = Path(__file__).with_name("redis.lua").read_bytes()
SHA = hashlib.sha1(SCRIPT).hexdigest()  # noqa: S324  the name Redis gives a script
READ_AT_ONCE = 100
TRIES = 3
"""How often a group is asked while servers say that a slot has moved."""

T = TypeVar("T")


class RedisHistory(DocumentHistory):
    """Thread-safe, as redis-py's pools are. `client` is a redis-py client that decodes nothing and repeats nothing, or a `Servers`;
    the history closes it. `shown` stands for the server in errors, without secrets; `confirm` says when a write counts as made.
    The time limit is the client's; `operation_timeout` says what it is."""

    durable = True

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
        self._eviction = Eviction(self._connections, shown)
        self._loss = Loss(shown)
        self._known = KnownTerms()
        self.sends_ahead = not self._servers.slotted
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
        return self._exchange_slots(commands) if self._servers.slotted else self._sent(commands).replies()

    def begin(self, commands: Sequence[Command]) -> Sent:
        if self._servers.slotted or not commands:
            return super().begin(commands)
        try:
            return self._sent(commands)
        except HistoryUnavailableError as error:
            if isinstance(error.__cause__, redis.exceptions.MaxConnectionsError):  # sent when an earlier group's is free again
                return super().begin(commands)
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

    # -- a group, on one server -----------------------------------------------------------------------------------------

    def _sent(self, commands: Sequence[Command]) -> Sent:
        part = ScriptCall(self._keys, commands, self._known)
        borrowed = self._call(lambda: self._send(part))
        return Sent(lambda: self._call(lambda: self._replies(part, commands, borrowed)), borrowed.abandon)

    def _send(self, part: ScriptCall) -> Borrowed:
        if self._eviction.due:
            self._eviction.look()
        borrowed = self._connections.on(self._servers.pool(part.mark))
        connection = borrowed.__enter__()
        try:
            send(connection, self._questions("EVALSHA", SHA, part, connection))
        except BaseException as error:
            borrowed.__exit__(type(error), error, None)
            raise
        return borrowed

    def _replies(self, part: ScriptCall, commands: Sequence[Command], borrowed: Borrowed) -> list[Reply]:
        number = 1 + len(self._confirming.questions)
        with borrowed as connection:
            first, *confirmations = receive(connection, number)
            if isinstance(first, redis.exceptions.NoScriptError):  # a server that restarted, or never saw it
                send(connection, self._questions("EVAL", SCRIPT, part, connection))
                first, *confirmations = receive(connection, number)
        if isinstance(first, Exception):
            raise first
        self._confirming.check(confirmations)
        clock = self._clock(part, first)
        return [reply_of(answer, clock, command) for answer, command in zip(first[1:], commands, strict=True)]

    def _clock(self, part: ScriptCall, answers: list[Any]) -> int:
        """The server's time, and what it says of its mark."""
        now, mark = answers[0]
        self._loss.noticed(part.mark, mark)
        return int(now)

    # -- a group, on a cluster ------------------------------------------------------------------------------------------

    def _exchange_slots(self, commands: Sequence[Command]) -> list[Reply]:
        if self._eviction.due:
            self._call(self._eviction.look)
        places = self._places(commands)
        parts = [ScriptCall(self._keys, [commands[one] for one in place], self._known) for place in places]
        replies: list[Reply | None] = [None] * len(commands)
        for place, part, answers in zip(places, parts, self._call(lambda: self._evaluate(parts)), strict=True):
            clock = self._clock(part, answers)
            for position, answer in zip(place, answers[1:], strict=True):
                replies[position] = reply_of(answer, clock, commands[position])
        return replies  # type: ignore[return-value]  # each position is in one part

    def _places(self, commands: Sequence[Command]) -> list[list[int]]:
        """Which commands belong together: one script call a trigger, whose keys are in one slot."""
        positions: dict[str, list[int]] = {}
        for position, command in enumerate(commands):
            positions.setdefault(command.trigger, []).append(position)
        return list(positions.values())

    def _evaluate(self, parts: Sequence[ScriptCall]) -> list[list[Any]]:
        """Each part's answer, confirmed. Asked again where a server said that the slot has moved: tokens make that safe (TR-39)."""
        for last in (False,) * (TRIES - 1) + (True,):
            answers = self._ask_all(parts)
            moved = [one for one, *_ in answers if isinstance(one, redis.exceptions.MovedError)]
            if not moved or last:
                break
            self._servers.moved()
        for first, *confirmations in answers:
            if isinstance(first, Exception):
                raise first
            self._confirming.check(confirmations)
        return [first for first, *_ in answers]

    def _ask_all(self, parts: Sequence[ScriptCall]) -> list[list[Any]]:
        """All parts are written before an answer is read; parts on one server share a connection."""
        with ExitStack() as stack:
            connections: dict[int, Any] = {}
            asked: list[tuple[Any, ScriptCall]] = []
            for part in parts:
                pool = self._servers.pool(part.mark)
                connection = connections.get(id(pool))
                if connection is None:
                    connection = connections[id(pool)] = stack.enter_context(self._connections.on(pool))
                send(connection, self._questions("EVALSHA", SHA, part, connection))
                asked.append((connection, part))
            number = 1 + len(self._confirming.questions)
            answers = [receive(connection, number) for connection, _ in asked]
            for position, (connection, part) in enumerate(asked):
                if isinstance(answers[position][0], redis.exceptions.NoScriptError):  # a server that restarted, or never saw it
                    send(connection, self._questions("EVAL", SCRIPT, part, connection))
                    answers[position] = receive(connection, number)
        return answers

    def _questions(self, verb: str, script: str | bytes, part: ScriptCall, connection: Any) -> list[Question]:
        server = self._connections.server(connection)
        refusal = self._confirming.refusal(server)
        if refusal is not None:
            raise HistoryUnavailableError(refusal)
        confirmed = self._confirming.questions
        call = (verb, script, *part.keys_and_head(server.get("run_id", ""), bool(confirmed)), *part.arguments)
        return [call, *confirmed]

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


def _raise(error: HistoryUnavailableError) -> list[Reply]:
    raise error
