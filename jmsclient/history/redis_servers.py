"""Which server a key is on, and one question to it: the pools of redis-py, without its way of asking.

A question is written to one connection and its answers are read from it, so that what is known about that connection (which run
of the server is at its other end, TR-53) holds for the question, and a WAIT after it is about its writes (TR-51). Thread-safe.
Must not know what a history is. Source: rules TR-39, TR-51, TR-53.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast
from weakref import WeakKeyDictionary

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import ConnectionPool
from redis.crc import key_slot
from redis.sentinel import Sentinel

from jmsclient.history.redis_address import Address

Question = tuple[Any, ...]
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
                node = cast(Any, ClusterNode)  # redis-py leaves it without types
                nodes = [node(host, port) for host, port in self._address.hosts]
                self._client = RedisCluster(startup_nodes=nodes, **self._address.settings)
            elif self._stale:
                self._client.nodes_manager.initialize()
            self._stale = False
            return self._client


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

    @contextmanager
    def on(self, pool: Any) -> Iterator[Any]:
        """A connected connection of this pool. Given up where the question did not end: an answer that is still to come must not
        be taken for that of the next."""
        connection = pool.get_connection()
        try:
            yield connection
        except redis.exceptions.ResponseError:
            raise  # it was answered
        except BaseException:
            connection.disconnect()
            raise
        finally:
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
