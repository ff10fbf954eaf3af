"""Owns what the broker knows of one receiver: its demand, what is granted to it and not yet pushed, who is pushing now.

Must not know of storage or of the contract's sessions. Source: rules IF-5, IF-8, IF-9; the contract's "never two calls at once
for one sink". Everything here is guarded by the broker's lock, except `sink.delivered`, which is called outside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from jmsclient.transport.contract import Arrival, Receiver, Sink
from jmsclient_embedded.default_outcome import DefaultOutcome
from jmsclient_embedded.entry import Entry, Holder
from jmsclient_embedded.line import Line
from jmsclient_embedded.transaction import Transaction


class Outlet:
    """One receiver as the broker sees it. `pre_settled`: what becomes of a message that is sent settled; None: none is.
    `browsing`: it only looks, at these."""

    __slots__ = (
        "browsing",
        "closing",
        "demand",
        "group",
        "holder",
        "idle",
        "line",
        "outbox",
        "pre_settled",
        "pumper",
        "pumping",
        "receiver",
        "sink",
        "wanting",
    )

    def __init__(
        self,
        line: Line,
        holder: Holder,
        group: Group,
        receiver: Receiver,
        sink: Sink,
        *,
        pre_settled: DefaultOutcome | None = None,
        browsing: Iterator[Entry] | None = None,
    ) -> None:
        self.line = line
        self.holder = holder
        self.group = group
        self.receiver = receiver
        self.sink = sink
        self.pre_settled = pre_settled
        self.browsing = browsing
        self.demand = 0
        self.wanting = False
        """Stands in its line's queue of receivers that want messages."""
        self.outbox: list[Arrival] = []
        self.pumping = False
        """Someone is pushing, or is about to: what is granted now is pushed by them."""
        self.pumper: int | None = None
        """The identity of the thread inside `sink.delivered`."""
        self.closing = False
        self.idle: list[Callable[[], None]] = []
        """Called under the lock, once, when nobody pushes any more."""


@dataclass(eq=False, slots=True)
class Group:
    """A session as the broker sees it: its outlets, the holders it inherited from closed ones, its transaction (None: it is not
    transacted). `origin` tells connections apart (no-local)."""

    name: str
    origin: object = None
    transaction: Transaction | None = None
    outlets: set[Outlet] = field(default_factory=set)
    inherited: list[Holder] = field(default_factory=list)
    closing: bool = False
    closed: list[Callable[[], None]] = field(default_factory=list)
    """Called under the lock when the last outlet has closed and everything went back."""
