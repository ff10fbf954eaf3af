"""Every kind of history behind one fixture, and a way to write into it what only another version would write."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import fakeredis
import pytest

from jmsclient.history import DocumentHistory, open_history
from jmsclient.history.memory import MemoryHistory
from jmsclient.history.redis import RedisHistory
from jmsclient.history.sqlite import SqliteHistory

KINDS = ["memory", "sqlite", "fakeredis", pytest.param("redis", marks=pytest.mark.real)]
SHARED = ["sqlite", pytest.param("redis", marks=pytest.mark.real)]

Forge = Callable[..., None]


def make(kind: str, request: pytest.FixtureRequest, folder: Path) -> DocumentHistory:
    namespace = uuid4().hex  # a real server is shared by the tests
    match kind:
        case "memory":
            return open_history("memory:", namespace=namespace)
        case "sqlite":
            return open_history(f"sqlite:{folder / 'history.db'}", namespace=namespace)
        case "fakeredis":
            return RedisHistory(fakeredis.FakeRedis(), namespace=namespace)
    return open_history(request.getfixturevalue("redis_url"), namespace=namespace)


@pytest.fixture(params=KINDS)
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DocumentHistory]:
    with make(request.param, request, tmp_path) as opened:
        yield opened


@pytest.fixture(params=SHARED)
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A history that processes share."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'history.db'}"
    return str(request.getfixturevalue("redis_url"))


@pytest.fixture
def forge() -> Forge:
    """`forge(history, trigger, id, version=2)` or `lease=None`: what this version would not write."""
    return forge_entry


REDIS_FIELDS = {"version": "v", "state": "s", "lease": "l"}
SQLITE_COLUMNS = {"version": "version", "state": "state", "lease": "lease_until"}


def trust(history: RedisHistory, *, since: float = 0.0) -> None:
    """Have the store say that it has lost nothing since then (seconds since 1970): what it does by itself after history_ttl."""
    history.complete("mark", "1", token="mark", history_ttl=0.001)  # writes the mark, if there is none
    history._servers._client.hset(history._keys.mark("mark"), "l", int(since * 1_000_000))


def forge_entry(history: DocumentHistory, trigger: str, id: str, **values: Any) -> None:  # noqa: A002
    source = "JMSMessageID"
    if isinstance(history, MemoryHistory):
        record = history._records[trigger, source, id]
        renamed = {"lease_until" if name == "lease" else name: value for name, value in values.items()}
        history._records[trigger, source, id] = record._replace(stored=replace(record.stored, **renamed))
    elif isinstance(history, SqliteHistory):
        with sqlite3.connect(history._path) as connection:
            for name, value in values.items():
                connection.execute(f"UPDATE entries SET {SQLITE_COLUMNS[name]} = ? WHERE id = ?", (value, id))
        connection.close()
    else:
        assert isinstance(history, RedisHistory)
        key = history._keys.entry(trigger, source, id)
        for name, value in values.items():
            if value is None:
                history._servers._client.hdel(key, REDIS_FIELDS[name])
            else:
                history._servers._client.hset(key, REDIS_FIELDS[name], value)
