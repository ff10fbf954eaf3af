"""The counters of a worker's triggers as exporters want them: by trigger, only rising, read when somebody asks (TR-65).

Must not know what they are exported to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from jmsclient.trigger.counters import NAMES
from jmsclient.trigger.running import RunningTrigger

COUNTERS = (*NAMES, "sweeper_removed")
"""Their names; those that end in `_time` are seconds, the others count."""


class HasTriggers(Protocol):
    """A worker, as far as its counters go."""

    @property
    def triggers(self) -> Mapping[str, RunningTrigger]:
        """Those that run, by name."""


def totals(worker: HasTriggers) -> dict[str, dict[str, float]]:
    """Of each trigger that runs now, since it started. From any thread."""
    return {name: trigger.totals for name, trigger in list(worker.triggers.items())}
