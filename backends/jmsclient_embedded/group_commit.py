"""Owns what waits to be written: one batch that gathers while another is being written, and who waits for which.

Must not know of SQLite or threads: called under the broker's lock. Source: issue on the embedded store, "group commit".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jmsclient.errors import JmsClientError
from jmsclient.message import Texts
from jmsclient_embedded.changes import Changes
from jmsclient_embedded.entry import Entry
from jmsclient_embedded.line import Line
from jmsclient_embedded.steps import Answer
from jmsclient_embedded.transaction import SentPart

RETRY_AFTER = 1.0
"""Seconds until settlements that could not be written are tried again, unless a send comes first."""


@dataclass(frozen=True, slots=True)
class PendingSend:
    """Messages of one send; `done`, called with None or the error, is None where no one waits (a transfer to an error
    destination)."""

    line: Line
    entries: list[Entry]
    done: Callable[[JmsClientError | None], None] | None

    @property
    def sequences(self) -> Iterable[int]:
        """Their numbers, whether they have rows or not."""
        return [entry.sequence for entry in self.entries]

    def end(self, wall: float) -> None:
        """T5: they are stored."""
        self.line.queue.end_send(self.entries, wall)

    def fail(self) -> None:
        """T6: they are not."""
        self.line.queue.fail_send(self.entries)


@dataclass(frozen=True, slots=True)
class PendingTexts:
    """The same for texts that stay one object."""

    line: Line
    texts: Texts
    done: Callable[[JmsClientError | None], None] | None

    @property
    def sequences(self) -> Iterable[int]:
        """Their numbers."""
        return range(self.texts.first, self.texts.first + len(self.texts))

    def end(self, wall: float) -> None:
        """T5: they are stored."""
        self.line.queue.end_texts(self.texts, wall)

    def fail(self) -> None:
        """T6: they are not."""
        self.line.queue.fail_texts(self.texts)


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A transaction that ends: all of it is written or nothing. `end` is called with whether it is."""

    sent: Sequence[SentPart]
    accepted: Mapping[Line, Mapping[int, Entry]]
    answer: Answer[None]
    end: Callable[[bool], None]

    def inserted(self) -> set[int]:
        """Rows that it makes."""
        return {entry.sequence for part in self.sent for entry in part.entries if entry.stored}

    def deleted(self) -> set[int]:
        """Rows that it removes."""
        return {entry.sequence for entries in self.accepted.values() for entry in entries.values() if entry.stored}


@dataclass(slots=True)
class Batch:
    """What one transaction writes and who hears of it."""

    changes: Changes = field(default_factory=Changes)
    sends: list[PendingSend | PendingTexts] = field(default_factory=list)
    commits: list[PendingCommit] = field(default_factory=list)
    waiters: list[Answer[None]] = field(default_factory=list)

    def awaited(self) -> bool:
        """Whether somebody's send or commit is in it."""
        return bool(self.commits) or any(one.done is not None for one in self.sends)


class GroupCommit:
    """`next` gathers; `running` is being written."""

    def __init__(self) -> None:
        self.next = Batch()
        self.running: Batch | None = None
        self._not_before = 0.0

    def begin(self, now: float, *, at_once: bool) -> Batch | None:
        """The batch to write now, or None where there is nothing, or, after a failure, not yet (`at_once`: yet)."""
        batch = self.next
        if not batch.changes:
            return None
        if now < self._not_before and not at_once and not batch.awaited():
            return None
        self.next, self.running = Batch(), batch
        return batch

    def due(self, now: float) -> float | None:
        """Seconds until `begin` gives a batch, or None."""
        return max(0.0, self._not_before - now) if self.next.changes else None

    def join(self, answer: Answer[None]) -> None:
        """Answer when everything that was given so far is written."""
        if self.next.changes:
            self.next.waiters.append(answer)
        elif self.running is not None:
            self.running.waiters.append(answer)
        else:
            answer.give()

    def succeeded(self) -> None:
        """`running` is written."""
        self.running = None
        self._not_before = 0.0

    def failed(self, batch: Batch, now: float) -> list[PendingSend | PendingTexts]:
        """Nothing of `batch` is written: its settlements and transfers wait for the next; returns the sends that fail, as its
        commits do."""
        failed = [one for one in batch.sends if one.done is not None]
        lost = {sequence for one in failed for sequence in one.sequences}
        kept = batch.changes
        for commit in batch.commits:
            lost |= commit.inserted()
        undone = {sequence for commit in batch.commits for sequence in commit.deleted()}
        kept.inserts = kept.without(lost)
        kept.deletes = [sequence for sequence in kept.deletes if sequence not in undone]
        self.next.changes = kept.then(self.next.changes)
        self.next.sends[:0] = [one for one in batch.sends if one.done is None]
        self.running = None
        self._not_before = now + RETRY_AFTER
        return failed
