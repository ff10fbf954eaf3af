"""Owns the one open transaction of a transacted session of a ScriptedBackend: what was sent and what was accepted in it.

Must not know threads or links: the state's lock guards it, time is an argument. Source: `TransportSession` in
transport/contract.py; T4 to T6, T12 and T14 of rules.md; IF-28.
"""

from __future__ import annotations

from jmsclient.message import PlainContent
from jmsclient.testing.scripted_queue import Held, Queues
from jmsclient.transport.contract import Arrival


class ScriptedTransaction:
    """Not thread-safe. An accept may be repeated: an exception from a signal handler can strike between its steps."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, PlainContent]] = []
        self.accepted: dict[int, tuple[Held, Arrival]] = {}

    def commit(self, queues: Queues) -> None:
        """What was sent is there, in order; what was accepted is gone."""
        for address, content in self.sent:
            queues.put(address, content)
        self._clear()

    def roll_back(self, queues: Queues, *, due: float = 0.0, counted: bool = True) -> None:
        """What was sent is gone, what was accepted is back, deliverable from `due` (monotonic) on."""
        for held, arrival in self.accepted.values():
            queues.give_back(held, counted=counted and arrival.handed_over, due=due)
        self._clear()

    def _clear(self) -> None:
        self.sent.clear()
        self.accepted.clear()
