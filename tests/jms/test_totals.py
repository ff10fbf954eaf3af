"""What waits in client buffers, by destination and in all (RA-26, RA-27)."""

from __future__ import annotations

from collections.abc import Callable

from jmsclient import BufferCounters, Connection
from jmsclient.jms.totals import NOTHING, added

Put = Callable[..., list[str]]
Until = Callable[..., None]


def test_ra27_sums_by_destination_and_in_all(connection: Connection, put: Put, wait_until: Until) -> None:
    assert connection.read_ahead.total == NOTHING
    put("a", "b", "c", "d", queue="Q1")
    put("e", queue="Q2")
    session = connection.create_session()
    one = session.create_consumer("queue:///Q1?readAheadAllowed=YES", prefetch=2)
    two = session.create_consumer("Q2")
    other = connection.create_session().create_consumer("Q1", prefetch=2)
    wait_until(lambda: connection.read_ahead.total.buffered == 5)
    totals = connection.read_ahead
    assert {address: counters.buffered for address, counters in totals.destinations.items()} == {"queue:///Q1": 4, "queue:///Q2": 1}
    assert one.receive(10) is not None
    two.close()  # what closed ones had counted is kept
    del other
    totals = connection.read_ahead
    assert totals.destinations["queue:///Q1"].delivered == 1
    assert totals.destinations["queue:///Q2"].released == 1
    assert totals.total == added(totals.destinations.values())


def test_ra27_the_closed_connection_still_says_what_became_of_all(connection: Connection, put: Put, wait_until: Until) -> None:
    put("a", "b", "c", persistent=False)
    consumer = connection.create_session().create_consumer("queue:///Q?readAheadAllowed=YES")
    wait_until(lambda: connection.read_ahead.total.buffered_taken == 3)
    assert consumer.receive(10) is not None
    connection.close()
    total = connection.read_ahead.total
    assert (total.fetched, total.delivered, total.discarded, total.buffered) == (3, 1, 2, 0)


def test_added_of_nothing_is_nothing() -> None:
    assert added([]) == NOTHING
    assert isinstance(added([NOTHING]), BufferCounters)
