"""Ends a call to a database server that does not answer, by closing its socket (TR-49): a driver would wait for ever.

One thread a history, started by its first call to a server; idle while there is none. Must not know what the call is for.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jmsclient.clock import Clock
from jmsclient.history.sql_source import below, driver_of


class Watchdog:
    """Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bell = clock.bell()
        self._lock = threading.Lock()  # guards _calls and the start of the thread; held without I/O but the shutdown of a socket
        self._calls: dict[int, tuple[float, int]] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def limit(self, connection: Any, seconds: float) -> Iterator[None]:
        """What is waited for on this connection inside the block fails after so many seconds. SQLite needs no server."""
        if driver_of(connection) == "sqlite3":
            yield
            return
        number = next(self._numbers)
        with self._lock:
            idle = not self._calls
            self._calls[number] = (self._clock.monotonic() + seconds, below(connection).fileno())
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="jmsclient-history-watchdog", daemon=True)
                self._thread.start()
        if idle:
            self._bell.ring()
        try:
            yield
        finally:
            with self._lock:
                self._calls.pop(number, None)

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._closed = True
        self._bell.ring()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._closed:
            with self._lock:
                now = self._clock.monotonic()
                for number in [number for number, (due, _) in self._calls.items() if due <= now]:
                    _, file = self._calls.pop(number)
                    _shut(file)
                earliest = min((due for due, _ in self._calls.values()), default=None)
            self._bell.wait(None if earliest is None else max(0.0, earliest - now))


def _shut(file: int) -> None:
    """The lock is held, so the call has not ended and the file is still its socket."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(file)) as one:
        one.shutdown(socket.SHUT_RDWR)
