"""Settings from URLs and the SASL conversations: the examples of the RFCs, and what a broker gets to see."""

from __future__ import annotations

from typing import Any

import pytest

from jmsclient.errors import ConfigurationError
from jmsclient.transport.registry import parse_url
from jmsclient_amqp.sasl import Scram, choose, prepared
from jmsclient_amqp.settings import Settings, settings_of

SECRET = "p@s:s/w#r%d+ x%41"


def settings(**values: Any) -> Settings:
    given = {"host": "broker", "port": 5672, "tls": False, "username": "user", "password": "pencil", **values}
    return Settings(**given)


# -- SCRAM: the examples of RFC 5802 and RFC 7677 ------------------------------------------------------------------------

RFC = [
    (
        "SCRAM-SHA-1",
        "fyko+d2lbbFgONRv9qkxdawL",
        b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (
        "SCRAM-SHA-256",
        "rOprNGfwEbeRWgbNEkqO",
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]


@pytest.mark.parametrize(("name", "nonce", "first", "challenge", "final", "proof"), RFC, ids=[row[0] for row in RFC])
def test_scram_as_in_the_rfc(name: str, nonce: str, first: bytes, challenge: bytes, final: bytes, proof: bytes) -> None:
    scram = Scram(settings(), name, nonce)
    assert scram.first() == first
    assert scram.answer(challenge) == final
    with pytest.raises(ConfigurationError, match="did not prove"):
        scram.check()
    scram.last(proof)
    scram.check()


def test_a_broker_that_does_not_know_the_password_is_found_out() -> None:
    name, nonce, _, challenge, _, _ = RFC[1]
    scram = Scram(settings(), name, nonce)
    scram.answer(challenge)
    with pytest.raises(ConfigurationError, match="does not know this user's password"):
        scram.answer(b"v=AAAA")


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=other,s=QSXCR+Q6sek8bf92,i=4096",
        b"r=mine,s=QSXCR+Q6sek8bf92,i=4096",
        b"r=mine+,s=!!,i=4096",
        b"r=mine+,s=QSXCR+Q6sek8bf92,i=0",
        b"r=mine+,s=QSXCR+Q6sek8bf92,i=4000000000",
        b"r=mine+,s=QSXCR+Q6sek8bf92",
    ],
)
def test_scram_refuses_a_broken_challenge(challenge: bytes) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Scram(settings(), "SCRAM-SHA-256", "mine").answer(challenge)
    assert "pencil" not in str(caught.value)


def test_names_and_passwords_are_prepared() -> None:
    assert prepared("I\u00adX") == "IX"
    assert prepared("\u2168") == "IX"
    assert Scram(settings(username="a=b,c"), "SCRAM-SHA-1", "n").first() == b"n,,n=a=3Db=2Cc,r=n"
    with pytest.raises(ConfigurationError):
        prepared("a\u0007b")


# -- choosing -----------------------------------------------------------------------------------------------------------

ALL = ("ANONYMOUS", "PLAIN", "SCRAM-SHA-256", "EXTERNAL", "GSSAPI")
NOBODY: dict[str, Any] = {"username": None, "password": None}


@pytest.mark.parametrize(
    ("values", "offered", "chosen"),
    [
        ({}, ALL, "SCRAM-SHA-256"),
        ({"cert_file": "client.pem", "tls": True}, ALL, "EXTERNAL"),
        (NOBODY, ALL, "ANONYMOUS"),
        ({"tls": True}, ("PLAIN", "ANONYMOUS"), "PLAIN"),
        ({"host": "localhost"}, ("PLAIN",), "PLAIN"),
        ({"host": "127.0.0.2"}, ("PLAIN",), "PLAIN"),
        ({"host": "::1"}, ("PLAIN",), "PLAIN"),
        ({"insecure_plain": True}, ("PLAIN",), "PLAIN"),
        ({"mechanisms": ("PLAIN",), "tls": True}, ALL, "PLAIN"),
        ({"mechanisms": ("ANONYMOUS",)}, ALL, "ANONYMOUS"),
    ],
)
def test_the_best_mechanism_is_chosen(values: dict[str, Any], offered: tuple[str, ...], chosen: str) -> None:
    assert choose(settings(**values), offered).name == chosen


@pytest.mark.parametrize(
    ("values", "offered", "says"),
    [
        ({}, ("PLAIN",), r"insecure_plain=yes"),
        (NOBODY, ("PLAIN",), "wants a user name and a password"),
        (NOBODY, ("SCRAM-SHA-1",), "wants a user name and a password"),
        ({}, ("ANONYMOUS",), "offers ANONYMOUS"),
        ({}, (), "offers nothing"),
        ({}, ("GSSAPI",), "offers GSSAPI"),
        ({"mechanisms": ("EXTERNAL",), "tls": True}, ALL, "cert_file"),
    ],
)
def test_what_cannot_be_chosen_is_explained(values: dict[str, Any], offered: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        choose(settings(**values), offered)
    assert "pencil" not in str(caught.value)


def test_plain_sends_user_and_password_as_they_are() -> None:
    one = settings(host="localhost", username="us:er", password=SECRET)
    assert choose(one, ("PLAIN",)).first() == f"\0us:er\0{SECRET}".encode()


# -- the URL ------------------------------------------------------------------------------------------------------------


def test_o09_the_url_gives_user_and_password_decoded_once() -> None:
    url = "amqp://us%3Aer:p%40s%3As%2Fw%23r%25d%2B%20x%2541@[::1]:1234?vhost=v%2Fh&sasl=plain,scram-sha-1&idle_timeout=0"
    found = settings_of(parse_url(url))
    assert (found.host, found.port, found.username, found.password) == ("::1", 1234, "us:er", SECRET)
    assert (found.vhost, found.mechanisms, found.idle_timeout) == ("v/h", ("PLAIN", "SCRAM-SHA-1"), 0.0)
    assert SECRET not in repr(found)
    assert found.peer == "amqp://[::1]:1234"


@pytest.mark.parametrize(("url", "port"), [("amqp://h", 5672), ("amqps://h", 5671), ("amqp://h:7", 7)])
def test_the_port_has_a_default(url: str, port: int) -> None:
    assert settings_of(parse_url(url)).port == port


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("amqp://", "host:port"),
        ("amqp://h:0", "port '0'"),
        ("amqp://h:x", "port 'x'"),
        ("amqp://h:70000", "65535"),
        ("amqp://::1:5672", "brackets"),
        ("amqp://[::1", "brackets"),
        ("amqp://h/queue", "path"),
        ("amqp://h?heartbeat=5", "no parameter 'heartbeat'"),
        ("amqp://h?ca_file=x", "amqps"),
        ("amqps://h?key_file=x", "cert_file"),
        ("amqp://h?sasl=GSSAPI", "sasl="),
        ("amqp://h?sasl=", "sasl="),
        ("amqp://h?idle_timeout=1", "idle_timeout"),
        ("amqp://h?idle_timeout=soon", "idle_timeout"),
        ("amqp://h?drain_timeout=0.1", "drain_timeout"),
        ("amqp://h?max_frame_bytes=100", "max_frame_bytes"),
        ("amqps://h?verify=maybe", "verify"),
    ],
)
def test_a_url_that_cannot_work_says_why(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says.replace("[", r"\[")):
        settings_of(parse_url(url))
