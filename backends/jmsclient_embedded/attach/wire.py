"""Owns one connected socket: a thread that writes what anyone hands over, a thread that reads frames, and their end.

Must not know what a frame says. Handing over is one append to a deque and one ring, so that an exception from a signal handler,
which may strike the main thread between any two bytecodes, can never leave half a frame on the socket (IF-40). What was read is
acted on even if the other side is dead by then: a client that is killed has said what it said (IF-10, IF-11).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from jmsclient.clock import SystemBell
from jmsclient_embedded.attach.frames import Frame, FrameReader, ProtocolError

READ_BYTES = 256 * 1024
WRITE_BYTES = 1024 * 1024
"""What is written in one call, where that much waits."""
FLUSH_TIMEOUT = 10.0
"""Seconds that the end of a link waits for a peer that does not read."""
JOIN_TIMEOUT = 5.0
"""Seconds that it then waits for the reading thread, which acts on the last that came."""
_THREADS = 2
_logger = logging.getLogger("jmsclient.embedded")
_live: weakref.WeakSet[Wire] = weakref.WeakSet()

Outgoing = bytes | Callable[[], bytes]


class Wire:
    """Thread-safe. `name` is the threads'; `on_frame` is called on the reading thread with each frame and may raise ProtocolError;
    `on_end` once, there, with what ended it (None: the other side closed it)."""

    def __init__(
        self,
        connected: socket.socket,
        name: str,
        *,
        reader: FrameReader,
        on_frame: Callable[[Frame], None],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self._socket = connected
        self._reader = reader
        self._on_frame = on_frame
        self._on_end = on_end
        self._outgoing: deque[Outgoing] = deque()
        self._bell = SystemBell()
        self._ending = False
        self._running = _THREADS
        self._lock = threading.Lock()  # guards `_running` only
        self._writer = threading.Thread(target=self._write_all, name=f"{name}-write", daemon=True)
        self._readers = threading.Thread(target=self._read_all, name=f"{name}-read", daemon=True)
        _live.add(self)

    def start(self) -> None:
        """Read and write from now on."""
        self._writer.start()
        self._readers.start()

    def put(self, item: Outgoing) -> None:
        """Have it written after what was put before; a call is made by the writing thread and gives the bytes. Never blocks, never
        raises; on a wire that has ended it does nothing."""
        self._outgoing.append(item)
        self._bell.ring()

    def finish(self) -> None:
        """Write what was put and then no more; what the other side says is still read. Any thread; does not wait."""
        self._ending = True
        self._bell.ring()

    def end(self, timeout: float | None) -> None:
        """Write what was put, then close; what cannot be written within `timeout` seconds (None: FLUSH_TIMEOUT) is not. Joins the
        threads, but for the one that calls."""
        self.flush(time.monotonic() + (FLUSH_TIMEOUT if timeout is None else timeout))
        self._join(self._readers, time.monotonic() + JOIN_TIMEOUT)

    def flush(self, limit: float) -> None:
        """Write what was put, until `limit` (monotonic) at most, then cut."""
        self.finish()
        self._join(self._writer, limit)
        self.cut()

    def cut(self) -> None:
        """Close it now, as a cable that is pulled; the threads end by themselves. Any thread."""
        self.finish()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is not connected any more
            pass

    def disown(self) -> None:
        """In the child of a fork: close this process's copy of the socket, and say nothing on it."""
        self._socket.close()

    # -- the threads ---------------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        try:
            while True:
                data = self._gather()
                if data:
                    self._socket.sendall(data)
                elif self._ending:
                    break
                else:
                    self._bell.wait()
        except OSError:  # the other side takes no more; what it has said is still read to its end
            self._ending = True
        except Exception:  # a fault of ours: the other side sees that nothing more comes, and ends it
            self._ending = True
            _logger.exception("what was to be written could not be put into a frame")
        finally:
            self._thread_ended(socket.SHUT_WR)

    def _gather(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while self._outgoing and size < WRITE_BYTES:
            item = self._outgoing.popleft()
            parts.append(item if isinstance(item, bytes) else item())
            size += len(parts[-1])
        return b"".join(parts)

    def _read_all(self) -> None:
        error: Exception | None = None
        try:
            while data := self._socket.recv(READ_BYTES):
                for frame in self._reader.feed(data):
                    self._on_frame(frame)
            if self._reader.incomplete:
                error = ProtocolError("it ended in the middle of a frame")
        except (OSError, ProtocolError) as caught:
            error = caught
        finally:
            self.finish()
            try:
                self._on_end(error)
            finally:
                self._thread_ended(socket.SHUT_RDWR)

    def _thread_ended(self, how: int) -> None:
        with self._lock:
            self._running -= 1
            last = not self._running
        try:
            self._socket.shutdown(how)
        except OSError:
            pass
        if last:
            self._socket.close()

    def _join(self, thread: threading.Thread, limit: float) -> None:
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(max(0.0, limit - time.monotonic()))


def _disown_all() -> None:
    for wire in list(_live):
        wire.disown()
    _live.clear()


os.register_at_fork(after_in_child=_disown_all)
