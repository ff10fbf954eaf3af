"""Every Python block of README and docs runs, in the order of its document and in a folder of its own.

A block `python file=NAME` is saved under that name and imported; any other is run as a program. What a block `python prints` prints
is the next `text` block. Lines of shell blocks that call
`jmsclient` are checked against the command line's own parser.
"""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from jmsclient.cli.main import COMMANDS

from .conftest import ROOT, Block, blocks, documents

WITH_PYTHON = [path for path in documents() if any(block.language == "python" for block in blocks(path))]
SHELL_LINES = [
    pytest.param(line, id=f"{path.relative_to(ROOT)}: {line[:50]}")
    for path in documents()
    for block in blocks(path)
    if block.language == "shell"
    for line in block.text.splitlines()
    if line.startswith("jmsclient ")
]


def run(block: Block, folder: Path) -> str:
    if block.file is not None:
        (folder / block.file).write_text(block.text, encoding="utf-8")
        command = [sys.executable, "-W", "error", "-c", f"import {Path(block.file).stem}"]
    else:
        command = [sys.executable, "-W", "error", "-c", block.text]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{block.document.name}, line {block.line}:\n{block.text}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("document", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in WITH_PYTHON])
def test_python_blocks_run(document: Path, tmp_path: Path) -> None:
    found = blocks(document)
    for index, block in enumerate(found):
        if block.language == "python":
            printed = run(block, tmp_path)
            if "prints" in block.words:
                assert printed == next(one.text for one in found[index:] if one.language == "text")


@pytest.mark.parametrize("line", SHELL_LINES)
def test_shell_lines_are_understood_by_the_command_line(line: str) -> None:
    _, name, *arguments = shlex.split(line, comments=True)
    module, _, attribute = COMMANDS[name].partition(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    while isinstance(command, click.Group):
        command = command.commands[arguments.pop(0)]
    command.make_context(name, arguments)  # raises a UsageError for what the command does not take


def test_there_is_something_to_run() -> None:
    assert ROOT / "README.md" in WITH_PYTHON
    assert SHELL_LINES
