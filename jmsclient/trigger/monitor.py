"""The application's monitor: asked now and then, while the trigger is suspended because retries were used up, whether what the
handler needs is there again (TR-60).

It is called on a thread of its own, for it may block; everything else here is the pipeline thread's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from jmsclient.clock import Bell
from jmsclient.errors import in_words
from jmsclient.events import emit
from jmsclient.trigger.desk import Desk
from jmsclient.trigger.suspension import Suspension

REASON = "retry_failure"


class Monitor:
    """`recovered` is called when it said True; `asks`: another lane of the trigger does not. Without a monitor function it does
    nothing: the trigger waits for `resume` or a restart."""

    def __init__(self, desk: Desk, suspension: Suspension, bell: Bell, *, recovered: Callable[[], None], asks: bool = True) -> None:
        self._function = desk.declaration.monitor if asks else None
        self._interval = desk.declaration.options.monitor_interval
        self._tries = desk.declaration.options.monitor_tries
        self._name = desk.declaration.name
        self._desk = desk
        self._suspension = suspension
        self._bell = bell
        self._recovered = recovered
        self._ask_at: float | None = None
        self._asked = 0
        self._thread: threading.Thread | None = None
        self._answer: bool | None = None

    def watch(self, now: float) -> None:
        """Ask when it is time; take the answer."""
        if self._function is None:
            return
        if REASON not in self._suspension or self._desk.stopping:
            self._ask_at = None
            self._asked = 0
            return
        if self._thread is not None:
            self._take_answer(now)
        elif self._ask_at is None:
            self._ask_at = now + self._interval
        elif self._ask_at <= now and not self._used_up:
            self._asked += 1
            self._answer = None
            self._thread = threading.Thread(target=self._ask, name=f"jmsclient-{self._name}-monitor", daemon=True)
            self._thread.start()

    def due(self) -> list[float]:
        return [] if self._ask_at is None or self._thread is not None or self._used_up else [self._ask_at]

    @property
    def _used_up(self) -> bool:
        return self._tries is not None and self._asked >= self._tries

    def _take_answer(self, now: float) -> None:
        if self._answer is None:
            return
        self._thread = None
        self._ask_at = now + self._interval
        if self._answer:
            self._recovered()

    def _ask(self) -> None:
        assert self._function is not None
        answer = False
        try:
            answer = bool(self._function())
        except BaseException as error:  # noqa: BLE001  of whatever kind, it counts as False, and the monitor is asked again
            emit(
                "trigger",
                "monitor_failed",
                f"trigger {self._name!r}: its monitor failed: {type(error).__name__}: {in_words(error)}",
                level=logging.WARNING,
                trigger=self._name,
            )
        self._answer = answer
        self._bell.ring()
