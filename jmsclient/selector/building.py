"""Owns the checks that the grammar cannot make, and the nodes they are made for: the parser calls a method here for each rule.

It must not know of the parser's library: tokens are texts with a position. Source: Jakarta Messaging 3.1 section 3.8.1.1.
"""

from __future__ import annotations

from typing import Any

from jmsclient.selector.arithmetic import LONG_MAX
from jmsclient.selector.headers import HEADERS, is_reserved
from jmsclient.selector.nodes import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Constant,
    Identifier,
    IsNull,
    Kind,
    Like,
    Node,
    Not,
    OneOf,
    Or,
    Signed,
)
from jmsclient.selector.pattern import PatternError, compile_pattern

MOST_NESTED = 100
"""Conditions inside one another: far more than a person writes, and few enough for Python's stack."""

_WORDS: dict[Kind, str] = {"condition": "a condition", "number": "a number", "text": "a text", "any": "an identifier"}


class FaultError(Exception):
    """What is wrong with a selector, and the column where, counted from 1."""

    def __init__(self, text: str, column: int) -> None:
        super().__init__(text, column)
        self.text = text
        self.column = column


class Builder:
    """One method a rule of selector.lark. Holds nothing, so it serves all threads. Each may raise FaultError."""

    def start(self, children: list[Any]) -> Node:
        (node,) = children
        return _condition(node)

    def disjunction(self, children: list[Any]) -> Node:
        if len(children) == 1:
            return children[0]  # type: ignore[no-any-return]
        operands = tuple(_condition(child) for child in children)
        return Or(operands=operands, column=operands[0].column, depth=_depth(*operands))

    def conjunction(self, children: list[Any]) -> Node:
        if len(children) == 1:
            return children[0]  # type: ignore[no-any-return]
        operands = tuple(_condition(child) for child in children)
        return And(operands=operands, column=operands[0].column, depth=_depth(*operands))

    def negation(self, children: list[Any]) -> Node:
        *nots, node = children
        if not nots:
            return node  # type: ignore[no-any-return]
        column = nots[0].start_pos + 1
        once = Not(operand=_condition(node), column=column, depth=_depth(node))
        return once if len(nots) % 2 else Not(operand=once, column=column, depth=_depth(once))

    # -- conditions ------------------------------------------------------------------------------------------------

    def comparison(self, children: list[Any]) -> Node:
        left, symbol, right = children
        if symbol not in ("=", "<>"):
            for operand in (left, right):
                _number(operand, f"{symbol} compares numbers only")
        return Comparison(operator=str(symbol), left=left, right=right, column=left.column, depth=_depth(left, right))

    def between(self, children: list[Any]) -> Node:
        operand, negated, low, high = children
        for one in (operand, low, high):
            _number(one, "BETWEEN compares numbers only")
        depth = _depth(operand, low, high)
        return Between(operand=operand, low=low, high=high, negated=negated is not None, column=operand.column, depth=depth)

    def one_of(self, children: list[Any]) -> Node:
        operand, negated, *texts = children
        identifier = _identifier(operand, "IN")
        values = frozenset(_unquoted(text) for text in texts)
        return OneOf(identifier=identifier, texts=values, negated=negated is not None, column=operand.column, depth=2)

    def like(self, children: list[Any]) -> Node:
        operand, negated, pattern_token, escape_token = children
        identifier = _identifier(operand, "LIKE")
        pattern = _unquoted(pattern_token)
        escape = None if escape_token is None else _unquoted(escape_token)
        if escape is not None and len(escape) != 1:
            raise FaultError(f"ESCAPE takes one character, not {len(escape)}", escape_token.start_pos + 1)
        try:
            compile_pattern(pattern, escape)
        except PatternError as error:
            quotes = pattern[: error.offset].count("'")  # each stands there twice
            raise FaultError(
                f"{error}: write it before _, % or itself only", pattern_token.start_pos + 2 + error.offset + quotes
            ) from None
        negative = negated is not None
        return Like(identifier=identifier, pattern=pattern, escape=escape, negated=negative, column=operand.column, depth=2)

    def is_null(self, children: list[Any]) -> Node:
        operand, negated = children
        identifier = _identifier(operand, "IS NULL")
        return IsNull(identifier=identifier, negated=negated is not None, column=operand.column, depth=2)

    # -- values ----------------------------------------------------------------------------------------------------

    def addition(self, children: list[Any]) -> Node:
        if len(children) == 1:
            return children[0]  # type: ignore[no-any-return]
        first, *others = children
        symbols, operands = others[::2], others[1::2]
        for symbol, operand in zip([symbols[0], *symbols], [first, *operands], strict=True):
            _number(operand, f"{symbol} is for numbers only")
        rest = tuple((str(symbol), operand) for symbol, operand in zip(symbols, operands, strict=True))
        return Arithmetic(first=first, rest=rest, column=first.column, depth=_depth(first, *operands))

    multiplication = addition

    def signed(self, children: list[Any]) -> Node:
        *signs, operand = children
        node = operand if isinstance(operand, Node) else _leaf(operand)
        negative = sum(sign == "-" for sign in signs) % 2 == 1
        column = signs[0].start_pos + 1 if signs else node.column
        if signs:
            _number(node, f"{signs[-1]} is for numbers only")
        if isinstance(node, Constant) and node is not operand and node.kind == "number":  # the sign of a literal is part of it
            value = -node.value if negative else node.value  # type: ignore[operator]  # a number, as its kind says
            if isinstance(value, int) and value > LONG_MAX:
                raise _too_large(node.column)
            return Constant(value=value, column=column)
        if not signs:
            return node
        return Signed(negative=negative, operand=node, column=column, depth=_depth(node))


def _depth(*nodes: Node) -> int:
    deepest = max(nodes, key=lambda node: node.depth)
    if deepest.depth >= MOST_NESTED:
        raise FaultError(f"more than {MOST_NESTED} conditions inside one another: write it flatter", deepest.column)
    return deepest.depth + 1


def _condition(node: Node) -> Node:
    if node.kind not in ("condition", "any"):
        raise FaultError(f"found {_WORDS[node.kind]}, expected a condition, such as a comparison", node.column)
    return node


def _number(node: Node, why: str) -> None:
    if node.kind not in ("number", "any"):
        raise FaultError(f"{why}: found {_WORDS[node.kind]}, expected a number or an identifier", node.column)


def _identifier(node: Node, operator: str) -> Identifier:
    if not isinstance(node, Identifier):
        raise FaultError(f"{operator} tests an identifier: found {_WORDS[node.kind]}", node.column)
    return node


def _leaf(token: Any) -> Node:
    column = token.start_pos + 1
    if token.type == "IDENTIFIER":
        if is_reserved(token):
            raise FaultError(f"{token} is no header field that a selector can use: expected {', '.join(HEADERS)}", column)
        return Identifier(name=str(token), column=column)
    return Constant(value=_VALUES[token.type](token), column=column)


def _unquoted(token: Any) -> str:
    return str(token[1:-1]).replace("''", "'")


def _integer(token: Any) -> int:
    """A Java integer literal. One more than the largest long passes here: its negative is a long, and `signed` sees the sign."""
    digits, base = token.rstrip("lL"), 10
    if digits[:2] in ("0x", "0X"):
        base = 16
    elif len(digits) > 1 and digits[0] == "0":
        base = 8
    try:
        value = int(digits, base)
    except ValueError:
        if base == 8:
            raise FaultError("a number that begins with 0 is octal: expected digits from 0 to 7", token.start_pos + 1) from None
        raise _too_large(token.start_pos + 1) from None  # more digits than Python reads
    if value > LONG_MAX + 1:
        raise _too_large(token.start_pos + 1)
    return value


def _float(token: Any) -> float:
    value = float(token.rstrip("fFdD"))
    if value == float("inf"):
        raise FaultError("a number too large for a double", token.start_pos + 1)
    return value


def _too_large(column: int) -> FaultError:
    return FaultError(f"a number too large for a long: expected at most {LONG_MAX}, or an approximate number such as 1E19", column)


_VALUES: dict[str, Any] = {
    "TEXT": _unquoted,
    "INTEGER": _integer,
    "FLOAT": _float,
    "TRUE": lambda token: True,
    "FALSE": lambda token: False,
}
