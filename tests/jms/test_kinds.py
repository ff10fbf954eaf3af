"""Every kind of message and every type of property, sent and received (C04, C06; JM 3.5, 3.11)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jmsclient import (
    AcknowledgeMode,
    Byte,
    Connection,
    Float,
    Int,
    Message,
    MessageFormatError,
    MessageKind,
    MessageNotWriteableError,
    Queue,
    Short,
    connect,
)
from jmsclient.testing.scripted import ScriptedBackend

EVERY_TYPE = {
    "b": True,
    "byte": Byte(-1),
    "short": Short(2),
    "int": Int(3),
    "long": 4,
    "float": Float(0.1),
    "double": 0.1,
    "s": "x",
}
BODIES: list[Any] = [
    (MessageKind.TEXT, "naïve 😀 end"),
    (MessageKind.TEXT, ""),
    (MessageKind.TEXT, None),
    (MessageKind.BYTES, b"\x00\x01\xff"),
    (MessageKind.BYTES, b""),
    (MessageKind.MAP, {**EVERY_TYPE, "nothing": None, "raw": b"\x00"}),
    (MessageKind.MAP, {}),
    (MessageKind.STREAM, [*EVERY_TYPE.values(), None, b"\x00"]),
    (MessageKind.STREAM, []),
    (MessageKind.OBJECT, b"\x80\x04cos\nsystem\n."),  # a pickle: carried, never opened
    (MessageKind.MESSAGE, None),
]


@pytest.fixture(params=["memory", "store", "scripted"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "scripted":
        with ScriptedBackend() as backend:
            yield backend.url
    else:
        store = f"?store={tmp_path / 'broker.db'}" if request.param == "store" else ""
        yield f"embedded:test-{secrets.token_hex(8)}{store}"


def sent(connection: Connection, message: Message) -> Message:
    session = connection.create_session()
    session.create_producer("Q").send(message)
    received = session.create_consumer("Q").receive(5)
    assert received is not None
    return received


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_c04_every_kind_comes_as_it_went(connection: Connection, kind: MessageKind, body: Any) -> None:
    received = sent(connection, Message(body, kind=kind))
    assert (received.kind, received.body) == (kind, body)
    assert repr(received.body) == repr(body)  # the widths, too


def test_every_type_of_property_and_header_comes_as_it_went(connection: Connection) -> None:
    given = Message("x", properties={**EVERY_TYPE, "nothing": None}, correlation_id="c", reply_to="answers", type="t")
    received = sent(connection, given)
    assert repr(dict(received.properties)) == repr({**EVERY_TYPE, "nothing": None})
    assert (received.correlation_id, received.reply_to, received.type) == ("c", Queue("answers"), "t")
    assert received.get_property("byte", str) == "-1"
    assert received.get_property("short", int) == 2
    with pytest.raises(MessageFormatError):
        received.get_property("long", Int)


def test_c06_a_received_message_is_changed_and_sent_on(connection: Connection) -> None:
    """Read-only until cleared; then what is sent is what it says, and what was received is still what others read."""
    session = connection.create_session(AcknowledgeMode.CLIENT)
    session.create_producer("Q").send("first", properties={"a": 1})
    consumer = session.create_consumer("Q")
    received = consumer.receive(5)
    assert received is not None
    for change in (lambda: received.set_property("b", 2), lambda: setattr(received, "body", "second")):
        with pytest.raises(MessageNotWriteableError):
            change()
    received.clear_body()
    received.body = "second"
    received.clear_properties()
    received.set_property("b", Short(2))
    received.correlation_id = received.message_id
    session.create_producer("R").send(received)
    again = session.create_consumer("R").receive(5)
    assert again is not None
    assert (again.body, dict(again.properties)) == ("second", {"b": 2})
    assert again.get_property("b", Short) == 2
    session.recover()
    original = consumer.receive(5)
    assert original is not None
    assert (original.body, dict(original.properties), original.correlation_id) == ("first", {"a": 1}, None)


def test_a_container_that_was_changed_since_is_checked_when_it_is_sent(connection: Connection) -> None:
    message = Message({"a": 1})
    assert isinstance(message.body, dict)
    message.body["a"] = object()
    producer = connection.create_session().create_producer("Q")
    with pytest.raises(MessageFormatError, match="map value of 'a'"):
        producer.send(message)
    message.body["a"] = 2
    producer.send(message)
    received = connection.create_session().create_consumer("Q").receive(5)
    assert received is not None
    assert received.body == {"a": 2}


def test_selectors_see_the_widths_as_numbers() -> None:
    with connect(f"embedded:test-{secrets.token_hex(8)}") as own, own.create_session() as session:
        consumer = session.create_consumer("Q", "n BETWEEN 4 AND 5 AND f < 0.5")
        session.create_producer("Q").send("x", properties={"n": Byte(5), "f": Float(0.25)})
        assert consumer.receive(5) is not None
