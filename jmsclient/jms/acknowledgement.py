"""What each acknowledge mode means, and what a session has handed over without an acknowledge (IF-39; S04, S05).

Knows no threads: a session guards it. An exception from a signal handler may strike between any two steps here; every order of
steps is such that repeating the whole call completes it, because settling twice does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from jmsclient.errors import IllegalStateError, UnsupportedFeatureError
from jmsclient.options import AcknowledgeMode
from jmsclient.transport.contract import Arrival

_SUPPORTED = (AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT)


def checked_mode(mode: AcknowledgeMode) -> AcknowledgeMode:
    """Refuse what a session cannot do. Raises UnsupportedFeatureError."""
    if mode not in _SUPPORTED:
        raise UnsupportedFeatureError(
            f"acknowledge mode {getattr(mode, 'name', mode)}: this version has {', '.join(one.name for one in _SUPPORTED)}"
        )
    return mode


def when_asked(mode: AcknowledgeMode, *, closed: bool, settled: bool) -> Literal["ignore", "session"]:
    """What `message.acknowledge()` does: in CLIENT it acknowledges all that its session has delivered, unless this message is
    settled already (acknowledged before, or taken back by recover), for then its redelivery is another delivery; in AUTO
    nothing (JM 3.6). Raises IllegalStateError where the session is closed (JM 6.2.15)."""
    if mode is AcknowledgeMode.AUTO:
        return "ignore"
    if closed:
        raise IllegalStateError("the session of this message is closed; the message was given back and will come again")
    return "ignore" if settled else "session"


class Unacknowledged:
    """What a session handed over and nobody has acknowledged, oldest first."""

    __slots__ = ("arrivals",)

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []

    def append(self, arrival: Arrival) -> None:
        """It is about to be handed over."""
        self.arrivals.append(arrival)

    def undo(self, arrival: Arrival) -> None:
        """It was not handed over after all."""
        if self.arrivals and self.arrivals[-1] is arrival:
            self.arrivals.pop()

    def all(self) -> list[Arrival]:
        """A copy, to be settled before `forget`."""
        return list(self.arrivals)

    def forget(self, arrivals: Iterable[Arrival]) -> None:
        """These are settled."""
        gone = {id(arrival) for arrival in arrivals}
        self.arrivals = [arrival for arrival in self.arrivals if id(arrival) not in gone]

    def any_of(self, receiver: object) -> bool:
        """Whether a receiver is still needed for settling."""
        return any(arrival.receiver is receiver for arrival in self.arrivals)

    def __len__(self) -> int:
        return len(self.arrivals)
