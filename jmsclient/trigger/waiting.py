"""What waits too long in a trigger's buffer while its handlers are busy: it goes back, so that others get it (RA-13, RA-15).

Owns when; how is the intake's. Demand is taken up again when a handler is free. Touched by whoever has the pipeline's turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from jmsclient.errors import JmsClientError
from jmsclient.events import emit
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Arrival
from jmsclient.trigger.desk import Desk

DRAIN_TIMEOUT = 2.0


class Waiting:
    """`idle_timeout` in seconds, 0 for never. Where the provider counts a release, nothing is given back for being idle."""

    def __init__(self, desk: Desk, capabilities: Callable[[], Capabilities], idle_timeout: float) -> None:
        self._desk = desk
        self._capabilities = capabilities
        self._idle_timeout = idle_timeout
        hold_limit = capabilities().hold_limit
        self._hold = 0.0 if hold_limit is None else hold_limit / 2
        limits = [limit for limit in (self._idle_timeout, self._hold) if limit]
        self._interval = min(limits) / 4 if limits else 0.0
        self._oldest = 0.0
        self._delivered = -1
        self._quiet_since = 0.0
        self._look_at = 0.0

    def due(self) -> list[float]:
        return [self._look_at] if self._interval and self._desk.intake.buffered else []

    def watch(self, now: float) -> None:
        """Look, if it is time."""
        if not self._interval or now < self._look_at or not self._desk.intake.buffered:
            return
        self._look_at = now + self._interval
        if self._hold:
            released = len(self._desk.intake.release_held(self._hold))
            if released:
                self._tell("hold_limit", f"waited {self._hold:.0f} s, half of what the provider allows", released)
        if self._idle_timeout and self._capabilities().release_without_count:
            self._give_back_idle(now)

    def ask_again(self) -> None:
        """A handler is free: demand again, if it was taken back."""
        if self._hold:
            self._oldest = self._desk.clock.monotonic() - self._desk.intake.oldest_age
        if self._desk.intake.idle:
            self._desk.intake.asked()

    def stamped(self, arrivals: list[Arrival]) -> list[Arrival]:
        """What was taken since `ask_again`, with the time at which the provider's hold of it ends, where there is a limit and the
        provider does not say. It may be earlier than it has to be: the oldest of them stands for all."""
        if self._hold:
            for arrival in arrivals:
                if arrival.locked_until is None:
                    arrival.locked_until = self._oldest + 2 * self._hold
        return arrivals

    def _give_back_idle(self, now: float) -> None:
        intake = self._desk.intake
        delivered = intake.buffer.delivered
        if delivered != self._delivered:
            self._delivered = delivered
            self._quiet_since = now
        elif now - self._quiet_since >= self._idle_timeout and not intake.idle:
            try:
                released = intake.give_back_idle(self._desk.clock.monotonic() + DRAIN_TIMEOUT)
            except JmsClientError as error:
                name = self._desk.declaration.name
                emit("trigger", "drain_failed", f"trigger {name!r}: {error}", level=logging.WARNING, trigger=name)
                return
            if released:
                self._tell("idle", f"waited while no handler was free for {now - self._quiet_since:.0f} s", released)

    def _tell(self, name: str, text: str, released: int) -> None:
        trigger = self._desk.declaration.name
        message = f"trigger {trigger!r}: {released} messages {text}: given back"
        emit("trigger", name, message, level=logging.WARNING, trigger=trigger, released=released)
