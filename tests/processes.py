"""Which test runs in which process, where pytest-xdist runs several: a file stays together, and so do all that need real servers.

So each server is started once, and the other processes do not wait for it. A process that dies, as the one of a test that had to be
ended does (`ending.py`), is one failed test: another process goes on behind it. What pytest-xdist itself does then would run that
test again and again, and may wait for ever for tests that no process has.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.scheduler.protocol import Scheduling
from xdist.workermanage import WorkerController


class ServersTogether(LoadFileScheduling):
    """By file, but one group of all files with a test marked `real`."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)  # type: ignore[arg-type]
        self._groups: dict[str, str] = {}
        self._root = config.rootpath

    def remove_node(self, node: WorkerController) -> str | None:
        """Forget a process, and return the test that it died of; its other tests go to whoever is free."""
        left = {scope: unit for scope, tests in self.assigned_work.pop(node).items() if (unit := _not_run(tests))}
        if not left:
            return None
        died_of = next(iter(next(iter(left.values()))))
        self.workqueue.update({scope: unit for scope, tests in left.items() if (unit := _not_run(tests, without=died_of))})
        for other in self.assigned_work:
            self._reschedule(other)
        return died_of

    def _reschedule(self, node: WorkerController) -> None:
        """Give a process work until it has two tests: it begins one only when it knows of the next, or that there is none."""
        if node not in self.registered_collections:
            return  # it has yet to say what there is
        super()._reschedule(node)
        while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        group = self._groups.get(path)
        if group is None:
            real = "mark.real" in Path(self._root, path).read_text(encoding="utf-8")
            group = self._groups[path] = "real servers" if real else path
        return group


def _not_run(tests: dict[str, bool], without: str | None = None) -> dict[str, bool]:
    return {name: False for name, ran in tests.items() if not ran and name != without}


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    return ServersTogether(config, log)
