"""Proving who we are: SASL EXTERNAL, SCRAM, PLAIN and ANONYMOUS, as messages in and out.

Pure but for the nonce. It is our own because the socket is: so a SCRAM password needs no further library, errors name what the
broker offered, and no trace of the protocol engine ever shows a password. Source: RFC 4422, 4505, 4616, 5802, 7677; AMQP 1.0
part 5.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from abc import ABC, abstractmethod

from jmsclient.errors import ConfigurationError
from jmsclient_amqp.settings import Settings

_MOST_ROUNDS = 10_000_000  # a hostile peer must not keep a processor busy for hours


class Mechanism(ABC):
    """One conversation."""

    name: str

    @abstractmethod
    def first(self) -> bytes:
        """The initial response."""

    def answer(self, challenge: bytes) -> bytes:
        """To a challenge. Raises ConfigurationError where the mechanism expects none."""
        raise ConfigurationError(f"the broker asks more than SASL {self.name} has to say")

    def check(self) -> None:  # noqa: B027  most prove nothing
        """The broker says that all is well: raise ConfigurationError where it has not proved who it is."""


class External(Mechanism):
    """The certificate of the TLS layer says it."""

    name = "EXTERNAL"

    def __init__(self, settings: Settings) -> None:
        self._authorize = settings.username or ""

    def first(self) -> bytes:
        return self._authorize.encode()


class Plain(Mechanism):
    """The password itself."""

    name = "PLAIN"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def first(self) -> bytes:
        return f"\0{self._settings.username}\0{self._settings.password}".encode()


class Anonymous(Mechanism):
    """Nobody."""

    name = "ANONYMOUS"

    def __init__(self, settings: Settings) -> None:
        self._trace = settings.username or "jmsclient"

    def first(self) -> bytes:
        return self._trace.encode()


class Scram(Mechanism):
    """The proof of a password that does not show it, and of the broker that it knows it."""

    def __init__(self, settings: Settings, name: str, nonce: str | None = None) -> None:
        self.name = name
        self._hash = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[name]
        self._password = prepared(settings.password or "").encode()
        self._nonce = nonce or secrets.token_urlsafe(18)
        user = prepared(settings.username or "").replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={user},r={self._nonce}"
        self._signature: bytes | None = None
        self._proved = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes:
        if self._signature is not None:
            self._verify(challenge)
            return b""
        said = _attributes(challenge)
        try:
            nonce, salt, rounds = said["r"], base64.b64decode(said["s"], validate=True), int(said["i"])
        except (KeyError, ValueError):
            raise ConfigurationError(f"the broker's first word of SASL {self.name} cannot be read") from None
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not 1 <= rounds <= _MOST_ROUNDS:
            raise ConfigurationError(f"the broker's first word of SASL {self.name} does not answer ours")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, rounds)
        client_key = self._mac(salted, b"Client Key")
        final = f"c=biws,r={nonce}"
        signed = f"{self._bare},{challenge.decode()},{final}".encode()
        proof = bytes(
            one ^ other
            for one, other in zip(client_key, self._mac(hashlib.new(self._hash, client_key).digest(), signed), strict=True)
        )
        self._signature = self._mac(self._mac(salted, b"Server Key"), signed)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def check(self) -> None:
        if not self._proved:
            raise ConfigurationError("the broker did not prove that it knows the password: it may not be the one you meant")

    def last(self, data: bytes) -> None:
        """What came with the outcome: brokers may prove themselves there."""
        if not self._proved and data:
            self._verify(data)

    def _verify(self, data: bytes) -> None:
        try:
            given = base64.b64decode(_attributes(data).get("v", ""), validate=True)
        except ValueError:
            given = b""
        if self._signature is None or not hmac.compare_digest(given, self._signature):
            raise ConfigurationError("the broker does not know this user's password: it may not be the one you meant")
        self._proved = True

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self._hash).digest()


def _attributes(data: bytes) -> dict[str, str]:
    pairs = (part.partition("=") for part in data.decode("utf-8", "replace").split(","))
    return {name: value for name, equals, value in pairs if equals}


def prepared(value: str) -> str:
    """SASLprep (RFC 4013), so that the same password typed in two ways is one. Raises ConfigurationError."""
    mapped = "".join(" " if stringprep.in_table_c12(char) else "" if stringprep.in_table_b1(char) else char for char in value)
    mapped = unicodedata.normalize("NFKC", mapped)
    forbidden = (
        stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4,
        stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8, stringprep.in_table_c9,
    )  # fmt: skip
    if any(test(char) for char in mapped for test in forbidden):
        raise ConfigurationError("the user name or the password holds a character that SASL does not allow")
    return mapped


def choose(settings: Settings, offered: tuple[str, ...]) -> Mechanism:
    """The best that both sides speak and that this endpoint has the means for. Raises ConfigurationError saying why there is
    none."""
    has_password = settings.username is not None and settings.password is not None
    clear = not (settings.tls or settings.loopback or settings.insecure_plain)
    withheld = False
    for name in settings.mechanisms:
        if name not in offered:
            continue
        if name == "EXTERNAL" and settings.cert_file is not None:
            return External(settings)
        if name.startswith("SCRAM-") and has_password:
            return Scram(settings, name)
        if name == "PLAIN" and has_password:
            if not clear:
                return Plain(settings)
            withheld = True
        if name == "ANONYMOUS" and (not has_password or settings.mechanisms == (name,)):
            return Anonymous(settings)
    if withheld:
        raise ConfigurationError(
            f"{settings.peer} only takes the password in clear text (SASL PLAIN) over a connection without TLS; "
            "use amqps://, or say ?insecure_plain=yes"
        )
    said = ", ".join(offered) or "nothing"
    if not has_password and any(name == "PLAIN" or name.startswith("SCRAM-") for name in offered):
        raise ConfigurationError(f"{settings.peer} wants a user name and a password (it offers {said})")
    if "EXTERNAL" in offered and settings.mechanisms == ("EXTERNAL",):
        raise ConfigurationError("SASL EXTERNAL is by the certificate of this client: name it with ?cert_file=FILE&key_file=FILE")
    allowed = ", ".join(settings.mechanisms)
    raise ConfigurationError(f"{settings.peer} offers {said} to log in with; this endpoint can use {allowed}")
