"""The messages that wait in the client, kept and taken, and how many more to ask for.

Owns the order (transport order, RA-6), the window in messages and bytes (RA-9), the refill (RA-10) and the counters of RA-26. It
knows no threads and no clock: `jmsclient.intake` guards it, and time comes in as an argument. One liberty is taken with that
guard, for the sake of speed: the one thread that receives pops `queue` from the left without a lock. So everything else that
removes messages takes them from the right (`remove`), and whoever has looked at `queue[0]` either pops exactly that message or
finds the queue empty. Rules RA-5, RA-6, RA-9 to RA-11, RA-16, RA-26, IF-16, IF-17.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from jmsclient.transport.contract import Arrival

FIRST_SIZE = 65536
"""Bytes a message is taken to have before the first one arrived: bounds what the first request can flood."""
_size = attrgetter("size")


@dataclass(frozen=True, kw_only=True, slots=True)
class BufferCounters:
    """RA-26 at one moment. At any quiet point `fetched` is the sum of delivered, buffered, held, released, purged, expired,
    discarded and refused. `taken` counts arrivals that were settled on arrival."""

    fetched: int
    delivered: int
    buffered: int
    buffered_taken: int
    buffered_bytes: int
    held: int
    released: int
    purged: int
    expired: int
    discarded: int
    refused: int
    requests_sent: int
    taken: int
    granted: int


class Buffer:
    """One consumer's or trigger's buffer (RA-8). `window` in messages, `window_bytes` in bytes, `refill` in percent."""

    __slots__ = (
        "_arrived",
        "_counts_unsettled",
        "_low",
        "_low_bytes",
        "_recent_size",
        "_share",
        "_window_bytes",
        "delivered",
        "discarded",
        "expired",
        "fetched",
        "granted",
        "mark",
        "out",
        "purged",
        "queue",
        "refused",
        "released",
        "requests_sent",
        "taken",
        "window",
    )

    def __init__(self, *, window: int, window_bytes: int, refill: int | Literal["empty"], counts_unsettled: bool) -> None:
        share = 0 if refill == "empty" else refill
        self.queue: deque[Arrival] = deque()
        self.granted = 0
        """Requested and not yet arrived."""
        self.out: dict[int, Arrival] = {}
        """Handed out by `take` and not settled, by identity."""
        self.mark = -1
        """While more messages than this are buffered, `plan` would ask for none."""
        self.fetched = self.delivered = self.released = self.discarded = self.expired = self.purged = self.refused = 0
        self.requests_sent = self.taken = 0
        self._arrived: deque[tuple[int, float]] = deque()  # of each batch: `fetched` after it, and when it came
        self._share = share
        self._window_bytes = window_bytes
        self._low_bytes = window_bytes * share // 100
        self._recent_size = 0
        self._counts_unsettled = counts_unsettled
        self.set_window(window)

    def set_window(self, window: int) -> None:
        """Set the window in messages; before anything was requested."""
        self.window = window
        self._low = min(window - 1, window * self._share // 100)
        self._set_mark()

    # -- demand -----------------------------------------------------------------------------------------------------

    def plan(self) -> int:
        """How many to request now, counted as granted; 0 while more than the refill share is left. One answer above 0 for
        each crossing of that share (RA-10), and never more than fits into the window (IF-17)."""
        used = self.granted + len(self.queue) + (len(self.out) if self._counts_unsettled else 0)
        room = self.window - used if used <= self._low else 0
        size = self._recent_size or FIRST_SIZE
        later = None
        if room > 0 and size * self.window > self._window_bytes:
            waiting = tuple(self.queue)
            used_bytes = sum(map(_size, waiting)) + self.granted * size
            if used_bytes > self._low_bytes and used > 0:
                room = 0
            else:
                room = max(min(room, (self._window_bytes - used_bytes) // size), 0 if used else 1)
            if not room:  # not each message that leaves is worth a new sum, only as many as the bytes that are too many
                excess = max(1, -(-(used_bytes - self._low_bytes) // size))
                later = max(len(waiting) - excess, -self.granted)
        if room > 0:
            self.granted += room
            self.requests_sent += 1
        self._set_mark()
        if later is not None:
            self.mark = min(self.mark, later)
        return room

    def want_one(self) -> bool:
        """Without a window: ask for one message, unless one is asked for or here already (IF-17)."""
        if self.granted > 0 or self.queue:
            return False
        self.granted += 1
        self.requests_sent += 1
        return True

    @property
    def flooded(self) -> bool:
        """Messages turned out so large that what is granted is twice what the window in bytes allows. Twice, so that a small
        difference in size costs nothing."""
        return self.granted * self._recent_size > 2 * self._window_bytes

    def withdrawn(self, count: int) -> None:
        """So much demand was taken back. Of what was on its way already, nothing is granted any more."""
        self.granted -= min(count, self.granted)
        self._set_mark()

    def drained(self) -> None:
        """All demand was taken back."""
        self.granted = 0
        self._set_mark()

    def _set_mark(self) -> None:
        self.mark = self._low - self.granted - (len(self.out) if self._counts_unsettled else 0)

    # -- messages ---------------------------------------------------------------------------------------------------

    def add(self, batch: list[Arrival], now: float) -> bool:
        """A batch behind all others, at `now` (monotonic). True where a receiver may be waiting: nothing older was left."""
        count = len(batch)
        largest = max(map(_size, batch)) or 1
        self._recent_size = max(largest, (7 * self._recent_size + largest) // 8)
        asked = min(count, self.granted)  # others were on their way when demand was taken back
        try:
            self.queue.extend(batch)
        finally:  # plain stores: an exception from a signal handler that strikes after `extend` still finds them done
            self.fetched += count
            self.granted -= asked
            self.mark += asked
        arrived, gone = self._arrived, self.fetched - len(self.queue)
        while arrived and arrived[0][0] <= gone:
            arrived.popleft()
        arrived.append((self.fetched, now))
        return len(self.queue) <= count

    def take(self, limit: int, wall: float) -> tuple[list[Arrival], list[Arrival]]:
        """Up to `limit` from the head, and those that had expired by `wall` (seconds since 1970; RA-11)."""
        taken: list[Arrival] = []
        expired: list[Arrival] = []
        queue, out = self.queue, self.out
        while queue and len(taken) < limit:
            arrival = queue.popleft()
            expires_at = arrival.expires_at
            if expires_at is not None and expires_at <= wall:
                expired.append(arrival)
            else:
                out[id(arrival)] = arrival
                taken.append(arrival)
        self.expired += len(expired)
        self._set_mark()
        return taken, expired

    def put_back(self, arrivals: Iterable[Arrival]) -> None:
        """To the head, in the order given; as if nobody had seen them."""
        for arrival in reversed(list(arrivals)):
            out = self.out.pop(id(arrival), None)
            if out is not None and arrival.handed_over:
                self.delivered -= 1
                arrival.handed_over = False
            self.queue.appendleft(arrival)
        self._set_mark()

    def remove(self, which: Callable[[Arrival], bool]) -> list[Arrival]:
        """Take out those that `which` names, in order; the others stay in order."""
        gone: list[Arrival] = []
        stay: list[Arrival] = []
        try:
            while True:
                arrival = self.queue.pop()
                (gone if which(arrival) else stay).append(arrival)
        except IndexError:
            pass
        self.queue.extend(reversed(stay))
        gone.reverse()
        self._set_mark()
        return gone

    def aged(self, now: float, least: float) -> dict[int, float]:
        """Seconds that each message at the head has waited which waited at least `least`, by identity (RA-11). By batches; where
        messages left from the middle, some are found later than they could be, never earlier."""
        waiting = tuple(self.queue)
        found: dict[int, float] = {}
        position = 0
        for last, at in tuple(self._arrived):
            if now - at < least:
                break
            end = len(waiting) - (self.fetched - last)
            for arrival in waiting[position : max(position, end)]:
                found[id(arrival)] = now - at
            position = max(position, end)
        return found

    def forget(self, arrivals: Iterable[Arrival]) -> tuple[int, int]:
        """These are settled now: how many of them were out, and how many of those nobody had seen."""
        known = unseen = 0
        for arrival in arrivals:
            if self.out.pop(id(arrival), None) is not None:
                known += 1
                unseen += not arrival.handed_over
        self._set_mark()
        return known, unseen

    # -- figures ----------------------------------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        """Bytes that wait here."""
        return sum(map(_size, tuple(self.queue)))

    def oldest_age(self, now: float) -> float:
        """Seconds that the head has waited; 0.0 where nothing waits. By batches, so it may name the batch before."""
        waiting = len(self.queue)
        gone = self.fetched - waiting
        return next((now - at for last, at in tuple(self._arrived) if last > gone), 0.0) if waiting else 0.0

    def counters(self) -> BufferCounters:
        """All counters at this moment (RA-26)."""
        waiting = tuple(self.queue)
        return BufferCounters(
            fetched=self.fetched,
            delivered=self.delivered,
            buffered=len(waiting),
            buffered_taken=sum(arrival.settled for arrival in waiting),
            buffered_bytes=sum(map(_size, waiting)),
            held=sum(not arrival.handed_over for arrival in tuple(self.out.values())),
            released=self.released,
            purged=self.purged,
            expired=self.expired,
            discarded=self.discarded,
            refused=self.refused,
            requests_sent=self.requests_sent,
            taken=self.taken,
            granted=self.granted,
        )
