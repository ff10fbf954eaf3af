"""Where plain handlers of a concurrent trigger run: a fixed number of threads. It must not know what they run (TR-62)."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence

from jmsclient.trigger.batch import Item


class HandlerThreads:
    """A fixed number of threads that run work off one queue.

    Whoever is free takes the next work, so no thread idles while another has one waiting (TR-62). A group wakes one thread, and a
    thread that leaves work behind wakes the next before it runs its own: handlers that wait get a thread each, and those that
    return at once are not paid for with a wake-up each.
    """

    def __init__(self, name: str, number: int, execute: Callable[[Item], None], done: Callable[[Item], None]) -> None:
        self._execute = execute
        self._done = done
        self._works: deque[Item] = deque()  # append and popleft are atomic: no lock
        self._wakes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._waking = False
        """A thread was woken and has not looked yet; stored before the wake and cleared before the look, so none is missed."""
        # Daemons: a handler that never returns must not keep the process alive after the grace period (O01).
        self._threads = [
            threading.Thread(target=self._run, name=f"jmsclient-{name}-handler-{index + 1}", daemon=True) for index in range(number)
        ]

    @property
    def inside(self) -> bool:
        """Whoever asks is on one of them."""
        return threading.current_thread() in self._threads

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def start(self, items: Sequence[Item]) -> None:
        self._works.extend(items)
        self._wake()

    def stop(self, timeout: float | None) -> None:
        for _ in self._threads:
            self._wakes.put(False)
        for thread in self._threads:
            thread.join(timeout)

    def _wake(self) -> None:
        if not self._waking:
            self._waking = True
            self._wakes.put(True)

    def _run(self) -> None:
        works = self._works
        going_on = True
        while going_on:
            going_on = self._wakes.get()
            self._waking = False
            while works:
                try:
                    item = works.popleft()
                except IndexError:
                    break
                if works:
                    self._wake()
                self._execute(item)
                self._done(item)
