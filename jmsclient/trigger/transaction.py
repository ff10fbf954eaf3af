"""The transaction of one handler of a transacted trigger: claim → handler → commit → completed (TR-37, TR-62).

What the handler sends through its Session or `Delivery.send`, and the acceptance of its message, are one transaction, which is
committed when it has returned and rolled back when it raised. The session is the lane's own: it receives, and the handler sends on
it, which it is lent for that. It must not know the history: what became of a commit is the result of the work.
"""

from __future__ import annotations

import logging
from _thread import get_ident
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TypeVar

from jmsclient.clock import Clock, SystemBell
from jmsclient.errors import (
    ConnectionLostError,
    IllegalStateError,
    JmsClientError,
    RequestTimeoutError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsclient.events import emit
from jmsclient.jms.connection import Connection
from jmsclient.jms.session import Session
from jmsclient.options import AcknowledgeMode, ConnectionOptions
from jmsclient.transport.contract import ACCEPT, Transport
from jmsclient.trigger.work import Work

CLOSED_BEFORE = "the trigger was disabled or stopped before the commit"
BY_TRIGGER = "the trigger does that when its handler has ended; raise to have the transaction rolled back"
NOT_LENT = (
    "this session is lent to a handler until that returns, and that of a plain function serves its thread only; elsewhere send "
    "with a producer of your own connection"
)
NOBODY = -1
"""No thread."""
LOOK_INTERVAL = 0.001

T = TypeVar("T")
_RUN: ContextVar[object] = ContextVar("run")
"""Which run of a handler a task belongs to: what that began inherits it, and keeps it when it is over."""


class RolledBackError(IllegalStateError):
    """The handler asked for a rollback: its message comes again, as a planned redelivery (TR-46)."""


class BorrowedConnection(Connection):
    """A Connection on a transport that is a worker's and is not closed with it."""

    def __init__(self, transport: Transport, name: str, clock: Clock, request_timeout: float) -> None:
        self._begin(name, clock, request_timeout, ConnectionOptions(), None)
        self.started = True
        self.transport = transport
        self.default_send_timeout = request_timeout

    def _announce_end(self) -> None:
        """The worker's link is not at its end."""

    def _end(self, deadline: float | None) -> None:
        self.started = False
        self.closed = True

    def __repr__(self) -> str:
        return "<Connection of a worker>"


class HandlerSession(Session):
    """What a handler is given by the annotation `Session`: it may send, receive and browse. `rollback()` has all of it undone and
    the message delivered again, New, when the handler has returned.

    It is the same for each message of its lane, so it is lent: between two handlers it is nobody's, and a plain function has it for
    its own thread. What came to be inside before it was taken back is waited for, and belongs to the transaction.
    """

    rolled_back = False
    _lent_to = NOBODY
    _dispatching = 0
    _run: object = None

    def __init__(self, connection: BorrowedConnection) -> None:
        super().__init__(connection, AcknowledgeMode.TRANSACTED, redelivery_delay=0.0)

    @property
    def owner(self) -> int:
        """The only thread that it serves; 0: any."""
        if self._dispatching:
            return self._dispatching
        return self._lent_to if _RUN.get(self._run) is self._run else NOBODY

    @owner.setter
    def owner(self, dispatching: int) -> None:
        self._dispatching = dispatching

    def lend(self, thread: int) -> None:
        """To the handler that is called next, on this thread and in this context; 0: to whatever threads it uses."""
        self._run = run = object()
        _RUN.set(run)
        self._lent_to = thread

    def take_back(self, deadline: float | None) -> None:
        """From now on every call raises; who is inside is waited for until `deadline`."""
        self._lent_to = NOBODY
        pause = SystemBell()
        while self.inside and self.clock.left(deadline) != 0.0:
            pause.wait(LOOK_INTERVAL)

    def run_inside(self, call: Callable[[], T]) -> T:
        """See `Guard.run_inside`: it may have been taken back between the look at the owner and the step inside."""

        def inside() -> T:
            self.check_owner(get_ident())
            return call()

        return super().run_inside(inside)

    def _owned_error(self) -> IllegalStateError:
        return super()._owned_error() if self._dispatching else IllegalStateError(NOT_LENT)

    def commit(self) -> None:
        """Raises IllegalStateError: the trigger commits."""
        raise IllegalStateError(f"commit: {BY_TRIGGER}")

    def rollback(self) -> None:
        """Asks for it: see the class."""
        self.run_inside(self._ask_for_rollback)

    def _ask_for_rollback(self) -> None:
        self.rolled_back = True

    def undo(self) -> None:
        """Roll back what the handler left, while it is nobody's; a stray thread that is about to be refused is not in the way."""
        if not self._lost():
            self.check_open()
            self.keeper.call(self._rollback)

    def close(self, timeout: float | None = 30.0) -> None:
        """Raises IllegalStateError: the session is the trigger's."""
        raise IllegalStateError(f"close: {BY_TRIGGER}")


class Transaction:
    """One at a time, of one lane. `commit` and `rollback` are called where the handler ran, `settle_now` by the pipeline while no
    handler runs; never two at once."""

    def __init__(self, transport: Transport, name: str, clock: Clock, request_timeout: float) -> None:
        self._clock = clock
        self._timeout = request_timeout
        self._connection = BorrowedConnection(transport, name, clock, request_timeout)
        try:
            self.session = HandlerSession(self._connection)
        except BaseException:
            self._connection.keeper.stop()
            raise
        self.transport_session = self.session.transport_session
        self._ended = False  # by a commit that failed
        self._closed = False

    def lend(self, *, to_one_thread: bool) -> HandlerSession:
        """The session, for the handler that is called next; by its thread, and only on that if so asked."""
        self.session.lend(get_ident() if to_one_thread else 0)
        return self.session

    def take_back(self) -> None:
        """The handler has ended, or is not called after all."""
        self.session.take_back(self._clock.deadline(self._timeout))

    def commit(self, works: Sequence[Work]) -> None:
        """Accept these, and commit all that was sent. Raises RolledBackError where the handler asked for that (nothing is accepted
        then), TransactionRolledBackError where the provider did it (it has the messages back), TransactionInDoubtError."""
        self.take_back()
        if self.session.rolled_back:
            raise RolledBackError("the handler rolled its transaction back")
        try:
            self._accept_and_commit(works)
        except IllegalStateError as error:
            if self._closed:
                raise TransactionRolledBackError(f"{CLOSED_BEFORE}: {error}") from error
            raise

    def _accept_and_commit(self, works: Sequence[Work]) -> None:
        for work in works:
            if work.parked is None:  # a parked copy is the history's
                self.transport_session.enlist(work.arrival)
                work.arrival.receiver.settle((work.arrival,), ACCEPT)
        self._ended = True
        self._commit()
        self._ended = False

    def settle_now(self) -> None:
        """Commit what was accepted without a handler: Duplicates, parked and dead-lettered messages. Where that fails they come
        again, and are what they were."""
        try:
            self._commit()
        except (TransactionRolledBackError, TransactionInDoubtError) as error:
            emit("trigger", "settlement_undone", f"{error}: what was acknowledged may come again", level=logging.WARNING)

    def _commit(self) -> None:
        try:
            self.transport_session.commit(self._clock.deadline(self._timeout))
        except ConnectionLostError as error:
            raise TransactionRolledBackError(f"the connection was lost before the commit: {error}") from error
        except RequestTimeoutError as error:
            raise TransactionInDoubtError(f"the provider did not answer the commit in time: {error}") from error

    def failed(self, error: BaseException) -> None:
        """The handler raised, or its commit did: undo what it sent and received, unless the provider has or nobody knows. The
        message itself is not in the transaction then."""
        self.take_back()
        self.session.rolled_back = False
        ended, self._ended = self._ended, False
        if self._closed:
            return  # its close has undone it
        if ended and isinstance(error, TransactionRolledBackError | TransactionInDoubtError):
            return  # one of a send says only that the link was lost
        try:
            self.session.undo()
        except JmsClientError as failure:  # the link is gone, and with it the transaction
            emit("trigger", "rollback_failed", f"a transaction cannot be rolled back: {failure}", level=logging.WARNING)

    def close(self) -> None:
        """Close the session: what is open is rolled back, what is unsettled goes back. Idempotent."""
        self._closed = True
        Session.close(self.session, 5.0)
        self._connection.close()
