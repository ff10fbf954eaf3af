"""Owns the way from text to nodes: the only module that knows `lark`, imported when the first selector is parsed.

Source: Jakarta Messaging 3.1 section 3.8.1.1; the grammar is selector.lark. Safe from any thread: the parser holds no state.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from jmsclient.errors import InvalidSelectorError
from jmsclient.selector.building import Builder, FaultError
from jmsclient.selector.nodes import Node

if TYPE_CHECKING:
    from lark import Lark, Token, UnexpectedToken

_KEYWORDS = {
    "AND": "_AND",
    "BETWEEN": "_BETWEEN",
    "ESCAPE": "_ESCAPE",
    "FALSE": "FALSE",
    "IN": "_IN",
    "IS": "_IS",
    "LIKE": "_LIKE",
    "NOT": "NOT",
    "NULL": "_NULL",
    "OR": "_OR",
    "TRUE": "TRUE",
}
_EXPECTED = {  # in this order; a phrase stands once
    "IDENTIFIER": "a value",
    "TEXT": "a text in single quotes",
    "COMPARISON": "a comparison",
    "PLUS": "an arithmetic operator",
    "_OPEN": "(",
    "_BETWEEN": "BETWEEN",
    "_IN": "IN",
    "_LIKE": "LIKE",
    "_ESCAPE": "ESCAPE",
    "_IS": "IS",
    "NOT": "NOT",
    "_NULL": "NULL",
    "_AND": "AND",
    "_OR": "OR",
    "_COMMA": ",",
    "_CLOSE": ")",
    "$END": "the end of the selector",
}
_PART_OF_A_VALUE = {"TEXT", "_OPEN", "PLUS"}
_HINTS = {
    '"': "texts stand in single quotes",
    "!": "unequal is <>",
    "&": "the word is AND",
    "|": "the word is OR",
    ":": "there are no parameters in selectors",
    "?": "there are no parameters in selectors",
    "=": "equal is a single =",
}
_AROUND = 30
"""Characters shown on each side of a fault."""


def parse(text: str) -> Node:
    """The nodes of a selector that is not blank. Raises InvalidSelectorError, which says where and what was expected."""
    parser, unexpected = _parser()
    try:
        return parser.parse(text)  # type: ignore[return-value]  # the builder's start makes it a node
    except unexpected as error:
        fault = _unexpected(error, text)
    except FaultError as found:
        fault = found
    raise InvalidSelectorError(_pointed(text, fault))


@functools.cache
def _parser() -> tuple[Lark, type[UnexpectedToken]]:
    from importlib.resources import files

    from lark import Lark, UnexpectedToken

    grammar = files(__package__).joinpath("selector.lark").read_text(encoding="utf-8")
    builder: Any = Builder()  # called for each rule at once: no tree is made, and no library class inherited
    return Lark(grammar, parser="lalr", lexer="basic", transformer=builder, postlex=_Words()), UnexpectedToken


class _Words:
    """Between lexer and parser: an identifier that is a keyword in any case becomes that keyword."""

    always_accept = ("UNCLOSED", "MALFORMED", "OTHER")
    """Kept although no rule uses them: the parser refuses them, and knows what it expected instead."""

    def process(self, stream: Iterator[Token]) -> Iterable[Token]:
        for token in stream:
            if token.type == "IDENTIFIER" and token.isascii():
                keyword = _KEYWORDS.get(token.upper())
                if keyword is not None:
                    token = token.update(type=keyword)
            yield token


def _unexpected(error: UnexpectedToken, text: str) -> FaultError:
    token = error.token
    wanted = error.accepts or error.expected
    if token.type == "$END":
        found, column = "the end of the selector", len(text) + 1
    else:
        found, column = _found(token), (token.start_pos or 0) + 1
    return FaultError(f"found {found}, expected {_listed(wanted)}", column)


def _found(token: Token) -> str:
    word = _shortened(token)
    if token.type == "UNCLOSED":
        return f"the text {word} without its closing quote"
    if token.type == "MALFORMED":
        return f"{word}, which is neither a number nor part of a name"
    hint = _HINTS.get(token)
    return f"{word} ({hint})" if hint else word


def _listed(wanted: Iterable[str]) -> str:
    names = set(wanted)
    if "IDENTIFIER" in names:
        names -= _PART_OF_A_VALUE
    phrases = [phrase for name, phrase in _EXPECTED.items() if name in names]
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} or {phrases[-1]}"


def _pointed(text: str, fault: FaultError) -> str:
    """One line: the column, the text around it with an arrow where it is wrong, and what is wrong."""
    at = fault.column - 1
    before, after = text[max(at - _AROUND, 0) : at], text[at : at + _AROUND]
    left, right = "…" if at > _AROUND else "", "…" if len(text) > at + _AROUND else ""
    around = f"{left}{_printable(before).rstrip()} >>> {_printable(after)}{right}".strip()
    return f"selector, column {fault.column}: {fault.text}; here: {around}"


def _shortened(word: str) -> str:
    return repr(str(word) if len(word) <= _AROUND else f"{word[:_AROUND]}…")


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
