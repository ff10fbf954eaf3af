"""Owns pausing and resuming: who is told, what is called back, what becomes visible again.

Must not know of sends or stores. All under the broker's lock. Source: "The three pauses", IF-20; T9, T13. Each real change is one
log line and one event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jmsclient.destination import Destination
from jmsclient_embedded.aftermath import Aftermath
from jmsclient_embedded.granting import Granting, undelivered
from jmsclient_embedded.line import Line
from jmsclient_embedded.outlet import Outlet
from jmsclient_embedded.pauses import Flags, Pause
from jmsclient_embedded.settling import Settling


class Pausing:
    """See the module."""

    def __init__(self, granting: Granting, settling: Settling, aftermath: Aftermath) -> None:
        self._granting = granting
        self._settling = settling
        self._aftermath = aftermath

    def change(self, flags: Flags, lines: Iterable[Line], where: Destination | None, pause: Pause, paused: bool) -> bool:
        """Set one pause of a destination (None: of the whole broker), which counts for `lines`. False where it was so already."""
        if not flags.set(pause, paused):
            return False
        address = "the whole broker" if where is None else where.address
        done = "paused" if paused else "resumed"
        self._aftermath.tell(
            f"{pause.value}_{done}",
            f"{pause.value} {done} on {address}",
            destination=None if where is None else where.address,
        )
        for line in lines:
            self.refresh(line)
        return True

    def refresh(self, line: Line) -> None:
        """Its effective pauses may have changed."""
        if line.refresh():
            for outlet in tuple(line.outlets):
                self._call_back(outlet)
        self._granting.shown(line)

    def _call_back(self, outlet: Outlet) -> None:
        """T13: what is granted and not pushed goes back now; what is pushed and not seen when its sink gives it back."""
        held = undelivered(outlet)
        if held:
            outlet.demand += len(held)
            self._want(outlet)
            self._settling.call_back(outlet.line, held)
        recall: Callable[[], None] = lambda: self._aftermath.recalls.append(outlet)  # noqa: E731
        if outlet.pumping:
            outlet.idle.append(recall)
        else:
            recall()

    def _want(self, outlet: Outlet) -> None:
        if not outlet.wanting and not outlet.closing:
            outlet.wanting = True
            outlet.line.wanting.append(outlet)
