"""Owns how transactions end: committed, rolled back, or abandoned with their session.

Must not know of threads or receivers. All under the broker's lock. Source: rules IF-14, IF-28; T5, T6, T12, T14. What is committed
takes its place in the order in which transactions end, then in the order in which it was sent. With a store, a commit is one
transaction there too: messages of a commit that cannot be written go back as after a rollback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from jmsclient.clock import Clock
from jmsclient.errors import TransactionRolledBackError
from jmsclient.transport.contract import RETRY, Outcome, Verb
from jmsclient_embedded.entry import Entry, Holder
from jmsclient_embedded.granting import Granting
from jmsclient_embedded.group_commit import PendingCommit
from jmsclient_embedded.line import Line
from jmsclient_embedded.settling import Settling
from jmsclient_embedded.steps import Answer
from jmsclient_embedded.transaction import SentPart, Transaction
from jmsclient_embedded.writing import Writing


class Transactions:
    """Endings of transactions."""

    def __init__(self, granting: Granting, settling: Settling, writing: Writing, clock: Clock) -> None:
        self.left: Callable[[Line], None] = _ignore
        """Called with a line that lost what was held by a commit."""
        self._granting = granting
        self._settling = settling
        self._writing = writing
        self._clock = clock

    def commit(self, transaction: Transaction, answer: Answer[None]) -> None:
        """T5 and T12 for all of it, answered when it is stored; fails with TransactionRolledBackError."""
        ending = transaction.take()
        if ending.spoilt is not None:
            self._undo(ending, RETRY, planned=False)
            answer.fail(TransactionRolledBackError(f"the transaction was rolled back: {ending.spoilt}"))
            return
        self._undo_sends([part for part in ending.sent if part.line.gone])
        ending.sent = [part for part in ending.sent if not part.line.gone]
        for part in ending.sent:
            part.line.queue.renumber(part.entries, self._granting.next_sequence)
        keepers = {line: self._keep(line, entries.values()) for line, entries in ending.accepted.items()}
        self._writing.commit(PendingCommit(ending.sent, ending.accepted, answer, lambda done: self._end(ending, keepers, done)))

    def _keep(self, line: Line, entries: Iterable[Entry]) -> Holder:
        """While it is written they belong to the commit, whatever becomes of the session."""
        number = next(self._granting.numbers)
        keeper = Holder(line.queue, number, f"commit-{number}", transacted=True)
        self._granting.holders[number] = line.queue.holders[number] = keeper
        for entry in entries:
            assert entry.owner is not None
            del entry.owner.held[entry.sequence]
            entry.owner = keeper
            keeper.held[entry.sequence] = entry
        return keeper

    def _end(self, ending: Transaction, keepers: dict[Line, Holder], done: bool) -> None:
        if done:
            wall = self._clock.wall()
            for part in ending.sent:
                self._writing.end_send(part.line, part.entries, wall)
            for line, entries in ending.accepted.items():
                line.queue.accept(list(entries.values()))
        else:
            self._undo(ending, RETRY, planned=False)
        for line, keeper in keepers.items():
            del self._granting.holders[keeper.number], line.queue.holders[keeper.number]
            self.left(line)
        if done:
            for line in {part.line: None for part in ending.sent} | dict.fromkeys(ending.accepted):  # IF-34: the next of a unit
                self._granting.shown(line)

    def rollback(self, transaction: Transaction, redelivery_delay: float) -> None:
        """T6 for what was sent, T14 for what was received, with the session's delay or the queue's own."""
        self._undo(transaction.take(), Outcome(verb=Verb.RETRY, delay=redelivery_delay), planned=True)

    def abandon(self, transaction: Transaction) -> None:
        """T6: its session is gone. What it received goes back as everything that the session held. A commit that was on its way
        meanwhile must not be told that it is done."""
        self._undo_sends(transaction.take().sent)
        transaction.spoilt = "its session was closed, or its connection lost"

    def _undo_sends(self, sent: Sequence[SentPart]) -> None:
        for part in sent:
            part.line.queue.fail_send(part.entries)

    def _undo(self, ending: Transaction, outcome: Outcome, *, planned: bool) -> None:
        self._undo_sends(ending.sent)
        parts = [(line, list(entries.values()), outcome) for line, entries in ending.accepted.items()]
        self._settling.give_back_together(parts, planned=planned)


def _ignore(line: Line) -> None:
    pass
