"""Owns the nodes of a parsed selector. They are values: who makes them checks them (building.py), who runs them compiles them.

Source: Jakarta Messaging 3.1 section 3.8.1.1. `column` is where a node begins in the text, counted from 1; `depth` how many nodes
lie below each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as Choice
from typing import TypeAlias

Kind: TypeAlias = Choice["condition", "number", "text", "any"]
"""What a node can be, as far as the text says; an identifier can be anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """What all nodes have."""

    column: int
    depth: int = 1

    @property
    def kind(self) -> Kind:
        return "condition"


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant(Node):
    """A literal: a text, an exact number (int, in the range of a Java long), an approximate one (float), TRUE or FALSE."""

    value: bool | int | float | str

    @property
    def kind(self) -> Kind:
        if isinstance(self.value, str):
            return "text"
        return "condition" if isinstance(self.value, bool) else "number"


@dataclass(frozen=True, kw_only=True, slots=True)
class Identifier(Node):
    """A property or a header field."""

    name: str

    @property
    def kind(self) -> Kind:
        return "any"


@dataclass(frozen=True, kw_only=True, slots=True)
class Signed(Node):
    """`-operand`, or `+operand`, which is the operand where that is a number."""

    negative: bool
    operand: Node

    @property
    def kind(self) -> Kind:
        return "number"


@dataclass(frozen=True, kw_only=True, slots=True)
class Arithmetic(Node):
    """`first`, then one operator (`+`, `-`, `*` or `/`) and operand after the other, from left to right."""

    first: Node
    rest: tuple[tuple[str, Node], ...]

    @property
    def kind(self) -> Kind:
        return "number"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison(Node):
    """`left operator right`, the operator being `=`, `<>`, `<`, `<=`, `>` or `>=`."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Between(Node):
    """`operand [NOT] BETWEEN low AND high`."""

    operand: Node
    low: Node
    high: Node
    negated: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class OneOf(Node):
    """`identifier [NOT] IN ('a', 'b')`."""

    identifier: Identifier
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Like(Node):
    """`identifier [NOT] LIKE 'pattern' [ESCAPE 'c']`."""

    identifier: Identifier
    pattern: str
    escape: str | None
    negated: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class IsNull(Node):
    """`identifier IS [NOT] NULL`."""

    identifier: Identifier
    negated: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Not(Node):
    """`NOT operand`."""

    operand: Node


@dataclass(frozen=True, kw_only=True, slots=True)
class And(Node):
    """All of them."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Or(Node):
    """Any of them."""

    operands: tuple[Node, ...]
