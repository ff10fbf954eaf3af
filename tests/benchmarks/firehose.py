"""A broker that only sends: transfers of one message, made in advance, as fast as the link's credit allows.

It takes the broker out of a measurement of a client. Run as a program it listens on a free port, prints it, and serves
connections one after the other until it is ended. `firehose.py BYTES`: the size of the bodies.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
from dataclasses import dataclass, field
from typing import Any

from jmsclient.message import MessageKind, PlainContent
from jmsclient_amqp.encoding import encode
from jmsclient_amqp.naming import Naming
from jmsclient_amqp.primitives import NULL, binary, described, listed, mapped, read, symbol, symbols, text, uint

OPEN, BEGIN, ATTACH, FLOW, _, _, DETACH, END, CLOSE = range(0x10, 0x19)
SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"
ID_DIGITS = 10
WINDOW = uint((1 << 31) - 1)
BLOCK_BYTES = 400_000


def message(size: int) -> tuple[bytes, int]:
    """A message as a producer of ours makes it, and where the digits of its id are."""
    content = PlainContent(
        kind=MessageKind.BYTES,
        body=b"x" * size,
        message_id="ID:firehose-" + "0" * ID_DIGITS,
        destination="queue:///firehose",
        persistent=False,
        timestamp=1_700_000_000.0,
        properties={"kind": "order", "n": 7},
    )
    raw = encode(content, "firehose", Naming())
    return raw, raw.index(b"0" * ID_DIGITS)


@dataclass
class Link:
    """One link that a client receives on: its block of ready frames, and where in a frame the numbers are."""

    channel: int
    handle: int
    size: int
    settled: bool
    credit: int = 0
    sent: int = 0
    block: bytearray = field(default_factory=bytearray)
    length: int = 0
    places: tuple[int, int, int] = (0, 0, 0)
    count: int = 0

    def make(self, raw: bytes, digits: int) -> None:
        settled = b"\x41" if self.settled else b"\x42"
        fields = listed([uint(self.handle), b"\x70\0\0\0\0", binary(b"\0\0\0\0"), b"\x43", settled])
        start = described(0x14, fields)
        one = frame(0, self.channel, start + raw)
        identity = len(one) - len(raw) - len(fields) + fields.index(b"\x70") + 1
        self.length, self.places = len(one), (identity, identity + 6, len(one) - len(raw) + digits)
        self.count = max(16, min(256, BLOCK_BYTES // len(one)))
        self.block = bytearray(one * self.count)

    def fill(self) -> memoryview:
        """The next frames, as many as there is credit for."""
        count = min(self.count, self.credit)
        identity, tag, digits = self.places
        pack, block, start = struct.Struct(">I").pack_into, self.block, 0
        for number in range(self.sent, self.sent + count):
            pack(block, start + identity, number)
            pack(block, start + tag, number)
            block[start + digits : start + digits + ID_DIGITS] = b"%010d" % number
            start += self.length
        self.sent += count
        self.credit -= count
        return memoryview(block)[:start]


def frame(kind: int, channel: int, body: bytes) -> bytes:
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


class Conversation:
    """One connection."""

    def __init__(self, connection: socket.socket, size: int) -> None:
        self._connection = connection
        self._raw, self._digits = message(size)
        self._data = bytearray()
        self._links: dict[tuple[int, int], Link] = {}
        self._over = False

    def run(self) -> None:
        self._shake_hands()
        while not self._over:
            while self._answer_one():
                pass
            willing = [link for link in self._links.values() if link.credit > 0]
            ready, _, _ = select.select([self._connection], [], [], 0 if willing else None)
            if ready:
                received = self._connection.recv(1 << 18)
                if not received:
                    return
                self._data += received
            else:
                for link in willing:
                    self._connection.sendall(link.fill())

    def _shake_hands(self) -> None:
        if self._take(8) == SASL:
            self._connection.sendall(SASL + frame(1, 0, described(0x40, listed([symbols(["ANONYMOUS"])]))))
            self._take(struct.unpack(">I", self._take(4))[0] - 4)
            self._connection.sendall(frame(1, 0, described(0x44, listed([b"\x50\x00"]))))
            self._take(8)
        self._connection.sendall(AMQP)

    def _take(self, count: int) -> bytes:
        while len(self._data) < count:
            received = self._connection.recv(1 << 18)
            if not received:
                raise EOFError
            self._data += received
        taken = bytes(self._data[:count])
        del self._data[:count]
        return taken

    def _answer_one(self) -> bool:
        data = self._data
        size = int.from_bytes(data[:4], "big") if len(data) >= 4 else 0
        if self._over or size == 0 or len(data) < size:
            return False
        channel, body = int.from_bytes(data[6:8], "big"), bytes(data[8:size])
        del data[:size]
        if body:
            value = read(body)[0]
            fields = [*value.value, *[None] * 14]
            self._answer(channel, int(value.descriptor), fields)
        return True

    def _send(self, channel: int, code: int, *fields: bytes) -> None:
        self._connection.sendall(frame(0, channel, described(code, listed(list(fields)))))

    def _answer(self, channel: int, code: int, fields: list[Any]) -> None:
        if code == OPEN:
            product = mapped([symbol("product"), text("apache-activemq-artemis"), symbol("version"), text("0")])
            self._send(0, OPEN, text("firehose"), NULL, uint(65536), b"\x60\x00\xff", NULL, NULL, NULL, NULL, NULL, product)
        elif code == BEGIN:
            self._send(channel, BEGIN, b"\x60" + channel.to_bytes(2, "big"), uint(0), WINDOW, WINDOW, uint(255))
        elif code == ATTACH:
            link = Link(channel, fields[1], 0, fields[3] == 1)
            link.make(self._raw, self._digits)
            self._links[channel, fields[1]] = link
            source, target = described(0x28, listed([text("firehose")])), described(0x29, listed([text("client")]))
            mode = bytes((0x50, fields[3] or 0))
            self._send(
                channel, ATTACH, text(fields[0]), uint(fields[1]), b"\x42", mode, b"\x50\x00", source, target, NULL, NULL, b"\x43"
            )
        elif code == FLOW and fields[4] is not None:
            link = self._links[channel, fields[4]]
            link.credit = (fields[5] or 0) + fields[6] - link.sent
            if fields[8]:
                link.sent += link.credit
                link.credit = 0
                given = [uint(0), WINDOW, uint(link.sent), WINDOW, uint(link.handle), uint(link.sent), uint(0), uint(0), b"\x41"]
                self._send(channel, FLOW, *given)
        elif code == DETACH:
            self._links.pop((channel, fields[0]), None)
            self._send(channel, DETACH, uint(fields[0]), b"\x41")
        elif code == END:
            self._links = {key: link for key, link in self._links.items() if link.channel != channel}
            self._send(channel, END)
        elif code == CLOSE:
            self._over = True
            self._send(0, CLOSE)


def serve(size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            connection, _ = listening.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    Conversation(connection, size).run()
                except (OSError, EOFError):
                    pass  # a client that left in its own way


if __name__ == "__main__":
    serve(int(sys.argv[1]))
