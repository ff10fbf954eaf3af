"""Owns the threads that make one client's calls: as many as wait at the same time, a bounded number, none while nothing is called.

Must not know what a call does. A call may wait (for room, for the store, for a drain), and must not hold up what comes after it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

from jmsclient_embedded.attach.frames import ProtocolError

MAX_THREADS = 32
"""Calls of one client that may wait at the same time; more wait for their turn."""
MAX_WAITING = 10_000
IDLE_SECONDS = 5.0
_logger = logging.getLogger("jmsclient.embedded")


class Calls:
    """Thread-safe. `name` is the threads'."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the three below
        self._unfinished = 0
        self._made = 0
        self._threads: set[threading.Thread] = set()

    def make(self, call: Callable[[], None]) -> None:
        """Have it made soon, on another thread. Raises ProtocolError where MAX_WAITING are waiting already."""
        with self._lock:
            if self._unfinished >= MAX_WAITING:
                raise ProtocolError(f"{MAX_WAITING} questions are not answered yet")
            self._unfinished += 1
            if len(self._threads) < min(self._unfinished, MAX_THREADS):
                self._made += 1
                thread = threading.Thread(target=self._run, name=f"{self._name}-call-{self._made}", daemon=True)
                self._threads.add(thread)
                thread.start()
        self._queue.put(call)

    def end(self, timeout: float) -> None:
        """Make what was asked for, then end the threads; one that still waits after `timeout` seconds ends when it has waited."""
        with self._lock:
            threads = list(self._threads)
        limit = time.monotonic() + timeout
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, limit - time.monotonic()))

    def _run(self) -> None:
        while True:
            try:
                call = self._queue.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._leave():
                    return
                continue
            if call is None:
                return
            try:
                call()
            except Exception:  # a call answers what it raises; this is a fault of ours, and the others go on
                _logger.exception("a call of an attached process failed")
            with self._lock:
                self._unfinished -= 1

    def _leave(self) -> bool:
        """Whether the calls there are need this thread no more."""
        with self._lock:
            spare = self._unfinished < len(self._threads)
            if spare:
                self._threads.discard(threading.current_thread())
        return spare
