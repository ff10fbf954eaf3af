"""The guard of a session: one thread at a time, who owns it, whether it still lives.

One thread at a time, by a try-lock: `inside` is the thread that is in a call. Testing and storing it are plain attribute steps
with no call between, and so is clearing it in `finally`: CPython switches threads and runs signal handlers only after calls and at
jumps back, so an exception from a signal handler can leave neither the try-lock held nor the test half done (IF-40). A second
thread gets IllegalStateError. While a listener is set and the connection started, `owner` is the dispatcher's thread. It must not
know how messages are made, received or settled. Rules IF-37, IF-40; Jakarta Messaging 3.1 section 6.2.5.
"""

from __future__ import annotations

import threading
import weakref
from _thread import get_ident
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from jmsclient.clock import Bell, Clock
from jmsclient.errors import CloseTimeout, IllegalStateError, RequestTimeoutError
from jmsclient.jms.hand_over import HandOver
from jmsclient.transport.capabilities import Capabilities

if TYPE_CHECKING:
    from jmsclient.jms.connection import Connection
    from jmsclient.jms.consumer import MessageConsumer

T = TypeVar("T")
CLOSE_SLACK = 0.5
"""Seconds past its timeout that a close waits for the keeper."""


def earlier(one: float | None, other: float | None) -> float | None:
    """The earlier of two deadlines; None is none."""
    return one if other is None else other if one is None else min(one, other)


class Bells(Bell):
    """The bell of a receive that waits, and of the dispatcher: two waiters for a while, where a listener is set while a receive
    waits, and a ring that one of them took would not wake the other."""

    __slots__ = ("_receiving", "listening")

    def __init__(self, clock: Clock) -> None:
        self._receiving = clock.bell()
        self.listening: Bell | None = None
        """Where the dispatcher waits, once there is one."""

    def ring(self) -> None:
        self._receiving.ring()
        if self.listening is not None:
            self.listening.ring()

    def wait(self, timeout: float | None = None) -> bool:
        return self._receiving.wait(timeout)


class Guard:
    """What `Session` is built on. The names with one underscore are shared by the rooms of a session, and by nobody else."""

    def __init__(self, connection: Connection) -> None:
        self.closed = False
        self.inside = 0
        self.owner = 0
        self.calling: HandOver | None = None
        self.taking = False
        """The dispatcher is inside, taking a message; not while it calls the listener."""
        self.clock = connection.clock
        self.keeper = connection.keeper
        self.request_timeout = connection.request_timeout
        self.bell = Bells(connection.clock)
        self._connection = connection
        self._closing = False
        self._held: tuple[weakref.ref[MessageConsumer], ...] = ()  # replaced whole, on the keeper only
        self._dispatcher: threading.Thread | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What the provider can do; another one after a failover may do other things."""
        return self._connection.capabilities

    @property
    def started(self) -> bool:
        """The connection delivers; read live, so that a start during creation is never missed (IF-37)."""
        return self._connection.started

    @property
    def connection(self) -> Connection:
        """Whose session it is."""
        return self._connection

    def hold(self, consumer: weakref.ref[MessageConsumer]) -> None:
        """One more consumer, held weakly; on the keeper."""
        self._held = (*self._held, consumer)

    @property
    def consumers(self) -> tuple[MessageConsumer, ...]:
        """Those that are open and not forgotten by the application (RA-25)."""
        return tuple(consumer for held in self._held if (consumer := held()) is not None)

    # -- the one thread ---------------------------------------------------------------------------------------------

    def busy_error(self) -> IllegalStateError:
        """For a second thread inside."""
        if self.owner not in (0, get_ident()):
            return self._owned_error()
        return IllegalStateError(
            f"this session is in use by thread {self.inside}; a session serves one thread at a time: make one session a thread"
        )

    def check_owner(self, thread: int) -> None:
        """Raise IllegalStateError where the session belongs to its dispatcher and `thread` is not that."""
        if self.owner not in (0, thread):
            raise self._owned_error()

    def _owned_error(self) -> IllegalStateError:
        return IllegalStateError(
            "a listener is set on this session, so it belongs to its dispatcher thread; use another session here"
        )

    def is_dispatcher(self, thread: int) -> bool:
        """Whether this is the thread that calls the listeners."""
        return self._dispatcher is not None and self._dispatcher.ident == thread

    def run_inside(self, call: Callable[[], T]) -> T:
        """Have `call` done as the one thread inside. Raises IllegalStateError as the module says, and as `check_alive`."""
        me = get_ident()
        self.check_open()
        self.check_owner(me)
        if self.inside:
            raise self.busy_error()
        self.inside = me
        try:
            return call()
        finally:
            self.inside = 0

    def run_shielded(self, call: Callable[[], T]) -> T:
        """`run_inside`, shielded from exceptions of signal handlers; an outage is waited for before that, where they may strike."""

        def inside() -> T:
            self._connection.transport.ready(self.request_deadline())
            return self.keeper.shielded(call)

        return self.run_inside(inside)

    def close_on_keeper(self, call: Callable[[], object], deadline: float | None) -> None:
        """One step of a close. It bounds itself by `deadline`; what the keeper has to do before it may not, so it is not waited for
        longer than `CLOSE_SLACK` past that: CloseTimeout (RA-19)."""
        left = self.clock.left(deadline)
        try:
            self.keeper.call(call, None if left is None else left + CLOSE_SLACK)
        except RequestTimeoutError as error:
            raise CloseTimeout(f"close: {error}; nothing is lost, close it again") from error

    # -- whether it lives -------------------------------------------------------------------------------------------

    def dead_error(self) -> IllegalStateError | None:
        """Why nothing works any more, where the connection ended by a fork."""
        failure = self._connection.failure
        return failure if isinstance(failure, IllegalStateError) else None

    @property
    def failed(self) -> bool:
        """The connection is gone for good."""
        return self._connection.failure is not None

    def check_alive(self) -> None:
        """Raise IllegalStateError on a closed session, ConnectionLostError on a lost connection."""
        if self._connection.failure is not None:
            raise self._connection.failure
        if self.closed:
            raise IllegalStateError("this session is closed")

    def check_open(self) -> None:
        """As `check_alive`, and IllegalStateError while it is being closed."""
        self.check_alive()
        if self._closing:
            raise IllegalStateError("this session is closed")

    def request_deadline(self) -> float | None:
        """Until when the provider is waited for from now on (monotonic)."""
        return self.clock.deadline(self.request_timeout)
