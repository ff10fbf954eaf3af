"""Owns the compiled selector: a text that was checked once, and may be asked of any message.

Source: Jakarta Messaging 3.1 section 3.8.1: a message is selected where its selector is true, not where it is false or unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields

from jmsclient.errors import InvalidSelectorError
from jmsclient.message import Content
from jmsclient.selector.evaluation import Reader, condition
from jmsclient.selector.headers import DELIVERY_COUNT, HEADERS, reader
from jmsclient.selector.nodes import Identifier, Node
from jmsclient.selector.parsing import parse


class Selector:
    """A selector, ready to be asked: `selector(content)`. Immutable, so safe from any thread.

    `text` is what it was made from, `identifiers` the properties and header fields that it names.
    """

    __slots__ = ("_names_headers", "_test", "identifiers", "text")

    def __init__(self, text: str, node: Node) -> None:
        self.text = text
        self.identifiers = frozenset(_identifiers(node))
        self._test: Callable[[Reader], bool | None] = condition(node)
        self._names_headers = not self.identifiers.isdisjoint((*HEADERS, DELIVERY_COUNT))

    def __call__(self, content: Content, delivery_count: int | None = None) -> bool:
        """Whether it selects this message. `delivery_count` is what JMSXDeliveryCount means here (1 at the first delivery);
        None: that of the properties, if they have one. Raises only what reading the properties raises."""
        read: Reader = content.properties().get
        if self._names_headers:
            read = reader(content, read, delivery_count)
        return self._test(read) is True

    def __repr__(self) -> str:
        return f"<Selector {self.text!r}>"


def compile_selector(text: str | None) -> Selector | None:
    """Check a selector and compile it. None, an empty and a blank text are no selector: the answer is None.

    Raises InvalidSelectorError, whose one line has the column, what was found and what was expected. Safe from any thread.
    """
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidSelectorError(f"selector {text!r} is a {type(text).__name__}: expected a text or None")
    return Selector(text, parse(text)) if text.strip() else None


def _identifiers(node: Node) -> Iterator[str]:
    """The names that a node and all below it use."""
    waiting: list[object] = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Identifier):
            yield one.name
        elif isinstance(one, Node):
            waiting += [getattr(one, field.name) for field in fields(one)]
        elif isinstance(one, tuple):
            waiting += one
