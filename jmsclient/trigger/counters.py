"""What a trigger counts (TR-65). Written by its pipeline thread only; reading from other threads sees whole numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counters:
    """Since the start, or since the last `reset`."""

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
    resolver_new: int = 0
    resolver_duplicate: int = 0
    resolver_in_doubt: int = 0
    store_errors: int = 0

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def reset(self) -> dict[str, int]:
        """Start again from zero; returns the old values."""
        old = self.as_dict()
        for name in old:
            setattr(self, name, 0)
        return old
