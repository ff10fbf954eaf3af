"""Which server a key is on, and one question to it: the pools of redis-py, without its way of asking.

A question is written to one connection and its answers are read from it, so that what is known about that connection (which run
of the server is at its other end, TR-53) holds for the question, and a WAIT after it is about its writes (TR-51). Thread-safe.
Must not know what a history is. Source: rules TR-39, TR-51, TR-53.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast
from weakref import WeakKeyDictionary

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import ConnectionPool
from redis.crc import key_slot
from redis.sentinel import Sentinel

from jmsclient.history.redis_address import Address

pack_command: Callable[[Question], bytes] | None
try:
    from hiredis import pack_command
except ImportError:
    pack_command = None

Question = tuple[Any, ...]
FRESH = 0.1
"""Seconds since its last answer in which a connection is used again without a look whether it is alive."""
FAILURES = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException, OSError)
"""What these raise where a server does not answer, or answers with an error. A cluster's own is no RedisError."""


class Servers(ABC):
    """`slotted`: keys are on servers by their hash tag, and one script call reaches one slot."""

    slotted = False

    @abstractmethod
    def pool(self, key: bytes | str) -> Any:
        """The pool of connections to the server that has this key. Raises one of FAILURES."""

    @abstractmethod
    def pools(self) -> list[Any]:
        """One pool for each server that has keys. Raises one of FAILURES."""

    def moved(self) -> None:  # noqa: B027  where there is one server, there is nothing to look for
        """A server said that it has the key no longer, or did not answer: look again before the next question."""

    @abstractmethod
    def close(self) -> None: ...


class OneServer(Servers):
    """A server, or the master that Sentinels name at each new connection."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def pool(self, key: bytes | str) -> Any:
        return self._client.connection_pool

    def pools(self) -> list[Any]:
        return [self._client.connection_pool]

    def close(self) -> None:
        self._client.close()
        self._client.connection_pool.disconnect()


class Cluster(Servers):
    """A cluster, whose nodes are asked for when the first question is."""

    slotted = True

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()  # guards the making of the client
        self._client: Any = None
        self._stale = False

    def pool(self, key: bytes | str) -> Any:
        client = self._current()
        raw = key.encode() if isinstance(key, str) else key
        return client.get_redis_connection(client.nodes_manager.get_node_from_slot(key_slot(raw))).connection_pool

    def pools(self) -> list[Any]:
        client = self._current()
        return [client.get_redis_connection(node).connection_pool for node in client.get_primaries()]

    def moved(self) -> None:
        self._stale = True

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _current(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._asked_for()
            elif self._stale:
                self._client.nodes_manager.initialize()
            self._stale = False
            return self._client

    def _asked_for(self) -> Any:
        node = cast(Any, ClusterNode)  # redis-py leaves it without types
        nodes = [node(host, port) for host, port in self._address.hosts]
        return RedisCluster(startup_nodes=nodes, **self._address.settings)


def open_servers(address: Address) -> Servers:
    """Nothing is called yet."""
    if address.kind == "cluster":
        return Cluster(address)
    if address.kind == "sentinel":
        sentinel = cast(Any, Sentinel)(address.hosts, sentinel_kwargs=address.sentinel)
        return OneServer(sentinel.master_for(address.service, **address.settings))
    return OneServer(redis.Redis(connection_pool=ConnectionPool(**address.settings)))


class Connections:
    """Questions on the connections of `servers`, and what is known about each connection."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self._known: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()
        self._fresh: deque[tuple[Any, Any, float]] = deque()  # pool, connection, since when; append and pop are atomic
        self._process = os.getpid()

    @contextmanager
    def on(self, pool: Any) -> Iterator[Any]:
        """A connected connection of this pool, for a `with`. Given up where the question did not end: an answer that is still to
        come must not be taken for that of the next."""
        connection = self.borrow(pool)
        answered = False
        try:
            yield connection
            answered = True
        finally:
            self.give_back(pool, connection, answered=answered)

    def borrow(self, pool: Any) -> Any:
        """One that was asked a moment ago, if there is one: a pool's look at a connection costs as much as a question."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._fresh.clear()  # they are the parent's
        while self._fresh:
            try:
                of, connection, since = self._fresh.pop()
            except IndexError:
                break
            if of is pool and time.monotonic() - since < FRESH:
                return connection
            of.release(connection)
        return pool.get_connection()

    def give_back(self, pool: Any, connection: Any, *, answered: bool) -> None:
        """`answered`: nothing is to come any more."""
        if answered:
            self._fresh.append((pool, connection, time.monotonic()))
        else:
            connection.disconnect()
            pool.release(connection)

    def ask(self, pool: Any, questions: Sequence[Question]) -> list[Any]:
        """All in one write; the answers in order, an error of the server as an exception among them."""
        with self.on(pool) as connection:
            send(connection, questions)
            return receive(connection, len(questions))

    def server(self, connection: Any) -> dict[str, str]:
        """What the server at the other end says of itself (`run_id`, `redis_version`, …), asked once a connection; empty where it
        may not be asked."""
        known = self._known.get(connection)
        if known is None:
            known = information(connection, "server")
            self._known[connection] = known
            connection.register_connect_callback(self._forget)
        return known

    def _forget(self, connection: Any) -> None:
        """It is connected anew, perhaps to another server."""
        self._known.pop(connection, None)


def send(connection: Any, questions: Sequence[Question]) -> None:
    if pack_command is not None:  # what redis-py ends up with, without its look at every argument
        connection.send_packed_command([b"".join(map(pack_command, questions))])
    else:
        connection.send_packed_command(connection.pack_commands(questions))


def receive(connection: Any, number: int) -> list[Any]:
    answers: list[Any] = []
    for _ in range(number):
        try:
            answers.append(connection.read_response())
        except redis.exceptions.ResponseError as error:
            answers.append(error)
    return answers


def information(connection: Any, section: str) -> dict[str, str]:
    """The lines of one section of INFO by name; empty where the user may not ask."""
    send(connection, [("INFO", section)])
    (answer,) = receive(connection, 1)
    if not isinstance(answer, bytes | str):
        return {}
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    pairs = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in pairs if colon}
