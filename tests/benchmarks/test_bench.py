"""The benchmark itself: it runs, and writes what it says it writes. Its figures are not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).with_name("bench.py")


def run(folder: Path, *arguments: str) -> tuple[str, list[dict[str, Any]]]:
    command = [sys.executable, "-W", "error", str(BENCH), "--quick", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (folder / "bench.jsonl").read_text(encoding="utf-8").splitlines()
    return done.stdout, [json.loads(line) for line in lines]


def test_bench_prints_a_table_and_writes_a_line_a_ratio(tmp_path: Path) -> None:
    shown, lines = run(tmp_path, "--without", "Artemis")  # which starts two virtual machines, for figures that say nothing
    assert len(lines) >= 15
    for line in lines:
        assert line["ratio"] > 0
        assert line["target"] is None or line["target"] > 0
        assert line["better"] in ("higher", "lower")
        assert len(line["pairs"]) == 1
        assert line["name"].split()[0] in shown


def test_bench_measures_what_is_asked_for(tmp_path: Path) -> None:
    _, lines = run(tmp_path, "--only", "selector", "--only", "read ahead")
    assert [line["name"].split(":")[0] for line in lines] == ["embedded", "selector"]
