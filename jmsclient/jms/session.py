"""Session: what people hold; its dispatcher for listeners, and its end.

Built on three rooms: `guard` (one thread at a time), `settling` (what was handed over) and `making` (what a session makes).
Rules RA-20, RA-24, RA-25, IF-9, IF-14, IF-27, IF-36, IF-39, IF-40; Jakarta Messaging 3.1 section 6.2.
"""

from __future__ import annotations

import logging
import threading
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from jmsclient.clock import SystemBell
from jmsclient.errors import CloseTimeout, IllegalStateError, JmsClientError, RequestTimeoutError
from jmsclient.events import emit
from jmsclient.jms.consumer import LOOK_INTERVAL, MessageConsumer
from jmsclient.jms.dispatcher import dispatch_until_closed
from jmsclient.jms.guard import earlier
from jmsclient.jms.making import Making
from jmsclient.options import AcknowledgeMode

if TYPE_CHECKING:
    from jmsclient.jms.connection import Connection


class Session(Making):
    """Made by `Connection.create_session`. `close` of it and of what it made, listeners and statistics from any thread; the
    rest one thread at a time. `redelivery_delay` in seconds is read by `recover` and `rollback` (IF-14).

    A context manager: leaving it closes it, and what is uncommitted then in a TRANSACTED session is rolled back."""

    _complete = False  # nothing to close before it is

    def __init__(self, connection: Connection, acknowledge: AcknowledgeMode, *, redelivery_delay: float) -> None:
        super().__init__(connection, acknowledge, redelivery_delay)
        self.default_send_timeout = connection.default_send_timeout
        self.message_ids = connection.message_ids
        self._listening: tuple[MessageConsumer, ...] = ()  # these live on though the application forgot them
        self._complete = True

    def __del__(self) -> None:
        """Forgotten by the application (RA-25): a note for the keeper, which takes it up again and closes it. It takes no lock."""
        if self._complete and not self.closed:
            self.keeper.note(self._close_forgotten)

    def _close_forgotten(self) -> None:
        self.retry_in_hand()
        self._closing = True
        self._end(None)

    # -- the dispatcher ---------------------------------------------------------------------------------------------

    def adapt(self) -> None:
        """The connection started or stopped, a listener was set or ended, a consumer came or went: demand and ownership follow what
        is so now. Done on the keeper, one after the other, so whoever changes something last is seen (RA-21, IF-37)."""
        self.keeper.call(self._adapt)

    def _adapt(self) -> None:
        started = self.started and not self.closed
        for consumer in self.consumers:
            if not started:
                consumer.intake.stop()
            elif not consumer.quiesced:
                consumer.intake.start()
        self._listening = tuple(consumer for consumer in self.consumers if consumer.listening)
        if self._listening:
            self._start_dispatcher()
        dispatcher = self._dispatcher
        self.owner = dispatcher.ident or 0 if self._listening and started and dispatcher is not None else 0
        self.bell.ring()
        pause = SystemBell()
        while self.taking and not self.owner:  # what the dispatcher just takes is taken before the session is the application's
            pause.wait(LOOK_INTERVAL)

    def _start_dispatcher(self) -> None:
        if self._dispatcher is None and not self.closed:
            self.bell.listening = bell = self.clock.bell()
            dispatcher = threading.Thread(
                target=dispatch_until_closed, args=(self, bell), name=f"jmsclient-listener-{id(self):x}", daemon=True
            )
            self._dispatcher = dispatcher  # before it runs: a listener may ask at once whose thread it is
            dispatcher.start()

    # -- closing ----------------------------------------------------------------------------------------------------

    def consumer_closed(self, consumer: MessageConsumer) -> None:
        """It has given back what it had; its receiver stays while something of it is unsettled (IF-27)."""
        self.keeper.call(lambda: self._forget(consumer))

    def _forget(self, consumer: MessageConsumer) -> None:
        self._held = tuple(held for held in self._held if held() not in (None, consumer))
        self._connection.consumer_closed(consumer)
        self._linger(consumer)
        self._adapt()

    def in_thread(self, call: Callable[[], object]) -> None:
        """Run a close that a signal handler asked for; it may wait, so neither there nor on the keeper."""
        threading.Thread(target=_quietly, args=(call,), name="jmsclient-closer", daemon=True).start()

    def close(self, timeout: float | None = 30.0) -> None:
        """Close its consumers as their policies say, give back what is not acknowledged (as a counted attempt), roll back what
        is not committed, and end the dispatcher. Waits for running calls up to `timeout` seconds, then CloseTimeout: close it
        again. From any thread but its own listener's (IllegalStateError; JM 6.2.15); from a signal handler it only leaves a note.
        Closing twice does nothing.
        """
        if self.closed:
            return
        me = get_ident()
        if self.is_dispatcher(me):
            raise IllegalStateError("a listener cannot close its own session; close the consumer, or close it from another thread")
        self._closing = True
        if self.inside == me:
            self.keeper.note(lambda: self.in_thread(lambda: self.close(timeout)))
            for consumer in self.consumers:
                consumer.note_closing()
            return
        deadline = self.clock.deadline(timeout)
        late: CloseTimeout | None = None
        for consumer in self.consumers:
            try:
                consumer.close(timeout=self.clock.left(deadline))
            except CloseTimeout as error:
                late = error
        if late is not None:
            raise late
        self.close_on_keeper(lambda: self._end(deadline), deadline)
        dispatcher = self._dispatcher
        if dispatcher is not None:
            dispatcher.join(self.clock.left(deadline))

    def _end(self, deadline: float | None) -> None:
        """On the keeper: the provider takes back what was handed over and not acknowledged, as a counted attempt, and what is
        uncommitted; neither is delayed (IF-14). Then nothing names the session."""
        if self.closed:
            return
        for producer in self._producers:
            producer.close()
        for call in (self.transport_session.flush, self.transport_session.close):
            try:
                call(earlier(deadline, self.request_deadline()))
            except JmsClientError as error:
                if self._connection.failure is None:
                    emit("session", "close_failed", f"closing a session: {error}", level=logging.WARNING)
        self.closed = True
        self._connection.session_closed(self)
        self.bell.ring()

    # -- what the connection tells ----------------------------------------------------------------------------------

    def stopped(self, deadline: float | None) -> None:
        """The connection stopped: fetch nothing, wait for the running listener (JM 6.1.4). For the connection."""
        with suppress(RequestTimeoutError):  # nothing is handed over all the same, and demand ends when the keeper comes to it
            self.keeper.call(self._adapt, self.clock.left(deadline))
        pause = SystemBell()
        while self.calling is not None and not self.is_dispatcher(get_ident()):
            left = self.clock.left(deadline)
            if left is not None and left <= 0:
                raise CloseTimeout("stop: a listener is still running", listener_running=True)
            pause.wait(LOOK_INTERVAL)

    def lost(self, error: Exception) -> None:
        """The connection is gone for good: for the connection."""
        for consumer in self.consumers:
            consumer.intake.closed(error)
        self.bell.ring()

    def retry_in_hand(self) -> None:
        """An exception leaves the `with` block of the session or the connection (IF-39)."""
        for consumer in self.consumers:
            consumer.retry_in_hand()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.retry_in_hand()
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.acknowledge_mode.name}{' closed' if self.closed else ''}>"


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except JmsClientError as error:
        emit("session", "close_failed", f"a close asked for by a signal handler: {error}", level=logging.WARNING)
