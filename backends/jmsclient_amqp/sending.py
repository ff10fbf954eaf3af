"""A sending link: messages down as far as credit allows, outcomes up.

Owns the life of one link, what waits for credit, and what was sent and is not confirmed. Encoding happens on the caller's
thread; what is marked so runs on the I/O thread. A link that the broker closed is attached again by the next send. Rules IF-30,
O07, S08.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jmsclient.clock import Clock
from jmsclient.destination import Destination
from jmsclient.errors import (
    ConnectionLostError,
    JmsClientError,
    RequestTimeoutError,
    ResourceAllocationError,
    SendError,
    TransactionRolledBackError,
    UnsupportedFeatureError,
)
from jmsclient.message import PlainContent
from jmsclient.transport.contract import Receipt, Sender
from jmsclient_amqp.encoding import encode_all
from jmsclient_amqp.engine.library import ACCEPTED, MODIFIED, REJECTED, RELEASED, Condition
from jmsclient_amqp.engine.links import Outcome, SendingLink
from jmsclient_amqp.loop import Answer
from jmsclient_amqp.refusals import link_lost, link_refused, not_accepted, of_another_kind
from jmsclient_amqp.termini import local, target_of

if TYPE_CHECKING:
    from jmsclient_amqp.session import AmqpSession


class Batch:
    """The messages of one send. The I/O thread writes its figures, the sender's caller reads them."""

    __slots__ = (
        "bell",
        "cancelled",
        "error",
        "failures",
        "ids",
        "left",
        "messages",
        "numbers",
        "outcomes",
        "written",
        "written_at",
    )

    def __init__(self, ids: list[str], messages: list[bytes], clock: Clock) -> None:
        self.ids = ids
        self.messages = messages
        self.bell = clock.bell()
        self.written = 0
        """How many the engine has."""
        self.written_at: float | None = None
        """When it got the last one."""
        self.left = len(messages)
        """How many are not decided, written or not."""
        self.outcomes: list[Outcome | None] = [None] * len(messages)
        self.failures = 0
        self.numbers: list[int] = []
        self.error: JmsClientError | None = None
        self.cancelled = False

    @property
    def over(self) -> bool:
        return self.left == 0 or self.error is not None or (self.cancelled and self.undecided == 0)

    @property
    def undecided(self) -> int:
        """Written, and the peer has not said what became of them."""
        return self.written - (len(self.messages) - self.left)

    def fail(self, error: JmsClientError) -> None:
        """Nothing more will become of it: what was written is in doubt, what was not never will be."""
        if not self.over:
            self.error = error
        self.bell.ring()

    def indices(self, *, confirmed: bool) -> list[int]:
        """Of those that were written and accepted, or written and not decided."""
        wanted = (lambda one: one is not None and one.code == ACCEPTED) if confirmed else (lambda one: one is None)
        return [index for index in range(self.written) if wanted(self.outcomes[index])]


class AmqpSender(Sender):
    """Made by `AmqpSession.open_sender`. Thread-safe."""

    link: SendingLink

    def __init__(self, session: AmqpSession, destination: Destination) -> None:
        self._session = session
        self._transport = session.transport
        self._loop = session.loop
        self._clock = session.transport.clock
        self._destination = destination
        self._naming = session.product.naming
        self._address = self._target = self._naming.address(destination)
        self._what = f"a sender to {destination.address}"
        self._transaction = session.transaction
        self._closed = False
        self._attached = False  # this is read by others; it and the rest are written on the I/O thread
        self._waiting: deque[Batch] = deque()
        self._sent: dict[int, tuple[Batch, int]] = {}
        self._attaching: Answer[None] | None = None
        self._detaching: Answer[None] | None = None

    # -- attaching --------------------------------------------------------------------------------------------------

    def open(self, deadline: float | None) -> None:
        """Attach and wait for the peer. Raises what the contract says."""
        try:
            self._loop.ask(self._attach, deadline, f"the attach of {self._what}")
        except RequestTimeoutError:
            self._loop.tell(self._give_up)
            raise

    def _attach(self, answer: Answer[None], _: Any) -> None:
        if self._attached:
            answer.give(None)
            return
        self._attaching = self._transport.awaited(answer)
        self._make_link()
        self._session.attached(self)

    def _make_link(self) -> None:
        name = self._transport.link_name("sender")
        self.link = self._session.handle.sender(
            name,
            local(name, outcomes=True),
            target_of(self._destination, self._target, durable_queue=self._session.product.durable_queues),
        )

    @property
    def attaching(self) -> bool:
        """The broker has yet to say whether it wants the link (I/O thread)."""
        return self._attaching is not None

    def session_refused(self, condition: Condition | None) -> None:
        """The broker ended the session rather than attach it, and there is another session: try another name, or give up."""
        other = self._naming.existing(self._destination) if of_another_kind(condition) else None
        if other is not None and other != self._target:
            self._target = other
            self._make_link()
        else:
            self._end(link_refused(self._what, condition))

    def _give_up(self, *_: Any) -> None:
        if self._attaching is not None:
            self.link.close()
            self._end(RequestTimeoutError(f"the attach of {self._what} was given up"))

    # -- sending ----------------------------------------------------------------------------------------------------

    def send(
        self, messages: Sequence[PlainContent], *, room_deadline: float | None, confirm_timeout: float | None
    ) -> list[Receipt]:
        self._session.check_open()
        if not self._transport.capabilities.delayed_delivery and any(one.delivery_time is not None for one in messages):
            raise UnsupportedFeatureError(f"{self._transport.peer.product} does not deliver later; send it when it is due")
        batch = Batch(
            [self._identify(message) for message in messages],
            encode_all(messages, self._address, self._naming),
            self._clock,
        )
        if not self._attached:
            self.open(room_deadline)
        self._loop.tell(self._enqueue, batch)
        if self._loop.error is not None:
            batch.fail(self._transport.lost_error())
        self._await(batch, room_deadline, confirm_timeout)
        if batch.error is None and batch.left == 0 and not batch.failures:
            return [Receipt(one) for one in batch.ids]
        raise self._failure(batch, confirm_timeout)

    def _identify(self, message: PlainContent) -> str:
        if message.message_id is None:
            message.message_id = self._transport.next_message_id()
        return message.message_id

    def _await(self, batch: Batch, room_deadline: float | None, confirm_timeout: float | None) -> None:
        """Until it is over, or there was no room in time, or no confirmation."""
        clock = self._clock
        while not batch.over:
            if batch.written_at is None:
                left = clock.left(room_deadline)
                if left is not None and left <= 0:
                    self._cancel_unsent(batch)
                    continue
                waits = [one for one in (left, confirm_timeout) if one is not None]  # it may be written meanwhile
                batch.bell.wait(min(waits) if waits else None)
            else:
                began = batch.written_at if batch.written_at is not None else clock.monotonic()
                left = None if confirm_timeout is None else began + confirm_timeout - clock.monotonic()
                if left is not None and left <= 0:
                    self._loop.tell(self._abandon, batch)
                    return
                batch.bell.wait(left)

    def _cancel_unsent(self, batch: Batch) -> None:
        """Keep what the engine does not have yet from being sent; then its figures stand."""
        try:
            self._loop.ask(self._cancel, None, "the end of a send", batch)
        except JmsClientError as error:
            batch.error = batch.error or error

    def _failure(self, batch: Batch, confirm_timeout: float | None) -> JmsClientError:
        """What to raise: nothing was sent, or which were confirmed, are in doubt, were not sent."""
        ids, name = batch.ids, self._destination.address
        confirmed = [ids[index] for index in batch.indices(confirmed=True)]
        in_doubt = [ids[index] for index in batch.indices(confirmed=False)]
        known = {*confirmed, *in_doubt}
        unsent = [one for one in ids if one not in known]
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
            return ResourceAllocationError(f"{name}: the broker gave no credit in time, so nothing was sent")
        elif batch.cancelled and not in_doubt:
            text = f"{name}: the broker gave no credit for the rest in time"
        else:
            text = f"{name}: no confirmation within {confirm_timeout} s"
        failure = SendError(text, confirmed=confirmed, in_doubt=in_doubt, unsent=unsent)
        failure.__cause__ = batch.error
        return failure

    # -- on the I/O thread ------------------------------------------------------------------------------------------

    def _enqueue(self, batch: Batch, _: Any) -> None:
        if not self._attached:
            batch.fail(link_lost(self._what, None))
            return
        self._waiting.append(batch)
        self._pump()

    def _pump(self) -> None:
        """Send while there is credit."""
        link, waiting, sent = self.link, self._waiting, self._sent
        state = None
        if self._transaction is not None and waiting:
            state = self._transaction.sending
            if state is None:
                self._transaction.when_declared(self._pump_if_attached)
                return
        while waiting:
            batch = waiting[0]
            messages = batch.messages
            count = min(link.credit, len(messages) - batch.written)
            for index in range(batch.written, batch.written + count):
                number = link.send(messages[index], state)
                batch.numbers.append(number)
                sent[number] = (batch, index)
            batch.written += count
            if batch.written < len(messages):
                return
            batch.written_at = self._clock.monotonic()
            waiting.popleft()

    def _pump_if_attached(self) -> None:
        if self._attached:
            self._pump()

    def look(self) -> None:
        """New bytes have been processed."""
        link = self.link
        if self._attaching is not None:
            self._look_at_attach(self._attaching)
            return
        if self._sent:
            for number, outcome in link.confirmed():
                found = self._sent.pop(number, None)
                if found is not None:
                    self._confirm(*found, outcome)
        if self._waiting:
            self._pump()
        if link.remote_closed:
            error = link_lost(self._what, link.remote_condition)
            if self._detaching is None:
                link.close()
            link.free()
            self._end(error)

    def _confirm(self, batch: Batch, index: int, outcome: Outcome) -> None:
        batch.outcomes[index] = outcome
        if outcome.code != ACCEPTED:
            batch.failures += 1
        batch.left -= 1
        if batch.over:
            batch.bell.ring()

    def _look_at_attach(self, attaching: Answer[None]) -> None:
        link = self.link
        if link.remote_closed:
            error = link_refused(self._what, link.remote_condition)
            link.close()
            link.free()
            self._end(error)
        elif link.remote_open and not link.refused:
            self._attaching = None
            self._attached = True
            self._transport.answered(attaching)
            attaching.give(None)

    def _cancel(self, answer: Answer[None], batch: Batch) -> None:
        if batch in self._waiting:
            self._waiting.remove(batch)
            batch.cancelled = True
            batch.written_at = self._clock.monotonic()
        answer.give(None)

    def _abandon(self, batch: Batch, _: Any) -> None:
        """Nobody waits for its confirmations any more."""
        numbers = frozenset(number for number in batch.numbers if self._sent.pop(number, None) is not None)
        if numbers and self._attached:
            self.link.abandon(numbers)
        if numbers and self._transaction is not None:
            self._transaction.doomed = TransactionRolledBackError(
                f"{self._what}: a message of this transaction was not confirmed in time, so all of it was undone"
            )

    def lost(self, error: JmsClientError) -> None:
        """The session or the connection has ended."""
        self._end(error)

    def _end(self, error: JmsClientError) -> None:
        """The link is gone: what was sent is in doubt, what was not never will be."""
        attaching, self._attaching = self._attaching, None
        detaching, self._detaching = self._detaching, None
        if detaching is not None:
            self._transport.forget_detach(self.link.address)
        self._attached = False
        self._session.detached(self)
        batches = {id(batch): batch for batch, _ in self._sent.values()} | {id(batch): batch for batch in self._waiting}
        self._sent.clear()
        self._waiting.clear()
        for batch in batches.values():
            batch.fail(error)
        if attaching is not None:
            self._transport.answered(attaching)
            attaching.fail(error)
        if detaching is not None:
            self._transport.answered(detaching)
            detaching.give(None)

    # -- closing ----------------------------------------------------------------------------------------------------

    def close(self, deadline: float | None) -> None:
        if self._closed or self._transport.dead:
            return
        self._closed = True
        if self._loop.here:
            self._loop.tell(self._detach, Answer(self._clock))
            return
        try:
            self._loop.ask(self._detach, deadline, f"the detach of {self._what}")
        except ConnectionLostError:
            pass  # it has ended while we asked

    def _detach(self, answer: Answer[None], _: Any) -> None:
        if not self._attached:
            answer.give(None)
            return
        self._detaching = self._transport.awaited(answer)
        if not self._session.product.answers_close:
            self._transport.expect_detach(self.link.address, self._detached)
        self.link.close()

    def _detached(self) -> None:
        self.link.free()
        self._end(link_lost(self._what, None))


def _said(outcome: Outcome) -> str:
    if outcome.code == REJECTED:
        return not_accepted(outcome.condition)
    if outcome.code == RELEASED:
        return "released it: it was not taken"
    if outcome.code == MODIFIED:
        return "could not deliver it (modified)"
    return "settled it without saying what became of it"
