"""What the tests of a store's socket share: a holder in this process, and clients attached to it through the socket."""

from __future__ import annotations

import itertools
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jmsclient import events
from jmsclient.destination import Queue
from jmsclient.transport.contract import Arrival, ReceiverSpec
from jmsclient.transport.registry import parse_url
from jmsclient_embedded.attach.attaching import attach
from jmsclient_embedded.attach.frames import Frame, FrameReader, encode
from jmsclient_embedded.attach.hello import greeting
from jmsclient_embedded.attach.remote import RemoteSession, RemoteTransport
from jmsclient_embedded.attach.remote_receiver import RemoteReceiver
from jmsclient_embedded.invariants import check
from jmsclient_embedded.registry import close_broker

from .conftest import PATIENCE, Client, Listener, RecordingSink, content

_numbers = itertools.count(1)


class Attached:
    """A connection through the socket with one session, in short words."""

    def __init__(self, store: Path, parameters: str = "", *, client_id: str | None = None, transacted: bool = False) -> None:
        self.listener = Listener()
        self.transport: RemoteTransport = attach(store, parse_url(f"embedded:{parameters}", client_id=client_id), self.listener)
        self.session: RemoteSession = self.transport.open_session(transacted=transacted, deadline=None)

    def send(self, *bodies: str, queue: str = "q", **headers: Any) -> list[str]:
        sender = self.session.open_sender(Queue(queue), None)
        messages = [content(body, message_id=f"ID:attached-{next(_numbers)}-{body}"[:60], **headers) for body in bodies]
        return [one.message_id for one in sender.send(messages, room_deadline=None, confirm_timeout=PATIENCE)]

    def receiver(
        self, queue: str = "q", *, demand: int = 0, on_batch: Callable[[list[Arrival]], None] | None = None, **spec: Any
    ) -> tuple[RemoteReceiver, RecordingSink]:
        sink = RecordingSink(on_batch)
        receiver = self.session.open_receiver(ReceiverSpec(destination=Queue(queue), **spec), sink, None)
        if demand:
            receiver.request(demand)
        return receiver, sink

    def take(self, count: int, queue: str = "q") -> tuple[RemoteReceiver, list[Arrival]]:
        receiver, sink = self.receiver(queue, demand=count)
        return receiver, list(sink.wait(count))

    def cut(self) -> None:
        """Pull the cable."""
        self.transport.link.wire.cut()


@contextmanager
def holding(store: Path) -> Iterator[Client]:
    """A client whose process, this one, holds the store; the books must balance in the end."""
    client = Client(f"embedded:{fresh_name()}?store={store}")
    yield client
    if not client.broker.ended:
        check(client.broker)
        close_broker(client.broker)


def end(client: Client) -> None:
    """Close the holder's connection, and with it the store."""
    client.session.close(None)
    client.transport.close(None)


class Raw:
    """A bare socket at the holder's, to say whatever one likes."""

    def __init__(self, store: Path, *, greet: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(store.with_name(store.name + ".sock")))
        self._reader = FrameReader()
        if greet:
            self.say(greeting({}, None))
            assert "hello" in self.hear().header

    def say(self, header: dict[str, Any], *pieces: bytes) -> None:
        self.socket.sendall(encode(header, pieces))

    def hear(self) -> Frame:
        """The next frame. Raises EOFError where the other side has closed."""
        while True:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            frame = next(self._reader.feed(data), None)
            if frame is not None:
                return frame

    def closed_by_peer(self) -> bool:
        """Reads on until the other side closes."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Heard:
    """The events of a while, by name."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def __enter__(self) -> Heard:
        self._end = events.subscribe(self.events.append)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def named(self, name: str) -> list[events.Event]:
        return [one for one in self.events if one.name == name]


def wait_until(condition: Callable[[], object], what: str = "it never came to be") -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.002)


def threads_named(*parts: str) -> list[str]:
    return [one.name for one in threading.enumerate() if all(part in one.name for part in parts)]


def fresh_name() -> str:
    return f"socket-{secrets.token_hex(6)}"
