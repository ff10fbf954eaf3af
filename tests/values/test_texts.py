"""Texts that are sent at once (`Texts`) are the messages that would be made one by one (Jakarta Messaging 3.1 section 3.4)."""

from __future__ import annotations

from typing import Any

import pytest

from jmsclient.destination import Queue
from jmsclient.jms.outgoing import MessageIds, Sending, batch, contents
from jmsclient.message import Message, PlainContent, Texts

BODIES: list[Any] = ["a", "", "\u00e4\u20ac", "b" * 300, "\ud800"]
HEADERS = (
    *("kind", "size", "message_id", "destination", "persistent", "priority", "timestamp", "expiration", "delivery_time"),
    *("correlation_id", "reply_to", "type", "sequence"),
)


def both(bodies: list[Any], **how: Any) -> tuple[Any, list[PlainContent]]:
    """Made by `batch`, and one by one, with the same ids."""
    sending = Sending(Queue("q"), **how)
    first, second = MessageIds(), MessageIds()
    second.prefix = first.prefix
    return batch(list(bodies), sending, first, 5.0), contents(bodies, sending, second, 5.0)


def shown(content: PlainContent) -> list[Any]:
    return [content.body(), dict(content.properties()), *(content.header(name) for name in HEADERS)]


@pytest.mark.parametrize("how", [{}, {"persistent": False, "priority": 9}], ids=["usual", "set"])
def test_texts_are_what_would_be_made_one_by_one(how: dict[str, Any]) -> None:
    made, alone = both(BODIES, **how)
    assert isinstance(made, Texts)
    assert [shown(one) for one in made] == [shown(one) for one in alone]
    assert made.ids == [one.message_id for one in alone]
    assert made.size == sum(one.size for one in alone)


def test_whoever_looks_finds_the_same_ones_each_time() -> None:
    made, _ = both(BODIES)
    assert made.untouched
    seen = list(made)
    assert not made.untouched
    assert all(one is other for one, other in zip(seen, made, strict=True))
    assert (made[0] is seen[0], made[-2:][1] is seen[-1], len(made)) == (True, True, len(BODIES))


def test_whoever_takes_has_each_once_and_numbered() -> None:
    made, alone = both(BODIES)
    made.first = 7
    taken = [*made.take(2), *made.take(0), *made.take(2), *made.take(9)]
    assert [one.sequence for one in taken] == [7, 8, 9, 10, 11]
    assert [one.body() for one in taken] == [one.body() for one in alone]
    assert (made.left, made.take(1), made.untouched) == (0, [], False)
    assert set(made.bodies) == {""}


@pytest.mark.parametrize(
    ("bodies", "how"),
    [
        (["a", b"b"], {}),
        (["a", Message("b")], {}),
        ([type("Text", (str,), {})("a")], {}),
        (["a"], {"time_to_live": 5.0}),
        (["a"], {"delivery_delay": 5.0}),
        ([], {}),
    ],
    ids=["bytes", "message", "subclass", "expires", "delayed", "none"],
)
def test_others_are_made_at_once(bodies: list[Any], how: dict[str, Any]) -> None:
    made, alone = both(bodies, **how)
    assert isinstance(made, list)
    assert [shown(one) for one in made] == [shown(one) for one in alone]
