"""Owns arithmetic and comparison as Java does them, on values that may be anything or nothing.

An exact number is a Java long: sums and products wrap at 64 bits, division cuts towards zero. An approximate one is a Java double.
Where the two meet, the long becomes a double first. No operation raises: an operand that is no number, and a division by zero of
either kind, make the result unknown (None). Values of unlike types are neither equal nor unequal: their comparison is false.
Source: Jakarta Messaging 3.1 sections 3.8.1.1 and 3.8.1.2; rules.md, "Points that specifications leave open".
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

Number: TypeAlias = int | float
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def number(value: Any) -> Number | None:
    """The value as a plain number; None where it is none. A boolean is none."""
    kind = type(value)
    if kind is int or kind is float:
        return value  # type: ignore[no-any-return]
    if kind is bool or value is None:
        return None
    if isinstance(value, int):  # a number with a type name of its own, as protocol libraries make them
        return int(value)
    return float(value) if isinstance(value, float) else None


def wrap(value: int) -> int:
    """What a Java long keeps of it."""
    return value if LONG_MIN <= value <= LONG_MAX else ((value - LONG_MIN) & (2**64 - 1)) + LONG_MIN


def double(value: Number) -> float:
    """As a Java double; what no double can hold is infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def negate(value: Any) -> Number | None:
    """`-value`."""
    given = number(value)
    if given is None or isinstance(given, float):
        return None if given is None else -given
    return wrap(-given)


def _divide(left: Number, right: Number) -> Number | None:
    if right == 0:
        return None
    if isinstance(left, float) or isinstance(right, float):
        return double(left) / double(right)
    quotient = abs(left) // abs(right)
    return wrap(quotient if (left < 0) == (right < 0) else -quotient)


def _exactly(operation: Callable[[Any, Any], Any]) -> Callable[[Number, Number], Number | None]:
    def operate(left: Number, right: Number) -> Number | None:
        if isinstance(left, float) or isinstance(right, float):
            return operation(double(left), double(right))  # type: ignore[no-any-return]
        return wrap(operation(left, right))

    return operate


OPERATIONS: dict[str, Callable[[Number, Number], Number | None]] = {
    "+": _exactly(operator.add),
    "-": _exactly(operator.sub),
    "*": _exactly(operator.mul),
    "/": _divide,
}


def compare(symbol: str, left: Any, right: Any) -> bool | None:
    """`left symbol right`: True, False, or None where one of them is unknown."""
    if left is None or right is None:
        return None
    compared = COMPARISONS[symbol]
    one, other = number(left), number(right)
    if one is not None and other is not None:
        if type(one) is not type(other):
            one, other = double(one), double(other)
        return compared(one, other)
    return symbol in ("=", "<>") and _alike(left, right) and compared(left, right)


def _alike(left: Any, right: Any) -> bool:
    return any(isinstance(left, kind) and isinstance(right, kind) for kind in (str, bool))
