"""Selectors against a slow and obvious interpreter, on generated conditions and properties; and any text at all.

The interpreter below works on trees of its own, written from Jakarta Messaging 3.1 section 3.8.1 without a look at the compiler: it
knows nothing of closures, cuts no corners, and matches LIKE by trying everything.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsclient.errors import InvalidSelectorError
from jmsclient.message import MessageKind, PlainContent
from jmsclient.selector import compile_selector

NAMES = ("a", "b", "c", "s", "nope")
LONGS = st.one_of(st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63), 2**62, 2**53 + 1, 10**10]))
DOUBLES = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, -1.5, 2.0, 9007199254740992.0, 1e300]), st.floats(allow_nan=False, allow_infinity=False)
)
TEXTS = st.text("ab%_'$\n", max_size=6)
PROPERTIES = st.dictionaries(st.sampled_from(NAMES[:-1]), st.one_of(LONGS, DOUBLES, TEXTS, st.booleans(), st.none()))

# -- trees: tuples that begin with what they are -------------------------------------------------------------------------

IDENTIFIERS = st.tuples(st.just("name"), st.sampled_from(NAMES))
NUMBERS = st.tuples(st.just("literal"), st.one_of(LONGS, DOUBLES))
ARITHMETIC = st.recursive(
    st.one_of(IDENTIFIERS, NUMBERS),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "/"]), inner, inner),
        st.tuples(st.sampled_from(["minus", "plus"]), inner),
    ),
    max_leaves=5,
)
OTHER_LITERALS = st.tuples(st.just("literal"), st.one_of(TEXTS, st.booleans()))
NEGATED = st.booleans()


def patterns() -> st.SearchStrategy[tuple[str, str | None]]:
    """A pattern and its escape character, with no escape where none may be."""
    plain = st.tuples(st.text("ab%_'\n", max_size=8), st.sampled_from([None, "$"]))
    escaped = st.lists(st.sampled_from(["a", "b", "%", "_", "$%", "$_", "$$"]), max_size=6).map(lambda parts: ("".join(parts), "$"))
    return st.one_of(plain, escaped)


SIMPLE = st.one_of(
    IDENTIFIERS,
    st.tuples(st.just("literal"), st.booleans()),
    st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), ARITHMETIC, ARITHMETIC),
    st.tuples(st.sampled_from(["=", "<>"]), st.one_of(ARITHMETIC, OTHER_LITERALS), st.one_of(ARITHMETIC, OTHER_LITERALS)),
    st.tuples(st.just("between"), ARITHMETIC, ARITHMETIC, ARITHMETIC, NEGATED),
    st.tuples(st.just("in"), IDENTIFIERS, st.lists(TEXTS, min_size=1, max_size=3), NEGATED),
    st.tuples(st.just("like"), IDENTIFIERS, patterns(), NEGATED),
    st.tuples(st.just("null"), IDENTIFIERS, NEGATED),
)
CONDITIONS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["=", "<>"]), inner, inner),
    ),
    max_leaves=8,
)
# -- a tree as text ------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def written(tree: Any) -> str:
    """The tree as a selector, with more parentheses than it needs."""
    what = tree[0]
    negated = " NOT" if tree[-1] is True and what in ("between", "in", "like") else ""
    if what == "name":
        return str(tree[1])
    if what == "literal":
        value = tree[1]
        return quoted(value) if isinstance(value, str) else str(value).upper()
    if what in ("minus", "plus"):
        return f"{'-' if what == 'minus' else '+'}({written(tree[1])})"
    if what == "not":
        return f"NOT ({written(tree[1])})"
    if what == "between":
        operand, low, high = (written(one) for one in tree[1:4])
        return f"({operand}){negated} BETWEEN ({low}) AND ({high})"
    if what == "in":
        return f"{tree[1][1]}{negated} IN ({', '.join(quoted(text) for text in tree[2])})"
    if what == "like":
        pattern, escape = tree[2]
        return f"{tree[1][1]}{negated} LIKE {quoted(pattern)}{'' if escape is None else ' ESCAPE ' + quoted(escape)}"
    if what == "null":
        return f"{tree[1][1]} IS {'NOT ' if tree[2] else ''}NULL"
    return f"({written(tree[1])}) {what.upper()} ({written(tree[2])})"


# -- a tree's worth ------------------------------------------------------------------------------------------------------


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_long(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def calculated(symbol: str, left: Any, right: Any) -> Any:
    if not is_number(left) or not is_number(right):
        return None
    if symbol == "/" and right == 0:
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        return {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right, "/": lambda: left / right}[
            symbol
        ]()
    if symbol == "/":
        return as_long(int(math.copysign(1, left) * math.copysign(1, right)) * (abs(left) // abs(right)))
    return as_long({"+": left + right, "-": left - right, "*": left * right}[symbol])


def compared(symbol: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if is_number(left) and is_number(right):
        if isinstance(left, float) or isinstance(right, float):
            left, right = float(left), float(right)
    elif type(left) is not type(right) or symbol not in ("=", "<>"):
        return False
    results = {"=": left == right, "<>": left != right}
    if is_number(left):
        results |= {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
    return results[symbol]


def alike(value: str, pattern: str, escape: str | None) -> bool:
    """LIKE by trying everything."""
    if not pattern:
        return not value
    if pattern[0] == escape:
        return value[:1] == pattern[1] and alike(value[1:], pattern[2:], escape)
    if pattern[0] == "%":
        return any(alike(value[start:], pattern[1:], escape) for start in range(len(value) + 1))
    return bool(value) and pattern[0] in ("_", value[0]) and alike(value[1:], pattern[1:], escape)


def three_valued_not(value: bool | None) -> bool | None:
    return {True: False, False: True, None: None}[value]


def three_valued_and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def three_valued_or(left: bool | None, right: bool | None) -> bool | None:
    return three_valued_not(three_valued_and(three_valued_not(left), three_valued_not(right)))


def as_condition(value: Any) -> bool | None:
    return value if value is None or isinstance(value, bool) else False


def worth(tree: Any, properties: dict[str, Any]) -> Any:
    """What a tree is worth: a value, or True, False or None."""
    what = tree[0]
    if what == "name":
        return properties.get(tree[1])
    if what == "literal":
        return tree[1]
    if what in ("and", "or", "not"):
        conditions = [as_condition(worth(one, properties)) for one in tree[1:]]
        return {"and": three_valued_and, "or": three_valued_or, "not": three_valued_not}[what](*conditions)
    if what == "null":
        return (properties.get(tree[1][1]) is None) != tree[2]
    if what in ("in", "like"):
        value = properties.get(tree[1][1])
        if value is None:
            return None
        holds = isinstance(value, str) and (value in tree[2] if what == "in" else alike(value, *tree[2]))
        return holds != tree[3]
    operands = [worth(one, properties) for one in tree[1:] if isinstance(one, tuple)]
    if what == "minus":
        return calculated("-", 0, operands[0]) if isinstance(operands[0], int) else calculated("*", -1.0, operands[0])
    if what == "plus":
        return operands[0] if is_number(operands[0]) else None
    if what == "between":
        value, low, high = operands
        if tree[4]:
            return three_valued_or(compared("<", value, low), compared(">", value, high))
        return three_valued_and(compared(">=", value, low), compared("<=", value, high))
    return (calculated if what in ("+", "-", "*", "/") else compared)(what, *operands)


@given(CONDITIONS, PROPERTIES)
def test_the_compiled_selector_agrees_with_the_interpreter(tree: Any, properties: dict[str, Any]) -> None:
    content = PlainContent(kind=MessageKind.TEXT, body="", properties=properties)
    text, expected = written(tree), as_condition(worth(tree, properties))
    selector, unless, opposite = compile_selector(text), compile_selector(f"NOT ({text})"), compile_selector(f"({text}) OR TRUE")
    assert selector is not None
    assert unless is not None
    assert opposite is not None
    verdicts = (selector(content), unless(content), opposite(content))
    assert verdicts == (expected is True, expected is False, True)


@given(st.text("ab\n", max_size=12), patterns())
def test_like_agrees_with_trying_everything(value: str, how: tuple[str, str | None]) -> None:
    pattern, escape = how
    selector = compile_selector(written(("like", ("name", "s"), how, False)))
    assert selector is not None
    content = PlainContent(kind=MessageKind.TEXT, body="", properties={"s": value})
    assert selector(content) is alike(value, pattern, escape)


WORDS = "a and OR not ( ) = <> < >= + - * / , 'x' 'it''s' ' \" 1 2.5 .5 1E3 0x1f 09 99999999999999999999 like in IS null between"
WORDS += " escape true FALSE JMSType JMSFoo x-y x.y ; # \x00 ß 🙂 '%' \ud800"


@given(st.one_of(st.text(), st.lists(st.sampled_from(WORDS.split(" ")), max_size=14).map(" ".join)))
def test_any_text_compiles_or_is_refused_and_what_compiles_never_raises(text: str) -> None:
    refusal, selector = "", None
    try:
        selector = compile_selector(text)
    except InvalidSelectorError as error:
        refusal = str(error)
    if selector is None:
        assert refusal.startswith("selector, column ") if text.strip() else not refusal
        assert refusal.isprintable() or "\ud800" in refusal
    else:
        for a in (None, 1, -(2**63), 10**400, 2.5, float("nan"), "x", True):
            selector(PlainContent(kind=MessageKind.TEXT, body="", properties={"a": a, "x": a, "y": a}))


@pytest.mark.parametrize("special", ["a LIKE '%'", "a = 1", "a BETWEEN 1 AND 2"])
def test_the_interpreter_itself_sees_the_difference(special: str) -> None:
    """A guard of the guard: the values above make each of these true, false and unknown."""
    trees = {
        "a LIKE '%'": ("like", ("name", "a"), ("%", None), False),
        "a = 1": ("=", ("name", "a"), ("literal", 1)),
        "a BETWEEN 1 AND 2": ("between", ("name", "a"), ("literal", 1), ("literal", 2), False),
    }
    seen = {worth(trees[special], {"a": value}) for value in (None, 1, 5, "x")}
    assert seen == {True, False, None}
