"""What a journal proves, offline: each id run twice, acknowledged without a record, or recorded and never acknowledged.

Pure: it believes lines only, in the order of their times, and a process's own in the order written. What it cannot tell it says: a
process that was killed may have lost the lines of its last moment. Source: rules TR-37, TR-39; docs/reference/events.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from jmsclient.exporters.journal import CLOSED, DROPPED, OPENED

LAST_MOMENT = 1.0
"""Seconds before the end of a process that was killed, whose lines may be missing."""
Line = dict[str, Any]
RUN_TWICE = "run twice"
UNRECORDED = "acknowledged without a record"
UNACKNOWLEDGED = "recorded and never acknowledged"
INCOMPLETE = "lines were dropped"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that must not be. `certain` False: the lines that would tell may be among those that a kill lost."""

    kind: str
    trigger: str | None
    id: str | None
    text: str
    certain: bool = True


@dataclass(slots=True)
class _Id:
    """What was seen of one id of one trigger."""

    running: Line | None = None  # begun, and not known to have ended
    claimed: Line | None = None
    completed: Line | None = None
    recorded: bool = False
    unacknowledged: Line | None = None


@dataclass(slots=True)
class Report:
    """What `check` found. `runs` are processes, `cut` those that were killed."""

    lines: int = 0
    unreadable: int = 0
    ids: int = 0
    runs: int = 0
    cut: int = 0
    unfinished: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not any(one.certain for one in self.findings)


class Check:
    """Feed it files with `read`, then ask `report`. `history_ttl`: seconds after which an id may be New again."""

    def __init__(self, *, history_ttl: float = 86400.0) -> None:
        self._history_ttl = history_ttl
        self._parts: dict[str, list[list[Line]]] = {}  # by run: what each file has of it
        self._report = Report()
        self._latest: dict[str, float] = {}  # by run
        self._closed: set[str] = set()

    def read(self, lines: Iterable[str]) -> int:
        """Those of one file. Returns how many of them are a journal's."""
        here: dict[str, list[Line]] = {}
        for text in lines:
            if not text.strip():
                continue
            self._report.lines += 1
            try:
                line = json.loads(text)
                run, line["time"] = str(line["run"]), float(line["time"])
                datetime.fromtimestamp(line["time"], UTC)
            except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
                self._report.unreadable += 1
                continue
            if line.get("event") == CLOSED:
                self._closed.add(run)
            here.setdefault(run, []).append(line)
        for run, part in here.items():
            self._parts.setdefault(run, []).append(part)
        return sum(map(len, here.values()))

    def _in_order(self) -> list[tuple[float, int, Line]]:
        """A process's own lines as they were written, whatever its clock did meanwhile; its files by their beginnings, for a shell
        names those that were rotated last."""
        ordered: list[tuple[float, int, Line]] = []
        for run, parts in self._parts.items():
            latest = -math.inf
            for part in sorted(parts, key=lambda one: one[0]["time"]):
                for line in part:
                    latest = max(latest, line["time"])
                    ordered.append((latest, len(ordered), line))
            self._latest[run] = latest
        return sorted(ordered, key=lambda one: one[:2])

    def report(self) -> Report:
        report = self._report
        ids: dict[tuple[str, str], _Id] = {}
        for when, _, line in self._in_order():
            self._look(ids, when, line)
        report.ids = len(ids)
        report.runs = len(self._latest)
        report.cut = len(self._latest.keys() - self._closed)
        for (trigger, id_), seen in ids.items():
            report.unfinished += seen.running is not None
            if seen.unacknowledged is not None:
                line = seen.unacknowledged
                certain = line["run"] in self._closed or self._latest[line["run"]] - line["time"] > LAST_MOMENT
                self._find(UNACKNOWLEDGED, trigger, id_, f"completed {_where(line)}", certain=certain)
        return report

    def _look(self, ids: dict[tuple[str, str], _Id], when: float, line: Line) -> None:
        name, trigger, id_ = line.get("event"), line.get("trigger"), line.get("id")
        if name == DROPPED:
            self._find(INCOMPLETE, None, None, f"{line.get('count')} {_where(line)}: what follows may be missing")
        if trigger is None or id_ is None or name in (OPENED, CLOSED):
            return
        seen = ids.setdefault((str(trigger), str(id_)), _Id())
        match name:
            case "claimed":
                seen.claimed = line
            case "new" if line.get("claimed"):
                self._new(seen, when, line)
            case "completed" if line.get("recorded"):
                seen.running, seen.completed, seen.recorded, seen.unacknowledged = None, line, True, line
            case "completed" | "parked":
                seen.running, seen.recorded = None, True
            case "released" | "given_back" if seen.running is not None and seen.running["run"] == line["run"]:
                seen.running = None
            case "duplicate" | "in_doubt" | "history_unavailable":
                seen.recorded = True
            case "acknowledged":
                self._acknowledged(seen, line)

    def _new(self, seen: _Id, when: float, line: Line) -> None:
        """A run begins. Over an entry that says so (`retrying`, abandoned `processing`, decided `in_doubt`) it may begin again."""
        claim, seen.claimed = seen.claimed, None
        again = claim is not None and claim.get("over") is not None
        before = seen.completed or (None if again else seen.running)
        if before is not None and when - before["time"] < self._history_ttl:
            how = "after it was completed" if seen.completed is not None else "although a first run has no known end"
            lost = ", the history had lost it" if line.get("history_lost") else ""
            self._find(RUN_TWICE, line["trigger"], line["id"], f"{how}{lost}: first {_where(before)}, again {_where(line)}")
        seen.running, seen.completed, seen.recorded = line, None, False

    def _acknowledged(self, seen: _Id, line: Line) -> None:
        if not seen.recorded:
            self._find(UNRECORDED, line["trigger"], line["id"], _where(line))
        seen.unacknowledged = None

    def _find(self, kind: str, trigger: str | None, id_: str | None, text: str, *, certain: bool = True) -> None:
        self._report.findings.append(Finding(kind=kind, trigger=trigger, id=id_, text=text, certain=certain))


def _where(line: Line) -> str:
    when = datetime.fromtimestamp(line["time"], UTC).isoformat(timespec="milliseconds")
    return f"at {when} in {line['run']}"
