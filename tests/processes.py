"""Which test runs in which process, where pytest-xdist runs several: a file stays together, and so do all that need real servers.

So each server is started once, and the other processes do not wait for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.scheduler.protocol import Scheduling


class ServersTogether(LoadFileScheduling):
    """By file, but one group of all files with a test marked `real`."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)  # type: ignore[arg-type]
        self._groups: dict[str, str] = {}
        self._root = config.rootpath

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        group = self._groups.get(path)
        if group is None:
            real = "mark.real" in Path(self._root, path).read_text(encoding="utf-8")
            group = self._groups[path] = "real servers" if real else path
        return group


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    return ServersTogether(config, log)
