"""What a Redis server is told and asked beside the history's own: whether it evicts, whether it confirms, what it has lost.

Each thing is said once, as an event of area `history`, until it changes. Source: rules TR-51, TR-52, TR-53.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import redis

from jmsclient.errors import HistoryUnavailableError
from jmsclient.events import emit
from jmsclient.history.contract import OPERATION_TIMEOUT
from jmsclient.history.redis_address import Confirm
from jmsclient.history.redis_servers import Connections, Question, information, receive, send

CHECK_INTERVAL = 60.0
CONFIRM_SHARE = 0.75
"""How much of the time limit of the whole question the server may wait for replicas or its disk."""
FSYNC_SINCE = (7, 2)
NEW, CHANGED = 1, 2


class Confirming:
    """The question that follows a script, and what its answer has to be (TR-51)."""

    def __init__(self, confirm: Confirm, shown: str, operation_timeout: float = OPERATION_TIMEOUT) -> None:
        self._confirm = confirm
        self._shown = shown
        self._timeout = operation_timeout * CONFIRM_SHARE
        milliseconds = max(1, int(self._timeout * 1000))  # 0 would be for ever
        wait: Question = ("WAITAOF", 1, 0, milliseconds) if confirm.fsync else ("WAIT", confirm.replicas, milliseconds)
        self.questions: tuple[Question, ...] = (wait,) if confirm else ()

    def refusal(self, server: dict[str, str]) -> str | None:
        """Why this server cannot confirm so; None: it can, or will say so itself."""
        if not self._confirm.fsync:
            return None
        version = server.get("redis_version", "")
        if server.get("server_name") == "valkey" or not version:
            return None
        if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) >= FSYNC_SINCE:
            return None
        return f"history {self._shown}: confirm=fsync needs Redis 7.2 or Valkey, the server is Redis {version}"

    def check(self, answers: list[Any]) -> None:
        """Raises HistoryUnavailableError where too few confirmed."""
        for answer in answers:
            if isinstance(answer, Exception):
                raise HistoryUnavailableError(f"history {self._shown}: confirm={self._confirm}: {answer}") from answer
            confirmed, wanted = (answer[0], 1) if isinstance(answer, list) else (answer, self._confirm.replicas)
            if confirmed < wanted:
                found = "the disk did not confirm" if self._confirm.fsync else f"{confirmed} of {wanted} replicas confirmed"
                raise HistoryUnavailableError(f"history {self._shown}: confirm={self._confirm}: {found} within {self._timeout:g} s")


class Eviction:
    """Reads `maxmemory-policy` at the start and every minute of use (TR-52): an evicted entry is a forgotten one."""

    def __init__(self, connections: Connections, shown: str) -> None:
        self._connections = connections
        self._shown = shown
        self._due = 0.0
        self._told: str | None = None
        self.strict = False

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._due

    def look(self) -> str | None:
        """The first policy that evicts, None where none does. Says what it finds, once. Raises one of FAILURES."""
        self._due = time.monotonic() + CHECK_INTERVAL
        policies = {self._policy(pool) for pool in self._connections.servers.pools()}
        evicting = next((policy for policy in sorted(policies - {None, "noeviction"}, key=str)), None)
        if evicting is not None:
            level = logging.ERROR if self.strict else logging.WARNING
            self._tell("history_evicts", evicting, self.text(evicting), level)
        elif None in policies:
            text = f"history {self._shown}: the eviction policy cannot be read; make sure that it is noeviction"
            self._tell("history_policy_unreadable", "", text, logging.WARNING)
        else:
            self._told = None
        return evicting

    def text(self, policy: str) -> str:
        return (
            f"history {self._shown}: maxmemory-policy is {policy}: the server may forget what was processed, and it would run "
            "again; set noeviction"
        )

    def _tell(self, name: str, policy: str, text: str, level: int) -> None:
        if self._told != policy:
            self._told = policy
            emit("history", name, text, level=level, history=self._shown, policy=policy or None)

    def _policy(self, pool: Any) -> str | None:
        with self._connections.on(pool) as connection:
            policy = information(connection, "memory").get("maxmemory_policy")
            if policy is None:  # an older server, or one that lets this user read its settings only
                send(connection, [("CONFIG", "GET", "maxmemory-policy")])
                (answer,) = receive(connection, 1)
                policy = answer[1].decode() if isinstance(answer, list) and len(answer) > 1 else None
        return policy


class Loss:
    """Says that a store lost what it knew, or may have (TR-53)."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._seen: set[str] = set()

    def noticed(self, key: str, mark: int) -> None:
        """`mark`: what the script said of the mark under this key."""
        if mark in (NEW, CHANGED):
            known = key in self._seen or mark == CHANGED
            text = "restarted, failed over or was emptied, and may have lost entries" if known else "is new or was emptied"
            emit(
                "history",
                "history_lost",
                f"history {self._shown} {text}: until history_ttl is over, what was delivered before and has no entry is In Doubt "
                "or the resolver's",
                level=logging.WARNING if known else logging.INFO,
                history=self._shown,
                reason="changed" if known else "missing",
            )
        self._seen.add(key)


def unavailable(shown: str, error: Exception) -> HistoryUnavailableError:
    if isinstance(error, redis.exceptions.OutOfMemoryError):
        return HistoryUnavailableError(f"history {shown}: out of memory, nothing was written: {error}")
    return HistoryUnavailableError(f"history {shown}: {error}")
