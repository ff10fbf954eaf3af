"""Owns a worker's control socket: other processes of the same user look at its triggers there and change their states (TR-59).

One request is one line of JSON, one answer another; they are served one after the other, on a thread of their own. The file has
mode 0600 from its first moment and is removed when the worker stops; one that a killed worker left is replaced. It must not know
what a state is: it calls what `worker.triggers[name]` has.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from jmsclient.errors import ConfigurationError, JmsClientError, StoreError
from jmsclient.private_socket import listen_privately
from jmsclient.trigger.running import RunningTrigger

LONGEST_LINE = 1024 * 1024
PATIENCE = 5.0
"""Seconds that a peer has for its line, and a state for becoming visible."""
VERBS = {"suspend": "suspended", "resume": "enabled", "disable": "disabled", "enable": "enabled"}
"""What may be done, and which state that leads to, if nothing else is in the way."""


class HasTriggers(Protocol):
    """A worker, as far as this goes."""

    @property
    def triggers(self) -> Mapping[str, RunningTrigger]:
        """Those that run, by name."""


class Control:
    """`start` and `stop` once each, by the worker's thread."""

    def __init__(self, path: str | Path, worker: HasTriggers) -> None:
        self._path = Path(path)
        self._worker = worker
        self._ears: socket.socket | None = None
        self._wake_read: socket.socket | None = None
        self._wake_write: socket.socket | None = None
        self._peer: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="jmsclient-control", daemon=True)

    def start(self) -> None:
        """Listen. Raises ConfigurationError where there can be no such socket, or another worker listens on it."""
        try:
            self._ears = _listen(self._path)
        except OSError as error:
            raise ConfigurationError(f"control={str(self._path)!r}: no socket can be made there: {error}") from error
        self._wake_read, self._wake_write = socket.socketpair()
        self._thread.start()

    def stop(self) -> None:
        """Remove the file and end the thread, after the request that it may be carrying out; one that is not yet read is not waited
        for. Idempotent."""
        ears, self._ears = self._ears, None
        if ears is None or self._wake_write is None or self._wake_read is None:
            return
        self._path.unlink(missing_ok=True)
        self._wake_write.send(b".")
        peer = self._peer
        if peer is not None:
            with contextlib.suppress(OSError):  # it has left
                peer.shutdown(socket.SHUT_RD)
        if self._thread is not threading.current_thread():
            self._thread.join(2 * PATIENCE)
        for one in (ears, self._wake_read, self._wake_write):
            one.close()

    def _run(self) -> None:
        ears, wake = self._ears, self._wake_read
        assert ears is not None
        assert wake is not None
        while True:
            ready, _, _ = select.select([ears, wake], [], [])
            if wake in ready:
                return
            try:
                peer, _ = ears.accept()
            except OSError:  # it left already
                continue
            with peer:
                self._peer = peer
                if self._ears is not None:  # else the worker stops
                    self._serve(peer)
                self._peer = None

    def _serve(self, peer: socket.socket) -> None:
        try:
            peer.settimeout(PATIENCE)
            request = json.loads(_line(peer))
            peer.sendall(json.dumps(self._answer(request)).encode() + b"\n")
        except (OSError, ValueError):  # whoever says nothing sensible, or does not listen, gets no answer
            pass

    def _answer(self, request: Any) -> dict[str, Any]:
        try:
            verb, names = str(request["do"]), [str(one) for one in request["triggers"]]
            found = dict(self._worker.triggers)
            unknown = [name for name in names if name not in found]
            if unknown:
                return {"error": f"no trigger {unknown[0]!r} runs here; there are: {', '.join(map(repr, found)) or 'none'}"}
            chosen = [found[name] for name in names or found]
            if verb != "list":
                for trigger in chosen:
                    _change(trigger, verb, float(request.get("grace", 3.0)), str(request["by"]))
                _await(chosen, VERBS[verb])
            return {"triggers": [_shown(one) for one in chosen]}
        except (KeyError, TypeError, ValueError) as error:
            return {"error": f"not understood: {type(error).__name__}: {error}"}
        except JmsClientError as error:
            return {"error": f"{type(error).__name__}: {error}"}


def ask(path: str | Path, do: str, triggers: list[str], *, by: str, grace: float = 3.0) -> list[dict[str, Any]]:
    """Of the worker that listens at `path`: have it `do` (`list`, or one of VERBS) to these triggers, [] for all; each of them as
    it is then. Raises StoreError where no worker listens there, ConfigurationError with what the worker says is wrong."""
    request = {"do": do, "triggers": triggers, "by": by, "grace": grace}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as worker:
            worker.settimeout(grace + 2 * PATIENCE)
            worker.connect(str(path))
            worker.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(_line(worker))
    except (OSError, ValueError) as error:
        raise StoreError(f"no worker answers at {str(path)!r} ({error}): is it run with --control {path}?") from error
    if "error" in answer:
        raise ConfigurationError(answer["error"])
    shown: list[dict[str, Any]] = answer["triggers"]
    return shown


def _change(trigger: RunningTrigger, verb: str, grace: float, by: str) -> None:
    if verb == "disable":
        trigger.disable(grace, by)
    elif verb in VERBS:
        getattr(trigger, verb)(by)
    else:
        raise ValueError(f"{verb!r} is none of list, {', '.join(VERBS)}")


def _await(triggers: list[RunningTrigger], state: str) -> None:
    """Until they have heard: a suspension is the pipeline's to begin, and another reason may keep one from being over."""
    end = time.monotonic() + 1.0
    while any(one.state != state for one in triggers) and time.monotonic() < end:
        time.sleep(0.005)


def _shown(trigger: RunningTrigger) -> dict[str, Any]:
    return {
        "name": trigger.declaration.name,
        "destination": str(trigger.declaration.destination),
        "state": trigger.state,
        "running": trigger.running,
        "reason": trigger.reason,
        "counters": trigger.counters,
    }


def _line(peer: socket.socket) -> bytes:
    """Up to the line feed. Raises ValueError for one that has no end."""
    line = b""
    while not line.endswith(b"\n"):
        part = peer.recv(65536)
        if not part or len(line) > LONGEST_LINE:
            raise ValueError("the line has no end")
        line += part
    return line


def _listen(path: Path) -> socket.socket:
    if path.is_socket() and _lives(path):
        raise OSError("another worker listens on it")
    return listen_privately(path, 8)


def _lives(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
