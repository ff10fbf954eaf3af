"""What a trigger does while its history does not answer (TR-49, TR-50).

`history_unavailable` says what becomes of messages meanwhile: `suspend` takes none; `run` decides as a trigger without a history
does, so that what was delivered before and may have run is still not run unseen; `in_doubt` and `resolver` as they say. These
three decide at once, with an event `history_unavailable` for each message. The history is probed until it answers;
what it was to be told is told then. Touched by the pipeline thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from jmsclient.errors import HistoryUnavailableError
from jmsclient.events import emit
from jmsclient.transport.contract import RETRY
from jmsclient.trigger.decision import AskResolver, Decision, InDoubt, New, classify
from jmsclient.trigger.desk import Desk
from jmsclient.trigger.suspension import Suspension
from jmsclient.trigger.work import Work

FIRST_PROBE = 1.0
LONGEST_PROBE = 30.0
REASON = "history_unavailable"


class Outage:
    """`decided` carries a decision out."""

    def __init__(self, desk: Desk, suspension: Suspension, *, decided: Callable[[Work, Decision], None]) -> None:
        self._desk = desk
        self._suspension = suspension
        self._decided = decided
        self._policy = desk.declaration.history_unavailable
        self._probe_at: float | None = None
        self._pause = FIRST_PROBE
        self._unclaimed: list[Work] = []

    @property
    def decides(self) -> bool:
        """The history does not answer, and messages are decided without it: ask `decide`, do not claim."""
        return self._probe_at is not None and self._policy != "suspend"

    def due(self) -> list[float]:
        return [] if self._probe_at is None else [self._probe_at]

    def unclaimed(self, work: Work) -> None:
        """The history did not confirm this claim."""
        self._unclaimed.append(work)

    def exchange(self, now: float) -> None:
        """Tell the history all that waits; while it does not answer, only when the next probe is due."""
        desk = self._desk
        if desk.ledger is None or (self._probe_at is not None and now < self._probe_at):
            return
        probing = self._probe_at is not None
        try:
            if probing and not desk.ledger:
                assert desk.declaration.history is not None
                desk.declaration.history.lookup_many(desk.declaration.name, [("probe", "probe")])
            desk.ledger.exchange()
        except HistoryUnavailableError as error:
            self._failed(error)
            return
        finally:
            desk.counters.store_time += desk.ledger.time_spent()
        if probing:
            self._ended()

    def decide(self, work: Work) -> None:
        """What the policy says about a message that cannot be looked up."""
        self._desk.tell(REASON, work, logging.WARNING, f"cannot be looked up, the history does not answer: {self._policy}")
        work.unrecorded = True
        self._decided(work, self._decision(work))

    def _decision(self, work: Work) -> Decision:
        if self._policy == "in_doubt":
            return InDoubt(REASON)
        if work.question is not None:  # answered NEW, then the claim could not be made: it is not asked twice (TR-56)
            return New()
        if self._policy == "resolver":
            return AskResolver(REASON)
        has_resolver = self._desk.declaration.resolver is not None
        return classify(work.arrival.delivery_count, None, has_history=False, has_resolver=has_resolver)

    def _failed(self, error: HistoryUnavailableError) -> None:
        desk = self._desk
        desk.counters.store_errors += 1
        first = self._probe_at is None
        if first:
            self._pause = FIRST_PROBE
        self._probe_at = desk.clock.monotonic() + self._pause
        self._pause = min(LONGEST_PROBE, self._pause * 2)
        unclaimed, self._unclaimed = self._unclaimed, []
        if self._policy == "suspend":
            desk.intake.put_back([work.arrival for work in unclaimed])
            if first:
                self._suspension.begin(REASON, f"the history does not answer ({error}); it resumes by itself")
            elif unclaimed:
                self._suspension.withhold()
        else:
            if first and self._suspension.states.outages.begin(REASON, self):
                self._tell("history_outage", f"the history does not answer ({error}): {self._policy}", logging.WARNING)
            for work in unclaimed:
                self.decide(work)
        self._give_up_completions(desk.clock.monotonic())

    def _give_up_completions(self, now: float) -> None:
        """TR-50: what ran and could not be recorded until its lease ended goes back, to be In Doubt."""
        desk = self._desk
        for work in list(desk.running.values()):
            over = work.claimed and work.renew_at is None and work.lease_until <= now
            if not over or desk.ledger is None or not desk.ledger.forget(work.token):
                continue
            if work.arrival.settled and work.parked is None:  # its transaction has taken it, and nothing can go back (TR-37)
                text = "ran and was committed, but the history could not be told: a further copy is In Doubt"
                desk.tell("completed_not_recorded", work, logging.ERROR, text)
                desk.forget(work)
            else:
                desk.tell("completed_not_recorded", work, logging.ERROR, "ran, but the history could not be told: given back")
                desk.give_back(work, RETRY)

    def _ended(self) -> None:
        self._probe_at = None
        if self._policy == "suspend":
            self._suspension.end(REASON, "the history answers", actor="probe")
        elif self._suspension.states.outages.end(REASON, self):
            self._tell("history_back", "the history answers", logging.INFO)

    def _tell(self, name: str, text: str, level: int) -> None:
        trigger = self._desk.declaration.name
        emit("trigger", name, f"trigger {trigger!r}: {text}", level=level, trigger=trigger, policy=self._policy)
