"""Owns the three pauses: what each does to every event, as data; their flags; how they are decided at start.

Pure. Must not know of queues. Source: rules.md, "In-flight work: the three pauses". The flags are independent: production is
effectively paused where production or insertion is; the server's flag and the destination's are OR-ed; resuming one never
clears another; starting and stopping a connection changes none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Pause(Enum):
    """What can be paused; the value is its name in settings and on the command line."""

    PRODUCTION = "production"
    INSERTION = "insertion"
    CONSUMPTION = "consumption"


class Flags:
    """Which pauses are set: of a destination, or of the whole broker. Not thread-safe."""

    __slots__ = ("consumption", "insertion", "production")

    def __init__(self, *, production: bool = False, insertion: bool = False, consumption: bool = False) -> None:
        self.production = production
        self.insertion = insertion
        self.consumption = consumption

    def set(self, pause: Pause, paused: bool) -> bool:
        """Set or clear one; False where it was so already."""
        name = pause.value
        if getattr(self, name) is paused:
            return False
        setattr(self, name, paused)
        return True


@dataclass(frozen=True, slots=True)
class Effect:
    """One row of the pause table: what an event does while each of the three is paused."""

    event: str
    production: str
    insertion: str
    consumption: str


PAUSED_ERROR: Final = "DestinationPausedError"
PAUSE_TABLE: Final = (
    Effect("new plain send", PAUSED_ERROR, PAUSED_ERROR, "works"),
    Effect("send in a transaction", PAUSED_ERROR, PAUSED_ERROR, "works"),
    Effect("commit of an earlier send", "visible", "paused", "visible"),
    Effect("quota waiter gets room", "admitted", "keeps waiting", "admitted"),
    Effect("birth time / redelivery delay ends", "visible", "paused", "visible"),
    Effect("rollback, recover, close, crash", "visible", "paused", "visible"),
    Effect("ack / commit of a received message", "works", "works", "works"),
    Effect("receive() / receive(t) / receive_no_wait()", "works", "works", "waits, then None"),
    Effect("listener", "fed", "fed", "silent"),
    Effect("browse", "works", "works", "works"),
    Effect("move, delete, drain by management", "refused", "refused", "allowed"),
    Effect("move into it", "refused", "refused", "works"),
    Effect("redirect from another destination", "visible", "paused", "visible"),
)
"""Read beside the table in rules.md; every cell has a test."""


def at_start(server: bool | None, destination: bool | None, template: bool | None) -> bool:
    """One flag of a destination at start: the server's True or False wins; None ("default") asks the destination, then the
    template; else it is not paused."""
    for said in (server, destination, template):
        if said is not None:
            return said
    return False
