"""A sending link: messages down as far as credit allows, outcomes up.

Owns the life of one link, what waits for credit, and what was sent and is not confirmed (`batch.py`: of each send). Encoding
happens on the caller's thread; what is marked so runs on the I/O thread. A link that the broker closed is attached again by the
next send. Rules IF-30, O07, S08.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jmsclient.destination import Destination
from jmsclient.errors import (
    ConnectionLostError,
    JmsClientError,
    RequestTimeoutError,
    TransactionRolledBackError,
    UnsupportedFeatureError,
)
from jmsclient.message import PlainContent
from jmsclient.transport.contract import Begun, Receipt, Sender
from jmsclient_amqp.batch import Batch, Run, failure
from jmsclient_amqp.encoding import encode_all
from jmsclient_amqp.engine.library import Condition
from jmsclient_amqp.engine.links import Outcome, SendingLink
from jmsclient_amqp.loop import Answer
from jmsclient_amqp.refusals import link_lost, link_refused, of_another_kind
from jmsclient_amqp.termini import local, target_of

if TYPE_CHECKING:
    from jmsclient_amqp.session import AmqpSession


PORTION = 1 << 18
"""Bytes of messages that the engine is given at once. So the first are on their way while the others are still here, and what
else the connection has to do, reading before all, comes in between."""
AROUND = 200
"""Bytes of a message beside its body and properties, about."""
AHEAD = 8 << 20
"""Bytes of messages that may be under way by `begin`: what is encoded is here, in the engine, and in what the socket holds."""


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
        self._paused = False
        self._sent: deque[Run] = deque()
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
        batch = self._batch(messages)
        if not self._attached:
            self.open(room_deadline)
        self._hand_over(batch)
        return self.wait_for(batch, room_deadline, confirm_timeout)

    @property
    def most_ahead(self) -> int:  # type: ignore[override]  # the contract has an attribute; here it changes with the link
        return AHEAD if self._attached and self._transaction is None else 0

    def begin(self, messages: Sequence[PlainContent]) -> Begun:
        batch = self._batch(messages)
        batch.begun = True
        self._hand_over(batch)
        return BegunBatch(self, batch)

    def _batch(self, messages: Sequence[PlainContent]) -> Batch:
        self._session.check_open()
        if not self._transport.capabilities.delayed_delivery and any(one.delivery_time is not None for one in messages):
            raise UnsupportedFeatureError(f"{self._transport.peer.product} does not deliver later; send it when it is due")
        ids = [message.message_id or self._identify(message) for message in messages]
        size = sum([message.size for message in messages]) + len(messages) * AROUND
        return Batch(ids, encode_all(messages, self._address, self._naming), self._clock, size=size)

    def _hand_over(self, batch: Batch) -> None:
        self._loop.tell(self._enqueue, batch)
        if self._loop.error is not None:
            batch.fail(self._transport.lost_error())

    def wait_for(self, batch: Batch, room_deadline: float | None, confirm_timeout: float | None) -> list[Receipt]:
        """Until it is over; raises as `send`."""
        try:
            self._await(batch, room_deadline, confirm_timeout)
        except BaseException:  # struck by a signal handler: nobody waits any more, so what is not on its way is not to go later
            self._loop.tell(self._cancel, Answer(self._clock), batch)
            raise
        if batch.error is None and batch.left == 0 and not batch.failures:
            return [Receipt(one) for one in batch.ids]
        raise failure(batch, self._destination.address, confirm_timeout)

    def _identify(self, message: PlainContent) -> str:
        if message.message_id is None:
            message.message_id = self._transport.next_message_id()
        return message.message_id

    def _await(self, batch: Batch, room_deadline: float | None, confirm_timeout: float | None) -> None:
        """Until it is over, or there was no room in time, or no confirmation."""
        clock = self._clock
        came = clock.monotonic()
        while not batch.over:
            if batch.written_at is None:
                left = clock.left(room_deadline)
                if left is not None and left <= 0:
                    self.stop_rest(batch)
                    continue
                waits = [one for one in (left, confirm_timeout) if one is not None]  # it may be written meanwhile
                batch.bell.wait(min(waits) if waits else None)
            else:
                began = max(batch.written_at, came)  # of one that was begun earlier, those before it had their time
                left = None if confirm_timeout is None else began + confirm_timeout - clock.monotonic()
                if left is not None and left <= 0:
                    self._loop.tell(self._abandon, batch)
                    return
                batch.bell.wait(left)

    def stop_rest(self, batch: Batch) -> None:
        """Keep what the engine does not have yet from being sent; then its figures stand."""
        try:
            self._loop.ask(self._cancel, None, "the end of a send", batch)
        except JmsClientError as error:
            batch.error = batch.error or error

    # -- on the I/O thread ------------------------------------------------------------------------------------------

    def _enqueue(self, batch: Batch, _: Any) -> None:
        if not self._attached:
            batch.fail(link_lost(self._what, None))
            return
        self._waiting.append(batch)
        self._pump()

    def _pump(self) -> None:
        """Send while there is credit, a portion at a time."""
        if self._paused:
            return
        link, waiting, room = self.link, self._waiting, PORTION
        state = None
        if self._transaction is not None and waiting:
            state = self._transaction.sending
            if state is None:
                self._transaction.when_declared(self._pump_if_attached)
                return
        while waiting:
            if room <= 0:
                self._pause()
                return
            batch = waiting[0]
            first, messages = batch.written, batch.messages
            count = min(link.credit, len(messages) - first, -(-room // batch.average))
            if count > 0:
                number = link.send_some(messages[first : first + count], state)
                self._sent.append(Run(batch, first, number, count))
                batch.written += count
                room -= count * batch.average
            elif first < len(messages):
                return
            if batch.written == len(messages):
                batch.written_at = self._clock.monotonic()
                waiting.popleft()

    def _pause(self) -> None:
        """Go on when the socket has taken what the engine has, and what has come since is read."""
        self._paused = True
        self._loop.after_writing(lambda: self._loop.tell(self._go_on))

    def _go_on(self, *_: Any) -> None:
        self._paused = False
        self._pump_if_attached()

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
            self._confirm(link.confirmed()[1])
        if self._waiting:
            self._pump()
        if link.remote_closed:
            error = link_lost(self._what, link.remote_condition)
            if self._detaching is None:
                link.close()
            link.free()
            self._end(error)

    def _confirm(self, outcomes: list[Outcome]) -> None:
        """Of what was sent, the oldest."""
        done = 0
        while done < len(outcomes):
            run = self._sent[0]
            count = min(run.left, len(outcomes) - done)
            if run.batch is not None:
                run.batch.decide(run.index, outcomes[done : done + count])
            done += count
            run.index += count
            run.number += count
            run.left -= count
            if not run.left:
                self._sent.popleft()

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
        """And what was begun behind it, which was to come after it."""
        if batch in self._waiting:
            position = self._waiting.index(batch)
            waiting = list(self._waiting)
            stopped = [batch, *(one for one in waiting[position + 1 :] if one.begun and batch.begun)]
            self._waiting = deque(one for one in waiting if one not in stopped)
            for one in stopped:
                one.cancelled = True
                one.unread = self._paused
                one.written_at = self._clock.monotonic()
        answer.give(None)

    def _abandon(self, batch: Batch, _: Any) -> None:
        """Nobody waits for its confirmations any more."""
        runs = [run for run in self._sent if run.batch is batch]
        for run in runs:
            run.batch = None
            if self._attached:
                self.link.abandon(run.number, run.left)
        if runs and self._transaction is not None:
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
        sent = [run.batch for run in self._sent if run.batch is not None]
        batches = {id(batch): batch for batch in sent} | {id(batch): batch for batch in self._waiting}
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


class BegunBatch(Begun):
    """What `AmqpSender.begin` handed over."""

    def __init__(self, sender: AmqpSender, batch: Batch) -> None:
        self._sender = sender
        self._batch = batch
        self.ids = batch.ids
        self.size = batch.size

    @property
    def failed(self) -> bool:
        return self._batch.failed

    def finish(self, *, room_deadline: float | None, confirm_timeout: float | None) -> list[Receipt]:
        return self._sender.wait_for(self._batch, room_deadline, confirm_timeout)

    def stop(self) -> None:
        self._sender.stop_rest(self._batch)
