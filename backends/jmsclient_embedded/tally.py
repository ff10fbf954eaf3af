"""Owns the numbers of one queue, as IF-15 counts them. What changes them, and when, is the queue's to know (queue.py)."""

from __future__ import annotations

from jmsclient.transport.administration import DestinationStatistics, PendingByKind


class Tally:
    """See the module. Not thread-safe: the broker's lock guards it."""

    def __init__(self) -> None:
        self.visible = 0
        """Messages that can be taken."""
        self.ordered = 0
        self.pending = 0
        self.high = 0
        self.received = 0
        self.bytes_current = 0
        self.bytes_pending = 0
        self.bytes_high = 0
        self.bytes_received = 0
        self.acknowledged = 0
        self.expired = 0
        self.moved = 0
        self.deleted = 0
        self.discarded = 0
        self.bytes_removed = 0

    @property
    def current(self) -> int:
        """Messages that are there and not in flight."""
        return self.visible + self.ordered

    def _note_high(self) -> None:
        current = self.visible + self.ordered
        if current > self.high:
            self.high = current
        if self.bytes_current > self.bytes_high:
            self.bytes_high = self.bytes_current

    def reset_statistics(self) -> None:
        """The high-water marks begin anew at the current values (IF-15)."""
        self.high, self.bytes_high = self.current, self.bytes_current

    def _statistics(self, pending_by_kind: PendingByKind) -> DestinationStatistics:
        """The numbers of this moment; those of consumers, senders and pauses are not the queue's to know."""
        return DestinationStatistics(
            messages_current=self.current,
            messages_pending=self.pending,
            messages_high=self.high,
            messages_received=self.received,
            bytes_current=self.bytes_current,
            bytes_pending=self.bytes_pending,
            bytes_high=self.bytes_high,
            bytes_received=self.bytes_received,
            messages_acknowledged=self.acknowledged,
            messages_expired=self.expired,
            messages_moved=self.moved,
            messages_deleted=self.deleted,
            messages_discarded=self.discarded,
            bytes_removed=self.bytes_removed,
            pending_by_kind=pending_by_kind,
        )
