"""What is done with a message that is In Doubt: the trigger's policy, and parking a full copy of it in the history (TR-34).

Touched by the pipeline thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from jmsclient.errors import MessageFormatError
from jmsclient.history.contract import new_token, stored_id
from jmsclient.history.entries import Park, Reply
from jmsclient.transport.contract import RELEASE, RETRY
from jmsclient.trigger.desk import QUIET, Desk
from jmsclient.trigger.failing import Failing
from jmsclient.trigger.identity import body_hash
from jmsclient.trigger.unreadable import envelope_of
from jmsclient.trigger.work import Work

OTHER_KEY = ("id_reused", "unknown_version")
"""Reasons to park under a key of its own, because the id's own entry is in use: by another message, by another version."""
REDELIVERY_DELAY = 1.0


class InDoubtMessages:
    """`run` is what policy `run` does; `moved_on` decides again where the entry changed between decision and parking; `delays`:
    whether the provider can delay what goes back."""

    def __init__(
        self, desk: Desk, *, run: Callable[[Work], None], moved_on: Callable[[Work, Reply], None], delays: Callable[[], bool]
    ) -> None:
        self._desk = desk
        self._delays = delays
        self._run = run
        self._moved_on = moved_on

    def carry_out(self, work: Work, reason: str, failing: Failing) -> None:
        """Do what the policy says. `reason` is `parked` for a further copy of a parked message, which is counted only. A parked
        copy that is In Doubt again is parked again, whatever the policy: the history has the only one."""
        desk = self._desk
        desk.keep(work)
        work.question = None  # it is answered, or will not be: its time limit has nothing to say about what is done now
        if work.parked is not None and reason in (
            "parked",
            "unknown_version",
        ):  # somebody else has written to it since it was found
            desk.give_back(work, RELEASE)
            return
        policy = desk.declaration.policy if work.parked is None else "park"
        if reason != "parked":
            desk.counters.in_doubt += 1
            desk.tell("in_doubt", work, logging.WARNING, f"is In Doubt ({reason}): {policy}")
        if reason == "id_reused":
            desk.counters.id_reused += 1
        match policy:
            case "park":
                self.park(work, reason)
            case "acknowledge":
                desk.accept(work)
            case "redeliver":  # counted, so that the provider's limit ends it
                desk.drop(work)
                desk.leave(work.arrival, replace(RETRY, reason=reason, delay=REDELIVERY_DELAY if self._delays() else 0.0))
            case "run":
                self._run(work)
            case "dead_letter":
                failing.copy(work, f"in_doubt: {reason}", None, then=lambda: desk.accept(work))

    def park(self, work: Work, reason: str) -> None:
        """Keep a full copy together with the entry, in one step, then accept."""
        desk = self._desk
        assert desk.ledger is not None
        work.renew_at = None
        if work.id is None:  # each such copy gets an id of its own (TR-32)
            work.id, work.source = f"none:{new_token()}", "made-up"
        elif reason in OTHER_KEY and work.source != reason:
            work.id, work.source = stored_id(f"{work.id}#{_digest(work)}"), reason
        command = Park(
            **desk.asking.key(work),
            envelope=work.parked.envelope if work.parked is not None else envelope_of(work.arrival.content),
            reason=reason,
            delivery_count=work.arrival.delivery_count,
            history_ttl=desk.declaration.history_ttl,
            owner=work.entry.owner if work.entry else None,
        )
        desk.ledger.add(command, work, lambda work, reply: self._parked(work, reason, reply))

    def _parked(self, work: Work, reason: str, reply: Reply) -> None:
        if reply.done:
            self._desk.counters.parked += 1
            self._desk.tell("parked", work, QUIET, "is parked", reason=reason)
            self._desk.accept(work)
        else:
            self._desk.drop(work)
            self._moved_on(work, reply)


def _digest(work: Work) -> str:
    """The same for every copy of one message, so that it is parked once."""
    try:
        return (work.body_hash or body_hash(work.message)).hex()[:16]
    except MessageFormatError:
        return "unreadable"
