"""Owns whether a queue has risen above a threshold or fallen to one. Pure. Source: rule "thresholds with events"; `create_queue`.

Armed and disarmed: after the high one is reached, only the low one (where none is given: anything below the high one) ends it.
"""

from __future__ import annotations

from jmsclient_embedded.settings import QueueSettings


class Thresholds:
    """Of one queue."""

    __slots__ = ("_above", "_limits")

    def __init__(self, settings: QueueSettings) -> None:
        self._limits = {
            "messages": (settings.messages_threshold_low, settings.messages_threshold_high),
            "bytes": (settings.bytes_threshold_low, settings.bytes_threshold_high),
        }
        self._above = dict.fromkeys(self._limits, False)

    def crossed(self, messages: int, size: int) -> list[tuple[str, bool]]:
        """Which threshold is crossed now, and whether upwards."""
        crossings = []
        for what, value in (("messages", messages), ("bytes", size)):
            low, high = self._limits[what]
            if high < 0:
                continue
            above = self._above[what]
            if (value >= high and not above) or (above and (value <= low if low >= 0 else value < high)):
                self._above[what] = not above
                crossings.append((what, not above))
        return crossings
