"""Where ratios to a real broker are measured: an Artemis of the bench's own, the Java client beside it, and the cores they run on.

Owns what is started, and ends it with the program. Must not know what is measured. Raises LeftOut where something is missing
that only these ratios need (Java, Maven, openssl).
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from bench_pairs import LeftOut

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))  # this is a program, not a test: nobody else has put it there

from brokers.artemis import Artemis  # noqa: E402
from brokers.launching import NotAvailable, compiled  # noqa: E402

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
CLIENT, BROKER = CORES[:1], CORES[1:2]
_JAVA = TESTS / "brokers" / "java"
_numbers = itertools.count(1)


@contextmanager
def on(cores: Sequence[int]) -> Iterator[None]:
    """What this thread does, and the threads and programs that it starts, on these cores; anywhere where there is no second one."""
    if len(CORES) < 2:
        yield
        return
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES)


class BenchArtemis(Artemis):
    """Nothing between a client and its messages: nobody logs in, no duplicates are looked for, and without `persistent` there is
    no disk (with it, a send is confirmed when the disk has it). A virtual machine with the usual compilers, and room for a queue
    that is full."""

    def __init__(self, folder: Path, *, persistent: bool) -> None:
        super().__init__(folder)
        self._persistent = persistent
        self.warm = False
        """Somebody has seen to it that its compiler has done its work."""

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"amqps://bench:bench@127.0.0.1:{self.tls_port}?ca_file={self.certificates / 'ca.pem'}"

    def prepare(self) -> None:
        super().prepare()
        file = self.folder / "etc" / "broker.xml"
        text = file.read_text(encoding="utf-8")
        for old, new in (
            ("<persistence-enabled>true<", f"<persistence-enabled>{str(self._persistent).lower()}<"),
            ("<journal-type>", "<security-enabled>false</security-enabled><journal-type>"),
            ("protocols=AMQP;", "protocols=AMQP,CORE;amqpDuplicateDetection=false;"),
            ("<journal-file-size>1M<", "<journal-file-size>10M<"),
            ("<journal-datasync>false<", "<journal-datasync>true<"),
        ):
            assert old in text, old
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")

    def command(self) -> Sequence[str]:
        words = super().command()
        ours = ("-Xms1G", "-Xmx4G")
        return [words[0], *ours, *(word for word in words[1:] if not word.startswith(("-Xm", "-XX:")))]


_running: dict[bool, BenchArtemis] = {}


def broker(*, persistent: bool = False) -> BenchArtemis:
    """The one that runs; where another is wanted, that takes its place."""
    if persistent in _running:
        return _running[persistent]
    _stop()
    found = BenchArtemis(Path(tempfile.mkdtemp(prefix="jmsclient-bench-")), persistent=persistent)
    _running[persistent] = found
    try:
        found.prepare()
        with on(BROKER):
            found.start()
    except NotAvailable as reason:
        _stop()
        raise LeftOut(f"Artemis cannot be started here: {reason}") from reason
    return found


@atexit.register
def _stop() -> None:
    while _running:
        _, one = _running.popitem()
        one.kill()
        shutil.rmtree(one.folder, ignore_errors=True)


def new_queue() -> str:
    """A name that no measurement has used."""
    return f"bench.{next(_numbers)}"


class JavaPeer:
    """One virtual machine for all that is measured, so that its compiler is warm."""

    def __init__(self) -> None:
        classpath = compiled(_JAVA / "pom-bench.xml", _JAVA / "BenchPeer.java", "bench-peer-2.10.0-2.40.0")
        words = ["java", "-Xms1G", "-Xmx1G", "-cp", classpath, "BenchPeer"]
        with on(CLIENT):
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        atexit.register(self._end)

    def run(self, *words: object) -> tuple[float, float]:
        """Seconds and CPU seconds of a task that BenchPeer.java describes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        assert len(answer) == 2, f"the Java client ended: {' '.join(map(str, words))}"
        return float(answer[0]), float(answer[1])

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()  # closes the pipes too


@lru_cache(maxsize=1)
def java() -> JavaPeer:
    """Started when it is first needed."""
    try:
        return JavaPeer()
    except NotAvailable as reason:
        raise LeftOut(f"there is no Java client to measure against: {reason}") from reason
