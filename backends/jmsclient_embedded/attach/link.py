"""Owns the link of an attached process to the holder of a store: what is asked and its answers, the order of what comes, its end.

Must not know what is asked. Three threads: one writes, one reads, one pushes to the sinks, so that a sink may ask and wait while it
is being called. What must come after all that arrived before (the end of a drain, of a receiver) is answered by the pushing thread.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jmsclient.clock import Clock, SystemBell
from jmsclient.errors import ConnectionLostError, IllegalStateError
from jmsclient_embedded.attach.frames import Frame, ProtocolError, encode
from jmsclient_embedded.attach.values import error_from_json, from_json, to_json
from jmsclient_embedded.attach.wire import Wire
from jmsclient_embedded.steps import Answer

_logger = logging.getLogger("jmsclient.embedded")
Pushed = Callable[[Frame], None]


class Link:
    """Thread-safe. `lost` is called once, on the reading thread, where the link ends without `close`."""

    def __init__(self, where: str, clock: Clock, lost: Callable[[ConnectionLostError], None]) -> None:
        self.clock = clock
        self.error: ConnectionLostError | None = None
        self.closed = False
        self.wire: Wire
        self.receivers: dict[int, Pushed] = {}
        """What is called with the frames that are pushed to a receiver, by its number; on the pushing thread."""
        self._where = where
        self._lost = lost
        self._process = os.getpid()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[Answer[Any], bool]] = {}
        self._pushes: deque[Callable[[], None]] = deque()
        self._bell = SystemBell()
        self._ending = False
        self._why = "it was cut"
        self._pusher = threading.Thread(target=self._push_all, name="jmsclient-embedded-attached-push", daemon=True)

    def start(self, wire: Wire) -> None:
        """Speak on this wire."""
        self.wire = wire
        self._pusher.start()
        wire.start()

    def check_open(self) -> None:
        """Raises ConnectionLostError where the link is gone, IllegalStateError where it was closed."""
        if self.error is not None:
            raise self.error
        if os.getpid() != self._process:
            raise ConnectionLostError("this connection was inherited by a fork and is dead here; connect again in this process")
        if self.closed:
            raise IllegalStateError("this transport is closed")

    @property
    def dead(self) -> bool:
        """Nothing that is handed over goes anywhere any more."""
        return self.error is not None or self.closed or os.getpid() != self._process

    # -- down ------------------------------------------------------------------------------------------------------------

    def tell(self, what: str, **arguments: Any) -> None:
        """Hand over; returns at once, does nothing on a dead link."""
        self.wire.put(encode({"tell": what, "with": arguments}))

    def ask(
        self, what: str, deadline: float | None, *, pieces: Sequence[bytes] = (), in_order: bool = False, **arguments: Any
    ) -> Any:
        """Ask and wait. Raises what the holder raises, RequestTimeoutError past `deadline`, ConnectionLostError when the link ends.

        `in_order`: return after everything that arrived before the answer has been pushed; not so on the pushing thread itself."""
        self.check_open()
        answer: Answer[Any] = Answer(self.clock)
        number = next(self._numbers)
        self._waiting[number] = answer, in_order and threading.current_thread() is not self._pusher
        try:
            self.check_open()  # it may have ended just now, and looked before this one waited
            header = {"ask": what, "id": number, "left": self.clock.left(deadline), "with": _values(arguments)}
            self.wire.put(encode(header, pieces))
            return answer.wait(deadline, f"an answer to {what} from the process that holds the store")
        finally:
            self._waiting.pop(number, None)

    # -- the end ---------------------------------------------------------------------------------------------------------

    def close(self, deadline: float | None) -> None:
        """Say what was handed over, then close. Joins its threads. Idempotent."""
        if self.closed or self.error is not None:
            self.closed = True
            return
        self.closed = True
        self.wire.end(self.clock.left(deadline))
        self._end_pushing()
        if threading.current_thread() is not self._pusher:
            self._pusher.join(self.clock.left(deadline))

    def _end_pushing(self) -> None:
        self._ending = True
        self._bell.ring()

    def ended(self, error: Exception | None) -> None:
        """The wire has ended; on the reading thread."""
        why = self._why if error is None else f"{type(error).__name__}: {error}"
        lost = ConnectionLostError(f"the link to {self._where} is gone: {why}")
        expected = self.closed
        if not expected:
            self.error = lost
        for answer, _ in list(self._waiting.values()):
            answer.fail(lost)
        self._end_pushing()
        if not expected:
            self._lost(lost)

    # -- up --------------------------------------------------------------------------------------------------------------

    def frame(self, frame: Frame) -> None:
        """What the holder says; on the reading thread. Raises ProtocolError."""
        header = frame.header
        try:
            if "answer" in header:
                self._answered(header)
            elif header["push"] == "bye":
                self._why = str(header["text"])
            else:
                pushed = self.receivers.get(header["receiver"])
                if pushed is not None:
                    self._later(lambda: pushed(frame))
        except (KeyError, TypeError) as error:
            raise ProtocolError(f"a frame that says nothing: {error!r}") from error

    def _answered(self, header: dict[str, Any]) -> None:
        waiting = self._waiting.get(header["answer"])
        if waiting is None:  # whoever asked has given up
            return
        answer, in_order = waiting
        if "error" in header:
            give = partial(answer.fail, error_from_json(header["error"]))
        else:
            give = partial(answer.give, from_json(header["value"]))
        if in_order:
            self._later(give)
        else:
            give()

    def _later(self, push: Callable[[], None]) -> None:
        self._pushes.append(push)
        self._bell.ring()

    def _push_all(self) -> None:
        while True:
            while self._pushes:
                push = self._pushes.popleft()
                try:
                    push()
                except Exception:  # a sink never raises; if it does, the others must go on
                    _logger.exception("a receiver failed to take what was pushed")
            if self._ending:
                return
            self._bell.wait()


def _values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: to_json(value) for name, value in arguments.items()}
