"""A TCP proxy that misbehaves on demand: it swallows what one side says, slows it down, or cuts everything.

Two threads a connection, one a direction. What was swallowed is lost, so a connection that swallowed anything is of no more use
than to be cut: `heal` does that, and serves new ones as they should be.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Literal
from urllib.parse import urlsplit

Direction = Literal["from the broker", "from the client"]
_BLOCK = 65536


class Proxy:
    """A context manager: listens on `port` of the loopback interface, for the broker of that URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._behind = (parts.hostname, parts.port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.url = url.replace(f":{parts.port}", f":{self.port}", 1)
        """Of the broker, through the proxy."""
        self.swallowed: dict[Direction, int] = {"from the broker": 0, "from the client": 0}
        """Bytes."""
        self._swallows: set[Direction] = set()
        self._bytes_a_second: float | None = None
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._over = threading.Event()

    def swallow(self, *directions: Direction) -> None:
        """Forward nothing of this any more, and say nothing about it: from now on, without a time-out of TCP's own."""
        with self._lock:
            self._swallows.update(directions)

    def slow(self, bytes_a_second: float | None) -> None:
        """What comes from the broker, from now on."""
        self._bytes_a_second = bytes_a_second

    def cut(self) -> None:
        """End every connection."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Forward again, over new connections."""
        self.cut()
        with self._lock:
            self._swallows.clear()

    def __enter__(self) -> Proxy:
        self._start(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._server.close()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            pass  # wakes an accept that did not notice
        self.cut()
        for thread in self._threads:
            thread.join(5)

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, name="proxy", daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._server.accept()
                broker = socket.create_connection(self._behind, timeout=10)
            except OSError:
                continue
            broker.settimeout(None)
            with self._lock:
                self._pairs.append((client, broker))
            self._start(self._forward, client, broker, "from the client")
            self._start(self._forward, broker, client, "from the broker")

    def _forward(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_BLOCK):
                rate = self._bytes_a_second
                if rate is not None and direction == "from the broker":
                    self._over.wait(len(data) / rate)
                with self._lock:
                    swallow = direction in self._swallows
                    self.swallowed[direction] += len(data) if swallow else 0
                if not swallow:
                    target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        source.close()
