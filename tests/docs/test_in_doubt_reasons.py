"""The how-to about messages In Doubt explains every reason that the code may give, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
GIVEN = re.compile(
    r"""(?:InDoubt|AskResolver)\("(\w+)"                # decided so, or asked because of it and parked for want of an answer
      | _in_doubt\(\w+,\s"(\w+)"                        # as the room says
      | carry_out\(work,\s"(\w+)"
      | _park\(work,\s"(\w+)"
      | ^REASON\s=\s"(history_unavailable)"
    """,
    re.VERBOSE | re.MULTILINE,
)
ASKED_ONLY = {"count_unknown"}
"""Reasons to ask a resolver, and of none that is parked: without one, such a message is New."""
COUNTED_ONLY = {"parked"}
"""A further copy of one that is parked."""


def test_tr34_every_reason_is_explained() -> None:
    given: set[str] = set()
    for file in (ROOT / "jmsclient" / "trigger").glob("*.py"):
        for found in GIVEN.findall(file.read_text(encoding="utf-8")):
            given.update(name for name in found if name)
    given -= ASKED_ONLY | COUNTED_ONLY
    assert {"abandoned", "failed", "join_taken", "history_unavailable", "resolver_timed_out"} <= given
    text = (ROOT / "docs" / "howto" / "in-doubt.md").read_text(encoding="utf-8")
    table = text.split("| reason | means |")[1].split("\n## ")[0]
    explained = {
        name for line in table.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert explained == given
