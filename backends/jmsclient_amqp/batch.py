"""The messages of one send: how many the engine has, what became of each, and the error where not all was well.

Must not know links or threads, but for who writes what: the I/O thread the figures, the sender's caller the rest. Rules IF-30,
O07, S08.
"""

from __future__ import annotations

from jmsclient.clock import Clock
from jmsclient.errors import JmsClientError, ResourceAllocationError, SendError
from jmsclient_amqp.encoding import Encoded
from jmsclient_amqp.engine.library import ACCEPTED, MODIFIED, REJECTED, RELEASED
from jmsclient_amqp.engine.links import Outcome
from jmsclient_amqp.refusals import not_accepted

_ACCEPTED = Outcome(ACCEPTED)


class Batch:
    """The messages of one send. The I/O thread writes its figures, the sender's caller reads them."""

    __slots__ = (
        "begun",
        "bell",
        "cancelled",
        "error",
        "failures",
        "ids",
        "left",
        "messages",
        "outcomes",
        "size",
        "unread",
        "written",
        "written_at",
    )

    def __init__(self, ids: list[str], messages: list[Encoded], clock: Clock, *, size: int = 0) -> None:
        self.ids = ids
        self.messages = messages
        self.size = size
        """Bytes of all of them, about."""
        self.bell = clock.bell()
        self.written = 0
        """How many the engine has."""
        self.written_at: float | None = None
        """When it got the last one."""
        self.left = len(messages)
        """How many are not decided, written or not."""
        self.outcomes: list[Outcome | None] = [None] * len(messages)
        self.failures = 0
        self.error: JmsClientError | None = None
        self.cancelled = False
        self.unread = False
        """It was cancelled while there was credit: the peer did not read what was sent before."""
        self.begun = False
        """Handed over before anybody waits for it (`Sender.begin`)."""

    @property
    def average(self) -> int:
        """Bytes of a message, about."""
        return max(1, self.size // max(1, len(self.messages)))

    @property
    def over(self) -> bool:
        return self.left == 0 or self.error is not None or (self.cancelled and self.undecided == 0)

    @property
    def undecided(self) -> int:
        """Written, and the peer has not said what became of them."""
        return self.written - (len(self.messages) - self.left)

    @property
    def failed(self) -> bool:
        """Not all of it will be accepted."""
        return self.failures > 0 or self.error is not None or self.cancelled

    def fail(self, error: JmsClientError) -> None:
        """Nothing more will become of it: what was written is in doubt, what was not never will be."""
        if not self.over:
            self.error = error
        self.bell.ring()

    def decide(self, index: int, outcomes: list[Outcome]) -> None:
        """What became of those from `index` on."""
        count = len(outcomes)
        self.outcomes[index : index + count] = outcomes
        self.failures += count - outcomes.count(_ACCEPTED)
        self.left -= count
        if self.over:
            self.bell.ring()

    def indices(self, *, confirmed: bool) -> list[int]:
        """Of those that were written and accepted, or written and not decided."""
        wanted = (lambda one: one is not None and one.code == ACCEPTED) if confirmed else (lambda one: one is None)
        return [index for index in range(self.written) if wanted(self.outcomes[index])]


class Run:
    """Messages of one batch that were sent one after the other and are not decided yet. Their batch is forgotten where nobody waits
    for them any more."""

    __slots__ = ("batch", "index", "left", "number")

    def __init__(self, batch: Batch, index: int, number: int, count: int) -> None:
        self.batch: Batch | None = batch
        self.index = index
        """Of the first, in the batch."""
        self.number = number
        """Of the first, on the link."""
        self.left = count


def failure(batch: Batch, name: str, confirm_timeout: float | None) -> JmsClientError:
    """What to raise: nothing was sent, or which were confirmed, are in doubt, were not sent."""
    ids = batch.ids
    confirmed = [ids[index] for index in batch.indices(confirmed=True)]
    in_doubt = [ids[index] for index in batch.indices(confirmed=False)]
    known = {*confirmed, *in_doubt}
    unsent = [one for one in ids if one not in known]
    lacking = "read too little to make room" if batch.unread else "gave no credit"
    refused = next((one for one in batch.outcomes if one is not None and one.code != ACCEPTED), None)
    if batch.error is not None:
        if not confirmed and not in_doubt and refused is None:
            return batch.error
        text = f"{name}: {batch.error}"
    elif refused is not None:
        text = f"{name}: the broker {_said(refused)}"
        full = refused.condition is not None and refused.condition.name == "amqp:resource-limit-exceeded"
        if full and not confirmed and not in_doubt:
            return ResourceAllocationError(text)
    elif batch.cancelled and not batch.written:
        return ResourceAllocationError(f"{name}: the broker {lacking} in time, so nothing was sent")
    elif batch.cancelled and not in_doubt:
        text = f"{name}: the broker {lacking} for the rest in time"
    else:
        text = f"{name}: no confirmation within {confirm_timeout} s"
    failure = SendError(text, confirmed=confirmed, in_doubt=in_doubt, unsent=unsent)
    failure.__cause__ = batch.error
    return failure


def _said(outcome: Outcome) -> str:
    if outcome.code == REJECTED:
        return not_accepted(outcome.condition)
    if outcome.code == RELEASED:
        return "released it: it was not taken"
    if outcome.code == MODIFIED:
        return "could not deliver it (modified)"
    return "settled it without saying what became of it"
