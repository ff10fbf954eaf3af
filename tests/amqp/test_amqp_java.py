"""Both ways between this client and the JMS client of Apache Qpid: every kind, property width, header and id type (C04)."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jmsclient
from jmsclient.message import Message, MessageKind
from jmsclient.transport.registry import parse_url

from .conftest import compiled_java

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the first test of a broker may have to fetch it

JAVA = Path(__file__).parents[1] / "brokers" / "java"
Peer = Callable[..., list[str]]


@pytest.fixture(params=["artemis", "broker_j"], scope="module")
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(scope="module")
def peer(url: str, java: None) -> Peer:
    """`peer("send", queue)` or `peer("receive", queue, 3)`: what it printed, line by line."""
    classpath = compiled_java(JAVA / "pom-jms.xml", JAVA / "JmsPeer.java", "jms-peer-2.10.0")
    endpoint = parse_url(url)

    def run(what: str, queue: str, count: int = 0) -> list[str]:
        uri = f"amqp:{endpoint.address}?amqp.saslMechanisms=PLAIN"
        words = [
            "java",
            "-Xmx64m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Dfile.encoding=UTF-8",
            "-Dstdout.encoding=UTF-8",
        ]
        words += ["-cp", classpath, "JmsPeer", what, uri, str(endpoint.username), queue, str(count)]
        environment = {**os.environ, "BROKER_PASSWORD": str(endpoint.password)}
        done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", env=environment, timeout=90, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.fixture
def queue() -> str:
    return f"live.{secrets.token_hex(6)}"


FROM_JAVA: list[tuple[MessageKind, Any]] = [
    (MessageKind.TEXT, "größe"),
    (MessageKind.TEXT, None),
    (MessageKind.BYTES, b"\x00\x00\x00\x07\xff"),
    (
        MessageKind.MAP,
        {
            "int": 1, "long": 1 << 40, "double": 1.5, "float": 2.5, "string": "v", "boolean": True, "byte": -3, "short": -4,
            "char": "z", "bytes": b"\x01\x02", "null": None,
        },
    ),
    (MessageKind.STREAM, [1, "two", 3.0, b"\x09", "q", None]),
    (MessageKind.OBJECT, ...),
    (MessageKind.MESSAGE, None),
]  # fmt: skip
PROPERTIES = {
    "int": 5, "string": "é", "boolean": True, "double": 1.25, "long": 1 << 40, "byte": 1, "short": 2, "float": 0.5,
    "JMSXGroupID": "g1", "JMSXGroupSeq": 3,
}  # fmt: skip


def test_c04_what_java_sends(url: str, peer: Peer, queue: str) -> None:
    ids = peer("send", queue)
    found: dict[str | None, Message] = {}
    with jmsclient.connect(url) as connection:
        consumer = connection.create_session().create_consumer(f"queue:///{queue}")
        for _ in FROM_JAVA:
            message = consumer.receive(20.0)
            assert message is not None
            found[message.message_id] = message
    for number, (message_id, (kind, body)) in enumerate(zip(ids, FROM_JAVA, strict=True)):
        message = found[message_id]
        assert message.kind is kind
        if kind is MessageKind.OBJECT:
            assert isinstance(message.body, bytes)
            assert message.body[:2] == b"\xac\xed"
        else:
            assert message.body == body
        assert dict(message.properties) == PROPERTIES
        assert (message.priority, message.persistent, message.type) == (7, number % 2 == 0, "mytype")
        assert message.correlation_id == ("corr-1" if number == 0 else f"ID:AMQP_UUID:00000000-0000-0000-0000-00000000000{number}")
        assert str(message.reply_to) == ("queue:///reply.q" if number % 2 == 0 else "topic:///reply.t")
        assert str(message.destination) == f"queue:///{queue}"
        assert message.timestamp is not None
        assert message.expiration is not None
        assert message.delivery_count == 1


TO_JAVA: list[tuple[Any, str, list[str]]] = [
    ("größe", "TEXT", ["body=größe:String"]),
    (Message(None, kind=MessageKind.TEXT), "TEXT", ["body=null:null"]),
    (b"\x00\xff", "BYTES", ["body=[0, -1]:byte[]"]),
    (
        {"a": 1, "b": 0.5, "c": True, "d": "x", "e": b"\x01", "f": None},
        "MAP",
        ["body.a=1:Long", "body.b=0.5:Double", "body.c=true:Boolean", "body.d=x:String", "body.e=[1]:byte[]", "body.f=null:null"],
    ),
    (
        [1, "x", 2.5, b"\x02", False, None],
        "STREAM",
        ["body.0=1:Long", "body.1=x:String", "body.2=2.5:Double", "body.3=[2]:byte[]", "body.4=false:Boolean", "body.5=null:null"],
    ),
    (Message(b"\xac\xed\x00\x05p", kind=MessageKind.OBJECT), "OBJECT", []),
    (None, "MESSAGE", []),
]


def test_c04_what_java_receives(url: str, peer: Peer, queue: str) -> None:
    ids = []
    with jmsclient.connect(url) as connection:
        producer = connection.create_session().create_producer(f"queue:///{queue}", priority=7, time_to_live=60)
        for body, _, _ in TO_JAVA:
            ids.append(
                producer.send(
                    body,
                    properties={"n": 5, "x": 0.5, "t": "é", "yes": True, "JMSXGroupID": "g1", "JMSXGroupSeq": 3},
                    correlation_id="ID:AMQP_ULONG:9",
                    reply_to="topic:///reply.t",
                    type="mytype",
                )
            )
    lines = peer("receive", queue, len(TO_JAVA))
    assert len(lines) == len(TO_JAVA), lines
    for line, message_id, (_, kind, body) in zip(lines, ids, TO_JAVA, strict=True):
        said = line.split("\t")
        assert said[0] == kind
        assert said[1:11] == [
            "mode=2", "priority=7", f"id={message_id}", "correlation=ID:AMQP_ULONG:9", "type=mytype", "reply=reply.t",
            f"destination={queue}", "redelivered=false", "count=1", "expires=true",
        ]  # fmt: skip
        assert [one for one in said if one.startswith("body")] == body
        properties = [one for one in said if one.startswith(".") and not one.startswith(".JMSXDeliveryCount")]
        assert properties == [
            ".JMSXGroupID=g1:String", ".JMSXGroupSeq=3:Integer", ".n=5:Long", ".t=é:String", ".x=0.5:Double", ".yes=true:Boolean",
        ]  # fmt: skip
