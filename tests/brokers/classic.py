"""ActiveMQ Classic, embedded in a main class of a few lines: its libraries come from Maven's repositories, its archive does not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .launching import Broker, compiled, listening, need

_JAVA = Path(__file__).with_name("java")


class Classic(Broker):
    name = "classic"

    def prepare(self) -> None:
        self.classpath = compiled(_JAVA / "pom-classic.xml", _JAVA / "Classic.java", "classic-6.1.7")

    def environment(self) -> dict[str, str]:
        return {**os.environ, "BROKER_PASSWORD": self.password}

    def command(self) -> Sequence[str]:
        return [
            need("java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp", self.classpath, "Classic", str(self.folder / "data"), str(self.port), self.user,
        ]  # fmt: skip

    def ready(self) -> bool:
        return self.logged("CLASSIC READY") and listening(self.port)
