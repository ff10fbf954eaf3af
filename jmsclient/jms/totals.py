"""What waits in all client buffers of a connection, by destination and in all (RA-27).

So "depth 0 at the provider" can be read next to "n in client buffers". It adds up counters (RA-26) and knows nothing else; a
connection says which consumers there are, and keeps what closed ones had counted. Rules RA-26, RA-27.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from types import MappingProxyType

from jmsclient.buffer import BufferCounters

_NAMES = tuple(field.name for field in fields(BufferCounters))
_values = attrgetter(*_NAMES)
NOTHING = BufferCounters(**dict.fromkeys(_NAMES, 0))


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadAheadTotals:
    """The counters of RA-26 at one moment, of all consumers that the connection has or had. `destinations` is by address, such
    as `queue:///orders`; `total` is their sum."""

    total: BufferCounters
    destinations: Mapping[str, BufferCounters]


def added(counters: Iterable[BufferCounters]) -> BufferCounters:
    """Their sum."""
    columns = zip(*map(_values, counters), strict=True)
    sums = dict(zip(_NAMES, map(sum, columns), strict=False))
    return BufferCounters(**sums) if sums else NOTHING


class Tally:
    """Counters by destination. Not thread-safe: the connection's keeper adds and reads."""

    def __init__(self) -> None:
        self._closed: dict[str, BufferCounters] = {}

    def closed(self, address: str, counters: BufferCounters) -> None:
        """A consumer of that destination counted this, and counts no more."""
        self._closed[address] = added((self._closed.get(address, NOTHING), counters))

    def totals(self, living: Iterable[tuple[str, BufferCounters]]) -> ReadAheadTotals:
        """With those that are open, by address."""
        found = dict(self._closed)
        for address, counters in living:
            found[address] = added((found.get(address, NOTHING), counters))
        return ReadAheadTotals(total=added(found.values()), destinations=MappingProxyType(found))
