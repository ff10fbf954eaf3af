"""IF-40, hold no lock: no loop runs in the frame that holds one.

CPython 3.12 and 3.13 leave some backward jumps of a loop out of the handlers of the `with` around it. An exception of a signal
handler that strikes at such a jump passes the `with` by, and its lock is held for ever. One call deeper it comes out at the call,
which is covered. Only rooms in which no main thread ever is may do otherwise.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_ON_MAIN = {
    "backends/jmsclient_embedded/attach/listening.py",  # the thread of the socket
    "backends/jmsclient_embedded/hand_over.py",  # `forget` is the store's thread's
    "backends/jmsclient_embedded/steps.py",  # the broker's thread, or threads that are not the main one
    "jmsclient/history/sql_watchdog.py",  # a thread of its own
}
LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
FRAMES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp)
SOURCES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("jmsclient", "backends")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "testing" not in path.parts
]


def in_frame(node: ast.AST) -> Iterator[ast.AST]:
    """This and what is below it, but for what runs in a frame of its own."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FRAMES):
            yield from in_frame(child)


def loops_under_locks(source: str) -> list[int]:
    """The lines of loops in the frame of a `with` whose subject is called a lock, or is one of ours by another name."""
    found = []
    for block in ast.walk(ast.parse(source)):
        if isinstance(block, ast.With):
            subjects = [ast.unparse(item.context_expr) for item in block.items]
            if any(word in subject for subject in subjects for word in ("lock", "_flushing", "_turn", "_transaction()")):
                found += [node.lineno for line in block.body for node in in_frame(line) if isinstance(node, LOOPS)]
    return found


@pytest.mark.parametrize("path", [path for path in SOURCES if path not in NOT_ON_MAIN])
def test_if_40_no_loop_runs_in_the_frame_that_holds_a_lock(path: str) -> None:
    assert loops_under_locks((ROOT / path).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sorted(NOT_ON_MAIN))
def test_each_exception_is_needed(path: str) -> None:
    assert loops_under_locks((ROOT / path).read_text(encoding="utf-8"))


def test_the_check_bites() -> None:
    assert loops_under_locks("with self._lock:\n    while a:\n        b()") == [2]
    assert loops_under_locks("with self._lock:\n    c = [b for b in a if b]") == [2]
    assert loops_under_locks("with self._lock:\n    if a:\n        for b in a:\n            pass") == [3]
    assert loops_under_locks("with self._lock:\n    c = sum(b for b in a)\nfor b in a:\n    pass") == []
