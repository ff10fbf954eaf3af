"""The one I/O thread of a connection: it alone touches the engine and the socket; others tell it what to do.

Owns the order of a turn (what it was told, heartbeats, writing, waiting, reading), waking it, and its end. Must not know links
or messages. A command is handed over by one append to a deque and, only while the thread sleeps, one byte to its waker; so
settling costs nothing that would show. What is told to a thread that has ended is dropped; what is asked of it fails. Rules
O04, IF-40.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from jmsclient.clock import Clock
from jmsclient.errors import JmsClientError, RequestTimeoutError
from jmsclient_amqp.engine.connection import Engine
from jmsclient_amqp.engine.library import Condition, EngineError

T = TypeVar("T")

MOST_AT_ONCE = 1 << 20
"""Bytes that are read before the states are looked at."""
LONGEST_SLEEP = 1.0
"""Seconds. A command whose teller was struck by an exception before it woke the thread is found then."""
JOIN_TIMEOUT = 5.0


class Answer(Generic[T]):
    """What somebody waits for on another thread: given or failed once; what comes after that is ignored."""

    __slots__ = ("_bell", "_done", "_error", "_value")

    def __init__(self, clock: Clock) -> None:
        self._bell = clock.bell()
        self._done = False
        self._value: T | None = None
        self._error: Exception | None = None

    @property
    def done(self) -> bool:
        return self._done

    def give(self, value: T) -> None:
        if not self._done:
            self._value = value
            self._done = True
            self._bell.ring()

    def fail(self, error: Exception) -> None:
        if not self._done:
            self._error = error
            self._done = True
            self._bell.ring()

    def wait(self, clock: Clock, deadline: float | None, what: str) -> T:
        """Raises what it was failed with, or RequestTimeoutError."""
        while not self._done:
            left = clock.left(deadline)
            if left is not None and left <= 0:
                raise RequestTimeoutError(f"the broker did not answer in time: {what}")
            self._bell.wait(left)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # it was given


@runtime_checkable
class Waiting(Protocol):
    """What somebody waits for: told where the thread ended before it came to it."""

    def fail(self, error: Any) -> None:
        """It will not come. Any number of times."""


class Owner(Protocol):
    """What the loop works for."""

    def look(self) -> None:
        """New bytes have been processed, or a timer has run. Raises EngineError or JmsClientError where the connection is over."""

    def ended(self, error: Exception) -> None:
        """The thread is about to end. Once."""


class Loop:
    """See the module. `start` it once."""

    def __init__(self, connection: socket.socket, engine: Engine, clock: Clock, owner: Owner, name: str) -> None:
        self.clock = clock
        self.engine = engine
        self.error: Exception | None = None
        """Why nothing works any more; set once, before what waits is told."""
        self._connection = connection
        self._owner = owner
        self._commands: deque[tuple[Callable[[Any, Any], None], Any, Any]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_number = 0
        self._after_writing: deque[Callable[[], None]] = deque()
        self._asleep = False  # these two are the thread's:
        self._sleep = 0  # which sleep this is
        self._woken = 0  # the last sleep that somebody ended
        self._stopped: Exception | None = None
        self._wants_to_write = False
        self._encrypted = isinstance(connection, ssl.SSLSocket)
        self._wakeable, self._waker = socket.socketpair()
        self._wakeable.setblocking(False)
        self._waker.setblocking(False)
        self._connection.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._wakeable, select.POLLIN)
        self._poll.register(connection, select.POLLIN)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, already: bytes = b"") -> None:
        """`already`: bytes that the handshake read too much."""
        if already:
            self.tell(self._feed_early, already)
        self._thread.start()

    def _feed_early(self, data: bytes, _: Any) -> None:
        self.engine.incoming[: len(data)] = data
        self.engine.feed(len(data))
        self._owner.look()

    @property
    def here(self) -> bool:
        """The caller is the I/O thread, which must never wait."""
        return get_ident() == self._thread.ident

    # -- told by others ---------------------------------------------------------------------------------------------

    def tell(self, run: Callable[[Any, Any], None], first: Any = None, second: Any = None) -> None:
        """Have the thread call `run(first, second)`, in the order told. Any thread; returns at once."""
        self._commands.append((run, first, second))
        sleep = self._sleep
        if self._asleep and self._woken != sleep:
            try:
                self._waker.send(b"w")
            except OSError:  # it is full, so the thread will wake; or closed, so there is none
                pass
            self._woken = sleep  # after the byte, and of that sleep only: struck or late, it keeps nobody from waking the next

    def ask(self, start: Callable[[Answer[T], Any], None], deadline: float | None, what: str, argument: Any = None) -> T:
        """Have the thread call `start(answer, argument)` and wait until the answer is given. Raises what it fails with, and
        RequestTimeoutError."""
        return self.ask_with(Answer(self.clock), start, deadline, what, argument)

    def ask_with(
        self,
        answer: Answer[T],
        start: Callable[[Answer[T], Any], None],
        deadline: float | None,
        what: str,
        argument: Any = None,
    ) -> T:
        """As `ask`, with an answer of the caller's, who may have to name it later."""
        assert not self.here, f"the I/O thread was about to wait for itself: {what}"
        self.tell(start, answer, argument)
        if self.error is not None:
            answer.fail(self.error)
        return answer.wait(self.clock, deadline, what)

    def after(self, seconds: float, run: Callable[[], None]) -> None:
        """Call `run` so many seconds from now; on the thread itself."""
        self._timer_number += 1
        heappush(self._timers, (self.clock.monotonic() + seconds, self._timer_number, run))

    def after_writing(self, run: Callable[[], None]) -> None:
        """Call `run` when all that the engine has to say so far is on its way; on the thread itself. The engine writes the
        begin of a session before the settlements that it was told of earlier."""
        self._after_writing.append(run)

    def stop(self, error: Exception) -> None:
        """End the thread, in order; on the thread itself."""
        self._stopped = error

    def cut(self) -> None:
        """Break the socket as a pulled cable does. Any thread; for tests."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is broken already

    def join(self) -> None:
        if not self.here:
            self._thread.join(JOIN_TIMEOUT)

    # -- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._stopped is None:
                self._turn()
            error = self._stopped
        except (EngineError, JmsClientError, OSError) as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001  a fault of ours must not leave others waiting for ever
            error = failure
        self._end(error)

    def _turn(self) -> None:
        commands = self._commands
        for _ in range(len(commands)):
            run, first, second = commands.popleft()
            run(first, second)
        now = self.clock.monotonic()
        timers = self._timers
        while timers and timers[0][0] <= now:
            heappop(timers)[2]()
            self._owner.look()  # others may have waited for what this ended
        due = self.engine.tick(now)
        if timers:
            due = timers[0][0] if due is None else min(due, timers[0][0])
        self._write()
        while self._after_writing and not self._wants_to_write:
            self._after_writing.popleft()()
            self._write()
        if self._stopped is not None:
            return
        patience = LONGEST_SLEEP if due is None else min(max(due - now, 0.0), LONGEST_SLEEP)
        if self._encrypted and self._connection.pending():  # type: ignore[attr-defined]
            patience = 0.0
        self._sleep += 1
        self._asleep = True
        if commands:
            patience = 0.0
        ready = self._poll.poll(patience * 1000)
        self._asleep = False
        for descriptor, events in ready:
            if descriptor == self._wakeable.fileno():
                self._wakeable.recv(4096)
            elif events & ~select.POLLOUT:
                self._read()
                return
        if self._encrypted:
            self._read()

    def _read(self) -> None:
        """What the socket has, up to a bound: the states are looked at once for all of it, and whoever waits is woken once."""
        engine, encrypted = self.engine, self._encrypted
        room, read = len(engine.incoming), 0
        failure: Exception | None = None
        try:
            while read < MOST_AT_ONCE:
                count = self._connection.recv_into(engine.incoming)
                if not count:
                    break
                engine.feed(count)
                read += count
                if count < room and not encrypted:  # encrypted, one record comes at a time, however many there are
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not read:
                return
        except (OSError, EngineError) as error:
            failure = error
        if read:
            self._owner.look()  # a peer that cuts the connection may have said why before
        if failure is not None:
            raise failure
        if read:
            return
        engine.end_of_input()
        self._owner.look()
        engine.check()
        raise EngineError(Condition("amqp:connection:forced", "it was cut without a word"))

    def _write(self) -> None:
        engine = self.engine
        full = False
        while not full:
            data = engine.pending()
            if data is None:
                break
            try:
                sent = self._connection.send(data)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                full = True
            else:
                engine.sent(sent)
        if full != self._wants_to_write:
            self._wants_to_write = full
            self._poll.modify(self._connection, select.POLLIN | (select.POLLOUT if full else 0))

    def _end(self, error: Exception) -> None:
        try:
            self._write()  # what the engine has to say about it
        except (OSError, EngineError):
            pass
        self.error = error
        try:
            self._owner.ended(error)
        finally:
            while self._commands:
                _, first, _ = self._commands.popleft()
                if isinstance(first, Waiting):
                    first.fail(error if self.error is None else self.error)
            self._connection.close()
            self._wakeable.close()
            self._waker.close()
            self.engine.free()
