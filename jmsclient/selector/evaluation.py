"""Owns what a selector does: its nodes become closures once, and a closure asks a reader for each identifier it needs.

A closure answers True, False or None, which is unknown (Jakarta Messaging 3.1 section 3.8.1.2). It never raises by itself.
Source: section 3.8.1; rules.md, "Points that specifications leave open". The shapes that most selectors have (an identifier
compared with a literal) have closures of their own: they run for each message.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from jmsclient.selector.arithmetic import COMPARISONS, OPERATIONS, compare, double, negate, number
from jmsclient.selector.nodes import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Constant,
    Identifier,
    IsNull,
    Like,
    Node,
    Not,
    OneOf,
    Or,
    Signed,
)
from jmsclient.selector.pattern import compile_pattern

Reader: TypeAlias = Callable[[str], Any]
"""The value of an identifier in one message; None where it has none."""
Test: TypeAlias = Callable[[Reader], bool | None]
Value: TypeAlias = Callable[[Reader], Any]

_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@functools.singledispatch
def condition(node: Node) -> Test:
    """A closure for a node where a condition stands: what is neither boolean nor unknown is false."""
    read = value(node)

    def test(reader: Reader) -> bool | None:
        given = read(reader)
        return given if given is None or given is True else False

    return test


@functools.singledispatch
def value(node: Node) -> Value:
    """A closure for a node where a value stands."""
    return condition(node)


@value.register
def _(node: Constant) -> Value:
    constant = node.value
    return lambda reader: constant


@value.register
def _(node: Identifier) -> Value:
    name = node.name
    return lambda reader: reader(name)


@value.register
def _(node: Signed) -> Value:
    operand, sign = value(node.operand), negate if node.negative else number
    return lambda reader: sign(operand(reader))


@value.register
def _(node: Arithmetic) -> Value:
    first = value(node.first)
    rest = [(OPERATIONS[symbol], value(operand)) for symbol, operand in node.rest]

    def calculate(reader: Reader) -> Any:
        result = number(first(reader))
        for operation, operand in rest:
            other = number(operand(reader))
            if result is None or other is None:
                return None
            result = operation(result, other)
        return result

    return calculate


# -- logic ---------------------------------------------------------------------------------------------------------------


@condition.register
def _(node: Not) -> Test:
    operand = condition(node.operand)

    def test(reader: Reader) -> bool | None:
        given = operand(reader)
        return None if given is None else not given

    return test


@condition.register
def _(node: And) -> Test:
    tests = tuple(condition(operand) for operand in node.operands)

    def test(reader: Reader) -> bool | None:
        result: bool | None = True
        for one in tests:
            given = one(reader)
            if given is False:
                return False
            if given is None:
                result = None
        return result

    return test


@condition.register
def _(node: Or) -> Test:
    tests = tuple(condition(operand) for operand in node.operands)

    def test(reader: Reader) -> bool | None:
        result: bool | None = False
        for one in tests:
            given = one(reader)
            if given is True:
                return True
            if given is None:
                result = None
        return result

    return test


# -- comparisons ---------------------------------------------------------------------------------------------------------


@condition.register
def _(node: Comparison) -> Test:
    symbol, left, right = node.operator, node.left, node.right
    if isinstance(left, Constant) and isinstance(right, Identifier):
        symbol, left, right = _MIRRORED[symbol], right, left
    if isinstance(left, Identifier) and isinstance(right, Constant):
        return _compare_with(left.name, symbol, right.value)
    one, other = value(left), value(right)
    return lambda reader: compare(symbol, one(reader), other(reader))


def _compare_with(name: str, symbol: str, constant: bool | int | float | str) -> Test:
    """An identifier and a literal: the shape that is worth a closure for each type."""
    compared = COMPARISONS[symbol]
    if isinstance(constant, str):

        def test_text(reader: Reader) -> bool | None:
            given = reader(name)
            return None if given is None else isinstance(given, str) and compared(given, constant)

        return test_text
    if isinstance(constant, bool):
        return lambda reader: compare(symbol, reader(name), constant)
    exact, approximate = type(constant) is int, double(constant)

    def test_number(reader: Reader) -> bool | None:
        given = reader(name)
        kind = type(given)
        if kind is int and exact:
            return compared(given, constant)
        if kind is float:
            return compared(given, approximate)
        return compare(symbol, given, constant)

    return test_number


@condition.register
def _(node: Between) -> Test:
    """`a >= b AND a <= c`; with NOT `a < b OR a > c`."""
    operand, low, high = value(node.operand), value(node.low), value(node.high)
    below, above, decisive = ("<", ">", True) if node.negated else (">=", "<=", False)

    def test(reader: Reader) -> bool | None:
        given = operand(reader)
        one = compare(below, given, low(reader))
        if one is decisive:
            return decisive
        other = compare(above, given, high(reader))
        if other is decisive:
            return decisive
        return None if one is None or other is None else not decisive

    return test


# -- what only texts can be ------------------------------------------------------------------------------------------------


@condition.register
def _(node: OneOf) -> Test:
    return _test_text(node.identifier.name, node.texts.__contains__, node.negated)


@condition.register
def _(node: Like) -> Test:
    return _test_text(node.identifier.name, compile_pattern(node.pattern, node.escape), node.negated)


def _test_text(name: str, holds: Callable[[str], bool], negated: bool) -> Test:
    """NOT gives the opposite, also for what is no text: that is none of these, and like nothing."""

    def test(reader: Reader) -> bool | None:
        given = reader(name)
        return None if given is None else (isinstance(given, str) and holds(given)) is not negated

    return test


@condition.register
def _(node: IsNull) -> Test:
    name, expected = node.identifier.name, operator.is_not if node.negated else operator.is_
    return lambda reader: expected(reader(name), None)
