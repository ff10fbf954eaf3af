"""The keeper of a worker's inline handlers: it stands in while a pipeline's own thread is inside one.

A serial trigger runs its handler on its pipeline thread, for two changes of thread a message would cost more than all else.
Meanwhile leases have to be renewed and a stop, a suspension or a disable carried out: that is done here, never at the same time as
the pipeline's own thread, for whoever takes a turn holds the pipeline's lock. It knows nothing of what a turn is. Architecture
"Threads"; rules TR-40, TR-61.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from jmsclient.clock import Clock

LONGEST_PAUSE = 0.5
SHORTEST_PAUSE = 0.01

TakeTurn = Callable[[], float | None]
"""Does what is due, if the pipeline's thread is in a handler; seconds until something is due again, None: not known."""


class StandIn:
    """One thread a worker, from the first `add` to `stop`. Thread-safe; `ring` also from signal handlers."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._bell = clock.bell()
        self._turns: tuple[TakeTurn, ...] = ()
        self._interval = LONGEST_PAUSE
        self._lock = threading.Lock()  # guards the start of the thread and the list, held for that only
        self._thread: threading.Thread | None = None
        self._stopping = False

    def add(self, turn: TakeTurn, interval: float) -> None:
        """One more pipeline to stand in for, looked at every `interval` seconds at least."""
        with self._lock:
            self._turns = (*self._turns, turn)
            self._interval = max(SHORTEST_PAUSE, min(self._interval, interval))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"jmsclient-{self._name}-stand-in", daemon=True)
                self._thread.start()
        self._bell.ring()

    def remove(self, turn: TakeTurn) -> None:
        """Its pipeline has ended."""
        with self._lock:
            self._turns = tuple(one for one in self._turns if one != turn)

    def ring(self) -> None:
        """Something was asked of a pipeline: look at once."""
        self._bell.ring()

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._bell.ring()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    def _run(self) -> None:
        pause = self._interval
        while True:
            self._bell.wait(pause)
            if self._stopping:
                return
            due = [left for turn in self._turns if (left := turn()) is not None]
            pause = min(self._interval, max(SHORTEST_PAUSE, min(due, default=LONGEST_PAUSE)))
