"""The hand-over of one consumer's messages, one at a time: to a receive that asks for one, or to a listener.

A message is looked at, recorded in `_pending`, popped, and only then given out (architecture "Threads, signals, finalizers"). An
exception from a signal handler may strike between any two bytecodes. CPython looks for signals after a call and at a jump back,
not between plain stores; so what belongs together is stored together, and a message whose hand-over was struck is found in
`_pending` and put back at the head by whoever looks next. It must not know sockets, histories or how a consumer is closed.
Rules RA-11, RA-17, RA-22, IF-1, IF-4, IF-11, IF-12, IF-17, IF-18, IF-39, IF-40.
"""

from __future__ import annotations

import logging
from _thread import get_ident
from collections.abc import Callable
from typing import TYPE_CHECKING

from jmsclient.destination import Destination
from jmsclient.errors import ConnectionLostError, IllegalStateError, RequestTimeoutError, in_words
from jmsclient.events import emit
from jmsclient.intake import Intake
from jmsclient.jms.acknowledgement import BY_APPLICATION
from jmsclient.jms.gathering import Gathered
from jmsclient.message import Message
from jmsclient.options import AcknowledgeMode
from jmsclient.transport.contract import ACCEPT, RETRY, Arrival, Receiver

if TYPE_CHECKING:
    from jmsclient.jms.session import Session

ASK_TIME = 1.0
"""Seconds that a receive is kept beyond its time-out at most while the provider is asked, where there is a window."""
MessageListener = Callable[[Message], object]
_received = Message.received  # bound once, not once a message


class HandOver:
    """What `MessageConsumer` is built on. The names with one underscore are shared by the two, and by nobody else."""

    def __init__(self, session: Session, destination: Destination, intake: Intake, receiver: Receiver) -> None:
        self.destination = destination
        self.closed = False
        self.intake = intake
        """Where its messages wait; for the session."""
        self.receiver = receiver
        """What its messages come from; for the session."""
        self._session = session
        self._buffer = intake.buffer
        self._queue = intake.queue
        self._clock = session.clock
        self._connection = session._connection
        self._client = session.acknowledge_mode in BY_APPLICATION
        self._acknowledge = session.acknowledge_message if self._client else None
        self._transacted = session.transacted
        self._committed = 0  # delivered when the open transaction began
        self._gathered: Gathered | None = None
        if session.acknowledge_mode is AcknowledgeMode.DUPS_OK:
            self._gathered = Gathered(self._buffer.window // 4, self._clock, session.keeper.at)
        self._pending: Arrival | None = None  # handed over, or about to be; None again only when the caller has it
        self._accepting = False  # the acknowledge of `_pending` is on its way, or may be
        self._listener: MessageListener | None = None
        self._closing = False
        self._quiesced = False
        self._rest = False  # closing, and the dispatcher hands the taken ones over first (RA-18)

    # -- to a receive -----------------------------------------------------------------------------------------------

    def _message(self, arrival: Arrival) -> Message:
        return _received(arrival.content, arrival.delivery_count, self._acknowledge, arrival)

    def _take(self, timeout: float | None) -> Arrival | None:
        """The next arrival, in `_pending`; waits for it. None: at the time-out, or closing. Looks at the clock only to wait."""
        deadline: float | None = None
        waited = False
        while True:
            if self._pending is not None:
                self._put_back_pending()
            if self._closing:
                return None
            if self._queue and self._connection.started:
                arrival = self._pop()
                if arrival is not None:
                    return arrival
            else:
                if not waited:
                    deadline = self._clock.deadline(timeout)
                    waited = True
                if not self._await(deadline):
                    return None

    def _pop(self) -> Arrival | None:
        """Look, record, pop. None where nothing waits. The only place where a message leaves the buffer one by one."""
        queue = self._queue
        while True:
            try:
                arrival = queue[0]
                self._pending = arrival
                popped = queue.popleft()
            except IndexError:  # nothing there, or a close took the last one between the look and the pop
                self._pending = None
                return None
            if popped is not arrival:
                self._pending = arrival = popped
            if arrival.expires_at is not None and arrival.expires_at <= self._clock.wall():
                self.intake.drop_expired(arrival)
                self._pending = None
            else:
                if arrival.persistent and self.intake.records_hand_over and not arrival.settled and not self._recorded(arrival):
                    self._pending = None
                    continue
                arrival.handed_over = True
            if len(queue) <= self._buffer.mark:
                self.intake.asked()
            if self._pending is not None:
                return arrival

    def _recorded(self, arrival: Arrival) -> bool:
        """The provider knows that it is handed over (IF-11). False where its link is lost, so that it comes again on another."""
        try:
            arrival.receiver.handing_over((arrival,))
        except ConnectionLostError:
            if not self.intake.drop_lost():
                raise
            return False
        return True

    def _accepted(self, arrival: Arrival) -> Message:
        """In AUTO its acknowledge is handed over, in DUPS_OK soon; else the session remembers it. Ends the hand-over."""
        message = _received(arrival.content, arrival.delivery_count, self._acknowledge, arrival)
        if self._client:
            self._session.unacknowledged.append(arrival)
        elif not arrival.settled:
            self._accepting = True
            if self._transacted:
                self._session.transport_session.enlist(arrival)
            if self._gathered is None:
                arrival.receiver.accept(arrival)
            else:
                self._accept(arrival)
        self._buffer.delivered += 1
        self._accepting = False
        self._pending = None
        return message

    def _accept(self, arrival: Arrival) -> None:
        if self._gathered is None or self.closed:
            arrival.receiver.accept(arrival)
        else:
            self._gathered.add(arrival)

    def _put_back_pending(self) -> None:
        """A hand-over was struck, or called off: the message goes back to the head (RA-22). Repeating it does no harm."""
        arrival = self._pending
        if arrival is not None:
            self._session.unacknowledged.undo(arrival)
            if self._accepting:  # whether the provider has it is not known, so it gets it (again), and this one counts as taken
                if self._transacted:
                    self._session.doomed = True  # the transaction may hold it, and nobody has seen it
                else:
                    arrival.receiver.settle((arrival,), ACCEPT)
                    arrival.settled = True
                self._accepting = False
            if not (self._queue and self._queue[0] is arrival):
                arrival.handed_over = False
                self._queue.appendleft(arrival)
            self._pending = None

    def _await(self, deadline: float | None) -> bool:
        """Wait for a change: True to look again, False at the deadline, with the provider asked (IF-18) and no demand left
        where there is no window (P02)."""
        session, intake = self._session, self.intake
        session.check_alive()
        if session.owner:
            session.check_owner(get_ident())
        if intake.ended:
            raise self._ended_error()
        if self._quiesced and not self._queue:
            return False
        started = session.started
        windowless = not self._buffer.window
        try:
            if started and intake.unsure:
                session.keeper.shielded(self._ask)
            if started and windowless:
                intake.want_one()
            elif started and not self._quiesced:
                intake.asked()
            if started and self._queue:
                return True
            left = self._clock.left(deadline)
            if left is None or left > 0:
                self.flush_gathered()
                if intake.unsure:  # the demand: asked again soon
                    left = ASK_TIME if left is None else min(left, ASK_TIME)
                session.bell.wait(left)
                return True
            self.flush_gathered()
            if not started or self._closing:
                return False
            session.keeper.shielded(self._ask)
        except BaseException:
            if windowless:
                session.keeper.note(self._leave)
            raise
        return bool(self._queue)

    def flush_gathered(self) -> None:
        """DUPS_OK: what was gathered goes to the provider now; before a wait and at close (IF-39). Any thread."""
        if self._gathered is not None:
            self._gathered.flush()

    def _ask(self) -> None:
        """Ask the provider what it has, by a drain. Where there is a window, what it takes longer for comes into the buffer all the
        same, such as a large message that is arriving (C12): then the receive is not kept waiting for it, and the next one, if it
        has to wait, makes sure of the demand."""
        if not self._buffer.window:
            self._drain()
            return
        try:
            self.intake.drain(self._clock.deadline(min(self._session.request_timeout, ASK_TIME)))
        except RequestTimeoutError:
            pass  # the demand is unsure until it is asked again

    def _drain(self) -> None:
        self.intake.drain(self._clock.deadline(self._session.request_timeout))

    def _leave(self) -> None:
        """An exception struck a wait where there is no window: nobody waits any more, so what came for it goes to others (IF-4).
        Whoever waits by now asks again. On the keeper."""
        try:
            self._drain()
        finally:
            self.intake.release_buffered()
            self._session.bell.ring()

    def undo_struck(self) -> None:
        """Put a hand-over that an exception struck back at the head; for the session, inside it."""
        if self._pending is not None:
            self._put_back_pending()

    @property
    def in_transaction(self) -> bool:
        """TRANSACTED: messages of it are in the open transaction."""
        return self._transacted and self._buffer.delivered != self._committed

    def transaction_ended(self) -> None:
        """The next transaction has nothing of it yet; for the session, inside it."""
        self._committed = self._buffer.delivered

    def drop_struck(self) -> None:
        """TRANSACTED: what went into the transaction unseen waits at the head; the provider gives it back with the rollback, which
        is the only way that such a transaction can end. For the session, inside it, and at the end of the consumer."""
        while self._transacted and self._queue and self._queue[0].settled:
            self._queue.popleft()
            self._buffer.released += 1

    def _closed_error(self) -> IllegalStateError:
        return self._session.dead_error() or IllegalStateError(f"the consumer of {self.destination.address} is closed")

    def _ended_error(self) -> Exception:
        error = self.intake.closed_error
        if error is not None:
            return error
        return ConnectionLostError(f"the provider closed the consumer of {self.destination.address}")

    # -- to a listener, on the session's dispatcher thread ----------------------------------------------------------

    @property
    def listening(self) -> bool:
        """The dispatcher has something to do with it."""
        return self._listener is not None and not self.closed and (not self._closing or self._rest)

    def seek(self) -> bool:
        """Before the dispatcher waits: settle what is unsure, ask for one where there is no window. True: look again."""
        if self.intake.unsure:
            self._drain()
        if not self._buffer.window and not self._closing:
            self.intake.want_one()
        elif not self._closing and not self._quiesced:
            self.intake.asked()
        self.flush_gathered()
        return bool(self._queue)

    def dispatch(self) -> bool:
        """Hand one message to the listener; False where there was none. What it raises makes a counted attempt (IF-12)."""
        session, me = self._session, get_ident()
        session.calling = self
        try:
            if not session.started or not self.listening:
                return False
            if session.inside or session.owner != me:
                return True  # a call of the application came first, or the session is the application's again: look anew
            session.inside = me
            session.taking = True
            try:
                taken = self._take_to_listen()
            finally:
                session.taking = False
                session.inside = 0
            if taken is None:
                return False
            self._call(*taken)
            return True
        finally:
            session.calling = None
            self._after_call()

    def _take_to_listen(self) -> tuple[MessageListener, Message, Arrival] | None:
        """The next message, and whom to call with it. None where nothing waits, or nobody listens any more."""
        session = self._session
        if self._pending is not None:
            self._put_back_pending()
        arrival = self._pop()
        listener = self._listener
        if arrival is None or listener is None or not session.started:
            self._put_back_pending()
            return None
        message = self._message(arrival)
        if self._client:
            session.unacknowledged.append(arrival)
        elif self._transacted and not arrival.settled:
            session.transport_session.enlist(arrival)
            arrival.receiver.accept(arrival)  # before the call: a commit or rollback in it covers its message (JM 6.2.7)
        self._buffer.delivered += 1
        self._pending = None
        return listener, message, arrival

    def _call(self, listener: MessageListener, message: Message, arrival: Arrival) -> None:
        try:
            listener(message)
        except BaseException as error:  # noqa: BLE001  a thread of ours: nobody above could do more
            taken = arrival.settled
            if self._transacted:
                fate = "is part of the transaction still"  # JM 8.7: the application commits or rolls back
            else:
                fate = "was taken and is gone" if taken and not self._client else "is given back to be tried again"
                self._session.unacknowledged.forget((arrival,))
                self.intake.settle((arrival,), RETRY)
            emit(
                "consumer",
                "listener_failed",
                f"the listener of {self.destination.address} raised {type(error).__name__}: {in_words(error)}; the message {fate}",
                level=logging.ERROR,
                destination=self.destination.address,
                message_id=arrival.content.message_id,
            )
        else:
            if self._client or self._transacted:
                return
            if self._gathered is not None and not arrival.settled:
                self._accept(arrival)
            else:
                self.intake.settle((arrival,), ACCEPT)

    def _after_call(self) -> None:
        """The dispatcher is done with a call; for the consumer, that may have been closed by it."""
