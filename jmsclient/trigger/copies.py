"""Copies on their way to an error destination: a send may wait for room, and nothing else of the trigger waits for it (TR-45).

They go out one after the other, in the order in which they were asked for, on a thread that lives while there are any. What became
of each is carried out in the pipeline's next turn, so that only that touches the history and the settlements. It must not know why
a copy is sent. `send`, `watch` and `stop` belong to whoever has the pipeline's turn.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jmsclient.clock import Clock
from jmsclient.destination import Destination
from jmsclient.errors import JmsClientError
from jmsclient.message import Message

WAIT_FOR_ROOM = 30.0
"""Seconds from when a copy was asked for: those behind one that is blocked do not wait for as long again."""

SendCopy = Callable[[Destination, Message, dict[str, Any], float | None], None]
"""Send this with these properties, confirmed, until a time (monotonic)."""
Done = Callable[[JmsClientError | None], None]
"""Called when all of it is confirmed, or with why it is not."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Of one delivery: one message, or those of a set."""

    destination: Destination
    messages: Sequence[Message]
    properties: dict[str, Any]
    deadline: float | None
    done: Done


class Copies:
    """`send_copy` sends one, on the thread that is here; `ring` wakes the pipeline."""

    def __init__(self, name: str, clock: Clock, send_copy: SendCopy, ring: Callable[[], None]) -> None:
        self._name = name
        self._clock = clock
        self._send_copy = send_copy
        self._ring = ring
        self._lock = threading.Lock()  # guards the next two, held for that only
        self._waiting: deque[Copy] = deque()
        self._sending = False
        """There is a thread, and it will look again."""
        self._answers: deque[tuple[Copy, BaseException | None]] = deque()  # append and popleft are atomic: no lock

    def send(self, destination: Destination, messages: Sequence[Message], properties: dict[str, Any], done: Done) -> None:
        """Returns at once; `done` is called by a later `watch`."""
        copy = Copy(destination, messages, properties, self._clock.deadline(WAIT_FOR_ROOM), done)
        with self._lock:
            self._waiting.append(copy)
            if self._sending:
                return
            self._sending = True
        threading.Thread(target=self._run, name=f"jmsclient-{self._name}-copies", daemon=True).start()

    def watch(self) -> None:
        """Carry out what has been answered. Raises what is no error of a send."""
        while self._answers:
            copy, error = self._answers.popleft()
            if error is not None and not isinstance(error, JmsClientError):
                raise error
            copy.done(error)

    def stop(self) -> None:
        """Begin with no further one. That on its way is not waited for: it ends when its session is closed."""
        with self._lock:
            self._waiting.clear()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._sending = False
                    return
                copy = self._waiting.popleft()
            error: BaseException | None = None
            try:
                for message in copy.messages:
                    self._send_copy(copy.destination, message, copy.properties, copy.deadline)
            except BaseException as failure:  # noqa: BLE001  the pipeline says what becomes of it
                error = failure
            self._answers.append((copy, error))
            self._ring()
