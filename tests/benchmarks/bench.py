"""`make bench`: how fast this is, as ratios against something measured in the same breath.

Each ratio is the median of interleaved pairs (bench_pairs.py). Prints a table and writes `bench.jsonl`, a line a ratio: name,
ratio, target, better, and the figures behind it. docs/explanation/performance.md says how to read it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import bench_amqp
import bench_artemis
import bench_artemis_open
import bench_durable
import bench_embedded
import bench_selector
import bench_trigger
import bench_waiting
from bench_pairs import PAIRS, QUICK, LeftOut, Ratio, Size, measure
from rich.console import Console
from rich.table import Table

RATIOS = (
    *bench_embedded.RATIOS,
    *bench_durable.RATIOS,
    *bench_selector.RATIOS,
    *bench_trigger.RATIOS,
    *bench_waiting.RATIOS,
    *bench_amqp.RATIOS,
    *bench_artemis.RATIOS,
    *bench_artemis_open.RATIOS,
)


def table(lines: list[dict[str, Any]]) -> Table:
    """The lines for people."""
    shown = Table(title="medians of interleaved pairs")
    shown.add_column("ratio", min_width=56)
    for heading in ("median", "low", "high", "target", ""):
        shown.add_column(heading, justify="right")
    for line in lines:
        target, sign = line["target"], "≥" if line["better"] == "higher" else "≤"
        shown.add_row(
            line["name"],
            f"{line['ratio']:.2f}",
            f"{line['low']:.2f}",
            f"{line['high']:.2f}",
            "" if target is None else f"{sign} {target:g}",
            "" if target is None else "reached" if line["passed"] else "missed",
        )
    return shown


def chosen(only: list[str], without: list[str]) -> list[Ratio]:
    """Those whose name has one of the words of `only` in it, all where none is given; and none of `without`."""
    wanted = [ratio for ratio in RATIOS if not only or any(word in ratio.name for word in only)]
    return [ratio for ratio in wanted if not any(word in ratio.name for word in without)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Print ratios and write them to bench.jsonl.")
    parser.add_argument("--only", action="append", default=[], metavar="WORDS", help="ratios with this in their name; repeatable")
    parser.add_argument("--without", action="append", default=[], metavar="WORDS", help="none with this in its name; repeatable")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="interleaved pairs a ratio, at most")
    parser.add_argument("--messages", type=int, help="messages a measurement")
    parser.add_argument("--quick", action="store_true", help="one small pair each, to see that it runs")
    parser.add_argument("--output", type=Path, default=Path("bench.jsonl"))
    given = parser.parse_args(arguments)
    ratios = chosen(given.only, given.without)
    if not ratios:
        parser.error(f"no ratio has {' or '.join(given.only)} in its name")
    size = QUICK if given.quick else Size() if given.messages is None else Size(messages=given.messages)
    progress = Console(stderr=True, width=120)
    lines = []
    for ratio in ratios:
        progress.print(ratio.name, style="dim")
        try:
            lines.append(measure(ratio, size, 1 if given.quick else given.pairs))
        except LeftOut as reason:
            progress.print(f"left out: {ratio.name}: {reason}")
    given.output.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    Console(width=120).print(table(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
