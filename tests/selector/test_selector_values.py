"""What the parts of a selector are worth: literals, Java arithmetic, comparison of types, header fields (JM 3.8.1.1, 3.8.1.2)."""

from __future__ import annotations

import enum
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient.errors import InvalidSelectorError
from jmsclient.message import MessageKind, PlainContent, checked_property
from jmsclient.selector import compile_selector

Selects = Callable[..., bool]
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("57", 57),
        ("-957", -957),
        ("+62", 62),
        ("0", 0),
        ("62L", 62),
        ("0x1F", 31),
        ("0XfFl", 255),
        ("017", 15),
        ("7.", 7.0),
        (".5", 0.5),
        ("-95.7", -95.7),
        ("+6.2", 6.2),
        ("7E3", 7000.0),
        ("-57.9E2", -5790.0),
        ("1e-2", 0.01),
        ("1.5d", 1.5),
        ("2F", 2.0),
        ("- - 3", 3),
        (str(LONG_MAX), LONG_MAX),
        (str(LONG_MIN), LONG_MIN),
        ("- 9223372036854775808", LONG_MIN),
        ("TRUE", True),
        ("false", False),
        ("'it''s'", "it's"),
        ("''", ""),
        ("'größe\n'", "größe\n"),
        ("(('a'))", "a"),
    ],
)
def test_a_literal_equals_its_value_and_nothing_near_it(literal: str, value: Any, selects: Selects) -> None:
    assert selects(f"v = {literal}", {"v": value})
    assert selects(f"{literal} = v", {"v": value})
    assert not selects(f"v <> {literal}", {"v": value})
    near = {bool: lambda v: not v, str: lambda v: v + "x", int: lambda v: v - 1 if v > 0 else v + 1, float: lambda v: v + 1}
    assert not selects(f"v = {literal}", {"v": near[type(value)](value)})


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        (f"a + 1 = {LONG_MIN}", {"a": LONG_MAX}),
        (f"a - 1 = {LONG_MAX}", {"a": LONG_MIN}),
        ("a * 4 = 0", {"a": 2**62}),
        (f"-a = {LONG_MIN}", {"a": LONG_MIN}),
        (f"a / -1 = {LONG_MIN}", {"a": LONG_MIN}),
        (f"-({LONG_MIN}) = {LONG_MIN}", {}),
        ("-7 / 2 = -3", {}),
        ("7 / -2 = -3", {}),
        ("-7 / -2 = 3", {}),
        ("7 / 2. = 3.5", {}),
        ("1 + 2 * 3 - 4 / 2 = 5", {}),
        ("(1 + 2) * 3 = 9", {}),
        ("10 - 3 - 2 = 5", {}),
        ("24 / 4 / 2 = 3", {}),
        ("a = 9007199254740992.0", {"a": 9007199254740993}),  # a long becomes a double, and loses its last bit
        ("9007199254740993 <> a", {"a": 9007199254740992}),
        ("a * 10 > 1.7E308", {"a": 1.7e308}),
        ("a <> a", {"a": float("nan")}),
        ("a > 1E300", {"a": 10**400}),  # no JMS value, yet never an exception
        ("2147483647 + 1 = 2147483648", {}),  # an exact literal is a long
    ],
)
def test_arithmetic_as_java_does_it(text: str, properties: dict[str, Any], selects: Selects) -> None:
    assert selects(text, properties)


@pytest.mark.parametrize("division", ["1 / 0", "1 / 0.0", "a / 0", "1. / zero", "a / (1 - 1)", "0 / 0"])
def test_a_division_by_zero_is_unknown_never_an_exception(division: str, selects: Selects) -> None:
    properties = {"a": 5, "zero": 0}
    assert not selects(f"{division} = 0", properties)
    assert not selects(f"NOT ({division} = 0)", properties)
    assert not selects(f"{division} > 1", properties)
    assert selects(f"a = 5 OR {division} = 0", properties)


@pytest.mark.parametrize(
    "comparison",
    ["s = 5", "s <> 5", "n = '5'", "n <> '5'", "n = TRUE", "n <> TRUE", "s > 5", "t < 5", "t >= s", "s >= s", "'a' = 1"],
)
def test_a_comparison_of_unlike_types_is_false_not_unknown(comparison: str, selects: Selects) -> None:
    properties = {"s": "5", "n": 5, "t": True}
    assert not selects(comparison, properties)
    assert selects(f"NOT ({comparison})", properties)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n = 5.0", True),
        ("d = 5", True),
        ("n = d", True),
        ("n <> d", False),
        ("one = TRUE", False),
        ("t = TRUE", True),
        ("t <> FALSE", True),
        ("t = (n > 4)", True),
        ("TRUE", True),
        ("t", True),
        ("n", False),
        ("NOT n", True),
        ("NOT NOT n", False),
        ("NOT NOT NOT n", True),
        ("s + 1 = 6", False),
        ("NOT (s + 1 = 6)", False),
        ("+s = 5", False),
        ("s = s", True),
        ("s IN ('4', '5')", True),
        ("s NOT IN ('4', '5')", False),
        ("n IN ('5')", False),
        ("n NOT IN ('5')", True),
        ("n BETWEEN 5 AND 5", True),
        ("n NOT BETWEEN 6 AND 4", True),
        ("n BETWEEN 1 + 1 AND n * 2 AND t", True),
        ("s BETWEEN 1 AND 9", False),
        ("s NOT BETWEEN 1 AND 9", False),
    ],
)
def test_values_by_type(text: str, expected: bool, selects: Selects) -> None:
    assert selects(text, {"s": "5", "n": 5, "d": 5.0, "t": True, "one": 1}) is expected


class Size(enum.IntEnum):
    """A number with a type of its own, as protocol libraries make them."""

    LARGE = 3


def test_a_number_of_a_type_of_its_own_is_a_number(selects: Selects) -> None:
    assert selects("n = 3 AND n + 1 = 4 AND n > 2.5 AND n BETWEEN 1 AND 3", {"n": Size.LARGE})


def test_keywords_in_any_case_and_any_white_space(selects: Selects) -> None:
    assert selects("nOt a\tiS\r\nNull\fAnD\n a bEtWeEn 1 aNd 2 Or fAlSe", {"a": 1})


def test_header_fields_have_the_values_of_jms(selects: Selects) -> None:
    headers = {
        "message_id": "ID:1",
        "timestamp": 1_700_000_000.123,
        "correlation_id": "c",
        "type": "order",
        "priority": 7,
        "persistent": False,
    }
    for text in (
        "JMSPriority = 7",
        "JMSMessageID = 'ID:1'",
        "JMSTimestamp = 1700000000123",
        "JMSCorrelationID LIKE 'c%'",
        "JMSType IN ('order', 'offer')",
        "JMSDeliveryMode = 'NON_PERSISTENT' AND JMSPriority BETWEEN 5 AND 9 AND size > 2",
    ):
        assert selects(text, {"size": 3}, **headers), text
    assert selects("JMSDeliveryMode = 'PERSISTENT' AND JMSPriority = 4 AND JMSTimestamp IS NULL AND JMSType IS NULL")


def test_the_delivery_count_comes_from_whoever_delivers_else_from_the_properties() -> None:
    selector = compile_selector("JMSXDeliveryCount > 1")
    assert selector is not None
    plain = PlainContent(kind=MessageKind.TEXT, body="")
    counted = PlainContent(kind=MessageKind.TEXT, body="", properties={"JMSXDeliveryCount": 3})
    assert [selector(plain, 2), selector(plain, 1), selector(plain), selector(counted), selector(counted, 1)] == [
        True,
        False,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("name", ["JMSDestination", "JMSReplyTo", "JMSExpiration", "JMSRedelivered", "JMSDeliveryTime", "JMSfoo"])
def test_other_header_fields_are_refused_not_silently_missing(name: str) -> None:
    with pytest.raises(InvalidSelectorError, match=f"column 5: {name} is no header field .* expected JMSCorrelationID"):
        compile_selector(f"NOT {name} = 'x'")


@pytest.mark.parametrize("name", ["a", "_a", "$", "$1", "a$b_2", "größe", "名前", "JMSXGroupSeq", "JMS_x", "trueish"])
def test_every_name_that_a_property_can_have_is_an_identifier(name: str) -> None:
    checked_property(name, 1)
    selector = compile_selector(f"{name} = 1")
    assert selector is not None
    assert selector.identifiers == {name}


def test_a_selector_says_what_it_is() -> None:
    selector = compile_selector("a = 1 AND (b LIKE 'x' OR NOT -c + d * 2 BETWEEN e AND f) AND g IN ('h') AND JMSType IS NULL")
    assert selector is not None
    assert selector.identifiers == {"a", "b", "c", "d", "e", "f", "g", "JMSType"}
    assert repr(compile_selector("a = 1")) == "<Selector 'a = 1'>"


def test_the_parser_is_loaded_with_the_first_selector_and_not_before() -> None:
    program = (
        "import sys; from jmsclient.selector import compile_selector; compile_selector(None); compile_selector(' ');"
        "before = 'lark' in sys.modules; compile_selector('a = 1'); print(before, 'lark' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.split() == ["False", "True"]


def test_an_error_can_be_pickled() -> None:
    with pytest.raises(InvalidSelectorError) as raised:
        compile_selector("a = ")
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
