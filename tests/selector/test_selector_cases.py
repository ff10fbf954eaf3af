"""The cases that brokers and clients got wrong before: names, NULL logic, LIKE, precedence (C06 to C09)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from jmsclient.errors import InvalidSelectorError
from jmsclient.message import Content, MessageKind
from jmsclient.selector import compile_selector

Selects = Callable[..., bool]


class ForeignContent(Content):
    """A message as another client sent it, with names that ours would refuse to set."""

    message_id = None
    kind = MessageKind.MESSAGE

    def header(self, name: str) -> Any:
        return None

    def properties(self) -> Mapping[str, Any]:
        return {"my-prop": 5, "x-opt.y": 1, "1abc": 1, "NULL": 1, "my": 7, "prop": 2, "größe": 3, "$b": 1}

    def body(self) -> None:
        return None


# -- C06 ---------------------------------------------------------------------------------------------------------------


def test_c06_a_hyphen_in_a_selector_subtracts_and_never_names_an_odd_property() -> None:
    by_difference, by_name = compile_selector("my-prop = 7 - 2"), compile_selector("my-prop = 6")
    assert by_difference is not None
    assert by_name is not None
    assert by_difference.identifiers == {"my", "prop"}
    assert by_difference(ForeignContent())
    assert not by_name(ForeignContent())


@pytest.mark.parametrize("text", ["x-opt.y = 1", "1abc = 1", "a.b = 1", "NULL = 1", "and = 1", "Escape = 1", "JMSFoo = 1"])
def test_c06_odd_names_are_no_identifiers(text: str) -> None:
    with pytest.raises(InvalidSelectorError, match="column"):
        compile_selector(text)


@pytest.mark.parametrize("name", ["JMS_Solace_X", "JMSXGroupID", "_a", "$b", "größe", "a1", "android", "INner", "nothing"])
def test_c06_legal_names_are_identifiers(name: str, selects: Selects) -> None:
    assert selects(f"{name} = 3", {name: 3})


# -- C07 ---------------------------------------------------------------------------------------------------------------

NULLS = {"t": True, "f": False, "x": 93, "z": None}


@pytest.mark.parametrize(
    "text",
    [
        "nope = 0",
        "nope <> 0",
        "NOT (nope = 0)",
        "nope LIKE 'a%'",
        "nope NOT LIKE 'a%'",
        "nope IN ('a')",
        "nope NOT IN ('a')",
        "nope BETWEEN 1 AND 2",
        "nope NOT BETWEEN 1 AND 2",
        "-nope = 0",
        "nope + 2 = 2",
        "nope",
        "NOT nope",
        "nope AND t",
        "nope OR f",
        "NOT (nope OR f)",
        "x NOT BETWEEN nope AND 100",
    ],
)
def test_c07_unknown_is_no_match(text: str, selects: Selects) -> None:
    assert not selects(text, NULLS)


@pytest.mark.parametrize(
    "text",
    [
        "nope IS NULL",
        "z IS NULL",
        "t IS NOT NULL",
        "nope OR t",
        "NOT (nope AND f)",
        "NOT (f AND nope)",
        "x NOT BETWEEN nope AND 10",
    ],
)
def test_c07_known_in_spite_of_an_unknown_part(text: str, selects: Selects) -> None:
    assert selects(text, NULLS)


# -- C08 ---------------------------------------------------------------------------------------------------------------

ODD = "[ab]+(c|d)^{2}"


@pytest.mark.parametrize(
    ("value", "pattern", "matches"),
    [
        ("a.c", "'a.c'", True),
        ("abc", "'a.c'", False),
        ("a.c", "'a_c'", True),
        ("abc", "'a_c'", True),
        ("100%", r"'100\%' ESCAPE '\'", True),
        ("1000", r"'100\%' ESCAPE '\'", False),
        ("_key", "'$_%' ESCAPE '$'", True),
        ("xkey", "'$_%' ESCAPE '$'", False),
        (ODD, f"'{ODD}'", True),
        ("x\ny", "'x%y'", True),
        ("x\ny", "'x_y'", True),
        ("it's", "'it''s'", True),
        ("", "'%'", True),
        ("", "'_'", False),
        ("abc", "'ABC'", False),
    ],
)
def test_c08_like_and_its_opposite(value: str, pattern: str, matches: bool, selects: Selects) -> None:
    assert selects(f"s LIKE {pattern}", {"s": value}) is matches
    assert selects(f"s NOT LIKE {pattern}", {"s": value}) is not matches


def test_c08_a_number_is_like_nothing(selects: Selects) -> None:
    assert not selects("n LIKE '5'", {"n": 5})


@pytest.mark.parametrize("escape", ["ab", ""])
def test_c08_an_escape_is_one_character(escape: str) -> None:
    with pytest.raises(InvalidSelectorError, match=f"column 18: ESCAPE takes one character, not {len(escape)}"):
        compile_selector(f"s LIKE '' ESCAPE '{escape}'")


@pytest.mark.parametrize("value", ["a" * 10_000, "a" * 9_999 + "b", "ab" * 4_999 + "aa"], ids=["as", "as and b", "pairs"])
@pytest.mark.parametrize("pattern", ["%a%a%a%a%a%b", "%a_a%a_a%a_a%a_b", "%_a_a_a_a_a_a_a_b_%"])
def test_c08_a_pattern_goes_through_a_long_value_once(value: str, pattern: str, selects: Selects) -> None:
    start = time.perf_counter()
    selects(f"s LIKE '{pattern}'", {"s": value})
    assert time.perf_counter() - start < 0.5


# -- C09 ---------------------------------------------------------------------------------------------------------------

CITY = {"city": "Oslo", "load": 70, "unit": "kg"}


@pytest.mark.parametrize(
    "text",
    [
        "NOT city = 'Rome' AND load = 70",
        "city = 'Oslo' OR load = 1 AND load = 2",
        "NOT city LIKE 'R%'",
        "NOT city NOT LIKE 'O%'",
        "NOT city <> 'Oslo' AND NOT load <> 70 AND NOT unit <> 'kg'",
        "city='Oslo' and not load>70 or unit like 'x%'",
    ],
)
def test_c09_not_before_and_before_or(text: str, selects: Selects) -> None:
    assert selects(text, CITY)


@pytest.mark.parametrize(
    "text",
    [
        "NOT city = 'Rome' AND load = 90",
        "NOT (city = 'Oslo' OR load = 1)",
        "City = 'Oslo'",
        "city = 'OSLO'",
        "load = 70 -- note",
    ],
)
def test_c09_no_match(text: str, selects: Selects) -> None:
    assert not selects(text, CITY)


BROKEN = [
    "city = 'Oslo' junk AND load = 1",
    "city = 'Oslo' AND ( OR )",
    "3 + 5",
    "load = 1 AMD unit = 'x'",
    'city = "red"',
    "load == 1",
    "city IN ()",
    "city = 'it's'",
    "load = 70 /* note */",
    "(load = 1",
]


@pytest.mark.parametrize("text", BROKEN)
def test_c09_refused_when_presented(text: str) -> None:
    with pytest.raises(InvalidSelectorError, match=r"^selector, column \d+: .*; here: .*>>>"):
        compile_selector(text)


@pytest.mark.parametrize("text", [None, "", " ", " \t\r\n\f"])
def test_c09_nothing_is_no_selector(text: str | None) -> None:
    assert compile_selector(text) is None
