"""Why a trigger takes nothing for now: a reason each, an event for every change, demand taken back and given again (TR-59).

Every suspension here is temporary: what began it ends it, or a restart. One that the application asked for only stops the fetching:
what is buffered is still run. A trigger with several lanes has a suspension for each, and one event for all of them. Touched by the
pipeline thread only, but for `Reasons`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jmsclient.errors import JmsClientError
from jmsclient.events import emit
from jmsclient.trigger.desk import Awaited, Desk

DRAIN_TIMEOUT = 2.0
APPLICATION = "application"


class Reasons:
    """Those of all lanes of one trigger, so that each change is told once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the list; held for that only
        self._reasons: list[tuple[str, object]] = []

    @property
    def oldest(self) -> str | None:
        return next((reason for reason, _ in self._reasons), None)

    def begin(self, reason: str, lane: object) -> bool:
        """True: it is the first lane with this reason."""
        with self._lock:
            first = all(known != reason for known, _ in self._reasons)
            self._reasons.append((reason, lane))
            return first

    def end(self, reason: str, lane: object) -> bool:
        """True: it was the last lane with any."""
        with self._lock:
            self._reasons.remove((reason, lane))
            return not self._reasons


class States:
    """What holds for a trigger, in whatever lane: why it is suspended, whether its history does not answer, and of which messages
    copies wait."""

    def __init__(self) -> None:
        self.suspended = Reasons()
        self.outages = Reasons()
        self.awaited = Awaited()


class Suspension:
    """True while there is a reason. `states` are the trigger's."""

    def __init__(self, desk: Desk, states: States | None = None) -> None:
        self._desk = desk
        self.states = states or States()
        self._name = desk.declaration.name
        self._reasons: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def __contains__(self, reason: str) -> bool:
        return reason in self._reasons

    @property
    def withheld(self) -> bool:
        """What is buffered is not run either."""
        return any(reason != APPLICATION for reason in self._reasons)

    @property
    def reason(self) -> str | None:
        """The oldest of them."""
        return next(iter(self._reasons), None)

    def begin(self, reason: str, text: str, *, actor: str = "trigger") -> None:
        """Take nothing from now on; what is buffered goes back uncounted, unless the application asked for it."""
        if reason in self._reasons:
            return
        self._reasons.append(reason)
        if self.states.suspended.begin(reason, self):
            emit(
                "trigger",
                "suspended",
                f"trigger {self._name!r} is suspended: {text}",
                level=logging.WARNING,
                trigger=self._name,
                reason=reason,
                actor=actor,
            )
        if reason == APPLICATION:
            self._stop_fetching()
        else:
            self.withhold()

    def end(self, reason: str, text: str, *, actor: str) -> None:
        """This reason is gone; with the last one the trigger takes messages again."""
        if reason not in self._reasons:
            return
        self._reasons.remove(reason)
        if self.states.suspended.end(reason, self):
            emit("trigger", "resumed", f"trigger {self._name!r} resumes: {text}", trigger=self._name, reason=reason, actor=actor)
        if not self._reasons and not self._desk.stopping:
            self._desk.intake.start()

    def withhold(self) -> int:
        """Take demand back, then give back what is kept: in this order, or it would come again at once. Returns how many."""
        self._stop_fetching()
        return self._desk.intake.release_buffered()

    @contextmanager
    def around(self) -> Iterator[None]:
        """While a serial trigger's head goes back: the rest of its buffer goes back first, or it would be run before it."""
        self.withhold()
        yield
        if not self._reasons and not self._desk.stopping:
            self._desk.intake.start()

    def _stop_fetching(self) -> None:
        desk = self._desk
        desk.intake.stop()
        try:
            desk.intake.drain(desk.clock.monotonic() + DRAIN_TIMEOUT)
        except JmsClientError as error:
            emit("trigger", "drain_failed", f"trigger {self._name!r}: {error}", level=logging.WARNING)
