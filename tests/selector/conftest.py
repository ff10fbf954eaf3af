"""What the tests of selectors share: asking a selector about a message that is made on the spot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jmsclient.message import MessageKind, PlainContent
from jmsclient.selector import compile_selector

Selects = Callable[..., bool]


@pytest.fixture(scope="session")
def selects() -> Selects:
    """`selects(text, properties, **headers)`: whether the selector matches a message with these."""

    def ask(text: str, properties: dict[str, Any] | None = None, **headers: Any) -> bool:
        selector = compile_selector(text)
        assert selector is not None
        return selector(PlainContent(kind=MessageKind.TEXT, body="", properties=properties, **headers))

    return ask
