"""Owns what one session has sent and received since its last commit. Must not know how either ends. Source: rules IF-28; T4, T12.

A message that was received in it stays with its owner, in `receive`, until the transaction ends; one that was sent is on its
destination, in `send`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jmsclient_embedded.entry import Entry
from jmsclient_embedded.line import Line
from jmsclient_embedded.rows import Columns


@dataclass(frozen=True, slots=True)
class SentPart:
    """Messages of one send for one line; `columns` are what is stored of each, None for one that is not."""

    line: Line
    entries: list[Entry]
    columns: Sequence[Columns | None]


@dataclass(slots=True)
class Transaction:
    """Of one transacted session; begins anew when it ended."""

    sent: list[SentPart] = field(default_factory=list)
    accepted: dict[Line, dict[int, Entry]] = field(default_factory=dict)
    """By their sequence numbers."""
    spoilt: str | None = None
    """Why it cannot be committed any more."""

    def accept(self, line: Line, entries: Sequence[Entry]) -> None:
        """The session acknowledged these: they are gone when it commits. Doing so again changes nothing."""
        self.accepted.setdefault(line, {}).update((entry.sequence, entry) for entry in entries)

    def holds(self, line: Line, entry: Entry) -> bool:
        """Whether the session acknowledged it."""
        return entry.sequence in self.accepted.get(line, ())

    def taken_out(self, line: Line, entry: Entry, *, accepted: bool) -> None:
        """Management settles a message that the session has. Where it comes again, elsewhere, what the session did with it must not
        come true as well."""
        acknowledged = self.accepted.get(line, {}).pop(entry.sequence, None) is not None
        if not accepted and (acknowledged or entry.delivery.handed_over):
            self.spoilt = f"management took message {entry.content.message_id} of {line.destination.address} out of it"

    def take(self) -> Transaction:
        """What there is; the next one is empty."""
        taken = Transaction(self.sent, self.accepted, self.spoilt)
        self.sent, self.accepted, self.spoilt = [], {}, None
        return taken
