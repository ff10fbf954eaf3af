"""The intake on a receiver in memory: demand, taking, settling, fates (RA-5, RA-10 to RA-16, RA-26, IF-11, IF-17, IF-18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jmsclient.errors import ConnectionLostError, RequestTimeoutError
from jmsclient.intake import CloseReport, Intake
from jmsclient.testing.manual_clock import ManualClock
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Arrival

Attached = Callable[..., Intake]


def bodies(arrivals: list[Arrival]) -> list[Any]:
    return [arrival.content.body() for arrival in arrivals]


def no_answer(*_: Any) -> None:
    raise RequestTimeoutError("no answer")


def balanced(intake: Intake) -> bool:
    """RA-26: the equation."""
    c = intake.counters
    return c.fetched == c.delivered + c.buffered + c.held + c.released + c.purged + c.expired + c.discarded + c.refused


def test_ra12_no_demand_before_start_and_after_stop(receiver: Any, attached: Attached) -> None:
    intake = attached(window=4)
    receiver.put()
    assert receiver.requests == []
    intake.start()
    assert receiver.requests == [4]
    intake.stop()
    intake.settle(intake.take(1), ACCEPT)
    assert receiver.requests == [4]


def test_ra10_one_request_a_crossing(receiver: Any, attached: Attached) -> None:
    intake = attached(window=8)
    intake.start()
    for _ in range(16):
        receiver.put()
    taken = [intake.take(1)[0] for _ in range(8)]
    assert receiver.requests == [8, 2, 2, 2, 2]
    intake.settle(taken, ACCEPT)
    assert intake.counters.requests_sent == 5


def test_ra9_demand_is_taken_back_when_messages_turn_out_large(receiver: Any, attached: Attached) -> None:
    """RA-9: asked for by the size of small ones; what then comes is large, so the rest is asked for by that size."""
    intake = attached(window=1000, window_bytes=100_000)
    intake.start()
    receiver.put(size=50)
    intake.take(1)
    assert (receiver.requests, receiver.withdrawn) == ([1, 1000], []), "by the size of what came"
    receiver.put(size=60_000)
    assert receiver.withdrawn == [999]
    assert receiver.demand == 0
    for _ in range(5):
        receiver.put(size=60_000)
    assert intake.buffered == 1, "one more of these would be too many bytes"
    seen: list[Any] = []
    while (taken := intake.take(1)) and len(seen) < 10:
        seen += bodies(taken)
        assert intake.counters.buffered_bytes <= 100_000
    assert seen == ["2", "3", "4", "5", "6", "7"], "nothing hangs"
    assert receiver.withdrawn == [999], "once"


def test_ra5_only_non_persistent_messages_are_taken_in_one_call(receiver: Any, attached: Attached) -> None:
    intake = attached(window=10, takes=True)
    for persistent in (False, False, True, False):
        receiver.put(persistent=persistent)
    intake.start()
    assert receiver.settled == [(["1", "2", "4"], "accept")]
    assert bodies(intake.take(4)) == ["1", "2", "3", "4"]
    assert intake.counters.taken == 3


def test_if17_a_trigger_counts_what_it_has_out(receiver: Any, attached: Attached) -> None:
    intake = attached(window=4, counts_unsettled=True)
    intake.start()
    for _ in range(8):
        receiver.put()
    taken = intake.take(4)
    assert (receiver.requests, intake.buffered) == ([4], 0)
    intake.settle(taken, ACCEPT)
    assert (receiver.requests, intake.buffered) == ([4, 4], 4)


def test_settling_twice_counts_once(receiver: Any, attached: Attached) -> None:
    intake = attached()
    intake.start()
    receiver.put()
    taken = intake.take(1)
    intake.settle(taken, RELEASE)
    intake.settle(taken, RELEASE)
    assert intake.counters.released == 1
    assert balanced(intake)


def test_counts_of_a_trigger_delivered_released_and_held(receiver: Any, attached: Attached) -> None:
    """RA-26: handed over counts as delivered whatever comes after; a duplicate that is acknowledged too."""
    intake = attached(counts_unsettled=True)
    intake.start()
    for _ in range(5):
        receiver.put()
    first, second, third, fourth = intake.take(4)
    intake.handing_over([first])
    intake.settle([first], RETRY)
    intake.settle([second], ACCEPT)
    intake.settle([third], RELEASE)
    counters = intake.counters
    assert (counters.delivered, counters.released, counters.held, counters.buffered) == (2, 1, 1, 1)
    assert balanced(intake)
    intake.put_back([fourth])
    assert bodies(intake.take(5)) == ["4", "5"]
    assert balanced(intake)


def test_put_back_after_a_hand_over_takes_the_count_back(receiver: Any, attached: Attached) -> None:
    intake = attached()
    intake.start()
    receiver.put()
    taken = intake.take(1)
    intake.handing_over(taken)
    intake.put_back(taken)
    assert (intake.counters.delivered, taken[0].handed_over) == (0, False)
    assert balanced(intake)


@pytest.mark.parametrize("records", [True, False])
def test_if11_hand_over_is_recorded_for_persistent_ones_where_declared(receiver: Any, attached: Attached, records: bool) -> None:
    intake = attached(records_hand_over=records)
    intake.start()
    receiver.put()
    receiver.put(persistent=False)
    taken = intake.take(2)
    intake.handing_over(taken)
    assert receiver.handed_over == (["1"] if records else [])
    assert all(arrival.handed_over for arrival in taken)


def test_ra11_expired_ones_are_settled_and_counted_not_handed_out(receiver: Any, attached: Attached) -> None:
    clock = ManualClock()
    intake = attached(clock=clock)
    intake.start()
    receiver.put(expires_at=clock.wall() + 5)
    receiver.put()
    clock.advance(6)
    assert bodies(intake.take(2)) == ["2"]
    assert receiver.settled == [(["1"], "release")]
    assert balanced(intake)


def test_ra14_buffered_kept_ones_are_released_and_taken_ones_stay(receiver: Any, attached: Attached) -> None:
    intake = attached(takes=True)
    intake.start()
    for persistent in (False, True, False, True):
        receiver.put(persistent=persistent)
    assert intake.release_buffered() == 2
    assert receiver.settled[-1] == (["2", "4"], "release")
    assert bodies(intake.take(5)) == ["1", "3"]


@pytest.mark.parametrize(("discard", "left", "report"), [(True, 0, CloseReport(0, 1, 2)), (False, 2, CloseReport(0, 1, 0))])
def test_ra16_close_releases_kept_and_drops_taken_unless_told(
    receiver: Any, attached: Attached, discard: bool, left: int, report: CloseReport
) -> None:
    intake = attached(takes=True)
    intake.start()
    for persistent in (False, True, False):
        receiver.put(persistent=persistent)
    assert intake.close(None, discard_taken=discard) == report
    assert (intake.buffered, receiver.closed, receiver.demand) == (left, True, 0)
    assert balanced(intake)
    assert intake.close(None, discard_taken=discard) == CloseReport()


def test_if27_close_may_keep_the_receiver_for_what_is_unsettled(receiver: Any, attached: Attached) -> None:
    intake = attached()
    intake.start()
    receiver.put()
    taken = intake.take(1)
    intake.close(None, keep_receiver=True)
    assert not receiver.closed
    intake.settle(taken, ACCEPT)
    intake.close_receiver(None)
    assert receiver.closed


def test_close_goes_on_when_the_provider_does_not_answer(receiver: Any, attached: Attached) -> None:
    intake = attached()
    intake.start()
    receiver.put()
    receiver.drain = no_answer
    assert intake.close(0.0) == CloseReport(released=1)
    assert receiver.closed


def test_if9_what_arrives_after_the_end_goes_back(receiver: Any, attached: Attached) -> None:
    intake = attached()
    intake.start()
    intake.close(None)
    receiver.demand = 1
    receiver.put()
    assert receiver.settled == [(["1"], "release")]
    assert intake.counters.fetched == 0


def test_if18_drain_takes_demand_back_and_asks_again_only_with_a_window(receiver: Any, attached: Attached) -> None:
    intake = attached(window=5)
    intake.start()
    assert intake.drain(None)
    assert receiver.requests == [5, 5]
    assert receiver.demand == 5


def test_if18_a_drain_that_is_late_asks_the_link_that_came_meanwhile(receiver: Any) -> None:
    """Nobody else would before the next receive, and a listener has none."""
    kind = type(receiver)
    old, new = kind(), kind()

    class Lasting(kind):  # type: ignore[misc, valid-type]
        present: Any = old

    lasting = Lasting()
    intake = Intake(window=5, clock=ManualClock(), on_arrival=lambda: None)
    intake.attach(lasting)
    intake.start()

    def outlive(deadline: float | None) -> None:
        lasting.present = new
        intake.renewed()
        assert new.requests == []
        no_answer()

    old.drain = outlive
    with pytest.raises(RequestTimeoutError):
        intake.drain(None)
    assert (old.requests, new.requests, intake.counters.granted, intake.unsure) == ([5], [5], 5, False)


def test_if18_a_drain_that_is_late_asks_for_what_was_taken_meanwhile(receiver: Any, attached: Attached) -> None:
    intake = attached(window=4)
    intake.start()
    for _ in range(4):
        receiver.put()

    def slow(deadline: float | None) -> None:
        intake.take(4)
        assert receiver.requests == [4]
        no_answer()

    receiver.drain = slow
    with pytest.raises(RequestTimeoutError):
        intake.drain(None)
    assert (receiver.requests, intake.unsure) == ([4, 4], True)


def test_if16_without_a_window_demand_exists_only_when_wanted(receiver: Any, attached: Attached) -> None:
    intake = attached(window=0)
    intake.start()
    assert receiver.requests == []
    intake.want_one()
    intake.want_one()
    assert receiver.demand == 1
    assert intake.drain(None)
    assert (receiver.demand, intake.counters.granted) == (0, 0)


def test_a_provider_that_cannot_drain_keeps_its_demand(receiver: Any, attached: Attached) -> None:
    receiver.can_drain = False
    intake = attached(window=3)
    intake.start()
    assert not intake.drain(None)
    assert intake.counters.granted == 3


def test_if40_an_exception_in_a_request_leaves_the_demand_to_be_resolved(receiver: Any, attached: Attached) -> None:
    """What the provider then owes is not known; a drain makes it known, and the window is asked for once."""
    intake = attached(window=3)
    request = receiver.request

    def struck(count: int) -> None:
        receiver.request = request
        raise KeyboardInterrupt

    receiver.request = struck
    with pytest.raises(KeyboardInterrupt):
        intake.start()
    assert intake.unsure
    intake.drain(None)
    assert (receiver.demand, intake.counters.granted, intake.unsure) == (3, 3, False)


def test_rings_once_a_batch_and_only_where_somebody_may_wait(receiver: Any, attached: Attached) -> None:
    rings: list[int] = []
    intake = attached(on_arrival=lambda: rings.append(1))
    receiver.supply = []
    intake.start()
    for _ in range(3):
        receiver.put()
    assert len(rings) == 1
    intake.take(3)
    receiver.put()
    assert len(rings) == 2


def test_closed_by_the_peer_releases_what_was_kept_and_tells(receiver: Any, attached: Attached) -> None:
    heard: list[Exception | None] = []
    intake = attached(takes=True, on_closed=heard.append)
    intake.start()
    receiver.put()
    receiver.put(persistent=False)
    error = ConnectionLostError("gone")
    intake.closed(error)
    assert (heard, intake.closed_error, intake.ended) == ([error], error, True)
    assert bodies(intake.take(3)) == ["2"]
    assert balanced(intake)
