"""Typed values: widths, what may be sent, and the conversion table (C06; JM 3.5.1, 3.5.4)."""

from __future__ import annotations

import copy
import enum
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsclient import Byte, Float, Int, Message, MessageFormatError, Short
from jmsclient.conversion import convert, to_text

JAVA: dict[type, str] = {
    bool: "boolean",
    Byte: "byte",
    Short: "short",
    Int: "int",
    int: "long",
    Float: "float",
    float: "double",
    str: "String",
}
VALUES: dict[type, Any] = {
    bool: True,
    Byte: Byte(5),
    Short: Short(5),
    Int: Int(5),
    int: 5,
    Float: Float(0.5),
    float: 0.5,
    str: "5",
}
TABLE = """
          boolean byte short int long float double String
boolean   X       -    -     -   -    -     -      X
byte      -       X    X     X   X    -     -      X
short     -       -    X     X   X    -     -      X
int       -       -    -     X   X    -     -      X
long      -       -    -     -   X    -     -      X
float     -       -    -     -   -    X     X      X
double    -       -    -     -   -    -     X      X
String    X       X    X     X   X    X     X      X
"""


def cells() -> list[Any]:
    columns, *rows = [line.split() for line in TABLE.strip().splitlines()]
    by_name = {name: kind for kind, name in JAVA.items()}
    return [
        pytest.param(by_name[row], by_name[column], mark == "X", id=f"{row}-as-{column}")
        for row, *marks in rows
        for column, mark in zip(columns, marks, strict=True)
    ]


@pytest.mark.parametrize(("given", "wanted", "allowed"), cells())
def test_the_conversion_table(given: type, wanted: Any, allowed: bool) -> None:
    message = Message("x", properties={"p": VALUES[given]})
    if allowed:
        value = message.get_property("p", wanted)
        assert type(value) is wanted
        if given is not str:
            assert value == (to_text(VALUES[given]) if wanted is str else VALUES[given])
    else:
        with pytest.raises(MessageFormatError, match=f"'p' was set as {JAVA[given]} and cannot be read as {JAVA[wanted]}"):
            message.get_property("p", wanted)


@pytest.mark.parametrize(
    ("text", "wanted", "value"),
    [
        ("true", bool, True),
        ("TRUE", bool, True),
        ("yes", bool, False),
        ("", bool, False),
        ("127", Byte, 127),
        ("-128", Byte, -128),
        ("+7", Short, 7),
        ("007", int, 7),
        ("9223372036854775807", int, 2**63 - 1),
        (" 1.5 ", float, 1.5),
        ("1e3", float, 1000.0),
        (".5f", Float, 0.5),
        ("1.D", float, 1.0),
        ("-Infinity", float, -math.inf),
    ],
)
def test_a_text_is_read_as_what_it_spells(text: str, wanted: Any, value: Any) -> None:
    found = convert(text, wanted)
    assert found == value
    assert type(found) is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("128", Byte),
        ("-129", Byte),
        ("32768", Short),
        ("2147483648", Int),
        ("9223372036854775808", int),
        ("9" * 5000, int),
        ("1.0", int),
        (" 1", int),
        ("1_0", int),
        ("", int),
        ("0x1F", int),
        ("\u0661", int),
        ("1_0.5", float),
        ("inf", float),
        ("nan", float),
        ("", float),
        ("1e", float),
        ("1e39", Float),
    ],
)
def test_a_text_that_spells_no_such_number(text: str, wanted: Any) -> None:
    with pytest.raises(MessageFormatError, match="'p'"):
        Message("x", properties={"p": text}).get_property("p", wanted)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (-7, "-7"),
        (Byte(-7), "-7"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.25e10, "1.25E10"),
        (123456.789, "123456.789"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (Float(0.1), "0.1"),
        (Float(16777216), "1.6777216E7"),
        (Float(3.4028235e38), "3.4028235E38"),
        (Float(1.4e-45), "1.4E-45"),
    ],
)
def test_numbers_are_written_as_java_writes_them(value: Any, text: str) -> None:
    assert convert(value, str) == text


@given(st.floats(allow_nan=False))
def test_a_double_written_is_read_back(value: float) -> None:
    assert convert(to_text(value), float) == value


@given(st.floats(allow_nan=False, width=32))
def test_a_float_written_is_read_back(value: float) -> None:
    assert convert(to_text(Float(value)), Float) == value


@pytest.mark.parametrize(
    ("kind", "bad"),
    [(Byte, 128), (Byte, -129), (Short, 2**15), (Int, 2**31), (Byte, 1.0), (Byte, True), (Int, "1"), (Float, 1e39), (Float, "x")],
)
def test_a_width_refuses_what_does_not_fit(kind: Any, bad: Any) -> None:
    with pytest.raises(MessageFormatError, match=kind.__name__):
        kind(bad)


@pytest.mark.parametrize("value", [Byte(-3), Short(300), Int(-70000), Float(0.1)])
def test_a_width_is_a_number_that_knows_its_width(value: Any) -> None:
    assert isinstance(value, int | float)
    assert f"{value}" == str(value) == to_text(value)
    assert repr(value) == f"{type(value).__name__}({value})"
    for again in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
        assert (again, type(again)) == (value, type(value))
    assert value + 1 == type(value).__mro__[-2](value) + 1


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**5000], ids=["above", "below", "huge"])
def test_whole_numbers_have_64_bits(value: int) -> None:
    for make in (
        lambda: Message("x", properties={"p": value}),
        lambda: Message("x").set_property("p", value),
        lambda: Message({"p": value}),
        lambda: Message([1, value]),
    ):
        with pytest.raises(MessageFormatError, match="64 bits"):
            make()
    Message([2**63 - 1, -(2**63)], properties={"p": 2**63 - 1, "q": -(2**63)})


def test_values_of_other_libraries_types_are_sent_as_ours() -> None:
    class Size(enum.IntEnum):
        BIG = 3

    class Colour(enum.StrEnum):
        RED = "red"

    message = Message([Size.BIG, Colour.RED, bytearray(b"x")], properties={"size": Size.BIG, "colour": Colour.RED})
    assert [type(value) for value in message.properties.values()] == [int, str]
    assert message.properties == {"size": 3, "colour": "red"}
    assert isinstance(message.body, list)
    assert [type(value) for value in message.body] == [int, str, bytes]


def test_a_property_that_is_not_set_is_none_as_every_type() -> None:
    message = Message("x", properties={"n": None})
    for kind in JAVA:
        assert message.get_property("n", kind) is None
        assert message.get_property("nope", kind) is None
    with pytest.raises(TypeError, match="expected bool"):
        message.get_property("n", bytes)  # type: ignore[type-var]


def test_the_delivery_count_is_a_property_too() -> None:
    """JM 3.5.11."""
    content = Message("x").content
    assert Message.received(content, delivery_count=3).get_property("JMSXDeliveryCount", Int) == 3
    assert Message.received(content, delivery_count=-1).get_property("JMSXDeliveryCount", Int) is None
