"""Owns a queue together with those who wait at it, in turn, and its pause flags. Must not know of storage or threads.

A topic's subscription is a line too. Source: rules IF-5, IF-31; "The three pauses"; fairness among receivers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jmsclient.destination import Destination, Queue
from jmsclient.message import Content
from jmsclient_embedded.pauses import Flags
from jmsclient_embedded.queue import MessageQueue
from jmsclient_embedded.quota import Quota
from jmsclient_embedded.settings import QueueSettings

if TYPE_CHECKING:
    from jmsclient_embedded.outlet import Outlet


class Line:
    """A queue and its receivers; `wanting` are those with demand, the next to be served first. Under the broker's lock.

    `above` are the flags that count beside its own: the broker's, and the topic's of a subscription. `stored`: its persistent
    messages go to the store, where there is one."""

    __slots__ = (
        "above",
        "consumers_high",
        "consumers_total",
        "consumption_paused",
        "destination",
        "flags",
        "gone",
        "lax",
        "outlets",
        "plain",
        "queue",
        "stored",
        "wanting",
    )

    def __init__(
        self,
        name: str,
        settings: QueueSettings,
        *,
        destination: Destination | None = None,
        above: tuple[Flags, ...] = (),
        stored: bool = True,
    ) -> None:
        self.queue = MessageQueue(name, settings)
        self.destination = destination or Queue(name)
        self.above = above
        self.flags = Flags()
        self.stored = stored
        self.outlets: set[Outlet] = set()
        self.wanting: deque[Outlet] = deque()
        self.consumers_high = 0
        self.consumers_total = 0
        self.consumption_paused = False
        self.gone = False
        """Its destination or subscription is no more: what was sent to it in a transaction, or is being stored, is dropped."""
        self.plain = True
        """A send to it needs no look at pauses, quotas or overrides."""
        self.lax = True
        """Nobody waits for what an accept sets free: no quota, no unit of order. It may be carried out with the next step."""
        self.refresh()

    # -- what a sender asks -----------------------------------------------------------------------------------------

    @property
    def settings(self) -> QueueSettings:
        """What is set on it."""
        return self.queue.settings

    @property
    def quota(self) -> Quota | None:
        """What bounds it."""
        return self.queue.quota

    @property
    def production_paused(self) -> bool:
        """Effectively: production or insertion, of its own or of those above."""
        return any(flags.production or flags.insertion for flags in (self.flags, *self.above))

    @property
    def insertion_paused(self) -> bool:
        """Effectively."""
        return self.queue.insertion_paused

    def lines_for(self, content: Content, origin: object) -> Sequence[Line]:
        """Where a message for this destination goes: a topic's answer depends on both."""
        return (self,)

    def refresh(self) -> bool:
        """Its flags, those above, its settings or its quota changed. True where consumption became paused by that."""
        flags = (self.flags, *self.above)
        insertion = any(one.insertion for one in flags)
        if insertion is not self.queue.insertion_paused:
            self.queue.pause_insertion(insertion)
        was, self.consumption_paused = self.consumption_paused, any(one.consumption for one in flags)
        self.plain = not (self.production_paused or self.queue.quota is not None or self.settings.overrides)
        # Units may outlive the setting that made them.
        self.lax = self.queue.quota is None and self.settings.unit_of_order is None and not self.queue.units
        return self.consumption_paused and not was

    # -- its receivers ----------------------------------------------------------------------------------------------

    def attach(self, outlet: Outlet) -> None:
        """A receiver opened."""
        self.outlets.add(outlet)
        if outlet.holder.selection is not None:
            self.queue.begin_selection(outlet.holder.selection)
        self.consumers_total += 1
        self.consumers_high = max(self.consumers_high, len(self.outlets))

    def detach(self, outlet: Outlet) -> None:
        """It closed: it is matched no more (IF-5)."""
        self.outlets.discard(outlet)
        if outlet.holder.selection is not None:
            self.queue.end_selection(outlet.holder.selection)
        self.withdraw(outlet)

    def withdraw(self, outlet: Outlet) -> None:
        """It wants nothing any more."""
        outlet.demand = 0
        if outlet.wanting:
            outlet.wanting = False
            self.wanting.remove(outlet)
