"""The numbered rules: each number stands for one rule, and what is cited exists."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from .conftest import ROOT

RULES = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
NUMBERS = re.findall(r"^\*\*((?:RA|TR|IF|DO)-\d+)\*\*", RULES, re.MULTILINE)
CITED = re.compile(r"\b((?:RA|TR|IF|DO)-\d+)\b")
SOURCES = [
    path
    for folder in ("jmsclient", "backends", "tests", "docs")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".md") and "_build" not in path.parts
]


def test_each_number_stands_for_one_rule() -> None:
    assert [number for number, times in Counter(NUMBERS).items() if times > 1] == []
    for prefix, last in (("RA", 27), ("TR", 67), ("IF", 40), ("DO", 3)):
        ours = sorted(int(number[3:]) for number in NUMBERS if number.startswith(prefix))
        assert ours[-1] >= last
        assert ours == list(range(ours[0], ours[-1] + 1)), "a number was dropped"


def test_each_rule_can_be_linked_to() -> None:
    for number in NUMBERS:
        assert f"({number.lower()})=\n\n**{number}**" in RULES


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in SOURCES])
def test_every_rule_that_is_cited_exists(path: Path) -> None:
    assert set(CITED.findall(path.read_text(encoding="utf-8"))) <= set(NUMBERS)
