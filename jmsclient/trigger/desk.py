"""Where a trigger's deliveries are while they are its own, and how each of them leaves.

A delivery that was taken from the buffer is `running` (a handler or resolver has it, or what it ended as waits for the
history) until `accept` or `give_back`; settlements gather and go out once a turn. Touched by the pipeline thread only. Rules
TR-39, TR-45, TR-66.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from jmsclient.clock import Clock
from jmsclient.events import emit, wanted
from jmsclient.history.contract import token_maker
from jmsclient.history.entries import Release, Reply, State
from jmsclient.intake import Intake
from jmsclient.transport.contract import ACCEPT, RELEASE, Arrival, Outcome, Verb
from jmsclient.trigger.asking import Asking
from jmsclient.trigger.counters import Counters
from jmsclient.trigger.declaration import Declaration
from jmsclient.trigger.ledger import Ledger
from jmsclient.trigger.work import Work

Key = tuple[str | None, str | None]
"""An id and where it came from."""
QUIET = logging.DEBUG
"""The level of what happens to every message: for a journal, not for a log."""


class Awaited:
    """The ids that copies are held of, and who is to be told when a delivery with one of them has left. Thread-safe: the lanes of a
    trigger share it.

    A delivery leaves its lane before that looks whom to tell, and whoever holds a copy asks to be told before it looks whether the
    delivery is still here: so one of the two sees the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the dictionary; held for that only
        self.told: dict[Key, list[Callable[[Key], None]]] = {}
        """Whom, by id; looked at once a message, so without a call."""
        self._beginning, self.new_token = token_maker()
        self._lanes: list[tuple[dict[int, Work], dict[str, Work]]] = []

    def join(self, running: dict[int, Work], claiming: dict[str, Work]) -> None:
        """What a lane has, from before its claim is sent until it leaves, is in one of these (by token, the second)."""
        self._lanes.append((running, claiming))

    def was_here(self, token: str) -> bool:
        """The work that owns this token was in one of the lanes, and is not any more."""
        if not token.startswith(self._beginning):
            return False
        for running, claiming in self._lanes:
            if token in claiming or any(work.token == token for work in running.copy().values()):  # a copy is one step
                return False
        return True

    def add(self, key: Key, told: Callable[[Key], None]) -> None:
        with self._lock:
            self.told.setdefault(key, []).append(told)

    def remove(self, key: Key, told: Callable[[Key], None]) -> None:
        """One of those that were added, if it was not told."""
        with self._lock:
            waiting = self.told.get(key, [])
            if told in waiting:
                waiting.remove(told)
            if not waiting:
                self.told.pop(key, None)

    def has_left(self, key: Key) -> None:
        """Tell whoever waits for it."""
        with self._lock:
            waiting = self.told.pop(key, ())
        for told in waiting:
            told(key)


class Desk:
    """What the rooms of one trigger share: its declaration, clock, intake, ledger, counters and running work."""

    def __init__(
        self, declaration: Declaration, intake: Intake, clock: Clock, counters: Counters | None = None, worker: str = ""
    ) -> None:
        self.declaration = declaration
        self.intake = intake
        self.clock = clock
        self.counters = counters or Counters()
        self.ledger = Ledger(declaration.history, clock) if declaration.history is not None else None
        self.asking = Asking(declaration, worker)
        self.running: dict[int, Work] = {}
        self.awaited = Awaited()
        """What copies are held of, by this and by the trigger's other lanes (TR-67)."""
        self.stopping = False
        """No new message is run any more."""
        self.detached = False
        """The receiver is closed and the provider has everything back; what still runs is only recorded (TR-61)."""
        self.commit: Callable[[], None] | None = None
        """Makes what was accepted without a handler true, where the lane is transacted."""
        self.around_head: Callable[[], AbstractContextManager[None]] = nullcontext
        """Gives back what is behind the head of a serial trigger, before that goes back (TR-62)."""
        self.heard = wanted("trigger", QUIET)
        """Somebody hears of what happens to every message; looked at once a turn."""
        self.hears_duplicates = wanted("trigger", logging.INFO)
        self.head_back = False
        """The head of a serial trigger goes back with this turn: what is behind it must not be run before."""
        self._accepted: list[Arrival] = []
        self._untold: list[Work] = []
        self._others: list[tuple[Arrival, Outcome]] = []

    # -- who has it -------------------------------------------------------------------------------------------------

    def keep(self, work: Work) -> None:
        """It is running from here on."""
        self.running[id(work)] = work

    def drop(self, work: Work) -> None:
        """It is not running any more, and whoever calls this puts it somewhere else."""
        self.running.pop(id(work), None)

    # -- how it leaves ----------------------------------------------------------------------------------------------

    def accept(self, work: Work) -> None:
        self.drop(work)
        if self.awaited.told:
            self._has_left(work)
        if self.detached:
            text = "ended after its trigger was disabled: its acknowledge is stale, the provider has given it back"
            self.tell("stale_acknowledge", work, logging.WARNING, text)
            return
        self._accepted.append(work.arrival)
        if self.heard:
            self._untold.append(work)

    def accept_all(self, works: Sequence[Work]) -> None:
        if self.heard or self.detached or self.awaited.told:
            for work in works:
                self.accept(work)
            return
        running = self.running
        for work in works:
            running.pop(id(work), None)
        if self.awaited.told:  # somebody has begun to wait before they left
            for work in works:
                self._has_left(work)
        self._accepted += [work.arrival for work in works]

    def forget(self, work: Work) -> None:
        """The provider has it already, one way or the other: its transaction took it."""
        self.drop(work)
        if self.awaited.told:
            self._has_left(work)
        self.intake.settle([work.arrival], ACCEPT)

    def give_back(self, work: Work, outcome: Outcome) -> None:
        """Back to the provider; what no handler saw goes back uncounted, whatever `outcome` says of retrying."""
        self.drop(work)
        if self.awaited.told:
            self._has_left(work)
        if work.arrival.settled:  # taken, or pre-settled: the provider has forgotten it (IF-39)
            self.tell("taken_message_gone", work, logging.ERROR, "was taken ahead and cannot go back: it is gone")
        unseen = outcome.verb is Verb.RETRY and not work.arrival.handed_over
        outcome = RELEASE if unseen else outcome
        self.leave(work.arrival, outcome, head=outcome.verb is not Verb.DEAD_LETTER and work.parked is None)
        started = work.arrival.handed_over
        self.tell("given_back", work, QUIET, "goes back", outcome=outcome.verb.value, reason=outcome.reason, started=started)

    def leave(self, arrival: Arrival, outcome: Outcome, *, head: bool = False) -> None:
        """Settle this with the turn. `head`: it comes again, and what is behind it in a serial trigger has to come after it."""
        if self.detached:
            return
        self.head_back |= head and self.declaration.serial
        self._others.append((arrival, outcome))

    def _has_left(self, work: Work) -> None:
        """Copies that are held of it need not wait any longer."""
        self.awaited.has_left((work.id, work.source))

    def settle(self) -> None:
        """All accepts of this turn in one call; the rest one by one."""
        if self._accepted:
            accepted, self._accepted = self._accepted, []
            fresh = self.commit is not None and any(not arrival.settled for arrival in accepted)
            self.intake.settle(accepted, ACCEPT)
            if fresh and self.commit is not None:
                self.commit()
            untold, self._untold = self._untold, []
            for work in untold:
                self.tell("acknowledged", work, QUIET, "is acknowledged")
        if self._others:
            others, self._others = self._others, []
            head_back, self.head_back = self.head_back, False
            with self.around_head() if head_back else nullcontext():
                for arrival, outcome in others:
                    self.intake.settle([arrival], outcome)

    # -- what the history is told before it leaves --------------------------------------------------------------------

    def complete(self, work: Work, outcome: str) -> None:
        """Write `completed`, then accept. Without a claim there is nothing to write."""
        work.renew_at = None
        work.outcome = outcome
        if work.recorded:
            self._finished(work, recorded=True)
            return
        if not work.claimed:
            if work.unrecorded and self.ledger is not None and work.id is not None:  # so that a later copy is a Duplicate
                self.ledger.note(self.asking.complete(work, outcome), work)
            self._finished(work, recorded=False)
            return
        assert self.ledger is not None
        self.ledger.add(self.asking.complete(work, outcome), work, self._completed)

    def complete_all(self, works: Sequence[Work]) -> None:
        """Handlers have ended well: `complete` for each, those that are alike together."""
        alike: list[Work] = []
        for work in works:
            if work.recorded or not work.claimed:
                self.complete(work, "done")
                continue
            work.renew_at = None
            if alike and work.source != alike[0].source:
                self._complete_alike(alike)
                alike = []
            alike.append(work)
        if alike:
            self._complete_alike(alike)

    def _complete_alike(self, works: Sequence[Work]) -> None:
        assert self.ledger is not None
        self.ledger.add_all(self.asking.completions(works, "done"), works, self._all_completed)

    def _all_completed(self, works: Sequence[Work], replies: Sequence[Reply]) -> None:
        if self.heard or [reply for reply in replies if reply.lease_lost]:
            for work, reply in zip(works, replies, strict=True):
                self._completed(work, reply)
            return
        self.counters.completed += len(works)
        self.accept_all(works)

    def _completed(self, work: Work, reply: Reply) -> None:
        if reply.lease_lost:
            self.lease_lost(work)
        else:
            self._finished(work, recorded=True)

    def _finished(self, work: Work, *, recorded: bool) -> None:
        self.counters.completed += 1
        if self.heard:
            seconds = round(self.clock.monotonic() - work.started, 6) if work.started else None
            self.tell("completed", work, QUIET, "is completed", outcome=work.outcome, recorded=recorded, seconds=seconds)
        self.accept(work)

    def release(self, work: Work, to: State, then: Callable[[], None], *, lease: float = 0.0) -> None:
        """Write what is planned for it (`retrying`, `failed`), then do it. Without a claim there is nothing to write. A `lease`
        (seconds) is kept and renewed; without one the lease is over."""
        if not lease:
            work.renew_at = None
        if not work.claimed:
            then()
            return
        assert self.ledger is not None

        def answered(work: Work, reply: Reply) -> None:
            if reply.lease_lost:
                self.lease_lost(work)
            else:
                self.tell("released", work, QUIET, f"is {to.value}", state=to.value)
                then()

        command = Release(**self.asking.key(work), to=to, lease=lease, reason=to.value, history_ttl=self.declaration.history_ttl)
        self.ledger.add(command, work, answered)

    def lease_lost(self, work: Work) -> None:
        """Another owner holds the entry: nothing is acknowledged; the delivery goes back (TR-39, TR-66)."""
        self.counters.lease_lost += 1
        self.tell("lease_lost", work, logging.ERROR, "was taken over by another owner: given back")
        self.give_back(work, Outcome(verb=Verb.RETRY, reason="lease_lost"))

    # -- telling ----------------------------------------------------------------------------------------------------

    def tell(
        self,
        name: str,
        work: Work,
        level: int,
        text: str,
        *,
        error: BaseException | None = None,
        answer: str | None = None,
        by: str | None = None,
        **more: Any,
    ) -> None:
        """One event about one message; `text` goes on after "message ID", `more` are further fields."""
        if wanted("trigger", level):
            emit(
                "trigger",
                name,
                f"trigger {self.declaration.name!r}: message {work.id or work.message.message_id} {text}",
                level=level,
                trigger=self.declaration.name,
                message_id=work.message.message_id,
                id=work.id,
                delivery_count=work.arrival.delivery_count,
                attempt=work.attempt,
                error_type=type(error).__name__ if error else None,
                answer=answer,
                by=by,
                **more,
            )
