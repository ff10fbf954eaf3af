"""The transaction of a session: its coordinator link, the id that everything carries, declare and discharge.

There is always a transaction declared, or being declared; what needs its id before it is there waits in order. Discharge and
the next declare go out together, so a commit costs one round trip. All of it runs on the I/O thread. Rules IF-28, S08. Source:
AMQP 1.0 part 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from jmsclient.errors import JmsClientError, TransactionInDoubtError, TransactionRolledBackError, UnsupportedFeatureError
from jmsclient_amqp.engine.library import ACCEPTED, DECLARED, REJECTED, TRANSACTIONAL, Condition
from jmsclient_amqp.engine.links import Disposition, Outcome, SendingLink, Terminus
from jmsclient_amqp.loop import Answer
from jmsclient_amqp.primitives import binary, described, listed, symbols
from jmsclient_amqp.termini import local

if TYPE_CHECKING:
    from jmsclient_amqp.session import AmqpSession

COORDINATOR: Final = Terminus(None, capabilities=symbols(["amqp:local-transactions"]), coordinator=True)
_DECLARE: Final = b"\x00\x53\x77" + described(0x31, listed([]))
_ACCEPTED: Final = b"\x00\x53\x24\x45"


class Transaction:
    """See the module. One a transacted session, for all its life."""

    link: SendingLink | None = None

    def __init__(self, session: AmqpSession) -> None:
        self._session = session
        self._transport = session.transport
        self._id: bytes | None = None
        self._declaring: int | None = None  # the number of the declare that is under way
        self._discharging: dict[int, Answer[None] | None] = {}  # what is under way, by number
        self._waiting: list[Callable[[], None]] = []  # what needs the id
        self._ready: Answer[None] | None = None
        self._due: tuple[Answer[None] | None, bool] | None = None  # a discharge that waits for credit
        self.failed: JmsClientError | None = None
        """Why what was done so far is undone already."""
        self.doomed: JmsClientError | None = None
        """Why what was done so far must not be committed: a send whose fate is not known belongs to it, or a message that the
        broker has back."""
        self.used = False
        """Something was done in it."""

    @property
    def open(self) -> bool:
        """Something was done in it, or waits for its id."""
        return self.used or bool(self._waiting)

    # -- what carries it --------------------------------------------------------------------------------------------

    def when_declared(self, run: Callable[[], None]) -> None:
        """Now, or as soon as there is an id; in order."""
        if self._id is not None:
            run()
        else:
            self._waiting.append(run)
            self._attach()

    @property
    def accept(self) -> Disposition:
        """To accept within it; only while there is an id."""
        assert self._id is not None
        self.used = True
        return Disposition(TRANSACTIONAL, transaction=listed([binary(self._id), _ACCEPTED]))

    @property
    def sending(self) -> bytes | None:
        """The state that a message sent within it carries; None while there is no id."""
        if self._id is None:
            return None
        self.used = True
        return listed([binary(self._id)])

    # -- declaring --------------------------------------------------------------------------------------------------

    def begin(self, answer: Answer[None]) -> None:
        """Attach and declare; the answer is given when there is an id."""
        self._ready = answer
        self._attach()

    def _attach(self) -> None:
        if self.link is None:
            name = self._transport.link_name("coordinator")
            self.link = self._session.handle.sender(name, local(name, outcomes=True), COORDINATOR)
            self._declaring = None

    def look(self) -> None:
        """New bytes have been processed."""
        link = self.link
        if link is None:
            return
        first, outcomes = link.confirmed()
        for number, outcome in enumerate(outcomes, first):
            if number == self._declaring:
                self._declared(outcome)
            elif number in self._discharging:
                self._discharged(self._discharging.pop(number), outcome)
        if self._due is not None and link.credit > 0:
            (answer, fail), self._due = self._due, None
            self._discharge(answer, fail)
        if link.remote_open and not link.refused:
            self._declare()
        if link.remote_closed:
            condition = link.remote_condition
            link.close()
            link.free()
            self.link = None
            self._lost(TransactionRolledBackError(f"the broker gave the transaction up ({condition or 'without a reason'})"))

    def _declared(self, outcome: Outcome) -> None:
        self._declaring = None
        if outcome.code == DECLARED and isinstance(outcome.value, list) and outcome.value:
            self._id = bytes(outcome.value[0])
            waiting, self._waiting = self._waiting, []
            for run in waiting:
                run()
            self._tell_ready(None)
            return
        error = UnsupportedFeatureError(f"the broker began no transaction ({outcome.condition or 'without a reason'})")
        self._lost(error)

    def _tell_ready(self, error: JmsClientError | None) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            self._transport.answered(ready)
            if error is None:
                ready.give(None)
            else:
                ready.fail(error)

    # -- discharging ------------------------------------------------------------------------------------------------

    def discharge(self, answer: Answer[None] | None, *, fail: bool) -> None:
        """End it and begin the next. The answer is given when the broker has said what became of it."""
        failed, self.failed = self.failed, None
        if failed is not None:
            self._attach()  # what was done is undone already; the next begins
            if answer is not None:
                self._transport.answered(answer)
                if fail:
                    answer.give(None)
                else:
                    answer.fail(failed)
            return
        self.when_declared(lambda: self._discharge(answer, fail))

    def _discharge(self, answer: Answer[None] | None, fail: bool) -> None:
        link, identity = self.link, self._id
        assert link is not None
        assert identity is not None
        if link.credit < 1:
            self._due = (answer, fail)
            return
        doomed, self.doomed = self.doomed, None
        body = described(0x32, listed([binary(identity), b"\x41" if fail or doomed is not None else b"\x42"]))
        number = link.send(b"\x00\x53\x77" + body)
        if doomed is not None and not fail and answer is not None:
            self._transport.answered(answer)
            answer.fail(doomed)
            answer = None
        self._discharging[number] = answer
        self._id = None
        self.used = False
        self._declare()

    def _declare(self) -> None:
        if self.link is not None and self._declaring is None and self._id is None and self.link.credit > 0:
            self._declaring = self.link.send(_DECLARE)

    def _discharged(self, answer: Answer[None] | None, outcome: Outcome) -> None:
        if answer is None:
            return
        self._transport.answered(answer)
        if outcome.code == ACCEPTED:
            answer.give(None)
        elif outcome.code == REJECTED:
            reason: Condition | str = outcome.condition or "without a reason"
            answer.fail(TransactionRolledBackError(f"the broker did not commit ({reason})"))
        else:
            answer.fail(TransactionInDoubtError("the broker did not say whether it committed"))

    def abandon(self, answer: Answer[None]) -> None:
        """Nobody waits for this commit any more. The next transaction is to have nothing to do with it: a link of its own."""
        for number, one in self._discharging.items():
            if one is answer:
                self._transport.answered(answer)
                self._discharging[number] = None
        if self.link is not None and self._id is None:
            self.link.close()
            self.link.forget()
            self.link = None
            self._declaring = None
            self._discharging.clear()

    def connection_lost(self, error: JmsClientError) -> None:
        """What has gone out is in doubt; what has not never will go out, which the connection's end tells whoever waits."""
        self._lost(error)

    def _lost(self, error: JmsClientError) -> None:
        """The coordinator is gone, the connection is not: what was done is undone; a commit that has gone out is in doubt."""
        if self.used:
            self.failed = error
        self._id, self._declaring, self._due, self.used = None, None, None, False
        self._waiting.clear()
        discharging, self._discharging = self._discharging, {}
        for answer in discharging.values():
            if answer is not None:
                self._transport.answered(answer)
                answer.fail(TransactionInDoubtError(f"whether the commit happened is not known: {error}"))
        self._tell_ready(error)
