"""From a history URL to a history: `memory:`, `sqlite:PATH`, `redis://…` (TLS: `rediss://…`), `redis+sentinel://…`, `redis+cluster://…`.

Must not know how a history keeps anything. No secret enters an error (O09). Source: api.md, "History URLs"; rule TR-33.
"""

from __future__ import annotations

from typing import Any

from jmsclient.errors import ConfigurationError
from jmsclient.history.contract import OPERATION_TIMEOUT, DocumentHistory
from jmsclient.options import key_part

KINDS = (
    "memory:, sqlite:PATH, redis://HOST:PORT/DB, rediss://HOST:PORT/DB, redis+sentinel://HOST:PORT/SERVICE, "
    "redis+cluster://HOST:PORT, postgresql://HOST/DATABASE"
)


def open_history(url: str, *, namespace: str = "default", operation_timeout: float = OPERATION_TIMEOUT) -> DocumentHistory:
    """Open the history that `url` names; `namespace` keeps the entries of unrelated workers apart (TR-33). Each call to it takes
    `operation_timeout` seconds at most (TR-49).

    Raises ConfigurationError for a URL that names no history or one whose package is not installed, StoreError for a file that
    cannot be used (nothing is written then). A server is called when the history is first used, not here. Thread-safe.
    """
    if not isinstance(url, str) or not url:
        raise ConfigurationError(f"history {url!r}: expected a URL: {KINDS}")
    key_part("namespace", namespace)
    if not namespace:
        raise ConfigurationError("namespace='': expected a name; it keeps the entries of unrelated workers apart")
    scheme, colon, rest = url.partition(":")
    match scheme.lower() if colon else "":
        case "memory":
            return _memory(rest, namespace)
        case "sqlite":
            return _sqlite(rest, namespace, operation_timeout)
        case "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster" | "rediss+cluster":
            return _redis(url, namespace, operation_timeout)
        case "postgresql" | "postgres":
            return _postgresql(url, namespace, operation_timeout)
    raise ConfigurationError(f"history {without_secrets(url)!r}: unknown kind {scheme if colon else ''!r}; expected {KINDS}")


def without_secrets(url: str) -> str:
    """The URL without user, password and options, for errors."""
    shown = url.partition("?")[0]
    scheme, slashes, rest = shown.partition("://")
    return f"{scheme}://***@{rest.rpartition('@')[2]}" if slashes and "@" in rest else shown


def _memory(rest: str, namespace: str) -> DocumentHistory:
    from jmsclient.history.memory import MemoryHistory

    if rest not in ("", "//"):
        raise ConfigurationError(f"history {'memory:' + rest!r}: a history in memory has no name or options; write memory:")
    return MemoryHistory(namespace=namespace)


def _sqlite(rest: str, namespace: str, operation_timeout: float) -> DocumentHistory:
    from jmsclient.history.sqlite import SqliteHistory

    path = rest.removeprefix("//")
    if not path or path == ":memory:" or "\0" in path:
        raise ConfigurationError(f"history {'sqlite:' + rest!r}: expected sqlite:PATH with the path of a file, or memory:")
    return SqliteHistory(path, namespace=namespace, operation_timeout=operation_timeout)


def _postgresql(url: str, namespace: str, operation_timeout: float) -> DocumentHistory:
    from jmsclient.history.sql import SqlHistory

    try:
        import psycopg
        from psycopg import conninfo
    except ImportError as error:
        raise ConfigurationError(
            f"history {without_secrets(url)!r}: the package psycopg is not installed; run: pip install 'psycopg[binary]'"
        ) from error
    try:
        settings: dict[str, Any] = {"connect_timeout": 2, **conninfo.conninfo_to_dict(url)}
    except psycopg.Error:  # its text may hold a piece of the password
        raise ConfigurationError(
            f"history {without_secrets(url)!r}: the URL cannot be read; expected postgresql://[USER:PASSWORD@]HOST[:PORT]/DATABASE"
        ) from None

    def connect() -> psycopg.Connection:
        return psycopg.connect(conninfo.make_conninfo(**settings))

    return SqlHistory(connect, namespace=namespace, operation_timeout=operation_timeout)


def _redis(url: str, namespace: str, operation_timeout: float) -> DocumentHistory:
    try:
        from jmsclient.history.redis import RedisHistory
    except ImportError as error:
        raise ConfigurationError(
            f"history {without_secrets(url)!r}: the package redis is not installed; run: pip install 'jmsclient[redis]'"
        ) from error

    return RedisHistory.from_url(url, namespace=namespace, operation_timeout=operation_timeout)
