"""A whole message as bytes and back; damaged bytes are a MessageFormatError and nothing else (IF-19)."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jmsclient.conversion import Byte, Float, Int, Short
from jmsclient.envelope import decode, decode_body, encode, encode_body
from jmsclient.errors import MessageFormatError
from jmsclient.message import MessageKind, PlainContent

any_text = st.text(st.characters())  # lone surrogates included
widths = (
    st.builds(Byte, st.integers(-(2**7), 2**7 - 1))
    | st.builds(Short, st.integers(-(2**15), 2**15 - 1))
    | st.builds(Int, st.integers(-(2**31), 2**31 - 1))
    | st.builds(Float, st.floats(allow_nan=False, width=32))
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text | widths
elements = scalars | st.binary()
BODIES: dict[MessageKind, st.SearchStrategy[Any]] = {
    MessageKind.TEXT: any_text | st.none(),
    MessageKind.BYTES: st.binary() | st.none(),
    MessageKind.OBJECT: st.binary() | st.none(),
    MessageKind.MAP: st.dictionaries(any_text, elements) | st.none(),
    MessageKind.STREAM: st.lists(elements) | st.none(),
    MessageKind.MESSAGE: st.none(),
}
seconds = st.none() | st.floats(0, 1e11)


@st.composite
def contents(draw: st.DrawFn) -> PlainContent:
    kind = draw(st.sampled_from(MessageKind))
    return PlainContent(
        kind=kind,
        body=draw(BODIES[kind]),
        properties=draw(st.dictionaries(any_text, scalars)),
        message_id=draw(st.none() | any_text),
        destination=draw(st.none() | any_text),
        persistent=draw(st.booleans()),
        priority=draw(st.integers(0, 9)),
        timestamp=draw(seconds),
        expiration=draw(seconds),
        delivery_time=draw(seconds),
        correlation_id=draw(st.none() | any_text),
        reply_to=draw(st.none() | any_text),
        type=draw(st.none() | any_text),
    )


HEADERS = (
    "destination",
    "persistent",
    "priority",
    "timestamp",
    "expiration",
    "delivery_time",
    "correlation_id",
    "reply_to",
    "type",
)


@given(contents())
@example(PlainContent(kind=MessageKind.MAP, body={"$bytes": "AAAA"}))
@example(PlainContent(kind=MessageKind.MAP, body={"$bytes": b"\x00"}))
@example(PlainContent(kind=MessageKind.STREAM, body=[b"", "$bytes"]))
def test_a_message_comes_back_as_it_was(content: PlainContent) -> None:
    data = encode(content)
    again = decode(data)
    assert (again.message_id, again.kind) == (content.message_id, content.kind)
    assert {name: again.header(name) for name in HEADERS} == {name: content.header(name) for name in HEADERS}
    assert repr(again.properties()) == repr(dict(content.properties()))  # the widths too
    assert again.body() == content.body()
    assert repr(again.body()) == repr(content.body())  # True is not 1, 1 is not 1.0
    assert again.envelope == data == encode(again)


@given(st.binary(max_size=200))
def test_any_other_bytes_are_a_message_format_error(data: bytes) -> None:
    with pytest.raises(MessageFormatError):
        decode(data)


@given(contents(), st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_envelope_never_raises_anything_else(content: PlainContent, place: int, byte: int) -> None:
    data = bytearray(encode(content))
    data[place % len(data)] = byte
    try:
        again = decode(bytes(data))
        again.body()
        again.properties()
        assert [again.header(name) for name in HEADERS]
    except MessageFormatError:
        pass


@pytest.mark.parametrize(
    "header",
    [
        [],
        7,
        {},
        {"id": None, "kind": "text"},
        {"id": None, "kind": "text", "headers": [], "properties": {}},
        {"id": None, "kind": "text", "headers": {}, "properties": 1},
        {"id": None, "kind": "poem", "headers": {}, "properties": {}},
        {"id": None, "kind": "text", "headers": {}, "properties": {}, "types": {"p": "byte"}},
        {"id": None, "kind": "text", "headers": {}, "properties": {"p": 300}, "types": {"p": "byte"}},
        {"id": None, "kind": "text", "headers": {}, "properties": {"p": 3}, "types": ["p"]},
    ],
    ids=repr,
)
def test_a_header_that_is_none_is_refused_when_read(header: Any) -> None:
    head = json.dumps(header).encode()
    with pytest.raises(MessageFormatError):
        decode(struct.pack(">2sBI", b"JM", 1, len(head)) + head)


def test_a_newer_format_says_so() -> None:
    data = bytearray(encode(PlainContent(kind=MessageKind.TEXT, body="x")))
    data[2] = 9
    with pytest.raises(MessageFormatError, match="format 9; this version reads format 1"):
        decode(bytes(data))


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (MessageKind.TEXT, b"\xff"),
        (MessageKind.MAP, b"\xff"),
        (MessageKind.MAP, b"[1]"),
        (MessageKind.MAP, b"{"),
        (MessageKind.MAP, b'{"a":{"b":1}}'),
        (MessageKind.STREAM, b'[{"$bytes":"*"}]'),
        (MessageKind.STREAM, b'[{"$bytes":7}]'),
        (MessageKind.STREAM, b"7"),
        (MessageKind.STREAM, b'[{"$byte":128}]'),
        (MessageKind.STREAM, b'[{"$word":1}]'),
        (MessageKind.STREAM, b'[{"$byte":1,"$int":1}]'),
        (MessageKind.STREAM, b"[" + b"9" * 5000 + b"]"),
    ],
)
def test_if_19_a_body_that_cannot_be_decoded(kind: MessageKind, data: bytes) -> None:
    with pytest.raises(MessageFormatError, match=f"body of this {kind.name} message"):
        decode_body(kind, data)


@pytest.mark.parametrize("body", [{"a": object()}, [{1, 2}], [10**5000]], ids=["object", "set", "huge"])
def test_a_body_that_cannot_be_encoded(body: Any) -> None:
    with pytest.raises(MessageFormatError):
        encode_body(body)


def test_a_header_that_cannot_be_encoded() -> None:
    with pytest.raises(MessageFormatError, match="headers"):
        encode(PlainContent(kind=MessageKind.TEXT, body="x", properties={"n": 10**5000}))


def test_the_body_stays_bytes_until_it_is_read() -> None:
    content = decode(encode(PlainContent(kind=MessageKind.TEXT, body="größe")))
    assert content.size == 7
    assert content.body() == "größe"
