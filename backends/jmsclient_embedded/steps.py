"""Owns who executes a change of the broker, and when: the caller itself, or the broker's own thread.

Must not know what a step does. Source: architecture.md, "Threads, signals, finalizers"; rule IF-40. Every change is a *step*: a
call that runs under the one lock and never waits. A signal handler may raise between any two bytecodes of the main thread and
would leave a step half done, so the main thread only appends its steps to `_inbox` (one atomic call) and the broker's thread
takes them from there. While the inbox holds something, everyone's steps go there, so that what was handed over first happens first.

What need not be waited for is not: it is left to whoever has the lock (`left`), and they carry it out. A thread that waits for the
lock of one that waits for the interpreter gives the interpreter up; then the other waits for it with the lock in hand, and so on in
turns: two threads that take a lock often, change places at every step, at 10 us each.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any, Generic, TypeVar, cast

from jmsclient.clock import Bell, Clock
from jmsclient.errors import RequestTimeoutError
from jmsclient_embedded.bells import own_bell

T = TypeVar("T")
_logger = logging.getLogger("jmsclient.embedded")
_PAUSE_AFTER_FAULT = 1.0  # seconds
_STEPS_A_TURN = 256  # steps that the broker's thread takes under one hold of the lock


class Answer(Generic[T]):
    """What a step that someone waits for comes to. One waiter, the thread that makes it; given once, later ones are ignored.

    `ring` is called under the broker's lock with a bell that is to be rung when that is free; None: it is rung at once."""

    __slots__ = ("_bell", "_clock", "_error", "_given", "_ring", "_value", "_waiter")

    def __init__(self, clock: Clock, ring: Callable[[Bell], None] | None = None) -> None:
        self._clock = clock
        self._ring = ring
        self._bell: Bell = own_bell(clock)
        self._waiter = get_ident()
        self._value: T | None = None
        self._error: BaseException | None = None
        self._given = False

    def another(self) -> Answer[T]:
        """One more for the same waiter, on the same clock."""
        made: Answer[T] = Answer(self._clock, self._ring)
        made._bell, made._waiter = self._bell, self._waiter
        return made

    @property
    def given(self) -> bool:
        """Whether it is answered."""
        return self._given

    def give(self, value: T | None = None) -> None:
        """Answer it. Any thread, under the broker's lock too."""
        if not self._given:
            self._value = value
            self._given = True
            if self._waiter == get_ident():
                return  # it looks before it waits
            if self._ring is None:
                self._bell.ring()
            else:
                self._ring(self._bell)

    def fail(self, error: BaseException) -> None:
        """Answer it with an error, raised in the waiter."""
        if not self._given:
            self._error = error
            self.give()

    def wait_until(self, deadline: float | None) -> bool:
        """Wait for it, at most until `deadline` (monotonic; None: no limit); whether it is answered."""
        while not self._given:
            if not self._bell.wait(self._clock.left(deadline)) and not self._given:
                return False
        return True

    def wait(self, deadline: float | None, what: str = "an answer") -> T:
        """Wait for it. Raises what it failed with, or RequestTimeoutError past `deadline` (monotonic; None: no limit)."""
        while not self._given:
            if not self._bell.wait(self._clock.left(deadline)) and not self._given:
                raise RequestTimeoutError(f"the embedded broker did not give {what} in time")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)


def _nothing() -> None:
    pass


class Steps:
    """The lock, the inbox and the thread. `after` is called at the end of each hold of the lock and returns what is to be done
    outside it; `serve` is called by the thread on each turn and returns seconds until it must be called again, or None; `ended`
    is the last that the thread calls. `gathered` is what was handed over without a step, for `carry_out` to do at the beginning
    of the next one; `left` the same, and done at once: by whoever has the lock, or by `carry_out_left`."""

    def __init__(
        self,
        clock: Clock,
        name: str,
        *,
        after: Callable[[], Callable[[], None] | None],
        serve: Callable[[], float | None],
        ended: Callable[[], None],
        gathered: deque[Any] | None = None,
        left: deque[Any] | None = None,
        carry_out: Callable[[], None] = _nothing,
    ) -> None:
        self.lock = threading.Lock()
        self.left: deque[Any] = deque() if left is None else left
        self._gathered: deque[Any] = deque() if gathered is None else gathered
        self._carry_out = carry_out
        self.clock = clock
        self.bell = clock.bell()
        self._after = after
        self._serve = serve
        self._last = ended
        self._inbox: deque[Callable[[], object]] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._ending = False
        self.ended = False
        self._thread = threading.Thread(target=self._run, name=f"jmsclient-embedded-{name}", daemon=True)
        self._main = threading.main_thread().ident

    def start(self) -> None:
        """Start the thread; before that no step may be given."""
        self._thread.start()

    # -- from any thread -------------------------------------------------------------------------------------------

    def by_caller(self) -> bool:
        """Whether this thread carries out its steps itself, now."""
        me = get_ident()
        return (me != self._main and not self._inbox) or me == self._thread.ident

    @property
    def backlog(self) -> int:
        """Steps that were handed over and are not done."""
        return len(self._inbox)

    def tell(self, step: Callable[[], object]) -> None:
        """Have `step` done; returns at once. It must not raise."""
        if self.by_caller():
            self.perform(step)
        else:
            self._hand_over(step)

    def ask(self, step: Callable[[], T], deadline: float | None = None) -> T:
        """Have `step` done and wait for what it returns or raises."""
        if self.by_caller():
            return self.perform(step)
        answer: Answer[T] = Answer(self.clock)

        def answered() -> None:
            try:
                answer.give(step())
            except Exception as error:  # noqa: BLE001  raised again in the waiter
                answer.fail(error)

        self._hand_over(answered)
        return answer.wait(deadline)

    def call(self, action: Callable[[], None]) -> None:
        """Have `action` called on the broker's thread, outside the lock; returns at once."""
        self._calls.append(action)
        self.bell.ring()

    def perform(self, step: Callable[[], T]) -> T:
        """Do it on this thread, which must not be the main one."""
        rest: Callable[[], None] | None = None
        try:
            with self.lock:
                if self._gathered or self.left:
                    self._carry_out()
                try:
                    return step()
                finally:
                    rest = self._after()
        finally:
            if rest is not None:
                rest()
            if self.left:
                self.carry_out_left()

    def carry_out_left(self) -> None:
        """Whoever left something, and whoever gave the lock back, calls this, so that one of the two finds the lock free."""
        while self.left and self.lock.acquire(blocking=False):
            try:
                self._carry_out()
                rest = self._after()
            finally:
                self.lock.release()
            if rest is not None:
                rest()

    def end(self) -> None:
        """Have the thread end after it served once more; what comes later is done by its caller."""
        self._ending = True
        self.bell.ring()

    def join(self, timeout: float | None) -> bool:
        """Wait until the thread has ended (seconds of real time)."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _hand_over(self, step: Callable[[], object]) -> None:
        self._inbox.append(step)
        if self.ended:
            self._empty_inbox()
        else:
            self.bell.ring()

    def _run(self) -> None:
        while True:
            ending = self._ending
            self._empty_inbox()
            while self._calls:
                self._call(self._calls.popleft())
            wait = self._served()
            if ending:
                break
            if not self._inbox and not self._calls:
                self.bell.wait(wait)
        try:
            self._last()
        finally:
            self.ended = True
        self._empty_inbox()

    def _served(self) -> float | None:
        """A fault while serving is told and tried again: a thread that died of it would leave everyone waiting for ever."""
        try:
            return self._serve()
        except Exception:
            _logger.exception("the embedded broker failed to serve what was due; it tries again")
            return _PAUSE_AFTER_FAULT

    def _call(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            _logger.exception("a call of the embedded broker failed")

    def _empty_inbox(self) -> None:
        inbox = self._inbox
        while inbox:
            with self.lock:
                count = min(len(inbox), _STEPS_A_TURN)  # looked at first: what was left before one of these comes before it
                if self._gathered or self.left:
                    self._carry_out()
                for _ in range(count):
                    step = inbox[0]
                    try:
                        step()
                    except Exception:
                        _logger.exception("a step of the embedded broker failed")
                    inbox.popleft()  # after it is done: until then other threads' steps queue up behind it
                rest = self._after()
            if rest is not None:
                rest()
            self.carry_out_left()
