"""Peers that say something wrong while a connection is made: fuzzed, cut short, too long. An error in time, nothing left behind.

Whatever comes, the error names the peer, the cause and what to look at; no thread is left, and no password is in any text or log
record (O09, O04; issue section "Bad input").
"""

from __future__ import annotations

import logging
import random
import socket
import struct
import traceback
from collections.abc import Callable
from urllib.parse import quote

import pytest

import jmsclient
from jmsclient.errors import ConfigurationError, ConnectionLostError, JmsClientError, RequestTimeoutError
from jmsclient.events import subscribe
from jmsclient.transport.registry import parse_url
from jmsclient_amqp.primitives import NULL, described, listed, mapped, symbol, symbols, text, uint

from .peer import Peer
from .test_amqp_reach import QUOTED, SECRET, refused, says, server

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">IBBH", len(body) + 8, 2, kind, 0) + body


OPEN = listed(
    [text("peer"), NULL, uint(65536), b"\x60\x00\xff", NULL, NULL, NULL, NULL, NULL, mapped([symbol("product"), text("x")])]
)
PARTS = [
    b"AMQP\x03\x01\x00\x00",
    frame(1, described(0x40, listed([symbols(["PLAIN", "ANONYMOUS"])]))),
    frame(1, described(0x44, listed([b"\x50\x00"]))),
    b"AMQP\x00\x01\x00\x00",
    frame(0, described(0x10, OPEN)),
]
WHOLE = b"".join(PARTS)
"""All that a broker says until a connection is open; then it says nothing more, so that no mutation of it can succeed."""


def cut(chance: random.Random) -> bytes:
    return WHOLE[: chance.randrange(len(WHOLE))]


def flipped(chance: random.Random) -> bytes:
    data = bytearray(WHOLE)
    for _ in range(chance.choice([1, 1, 2, 5])):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def stuffed(chance: random.Random) -> bytes:
    place = chance.randrange(len(WHOLE))
    return WHOLE[:place] + chance.randbytes(chance.choice([1, 7, 100, 70_000])) + WHOLE[place:]


def oversized(chance: random.Random) -> bytes:
    """A frame that says it is longer than any may be, and goes on."""
    number = chance.choice([1, 2, 4])
    part = struct.pack(">I", chance.choice([0x7FFFFFFF, 0xFFFFFFFF, 1 << 24, 70_000])) + PARTS[number][4:]
    return b"".join(PARTS[:number]) + part + b"\x00" * chance.choice([0, 100_000])


def undersized(chance: random.Random) -> bytes:
    """A frame that says it is shorter than its own header."""
    number = chance.choice([1, 2, 4])
    return b"".join(PARTS[:number]) + struct.pack(">I", chance.randrange(8)) + PARTS[number][4:]


def confused(chance: random.Random) -> bytes:
    parts = PARTS[:]
    chance.shuffle(parts)
    return b"".join(parts)


@pytest.fixture(autouse=True)
def _no_secret_in_any_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("how", [cut, flipped, stuffed, oversized, undersized, confused])
def test_what_a_peer_says_wrong_is_an_error_in_time(
    how: Callable[[random.Random], bytes], seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(f"{how.__name__}{seed}")
    stays = seed % 5 == 0
    with server(says(how(chance), then_stays=stays)) as port:
        error = refused(f"amqp://us%3Aer:{QUOTED}@127.0.0.1:{port}", 0.4 if stays else 2.0)
    assert isinstance(error, ConfigurationError | ConnectionLostError | RequestTimeoutError)
    assert f"127.0.0.1:{port}" in str(error), error
    assert "internal-error" not in str(error), error
    assert not [record for record in caplog.records if SECRET in record.getMessage() or QUOTED in record.getMessage()]


def piece_by_piece(data: bytes, at: int) -> Callable[[socket.socket], None]:
    """All of it, with a pause of the network in between that TCP is free to make anywhere."""

    def serve(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(data[:at])
        connection.recv(65536)
        connection.sendall(data[at:])
        while connection.recv(65536):
            pass

    return serve


@pytest.mark.parametrize("at", range(1, len(PARTS[0]) + len(PARTS[1]), 3))
def test_what_comes_in_pieces_is_no_garbage(at: int) -> None:
    """However it is cut on its way, it is understood: what fails here is only that the peer says no more than its open."""
    with server(piece_by_piece(WHOLE, at)) as port:
        error = refused(f"amqp://user:{QUOTED}@127.0.0.1:{port}", 0.4)
    assert isinstance(error, RequestTimeoutError), error
    assert "opening the connection" in str(error), error


FIXES: dict[str, tuple[bytes, type[JmsClientError], str]] = {
    "it logs in and never opens": (b"".join(PARTS[:3]), RequestTimeoutError, "is it overloaded"),
    "it opens and then is silent": (WHOLE, RequestTimeoutError, "is it overloaded"),
    "it hangs up after the log in": (b"".join(PARTS[:3]), ConnectionLostError, "log of the broker"),
    "it hangs up after the open": (WHOLE, ConnectionLostError, "log of the broker"),
}


@pytest.mark.parametrize(("data", "kind", "fix"), FIXES.values(), ids=FIXES)
def test_each_error_names_a_fix(data: bytes, kind: type[JmsClientError], fix: str) -> None:
    with server(says(data, then_stays=kind is RequestTimeoutError)) as port:
        error = refused(f"amqp://user:{QUOTED}@127.0.0.1:{port}", 0.4 if kind is RequestTimeoutError else 2.0)
    assert isinstance(error, kind)
    assert fix in str(error), error


# -- passwords (O09) ----------------------------------------------------------------------------------------------------

PASSWORD = "p@s:s/w#r%d+ x%41"
ENCODED = quote(PASSWORD, safe="")
USER = "us:er"


def telling(record: logging.LogRecord) -> str:
    return f"{record.getMessage()} {record.__dict__!r}"


def silent_about_it(texts: list[str]) -> None:
    for shown in texts:
        assert PASSWORD not in shown
        assert ENCODED not in shown


def failing(kind: str, peer: Peer) -> str:
    """Where it fails like that; without user information."""
    if kind == "refused":
        with socket.create_server(("127.0.0.1", 0)) as one:
            return f"127.0.0.1:{one.getsockname()[1]}"
    if kind == "wrong password":
        peer.sasl_code = 1
    if kind == "unknown host":
        return "no-such-host.invalid:5672"
    return "[::1]:1" if kind == "IPv6" else f"127.0.0.1:{peer.port}"


@pytest.mark.parametrize("kind", ["refused", "wrong password", "unknown host", "IPv6"])
@pytest.mark.parametrize("listed_", [False, True], ids=["one place", "a list"])
def test_o09_no_text_shows_the_password_of_a_url(kind: str, listed_: bool, peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    where = failing(kind, peer)
    url = f"amqp://{quote(USER, safe='')}:{ENCODED}@{where}?sasl=PLAIN"
    heard: list[str] = []
    unsubscribe = subscribe(lambda event: heard.append(repr(event)))
    with pytest.raises(JmsClientError) as caught:
        jmsclient.connect(f"failover:({url},{url})" if listed_ else url, request_timeout=2.0)
    unsubscribe()
    silent_about_it(traceback.format_exception(caught.value))
    silent_about_it([repr(caught.value), str(caught.value), *heard, *map(telling, caplog.records)])
    assert where.rpartition(":")[0].strip("[]") in str(caught.value)
    if kind == "wrong password":
        assert repr(USER) in str(caught.value)
        assert {credentials for _, credentials in peer.credentials} == {f"\0{USER}\0{PASSWORD}".encode()}, "decoded once"


def test_o09_no_object_shows_the_password(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    url = f"amqp://{quote(USER, safe='')}:{ENCODED}@127.0.0.1:{peer.port}?sasl=PLAIN"
    with jmsclient.connect(url) as connection:
        session = connection.create_session()
        made = [
            connection, connection.metadata, connection.capabilities, session,
            session.create_consumer("q"), session.create_producer("q"),
            connection.transport, connection.transport.present, connection.transport.present.settings,  # type: ignore[attr-defined]
            jmsclient.Worker(url), parse_url(url),
        ]  # fmt: skip
        silent_about_it([shown for one in made for shown in (repr(one), str(one))])
    silent_about_it([telling(record) for record in caplog.records])


@pytest.mark.parametrize("raw", ["p@s:s/w#r", "a#b", "a/b"])
def test_o09_a_raw_password_is_refused_with_a_hint_that_does_not_show_it(raw: str) -> None:
    with pytest.raises(ConfigurationError, match="percent") as caught:
        jmsclient.connect(f"amqp://user:{raw}@127.0.0.1:1")
    assert raw not in "".join(traceback.format_exception(caught.value))
