"""The tutorial's own messages are what its resolver is asked about (TR-55)."""

from __future__ import annotations

import re
from typing import Any

from jmsclient import Message, ResolverRequest, Status

from .conftest import ROOT, blocks

TUTORIAL = ROOT / "docs" / "tutorial" / "first-worker.md"


def test_tr55_the_resolver_understands_the_orders_that_the_tutorial_sends() -> None:
    (block,) = [one for one in blocks(TUTORIAL) if "def is_order_booked" in one.text]
    module: dict[str, Any] = {}
    exec(block.text, module)
    sent = re.findall(r"jmsclient send orders '(.*?)'", TUTORIAL.read_text(encoding="utf-8"))
    assert len(sent) == 4

    def asked(body: str) -> Any:
        request = ResolverRequest(id="1", source="uuid", trigger="orders", message=Message(body), delivery_count=2, entry=None)
        return module["is_order_booked"](request)

    assert [asked(body) for body in sent] == [Status.DUPLICATE] * 3 + [Status.NEW]
