"""The benchmark itself: it runs, and writes what it says it writes. Its figures are not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).with_name("bench.py")


def test_bench_prints_a_table_and_writes_a_line_a_ratio(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(BENCH), "--pairs", "1", "--messages", "200"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "bench.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(lines) >= 3
    for line in lines:
        assert line["ratio"] > 0
        assert line["target"] > 0
        assert line["better"] in ("higher", "lower")
        assert len(line["pairs"]) == 1
        assert line["name"].split()[0] in done.stdout
