"""Calls of the history's script that are on their way: written to every server that they are for before any answer is read.

Owns what a server may answer to a script instead: that it does not have it (a server that restarted, or never saw it), or that the
keys have moved. Must not know what a command is. Source: rules TR-39, TR-51, TR-53.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from jmsclient.errors import HistoryUnavailableError
from jmsclient.history.redis_format import ScriptCall
from jmsclient.history.redis_servers import Connections, Question, receive, send
from jmsclient.history.redis_watch import Confirming

SCRIPT = Path(__file__).with_name("redis.lua").read_bytes()
SHA = hashlib.sha1(SCRIPT).hexdigest()  # noqa: S324  the name Redis gives a script
TRIES = 3
"""How often a group is asked while servers say that a slot has moved."""


class Scripts:
    """Thread-safe, as what it is made of is."""

    def __init__(self, connections: Connections, confirming: Confirming) -> None:
        self.connections = connections
        self.confirming = confirming

    def send(self, parts: Sequence[ScriptCall]) -> Calls:
        """Parts on one server share a connection. Raises one of FAILURES, or HistoryUnavailableError where a server cannot
        confirm; then nothing is on its way."""
        connections = self.connections
        calls = Calls(self, parts)
        held, used = calls.held, calls.used
        try:
            for part in parts:
                pool = connections.servers.pool(part.mark)
                connection = held.get(pool)
                if connection is None:
                    connection = held[pool] = connections.borrow(pool)
                send(connection, self.questions("EVALSHA", SHA, part, connection))
                used.append(connection)
        except BaseException:
            calls.abandon()
            raise
        return calls

    def questions(self, verb: str, script: str | bytes, part: ScriptCall, connection: Any) -> list[Question]:
        """The script, and what has to be asked on the same connection after it."""
        server, confirmed = self.connections.server(connection), self.confirming.questions
        refusal = self.confirming.refusal(server) if confirmed else None
        if refusal is not None:
            raise HistoryUnavailableError(refusal)
        return [part.question(verb, script, server.get("run_id", ""), touch=bool(confirmed)), *confirmed]


class Calls:
    """One group. Either `answers` or `abandon` is called, once; one thread at a time."""

    __slots__ = ("_parts", "_scripts", "held", "used")

    def __init__(self, scripts: Scripts, parts: Sequence[ScriptCall]) -> None:
        self._scripts = scripts
        self._parts = parts
        self.held: dict[Any, Any] = {}
        """The connections on which answers are to come, by pool."""
        self.used: list[Any] = []
        """That of each part."""

    def answers(self) -> list[list[Any]]:
        """Each part's answer, confirmed. Asked again where a server said that the slot has moved: tokens make that safe. Raises as
        `Scripts.send` does."""
        scripts = self._scripts
        servers = scripts.connections.servers
        answers = self._received()
        for _ in range(TRIES - 1 if servers.slotted else 0):
            if not any(isinstance(first, redis.exceptions.MovedError) for first, *_ in answers):
                break
            servers.moved()
            answers = scripts.send(self._parts)._received()
        found = []
        for first, *confirmations in answers:
            if isinstance(first, Exception):
                raise first
            if confirmations:
                scripts.confirming.check(confirmations)
            found.append(first)
        return found

    def abandon(self) -> None:
        """Without the answers, which are of no use any more."""
        self._give_back(answered=False)

    def _received(self) -> list[list[Any]]:
        scripts, used = self._scripts, self.used
        number = 1 + len(scripts.confirming.questions)
        try:
            answers = [receive(connection, number) for connection in used]
            for position, (first, *_) in enumerate(answers):
                if isinstance(first, redis.exceptions.NoScriptError):
                    send(used[position], scripts.questions("EVAL", SCRIPT, self._parts[position], used[position]))
                    answers[position] = receive(used[position], number)
        except BaseException:
            self.abandon()
            raise
        self._give_back(answered=True)
        return answers

    def _give_back(self, *, answered: bool) -> None:
        """A connection whose answer is still to come is given up: the answer must not be taken for that of the next question."""
        while self.held:
            self._scripts.connections.give_back(*self.held.popitem(), answered=answered)
