"""MessageConsumer: receive, iterate, listen, close; for the one thread its session serves.

Owns what people call and how a consumer ends; the hand-over itself is `jmsclient.jms.hand_over`. It must not know sockets or
histories. Rules RA-16 to RA-19, RA-22 to RA-24, IF-1, IF-5, IF-9, IF-27, IF-36, IF-39, IF-40.
"""

from __future__ import annotations

import logging
from _thread import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeVar

from jmsclient.clock import SystemBell, checked_timeout
from jmsclient.destination import Destination, ReadAheadClosePolicy
from jmsclient.errors import CloseTimeout, IllegalStateError, MessageFormatError
from jmsclient.events import emit
from jmsclient.intake import CloseReport, Intake
from jmsclient.jms.guard import earlier
from jmsclient.jms.hand_over import MessageListener
from jmsclient.jms.iteration import Iterating
from jmsclient.jms.read_ahead import ReadAhead, ReadAheadDecision
from jmsclient.message import Message
from jmsclient.transport.contract import ACCEPT, Receiver

if TYPE_CHECKING:
    from jmsclient.jms.session import Session

B = TypeVar("B", str, bytes, dict, list)  # type: ignore[type-arg]  # the four body types as `isinstance` takes them
LOOK_INTERVAL = 0.002
"""Seconds between two looks of a close that waits for a running call to leave."""


class MessageConsumer(Iterating):
    """Made by `Session.create_consumer`. `close`, `listener` and `read_ahead` from any thread; the rest one thread at a time."""

    def __init__(
        self,
        session: Session,
        destination: Destination,
        selector: str | None,
        intake: Intake,
        receiver: Receiver,
        decision: ReadAheadDecision,
        *,
        close_in_listener: Literal["deliver", "raise"] = "deliver",
    ) -> None:
        super().__init__(session, destination, intake, receiver)
        self.selector = selector
        self.read_ahead = ReadAhead(decision, intake)
        self._close_in_listener = close_in_listener
        self._end_after_call = False  # closed by its own listener (RA-24)
        self._before: tuple[int, int, int] | None = None  # delivered, released, discarded when close began

    def __del__(self) -> None:
        """Forgotten by the application (RA-25): a note for the keeper, which takes it up again and closes it. It takes no lock."""
        if not self.closed and not self._session.closed:
            self._session.keeper.note(self._close_forgotten)

    def _close_forgotten(self) -> None:
        # Nobody said whether the loop ended well or an exception left it: what it had in hand comes again, and its count says so.
        self.retry_in_hand()
        self._closing = True
        self._begin(True, None)
        self._end()

    # -- receiving --------------------------------------------------------------------------------------------------

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message, waiting up to `timeout` seconds: None for ever, 0 no wait (but the provider is asked).

        None at the time-out, or when somebody else closes the consumer meanwhile. In AUTO the acknowledge is handed to the
        provider before this returns. Raises ValueError for a negative timeout or NaN; IllegalStateError on a closed
        consumer, in a second thread, or while a listener is set; ConnectionLostError when the connection fails;
        RequestTimeoutError without a window, where the provider does not say in time that nothing is on its way: receive again.
        """
        timeout = checked_timeout(timeout)
        session = self._session
        me = get_ident()
        if self.closed or self._closing:
            raise self._closed_error()
        if session.inside:
            raise session.busy_error()
        session.inside = me
        self._active = True
        try:
            if session.owner:
                session.check_owner(me)
            ready = self._pending is None and not self._closing and self._connection.started  # as `_take`, without a call
            arrival = (self._pop() if ready else None) or self._take(timeout)
            return None if arrival is None else self._accepted(arrival)
        finally:
            self._active = False
            session.inside = 0

    def receive_no_wait(self) -> Message | None:
        """As `receive(0)`: what the provider has for us now, in one bounded round trip."""
        return self.receive(0.0)

    def receive_body(self, type: type[B], timeout: float | None = None) -> B | None:  # noqa: A002  JMS calls it so
        """The body of the next message. Raises MessageFormatError if it is of another type; the message then stays at the head
        and is not acknowledged. Otherwise as `receive`."""
        timeout = checked_timeout(timeout)
        session = self._session
        me = get_ident()
        if self.closed or self._closing:
            raise self._closed_error()
        if session.inside:
            raise session.busy_error()
        session.inside = me
        self._active = True
        try:
            if session.owner:
                session.check_owner(me)
            arrival = self._take(timeout)
            if arrival is None:
                return None
            body = self._message(arrival).body
            if not isinstance(body, type):
                self._put_back_pending()
                raise MessageFormatError(f"the body is {arrival.content.kind.name}, not {type.__name__}; read it with receive()")
            self._accepted(arrival)
            return body
        finally:
            self._active = False
            session.inside = 0

    def quiesce(self) -> int:
        """Stop fetching; how many are left in the buffer. `receive` then gives those, after that None at once (RA-17)."""
        if self.closed or self._closing:
            raise self._closed_error()
        self._quiesced = True
        self._session.keeper.call(self._stop_fetching)
        self._session.bell.ring()
        return self.intake.buffered

    def _stop_fetching(self) -> None:
        self.intake.stop()
        self._drain()

    # -- listening, on the session's dispatcher thread --------------------------------------------------------------

    @property
    def listener(self) -> MessageListener | None:
        """Called with each message on the session's dispatcher thread. Settable from any thread; None ends it. While one is
        set and the connection is started, the session belongs to its dispatcher (JM 6.2.5)."""
        return self._listener

    @listener.setter
    def listener(self, listener: MessageListener | None) -> None:
        if self.closed or self._closing:
            raise self._closed_error()
        if listener is not None and not callable(listener):
            raise TypeError(f"listener={listener!r}: expected something to call with a message, or None")
        self._listener = listener
        self._session.adapt()

    # -- closing ----------------------------------------------------------------------------------------------------

    def close(self, *, immediate: bool = False, timeout: float | None = 30.0) -> CloseReport:
        """Stop fetching, give back what is kept; a listener's taken messages are delivered first or dropped, by the
        destination's close policy; a receiver's are dropped (RA-16). Waits for a running call up to `timeout` seconds, then
        raises CloseTimeout: nothing is lost, and close may be called again (RA-19). `immediate` waits for nothing.

        From any thread. From inside its own listener it returns at once and the rest follows when that call has returned
        (RA-24), unless `ConsumerOptions.close_in_listener` has it raise IllegalStateError. From a signal handler that interrupted
        this session it only leaves a note. Closing twice does nothing.
        """
        timeout = checked_timeout(timeout)
        if self.closed:
            return CloseReport()
        session = self._session
        deadline = self._clock.deadline(timeout)
        me = get_ident()
        interrupted = session.inside == me  # a signal handler on top of a call into this session: waiting would wait for itself
        own = session.is_dispatcher(me)
        if own and session.calling is self and not immediate:
            self._check_close_in_listener()
        self._closing = True
        session.bell.ring()
        if interrupted:
            session.keeper.note(lambda: session.in_thread(lambda: self.close(immediate=immediate, timeout=timeout)))
            return CloseReport()
        try:
            session.close_on_keeper(lambda: self._begin(immediate, deadline), deadline)
            if own and session.calling is not None:
                return self._close_inside()
            if not immediate:
                self._wait_for_calls(deadline)
            session.close_on_keeper(self._end, deadline)
        except CloseTimeout:
            raise
        except BaseException:
            if not self._rest:
                session.keeper.note(lambda: self._end_if_idle(immediate))
            raise
        return self._report()

    def _check_close_in_listener(self) -> None:
        policy = self.destination.read_ahead_close_policy
        if self._close_in_listener == "raise" and policy is ReadAheadClosePolicy.DELIVER_ALL:
            raise IllegalStateError(
                f"the listener closes its own consumer of {self.destination.address}, which still has to deliver what was "
                "read ahead; close it from another thread, or with immediate=True"
            )

    def _begin(self, immediate: bool, deadline: float | None) -> None:
        """On the keeper: no more demand, kept ones back, taken ones dropped unless the listener is to have them."""
        if self.closed:
            return
        buffer = self._buffer
        if self._before is None:
            self._before = (buffer.delivered, buffer.released, buffer.discarded)
        policy = self.destination.read_ahead_close_policy
        self._rest = (
            self._listener is not None
            and policy is ReadAheadClosePolicy.DELIVER_ALL
            and not immediate
            and self._session.started  # stop() outranks DELIVER_ALL
        )
        self.intake.close(self._bounded(deadline), discard_taken=not (self._rest or self._transacted), keep_receiver=True)
        self._session.adapt()  # a listener that was set while this began is to have the rest

    def _bounded(self, deadline: float | None) -> float | None:
        return earlier(deadline, self._session.request_deadline())

    def _close_inside(self) -> CloseReport:
        self._end_after_call = True
        report = self._report()
        left = self.intake.buffered if self._rest else 0
        if self._session.calling is not self:
            self._session.end_after_call(self)
        return CloseReport(report.delivered + left, report.released, report.discarded)

    def _wait_for_calls(self, deadline: float | None) -> None:
        """Until no call uses this consumer and its listener has what it is to have (RA-18, P07)."""
        session = self._session
        pause = SystemBell()
        while True:
            running = session.calling is self
            if not running and self._rest and not (session.started and self._listener):
                self._rest = False  # stopped, or the listener ended while this began: nobody is to have them
            left = self.intake.buffered if self._rest and not self.intake.closed_error else 0
            busy = self._active
            if not running and not left and not busy:
                return
            remaining = self._clock.left(deadline)
            if remaining is not None and remaining <= 0:
                what = "its listener is still running" if running else f"{left} messages are still to be delivered"
                what = "a receive is still inside" if busy and not running and not left else what
                raise CloseTimeout(
                    f"closing the consumer of {self.destination.address}: {what}; nothing is lost, close it again",
                    left=left,
                    listener_running=running,
                )
            pause.wait(LOOK_INTERVAL)

    def _end_if_idle(self, immediate: bool) -> None:
        """A close was struck, perhaps before it began: its demand goes back too, for nobody may close it again."""
        if self._before is None:
            self._begin(immediate, self._bounded(None))
        if self._session.calling is not self and not self._active and not self._rest:
            self._end()

    def _end(self) -> None:
        """Settle what the loop had in hand, give back or drop what is left, detach; once. On the keeper or the dispatcher."""
        if self.closed:
            return
        if self._pending is not None and self._session.calling is not self:
            self._put_back_pending()
        self._rest = False
        self.drop_struck()
        self.intake.release_buffered()
        self.intake.discard_taken()
        done = self._in_hand
        if done is not None:
            self.intake.settle((done,), ACCEPT)
            self._in_hand = None
        self.flush_gathered()
        self.closed = True
        self._session.consumer_closed(self)
        self._tell()

    def _report(self) -> CloseReport:
        buffer = self._buffer
        delivered, released, discarded = self._before or (buffer.delivered, buffer.released, buffer.discarded)
        return CloseReport(buffer.delivered - delivered, buffer.released - released, buffer.discarded - discarded)

    def _tell(self) -> None:
        report = self._report()
        if report != CloseReport():
            emit(
                "consumer",
                "closed",
                f"closed the consumer of {self.destination.address}: {report.delivered} delivered, {report.released} released, "
                f"{report.discarded} discarded",
                level=logging.WARNING if report.discarded else logging.INFO,
                destination=self.destination.address,
                delivered=report.delivered,
                released=report.released,
                discarded=report.discarded,
            )

    def _after_call(self) -> None:
        if self._end_after_call and not (self._rest and self._queue):
            self._end()
        self._session.call_ended()

    def end_if_emptied(self) -> None:
        """Closed by another consumer's listener: end now, unless the listener is to have the rest first."""
        self._end_after_call = True
        if not (self._rest and self._queue):
            self._end()

    def note_closing(self) -> None:
        """A signal handler closes the session: a receive that waits returns None."""
        self._closing = True
        self._session.bell.ring()

    @property
    def quiesced(self) -> bool:
        """Fetches nothing any more."""
        return self._quiesced

    def __enter__(self) -> MessageConsumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.retry_in_hand()
        self.close()

    def __repr__(self) -> str:
        return f"<MessageConsumer {self.destination}{' closed' if self.closed else ''}>"
