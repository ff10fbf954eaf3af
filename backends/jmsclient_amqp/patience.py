"""How long a drain may go without an answer, and what is said when that was too long.

Pure. The limit counts from the last thing that came, be it a part of a message: a large message on a slow link is no silence, and a
link that was given up in its midst would begin it anew for ever (C12). Rule IF-18.
"""

from __future__ import annotations

from typing import Final

from jmsclient.errors import ConnectionLostError
from jmsclient_amqp.engine.library import Condition

DRAIN_AGAIN: Final = 0.25
"""Seconds after which a drain that is not answered is asked for again."""


class Patience:
    """With one link. `limit` in seconds, 0 for ever; `now` is monotonic. `came` is anything that changes when something comes."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._since = 0.0
        self._came: object = None

    def begin(self, now: float, came: object) -> None:
        """It is asked now."""
        self._since, self._came = now, came

    def ended(self, now: float, came: object) -> bool:
        """Nothing has come for so long that nothing more is expected."""
        if came != self._came:
            self.begin(now, came)
            return False
        return 0 < self.limit <= now - self._since


def not_drained(what: str, limit: float) -> ConnectionLostError:
    """What whoever waits hears, and the event where the link is opened again."""
    return ConnectionLostError(
        f"the broker did not answer a drain of {what} within {limit:g} s (drain_timeout), so its link was given up. A connection "
        "that reconnects opens another by itself; with reconnect=no, create the consumer again"
    )


def blame(limit: float) -> Condition:
    """What the broker hears with the detach."""
    return Condition("amqp:link:detach-forced", f"no answer to a drain within {limit:g} s")
