"""The benchmark itself: it runs, and writes what it says it writes. Its figures are not judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).with_name("bench.py")


def run(folder: Path, *arguments: str, patience: float = 60) -> tuple[str, list[dict[str, Any]]]:
    command = [sys.executable, "-W", "error", str(BENCH), "--quick", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=patience, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (folder / "bench.jsonl").read_text(encoding="utf-8").splitlines()
    return done.stdout + done.stderr, [json.loads(line) for line in lines]


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


@pytest.mark.real
@pytest.mark.timeout(300)  # the first run fetches the Java clients
def test_bench_starts_an_artemis_and_a_java_client(tmp_path: Path) -> None:
    pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
    shown, lines = run(tmp_path, "--only", "kept, to qpid-jms", "--without", "1024", "--without", "10240", patience=280)
    if "left out" in shown and os.environ.get("JMSCLIENT_REQUIRE_REAL") != "1":
        pytest.skip(shown)
    assert [line["name"] for line in lines] == ["Artemis 100 B, kept, to qpid-jms", "Artemis 100 B, kept, to qpid-jms, CPU"]
    assert all(line["ratio"] > 0 for line in lines)


def test_bench_leaves_out_what_needs_java_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
    monkeypatch.setenv("PATH", str(tmp_path))
    shown, lines = run(tmp_path, "--only", "Artemis 100 B, taken")
    assert "left out: Artemis 100 B, taken, to kept: Artemis cannot be started here: java is not installed" in " ".join(
        shown.split()
    )
    assert lines == []
