"""A session checks a selector when a consumer is created, whatever the provider can do (C09; JM 3.8.1)."""

from __future__ import annotations

import pytest

from jmsclient import Connection
from jmsclient.errors import InvalidSelectorError, UnsupportedFeatureError

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
    "s LIKE 'a' ESCAPE 'ab'",
    "s LIKE 'a' ESCAPE ''",
]


@pytest.mark.parametrize("text", BROKEN)
def test_c09_a_broken_selector_is_refused_at_creation(connection: Connection, text: str) -> None:
    session = connection.create_session()
    with pytest.raises(InvalidSelectorError, match=r"^selector, column \d+: "):
        session.create_consumer("Q", text)
    assert session.create_producer("Q").send("still working") is not None


def test_c09_a_comment_is_none(connection: Connection) -> None:
    session = connection.create_session()
    if not session.capabilities.selectors:
        with pytest.raises(UnsupportedFeatureError, match="selector"):
            session.create_consumer("Q", "load = 70 -- note")
        return
    session.create_producer("Q").send("x", properties={"load": 70})
    assert session.create_consumer("Q", "load = 70 -- note").receive_no_wait() is None
    assert session.create_consumer("Q", "load = 70").receive(5) is not None


@pytest.mark.parametrize("text", [None, "", "  "])
def test_c09_nothing_is_no_selector(connection: Connection, text: str | None) -> None:
    session = connection.create_session()
    session.create_producer("Q").send("x")
    consumer = session.create_consumer("Q", text)
    assert consumer.selector is None
    assert consumer.receive(5) is not None
