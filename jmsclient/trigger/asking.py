"""The two commands that the history gets for every message: what a declaration says of them once is said once.

`terms` tells the store so (see `Command`). Touched by whoever has the pipeline's turn. Rules TR-38, TR-39, TR-53.
"""

from __future__ import annotations

from jmsclient.history.entries import Claim, Complete
from jmsclient.trigger.declaration import Declaration
from jmsclient.trigger.work import Work

_new = object.__new__


class Asking:
    """See the module. `worker` is the owner that a claim names."""

    def __init__(self, declaration: Declaration, worker: str = "") -> None:
        self._name = declaration.name
        self._lease = declaration.lease
        self._ttl = declaration.history_ttl
        self._worker = worker
        self._terms: dict[tuple[object, ...], object] = {}

    # Made by plain stores: a call with thirteen keywords costs twice as much, once a message.

    def claim(self, work: Work, *, take_over: bool, despite_loss: bool, decided: bool = False) -> Claim:
        count, body_hash = work.arrival.delivery_count, work.body_hash
        assert work.id is not None
        assert work.source is not None
        command: Claim = _new(Claim)
        command.trigger = self._name
        command.id = work.id
        command.source = work.source
        command.token = work.token
        command.history_ttl = self._ttl
        command.terms = None if body_hash else self._same(work.source, take_over, despite_loss, decided, count == 1)
        command.lease = self._lease
        command.delivery_count = count
        command.take_over = take_over
        command.owner = self._worker
        command.body_hash = body_hash
        command.decided = decided
        command.despite_loss = despite_loss
        command.brief = body_hash is None
        return command

    def complete(self, work: Work, outcome: str) -> Complete:
        assert work.id is not None
        assert work.source is not None
        command: Complete = _new(Complete)
        command.trigger = self._name
        command.id = work.id
        command.source = work.source
        command.token = work.token
        command.history_ttl = self._ttl
        command.terms = self._same(work.source, outcome)
        command.outcome = outcome
        return command

    def _same(self, *what: object) -> object:
        """One object for all that are alike in this."""
        return self._terms.setdefault(what, what)
