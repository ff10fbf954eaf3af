"""The AMQP type system: what is written is read back, and no bytes of a peer's do more than raise MessageFormatError."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsclient.errors import MessageFormatError
from jmsclient_amqp.primitives import (
    Described,
    Opaque,
    Symbol,
    binary,
    described,
    listed,
    long,
    mapped,
    read,
    simple,
    skip,
    symbol,
    symbols,
    text,
    timestamp,
    uint,
    ulong,
)

GOLDEN: list[tuple[str, str, Any]] = [
    ("null", "40", None),
    ("true", "41", True),
    ("false", "42", False),
    ("boolean", "5601", True),
    ("ubyte", "50ff", 255),
    ("byte", "51ff", -1),
    ("ushort", "60ffff", 65535),
    ("short", "61fffe", -2),
    ("uint0", "43", 0),
    ("smalluint", "52ff", 255),
    ("uint", "70ffffffff", 4294967295),
    ("smallint", "54ff", -1),
    ("int", "7180000000", -2147483648),
    ("ulong0", "44", 0),
    ("smallulong", "5310", 16),
    ("ulong", "80ffffffffffffffff", 18446744073709551615),
    ("smalllong", "55ff", -1),
    ("long", "818000000000000000", -(1 << 63)),
    ("float", "723fc00000", 1.5),
    ("double", "823ff8000000000000", 1.5),
    ("char", "7300000061", "a"),
    ("timestamp", "83000000000000002a", 42),
    ("uuid", "98" + "00" * 15 + "07", uuid.UUID(int=7)),
    ("binary", "a002c3a9", b"\xc3\xa9"),
    ("binary32", "b000000001ff", b"\xff"),
    ("string", "a102c3a9", "é"),
    ("string32", "b100000002c3a9", "é"),
    ("symbol", "a3026162", "ab"),
    ("symbol32", "b3000000026162", "ab"),
    ("list0", "45", []),
    ("list8", "c0030240" + "41", [None, True]),
    ("list32", "d0000000060000000240" + "41", [None, True]),
    ("map8", "c10602a1016155" + "05", {"a": 5}),
    ("map32", "d100000009" + "00000002a1016155" + "05", {"a": 5}),
    ("decimal32", "7401020304", Opaque(0x74, b"\x01\x02\x03\x04")),
]


@pytest.mark.parametrize(("name", "data", "value"), GOLDEN, ids=[row[0] for row in GOLDEN])
def test_c04_every_type_is_read_and_skipped(name: str, data: str, value: Any) -> None:
    raw = bytes.fromhex(data)
    assert read(raw) == (value, len(raw))
    assert skip(raw, 0) == len(raw)


def test_an_array_is_a_list() -> None:
    raw = bytes.fromhex("e0050350010203")
    assert read(raw) == ([1, 2, 3], len(raw))
    assert read(symbols(["a", "bc"])) == (["a", "bc"], len(symbols(["a", "bc"])))


def test_a_described_value_keeps_its_descriptor() -> None:
    raw = described(0x24, listed([]))
    assert read(raw) == (Described(0x24, []), len(raw))
    assert skip(raw, 0) == len(raw)


@pytest.mark.parametrize("value", [0, 1, 255, 256, 1 << 31, (1 << 64) - 1])
def test_unsigned_numbers_come_back(value: int) -> None:
    assert read(ulong(value))[0] == value
    if value < 1 << 32:
        assert read(uint(value))[0] == value


@pytest.mark.parametrize("length", [0, 1, 255, 256, 70000])
def test_both_widths_of_text_bytes_and_symbols(length: int) -> None:
    assert read(text("x" * length))[0] == "x" * length
    assert read(binary(b"x" * length))[0] == b"x" * length
    assert read(symbol("x" * length))[0] == Symbol("x" * length)


simple_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
)


@given(st.lists(simple_values, max_size=300))
def test_lists_come_back(values: list[Any]) -> None:
    raw = listed([simple(value) for value in values])
    assert read(raw) == (values, len(raw))
    assert skip(raw, 0) == len(raw)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), simple_values))
def test_maps_come_back(values: dict[str, Any]) -> None:
    raw = mapped([part for name, value in values.items() for part in (text(name), simple(value))])
    assert read(raw) == (values, len(raw))


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_raise(raw: bytes) -> None:
    try:
        _, end = read(raw)
    except MessageFormatError:
        return
    assert end <= len(raw)


@given(st.integers(0, 40), st.data())
def test_what_is_cut_short_is_refused(cut: int, data: st.DataObject) -> None:
    raw = listed([text("abc"), long(1 << 40), binary(b"xyz"), mapped([text("k"), timestamp(5)])])
    with pytest.raises(MessageFormatError):
        read(raw[: min(cut, len(raw) - 1)])


HOSTILE = {
    "a list that claims four billion elements": b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff",
    "an array of four billion elements without bytes": b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
    "a text of four gigabytes": b"\xb1\xff\xff\xff\xff",
    "descriptors of descriptors": b"\x00" * 100_000,
    "a list that claims more bytes than there are": b"\xd0" + struct.pack(">II", 900_000, 1),
    "nested lists": b"".join(b"\xc0\x7f\x01" for _ in range(5000)),
    "a map with a key and no value": b"\xc1\x02\x01\x40",
    "a map whose key is a map": b"\xc1\x05\x02\xc1\x01\x00\x40",
    "text that is not UTF-8": b"\xa1\x01\xff",
    "a symbol that is not ASCII": b"\xa3\x01\xff",
    "no type": b"\x01",
    "a character beyond Unicode": b"\x73\x7f\xff\xff\xff",
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(MessageFormatError):
        read(raw)


def test_what_amqp_cannot_carry_is_refused() -> None:
    for value in (1 << 63, object(), "\ud800"):
        with pytest.raises(MessageFormatError):
            simple(value)
