"""Owns what one session has sent and received since its last commit. Must not know how either ends. Source: rules IF-28; T4, T12.

A message that was received in it stays with its owner, in `receive`, until the transaction ends; one that was sent is on its
destination, in `send`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jmsclient_embedded.entry import Entry
from jmsclient_embedded.line import Line


@dataclass(frozen=True, slots=True)
class SentPart:
    """Messages of one send for one line; `envelopes` None where nothing of it is stored, or None for one that is not."""

    line: Line
    entries: list[Entry]
    envelopes: Sequence[bytes | None] | None


@dataclass(slots=True)
class Transaction:
    """Of one transacted session; begins anew when it ended."""

    sent: list[SentPart] = field(default_factory=list)
    accepted: dict[Line, list[Entry]] = field(default_factory=dict)

    def accept(self, line: Line, entries: Sequence[Entry]) -> None:
        """The session acknowledged these: they are gone when it commits."""
        self.accepted.setdefault(line, []).extend(entries)

    def take(self) -> Transaction:
        """What there is; the next one is empty."""
        taken = Transaction(self.sent, self.accepted)
        self.sent, self.accepted = [], {}
        return taken
