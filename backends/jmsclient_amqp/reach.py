"""From a URL to a socket on which AMQP can begin: TCP, TLS, SASL, each step bounded by the deadline.

Owns saying what is wrong when it is not AMQP 1.0 that answers: HTTP, AMQP 0-9-1, TLS on a plain port, a password, silence. Runs on
the caller's thread, before there is any other. Must not know the protocol engine. Rules O04, O09; issue section "Bad input".
"""

from __future__ import annotations

import errno
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, Final, NoReturn

from jmsclient.clock import Clock
from jmsclient.errors import ConfigurationError, ConnectionLostError, JmsClientError, MessageFormatError, RequestTimeoutError
from jmsclient_amqp.primitives import Described, binary, described, listed, read, symbol
from jmsclient_amqp.sasl import Mechanism, Scram, choose
from jmsclient_amqp.settings import PORTS, Settings
from jmsclient_amqp.tls import bound, certificate_wanted, encrypted

_SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
_LONGEST_FRAME: Final = 1 << 16
_MECHANISMS, _INIT, _CHALLENGE, _RESPONSE, _OUTCOME = range(0x40, 0x45)


def reach(settings: Settings, clock: Clock, deadline: float | None) -> tuple[socket.socket, bytes]:
    """The socket after a successful log in, and bytes that came after that. Raises ConnectionLostError, RequestTimeoutError and
    ConfigurationError, each naming the cause and the fix; nothing is left open then."""
    connection = _connected(settings, clock, deadline)
    try:
        if settings.tls:
            connection = encrypted(connection, settings, clock, deadline)
        return connection, _Login(connection, settings, clock, deadline).run()
    except BaseException:
        connection.close()
        raise


def _connected(settings: Settings, clock: Clock, deadline: float | None) -> socket.socket:
    """At one of its addresses: each has its share of the time, so that one that never answers leaves some for the others."""
    places = _addresses_in_time(settings, clock, deadline)
    failure: OSError = TimeoutError()
    for rest in range(len(places), 0, -1):
        left = clock.left(deadline)
        if left is not None and left <= 0:
            break
        try:
            return _connected_to(places[-rest], None if left is None else left / rest)
        except OSError as error:
            failure = error
    if isinstance(failure, TimeoutError):
        raise RequestTimeoutError(
            f"{settings.peer} does not answer at all: is the host right, and does a firewall let it through?"
        ) from None
    raise ConnectionLostError(f"{settings.peer}: {_unreached(failure, settings)}") from failure


def _connected_to(place: Any, timeout: float | None) -> socket.socket:
    """One address as `getaddrinfo` gives it. Raises OSError."""
    family, kind, protocol, _, address = place
    connection = socket.socket(family, kind, protocol)
    try:
        connection.settimeout(timeout)
        connection.connect(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        connection.close()
        raise
    return connection


def _addresses_in_time(settings: Settings, clock: Clock, deadline: float | None) -> list[Any]:
    """The system's resolver takes no time-out, and may take minutes: whoever asks it is left to it when the time is over."""
    found: list[list[Any] | Exception] = []
    bell = clock.bell()

    def ask() -> None:
        try:
            found.append(_addresses(settings))
        except Exception as error:  # noqa: BLE001  whatever it is, whoever waits is to hear it
            found.append(error)
        bell.ring()

    threading.Thread(target=ask, name=f"jmsclient-amqp-resolve-{settings.host}", daemon=True).start()
    bell.wait(clock.left(deadline))
    if not found:
        raise RequestTimeoutError(
            f"{settings.peer}: this machine's name service does not say in time where the host {settings.host!r} is: does it "
            "answer at all, and is the host right?"
        )
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _addresses(settings: Settings) -> list[Any]:
    try:
        return socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise ConnectionLostError(
            f"the host {settings.host!r} is not known ({error.strerror}): is it written right, "
            "and does this machine's name service know it?"
        ) from error
    except UnicodeError:
        raise ConfigurationError(
            f"{settings.host!r} cannot be the name of a host: each part between dots has 1 to 63 characters"
        ) from None


def _unreached(error: OSError, settings: Settings) -> str:
    if error.errno == errno.ECONNREFUSED:
        with_tls = "with TLS " if settings.tls else ""
        return (
            "nothing listens on that port: is the broker started, and are host and port right? "
            f"AMQP {with_tls}is usually on port {PORTS['amqps' if settings.tls else 'amqp']}"
        )
    why = error.strerror or str(error)
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return f"{why}: is the host right, and is there a way to its network from here?"
    return why


# -- SASL ---------------------------------------------------------------------------------------------------------------


class _Login:
    """The SASL layer of one connection."""

    def __init__(self, connection: socket.socket, settings: Settings, clock: Clock, deadline: float | None) -> None:
        self._connection = connection
        self._settings = settings
        self._bind: Callable[[], None] = lambda: bound(connection, settings, clock, deadline)
        self._data = bytearray()

    def run(self) -> bytes:
        """Log in; what came after the outcome."""
        self._send(_SASL_HEADER)
        self._expect_header()
        mechanism: Mechanism | None = None
        while True:
            code, fields = self._frame()
            first = fields[0] if fields else None
            if code == _MECHANISMS and mechanism is None:
                offered = first if isinstance(first, list) else [first] if first else []
                mechanism = choose(self._settings, tuple(str(one) for one in offered))
                host = self._settings.vhost or self._settings.host
                init = listed([symbol(mechanism.name), binary(mechanism.first()), b"\xa1" + _short(host)])
                self._send(_sasl_frame(_INIT, init))
            elif code == _CHALLENGE and mechanism is not None and isinstance(first, bytes):
                self._send(_sasl_frame(_RESPONSE, listed([binary(mechanism.answer(first))])))
            elif code == _OUTCOME and mechanism is not None:
                self._judge(mechanism, first, fields[1] if len(fields) > 1 else None)
                return bytes(self._data)
            else:
                raise self._garbage()

    def _judge(self, mechanism: Mechanism, code: Any, more: Any) -> None:
        settings = self._settings
        if code == 0:
            if isinstance(mechanism, Scram):
                mechanism.last(more if isinstance(more, bytes) else b"")
            mechanism.check()
        elif code == 1:
            who = f"user {settings.username!r}" if mechanism.name not in ("ANONYMOUS", "EXTERNAL") else "this client"
            raise ConfigurationError(
                f"{settings.peer} does not let {who} in (SASL {mechanism.name}): check user name and password"
                if mechanism.name not in ("ANONYMOUS", "EXTERNAL")
                else f"{settings.peer} does not let {who} in with SASL {mechanism.name}: give a user name and a password"
            )
        else:
            raise ConnectionLostError(f"{settings.peer} cannot check who we are now (SASL outcome {code!r}); try again later")

    def _expect_header(self) -> None:
        data = self._need(8)
        if data == _SASL_HEADER:
            del self._data[:8]
            return
        peer = self._settings.peer
        if data[:4] == b"AMQP":
            if data[4] in (0, 1) and data[5:8] in (b"\x00\x09\x01", b"\x01\x00\x0a", b"\x01\x08\x00", b"\x09\x01\x00"):
                raise ConfigurationError(
                    f"{peer} speaks AMQP 0-9-1 or 0-10, which is another protocol than AMQP 1.0; "
                    "in RabbitMQ before 4.0, enable the plugin rabbitmq_amqp1_0"
                )
            if data[4] == 2:
                raise ConfigurationError(f"{peer} wants TLS; write the URL as amqps://…")
            if data[4] == 0:
                raise ConfigurationError(
                    f"{peer} takes no log in (SASL) on that port; this client always logs in: allow ANONYMOUS there"
                )
        raise self._garbage()

    def _garbage(self) -> JmsClientError:
        """What it is that answered."""
        peer, data = self._settings.peer, bytes(self._data[:64])
        if data[:5] == b"HTTP/" or data.lower().startswith((b"<!doctype", b"<html")):
            return ConfigurationError(
                f"{peer} speaks HTTP on that port: it is a web server, or a broker's console; AMQP has another port"
            )
        if data[:2] in (b"\x15\x03", b"\x16\x03"):
            return ConfigurationError(f"{peer} speaks TLS on that port; write the URL as amqps://…")
        return ConfigurationError(f"{peer} does not speak AMQP 1.0 on that port; it said {data[:24]!r}")

    def _frame(self) -> tuple[int, list[Any]]:
        size, offset, kind = struct.unpack(">IBB", self._need(8)[:6])
        if kind != 1 or offset < 2 or not offset * 4 <= size <= _LONGEST_FRAME:
            raise self._garbage()
        data = bytes(self._need(size)[offset * 4 :])
        try:
            value, _ = read(data)
        except MessageFormatError:
            raise self._garbage() from None
        if not isinstance(value, Described) or not isinstance(value.value, list) or not isinstance(value.descriptor, int):
            raise self._garbage()
        del self._data[:size]
        return int(value.descriptor), value.value

    def _need(self, count: int) -> bytes:
        """The next `count` bytes, left where they are."""
        while len(self._data) < count:
            self._bind()
            try:
                received = self._connection.recv(4096)
            except TimeoutError:
                self._too_late()
            except OSError as error:
                self._closed(error)
            if not received:
                if self._data and not self._data.startswith(_SASL_HEADER[: len(self._data)]):
                    raise self._garbage()
                self._closed(None)
            self._data += received
            if len(self._data) < count and not b"AMQP".startswith(self._data[:4]) and self._data[:1] != b"\x00":
                raise self._garbage()  # it need not say more to be known as something else
        return bytes(self._data[:count])

    def _send(self, data: bytes) -> None:
        self._bind()
        try:
            self._connection.sendall(data)
        except TimeoutError:
            self._too_late()
        except OSError as error:
            self._closed(error)

    def _too_late(self) -> NoReturn:
        other = "amqp" if self._settings.tls else "amqps"
        raise RequestTimeoutError(
            f"{self._settings.peer} took the connection and says nothing; is it an AMQP 1.0 port, and not one for {other}:// ?"
        )

    def _closed(self, error: OSError | None) -> NoReturn:
        wanted = certificate_wanted(self._settings, error)
        if wanted is not None:
            raise wanted from error
        why = f" ({error.strerror or type(error).__name__})" if error is not None else ""
        other = "amqp" if self._settings.tls else "amqps"
        certificate = " Or does it want a certificate of this client (cert_file)?" if self._settings.lacks_certificate else ""
        raise ConnectionLostError(
            f"{self._settings.peer} closed the connection during the log in{why}; "
            f"is it an AMQP 1.0 port, and not one for {other}:// ?{certificate}"
        )


def _sasl_frame(code: int, fields: bytes) -> bytes:
    body = described(code, fields)
    return struct.pack(">IBBH", len(body) + 8, 2, 1, 0) + body


def _short(host: str) -> bytes:
    data = host.encode("idna" if not host.isascii() else "ascii")[:255]
    return bytes((len(data),)) + data
