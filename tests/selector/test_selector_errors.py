"""What a refused selector says: the column, what was found, what was expected, in one line."""

from __future__ import annotations

import pytest

from jmsclient.errors import InvalidSelectorError
from jmsclient.selector import compile_selector

AFTER_A_VALUE = "expected an arithmetic operator, AND, OR or the end of the selector"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("load = 1 AMD x", f"column 10: found 'AMD', {AFTER_A_VALUE}; here: load = 1 >>> AMD x"),
        ('city = "red"', "column 8: found '\"' (texts stand in single quotes), expected a value"),
        ("load == 1", "column 7: found '=' (equal is a single =), expected a value"),
        ("load != 1", "column 6: found '!' (unequal is <>), expected a comparison"),
        ("a && b", "column 3: found '&' (the word is AND), expected"),
        ("a = ?", "column 5: found '?' (there are no parameters in selectors), expected a value"),
        ("city IN ()", "column 10: found ')', expected a text in single quotes"),
        ("city IN (1)", "column 10: found '1', expected a text in single quotes"),
        ("city IN ('a' 'b')", "column 14: found \"'b'\", expected , or )"),
        ("city = 'it's'", f"column 12: found 's', {AFTER_A_VALUE}"),
        ("city = 'red", 'column 8: found the text "\'red" without its closing quote, expected a value'),
        ("(load = 1", "column 10: found the end of the selector, expected "),
        ("a IS 5", "column 6: found '5', expected NOT or NULL"),
        ("a NOT 5", "column 7: found '5', expected BETWEEN, IN or LIKE"),
        ("a BETWEEN 1 OR 2", "column 13: found 'OR', expected AND;"),
        ("a = 1.5.5", "column 5: found '1.5.5', which is neither a number nor part of a name, expected a value"),
        ("a = 1and b", "column 5: found '1and', which is neither"),
        ("a = b = c", "column 7: found '=' (equal is a single =), expected AND, OR or the end of the selector"),
        ("3 + 5", "column 1: found a number, expected a condition"),
        ("a AND 'b'", "column 7: found a text, expected a condition"),
        ("NOT 5", "column 5: found a number, expected a condition"),
        ("a < 'x'", "column 5: < compares numbers only: found a text"),
        ("TRUE >= a", "column 1: >= compares numbers only: found a condition"),
        ("a BETWEEN 'b' AND 'c'", "column 11: BETWEEN compares numbers only: found a text"),
        ("a + 'b' = 1", "column 5: + is for numbers only: found a text"),
        ("-'b' = a", "column 2: - is for numbers only: found a text"),
        ("5 LIKE '5'", "column 1: LIKE tests an identifier: found a number"),
        ("'a' IN ('a')", "column 1: IN tests an identifier: found a text"),
        ("a + 1 IS NULL", "column 1: IS NULL tests an identifier: found a number"),
        ("a LIKE 5", "column 8: found '5', expected a text in single quotes"),
        (r"a LIKE 'it''s\x' ESCAPE '\'", r"column 14: the escape character '\\' before 'x', which needs none"),
        (r"a LIKE 'x\' ESCAPE '\'", r"column 10: the escape character '\\' at the end of the pattern"),
        ("a = 9223372036854775808", "column 5: a number too large for a long"),
        ("a = -9223372036854775809", "column 6: a number too large for a long"),
        ("a = -(9223372036854775808)", "column 7: a number too large for a long"),
        ("a = 0x8000000000000000", "column 5: a number too large for a long"),
        ("a = " + "9" * 5000, "column 5: a number too large for a long"),
        ("a = 1E999", "column 5: a number too large for a double"),
        ("a = 089", "column 5: a number that begins with 0 is octal"),
    ],
)
def test_the_column_what_was_found_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(InvalidSelectorError) as raised:
        compile_selector(text)
    assert str(raised.value).startswith(f"selector, {message}")


def test_a_long_selector_is_shown_around_the_fault_in_one_line() -> None:
    text = "a = 1 AND\n" * 20 + "b ! 2 AND\tc = 3" + "\nAND d = 4" * 20
    with pytest.raises(InvalidSelectorError) as raised:
        compile_selector(text)
    line = str(raised.value)
    assert "\n" not in line
    assert line.startswith("selector, column 203: found '!'")
    assert line.endswith("; here: …= 1 AND a = 1 AND a = 1 AND b >>> ! 2 AND c = 3 AND d = 4 AND d …")


@pytest.mark.parametrize("opening", ["NOT (", "1 + (", "a AND ("])
def test_what_is_nested_too_deep_is_refused(opening: str) -> None:
    deep = opening * 5000 + "a" + ")" * 5000
    with pytest.raises(InvalidSelectorError, match="more than 100 conditions inside one another"):
        compile_selector(f"a = {deep}" if "+" in opening else deep)


def test_what_is_long_but_flat_is_fine() -> None:
    for text in (" AND ".join(["a"] * 5000), "a = 1" + " + 1" * 5000, "NOT " * 5000 + "a", "(" * 5000 + "a" + ")" * 5000):
        assert compile_selector(text) is not None


@pytest.mark.parametrize("given", [5, b"a = 1", ["a = 1"], True])
def test_what_is_no_text_is_no_selector(given: object) -> None:
    with pytest.raises(InvalidSelectorError, match="expected a text or None"):
        compile_selector(given)  # type: ignore[arg-type]
