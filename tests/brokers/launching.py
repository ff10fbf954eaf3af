"""How a real broker is fetched, started on free ports and stopped, for the tests that need one.

Archives come from Maven's repositories through `mvn`, once, and are unpacked once into a cache (`JMSCLIENT_TEST_CACHE`, else
`~/.cache/jmsclient-tests`); what a broker writes goes into a folder of the test run. Nothing listens beyond the loopback interface.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

USER = "tester"
PASSWORD = "s3cret/@:%41+"  # every character that a URL could trip over (O09)
_CLASSPATH = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
_GET = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get"


class NotAvailable(Exception):  # noqa: N818  it is a reason to skip, not a failure
    """Why a broker cannot be started here."""


def cache() -> Path:
    folder = Path(os.environ.get("JMSCLIENT_TEST_CACHE") or Path.home() / ".cache" / "jmsclient-tests")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise NotAvailable(f"{program} is not installed")
    return found


def archive(group: str, artifact: str, version: str, classifier: str, extension: str) -> Path:
    """A file of Maven's repositories, fetched where it is not in the local one."""
    local = Path.home() / ".m2" / "repository" / group.replace(".", "/") / artifact / version
    file = local / f"{artifact}-{version}-{classifier}.{extension}"
    if not file.exists():
        coordinates = f"{group}:{artifact}:{version}:{extension}:{classifier}"
        maven = [need("mvn"), "-q", "-B", _GET, f"-Dartifact={coordinates}", "-Dtransitive=false"]
        done = subprocess.run(maven, cwd=cache(), capture_output=True, text=True, timeout=600, check=False)
        if not file.exists():
            raise NotAvailable(f"{artifact} {version} cannot be fetched: {done.stdout[-500:]}{done.stderr[-500:]}")
    return file


def unpacked(file: Path, name: str, strip: int = 1) -> Path:
    """The folder of an unpacked archive without its `strip` leading folders. A half unpacked tree is never used."""
    target = cache() / name
    if not target.exists():
        part = Path(tempfile.mkdtemp(dir=cache()))
        with tarfile.open(file) as tar:
            for member in tar:
                path = Path(member.name)
                if len(path.parts) > strip:
                    member.name = str(Path(*path.parts[strip:]))
                    tar.extract(member, part, filter="data")
        try:
            part.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(part)
    return target


def compiled(pom: Path, source: Path, name: str) -> str:
    """The class path of a program of one Java file and what its pom needs, compiled once."""
    target = cache() / name
    stamp = target / f"{source.stem}.class"
    if not stamp.exists() or stamp.stat().st_mtime < source.stat().st_mtime:
        target.mkdir(exist_ok=True)
        listing = target / "classpath.txt"
        maven = [need("mvn"), "-q", "-B", "-f", str(pom), _CLASSPATH, f"-Dmdep.outputFile={listing}"]
        for command in (maven, None):
            words = command or [need("javac"), "-cp", listing.read_text(), "-d", str(target), str(source)]
            done = subprocess.run(words, cwd=target, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                raise NotAvailable(f"{source.name} cannot be made: {done.stdout[-500:]}{done.stderr[-500:]}")
    return f"{target}:{(target / 'classpath.txt').read_text().strip()}"


class Broker(ABC):
    """One broker process. Made by a session fixture; tests share it and use queues of their own."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = USER
        self.password = PASSWORD
        self.port = free_port()
        self.log = folder / "log.txt"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://{self.user}:{quote(self.password, safe='')}@127.0.0.1:{self.port}"

    @abstractmethod
    def prepare(self) -> None:
        """Fetch it and write its configuration. Raises NotAvailable."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What to run."""

    @abstractmethod
    def ready(self) -> bool:
        """It said that it is ready, and its port is open."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def start(self) -> None:
        """Start it, with whatever it has stored, and wait until it is ready."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*mortal(), *self.command()], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env=self.environment(), start_new_session=True,
            )  # fmt: skip
        self._wait(self.ready, 120)

    def stop(self) -> None:
        """End it gently; what does not end is killed."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(8)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(20)
            self._process = None

    def store_declarations(self) -> None:  # noqa: B027  most say that it is made when it is written
        """See that the queues which were made so far survive a `kill`, as what is confirmed in them does."""

    def send_signal(self, number: int) -> None:
        """SIGSTOP makes it a peer that never answers."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def logged(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")

    def _wait(self, condition: Callable[[], bool], patience: float) -> None:
        end = time.monotonic() + patience
        while not condition():
            assert self._process is not None
            gone = self._process.poll() is not None
            if gone or time.monotonic() > end:
                self.kill()
                said = self.log.read_text(errors="replace")
                raise AssertionError(f"{self.name} {'died' if gone else 'is not ready'}:\n{said[:2000]}\n…\n{said[-2000:]}")
            time.sleep(0.05)


def mortal() -> list[str]:
    """The beginning of a command that is ended when this process dies, where the system can say so: a test that hangs is ended with
    its process (`ending.py`), and what it started would be left. It would end with this thread, if that were not the main one."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return []
    return [setpriv, "--pdeathsig", "TERM"]


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
