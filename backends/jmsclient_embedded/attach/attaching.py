"""Owns how a process comes to a store: it opens the file itself, or, where another process holds it, attaches to that one's socket.

Must not know what travels on the link. The holder may end, or only begin, between the two attempts: then both are made again, for
a few seconds. Source: api.md "Connections"; the parameter `attach=yes`.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jmsclient.clock import SystemBell
from jmsclient.errors import ConnectionLostError, StoreInUseError
from jmsclient.transport.contract import Endpoint, Transport, TransportListener
from jmsclient_embedded.attach.frames import Frame, FrameReader, ProtocolError, encode
from jmsclient_embedded.attach.hello import greeting, read_answer
from jmsclient_embedded.attach.link import Link
from jmsclient_embedded.attach.listening import socket_path
from jmsclient_embedded.attach.remote import RemoteTransport
from jmsclient_embedded.attach.values import error_from_json
from jmsclient_embedded.attach.wire import Wire
from jmsclient_embedded.parameters import parse_parameters

PATIENCE = 5.0
"""Seconds that a holder that is starting or ending is waited for."""
HELLO_TIMEOUT = 10.0
_LOOK_INTERVAL = 0.05
_READ_BYTES = 64 * 1024


def open_or_attach(
    endpoint: Endpoint, listener: TransportListener, open_here: Callable[[], Transport], deadline: float | None
) -> Transport:
    """The store, opened in this process or reached through the one that holds it. Raises StoreInUseError where neither can be."""
    parameters = parse_parameters(endpoint.parameters)
    if not parameters.attach or parameters.store is None:
        return open_here()
    left = endpoint.clock.left(deadline)
    end = time.monotonic() + (PATIENCE if left is None else min(PATIENCE, left))
    while True:
        try:
            return open_here()
        except StoreInUseError as error:
            in_use = error
        try:
            return attach(parameters.store, endpoint, listener)
        except (FileNotFoundError, ConnectionError, BlockingIOError) as error:  # it starts, it ends, too many come at once
            if time.monotonic() >= end:
                raise _unreachable(in_use, parameters.store, error) from error
        except OSError as error:
            raise _unreachable(in_use, parameters.store, error) from error
        SystemBell().wait(_LOOK_INTERVAL)


def attach(store: Path, endpoint: Endpoint, listener: TransportListener) -> RemoteTransport:
    """Attach to the process that holds `store`, as `endpoint` says. Raises OSError where nobody listens there, StoreInUseError,
    ConfigurationError or IllegalStateError where the holder refuses, ConnectionLostError where it does not answer as one."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(HELLO_TIMEOUT)
        connected.connect(str(socket_path(store)))
        with contextlib.suppress(ConnectionError):  # it has turned us away already, and said why
            connected.sendall(encode(greeting(endpoint.parameters, endpoint.client_id)))
        reader = FrameReader()
        try:
            peer, capabilities = read_answer(_first_frame(connected, reader, store))
        except (ProtocolError, TimeoutError) as error:
            raise ConnectionLostError(f"the process that holds store {str(store)!r} does not answer as one: {error}") from error
        connected.settimeout(None)
    except BaseException:
        connected.close()
        raise
    link = Link(f"the process that holds store {str(store)!r}", endpoint.clock, listener.lost)
    link.start(Wire(connected, "jmsclient-embedded-attached", reader=reader, on_frame=link.frame, on_end=link.ended))
    return RemoteTransport(link, peer, capabilities)


def _first_frame(connected: socket.socket, reader: FrameReader, store: Path) -> dict[str, Any]:
    frame: Frame | None = None
    while frame is None:
        data = connected.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError(f"the process that holds store {str(store)!r} closed the link")
        frame = next(reader.feed(data), None)
    if "refused" in frame.header:
        raise error_from_json(frame.header["refused"])
    said = frame.header.get("hello")
    if not isinstance(said, dict):
        raise ProtocolError("it did not say hello")
    return said


def _unreachable(in_use: StoreInUseError, store: Path, error: OSError) -> StoreInUseError:
    holder = str(in_use).partition(";")[0]
    return StoreInUseError(f"{holder}, which cannot be attached to at {str(socket_path(store))!r}: {error.strerror or error}")
