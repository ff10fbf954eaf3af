"""The commands that the history gets for every message: what is alike in them is said once a declaration, not once a message.

Touched by whoever has the pipeline's turn. Rules TR-38, TR-39, TR-53.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jmsclient.history.entries import Alike, Claim, Command, Complete
from jmsclient.trigger.declaration import Declaration
from jmsclient.trigger.work import Work


class Asking:
    """See the module. `worker` is the owner that a claim names."""

    def __init__(self, declaration: Declaration, worker: str = "") -> None:
        self._trigger = declaration.name
        self._lease = declaration.lease
        self._ttl = declaration.history_ttl
        self._worker = worker
        self._said: dict[tuple[object, ...], Command] = {}

    def claims(self, works: Sequence[Work], *, take_over: bool, despite_loss: bool) -> Alike:
        """Of works whose source and delivery count are the same, and whose bodies are not checked."""
        first = works[0]
        what = (first.source, first.arrival.delivery_count, take_over, despite_loss)
        like = self._said.get(what)
        if like is None:
            like = self._said[what] = self._claim(first, take_over, despite_loss)
        return _alike(like, works)

    def claim(self, work: Work, *, take_over: bool, despite_loss: bool, decided: bool = False) -> Claim:
        """One by itself."""
        command = self._claim(work, take_over, despite_loss)
        command.decided = decided
        return command

    def completions(self, works: Sequence[Work], outcome: str) -> Alike:
        """Of works whose source is the same."""
        what = (works[0].source, outcome)
        like = self._said.get(what)
        if like is None:
            like = self._said[what] = self.complete(works[0], outcome)
        return _alike(like, works)

    def complete(self, work: Work, outcome: str) -> Complete:
        """One by itself."""
        return Complete(**self.key(work), history_ttl=self._ttl, outcome=outcome)

    def key(self, work: Work) -> dict[str, Any]:
        """What every command about this work begins with."""
        assert work.id is not None
        return {"trigger": self._trigger, "id": work.id, "source": work.source, "token": work.token}

    def _claim(self, work: Work, take_over: bool, despite_loss: bool) -> Claim:
        return Claim(
            **self.key(work),
            history_ttl=self._ttl,
            lease=self._lease,
            delivery_count=work.arrival.delivery_count,
            take_over=take_over,
            owner=self._worker,
            body_hash=work.body_hash,
            despite_loss=despite_loss,
            brief=work.body_hash is None,
        )


def _alike(like: Command, works: Sequence[Work]) -> Alike:
    ids: Any = [work.id for work in works]  # each has one
    return Alike(like, ids, [work.token for work in works], lasting=True)
