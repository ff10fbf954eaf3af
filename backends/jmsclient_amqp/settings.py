"""The URL of an AMQP broker taken apart: where, how to prove who we are, and how the connection behaves.

Pure. Every parameter is written out here; an unknown one is an error that lists them. No secret enters an error. Rules O09; issue
section "TLS, SASL".
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final

from jmsclient.errors import ConfigurationError
from jmsclient.transport.contract import Endpoint

PORTS: Final = {"amqp": 5672, "amqps": 5671}
MECHANISMS: Final = ("EXTERNAL", "SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN", "ANONYMOUS")
"""What this client speaks, best first."""
_LEAST_IDLE_TIMEOUT: Final = 2.0
_LEAST_DRAIN_TIMEOUT: Final = 1.0
_LEAST_FRAME: Final = 512
_KNOWN: Final = (
    "sasl", "insecure_plain", "vhost", "idle_timeout", "max_frame_bytes", "provider", "ca_file", "cert_file", "key_file",
    "key_password", "verify", "drain_timeout",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """`idle_timeout` seconds without a byte after which the peer counts as gone (0: never); `drain_timeout` seconds without an
    answer to a drain after which its link does (0: never; IF-18); `insecure_plain` allows a password
    in clear text to another machine; `provider` names the broker where its own word is not to be believed; `verify` False
    trusts any certificate."""

    host: str
    port: int
    tls: bool
    username: str | None
    password: str | None = field(repr=False)
    mechanisms: tuple[str, ...] = MECHANISMS
    insecure_plain: bool = False
    vhost: str | None = None
    idle_timeout: float = 30.0
    drain_timeout: float = 60.0
    max_frame: int = 16384
    provider: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True

    @property
    def loopback(self) -> bool:
        """The peer is this machine, so that nobody in between reads along."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def lacks_certificate(self) -> bool:
        """TLS, and no certificate of our own."""
        return self.tls and self.cert_file is None

    @property
    def peer(self) -> str:
        """For errors and logs."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}"


def settings_of(endpoint: Endpoint) -> Settings:
    """Raises ConfigurationError naming the parameter and what it may be."""
    scheme = endpoint.scheme
    host, port = _authority(endpoint)
    given = endpoint.parameters
    unknown = [name for name in given if name not in _KNOWN]
    if unknown:
        raise ConfigurationError(f"the {scheme}: URL has no parameter {unknown[0]!r}; there is: {', '.join(_KNOWN)}")
    tls = scheme == "amqps"
    if not tls:
        for name in ("ca_file", "cert_file", "key_file", "key_password", "verify"):
            if name in given:
                raise ConfigurationError(f"{name} is for TLS; write the URL as amqps://…, or leave it out")
    if ("cert_file" in given) != ("key_file" in given) and "key_file" in given:
        raise ConfigurationError("key_file needs cert_file, the certificate that it is the key of")
    return Settings(
        host=host,
        port=port,
        tls=tls,
        username=endpoint.username,
        password=endpoint.password,
        mechanisms=_mechanisms(given.get("sasl")),
        insecure_plain=_switch("insecure_plain", given.get("insecure_plain", "no")),
        vhost=given.get("vhost"),
        idle_timeout=_number("idle_timeout", given.get("idle_timeout", "30"), _LEAST_IDLE_TIMEOUT, or_zero=True),
        drain_timeout=_number("drain_timeout", given.get("drain_timeout", "60"), _LEAST_DRAIN_TIMEOUT, or_zero=True),
        max_frame=int(_number("max_frame_bytes", given.get("max_frame_bytes", "16384"), _LEAST_FRAME)),
        provider=given.get("provider"),
        ca_file=given.get("ca_file"),
        cert_file=given.get("cert_file"),
        key_file=given.get("key_file"),
        key_password=given.get("key_password"),
        verify=_switch("verify", given.get("verify", "yes")),
    )


def _authority(endpoint: Endpoint) -> tuple[str, int]:
    scheme = endpoint.scheme
    authority, _, path = endpoint.address.removeprefix("//").partition("/")
    if path:
        raise ConfigurationError(f"the {scheme}: URL has a path; a virtual host is written ?vhost=NAME, a queue is named later")
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ConfigurationError(f"the {scheme}: URL has no end of its address in brackets")
        port = rest[1:]
    else:
        host, _, port = authority.partition(":")
        if ":" in port:
            raise ConfigurationError(f"write an IPv6 address in brackets: {scheme}://[::1]:5672")
    if not host:
        raise ConfigurationError(f"write the URL as {scheme}://host:port")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigurationError(f"port {port!r} of the {scheme}: URL: expected a number from 1 to 65535")
    return host, int(port) if port else PORTS[scheme]


def _mechanisms(given: str | None) -> tuple[str, ...]:
    if given is None:
        return MECHANISMS
    wanted = tuple(one.strip().upper() for one in given.split(",") if one.strip())
    unknown = [one for one in wanted if one not in MECHANISMS]
    if unknown or not wanted:
        raise ConfigurationError(f"sasl={given!r}: expected one or more of {', '.join(MECHANISMS)}, separated by commas")
    return wanted


def _switch(name: str, given: str) -> bool:
    if given.lower() in ("yes", "true", "1"):
        return True
    if given.lower() in ("no", "false", "0"):
        return False
    raise ConfigurationError(f"{name}={given!r}: expected yes or no")


def _number(name: str, given: str, least: float, *, or_zero: bool = False) -> float:
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not (least <= value < 1e9 or (or_zero and value == 0)):
        raise ConfigurationError(f"{name}={given!r}: expected a number from {least:g}{', or 0 for none' if or_zero else ''}")
    return value
