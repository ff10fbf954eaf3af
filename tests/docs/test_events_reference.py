"""docs/reference/events.md names every event that triggers, histories, workers and exporters emit."""

from __future__ import annotations

import ast
import re

from .conftest import ROOT

PAGE = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
DOCUMENTED = set(re.findall(r"^\| `([a-z_]+)`", PAGE, re.MULTILINE))
ROOMS = ("trigger", "history", "worker", "exporters")
CALLS = {"emit": 1, "tell": 0, "_tell": 0}


def emitted() -> dict[str, str]:
    """Names of events by where they are told, as far as they are written out; constants count by their value."""
    found: dict[str, str] = {}
    for path in [path for room in ROOMS for path in sorted((ROOT / "jmsclient" / room).rglob("*.py"))]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            if called not in CALLS or len(node.args) <= CALLS[called] + 1:
                continue
            argument = node.args[CALLS[called]]
            name = argument.value if isinstance(argument, ast.Constant) else constants.get(getattr(argument, "id", ""))
            if isinstance(name, str):
                found.setdefault(name, f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_every_event_is_on_the_page() -> None:
    assert {name: where for name, where in emitted().items() if name not in DOCUMENTED} == {}


def test_the_search_finds_events() -> None:
    assert {"new", "completed", "history_evicts", "journal_failed", "history_unavailable", "started"} <= emitted().keys()
