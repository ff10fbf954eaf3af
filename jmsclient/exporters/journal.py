"""A journal: every event of the process as a line of JSON in a file, for `jmsclient history check` and for people with grep.

Owns a queue, a thread and a file. Whoever emits only appends to the queue: nothing waits for the disk, and where the disk is too
slow lines are dropped and counted. Lines are whole, appended in one write a batch, so that several processes may share a file; one
that was renamed or removed is opened anew. A kill loses what was emitted in the last moment (`FLUSH_INTERVAL`). Never a body, never
a secret: events have none. Must not know what an event means.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jmsclient.clock import SYSTEM_CLOCK, Clock
from jmsclient.errors import StoreError
from jmsclient.events import Event, emit, subscribe

FLUSH_INTERVAL = 0.005
"""Seconds that lines gather before they are written."""
MOST_WAITING = 100_000
OPENED, CLOSED, DROPPED = "journal_opened", "journal_closed", "journal_dropped"


class Journal:
    """Thread-safe. `start` opens the file and listens, `stop` writes what is left. A forked child's events are not written."""

    def __init__(self, path: str | Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = Path(path)
        self.run = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        """Which process it is, in each line: a journal may be shared, and a process started again."""
        self.dropped = 0
        self._told = 0
        """Of them, by a line that is in the file: it is said again until it is, or whoever checks that would take it for whole."""
        self._untold = 0
        """Of them, by the first of the lines that are written now."""
        self._clock = clock
        self._bell = clock.bell()
        self._waiting: deque[tuple[float, Event]] = deque()
        self._rung = False
        self._stopping = False
        self._torn = False
        self._failing = False
        self.process = os.getpid()
        self._file: int | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Raises StoreError where the file cannot be written."""
        try:
            self._open()
        except OSError as error:
            raise StoreError(f"journal {str(self.path)!r} cannot be written: {error.strerror}") from error
        self(Event(name=OPENED, area="journal", text=""))
        self._unsubscribe = subscribe(self)
        self._thread = threading.Thread(target=self._run, name="jmsclient-journal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what was emitted before this call, and close. Idempotent."""
        if self._unsubscribe is None:
            return
        self._unsubscribe()
        self._unsubscribe = None
        self._waiting.append((self._clock.wall(), Event(name=CLOSED, area="journal", text="")))  # however much waits
        self._stopping = True
        self._bell.ring()
        if self._thread is not None:
            self._thread.join(10.0)

    def __call__(self, event: Event) -> None:
        """The listener: one append, and one ring a batch."""
        if len(self._waiting) >= MOST_WAITING or os.getpid() != self.process:
            self.dropped += os.getpid() == self.process
            return
        self._waiting.append((self._clock.wall(), event))
        if not self._rung:
            self._rung = True
            self._bell.ring()

    # -- the writing thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not (self._stopping and not self._waiting):
            if not self._stopping:
                self._bell.wait(None)
                self._pause()
            self._rung = False
            lines = [self._line(*self._waiting.popleft()) for _ in range(len(self._waiting))]
            self._untold = self.dropped - self._told
            if self._untold:
                event = Event(name=DROPPED, area="journal", text="", fields={"count": self._untold})
                lines.insert(0, self._line(self._clock.wall(), event))
            self._write(lines)
        self._close()

    def _pause(self) -> None:
        """Let lines gather; a stop ends it."""
        end = self._clock.monotonic() + FLUSH_INTERVAL
        while not self._stopping and (left := end - self._clock.monotonic()) > 0:
            self._bell.wait(left)

    def _line(self, when: float, event: Event) -> bytes:
        line: dict[str, Any] = {"time": round(when, 6), "run": self.run, "event": event.name, "area": event.area}
        if event.text and event.level >= logging.INFO:
            line["text"] = event.text
        line.update((name, value) for name, value in event.fields.items() if value is not None and name not in line)
        return json.dumps(line, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace") + b"\n"

    def _write(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        if not data:
            return
        whole = 0
        try:
            if self._moved():
                self._close()
                self._open()
            assert self._file is not None
            data = b"\n" + data if self._torn else data
            written = os.write(self._file, data)
            self._torn = written < len(data)
            self._failing = False
            whole = data.count(b"\n", 0, written) - data.startswith(b"\n") if self._torn else len(lines)
        except OSError as error:
            self._torn = True
            if not self._failing:
                self._failing = True
                text = f"the journal {str(self.path)!r} cannot be written: {error.strerror}; its lines are dropped until it can"
                emit("journal", "journal_failed", text, level=logging.ERROR)
        if self._untold and whole:
            self._told += self._untold
        self.dropped += len(lines) - whole - (self._untold > 0 and not whole)

    def _moved(self) -> bool:
        """The file was rotated away."""
        if self._file is None:
            return True
        try:
            there, ours = os.stat(self.path), os.fstat(self._file)
        except FileNotFoundError:
            return True
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


class SharedJournal:
    """What all workers of this process write to one file with: each journal hears all events of the process, so two would
    write each of them twice, and each message would seem to have run twice. `start` and `stop` as a Journal's; thread-safe."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._key = os.path.realpath(path)
        self._started = False

    def start(self) -> None:
        """Raises StoreError where the file cannot be written."""
        with _starting:
            journal, users = _started.get(self._key, (None, 0))
            if journal is None or journal.process != os.getpid():  # the latter: of a fork's parent
                journal, users = Journal(self._path), 0
                journal.start()
            _started[self._key] = journal, users + 1
            self._started = True

    def stop(self) -> None:
        """The last one closes it. Idempotent."""
        with _starting:
            if not self._started:
                return
            self._started = False
            journal, users = _started.pop(self._key)
            if users > 1:
                _started[self._key] = journal, users - 1
                return
        journal.stop()


_starting = threading.Lock()  # guards the next one; held while a journal begins
_started: dict[str, tuple[Journal, int]] = {}
"""By their files: what writes there, and how many workers use it."""
