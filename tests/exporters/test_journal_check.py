"""What `jmsclient history check` finds in a journal, and what it does not take for a finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jmsclient.cli.main import main
from jmsclient.exporters.journal_check import INCOMPLETE, RUN_TWICE, UNACKNOWLEDGED, UNRECORDED, Check, Report

Line = dict[str, Any]


def story(*events: str | tuple[str, dict[str, Any]], run: str = "a", start: float = 1000.0, step: float = 0.1) -> list[Line]:
    """Lines of one id, in order; `run` is the process."""
    lines = []
    for number, event in enumerate(events):
        name, fields = (event, {}) if isinstance(event, str) else event
        lines.append(
            {"time": start + number * step, "run": run, "event": name, "trigger": "t", "id": "1", **FIELDS.get(name, {}), **fields}
        )
    return lines


FIELDS: dict[str, dict[str, Any]] = {"new": {"claimed": True}, "completed": {"recorded": True}, "given_back": {"started": True}}
CLOSED = {"trigger": None, "id": None}


def checked(*stories: list[Line], history_ttl: float = 86400.0, closed: bool = True) -> Report:
    check = Check(history_ttl=history_ttl)
    runs: dict[str, float] = {}
    for lines in stories:
        check.read(json.dumps(line) for line in lines)
        for line in lines:
            runs[line["run"]] = max(line["time"], runs.get(line["run"], 0.0))
    if closed:
        check.read(json.dumps({"time": when, "run": run, "event": "journal_closed"}) for run, when in runs.items())
    return check.report()


DONE = ("claimed", "new", "completed", "acknowledged")
ABANDONED = ("claimed", {"over": "processing"})
RETRIED = ("claimed", {"over": "retrying"})
DECIDED = ("claimed", {"over": "in_doubt"})

CLEAN = {
    "a first run": [story(*DONE)],
    "a duplicate": [story(*DONE, "duplicate", "acknowledged")],
    "a duplicate whose first run is in no journal": [story("duplicate", "acknowledged")],
    "a kill after the claim": [story("claimed", "new"), story("in_doubt", "parked", "acknowledged", run="b", start=2000.0)],
    "a kill before the acknowledge": [
        story("claimed", "new", "completed"),
        story("duplicate", "acknowledged", run="b", start=2000.0),
    ],
    "a retry in place": [story("claimed", "new", "released", "retrying", "completed", "acknowledged")],
    "a planned redelivery": [story("claimed", "new", "released", "given_back", RETRIED, "new", "completed", "acknowledged")],
    "a resolver that says new": [story("claimed", "new"), story("resolved", ABANDONED, *DONE[1:], run="b", start=2000.0)],
    "a decision": [
        story("claimed", "new"),
        story("in_doubt", "parked", "acknowledged", "decision", DECIDED, *DONE[1:], run="b", start=2000.0),
    ],
    "a taken over run whose first owner comes late": [
        story("claimed", "new"),
        story(ABANDONED, *DONE[1:], run="b", start=2000.0),
        story("lease_lost", "given_back", start=3000.0),
    ],
    "dead-lettered": [story("claimed", "new", "handler_failed", "released", ("completed", {"outcome": "failed"}), "acknowledged")],
    "an in doubt message that is acknowledged as the policy says": [story("in_doubt", "acknowledged")],
    "never claimed": [story(("new", {"claimed": False}), ("completed", {"recorded": False}), "acknowledged")] * 2,
    "the history was away": [
        story("history_unavailable", ("new", {"claimed": False}), ("completed", {"recorded": False}), "acknowledged")
    ],
    "over after history_ttl": [story(*DONE), story(*DONE, start=1000.0 + 90_000.0)],
    "two triggers": [story(*DONE), [{**line, "trigger": "u"} for line in story(*DONE)]],
}


@pytest.mark.parametrize("name", CLEAN)
def test_what_is_as_it_should_be(name: str) -> None:
    report = checked(*CLEAN[name])
    assert report.findings == []
    assert report.clean


FAULTS = {
    "run again after it was completed": ([story(*DONE), story(*DONE, start=2000.0)], RUN_TWICE, "after it was completed"),
    "run again by another": (
        [story(*DONE), story(*DONE, run="b", start=2000.0)],
        RUN_TWICE,
        "again at 1970-01-01T00:33:20.100+00:00 in b",
    ),
    "run again over nothing": ([story("claimed", "new"), story(*DONE, run="b", start=2000.0)], RUN_TWICE, "has no known end"),
    "lost by the history": (
        [story(*DONE), story("claimed", ("new", {"history_lost": True}), "completed", "acknowledged", start=2000.0)],
        RUN_TWICE,
        "the history had lost it",
    ),
    "taken over although completed": (
        [story(*DONE), story(ABANDONED, *DONE[1:], start=2000.0)],
        RUN_TWICE,
        "after it was completed",
    ),
    "acknowledged after a run that is not recorded": ([story("claimed", "new", "acknowledged")], UNRECORDED, "in a"),
    "acknowledged out of nothing": ([story("acknowledged")], UNRECORDED, "in a"),
    "acknowledged after a planned redelivery": (
        [story("claimed", "new", "released", "retrying", "acknowledged")],
        UNRECORDED,
        "in a",
    ),
    "never acknowledged": (
        [story("claimed", "new", "completed")],
        UNACKNOWLEDGED,
        "completed at 1970-01-01T00:16:40.200+00:00 in a",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_named(name: str) -> None:
    stories, kind, says = FAULTS[name]
    report = checked(*stories)
    (found,) = report.findings
    assert (found.kind, found.trigger, found.id, found.certain) == (kind, "t", "1", True)
    assert says in found.text
    assert not report.clean


def test_what_a_kill_may_have_lost_is_only_perhaps() -> None:
    cut = checked(story("claimed", "new", "completed"), closed=False)
    assert [(one.kind, one.certain) for one in cut.findings] == [(UNACKNOWLEDGED, False)]
    assert cut.clean
    assert (cut.runs, cut.cut) == (1, 1)
    earlier = checked(story("claimed", "new", "completed"), [{**story("new")[0], "id": "2", "time": 1003.0}], closed=False)
    assert [(one.kind, one.certain) for one in earlier.findings] == [(UNACKNOWLEDGED, True)]


def test_dropped_lines_are_a_finding_and_broken_ones_are_counted() -> None:
    dropped = {"time": 1.0, "run": "a", "event": "journal_dropped", "count": 7}
    check = Check()
    check.read([json.dumps(dropped), "{", "", "[]", '{"event": "new"}', "null"])
    report = check.report()
    assert [(one.kind, one.text) for one in report.findings] == [
        (INCOMPLETE, "7 at 1970-01-01T00:00:01.000+00:00 in a: what follows may be missing")
    ]
    assert (report.lines, report.unreadable) == (5, 4)


def test_lines_of_one_process_keep_their_order_when_its_clock_is_set_back() -> None:
    lines = story(*DONE)
    for number, line in enumerate(lines):
        line["time"] -= number * 60.0
    assert checked(lines).findings == []


def test_journals_are_read_together_in_the_order_of_time() -> None:
    killed, second = story("claimed", "new"), story("in_doubt", "parked", "acknowledged", run="b", start=2000.0)
    assert checked(second, killed).findings == []


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_rotated_files_of_one_process_may_be_given_in_any_order(order: tuple[int, ...]) -> None:
    """A shell gives `journal.jsonl*` with the newest first."""
    whole = [{**line, "time": line["time"] + number, "id": str(number)} for number in range(30) for line in story(*DONE)]
    rotated = [whole[:41], whole[41:83], whole[83:]]
    report = checked(*[rotated[one] for one in order])
    assert (report.findings, report.ids, report.runs) == ([], 30, 1)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"time": NaN, "run": "a"}',
        '{"time": 1e999, "run": "a"}',
        '{"time": 1e300, "run": "a"}',
        '{"time": "then", "run": "a"}',
        '{"time": {}, "run": "a"}',
    ],
    ids=lambda text: text[:25],
)
def test_what_is_no_line_of_a_journal_is_counted(text: str) -> None:
    check = Check()
    assert check.read([text, *map(json.dumps, story(*DONE))]) == 4
    assert check.report().unreadable == 1


def test_a_journal_that_is_named_twice_is_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in story(*DONE)))
    assert main(["history", "check", str(path), f"{tmp_path}/./journal.jsonl"]) == 0
    assert "1 journals, 4 lines" in capsys.readouterr().out


def test_the_command_says_what_it_found_and_exits_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text("".join(json.dumps(line) + "\n" for line in story(*DONE)))
    bad.write_text("".join(json.dumps({**line, "id": "2\x1b[2J"}) + "\n" for line in story("claimed", "new", "acknowledged")))
    assert main(["history", "check", str(good)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "clean"
    assert main(["history", "check", str(good), str(bad)]) == 1
    said = capsys.readouterr().out
    assert "acknowledged without a record: trigger t, id 2\\x1b[2J: at 1970" in said
    assert "2 journals, 7 lines, 1 processes (1 were killed or still run), 2 ids" in said
    assert said.splitlines()[-1] == "1 findings"
    assert main(["history", "check", "--format", "json", str(bad)]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["kind"] == UNRECORDED
    assert main(["history", "check", str(tmp_path / "none.jsonl")]) == 2
