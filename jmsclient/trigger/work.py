"""One delivery on its way through a trigger, and the threads that run it.

A `Work` is touched by the pipeline thread, then by one handler thread, then by the pipeline thread again; the hand-over is the
queue's, so it needs no lock. Threads are named and end when told.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from jmsclient.clock import Bell
from jmsclient.history.entries import Entry
from jmsclient.message import Message
from jmsclient.transport.contract import Arrival
from jmsclient.trigger.decision import AskResolver


class Work:
    """`id` and `source` are None where the message has no id or is not checked; `token` owns its claim while `claimed`;
    `unrecorded` runs although the history cannot be asked."""

    __slots__ = (
        "answer",
        "arrival",
        "attempt",
        "claimed",
        "entry",
        "error",
        "fencing_token",
        "given_up",
        "id",
        "lease_until",
        "message",
        "question",
        "renew_at",
        "renew_until",
        "retries",
        "retry_at",
        "source",
        "started",
        "token",
        "unrecorded",
    )

    def __init__(self, arrival: Arrival, message: Message, id: str | None, source: str | None, token: str) -> None:  # noqa: A002
        self.arrival = arrival
        self.message = message
        self.id = id
        self.source = source
        self.token = token
        self.attempt = 1
        self.claimed = False
        self.entry: Entry | None = None
        self.fencing_token = 0
        self.started = 0.0
        self.renew_at: float | None = None
        self.renew_until: float | None = None
        self.retries = 0
        self.retry_at: float | None = None
        self.lease_until = 0.0
        self.error: BaseException | None = None
        self.question: AskResolver | None = None
        self.answer: Any = None
        self.given_up = False
        self.unrecorded = False


class HandlerThreads:
    """A fixed number of threads that run work through one queue; results come back in `finished`, and the bell is rung.

    The first waiting thread takes the next work, so no thread idles while another has one waiting (TR-62).
    """

    def __init__(self, name: str, number: int, execute: Callable[[Work], None], bell: Bell) -> None:
        self.finished: deque[Work] = deque()
        self._execute = execute
        self._bell = bell
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        # Daemons: a handler that never returns must not keep the process alive after the grace period (O01).
        self._threads = [
            threading.Thread(target=self._run, name=f"jmsclient-{name}-handler-{index + 1}", daemon=True) for index in range(number)
        ]

    def begin(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def start(self, works: Sequence[Work]) -> None:
        for work in works:
            self._queue.put(work)

    def stop(self, timeout: float | None) -> bool:
        """End the threads once their work is done; True when all have ended in `timeout` seconds each."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            self._execute(work)
            self.finished.append(work)
            self._bell.ring()
