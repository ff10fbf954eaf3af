"""What becomes of a message that cannot be processed: its handler raised, it was delivered too often, its body does not fit.

dead_letter: entry `failed`, a full copy with the reason to the error destination, `completed`, accept; a delivery that finds
`failed` goes on from there, so that a kill between two of these steps loses nothing. Touched by the pipeline thread only.
Rules TR-45, R09.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from jmsclient.destination import Destination
from jmsclient.errors import IllegalStateError, JmsClientError, TransactionInDoubtError, TransactionRolledBackError, in_words
from jmsclient.history.entries import State
from jmsclient.message import PropertyValue
from jmsclient.transport.contract import RETRY, Outcome, Verb
from jmsclient.trigger.copies import Copies
from jmsclient.trigger.desk import Desk
from jmsclient.trigger.failure import failure_properties
from jmsclient.trigger.joins import messages
from jmsclient.trigger.outbox import GatheredInDoubtError
from jmsclient.trigger.transaction import RolledBackError
from jmsclient.trigger.work import Work

COPY_AGAIN = 1.0
"""Seconds until a copy that could not be sent is tried again."""


class Failing:
    """`copies` sends copies to the error destination; `error_destination` is the trigger's or the provider's (None: neither
    is known); `rejects` says whether the provider dead-letters by itself when told to; `park` is the last resort; `later` has what
    no handler saw decided again so many seconds later."""

    def __init__(
        self,
        desk: Desk,
        *,
        copies: Copies,
        error_destination: Destination | None,
        rejects: Callable[[], bool],
        park: Callable[[Work, str], None],
        later: Callable[[Work, float], None],
    ) -> None:
        self._desk = desk
        self._copies = copies
        self._error_destination = error_destination
        self._rejects = rejects
        self._park = park
        self._later = later

    def failed(self, work: Work, error: BaseException) -> None:
        """Its handler raised `error`, or it cannot be read: do what `on_error` says."""
        desk = self._desk
        desk.counters.failed += 1
        desk.tell("handler_failed", work, logging.ERROR, f"failed: {type(error).__name__}: {in_words(error)}", error=error)
        match desk.declaration.on_error:
            case "dead_letter":
                self.dead_letter(work, "handler_failed", error)
            case "redeliver" if work.parked is not None:  # no provider would limit or delay it: back to whoever decides
                self._park(work, "failed")
            case "redeliver":
                self.redeliver(work, error)
            case "acknowledge":
                desk.complete(work, "failed")

    def transaction_failed(self, work: Work, error: BaseException) -> bool:
        """False: `error` has nothing to do with its transaction (TR-37). While its handler ran, the session may have been closed
        under it (TR-61), which any call of that session then says."""
        desk = self._desk
        if isinstance(error, RolledBackError):
            self.redeliver(work, error)
        elif isinstance(error, TransactionRolledBackError) or (desk.detached and isinstance(error, IllegalStateError)):
            desk.tell("commit_rolled_back", work, logging.WARNING, f"was rolled back: it comes again ({error})", error=error)
            desk.release(work, State.RETRYING, lambda: desk.forget(work))
        elif isinstance(error, TransactionInDoubtError):
            text = f"may or may not be committed ({error}): its entry stays processing, a further delivery is In Doubt"
            desk.tell("commit_in_doubt", work, logging.ERROR, text, error=error)
            work.renew_at = None
            desk.forget(work)
        else:
            return False
        return True

    def send_in_doubt(self, work: Work, error: BaseException) -> bool:
        """False: `error` is another, or nothing is known of the message that could make it In Doubt when it comes again.

        Neither would be true: that it failed, for its handler did its work; nor that it is done. Its claim stays, so that the next
        delivery finds it abandoned (TR-36, as TR-50 has it for a history that cannot be told)."""
        if not isinstance(error, GatheredInDoubtError) or not work.claimed or (work.arrival.settled and work.parked is None):
            return False
        desk = self._desk
        text = f"ran, and what it sent may or may not have arrived ({error}): it is In Doubt"
        desk.tell("send_in_doubt", work, logging.ERROR, text, error=error)
        work.renew_at = None
        if work.parked is not None:  # no provider would bring it again
            self._park(work, "send_in_doubt")
        else:
            desk.give_back(work, RETRY)
        return True

    def redeliver(self, work: Work, error: BaseException) -> None:
        """Back to the provider as a planned redelivery: New, whatever its count says (TR-46)."""
        desk = self._desk
        if not work.arrival.handed_over:  # nobody could read it, and it was tried all the same: uncounted it would come for ever
            desk.intake.handing_over([work.arrival])
        outcome = replace(RETRY, reason=type(error).__name__, properties=self._properties(work, "handler_failed", error))
        desk.release(work, State.RETRYING, lambda: desk.give_back(work, outcome))

    def dead_letter(self, work: Work, reason: str, error: BaseException | None) -> None:
        """All steps of it, from `failed` to accept (TR-45)."""
        desk = self._desk

        def copied() -> None:
            desk.counters.dead_lettered += 1
            desk.complete(work, "failed")

        if self._error_destination is not None:
            desk.release(work, State.FAILED, lambda: self.copy(work, reason, error, then=copied))
            return
        desk.counters.dead_lettered += 1
        if self._rejects() and work.parked is None:  # the provider has no copy to reject
            desk.release(work, State.FAILED, lambda: self._reject(work, reason, error))
        else:
            self._park(work, "failed")

    def delivered_too_often(self, work: Work) -> None:
        """Not run; what becomes of it (TR-58)."""
        if self._desk.declaration.options.on_max_deliveries == "acknowledge":
            self._desk.complete(work, "delivery_limit")
        else:
            self.dead_letter(work, "delivery_limit", None)

    def copy(self, work: Work, reason: str, error: BaseException | None, *, then: Callable[[], None]) -> None:
        """A full copy to the error destination, then `then`; where the copy cannot be sent, the message goes back."""
        destination = self._error_destination
        if destination is None:
            self._reject(work, reason, error)
            return

        def done(failure: JmsClientError | None) -> None:
            if failure is None:
                then()
            else:
                self._not_copied(work, destination, failure)

        work.copying = True
        self._copies.send(destination, messages(work), self._properties(work, reason, error), done)

    def copies(self, work: Work) -> bool:
        """A copy of another delivery with its id is on its way, or was sent and that delivery is about to be settled."""
        return any(one.copying and one.id == work.id and one.source == work.source for one in self._desk.running.values())

    def _not_copied(self, work: Work, destination: Destination, failure: JmsClientError) -> None:
        """What a handler saw goes back counted, so that the provider's limit ends it. Else it would come again at once and without
        an end, and it is tried again after a while."""
        desk = self._desk
        desk.tell("dead_letter_failed", work, logging.ERROR, f"cannot be sent to {destination.address}: {failure}")
        if work.arrival.handed_over or work.arrival.settled or work.parked is not None or desk.stopping:
            desk.give_back(work, RETRY)
        else:
            self._later(work, COPY_AGAIN)

    def _reject(self, work: Work, reason: str, error: BaseException | None) -> None:
        properties = self._properties(work, reason, error)
        self._desk.give_back(work, Outcome(verb=Verb.DEAD_LETTER, reason=reason, properties=properties))

    def _properties(self, work: Work, reason: str, error: BaseException | None) -> dict[str, PropertyValue]:
        desk = self._desk
        address = desk.declaration.destination.address
        return failure_properties(work.message, address, reason, error, desk.clock.wall())
