"""A history URL: what it may say, and one line for what it may not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jmsclient.errors import ConfigurationError
from jmsclient.history import open_history
from jmsclient.history.memory import MemoryHistory
from jmsclient.history.opening import without_secrets
from jmsclient.history.redis import RedisHistory
from jmsclient.history.sqlite import SqliteHistory


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory:", MemoryHistory),
        ("sqlite:h.db", SqliteHistory),
        ("sqlite://h.db", SqliteHistory),
        ("redis://localhost", RedisHistory),
        ("rediss://user:p%40ss@localhost:6380/2", RedisHistory),
    ],
)
def test_each_kind_is_opened_with_its_namespace(url: str, kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_history(url, namespace="shop") as history:
        assert isinstance(history, kind)
        assert history.namespace == "shop"
    assert [path.name for path in tmp_path.iterdir()] == (["h.db"] if kind is SqliteHistory else [])


@pytest.mark.parametrize(
    "url",
    ["", "history.db", "mysql://user:s3cret@host/db?password=s3cret", "memory:shop", "sqlite:", "sqlite::memory:", "sqlite:a\0b"],
)
def test_what_names_no_history_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected|write memory:") as raised:
        open_history(url)
    assert "\n" not in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_an_unknown_kind_names_what_was_given_and_what_is_allowed() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'etcd://\*\*\*@host/0': unknown kind 'etcd'; expected memory:, sqlite:PATH, redis:"
    ):
        open_history("etcd://u:p@host/0?token=x")


def test_tr33_an_empty_namespace_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="namespace=''"):
        open_history("memory:", namespace="")


def test_a_missing_redis_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "jmsclient.history.redis", raising=False)
    with pytest.raises(ConfigurationError, match=r"'redis://\*\*\*@host': .*pip install 'jmsclient\[redis\]'"):
        open_history("redis://:s3cret@host")


def test_urls_are_shown_without_secrets() -> None:
    assert without_secrets("redis://u:p@h:1/0?password=x") == "redis://***@h:1/0"
    assert without_secrets("redis://u:p@ss@h") == "redis://***@h"
    assert without_secrets("sqlite:a@b.db") == "sqlite:a@b.db"
