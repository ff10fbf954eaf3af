"""Several messages in one handler call (TR-48).

Each message was checked, claimed and counted on its own before it came here, and is completed and acknowledged on its own
afterwards; only the call is common. A message whose body does not fit is taken out and fails alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jmsclient.trigger.binding import BatchCall
from jmsclient.trigger.delivery import Delivery, Gathered
from jmsclient.trigger.work import Work


class Batch:
    """What one call handles."""

    __slots__ = ("works",)

    def __init__(self, works: list[Work]) -> None:
        self.works = works


Item = Work | Batch
"""What one call of a handler or resolver is about."""


def grouped(works: Sequence[Work], size: int) -> list[Item]:
    """Resolver questions as they are, the others in batches of at most `size`, order kept."""
    items: list[Item] = [work for work in works if work.question is not None]
    ready = [work for work in works if work.question is None]
    items += [Batch(ready[start : start + size]) for start in range(0, len(ready), size)]
    return items


class Prepared:
    """The arguments of a batch; a message that has none keeps why as its error."""

    def __init__(self, pairs: Iterator[tuple[Work, Delivery]], call: BatchCall) -> None:
        self._deliveries: list[Delivery] = []
        self.works: list[Work] = []
        self.rows: list[tuple[Any, ...]] = []
        for work, delivery in pairs:
            try:
                self.rows.append(call.row(work.message, delivery))
            except BaseException as error:  # noqa: BLE001  the result of this message alone
                work.error = error
                continue
            self.works.append(work)
            self._deliveries.append(delivery)

    def returned(self) -> list[Gathered]:
        """The handler has returned or raised: what it asked to have sent, in the order of the messages."""
        return [one for delivery in self._deliveries for one in delivery.returned()]

    def failed(self, error: BaseException) -> None:
        """The call raised: whatever application code raises is the result of each of its messages."""
        for work in self.works:
            work.error = error
