"""Owns FILE.sock: the socket of the process that holds a store, the thread that accepts on it, and who is attached.

Must not know what a client says (serving.py). The file exists from the opening of the store to its end, with mode 0600 from its
first moment; one that a killed process left is replaced, for whoever holds FILE.lock holds the socket too. Where there can be no
socket (a path that is too long, a file system without) one WARNING says so, and everything else works. Source: api.md
"Connections"; issue on the embedded broker, "STORE.sock".
"""

from __future__ import annotations

import contextlib
import logging
import math
import select
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jmsclient.clock import Clock
from jmsclient.errors import StoreInUseError
from jmsclient.events import emit
from jmsclient.private_socket import listen_privately
from jmsclient_embedded.attach.frames import encode
from jmsclient_embedded.attach.serving import Client, Welcome
from jmsclient_embedded.attach.values import error_to_json

MAX_CLIENTS = 64
"""Processes that may be attached at the same time."""
HELLO_TIMEOUT = 10.0
"""Seconds after which a client that has not said hello is cut off."""
DISMISS_TIMEOUT = 2.0
_PAUSE_AFTER_FAULT = 1.0
_BACKLOG = 64


def socket_path(store: Path) -> Path:
    """FILE.sock."""
    return store.with_name(store.name + ".sock")


class Listening:
    """An open store's socket. `welcome` says who may attach. Thread-safe."""

    def __init__(self, store: Path, name: str, clock: Clock, welcome: Welcome) -> None:
        self.path = socket_path(store)
        self._store = store
        self._name = f"jmsclient-embedded-{name}"
        self._clock = clock
        self._welcome = welcome
        self._lock = threading.Lock()  # guards `_clients`, `_closing` and the file
        self._clients: dict[Client, float] = {}
        self._closing = False
        self._made = 0
        self._deaf = False
        self._ears: socket.socket | None = None
        self._wake_read: socket.socket  # made with the ears: a byte in it wakes the thread
        self._wake_write: socket.socket
        self._thread = threading.Thread(target=self._run, name=f"{self._name}-socket", daemon=True)

    def start(self) -> None:
        """Listen. Never raises: without a socket the store works all the same, and an event says why there is none."""
        try:
            with self._lock:
                if self._closing:
                    return
                self._ears = self._open()
        except OSError as error:
            text = f"store {str(self._store)!r} has no socket, so no other process can attach to it: {error}"
            emit("embedded", "socket_unavailable", text, level=logging.WARNING, path=str(self.path))
            return
        self._thread.start()

    def _open(self) -> socket.socket:
        ears = _listen(self.path)
        try:
            self._wake_read, self._wake_write = socket.socketpair()
        except OSError:
            ears.close()
            self.path.unlink()
            raise
        return ears

    def close(self, timeout: float | None) -> None:
        """Remove the file, dismiss who is attached: what they hold goes back before this returns. A client that reads nothing is
        waited for `timeout` seconds at most, and never longer than DISMISS_TIMEOUT."""
        with self._lock:
            before, self._closing = self._closing, True
            if before or self._ears is None:
                return
            self.path.unlink(missing_ok=True)
        limit = time.monotonic() + (DISMISS_TIMEOUT if timeout is None else min(timeout, DISMISS_TIMEOUT))
        with contextlib.suppress(OSError):  # the thread has ended by itself
            self._wake_write.send(b".")
        if self._thread is not threading.current_thread():
            self._thread.join(max(0.0, limit - time.monotonic()))
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            client.dismiss(f"the process that held store {str(self._store)!r} has closed it")
        for client in clients:
            client.end(limit)
        self._wake_write.close()

    def disown(self) -> None:
        """In the child of a fork: the socket and its file are the parent's."""
        self._closing = True
        if self._ears is not None:
            self._ears.close()
            self._wake_read.close()
            self._wake_write.close()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        assert self._ears is not None
        try:
            while not self._closing:
                self._accept_next(self._ears)
        finally:
            self._ears.close()
            self._wake_read.close()

    def _accept_next(self, ears: socket.socket) -> None:
        if not self._wait((ears, self._wake_read), self._cut_silent()) or self._closing:
            return
        try:
            self._admit(ears.accept()[0])
        except BlockingIOError:  # it left again
            return
        except (OSError, RuntimeError) as error:  # there is no free file, or no free thread
            if not self._deaf:  # one event, however long it lasts
                text = f"store {str(self._store)!r}: an attaching process could not be accepted: {error}"
                emit("embedded", "client_not_accepted", text, level=logging.WARNING)
            self._deaf = True
            self._wait((self._wake_read,), _PAUSE_AFTER_FAULT)
        else:
            self._deaf = False

    def _wait(self, sockets: Sequence[socket.socket], timeout: float | None) -> bool:
        """Whether one of them can be read in time. Not by select, which knows the first 1,024 files of a process only."""
        poll = select.poll()
        for one in sockets:
            poll.register(one, select.POLLIN)
        return bool(poll.poll(None if timeout is None else math.ceil(timeout * 1000)))

    def _admit(self, connected: socket.socket) -> None:
        connected.setblocking(True)
        self._made += 1
        with self._lock:
            crowded = len(self._clients) >= MAX_CLIENTS
        if crowded:
            _turn_away(connected, f"{MAX_CLIENTS} processes are attached to store {str(self._store)!r} already; try again later")
            return
        client = Client(connected, f"{self._name}-client-{self._made}", self._clock, welcome=self._welcome, gone=self._gone)
        with self._lock:
            self._clients[client] = time.monotonic() + HELLO_TIMEOUT
        try:
            client.wire.start()
        except RuntimeError:
            self._gone(client)
            client.wire.cut()
            connected.close()
            raise

    def _cut_silent(self) -> float | None:
        """Cut off who has not said hello in time; seconds until the next is due."""
        now = time.monotonic()
        waits = []
        with self._lock:
            silent = [(client, due) for client, due in self._clients.items() if not client.greeted]
        for client, due in silent:
            if due <= now:
                client.wire.cut()
            else:
                waits.append(due - now)
        return min(waits, default=None)

    def _gone(self, client: Client) -> None:
        with self._lock:
            self._clients.pop(client, None)


def _listen(path: Path) -> socket.socket:
    ears = listen_privately(path, _BACKLOG)
    ears.setblocking(False)
    return ears


def _turn_away(connected: socket.socket, text: str) -> None:
    refusal: dict[str, Any] = {"refused": error_to_json(StoreInUseError(text))}
    try:
        connected.settimeout(1.0)
        connected.sendall(encode(refusal))
    except OSError:  # it left already
        pass
    finally:
        connected.close()
