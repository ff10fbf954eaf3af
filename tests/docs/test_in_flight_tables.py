"""The tables of the embedded broker, the page made from them, and the rules say the same."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest

from jmsclient_embedded.pauses import PAUSE_TABLE
from jmsclient_embedded.states import CURRENT, PENDING, TRANSITIONS, State

from .conftest import ROOT

RULES = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("in_flight_tables", ROOT / "docs" / "in_flight_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(head: str) -> list[list[str]]:
    """The rows of the table of the rules whose first column is called so."""
    lines = RULES[RULES.index(f"| {head} |") :].splitlines()[2:]
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_page_and_diagram_are_what_the_tables_make(tables: ModuleType) -> None:
    assert tables.PAGE.read_text(encoding="utf-8") == tables.page(), "run: python docs/in_flight_tables.py"
    assert tables.DIAGRAM.read_text(encoding="utf-8") == tables.diagram(), "run: python docs/in_flight_tables.py"


def test_if_7_the_states_are_those_of_the_rules() -> None:
    for name, current, pending, *_ in rows("State (name shown)"):
        for word in re.findall(r"`([a-z-]+)`", name):
            if word != "transaction":
                state = State(word)
                assert (state in CURRENT, state in PENDING) == (current == "1", pending == "1"), name


def test_each_transition_of_the_rules_between_two_states_is_in_the_table() -> None:
    numbers = {one.rule for one in TRANSITIONS}
    blocked = {"T1", "T2", "T3"}  # of a send that is no message yet
    assert {number for number, *_ in rows("#")} - blocked <= numbers


def test_the_pause_table_has_the_events_of_the_rules_in_their_order() -> None:
    def plain(event: str) -> str:
        return event.replace("*", "").removesuffix(" (error, expiry)")

    assert [plain(event) for event, *_ in rows("Event")] == [one.event for one in PAUSE_TABLE]


@pytest.mark.parametrize("effect", PAUSE_TABLE, ids=lambda one: one.event)
def test_the_pause_table_refuses_what_the_rules_refuse(effect: object) -> None:
    (row,) = [cells for event, *cells in rows("Event") if event.replace("*", "").removesuffix(" (error, expiry)") == effect.event]
    for cell, ours in zip(row, (effect.production, effect.insertion, effect.consumption), strict=True):
        refused = "error" in cell.lower() or cell == "refused"
        assert refused == (ours in ("DestinationPausedError", "refused")), f"{cell!r} is not {ours!r}"
        assert ("`paused`" in cell) == (ours == "paused"), f"{cell!r} is not {ours!r}"
