"""A broker of a few hundred lines that says exactly what a test wants said, frame by frame, and keeps what it heard.

It speaks AMQP 1.0 with SASL over one TCP port of the loopback interface, a thread a connection. By itself it answers open,
begin, attach (granting credit to senders), transfers (accepted), drains, coordinators, detach, end and close; a test changes
`on` for what it wants otherwise, or sends frames of its own.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jmsclient_amqp.primitives import NULL, Described, binary, described, listed, mapped, read, symbol, symbols, text, uint

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"
TRUE, FALSE = b"\x41", b"\x42"
ACCEPTED = b"\x00\x53\x24\x45"


@dataclass
class Frame:
    """One frame as it was heard."""

    channel: int
    code: int
    fields: list[Any]
    payload: bytes = b""

    def __getitem__(self, number: int) -> Any:
        return self.fields[number] if number < len(self.fields) else None


def encoded(value: Any) -> bytes:
    """For sending back what was heard."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, Described):
        descriptor = value.descriptor
        name = symbol(descriptor) if isinstance(descriptor, str) else b"\x80" + int(descriptor).to_bytes(8, "big")
        return b"\x00" + name + encoded(value.value)
    if isinstance(value, bytes):
        return binary(value)
    if type(value).__name__ == "Symbol":
        return symbol(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int):
        return uint(value)
    if isinstance(value, list):
        return (
            symbols(value) if value and all(type(one).__name__ == "Symbol" for one in value) else listed(list(map(encoded, value)))
        )
    return mapped([encoded(part) for pair in value.items() for part in pair])


def ubyte(value: int) -> bytes:
    return bytes((0x50, value))


def ushort(value: int) -> bytes:
    return b"\x60" + value.to_bytes(2, "big")


@dataclass
class Link:
    """One link as the peer sees it."""

    channel: int
    handle: int
    name: str
    receives: bool
    """Its client receives: we send to it."""
    limit: int = 0
    """So many may be sent in all."""
    sent: int = 0
    settled: bool = False

    @property
    def credit(self) -> int:
        """Worked out anew: one thread may hear of credit while another sends."""
        return self.limit - self.sent


@dataclass
class Conversation:
    """One connection. `frames` is what was heard, in order; `links` by (channel, handle)."""

    peer: Peer
    socket: socket.socket
    frames: list[Frame] = field(default_factory=list)
    links: dict[tuple[int, int], Link] = field(default_factory=dict)
    delivered: int = 0
    ended: bool = False
    over: set[int] = field(default_factory=set)
    """Channels whose session we ended."""

    def send(self, channel: int, code: int, *fields: bytes, payload: bytes = b"") -> None:
        body = described(code, listed(list(fields))) + payload
        with contextlib.suppress(OSError):
            self.socket.sendall(struct.pack(">IBBH", len(body) + 8, 2, 0, channel) + body)

    def transfer(self, link: Link, message: bytes, *, more: bool = False, first: bool = True, aborted: bool = False) -> None:
        """One transfer frame: of a new delivery, or a further one of the last."""
        if first:
            self.delivered += 1
            link.sent += 1
        number = self.delivered - 1
        self.send(
            link.channel, TRANSFER, uint(link.handle), uint(number) if first else NULL,
            binary(struct.pack(">I", number)) if first else NULL, uint(0) if first else NULL,
            TRUE if link.settled else FALSE, TRUE if more else FALSE, NULL, NULL, NULL, TRUE if aborted else FALSE,
            payload=message,
        )  # fmt: skip

    def detach(self, link: Link, error: bytes) -> None:
        """Close a link of ours, whatever the client thinks of it."""
        self.links.pop((link.channel, link.handle), None)
        self.send(link.channel, DETACH, uint(link.handle), TRUE, error)

    def end(self, channel: int, error: bytes) -> None:
        """End a session, with all its links."""
        self.over.add(channel)
        self.links = {key: link for key, link in self.links.items() if link.channel != channel}
        self.send(channel, END, error)

    def heard(self, code: int) -> list[Frame]:
        return [frame for frame in self.frames if frame.code == code]

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + 30
        while not (found := condition()):
            assert time.monotonic() < end, f"{what}; heard {[hex(frame.code) for frame in self.frames]}"
            time.sleep(0.002)
        return found

    def receiving_link(self) -> Link:
        """The link that the client receives on, once it has given credit."""
        found: Link = self.wait_for(
            lambda: next((link for link in self.links.values() if link.receives and link.credit > 0), None), "no credit came"
        )
        return found


class Peer:
    """A context manager. `on` maps a performative's code to a function that answers it instead of the built-in answer; `offers`
    is what it says in its open frame."""

    def __init__(self, *, mechanisms: tuple[str, ...] = ("PLAIN", "ANONYMOUS"), idle_timeout: int | None = None) -> None:
        self.on: dict[int, Callable[[Conversation, Frame], object]] = {}
        self.mechanisms = mechanisms
        self.idle_timeout = idle_timeout
        self.product = "scripted-peer"
        self.offers: tuple[str, ...] = ()
        self.credit = 100
        self.max_frame = 65536
        self.credentials: list[tuple[str, bytes]] = []
        self.sasl_code = 0
        self.header = AMQP
        """What it answers to the header that follows the log in."""
        self.conversations: list[Conversation] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, name="peer-accept", daemon=True)

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def last(self) -> Conversation:
        return self.conversations[-1]

    def __enter__(self) -> Peer:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            pass  # wakes an accept that did not notice
        for one in self.conversations:
            with contextlib.suppress(OSError):
                one.socket.shutdown(socket.SHUT_RDWR)
            one.socket.close()
        for thread in (self._accepting, *self._threads):
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), name="peer", daemon=True)
            self._threads.append(thread)
            thread.start()

    # -- one connection ---------------------------------------------------------------------------------------------

    def _serve(self, connection: socket.socket) -> None:
        conversation = Conversation(self, connection)
        try:
            self._log_in(connection)
            self.conversations.append(conversation)
            while True:
                frame = self._frame(connection)
                if frame is not None:
                    conversation.frames.append(frame)
                    self.on.get(frame.code, answer)(conversation, frame)
                    if frame.code == CLOSE:
                        return
        except (OSError, EOFError):
            pass
        finally:
            conversation.ended = True
            connection.close()

    def _log_in(self, connection: socket.socket) -> None:
        if _exactly(connection, 8) != SASL:
            raise EOFError
        mechanisms = described(0x40, listed([symbols(self.mechanisms)]))
        connection.sendall(SASL + struct.pack(">IBBH", len(mechanisms) + 8, 2, 1, 0) + mechanisms)
        frame = self._frame(connection)
        assert frame is not None
        self.credentials.append((str(frame[0]), frame[1]))
        outcome = described(0x44, listed([ubyte(self.sasl_code)]))
        connection.sendall(struct.pack(">IBBH", len(outcome) + 8, 2, 1, 0) + outcome)
        assert _exactly(connection, 8) == AMQP
        connection.sendall(self.header)

    def _frame(self, connection: socket.socket) -> Frame | None:
        """The next frame; None for a heartbeat."""
        size, offset, _, channel = struct.unpack(">IBBH", _exactly(connection, 8))
        data = _exactly(connection, size - 8)[offset * 4 - 8 :]
        if not data:
            return None
        value, end = read(data)
        return Frame(channel, int(value.descriptor), value.value, data[end:])


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        received = connection.recv(count - len(data))
        if not received:
            raise EOFError
        data += received
    return data


def answer(conversation: Conversation, frame: Frame) -> None:
    """What a broker says to it."""
    peer, channel = conversation.peer, frame.channel
    match frame.code:
        case 0x10:
            properties = mapped([symbol("product"), text(peer.product), symbol("version"), text("1.0")])
            idle = NULL if peer.idle_timeout is None else uint(peer.idle_timeout)
            offers = symbols(peer.offers) if peer.offers else NULL
            conversation.send(
                0, OPEN, text("peer"), NULL, uint(peer.max_frame), ushort(255), idle, NULL, NULL, offers, NULL, properties
            )
        case 0x11:
            conversation.over.discard(channel)
            conversation.send(channel, BEGIN, ushort(channel), uint(0), uint(2048), uint(2048), uint(255))
        case 0x12:
            attach(conversation, frame)
        case 0x13:
            flow(conversation, frame)
        case 0x14:
            accept(conversation, frame)
        case 0x16:
            if conversation.links.pop((channel, frame[0]), None) is not None:  # else it answers ours
                conversation.send(channel, DETACH, uint(frame[0]), TRUE if frame[1] else FALSE)
        case 0x17:
            if channel not in conversation.over:
                conversation.send(channel, END)
        case 0x18:
            conversation.send(0, CLOSE)


def attach(conversation: Conversation, frame: Frame, **changes: bytes) -> Link:
    """Answer an attach; `source` and `target` in place of those that were asked for."""
    channel, handle, receives = frame.channel, frame[1], bool(frame[2])
    link = Link(channel, handle, str(frame[0]), receives, settled=frame[3] == 1)
    conversation.links[channel, handle] = link
    conversation.send(
        channel, ATTACH, text(frame[0]), uint(handle), FALSE if receives else TRUE, ubyte(frame[3] or 0), ubyte(0),
        changes.get("source", encoded(frame[5])), changes.get("target", encoded(frame[6])),
        NULL, NULL, uint(0),
    )  # fmt: skip
    if not receives and conversation.peer.credit:
        grant(conversation, link, conversation.peer.credit)
    return link


def grant(conversation: Conversation, link: Link, credit: int) -> None:
    conversation.send(
        link.channel, FLOW, uint(0), uint(2048), uint(0), uint(2048), uint(link.handle), uint(link.sent), uint(credit)
    )


def credited(conversation: Conversation, frame: Frame) -> Link | None:
    """Note the credit, and answer nothing; which link it is for. A first drain may come with the first credit, in one frame."""
    link = conversation.links.get((frame.channel, frame[4])) if frame[4] is not None else None
    if link is None or not link.receives:
        return None
    link.limit = (frame[5] or 0) + (frame[6] or 0)
    return link


def flow(conversation: Conversation, frame: Frame) -> None:
    """Note the credit; a drain is answered at once: there is nothing."""
    link = credited(conversation, frame)
    if link is not None and frame[8]:
        link.sent = link.limit
        conversation.send(
            link.channel, FLOW, uint(0), uint(2048), uint(conversation.delivered), uint(2048), uint(link.handle),
            uint(link.sent), uint(0), uint(0), TRUE,
        )  # fmt: skip


def accept(conversation: Conversation, frame: Frame) -> None:
    """Accept what was sent; declare and discharge what a coordinator is asked to."""
    state = ACCEPTED
    if frame.payload.startswith(b"\x00\x53\x77\x00\x53\x31"):
        state = described(0x33, listed([binary(b"tx-%d" % len(conversation.frames))]))
    if frame[1] is not None:
        conversation.send(frame.channel, DISPOSITION, TRUE, uint(frame[1]), uint(frame[1]), TRUE, state)
