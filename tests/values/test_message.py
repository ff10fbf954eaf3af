"""Messages: bodies, properties and what may be written (C06; Jakarta Messaging 3.4 to 3.11)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from jmsclient.destination import Queue
from jmsclient.errors import MessageFormatError, MessageNotWriteableError
from jmsclient.message import Message, MessageKind, PlainContent, body_size, checked_body, checked_properties


@pytest.mark.parametrize("name", ["my-prop", "1abc", "a.b", "", None, "NULL", "and", "Escape", "JMSFoo", "a b", "a\n"], ids=repr)
def test_c06_names_that_are_no_identifiers_are_refused_when_set(name: Any) -> None:
    with pytest.raises(MessageFormatError, match="property name") as caught:
        Message("x").set_property(name, 1)
    assert repr(name) in str(caught.value)
    with pytest.raises(MessageFormatError):
        Message("x", properties={name: 1})


@pytest.mark.parametrize("name", ["JMS_Solace_X", "JMSXGroupID", "_a", "$b", "größe", "a1", "nullable", "jms"])
def test_c06_names_that_are_identifiers_are_accepted(name: str) -> None:
    message = Message("x", properties={name: 1})
    message.set_property(name, "two")
    assert message.properties == {name: "two"}


@pytest.mark.parametrize("value", [b"x", [1], {"a": 1}, object()], ids=["bytes", "list", "dict", "object"])
def test_property_values_are_scalars(value: Any) -> None:
    with pytest.raises(MessageFormatError, match=r"'p' is a .*expected bool, int, float, str or None"):
        checked_properties({"p": value})


def test_c06_odd_names_from_elsewhere_are_readable_and_a_received_message_is_read_only() -> None:
    content = PlainContent(kind=MessageKind.TEXT, body="x", properties={"my-prop": 1, "x-opt.y": "z"})
    message = Message.received(content, delivery_count=2)
    assert message.properties == {"my-prop": 1, "x-opt.y": "z"}
    with pytest.raises(MessageNotWriteableError, match="read-only"):
        message.set_property("a", 1)
    with pytest.raises(TypeError):
        message.properties["a"] = 1  # type: ignore[index]
    assert message.redelivered
    assert not Message.received(content, delivery_count=1).redelivered
    assert not Message.received(content, delivery_count=-1).redelivered


@pytest.mark.parametrize(
    ("body", "kind", "kept"),
    [
        ("text", MessageKind.TEXT, "text"),
        ("", MessageKind.TEXT, ""),
        (b"bytes", MessageKind.BYTES, b"bytes"),
        (bytearray(b"b"), MessageKind.BYTES, b"b"),
        (memoryview(b"b"), MessageKind.BYTES, b"b"),
        ({"a": 1}, MessageKind.MAP, {"a": 1}),
        (MappingProxyType({"a": b"x"}), MessageKind.MAP, {"a": b"x"}),
        ([1, "x", None, True, 0.5, b""], MessageKind.STREAM, [1, "x", None, True, 0.5, b""]),
        ((1, 2), MessageKind.STREAM, [1, 2]),
        (None, MessageKind.MESSAGE, None),
    ],
)
def test_the_body_makes_the_kind(body: Any, kind: MessageKind, kept: Any) -> None:
    message = Message(body)
    assert (message.kind, message.body) == (kind, kept)
    assert type(message.body) is type(kept)
    assert message.content.body() == kept


@pytest.mark.parametrize(
    ("body", "kind", "what"),
    [
        (7, None, "body of type int"),
        ({"a": {"b": 1}}, None, "map value of 'a' is a dict"),
        ({"a": [1]}, None, "map value of 'a' is a list"),
        ({1: "x"}, None, "map key 1"),
        ({"": "x"}, None, "map key ''"),
        ([1, (2,)], None, "stream element 1 is a tuple"),
        (b"x", MessageKind.TEXT, "TEXT message cannot carry a body of type bytes"),
        ("x", MessageKind.MESSAGE, "MESSAGE message cannot carry"),
        ("x", MessageKind.OBJECT, "OBJECT message cannot carry"),
    ],
)
def test_bodies_without_a_jms_type_are_refused(body: Any, kind: MessageKind | None, what: str) -> None:
    with pytest.raises(MessageFormatError, match=what):
        Message(body, kind=kind)


@pytest.mark.parametrize("kind", list(MessageKind), ids=lambda kind: kind.name)
def test_every_kind_may_have_no_body(kind: MessageKind) -> None:
    assert Message(kind=kind).body is None
    assert Message(kind=kind).text is None


def test_text_is_for_text_messages() -> None:
    assert Message("x").text == "x"
    with pytest.raises(MessageFormatError, match="BYTES message has no text"):
        _ = Message(b"x").text


def test_a_body_is_the_readers_own_copy() -> None:
    given = {"a": 1}
    message = Message(given)
    given["a"] = 2
    assert message.body == {"a": 1}
    content = PlainContent(kind=MessageKind.STREAM, body=[1])
    first = content.body()
    assert isinstance(first, list)
    first.append(2)
    assert content.body() == [1]


def test_headers_of_a_message() -> None:
    message = Message("x", correlation_id="c", reply_to="answers", type="t")
    assert (message.correlation_id, message.reply_to, message.type) == ("c", Queue("answers"), "t")
    assert (message.message_id, message.destination, message.expiration, message.delivery_time) == (None, None, None, None)
    assert (message.priority, message.persistent, message.redelivered) == (4, True, False)
    message.acknowledge()


def test_a_body_that_cannot_be_decoded_says_so_each_time_and_changes_nothing() -> None:
    class Broken(PlainContent):
        __slots__ = ()

        def body(self) -> Any:
            raise MessageFormatError("no UTF-8")

    message = Message.received(Broken(kind=MessageKind.TEXT, body=None, properties={"a": 1}), delivery_count=1)
    for _ in range(2):
        with pytest.raises(MessageFormatError):
            _ = message.body
    assert message.properties == {"a": 1}


def test_if_39_acknowledge_is_the_sessions_affair() -> None:
    heard: list[Message] = []
    message = Message.received(PlainContent(kind=MessageKind.TEXT, body="x"), delivery_count=1, acknowledge=heard.append)
    message.acknowledge()
    assert heard == [message]


def test_o09_no_body_in_a_repr() -> None:
    assert "hush" not in repr(Message("hush", properties={"secret": "hush"}))


@pytest.mark.parametrize(
    ("body", "size"),
    [(None, 0), ("abc", 3), ("größe", 7), ("\ud800", 3), (b"abc", 3), ({"ab": "c", "d": 1}, 12), ([True, b"xy"], 10)],
    ids=repr,
)
def test_ra_9_sizes_are_bytes(body: Any, size: int) -> None:
    assert body_size(body) == size
    assert PlainContent(kind=checked_body(body)[0], body=body).size == size


# -- writing a received message ------------------------------------------------------------------------------------------


def received(body: Any, **headers: Any) -> tuple[Message, PlainContent]:
    kind, body = checked_body(body)
    content = PlainContent(kind=kind, body=body, message_id="ID:1", destination="queue:///Q", timestamp=7.0, **headers)
    return Message.received(content, delivery_count=2), content


def test_c06_properties_are_writeable_when_they_were_cleared() -> None:
    """C06, JM 3.5.7: the headers and the body stay, and so does what others read."""
    message, content = received("x", properties={"a": 1}, correlation_id="c", priority=7, persistent=False)
    message.clear_properties()
    assert message.properties == {}
    message.set_property("b", 2)
    assert message.properties == {"b": 2}
    assert (message.body, message.correlation_id, message.message_id, message.priority) == ("x", "c", "ID:1", 7)
    assert (message.persistent, message.timestamp, message.destination) == (False, 7.0, Queue("Q"))
    assert content.properties() == {"a": 1}
    with pytest.raises(MessageNotWriteableError, match="clear_body"):
        message.body = "y"


@pytest.mark.parametrize(
    ("body", "empty", "after"),
    [("x", None, "y"), (b"x", b"", b"y"), ({"a": 1}, {}, {"b": 2}), ([1], [], [2]), (None, None, None)],
    ids=["text", "bytes", "map", "stream", "message"],
)
def test_the_body_is_writeable_when_it_was_cleared(body: Any, empty: Any, after: Any) -> None:
    message, content = received(body, properties={"a": 1})
    with pytest.raises(MessageNotWriteableError):
        message.body = after
    message.clear_body()
    assert message.body == empty
    message.body = after
    assert (message.body, message.content.body(), message.kind) == (after, after, content.kind)
    assert message.content.size == body_size(after)  # type: ignore[attr-defined]
    assert content.body() == body
    assert message.properties == {"a": 1}
    with pytest.raises(MessageNotWriteableError, match="clear_properties"):
        message.set_property("b", 1)


def test_a_cleared_body_of_a_map_is_filled_in_place() -> None:
    message, _ = received({"a": 1})
    message.clear_body()
    assert isinstance(message.body, dict)
    message.body["b"] = 2
    assert message.content.body() == {"b": 2}


def test_a_body_keeps_to_its_kind() -> None:
    message = Message("x")
    message.body = "y"
    assert message.content.body() == "y"
    with pytest.raises(MessageFormatError, match="TEXT message cannot carry"):
        message.body = b"y"
    assert message.body == "y"


def test_jm_3_10_headers_that_a_sender_sets_may_be_written_always() -> None:
    message, content = received("x", correlation_id="c")
    message.correlation_id, message.reply_to, message.type = "d", "answers", "t"
    assert (message.correlation_id, message.reply_to, message.type) == ("d", Queue("answers"), "t")
    message.reply_to = None
    assert message.reply_to is None
    assert (content.correlation_id, content.reply_to, content.type) == ("c", None, None)
    assert (message.body, message.delivery_count) == ("x", 2)


def test_a_body_that_cannot_be_decoded_can_be_cleared() -> None:
    class Broken(PlainContent):
        __slots__ = ()

        def body(self) -> Any:
            raise MessageFormatError("no UTF-8")

    message = Message.received(Broken(kind=MessageKind.TEXT, body=None, properties={"a": 1}), delivery_count=1)
    message.clear_body()
    message.body = "whole"
    assert (message.body, message.properties) == ("whole", {"a": 1})


def test_an_object_stays_bytes() -> None:
    """Never deserialised: a pickle that would raise is only carried."""
    pickled = b"\x80\x04cos\nsystem\n."
    assert Message(pickled, kind=MessageKind.OBJECT).body == pickled
