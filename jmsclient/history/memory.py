"""A history in this process's memory: for tests, and for workers that accept to forget at exit. Not durable.

Owns a dictionary and its sweep; how an entry changes is `entries.apply`. Time is the monotonic clock (TR-43). What is past its
history_ttl is absent at once (TR-44) and removed by a sweeper that also runs while nobody asks (D09).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from jmsclient.clock import SYSTEM_CLOCK, Clock
from jmsclient.errors import HistoryUnavailableError
from jmsclient.history.contract import DocumentHistory, ParkedMessage
from jmsclient.history.entries import Command, Entry, Join, Park, Reply, Stored, apply, copy_change
from jmsclient.history.sweeper import Sweeper

SWEPT_AT_ONCE = 512
"""Entries that a sweep looks at before it lets go of the lock."""

Key = tuple[str, str, str]


class Record(NamedTuple):
    """An entry and its parked copy in one value, so that both change in one assignment (TR-34)."""

    stored: Stored
    copy: Park | None
    parked_at: float


class MemoryHistory(DocumentHistory):
    """Thread-safe: one lock around each exchange. `clock` is the store's own time."""

    def __init__(self, *, namespace: str = "default", clock: Clock = SYSTEM_CLOCK) -> None:
        self.namespace = namespace
        self._clock = clock
        self._lock = threading.Lock()  # guards _records; held without I/O
        self._records: dict[Key, Record] = {}
        self._closed = False
        self._sweeper = Sweeper(clock, self.purge_expired)

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        if not commands:
            return []
        with self._lock:
            self._check_open()
            now = self._clock.monotonic()
            replies = self._apply_all(commands, now)
        self._sweeper.watch(min(command.history_ttl for command in commands))
        return replies

    def lookup_many(self, trigger: str, ids: Iterable[tuple[str, str]]) -> list[Entry | None]:
        keys = [(trigger, source, id_) for id_, source in ids]
        with self._lock:
            self._check_open()
            now = self._clock.monotonic()
            found = self._find(keys, now)
        return [None if record is None else record.stored.seen(now) for record in found]

    def in_doubt(self, trigger: str | None = None) -> list[ParkedMessage]:
        with self._lock:
            self._check_open()
            now = self._clock.monotonic()
            records = self._copies(trigger)
        return [_parked(one, now) for one in records if one.stored.undecided(now)]

    def decided(self, trigger: str | None = None, *, limit: int = 100) -> list[ParkedMessage]:
        with self._lock:
            self._check_open()
            now = self._clock.monotonic()
            records = self._copies(trigger)
        left = [one for one in records if one.stored.decision is not None and one.stored.locked_until <= now]
        return [_parked(one, now) for one in left[:limit]]

    def purge_expired(self) -> int:
        removed = 0
        with self._lock:
            keys = list(self._records)
        for start in range(0, len(keys), SWEPT_AT_ONCE):
            with self._lock:
                removed += self._purge(keys[start : start + SWEPT_AT_ONCE])
        return removed

    def _purge(self, keys: Iterable[Key]) -> int:
        now = self._clock.monotonic()
        removed = 0
        for key in keys:
            record = self._records.get(key)
            if record is not None and record.stored.expires_at <= now:
                del self._records[key]
                removed += 1
        return removed

    @property
    def swept(self) -> int:
        return self._sweeper.removed

    def statistics(self) -> dict[str, int]:
        with self._lock:
            self._check_open()
            now = self._clock.monotonic()
            return dict(Counter(one.stored.state.value for one in self._records.values() if one.stored.expires_at > now))

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._sweeper.close()

    def _apply_all(self, commands: Iterable[Command], now: float) -> list[Reply]:
        return [self._apply(command, now) for command in commands]

    def _apply(self, command: Command, now: float) -> Reply:
        key = (command.trigger, command.source, command.id)
        record = self._present(key, now)
        before = None if record is None else record.stored
        after, reply = apply(before, command, now)
        if after is None:
            self._records.pop(key, None)
        elif after is not before:
            self._records[key] = _record(after, record, command, now)
        return reply

    def _copies(self, trigger: str | None) -> list[Record]:
        """Those with a copy, oldest first."""
        found = [one for key, one in self._records.items() if one.copy is not None and trigger in (None, key[0])]
        return sorted(found, key=lambda one: one.parked_at)

    def _find(self, keys: Iterable[Key], now: float) -> list[Record | None]:
        return [self._present(key, now) for key in keys]

    def _present(self, key: Key, now: float) -> Record | None:
        record = self._records.get(key)
        return record if record is not None and record.stored.expires_at > now else None

    def _check_open(self) -> None:
        if self._closed:
            raise HistoryUnavailableError("the history in memory is closed")


def _record(after: Stored, record: Record | None, command: Command, now: float) -> Record:
    """The copy is the first one of those that were parked, and stays until the entry is completed."""
    change = copy_change(None if record is None else record.stored, after, command)
    if change == "put":
        return Record(after, _copy(command), now)
    if change == "add":
        assert record is not None
        assert record.copy is not None
        assert isinstance(command, Join)
        return record._replace(stored=after, copy=replace(record.copy, envelope=record.copy.envelope + command.frame))
    return Record(after, None, 0.0) if record is None or change == "drop" else record._replace(stored=after)


def _copy(command: Command) -> Park:
    if isinstance(command, Join):  # the first of a set
        return Park(trigger=command.trigger, id=command.id, source=command.source, token=command.token, envelope=command.frame)
    assert isinstance(command, Park)
    return command


def _parked(record: Record, now: float) -> ParkedMessage:
    stored, copy, parked_at = record
    assert copy is not None
    return ParkedMessage(
        trigger=copy.trigger,
        id=copy.id,
        source=copy.source,
        reason=stored.reason or "",
        delivery_count=copy.delivery_count,
        age=now - parked_at,
        copies=stored.copies,
        owner=stored.owner,
        attempt=stored.attempt,
        envelope=copy.envelope,
        decision=stored.decision,
        decided_by=stored.decided_by,
        decided=0.0 if stored.decided_at is None else now - stored.decided_at,
    )
