"""From a history URL to the Redis servers it names: one server, the master that Sentinels know, or a cluster; TLS and users.

Owns what a URL may say and what it cannot change: no repeats by the client (TR-39), whole bytes, the time limit (TR-49). Nothing is
called here. No secret enters an error (O09). Source: api.md "History URLs"; rules TR-49, TR-51.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, parse_url
from redis.retry import Retry

from jmsclient.errors import ConfigurationError
from jmsclient.history.contract import OPERATION_TIMEOUT

PORTS = {"": 6379, "sentinel": 26379, "cluster": 6379}
Host = tuple[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Confirm:
    """When a write counts as made (TR-51): at once, when `replicas` have it too, or when it is on the server's disk (`fsync`)."""

    replicas: int = 0
    fsync: bool = False

    def __bool__(self) -> bool:
        return self.fsync or self.replicas > 0

    def __str__(self) -> str:
        return "fsync" if self.fsync else f"replicas({self.replicas})" if self.replicas else "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """What a URL says. `kind` is "" (one server), "sentinel" or "cluster"; `settings` are redis-py's, of each connection,
    `sentinel` those of connections to Sentinels; `shown` stands for it in errors, without secrets."""

    kind: str
    hosts: tuple[Host, ...]
    service: str = ""
    confirm: Confirm = Confirm()
    settings: dict[str, Any] = field(repr=False)
    sentinel: dict[str, Any] = field(default_factory=dict, repr=False)
    shown: str = "redis"


def parse_confirm(text: str) -> Confirm:
    """`none`, `fsync` or `replicas(N)` with N from 1 on. Raises ConfigurationError."""
    if text in ("none", "fsync"):
        return Confirm(fsync=text == "fsync")
    found = re.fullmatch(r"replicas\((\d{1,3})\)", text)
    if found is None or int(found[1]) < 1:
        raise ConfigurationError(f"confirm={text!r}: expected none, fsync or replicas(N) with N from 1 on")
    return Confirm(replicas=int(found[1]))


def parse_address(url: str, operation_timeout: float = OPERATION_TIMEOUT) -> Address:
    """No answer is waited for longer than `operation_timeout` seconds (TR-49). Raises ConfigurationError that names what is
    expected, without secrets."""
    scheme, _, kind = url.partition(":")[0].lower().partition("+")
    try:
        return _parse(url, scheme, kind, operation_timeout)
    except ConfigurationError:
        raise
    except (ValueError, TypeError, IndexError):  # their text may hold a piece of the password
        name = url.partition(":")[0]
        where = {"": "HOST[:PORT][/DB]", "sentinel": "HOST[:PORT][,…]/SERVICE[/DB]", "cluster": "HOST[:PORT][,…]"}.get(kind, "HOST")
        raise ConfigurationError(
            f"history {name + '://…'!r}: the URL cannot be read; expected {name}://[USER:PASSWORD@]{where}, "
            "user and password percent-encoded"
        ) from None


def _parse(url: str, scheme: str, kind: str, operation_timeout: float) -> Address:
    parts = urlsplit(url)
    users, at, places = parts.netloc.rpartition("@")
    hosts = tuple(_host(place, PORTS[kind]) for place in places.split(","))
    path = parts.path.strip("/").split("/") if parts.path.strip("/") else []
    service = path.pop(0) if kind == "sentinel" else ""
    database = path.pop(0) if path else ""
    if path or (database and not database.isdigit()) or (kind == "cluster" and database) or (not kind and len(hosts) > 1):
        raise ValueError
    query, sentinel, confirm = _own_options(parts.query)
    plain = urlunsplit((scheme, f"{users}{at}{places.partition(',')[0]}", f"/{database}" if database else "", query, ""))
    settings: dict[str, Any] = dict(parse_url(plain))  # type: ignore[no-untyped-call,unused-ignore]
    settings = _limited(settings, operation_timeout)
    _try(settings)
    if kind:
        settings.pop("host", None)
        settings.pop("port", None)
        if settings.pop("connection_class", None) is not None:
            settings["ssl"] = True
        sentinel = {**{name: value for name, value in settings.items() if name.startswith(("socket_", "ssl"))}, **sentinel}
    shown = ",".join(f"{host}:{port}" for host, port in hosts)
    name = "/".join(part for part in (shown, service, "" if kind == "cluster" else database or "0") if part)
    return Address(
        kind=kind,
        hosts=hosts,
        service=service,
        confirm=confirm,
        settings=settings,
        sentinel=_limited(sentinel, operation_timeout / len(hosts)) if kind == "sentinel" else {},
        shown=f"redis {name}",
    )


def _host(place: str, port: int) -> Host:
    parts = urlsplit(f"//{place}")
    return parts.hostname or "localhost", parts.port or port


def _own_options(query: str) -> tuple[str, dict[str, Any], Confirm]:
    """What is not redis-py's is taken out of the query."""
    rest: list[tuple[str, str]] = []
    sentinel: dict[str, Any] = {}
    confirm = Confirm()
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "confirm":
            confirm = parse_confirm(value)
        elif name in ("sentinel_username", "sentinel_password"):
            sentinel[name.removeprefix("sentinel_")] = value
        else:
            rest.append((name, value))
    return urlencode(rest), sentinel, confirm


def _limited(settings: dict[str, Any], operation_timeout: float) -> dict[str, Any]:
    for name in ("socket_timeout", "socket_connect_timeout"):
        settings[name] = min(float(settings.get(name, operation_timeout)), operation_timeout)
    settings.pop("retry_on_timeout", None)
    return {**settings, "retry": Retry(NoBackoff(), 0), "decode_responses": False, "protocol": 2}


def _try(settings: dict[str, Any]) -> None:
    """Make a connection that is not connected, only to see that the options are known."""
    kinds = settings.get("connection_class", Connection)
    known = {name: value for name, value in settings.items() if name not in ("connection_class", "max_connections")}
    assert issubclass(kinds, Connection | SSLConnection) or kinds.__name__ == "UnixDomainSocketConnection"
    kinds(**known)
