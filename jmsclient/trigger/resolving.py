"""The resolver of a trigger: asked at most once a delivery, within a time limit, and what its answer leads to (TR-55, TR-56).

It runs where handlers run; all else here is the pipeline thread's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine

from jmsclient.errors import TransientError, in_words
from jmsclient.transport.contract import RELEASE
from jmsclient.trigger.decision import AskResolver, Decision, Duplicate, New
from jmsclient.trigger.desk import Desk
from jmsclient.trigger.work import Work


class Resolving:
    """`start` has the question asked; `claim` takes an abandoned run over; `decided` carries a decision out; `in_doubt` does
    what the In Doubt policy says, with a reason; `suspend` suspends the trigger, with a text that says why."""

    def __init__(
        self,
        desk: Desk,
        *,
        start: Callable[[Work], None],
        claim: Callable[[Work], None],
        decided: Callable[[Work, Decision], None],
        in_doubt: Callable[[Work, str], None],
        suspend: Callable[[str], None],
    ) -> None:
        self._desk = desk
        self._start = start
        self._claim = claim
        self._decided = decided
        self._in_doubt = in_doubt
        self._suspend = suspend
        self._limit = desk.declaration.options.resolver_timeout

    def ask(self, work: Work, question: AskResolver) -> None:
        desk = self._desk
        work.question = question
        work.started = desk.clock.monotonic()
        desk.counters.resolver_calls += 1
        desk.keep(work)
        self._start(work)

    def answered(self, work: Work) -> None:
        """The resolver returned or raised."""
        desk = self._desk
        desk.counters.resolver_time += desk.clock.monotonic() - work.started
        if work.given_up:  # it timed out and was decided without the answer
            desk.drop(work)
            return
        question = work.question
        assert question is not None
        if work.error is not None:
            error, work.error = work.error, None
            transient = isinstance(error, TransientError) and desk.declaration.on_retry_failure == "suspend"
            self._failed(work, "resolver_failed", f"the resolver failed: {type(error).__name__}: {in_words(error)}", error)
            if transient:
                desk.give_back(work, RELEASE)
                self._suspend(in_words(error))
            else:
                self._in_doubt(work, "resolver_failed")
            return
        if isinstance(work.answer, Coroutine):
            work.answer.close()  # of a plain function that returned it: nobody will await it
        answer = work.answer[0] if isinstance(work.answer, tuple) and work.answer else work.answer
        try:
            decision = question.after_resolver(answer)
        except BaseException as error:  # noqa: BLE001  IllegalStateError, or what the answer's own repr raises
            self._failed(work, "resolver_failed", in_words(error))
            self._in_doubt(work, "resolver_failed")
            return
        counter = f"resolver_{answer.value}"
        setattr(desk.counters, counter, getattr(desk.counters, counter) + 1)
        said = next((one for one in work.answer[1:] if isinstance(one, str)), None) if isinstance(work.answer, tuple) else None
        because = f": {said}" if said else ""
        desk.tell("resolved", work, logging.INFO, f"is {answer.name}, says the resolver{because}", answer=answer.value, said=said)
        self._carry_out(work, question, decision)

    def watch(self, now: float) -> None:
        """Give up on a resolver that takes too long."""
        if self._desk.declaration.resolver is None:
            return
        for work in list(self._desk.running.values()):
            if work.question is not None and not work.given_up and now - work.started >= self._limit:
                self._timed_out(work)

    def due(self) -> list[float]:
        if self._desk.declaration.resolver is None:
            return []
        asked = (work for work in self._desk.running.values() if work.question is not None and not work.given_up)
        return [work.started + self._limit for work in asked]

    def _carry_out(self, work: Work, question: AskResolver, decision: Decision) -> None:
        desk = self._desk
        desk.drop(work)
        checked = work.entry is not None or question.reason == "history_lost"
        if isinstance(decision, New) and checked:
            self._claim(work)
        elif isinstance(decision, Duplicate) and work.entry is not None:
            # Say so in the entry, under the token of the run that left it, so that no further copy has to ask.
            desk.keep(work)
            work.token = work.entry.token
            work.claimed = True
            desk.complete(work, "resolver: duplicate")
        else:
            work.question = None if isinstance(decision, New) else work.question
            self._decided(work, decision)

    def _timed_out(self, work: Work) -> None:
        """In Doubt. The thread stays busy until the resolver returns; the message does not wait for it."""
        self._failed(work, "resolver_timed_out", "the resolver took too long")
        stand_in = Work(work.arrival, work.message, work.id, work.source, work.token)
        stand_in.entry = work.entry
        stand_in.parked = work.parked
        work.given_up = True
        self._in_doubt(stand_in, "resolver_timed_out")

    def _failed(self, work: Work, name: str, text: str, error: BaseException | None = None) -> None:
        self._desk.counters.resolver_errors += 1
        self._desk.tell(name, work, logging.ERROR, text, error=error)
