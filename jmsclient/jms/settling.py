"""What a session does with what it has handed over: acknowledge, recover, commit, roll back; and the receivers this still needs.

A consumer that is closed leaves its receiver here for as long as something of it is unsettled, or its transaction open (IF-9). In
a TRANSACTED session every message is accepted into the transaction when it is handed over, a listener's before the call; so commit
and rollback inside a listener cover the message that it works on, and one whose listener raised is part of the transaction still
(Jakarta Messaging 3.1 section 8.7). Rules RA-22, IF-9, IF-14, IF-27, IF-28, IF-39, IF-40; S04, S05, S08, R04.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jmsclient.errors import (
    ConnectionLostError,
    IllegalStateError,
    JmsClientError,
    RequestTimeoutError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsclient.events import emit
from jmsclient.intake import Intake
from jmsclient.jms.acknowledgement import BY_APPLICATION, Unacknowledged, checked_mode, settle_by_receiver, when_asked
from jmsclient.jms.guard import Guard
from jmsclient.message import Message
from jmsclient.options import AcknowledgeMode, seconds
from jmsclient.transport.contract import ACCEPT, RETRY, Outcome, Receiver, TransportSession, Verb

if TYPE_CHECKING:
    from jmsclient.jms.connection import Connection
    from jmsclient.jms.consumer import MessageConsumer


class Settling(Guard):
    """What `Session` is built on, with `Guard`."""

    def __init__(self, connection: Connection, acknowledge: AcknowledgeMode, redelivery_delay: float) -> None:
        super().__init__(connection)
        self.acknowledge_mode = checked_mode(acknowledge, transactions=self.capabilities.transactions)
        self.transacted = self.acknowledge_mode is AcknowledgeMode.TRANSACTED
        self.redelivery_delay = redelivery_delay
        self.unacknowledged = Unacknowledged()
        self.doomed = False
        """TRANSACTED: an exception struck a receive while its message went into the transaction, so that the transaction may hold
        one that nobody has seen; it can only be rolled back."""
        self._lingering: tuple[tuple[Intake, Receiver], ...] = ()  # closed consumers whose messages are still to be settled
        self._to_end: tuple[MessageConsumer, ...] = ()  # closed by another consumer's listener: ended after that call
        self.transport_session: TransportSession = connection.transport.open_session(
            transacted=self.transacted, deadline=self.request_deadline()
        )

    @property
    def redelivery_delay(self) -> float:
        """Seconds after which what `recover` and `rollback` give back comes again, where the provider can delay (IF-14). May be set
        at any time, and counts for later calls. Raises ConfigurationError for what is no duration."""
        return self._redelivery_delay

    @redelivery_delay.setter
    def redelivery_delay(self, value: float) -> None:
        seconds("redelivery_delay", value)
        self._redelivery_delay = value

    # -- acknowledging ----------------------------------------------------------------------------------------------

    def acknowledge(self) -> None:
        """In CLIENT and INDIVIDUAL: acknowledge all that this session has handed over (JM 6.2.10); in the other modes nothing.
        Returns when the provider has it as safely as it makes it. Raises IllegalStateError on a closed session or in a second
        thread."""
        if self.acknowledge_mode not in BY_APPLICATION:
            self.check_alive()
            return
        self.run_inside(lambda: self._settle_all(ACCEPT))
        if self._lingering:
            self.keeper.call(self.settle_lingering)
        self._flush()

    def _flush(self) -> None:
        self.keeper.shielded(lambda: self.transport_session.flush(self.request_deadline()))

    def acknowledge_message(self, message: Message) -> None:
        """What `message.acknowledge()` does in this session; in INDIVIDUAL from any thread."""
        arrival = message.arrival
        closed = self.closed or self._closing
        what = when_asked(self.acknowledge_mode, closed=closed, settled=arrival.settled)
        if what != "ignore" and not self.transport_session.serves(arrival.receiver):
            text = f"{arrival.content.message_id}: its link was lost since, so its acknowledge does nothing, and it comes again"
            emit("session", "stale_acknowledge", text, level=logging.WARNING, message_id=arrival.content.message_id)
        elif what == "session":
            self.acknowledge()
        elif what == "message":
            arrival.receiver.settle((arrival,), ACCEPT)
            if self._lingering:
                self.keeper.note(self.settle_lingering)
            self._flush()

    def _settle_all(self, outcome: Outcome) -> None:
        for consumer in self.consumers:
            consumer.undo_struck()
        arrivals = self.unacknowledged.all()
        settle_by_receiver(arrivals, outcome)
        self.unacknowledged.forget(arrivals)

    # -- giving back ------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Give back all that was handed over and not acknowledged, to be delivered again, in order, after
        `redelivery_delay` where the provider can delay. Raises IllegalStateError as `acknowledge` does, and in a TRANSACTED
        session, whose messages come again by `rollback`."""
        if self.transacted:
            raise IllegalStateError("recover: this session is TRANSACTED; use rollback()")
        self.run_inside(lambda: self.keeper.call(self._recover))

    def _recover(self) -> None:
        delay = self._delay()
        with self._unread_given_back():
            self._settle_all(Outcome(verb=Verb.RETRY, delay=delay) if delay else RETRY)
            for consumer in self.consumers:
                consumer.retry_in_hand()
        self.settle_lingering()

    def _delay(self) -> float:
        return self.redelivery_delay if self.capabilities.delayed_release else 0.0

    @contextmanager
    def _unread_given_back(self) -> Iterator[None]:
        """Messages nobody has seen go back first, so that they come after the older ones that are given back inside; then demand
        again. On the keeper."""
        consumers = self.consumers
        for consumer in consumers:
            consumer.undo_struck()
            consumer.flush_gathered()
            consumer.intake.stop()
            try:
                consumer.intake.drain(self.request_deadline())
            except JmsClientError as error:
                emit("session", "drain_failed", f"giving back without a drain: {error}", level=logging.WARNING)
            consumer.drop_struck()
            consumer.intake.release_buffered()
        try:
            yield
        finally:
            for consumer in consumers:
                if self.started and not consumer.quiesced:
                    consumer.intake.start()

    # -- transactions -----------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Make everything that this TRANSACTED session has sent and received since the last commit or rollback true at once; the
        next transaction begins. Waits at most the connection's `request_timeout`. What is prefetched stays.

        Raises TransactionRolledBackError where nothing of it took effect (the connection was lost before, or an exception from a
        signal handler struck one of its receives): received messages come again. Raises TransactionInDoubtError where nobody
        knows; it is never sent again. Raises IllegalStateError in another acknowledge mode, on a closed session, in a second
        thread."""
        self._check_transacted("commit", "")
        if self._lost():
            raise TransactionRolledBackError("the connection was lost before the commit") from self._connection.failure
        self.run_inside(self._commit)
        if self._lingering:
            self.keeper.call(self.settle_lingering)

    def _commit(self) -> None:
        for consumer in self.consumers:
            consumer.undo_struck()
        if self.doomed:
            self.keeper.call(self._rollback)
            raise TransactionRolledBackError(
                "an exception struck a receive of this transaction, so its message may be in it unseen; all of it comes again"
            )
        try:
            self.keeper.shielded(lambda: self.transport_session.commit(self.request_deadline()))
        except (TransactionRolledBackError, ConnectionLostError) as error:
            self.keeper.call(self._after_rollback)
            if isinstance(error, TransactionRolledBackError):
                raise
            raise TransactionRolledBackError(f"the connection was lost before the commit: {error}") from error
        except RequestTimeoutError as error:
            raise TransactionInDoubtError(f"the provider did not answer the commit in time: {error}") from error
        finally:
            self._transaction_ended()

    def _transaction_ended(self) -> None:
        for consumer in self.consumers:
            consumer.transaction_ended()

    def rollback(self) -> None:
        """Undo everything that this TRANSACTED session has sent and received since the last commit or rollback: received messages
        come again, in order, after `redelivery_delay` seconds, read now. What was prefetched and unread comes after them,
        its count unchanged.

        On a lost connection it does nothing, for the provider has done it. Raises IllegalStateError as `commit`,
        RequestTimeoutError."""
        self._check_transacted("rollback", "; use recover()")
        if self._lost():
            self.doomed = False
            return
        self.run_inside(lambda: self.keeper.call(self._rollback))

    def _rollback(self) -> None:
        with self._unread_given_back():
            self.transport_session.rollback(redelivery_delay=self._delay(), deadline=self.request_deadline())
            self.doomed = False
            self._transaction_ended()
        self.settle_lingering()

    def _after_rollback(self) -> None:
        """The provider rolled back by itself; the unread messages are to come after those that come again."""
        with self._unread_given_back():
            self.doomed = False

    def _lost(self) -> bool:
        """The connection is gone for good, and not by a fork, which makes every call an error."""
        return self.failed and not self.closed and self.dead_error() is None

    def _check_transacted(self, what: str, instead: str) -> None:
        if not self.transacted:
            raise IllegalStateError(f"{what}: this session is {self.acknowledge_mode.name}, not TRANSACTED{instead}")

    # -- receivers that outlive their consumer ----------------------------------------------------------------------

    def end_after_call(self, consumer: MessageConsumer) -> None:
        """A listener closed another consumer of its session; that one ends when the running call has returned."""
        self._to_end = (*self._to_end, consumer)

    def _linger(self, consumer: MessageConsumer) -> None:
        if self.transacted and not (consumer.in_transaction or self.doomed):
            consumer.intake.close_receiver(self.request_deadline())
            return
        self._lingering = (*self._lingering, (consumer.intake, consumer.receiver))
        if not self.transacted:
            self.settle_lingering()

    def settle_lingering(self) -> None:
        """Detach the receivers that nothing needs any more; in a TRANSACTED session when the transaction has ended. On the keeper
        or the dispatcher."""
        if not self._lingering:
            return
        calling = self.calling
        needed = [
            (intake, receiver)
            for intake, receiver in self._lingering
            if self.unacknowledged.any_of(receiver.present) or (calling is not None and calling.receiver is receiver)
        ]
        done = [pair for pair in self._lingering if pair not in needed]
        self._lingering = tuple(needed)
        for intake, _ in done:
            intake.close_receiver(self.request_deadline())

    def call_ended(self) -> None:
        """The dispatcher is done with a call: what waited for that ends."""
        if self._to_end and self.calling is None:
            ending, self._to_end = self._to_end, ()
            for consumer in ending:
                consumer.end_if_emptied()
        if not self.transacted:
            self.settle_lingering()
