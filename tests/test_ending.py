"""`ending.py` and `processes.py`: whatever a test does, it ends, is the only one that fails, and the others run once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent

CONFTEST = """
import pytest
import tests.ending

tests.ending.GRACE = 1.0
"""

DIES = """
import os

def test_before(): pass
def test_dies(): os._exit(7)
def test_behind(): pass
"""

NEVER_RUNS_PYTHON_AGAIN = """
import collections, itertools, pytest

def test_before(): pass
@pytest.mark.timeout(2)
def test_hangs(): collections.deque(itertools.count(), maxlen=0)
"""

LOSES_THE_SIGNAL = """
import signal, threading, pytest

@pytest.mark.timeout(2)
def test_hangs():
    signal.setitimer(signal.ITIMER_REAL, 0)
    threading.Event().wait()

def test_behind(): pass
"""

BY_A_THREAD = """
import threading, pytest

@pytest.mark.timeout(1, method="thread")
def test_hangs(): threading.Event().wait()
def test_behind(): pass
"""

HANGS_WHEN_IT_HAS_FAILED = """
import threading, pytest

@pytest.fixture
def room():
    yield
    threading.Event().wait()

@pytest.mark.timeout(5)
def test_fails_and_its_fixture_hangs(room): assert False
def test_behind(): pass
"""

LEAVES_A_THREAD = """
import threading

def test_leaves_a_thread(): threading.Thread(target=threading.Event().wait, name="left").start()
"""

ALONE = """
def test_alone(): pass
"""


def run(folder: Path, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-p", "tests.ending", "-p", "no:randomly", "--timeout", "60", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        environment.pop(name, None)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout + done.stderr


def outcomes(report: Path) -> list[tuple[str, bool]]:
    """Each test that ran, and whether it was fine; a failure and what its fixture did are one."""
    cases = ElementTree.parse(report).findall(".//testcase")
    fine: dict[str, list[bool]] = {}
    for case in cases:
        name = str(case.get("name")).rsplit("::", 1)[-1]
        fine.setdefault(name, []).append(case.find("failure") is None and case.find("error") is None)
    return sorted((name, all(each)) for name, each in fine.items())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    return tmp_path


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)


def test_a_process_that_dies_is_one_failed_test_and_the_others_run(folder: Path) -> None:
    write(folder, dies=DIES, alone=ALONE, other="def test_other(): pass\ndef test_another(): pass\n")

    code, said = run(folder, "-p", "tests.processes", "-n", "2", "--junitxml=report.xml")

    assert code == 1, said
    assert "1 failed, 5 passed" in said, said
    expected = [
        ("test_alone", True),
        ("test_another", True),
        ("test_before", True),
        ("test_behind", True),
        ("test_dies", False),
        ("test_other", True),
    ]
    assert outcomes(folder / "report.xml") == expected, said


def test_what_died_is_run_again_as_what_failed(folder: Path) -> None:
    write(folder, dies=DIES, alone=ALONE)
    run(folder, "-p", "tests.processes", "-n", "2")
    write(folder, dies=DIES.replace("os._exit(7)", "pass"))

    code, said = run(folder, "--last-failed", "--last-failed-no-failures=none", "--junitxml=report.xml")

    assert code == 0, said
    assert outcomes(folder / "report.xml") == [("test_dies", True)], said


def test_a_process_that_dies_when_there_is_no_other(folder: Path) -> None:
    """Its tests are given to the one that comes in its place, which starts with a single test."""
    write(
        folder,
        dies="import os\ndef test_dies(): os._exit(7)\n",
        other="def test_other(): pass\n",
        alone=ALONE,
        last="def test_last(): pass\n",
    )

    code, said = run(folder, "-p", "tests.processes", "-n", "1", "--junitxml=report.xml")

    assert code == 1, said
    assert outcomes(folder / "report.xml") == [
        ("test_alone", True),
        ("test_dies", False),
        ("test_last", True),
        ("test_other", True),
    ], said


@pytest.mark.parametrize(
    ("program", "what"),
    [(NEVER_RUNS_PYTHON_AGAIN, "test_hangs"), (LOSES_THE_SIGNAL, "test_hangs"), (BY_A_THREAD, "test_hangs")],
    ids=["a call of C", "a lost signal", "a limit by a thread"],
)
def test_what_hangs_is_ended_with_its_stack(folder: Path, program: str, what: str) -> None:
    write(folder, hangs=program, alone=ALONE)

    code, said = run(folder, "-p", "tests.processes", "-n", "2", "--junitxml=report.xml")

    assert code == 1, said
    assert "Timeout (0:00:0" in said, said
    assert f"in {what}" in said, "no stack"
    found = outcomes(folder / "report.xml")
    assert [name for name, fine in found if not fine] == [what], said
    assert len(found) == 1 + program.count("def test_"), said


def test_a_fixture_that_hangs_after_a_failure_has_a_limit(folder: Path) -> None:
    write(folder, fails=HANGS_WHEN_IT_HAS_FAILED)

    code, said = run(folder, "--junitxml=report.xml")

    assert code == 1, said
    assert "Timeout (>5.0s)" in said, said
    assert outcomes(folder / "report.xml") == [("test_behind", True), ("test_fails_and_its_fixture_hangs", False)], said


def test_a_process_that_does_not_end_is_ended(folder: Path) -> None:
    write(folder, leaves=LEAVES_A_THREAD)

    code, said = run(folder)

    assert "1 passed" in said
    assert code == 1, said
    assert "in _shutdown" in said, "no stack"
