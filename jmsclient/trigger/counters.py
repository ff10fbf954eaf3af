"""What a trigger counts (TR-65). Written by its pipeline thread only; reading from other threads sees whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Counters:
    """The attributes count since the start and only rise; `as_dict` since the last `reset`. Times are seconds."""

    new: int = 0
    duplicate: int = 0
    in_doubt: int = 0
    in_progress: int = 0
    abandoned: int = 0
    retrying: int = 0
    lease_lost: int = 0
    id_reused: int = 0
    no_id: int = 0
    parked: int = 0
    decided: int = 0
    completed: int = 0
    failed: int = 0
    dead_lettered: int = 0
    resolver_calls: int = 0
    resolver_errors: int = 0
    resolver_time: float = 0.0
    resolver_new: int = 0
    resolver_duplicate: int = 0
    resolver_in_doubt: int = 0
    store_errors: int = 0
    store_time: float = 0.0
    _at_reset: dict[str, float] = field(default_factory=dict, repr=False)

    def since_start(self) -> dict[str, float]:
        """Whatever was reset since."""
        return {name: getattr(self, name) for name in NAMES}

    def as_dict(self) -> dict[str, float]:
        """Since the last reset."""
        at_reset = self._at_reset
        return {name: getattr(self, name) - at_reset.get(name, 0) for name in NAMES}

    def reset(self) -> dict[str, float]:
        """Count from zero again; returns the old values. The attributes are left to their one writer, so that nothing that is
        counted meanwhile is lost."""
        now = self.since_start()
        before, self._at_reset = self._at_reset, now
        return {name: value - before.get(name, 0) for name, value in now.items()}


NAMES = tuple(one.name for one in fields(Counters) if not one.name.startswith("_"))


def total(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """Of several lanes."""
    return {name: sum(part[name] for part in parts) for name in NAMES}
