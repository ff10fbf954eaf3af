"""Messages as bytes: what other clients send is read as JMS has it, what we send is what they read; golden bytes for both."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsclient.errors import MessageFormatError
from jmsclient.message import MessageKind, PlainContent
from jmsclient_amqp.content import AmqpContent
from jmsclient_amqp.encoding import encode, encode_all
from jmsclient_amqp.header import Header, Headers, expiry
from jmsclient_amqp.naming import Naming
from jmsclient_amqp.primitives import NULL, binary, described, listed, long, mapped, simple, symbol, text, timestamp, ulong
from jmsclient_amqp.sections import scan

PLAIN = Naming()


def content(raw: bytes, *, topic: bool = False, naming: Naming = PLAIN) -> AmqpContent:
    sections = scan(raw)
    return AmqpContent(raw, sections, Headers().of(raw, sections.header), naming, topic)


def annotated(kind: int) -> bytes:
    return described(0x72, mapped([symbol("x-opt-jms-msg-type"), bytes((0x51, kind))]))


def properties(*fields: bytes) -> bytes:
    return described(0x73, listed(list(fields)))


def data(body: bytes) -> bytes:
    return described(0x75, binary(body))


def value(encoded: bytes) -> bytes:
    return described(0x77, encoded)


TYPED = (NULL,) * 6
JAVA = symbol("application/x-java-serialized-object")
PICKLE = symbol("application/x-python-serialize")
C04: dict[str, tuple[bytes, MessageKind, Any]] = {
    "value null": (value(NULL), MessageKind.TEXT, None),
    "value empty text": (value(text("")), MessageKind.TEXT, ""),
    "no body": (properties(text("ID:1")), MessageKind.MESSAGE, None),
    "no section at all": (b"", MessageKind.MESSAGE, None),
    "no body, said to be a message": (annotated(0), MessageKind.MESSAGE, None),
    "null, said to be a message": (annotated(0) + value(NULL), MessageKind.MESSAGE, None),
    "empty data, said to be a message": (annotated(0) + data(b""), MessageKind.MESSAGE, None),
    "no body, said to be bytes": (annotated(3), MessageKind.BYTES, b""),
    "no body, said to be text": (annotated(5), MessageKind.TEXT, None),
    "data empty": (data(b""), MessageKind.BYTES, b""),
    "long data": (data(b"x" * 300), MessageKind.BYTES, b"x" * 300),
    "two long data sections": (data(b"x" * 300) + data(b"y" * 300), MessageKind.BYTES, b"x" * 300 + b"y" * 300),
    "long text": (value(text("größe" * 100)), MessageKind.TEXT, "größe" * 100),
    "two data sections": (data(b"ab") + data(b"c"), MessageKind.BYTES, b"abc"),
    "data of octets": (properties(*TYPED, symbol("application/octet-stream")) + data(b"\x00"), MessageKind.BYTES, b"\x00"),
    "data of text": (properties(*TYPED, symbol("text/plain")) + data("é".encode()), MessageKind.TEXT, "é"),
    "data of text in another charset": (
        properties(*TYPED, symbol("text/plain; charset=iso-8859-1")) + data(b"\xe9"), MessageKind.TEXT, "é",
    ),
    "data of JSON": (properties(*TYPED, symbol("application/json")) + data(b"{}"), MessageKind.TEXT, "{}"),
    "sequence": (described(0x76, listed([long(1), text("x"), NULL])), MessageKind.STREAM, [1, "x", None]),
    "two sequences": (described(0x76, listed([long(1)])) + described(0x76, listed([long(2)])), MessageKind.STREAM, [1, 2]),
    "value list": (value(listed([long(1)])), MessageKind.STREAM, [1]),
    "value map": (
        value(mapped([text("a"), NULL, text("n"), long(1), text("b"), binary(b"\x01")])),
        MessageKind.MAP,
        {"a": None, "n": 1, "b": b"\x01"},
    ),
    "value binary": (value(binary(b"x")), MessageKind.BYTES, b"x"),
    "value number": (value(long(5)), MessageKind.OBJECT, b"\x55\x05"),
    "Java object": (properties(*TYPED, JAVA) + data(b"\xac\xed"), MessageKind.OBJECT, b"\xac\xed"),
    "pickle": (properties(*TYPED, PICKLE) + data(b"\x80\x04."), MessageKind.OBJECT, b"\x80\x04."),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "kind", "body"), C04.values(), ids=C04.keys())
def test_c04_bodies(raw: bytes, kind: MessageKind, body: Any) -> None:
    found = content(raw)
    assert found.kind is kind
    assert found.body() == body
    assert found.sections.size >= 0


BROKEN_BODIES = {
    "a string that is not UTF-8": value(b"\xa1\x01\xff"),
    "a long string that is not UTF-8": value(b"\xb1\x00\x00\x01\x2c" + b"\xff" * 300),
    "text that is not UTF-8": properties(*TYPED, symbol("text/plain")) + data(b"\xff"),
    "text in an unknown charset": properties(*TYPED, symbol("text/plain;charset=klingon")) + data(b"x"),
    "a map with numbers as keys": value(mapped([long(1), long(2)])),
    "a map that is said to be text": annotated(5) + value(mapped([text("a"), long(2)])),
    "bytes that are said to be a map": annotated(2) + data(b"x"),
    "a list in a stream": described(0x76, listed([listed([long(1)])])),
}


@pytest.mark.parametrize("raw", BROKEN_BODIES.values(), ids=BROKEN_BODIES.keys())
def test_if_19_a_body_that_does_not_decode_fails_when_it_is_read(raw: bytes) -> None:
    found = content(raw)
    with pytest.raises(MessageFormatError):
        found.body()


BROKEN_FRAMES = {
    "cut": value(text("hello"))[:-1],
    "no section": b"hello",
    "a number": b"\x55\x05",
    "an unknown section": described(0x79, listed([])),
    "sections in the wrong order": data(b"x") + properties(text("ID:1")),
    "a section twice": properties(text("a")) + properties(text("b")),
    "bodies of two kinds": data(b"x") + value(NULL),
    "two values": value(NULL) + value(NULL),
    "a header that is no list": described(0x70, long(1)),
    "a header with a wrong type": described(0x70, listed([text("yes")])),
}


@pytest.mark.parametrize("raw", BROKEN_FRAMES.values(), ids=BROKEN_FRAMES.keys())
def test_if_19_what_is_no_message_is_seen_before_hand_over(raw: bytes) -> None:
    with pytest.raises(MessageFormatError):
        content(raw)


@given(st.binary(max_size=100))
def test_if_19_no_bytes_do_more_than_raise(raw: bytes) -> None:
    try:
        found = content(raw)
        assert expiry(raw, found.sections, Header(), 0.0) is None or True
        found.body()
        dict(found.properties())
        found.message_id  # noqa: B018
    except MessageFormatError:
        pass


def test_a_descriptor_may_be_a_symbol_or_a_long_number() -> None:
    named = b"\x00" + symbol("amqp:amqp-value:*") + text("x")
    wide = b"\x00\x80" + (0x77).to_bytes(8, "big") + text("x")
    assert content(named).body() == content(wide).body() == "x"


IDS = [
    (text("ID:x"), "ID:x"),
    (text("plain-id"), "ID:AMQP_NO_PREFIX:plain-id"),
    (b"\x98" + uuid.UUID(int=7).bytes, f"ID:AMQP_UUID:{uuid.UUID(int=7)}"),
    (ulong(9), "ID:AMQP_ULONG:9"),
    (binary(b"\x01\x02"), "ID:AMQP_BINARY:0102"),
    (NULL, None),
]


@pytest.mark.parametrize(("encoded", "expected"), IDS)
def test_message_ids_of_every_type(encoded: bytes, expected: str | None) -> None:
    assert content(properties(encoded)).message_id == expected


@pytest.mark.parametrize(("encoded", "expected"), [*IDS[2:5], (text("corr"), "corr"), (text("ID:x"), "ID:x")])
def test_correlation_ids_of_every_type(encoded: bytes, expected: str) -> None:
    assert content(properties(*(NULL,) * 5, encoded)).header("correlation_id") == expected


@pytest.mark.parametrize("one", [expected for _, expected in IDS if expected])
def test_ids_survive_the_way_there_and_back(one: str) -> None:
    sent = PlainContent(kind=MessageKind.TEXT, body="x", message_id=one, correlation_id=one)
    found = content(encode(sent, "q", PLAIN))
    assert found.message_id == found.header("correlation_id") == one or one.startswith("ID:AMQP_NO_PREFIX")


def test_properties_of_every_width_are_read() -> None:
    sent = mapped([
        text("byte"), b"\x51\x07", text("short"), b"\x61\x00\x07", text("int"), b"\x71\x00\x00\x00\x07", text("long"), b"\x55\x07",
        text("float"), b"\x72\x3f\x00\x00\x00", text("double"), simple(0.5), text("bool"), b"\x41", text("text"), text("x"),
        text("null"), NULL, text("symbol"), symbol("s"), text("uuid"), b"\x98" + uuid.UUID(int=7).bytes, text("time"), timestamp(5),
        text("char"), b"\x73\x00\x00\x00a", text("bytes"), binary(b"\xff"),
    ])  # fmt: skip
    assert dict(content(described(0x74, sent)).properties()) == {
        "byte": 7, "short": 7, "int": 7, "long": 7, "float": 0.5, "double": 0.5, "bool": True, "text": "x", "null": None,
        "symbol": "s", "uuid": str(uuid.UUID(int=7)), "time": 5, "char": "a", "bytes": "ff",
    }  # fmt: skip


def test_group_and_user_are_properties() -> None:
    fields = [text("ID:1"), binary(b"ada"), *(NULL,) * 8, text("g"), b"\x52\x03"]
    assert dict(content(properties(*fields)).properties()) == {"JMSXUserID": "ada", "JMSXGroupID": "g", "JMSXGroupSeq": 3}
    sent = PlainContent(
        kind=MessageKind.TEXT, body="x", message_id="ID:1", properties={"JMSXGroupID": "g", "JMSXGroupSeq": 3, "a": 1}
    )
    assert dict(content(encode(sent, "q", PLAIN)).properties()) == {"JMSXGroupID": "g", "JMSXGroupSeq": 3, "a": 1}


def test_destinations_are_told_apart_by_annotation_and_prefix() -> None:
    fields = properties(text("ID:1"), NULL, text("to.here"), NULL, text("back"))
    assert content(fields).header("destination") == "queue:///to.here"
    assert content(fields, topic=True).header("destination") == "topic:///to.here"
    said = described(0x72, mapped([symbol("x-opt-jms-dest"), b"\x51\x01", symbol("x-opt-jms-reply-to"), b"\x51\x02"]))
    assert content(said + fields).header("destination") == "topic:///to.here"
    assert content(said + fields).header("reply_to") == "queue:///back"
    naming = Naming(queue_prefix="/queue/", topic_prefix="/topic/")
    prefixed = properties(text("ID:1"), NULL, text("/topic/to.here"), NULL, text("/queue/back"))
    assert content(prefixed, naming=naming).header("destination") == "topic:///to.here"
    assert content(prefixed, naming=naming).header("reply_to") == "queue:///back"


# -- what we send -------------------------------------------------------------------------------------------------------

FULL = PlainContent(
    kind=MessageKind.TEXT,
    body="größe",
    message_id="ID:m-1",
    destination="topic:///prices",
    persistent=True,
    priority=7,
    timestamp=1000.5,
    expiration=1060.5,
    delivery_time=1002.0,
    correlation_id="c-1",
    reply_to="queue:///answers",
    type="t",
    properties={"n": 7, "x": 0.5, "yes": True, "s": "é", "none": None},
)


def test_the_bytes_of_a_message_are_what_other_clients_read() -> None:
    raw = encode(FULL, "prices", PLAIN)
    assert raw.startswith(bytes.fromhex("005370c00903415007700000ea60"))
    assert bytes.fromhex("a3 12") + b"x-opt-jms-msg-type" + b"\x51\x05" in raw
    assert b"x-opt-jms-dest\x51\x01" in raw
    assert b"x-opt-jms-reply-to\x51\x00" in raw
    assert b"x-opt-delivery-time" + long(1_002_000) in raw
    assert raw.endswith(b"\x00\x53\x77\xa1\x07gr\xc3\xb6\xc3\x9fe")
    assert text("n") + b"\x55\x07" + text("x") + b"\x82" + b"\x3f\xe0" + b"\x00" * 6 + text("yes") + b"\x41" in raw


def test_every_header_survives_the_way_there_and_back() -> None:
    found = content(encode(FULL, "prices", PLAIN))
    for name in (
        "destination", "persistent", "priority", "timestamp", "expiration", "delivery_time", "correlation_id", "reply_to", "type",
    ):  # fmt: skip
        assert found.header(name) == getattr(FULL, name), name
    assert dict(found.properties()) == FULL.properties()
    assert (found.kind, found.body(), found.message_id) == (FULL.kind, FULL.body(), FULL.message_id)
    assert found.header("type") == "t"
    with pytest.raises(KeyError):
        found.header("nonsense")


def test_many_messages_are_encoded_as_one_by_one_whatever_their_neighbours_are() -> None:
    """C04: what one has in common with the one before is made once; what differs must not be."""

    def one(**given: Any) -> PlainContent:
        usual = {"kind": MessageKind.BYTES, "body": b"x", "message_id": "ID:1", "destination": "queue:///q", "timestamp": 1.0}
        return PlainContent(**{**usual, **given})

    differences: list[dict[str, Any]] = [
        {}, {"message_id": "ID:2"}, {"message_id": None}, {"message_id": "ID:AMQP_ULONG:7"}, {"message_id": "ID:" + "n" * 240},
        {"kind": MessageKind.TEXT, "body": "größe"}, {"kind": MessageKind.MAP, "body": {"a": 1}}, {"body": b"y" * 300},
        {"body": b"z" * 2000}, {"body": b"z" * 5000}, {"body": b"z" * 5000, "properties": {"n": 1}},
        {"persistent": False}, {"priority": 9}, {"destination": "topic:///q"}, {"timestamp": None}, {"timestamp": 2.0},
        {"expiration": 61.0}, {"delivery_time": 5.0}, {"correlation_id": "c"}, {"reply_to": "queue:///back"}, {"type": "t"},
        {"properties": {"n": 1}}, {"properties": {"JMSXGroupID": "g", "JMSXGroupSeq": 2}}, {"properties": {"JMSXUserID": "u"}},
    ]  # fmt: skip
    many = [one(**given) for difference in differences for given in (difference, difference, {})]
    made = [one if isinstance(one, bytes) else b"".join(one) for one in encode_all(many, "q", PLAIN)]
    assert made == [encode(content, "q", PLAIN) for content in many]
    assert encode_all([], "q", PLAIN) == []


def test_a_long_body_is_left_where_it_is() -> None:
    """It goes from the application into the engine without a copy of it in between."""
    body = b"z" * 10_000
    (made,) = encode_all([PlainContent(kind=MessageKind.BYTES, body=body, message_id="ID:1", destination="q")], "q", PLAIN)
    assert isinstance(made, tuple)
    assert made[1] is body


KINDS = [
    (MessageKind.TEXT, "text", b"\x00\x53\x77\xa1\x04text"),
    (MessageKind.TEXT, None, b"\x00\x53\x77\x40"),
    (MessageKind.BYTES, b"\x00\xff", b"\x00\x53\x75\xa0\x02\x00\xff"),
    (MessageKind.BYTES, None, b"\x00\x53\x75\xa0\x00"),
    (MessageKind.MAP, {"a": 1}, b"\x00\x53\x77\xc1\x06\x02\xa1\x01a\x55\x01"),
    (MessageKind.STREAM, [1, b"x", None], b"\x00\x53\x76\xc0\x07\x03\x55\x01\xa0\x01x\x40"),
    (MessageKind.OBJECT, b"\xac\xed", b"\x00\x53\x75\xa0\x02\xac\xed"),
    (MessageKind.MESSAGE, None, b"\x00\x53\x77\x40"),
]


@pytest.mark.parametrize(("kind", "body", "ends"), KINDS)
def test_every_kind_is_sent_and_read_back(kind: MessageKind, body: Any, ends: bytes) -> None:
    raw = encode(PlainContent(kind=kind, body=body, message_id="ID:1"), "q", PLAIN)
    assert raw.endswith(ends)
    found = content(raw)
    assert found.kind is kind
    assert found.body() == (b"" if kind is MessageKind.BYTES and body is None else body)


def test_a_time_to_live_of_more_than_49_days_travels_as_a_date() -> None:
    sent = PlainContent(kind=MessageKind.TEXT, body="x", message_id="ID:1", timestamp=0.0, expiration=1e7)
    found = content(encode(sent, "q", PLAIN))
    assert found.header("expiration") == 1e7
    assert found._header.ttl is None


@pytest.mark.parametrize("body", [{"a": 1 << 63}, ["\ud800"]])
def test_what_amqp_cannot_carry_is_refused(body: Any) -> None:
    kind = MessageKind.MAP if isinstance(body, dict) else MessageKind.STREAM
    with pytest.raises(MessageFormatError):
        encode(PlainContent(kind=kind, body=body, message_id="ID:1"), "q", PLAIN)


# -- headers and expiry -------------------------------------------------------------------------------------------------

R01 = [
    (b"", Header()),
    (described(0x70, listed([])), Header()),
    (described(0x70, listed([b"\x41"])), Header(durable=True)),
    (described(0x70, listed([b"\x42", NULL, NULL, NULL, b"\x43"])), Header(delivery_count=0)),
    (described(0x70, listed([b"\x41", b"\x50\x0c", b"\x52\x05", b"\x41", b"\x52\x04"])), Header(True, 9, 5, True, 4)),
]


@pytest.mark.parametrize(("raw", "expected"), R01)
def test_r01_headers(raw: bytes, expected: Header) -> None:
    headers = Headers()
    for _ in range(2):  # read, then found
        sections = scan(raw + value(NULL))
        assert headers.of(raw + value(NULL), sections.header) == expected


def test_if_19_a_message_is_read_alike_whatever_came_before_it() -> None:
    """What begins as the one before is not walked again from its beginning: that must not show, in a good message or a bad one."""
    durable, again = described(0x70, listed([b"\x41"])), described(0x70, listed([b"\x42", NULL, NULL, NULL, b"\x52\x02"]))
    said, other = (described(0x72, mapped([symbol("x-opt-jms-msg-type"), bytes((0x51, kind))])) for kind in (3, 5))
    delivery, fields = described(0x71, mapped([symbol("d"), b"\x41"])), properties(text("ID:1"))
    written_out = b"\x00\x80" + (0x73).to_bytes(8, "big") + listed([text("ID:1")])
    starts = [
        b"",
        durable,
        again,
        said,
        durable + said,
        durable + other,
        again + said,
        durable + delivery + said,
        durable + delivery,
    ]
    more = described(0x74, mapped([text("n"), b"\x41"]))
    bodies = [data(b"x"), data(b"x" * 300), value(text("x")), value(text("x" * 300)), value(NULL), data(b"x") + data(b"y")]
    rests = [
        b"", fields, data(b"x"), value(NULL), more, more + fields, fields + fields, fields + said, written_out + data(b"x"),
        fields + b"\x00\x53\x75\xa0\x09x", fields + b"\x00\x53\x75\xb0\x00\x00\x00\x09x", b"\x00\x53\x73", b"\x00\x53",
        *(fields + body for body in bodies), *(fields + more + body for body in bodies), *(more + body for body in bodies),
        fields + more + data(b"x") + described(0x78, mapped([])), fields + more + data(b"x") + b"\x00",
    ]  # fmt: skip
    messages = [start + rest for start in starts for rest in rests]
    headers = Headers()
    good = 0
    for before in (durable + said + fields + data(b"x"), again + said + fields, durable + delivery + said + fields, data(b"x")):
        for raw in messages:
            headers.find(before)
            try:
                sections = scan(raw)
                expected = sections, Headers().of(raw, sections.header)
            except MessageFormatError as error:
                with pytest.raises(MessageFormatError, match=re.escape(str(error))):
                    headers.find(raw)
            else:
                good += 1
                assert headers.find(raw) == expected
    assert good > len(messages)


@given(
    absolute=st.one_of(st.none(), st.integers(1, 1 << 40)),
    created=st.one_of(st.none(), st.integers(0, 1 << 40)),
    group=st.booleans(),
    encoding=st.sampled_from(["", "gzip", "\x7f"]),
    message_id=st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    ttl=st.one_of(st.none(), st.integers(1, 1 << 31)),
)
def test_ra_11_expiry_is_found_wherever_it_is(
    absolute: int | None, created: int | None, group: bool, encoding: str, message_id: str, ttl: int | None
) -> None:
    fields = [
        text(message_id), NULL, text("q"), NULL, NULL, NULL, NULL, symbol(encoding) if encoding else NULL,
        NULL if absolute is None else timestamp(absolute), NULL if created is None else timestamp(created),
        *([text("g\u0083")] if group else []),
    ]  # fmt: skip
    while fields[-1] == NULL:
        fields.pop()
    raw = properties(*fields) + value(NULL)
    expected = absolute / 1000 if absolute is not None else None if ttl is None else 100.0 + ttl / 1000
    assert expiry(raw, scan(raw), Header(ttl=ttl), 100.0) == expected


def test_one_whose_id_cannot_be_read_has_none_and_is_kept_as_it_came() -> None:
    """Every event about a message asks for its id: one that raised would end whoever tells it (IF-19)."""
    raw = described(0x73, listed([b"\xa1\x7fID"])) + data(b"x")
    message = content(raw)
    assert message.message_id is None
    assert message.encoded() == raw
    with pytest.raises(MessageFormatError):
        message.header("correlation_id")
