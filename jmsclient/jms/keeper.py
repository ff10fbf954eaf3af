"""A connection's keeper: the thread that does what must not be interrupted, and what a signal handler or finalizer only notes.

Exceptions from signal handlers strike in the main thread between any two bytecodes (IF-40). So whatever changes several things at
once (open, drain, close) runs here when the main thread asks for it, and the main thread only waits; struck while it waits, it
leaves, and the work is done all the same. Notes are appended to a deque and need no lock. Nothing here waits for application
code, for that may wait for the keeper.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from jmsclient.clock import SYSTEM_CLOCK, Clock, SystemBell
from jmsclient.errors import RequestTimeoutError
from jmsclient.events import emit

T = TypeVar("T")


class _Task:
    """One piece of work and its outcome; `done` is stored last."""

    __slots__ = ("bell", "call", "done", "error", "result")

    def __init__(self, call: Callable[[], Any], bell: SystemBell | None) -> None:
        self.call = call
        self.bell = bell
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False

    def run(self) -> None:
        try:
            self.result = self.call()
        except BaseException as error:  # noqa: BLE001  told to whoever waits, or as an event
            self.error = error
            if self.bell is None:
                emit("keeper", "note_failed", f"{type(error).__name__}: {error}", level=logging.ERROR)
        self.done = True
        if self.bell is not None:
            self.bell.ring()


class Keeper:
    """See the module. Thread-safe."""

    def __init__(self, name: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._tasks: deque[_Task] = deque()
        self._timed: list[tuple[float, int, Callable[[], object]]] = []  # a heap, touched on the keeper only
        self._numbered = 0
        self._clock = clock
        self._bell = clock.bell()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"jmsclient-{name}-keeper", daemon=True)
        self._thread.start()

    def note(self, call: Callable[[], Any]) -> None:
        """Have it done soon. From anywhere, signal handlers and finalizers included; never blocks."""
        self._tasks.append(_Task(call, None))
        self._bell.ring()

    def at(self, due: float, call: Callable[[], object]) -> None:
        """Have it done at `due` (monotonic) or soon after; never where the keeper ends before. From anywhere; never blocks."""
        self.note(lambda: self._remember(due, call))

    def _remember(self, due: float, call: Callable[[], object]) -> None:
        self._numbered += 1
        heapq.heappush(self._timed, (due, self._numbered, call))

    def call(self, call: Callable[[], T], timeout: float | None = None) -> T:
        """Have it done on the keeper's thread and wait for what it returns or raises. One call after the other. RequestTimeoutError
        where it is not done within `timeout` seconds (None: no limit), for others are; it is done all the same."""
        if threading.get_ident() == self._thread.ident:
            return call()
        task = _Task(call, SystemBell())
        self._tasks.append(task)
        self._bell.ring()
        deadline = SYSTEM_CLOCK.deadline(timeout)
        while not task.done:
            assert task.bell is not None
            left = SYSTEM_CLOCK.left(deadline)
            if not task.bell.wait(1.0 if left is None else min(1.0, left)) and not task.done:
                if not self._thread.is_alive():
                    return call()  # the keeper ended in between (a closed connection): do it here
                if left is not None and left <= 1.0:
                    raise RequestTimeoutError("what was asked for before is not done yet, for the provider does not answer")
        if task.error is not None:
            raise task.error
        result: T = task.result
        return result

    def shielded(self, call: Callable[[], T]) -> T:
        """As `call` from the main thread, where exceptions from signal handlers strike; from any other, at once and here."""
        if threading.get_ident() == threading.main_thread().ident:
            return self.call(call)
        return call()

    def stop(self) -> None:
        """End the thread after the notes that are there; waits for it unless it is the caller."""
        self._stopping = True
        self._bell.ring()
        if threading.get_ident() != self._thread.ident:
            self._thread.join(5.0)

    def _run(self) -> None:
        while True:
            try:
                task = self._tasks.popleft()
            except IndexError:
                if self._stopping:
                    return
                self._wait_or_run_due()
                continue
            task.run()
            del task

    def _wait_or_run_due(self) -> None:
        timed = self._timed
        if not timed:
            self._bell.wait()
        elif timed[0][0] > (now := self._clock.monotonic()):
            self._bell.wait(timed[0][0] - now)
        else:
            _Task(heapq.heappop(timed)[2], None).run()
