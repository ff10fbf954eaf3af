"""IF-22: nothing in our code settles a delivery without saying with which outcome."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for folder in ("jmsclient", "backends") for path in (ROOT / folder).rglob("*.py")]
BY_DECISION = "self._desk"
"""A trigger's desk gathers arrivals with their outcomes; its `settle` hands those over and takes none."""


def without_an_outcome(source: str) -> list[str]:
    """The calls that settle and name fewer than two things: what, and with which outcome."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return [
        ast.unparse(call)
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "settle"
        and len(call.args) + len(call.keywords) < 2
        and ast.unparse(call.func.value) != BY_DECISION
    ]


def test_if22_every_settlement_names_its_outcome() -> None:
    found = {str(path.relative_to(ROOT)): calls for path in SOURCES if (calls := without_an_outcome(path.read_text("utf-8")))}
    assert found == {}


def test_if22_the_search_finds_what_it_looks_for() -> None:
    assert without_an_outcome("receiver.settle(arrivals)\ndelivery.settle()\nreceiver.settle(arrivals, ACCEPT)") == [
        "receiver.settle(arrivals)",
        "delivery.settle()",
    ]
