"""Owns what a step leaves to be done when the lock is free: batches to push, events to tell, threads to wake.

Must not know what a step is. Filled under the broker's lock. Source: architecture.md, "Decide under the lock, act outside it".
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from jmsclient.clock import Bell
from jmsclient.events import emit
from jmsclient.transport.contract import Arrival
from jmsclient_embedded.outlet import Outlet


@dataclass(slots=True)
class Aftermath:
    """What is to be done outside the lock."""

    pushes: list[tuple[Outlet, list[Arrival]]] = field(default_factory=list)
    """Each outlet once: it is marked as being pushed to from here on, and later grants go to its outbox."""
    recalls: list[Outlet] = field(default_factory=list)
    """Those whose sinks are to give back what nobody has seen (IF-20)."""
    closures: list[tuple[Outlet, Exception]] = field(default_factory=list)
    """Those that the broker closes, and why."""
    events: list[tuple[str, str, int, dict[str, object]]] = field(default_factory=list)
    wake: bool = False
    """Something waits for a time."""
    write: bool = False
    """Something waits to be written."""
    bells: list[Bell] = field(default_factory=list)
    """Of those whose answers were given."""

    def tell(self, name: str, text: str, *, level: int = logging.INFO, **fields: object) -> None:
        """Have an event told."""
        self.events.append((name, text, level, fields))

    def ring(self, bell: Bell) -> None:
        """Have it rung: whom that wakes finds the lock free."""
        self.bells.append(bell)

    def take(self) -> tuple[Aftermath | None, list[tuple[Outlet, list[Arrival]]]]:
        """All but the pushes, where there is something, and the pushes: nearly every step leaves at most one. Nothing is left."""
        pushes, self.pushes = self.pushes, []
        if not (self.write or self.bells or self.wake or self.events or self.recalls or self.closures):
            return None, pushes
        taken = Aftermath([], self.recalls, self.closures, self.events, self.wake, self.write, self.bells)
        self.recalls, self.closures, self.events, self.wake, self.write, self.bells = [], [], [], False, False, []
        return taken, pushes


def tell_events(events: list[tuple[str, str, int, dict[str, object]]]) -> None:
    """Tell them. Outside the lock."""
    for name, text, level, fields in events:
        emit("embedded", name, text, level=level, **fields)
