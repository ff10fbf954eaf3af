"""Owns what is to be written to the store, under the broker's lock, and the thread that writes it, outside. Idle without a store.

Must not know of receivers. A thread of its own, so that a slow disk holds up nobody who does not ask for it. Source: rule IF-11;
group commit: whatever gathers while one transaction is written is the next one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from jmsclient.clock import Clock
from jmsclient.errors import JmsClientError, StoreError, TransactionRolledBackError
from jmsclient.events import emit
from jmsclient_embedded.aftermath import Aftermath
from jmsclient_embedded.bells import new_bell
from jmsclient_embedded.changes import Changes, Definition, Row
from jmsclient_embedded.entry import Entry
from jmsclient_embedded.group_commit import Batch, GroupCommit, PendingCommit, PendingSend, PendingTexts
from jmsclient_embedded.line import Line
from jmsclient_embedded.rows import Columns, TextColumns, envelope
from jmsclient_embedded.steps import Answer, Steps
from jmsclient_embedded.store import Store

_CLOSED = "the store is closed, and what was given to it since is not stored; connect again"


class Writing:
    """Gathers changes; `commit` writes them in one transaction. `shown` is called, as part of a step, for each line whose
    messages became visible."""

    def __init__(self, store: Store | None, clock: Clock, aftermath: Aftermath, shown: Callable[[Line], None]) -> None:
        self.store = store
        self._clock = clock
        self._aftermath = aftermath
        self._shown = shown
        self._commits = GroupCommit()
        self._failing = False
        self._bell = new_bell(clock)
        self._ending = False
        self.over = False
        """The store is closed: nothing can be written any more."""
        self._dropped = False
        self._thread: threading.Thread | None = None

    def start(self, steps: Steps, name: str) -> None:
        """Start the thread, where there is a store."""
        if self.store is not None:
            store = self.store
            self._thread = threading.Thread(
                target=lambda: self._run(store, steps), name=f"jmsclient-embedded-{name}-store", daemon=True
            )
            self._thread.start()

    def ring(self) -> None:
        """Something waits to be written."""
        self._bell.ring()

    def end(self) -> None:
        """Write what waits and close the store; returns when that is done. Not under the lock."""
        self._ending = True
        self._bell.ring()
        if self._thread is not None:
            self._thread.join()

    # -- steps -----------------------------------------------------------------------------------------------------

    def send(
        self,
        line: Line,
        entries: list[Entry],
        given: Sequence[Columns | None],
        done: Callable[[JmsClientError | None], None] | None,
    ) -> None:
        """T4: messages that are visible when they are stored, `given` for each what that is; None for one that is not."""
        line.queue.begin_send(entries)
        batch = self._commits.next
        _insert(batch.changes, line, entries, given)
        batch.sends.append(PendingSend(line, entries, done))
        self._aftermath.write = True

    def send_texts(
        self,
        line: Line,
        rows: TextColumns,
        reserve: Callable[[int], int],
        done: Callable[[JmsClientError | None], None] | None,
    ) -> None:
        """The same for texts that stay one object, all of which are stored."""
        line.queue.begin_texts(rows.texts, reserve)
        batch = self._commits.next
        place = (line.queue.name, 0, *rows.head)
        batch.changes.inserts.setdefault(place, []).extend(rows.numbered(rows.texts.first))
        batch.sends.append(PendingTexts(line, rows.texts, done))
        self._aftermath.write = True

    def commit(self, commit: PendingCommit) -> None:
        """A transaction ends: now, where nothing of it is stored, else when it is written."""
        deletes = commit.deleted() if self.store is not None else set()
        if self.store is None or not (deletes or commit.inserted()):
            commit.end(True)
            commit.answer.give()
            return
        batch = self._commits.next
        for part in commit.sent:
            _insert(batch.changes, part.line, part.entries, part.columns)
        batch.changes.deletes += deletes
        batch.commits.append(commit)
        self._aftermath.write = True

    def transfer(self, line: Line, entry: Entry) -> None:
        """A stored message enters another queue, in the transaction that takes it off the first.

        Encoded under the lock: the two must not be split between transactions, and it is rare.
        """
        self.send(line, [entry], [envelope(entry.content)], None)

    def end_send(self, line: Line, entries: Sequence[Entry], wall: float) -> None:
        """T5: they are stored. Where their destination is gone meanwhile, they go too."""
        if line.gone:
            line.queue.fail_send(entries)
            self.delete(entries)
        else:
            line.queue.end_send(entries, wall)

    def _end(self, send: PendingSend | PendingTexts, wall: float) -> None:
        if isinstance(send, PendingSend):
            self.end_send(send.line, send.entries, wall)
        elif send.line.gone:
            send.fail()
            self._commits.next.changes.deletes += send.sequences
            self._aftermath.write = True
        else:
            send.end(wall)

    def delete(self, entries: Sequence[Entry]) -> None:
        """They left their queue."""
        if self.store is not None and (rows := [entry.sequence for entry in entries if entry.stored]):
            self._commits.next.changes.deletes += rows
            self._aftermath.write = True

    def count(self, entries: Sequence[Entry]) -> None:
        """Their counts rose."""
        if self.store is not None and (rows := {entry.sequence: entry.count for entry in entries if entry.stored}):
            self._commits.next.changes.counts.update(rows)
            self._aftermath.write = True

    def unmark(self, entries: Sequence[Entry]) -> None:
        """Announced as handed over and released all the same: the journal says the old count again."""
        marked = [(entry.sequence, entry.count) for entry in entries if entry.marked]
        if marked and self.store is not None:
            self.store.journal.mark(marked)

    def define(self, name: str, definition: Definition | None) -> None:
        """A destination, quota or subscription was made or changed; None: it is gone."""
        if self.store is not None:
            self._commits.next.changes.definitions[name] = definition
            self._aftermath.write = True

    def join(self, answer: Answer[None]) -> None:
        """Answer when everything given so far is stored."""
        if self._dropped:
            answer.fail(StoreError(_CLOSED))
        else:
            self._commits.join(answer)

    # -- the store's thread ------------------------------------------------------------------------------------------

    def _run(self, store: Store, steps: Steps) -> None:
        try:
            while True:
                ending = self._ending
                wait = self._write(store, steps, at_once=ending)
                if ending:
                    break
                self._bell.wait(wait)
        finally:
            steps.perform(self._close)
            store.close()

    def _close(self) -> None:
        self.over = True
        self._aftermath.write = True  # so that what came since is given up at the end of this step

    def give_up(self) -> None:
        """Nobody writes any more: whoever waits hears of it, instead of waiting for ever. What was settled comes back."""
        self._aftermath.write = False
        batch, self._commits.next = self._commits.next, Batch()
        self._dropped |= bool(batch.changes)
        error = StoreError(_CLOSED)
        for send in batch.sends:
            send.fail()
        self._tell_failed(batch, batch.sends, error)

    def _write(self, store: Store, steps: Steps, *, at_once: bool) -> float | None:
        """What waits, batch by batch; returns seconds until there may be more, or None: when the bell rings."""
        batch, wait = steps.perform(lambda: self._begin(at_once=at_once))
        while batch is not None:
            batch, wait = self._commit(store, steps, batch)
        return wait

    def _begin(self, *, at_once: bool) -> tuple[Batch | None, float | None]:
        now = self._clock.monotonic()
        batch = self._commits.begin(now, at_once=at_once)
        return batch, None if batch is not None else self._commits.due(now)

    def _commit(self, store: Store, steps: Steps, batch: Batch) -> tuple[Batch | None, float | None]:
        """One transaction; then, in one step, what it held is shown, whoever waits is told, and the next begins: whom that woke
        finds this thread done. A failure is told once, however long."""
        failure: StoreError | None = None
        try:
            store.write(batch.changes)
        except StoreError as error:
            failure = error
        else:
            self._rotate(store)

        def ended() -> tuple[Batch | None, float | None]:
            if failure is None:
                self._succeeded(batch)
            else:
                self._failed(batch, failure)
            return self._begin(at_once=False)

        return steps.perform(ended)

    def _rotate(self, store: Store) -> None:
        try:
            store.journal.rotate()
        except StoreError as error:  # the old journal serves on
            emit("embedded", "store_failed", str(error), level=logging.ERROR)

    def _succeeded(self, batch: Batch) -> None:
        self._failing = False
        self._commits.succeeded()
        wall = self._clock.wall()
        for send in batch.sends:
            self._end(send, wall)
        for line in {send.line: None for send in batch.sends}:
            self._shown(line)
        for send in batch.sends:
            if send.done is not None:
                send.done(None)
        for commit in batch.commits:
            commit.end(True)
            commit.answer.give()
        for waiter in batch.waiters:
            waiter.give()

    def _failed(self, batch: Batch, error: StoreError) -> None:
        failed = self._commits.failed(batch, self._clock.monotonic())
        for send in failed:
            send.fail()
        self._tell_failed(batch, failed, error)
        if not self._failing:
            self._failing = True
            self._aftermath.tell("store_failed", str(error), level=logging.ERROR)

    def _tell_failed(self, batch: Batch, sends: Sequence[PendingSend | PendingTexts], error: StoreError) -> None:
        for send in sends:
            if send.done is not None:
                send.done(error)
        for commit in batch.commits:
            commit.end(False)
            commit.answer.fail(TransactionRolledBackError(f"the transaction could not be stored and was rolled back: {error}"))
        for waiter in batch.waiters:
            waiter.fail(error)


def _insert(changes: Changes, line: Line, entries: Sequence[Entry], given: Sequence[Columns | None]) -> None:
    """Rows for those that are stored, by what they have in common."""
    name, inserts = line.queue.name, changes.inserts
    rows: list[Row] = []
    last, count = None, 0
    for entry, one in zip(entries, given, strict=True):
        if one is not None:
            content, id_, timestamp, head = one
            if head is not last or entry.count != count:
                last, count = head, entry.count
                rows = inserts.setdefault((name, count, *head), [])
            rows.append((entry.sequence, content, id_, timestamp))
