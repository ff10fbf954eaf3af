"""What became of a trigger's messages when it stopped: a value, and the sum of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerReport:
    """What became of a trigger's messages when it stopped. `unfinished` handlers outlasted the grace period: their messages are
    not acknowledged and come back."""

    trigger: str
    finished: int
    released: int
    discarded: int
    unfinished: int

    @classmethod
    def of_all(cls, reports: Sequence[TriggerReport]) -> TriggerReport:
        """The sum of those of one trigger."""
        return cls(
            trigger=reports[0].trigger,
            finished=sum(one.finished for one in reports),
            released=sum(one.released for one in reports),
            discarded=sum(one.discarded for one in reports),
            unfinished=sum(one.unfinished for one in reports),
        )
