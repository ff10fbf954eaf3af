"""Whatever answers instead of a broker: an error within the time-out that names cause and fix, and nothing left behind."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jmsclient.errors import ConfigurationError, ConnectionLostError, JmsClientError, RequestTimeoutError
from jmsclient.transport.contract import Transport
from jmsclient.transport.registry import find_backend, parse_url

from .peer import Peer

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
from jmsclient_amqp import reach

SECRET = "s3cret/@:%41+"
QUOTED = "s3cret%2F%40%3A%2541%2B"
TIMEOUT = 10.0


def connect(url: str, timeout: float = TIMEOUT) -> Transport:
    endpoint = parse_url(url)

    class Listener:
        def lost(self, error: Exception) -> None:
            raise AssertionError("nobody connected, so nothing can be lost")

    return find_backend(endpoint.scheme).connect(endpoint, Listener(), deadline=endpoint.clock.deadline(timeout))


def refused(url: str, timeout: float = TIMEOUT) -> JmsClientError:
    """The error of a connect, which must come in time, leave no thread and no password."""
    before = set(threading.enumerate())
    start = time.monotonic()
    with pytest.raises(JmsClientError) as caught:
        connect(url, timeout)
    assert time.monotonic() - start < timeout + 5.0
    end = time.monotonic() + 20
    while left := {thread for thread in set(threading.enumerate()) - before if thread.name.startswith("jmsclient")}:
        assert time.monotonic() < end, left
        time.sleep(0.01)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in repr(error)
        assert QUOTED not in repr(error)
        error = error.__cause__ or error.__context__
    return caught.value


@contextlib.contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Something that listens and serves one connection so."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield int(listening.getsockname()[1])
    thread.join(5)


def says(data: bytes, *, then_stays: bool = False) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.settimeout(5)
        with contextlib.suppress(OSError):
            while connection.recv(4096) and then_stays:  # what was said is not read any more by a closed socket
                pass

    return serve


ANSWERS = {
    "HTTP": (b"HTTP/1.1 400 Bad Request\r\n\r\n", ConfigurationError, "HTTP"),
    "HTML": (b"<!DOCTYPE html><html>", ConfigurationError, "HTTP"),
    "AMQP 0-9-1": (b"AMQP\x00\x00\x09\x01", ConfigurationError, "rabbitmq_amqp1_0"),
    "AMQP wants TLS": (b"AMQP\x02\x01\x00\x00", ConfigurationError, "amqps://"),
    "AMQP without SASL": (b"AMQP\x00\x01\x00\x00", ConfigurationError, "ANONYMOUS"),
    "TLS alert": (b"\x15\x03\x01\x00\x02\x02\x16", ConfigurationError, "amqps://"),
    "SSH": (b"SSH-2.0-OpenSSH_9.2\r\n", ConfigurationError, "does not speak AMQP 1.0"),
    "Redis": (b"-ERR unknown command 'AMQP'\r\n", ConfigurationError, "does not speak AMQP 1.0"),
    "three letters": (b"no\n", ConfigurationError, "does not speak AMQP 1.0"),
    "nothing": (b"", ConnectionLostError, "closed the connection"),
    "half a header": (b"AMQP\x03", ConnectionLostError, "closed the connection"),
    "garbage for mechanisms": (b"AMQP\x03\x01\x00\x00" + b"\xff" * 64, ConfigurationError, "does not speak AMQP 1.0"),
    "an endless frame": (b"AMQP\x03\x01\x00\x00\x7f\xff\xff\xff\x02\x01\x00\x00", ConfigurationError, "does not speak AMQP 1.0"),
    "a frame of nonsense": (
        b"AMQP\x03\x01\x00\x00\x00\x00\x00\x0c\x02\x01\x00\x00\x01\x01\x01\x01",
        ConfigurationError,
        "AMQP 1.0",
    ),
}


@pytest.mark.parametrize(("data", "kind", "text"), ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("stays", [False, True], ids=["closes", "stays"])
def test_o09_what_answers_is_named(data: bytes, kind: type[JmsClientError], text: str, stays: bool) -> None:
    silent = stays and kind is ConnectionLostError
    with server(says(data, then_stays=stays)) as port:
        error = refused(f"amqp://user:{QUOTED}@127.0.0.1:{port}", 1.0 if silent else TIMEOUT)
    if silent:
        assert isinstance(error, RequestTimeoutError)
    else:
        assert isinstance(error, kind)
        assert text in str(error)
    assert f"127.0.0.1:{port}" in str(error)


def test_o04_a_peer_that_takes_the_connection_and_never_answers() -> None:
    with server(says(b"", then_stays=True)) as port:
        error = refused(f"amqp://127.0.0.1:{port}", 0.3)
    assert isinstance(error, RequestTimeoutError)
    assert "amqps://" in str(error)


def test_o04_a_peer_that_logs_in_and_then_never_opens() -> None:
    with Peer() as peer:
        peer.on[0x10] = lambda conversation, frame: None
        error = refused(peer.url, 0.3)
    assert isinstance(error, RequestTimeoutError)


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    error = refused(f"amqp://user:{QUOTED}@127.0.0.1:{port}")
    assert isinstance(error, ConnectionLostError)
    assert "nothing listens on that port: is the broker started, and are host and port right?" in str(error)
    assert "usually on port 5672" in str(error)
    assert "usually on port 5671" in str(refused(f"amqps://127.0.0.1:{port}"))


def test_an_unknown_host() -> None:
    error = refused(f"amqp://user:{QUOTED}@no-such-host.invalid:5672", 10)
    assert isinstance(error, ConnectionLostError)
    assert "no-such-host.invalid" in str(error)
    assert "is it written right" in str(error)


@pytest.mark.parametrize("host", ["a" * 70 + ".example", "two..dots", "größe" * 20])
def test_what_cannot_be_a_host(host: str) -> None:
    error = refused(f"amqp://user:{QUOTED}@{host}:5672")
    assert isinstance(error, ConfigurationError)
    assert "63 characters" in str(error)


def test_o09_a_name_service_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows no time-out, so that nobody waits for it who has one."""
    over = threading.Event()
    asked: list[threading.Thread] = []

    def unanswered(*_: object, **__: object) -> None:
        asked.append(threading.current_thread())
        over.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", unanswered)
    try:
        with pytest.raises(RequestTimeoutError, match=r"name service .* 'broker\.example'"):
            connect("amqp://broker.example", 0.2)
    finally:
        over.set()
    for thread in asked:
        thread.join()


def test_each_address_of_a_host_has_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a host whose first address never answers would not be reached, and three that do not would take three times as long."""
    shares: list[float] = []
    connect_to = reach._connected_to

    def connected_to(place: object, timeout: float) -> socket.socket:
        shares.append(timeout)
        if len(shares) < 3:
            raise TimeoutError
        return connect_to(place, timeout)

    with Peer() as peer:
        places = socket.getaddrinfo("127.0.0.1", peer.port, type=socket.SOCK_STREAM) * 3
        monkeypatch.setattr(reach, "_addresses", lambda settings: places)
        monkeypatch.setattr(reach, "_connected_to", connected_to)
        transport = connect(peer.url, 30.0)
        transport.close(None)
    assert shares == [pytest.approx(30.0 / 3, abs=3.0), pytest.approx(30.0 / 2, abs=3.0), pytest.approx(30.0, abs=3.0)]


def test_o09_a_wrong_password() -> None:
    with Peer() as peer:
        peer.sasl_code = 1
        error = refused(f"amqp://us%3Aer:{QUOTED}@127.0.0.1:{peer.port}")
        assert peer.credentials == [("PLAIN", f"\0us:er\0{SECRET}".encode())]
    assert isinstance(error, ConfigurationError)
    assert "'us:er'" in str(error)


def test_a_broker_that_cannot_check_now() -> None:
    with Peer() as peer:
        peer.sasl_code = 4
        assert isinstance(refused(peer.url), ConnectionLostError)


def test_a_broker_that_closes_instead_of_opening() -> None:
    from .peer import CLOSE, described, listed, symbol, text

    with Peer() as peer:

        def close(conversation, frame):  # type: ignore[no-untyped-def]
            reason = described(0x1D, listed([symbol("amqp:unauthorized-access"), text("not you")]))
            conversation.send(0, 0x10, text("peer"))
            conversation.send(0, CLOSE, reason)

        peer.on[0x10] = close
        error = refused(peer.url)
    assert isinstance(error, ConfigurationError)
    assert "not you" in str(error)


def test_garbage_after_the_log_in() -> None:
    with Peer() as peer:
        peer.on[0x10] = lambda conversation, frame: conversation.socket.sendall(b"\x00" * 64)
        assert isinstance(refused(peer.url), ConnectionLostError)


# -- TLS ----------------------------------------------------------------------------------------------------------------


KEY_PASSWORD = "k3y/+%41"
SIGNS = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # as Python 3.13 wants it of an authority
SIGNED_BY = "authorityKeyIdentifier=keyid"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates for localhost: a good one, one that has expired, one for another name, one that does not say
    who signed it."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=100)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-days", "30", "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem", *SIGNS)
    for name, names, extension, extra in (
        ("good", "DNS:localhost,IP:127.0.0.1,IP:::1", SIGNED_BY, ["-days", "30"]),
        ("other", "DNS:elsewhere.example", SIGNED_BY, ["-days", "30"]),
        ("expired", "DNS:localhost,IP:127.0.0.1", SIGNED_BY, ["-days", "-1"]),
        ("brief", "DNS:localhost", "authorityKeyIdentifier=none", ["-days", "30"]),
    ):
        (folder / f"{name}.ext").write_text(f"subjectAltName={names}\n{extension}\n")
        openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-extfile", f"{name}.ext", "-out", f"{name}.pem", *extra,
        )  # fmt: skip
    openssl("req", "-x509", *key, "-days", "30", "-subj", "/CN=stranger", "-keyout", "stranger.key", "-out", "stranger.pem")
    openssl("pkey", "-in", "good.key", "-aes256", "-passout", f"pass:{KEY_PASSWORD}", "-out", "locked.key")
    return folder


def tls_server(
    certificates: Path, name: str, serve: Callable[[socket.socket], None], *, wants_ours: bool = False
) -> contextlib.AbstractContextManager[int]:
    """One with that certificate; `wants_ours`: the client is to have one of the authority, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    if wants_ours:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates / "ca.pem")

    def encrypted(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as inside:
            try:
                inside.do_handshake()
            except ssl.SSLError:
                inside.settimeout(5)
                while socket.socket.recv(inside, 4096):  # else it is reset, and what was said about it may be lost
                    pass
            else:
                serve(inside)

    return server(encrypted)


BAD_CERTIFICATES = [
    ("expired", "?ca_file={ca}", "expired"),
    ("other", "?ca_file={ca}", "host name"),
    ("good", "", "ca_file"),
]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize(("name", "query", "text"), BAD_CERTIFICATES, ids=[row[0] for row in BAD_CERTIFICATES])
def test_a_certificate_that_is_not_accepted(certificates: Path, host: str, name: str, query: str, text: str) -> None:
    with tls_server(certificates, name, says(b"")) as port:
        error = refused(f"amqps://user:{QUOTED}@{host}:{port}{query.format(ca=certificates / 'ca.pem')}", 5)
    assert isinstance(error, ConfigurationError)
    assert text in str(error) or (name == "other" and "address" in str(error))


def test_a_certificate_that_is_accepted_by_lenient_checks_only(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 and later check strictly: what it says helps nobody who has used the same authority for years."""
    lenient = ssl.create_default_context

    def strict(**settings: Any) -> ssl.SSLContext:
        made = lenient(**settings)
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        return made

    monkeypatch.setattr(ssl, "create_default_context", strict)
    with tls_server(certificates, "brief", says(b"")) as port:
        error = refused(f"amqps://user:{QUOTED}@localhost:{port}?ca_file={certificates / 'ca.pem'}", 5)
    assert isinstance(error, ConfigurationError)
    assert "issued anew" in str(error)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_good_certificate_is_accepted_by_name_and_by_address(certificates: Path, host: str) -> None:
    with tls_server(certificates, "good", says(b"HTTP/1.1 400\r\n")) as port:
        error = refused(f"amqps://user:{QUOTED}@{host}:{port}?ca_file={certificates / 'ca.pem'}", 5)
    assert "HTTP" in str(error)  # so TLS was through


@pytest.mark.parametrize(("name", "text"), [("good", "HTTP"), ("other", "another address")])
def test_an_ipv6_address_is_verified_too(certificates: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """By what is in the URL, wherever the connection goes: here to a socket of the other family, which every machine has."""
    with tls_server(certificates, name, says(b"HTTP/1.1 400\r\n")) as port:
        monkeypatch.setattr(reach, "_addresses", lambda settings: socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM))
        error = refused(f"amqps://user:{QUOTED}@[::1]:{port}?ca_file={certificates / 'ca.pem'}", 5)
    assert text in str(error)
    assert f"amqps://[::1]:{port}" in str(error)


OURS = [
    ("", ConfigurationError, "wants a certificate of this client"),
    ("&cert_file={stranger.pem}&key_file={stranger.key}", ConfigurationError, "does not accept the certificate of this client"),
    ("&cert_file={good.pem}&key_file={good.key}", ConfigurationError, "HTTP"),  # so TLS was through
    ("&cert_file={good.pem}&key_file={locked.key}&key_password=k3y%2F%2B%2541", ConfigurationError, "HTTP"),
    ("&cert_file={good.pem}&key_file={locked.key}&key_password=wr0ng-0ne", ConfigurationError, "cannot be used"),
    ("&cert_file={good.pem}&key_file={locked.key}", ConfigurationError, "cannot be used"),
    ("&cert_file={good.pem}&key_file={other.key}", ConfigurationError, "cannot be used"),
]


@pytest.mark.parametrize(("query", "kind", "text"), OURS)
def test_a_broker_that_wants_a_certificate_of_ours(certificates: Path, query: str, kind: type[JmsClientError], text: str) -> None:
    for name in ("good.pem", "good.key", "stranger.pem", "stranger.key", "locked.key", "other.key"):
        query = query.replace(f"{{{name}}}", str(certificates / name))
    with tls_server(certificates, "good", says(b"HTTP/1.1 400\r\n"), wants_ours=True) as port:
        error = refused(f"amqps://user:{QUOTED}@localhost:{port}?ca_file={certificates / 'ca.pem'}{query}", 5)
    assert isinstance(error, kind)
    assert text in str(error)
    for secret in (KEY_PASSWORD, "k3y%2F", "wr0ng-0ne"):
        assert secret not in str(error)


def test_what_is_reset_in_the_log_in_may_be_for_lack_of_a_certificate(certificates: Path) -> None:
    with tls_server(certificates, "good", lambda connection: None) as port:
        error = refused(f"amqps://localhost:{port}?ca_file={certificates / 'ca.pem'}", 5)
    assert isinstance(error, ConnectionLostError)
    assert "cert_file" in str(error)


def test_verification_can_be_turned_off(certificates: Path) -> None:
    with tls_server(certificates, "other", says(b"HTTP/1.1 400\r\n")) as port:
        assert "HTTP" in str(refused(f"amqps://localhost:{port}?verify=no", 5))


def test_tls_to_a_port_without_tls() -> None:
    with Peer() as peer:
        error = refused(f"amqps://127.0.0.1:{peer.port}")
    assert "amqp://" in str(error)
    with server(says(b"AMQP\x00\x01\x00\x00")) as port:
        assert "amqp://" in str(refused(f"amqps://127.0.0.1:{port}"))
    with server(says(b"", then_stays=True)) as port:
        assert "amqp://" in str(refused(f"amqps://127.0.0.1:{port}", 1.0))


def test_files_that_cannot_be_used(tmp_path: Path, certificates: Path) -> None:
    with server(says(b"", then_stays=True)) as port:
        error = refused(f"amqps://127.0.0.1:{port}?ca_file={tmp_path / 'absent.pem'}")
    assert isinstance(error, ConfigurationError)
    assert "absent.pem" in str(error)
