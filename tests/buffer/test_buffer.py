"""The pure buffer: order, window, refill, counters (RA-6, RA-9, RA-10, RA-26, IF-17)."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jmsclient.buffer import Buffer
from jmsclient.message import MessageKind, PlainContent
from jmsclient.transport.contract import Arrival


def arrival(number: int = 0, *, persistent: bool = True, size: int = 100, expires_at: float | None = None) -> Arrival:
    content = PlainContent(kind=MessageKind.TEXT, body=str(number), message_id=f"ID:{number}")
    receiver: Any = None
    return Arrival(receiver, number, content, delivery_count=1, persistent=persistent, size=size, expires_at=expires_at)


def buffer(
    window: int = 10, window_bytes: int = 8 << 20, refill: int | Literal["empty"] = 75, counts_unsettled: bool = False
) -> Buffer:
    return Buffer(window=window, window_bytes=window_bytes, refill=refill, counts_unsettled=counts_unsettled)


def bodies(arrivals: Any) -> list[Any]:
    return [one.content.body() for one in arrivals]


def test_ra10_first_request_is_the_window_and_then_one_a_crossing() -> None:
    """RA-10: with 75 percent, one request each time what is left falls to that share, and it tops up."""
    one = buffer(window=100)
    assert one.plan() == 100
    one.add([arrival(number) for number in range(100)], 0.0)
    requests = []
    for taken in range(1, 101):
        one.queue.popleft()
        if len(one.queue) <= one.mark:
            requests.append((taken, one.plan()))
    assert requests == [(25, 25), (50, 25), (75, 25), (100, 25)]
    assert one.requests_sent == 5


def test_ra10_empty_asks_when_nothing_is_left() -> None:
    one = buffer(window=4, refill="empty")
    assert one.plan() == 4
    one.add([arrival(number) for number in range(4)], 0.0)
    answers = []
    for _ in range(4):
        one.queue.popleft()
        answers.append(one.plan())
    assert answers == [0, 0, 0, 4]


def test_ra9_a_message_larger_than_the_bytes_still_arrives() -> None:
    """RA-9: an empty buffer may take one of any size; the next is asked for only when it has gone."""
    one = buffer(window=10, window_bytes=1000)
    assert one.plan() == 1
    one.add([arrival(size=5000)], 0.0)
    assert one.plan() == 0
    one.queue.popleft()
    assert one.plan() == 1


def test_ra9_requests_follow_recent_sizes() -> None:
    one = buffer(window=100, window_bytes=1000)
    assert one.plan() == 1
    one.add([arrival(size=100)], 0.0)
    one.queue.popleft()
    assert one.plan() == 10
    assert one.granted * 100 <= 1000


def test_ra9_demand_for_small_messages_is_too_much_for_large_ones() -> None:
    """RA-9: what is granted by the size of small ones is taken back when large ones come, then asked for by their size."""
    one = buffer(window=1000, window_bytes=100_000)
    one.plan()
    one.add([arrival(size=50)], 0.0)
    one.queue.popleft()
    one.plan()
    assert one.granted == 1000
    one.add([arrival(size=190)], 0.0)
    assert (one.granted, one.flooded) == (999, False), "up to twice the window in bytes: a small difference costs nothing"
    one.add([arrival(size=20_000)], 0.0)
    assert (one.granted, one.flooded) == (998, True)
    one.withdrawn(998)
    assert (one.granted, one.flooded) == (0, False)
    one.add([arrival(size=20_000)] * 3, 0.0)
    assert one.granted == 0, "what was on its way was not asked for any more"
    one.queue.clear()
    assert one.plan() == 5
    one.add([arrival(size=20_000)] * 7, 0.0)
    assert one.granted == 0
    one.queue.clear()
    assert one.mark >= 0, "nothing is granted, so more is asked for"
    assert one.plan() == 5


def test_ra10_bytes_are_summed_up_a_few_times_a_request_not_once_a_message() -> None:
    """RA-9, RA-10: where the bytes decide, `mark` says how many messages have to leave before it is worth to ask again, and the
    request is made at the same message as if each had been asked about."""
    one = buffer(window=1000, window_bytes=8_000_000)
    one.add([arrival(size=10_000)], 0.0)
    one.queue.popleft()
    assert one.plan() == 800
    one.add([arrival(size=10_000) for _ in range(800)], 0.0)
    plans, requests = 0, []
    for taken in range(1, 801):
        one.queue.popleft()
        if len(one.queue) <= one.mark:
            plans += 1
            count = one.plan()
            if count:
                requests.append((taken, count))
    assert requests == [(200, 200), (400, 200), (600, 200), (800, 200)]
    assert plans <= 3 * len(requests)


@given(
    sizes=st.lists(st.sampled_from([1, 10, 1000, 9_999, 50_000, 250_000]), min_size=1, max_size=300),
    steps=st.lists(st.booleans(), max_size=40),
    window=st.sampled_from([1, 7, 100]),
    refill=st.sampled_from(["empty", 1, 75, 100]),
)
def test_ra9_whatever_the_sizes_demand_never_dries_up(sizes: list[int], steps: list[bool], window: int, refill: Any) -> None:
    """RA-10: an application that asks only where `mark` says so still gets every message."""
    one = buffer(window=window, window_bytes=100_000, refill=refill)
    one.plan()
    coming = [arrival(number, size=size) for number, size in enumerate(sizes)]
    turns = iter(steps)
    while coming:
        assert one.granted or one.queue, "neither asked for nor here: it would wait for ever"
        if one.granted and (not one.queue or next(turns, True)):
            count = min(one.granted, 3, len(coming))
            one.add(coming[:count], 0.0)
            del coming[:count]
        else:
            one.queue.popleft()
        if len(one.queue) <= one.mark:
            one.plan()


def test_if17_unsettled_ones_count_for_a_trigger() -> None:
    one = buffer(window=4, refill=100, counts_unsettled=True)
    assert one.plan() == 4
    one.add([arrival(number) for number in range(4)], 0.0)
    taken, _ = one.take(3, wall=0.0)
    assert one.plan() == 0
    assert one.forget(taken) == (3, 3)
    assert one.plan() == 3


def test_if16_without_a_window_one_is_wanted_at_a_time() -> None:
    one = buffer(window=0)
    assert one.plan() == 0
    assert one.want_one()
    assert not one.want_one()
    one.add([arrival()], 0.0)
    assert not one.want_one()
    one.queue.popleft()
    assert one.want_one()


def test_ra11_expired_messages_are_not_taken() -> None:
    one = buffer()
    one.add([arrival(1, expires_at=5.0), arrival(2), arrival(3, expires_at=50.0)], 0.0)
    taken, expired = one.take(5, wall=10.0)
    assert (bodies(taken), bodies(expired), one.expired) == (["2", "3"], ["1"], 1)


def test_put_back_keeps_the_order() -> None:
    one = buffer()
    one.add([arrival(number) for number in range(5)], 0.0)
    taken, _ = one.take(3, wall=0.0)
    one.put_back(taken)
    assert bodies(one.queue) == ["0", "1", "2", "3", "4"]
    assert not one.out


def test_oldest_age_is_that_of_the_head() -> None:
    """RA-26."""
    one = buffer()
    assert one.oldest_age(9.0) == 0.0
    one.add([arrival(1), arrival(2)], 10.0)
    one.add([arrival(3)], 12.0)
    assert one.oldest_age(15.0) == 5.0
    one.queue.popleft()
    one.queue.popleft()
    assert one.oldest_age(15.0) == 3.0


def test_add_tells_when_a_waiter_may_be_waiting() -> None:
    one = buffer()
    assert one.add([arrival(1), arrival(2)], 0.0)
    assert not one.add([arrival(3)], 0.0)


@given(st.lists(st.booleans(), max_size=30))
def test_ra6_remove_keeps_the_order_of_both_halves(kept: list[bool]) -> None:
    one = buffer()
    if kept:
        one.add([arrival(number, persistent=persistent) for number, persistent in enumerate(kept)], 0.0)
    gone = one.remove(lambda candidate: candidate.persistent)
    assert [candidate.tag for candidate in gone] == [number for number, persistent in enumerate(kept) if persistent]
    assert [candidate.tag for candidate in one.queue] == [number for number, persistent in enumerate(kept) if not persistent]


@pytest.mark.parametrize("refill", [1, 50, 75, 100, "empty"])
@given(steps=st.lists(st.tuples(st.sampled_from(["arrive", "pop", "plan"]), st.integers(1, 20)), max_size=60))
def test_if17_granted_and_buffered_never_exceed_the_window(refill: Any, steps: list[tuple[str, int]]) -> None:
    one = buffer(window=12, refill=refill)
    for step, count in steps:
        if step == "plan":
            one.plan()
        elif step == "arrive" and (batch := min(count, one.granted)):
            one.add([arrival() for _ in range(batch)], 0.0)
        elif step == "pop" and one.queue:
            one.queue.popleft()
        assert 0 <= one.granted + len(one.queue) <= 12


class BufferMachine(RuleBasedStateMachine):
    """RA-26: what was fetched is always somewhere, against a model of plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = buffer(window=20, refill=50, counts_unsettled=True)
        self.model: list[int] = []
        self.out: list[Arrival] = []
        self.next = 0
        self.settled = self.released = 0

    @rule(count=st.integers(1, 8))
    def arrive(self, count: int) -> None:
        self.buffer.plan()
        batch = [arrival(self.next + index) for index in range(min(count, self.buffer.granted))]
        if batch:
            self.buffer.add(batch, 0.0)
            self.next += len(batch)
            self.model += [one.tag for one in batch]

    @rule(limit=st.integers(1, 5))
    def take(self, limit: int) -> None:
        taken, _ = self.buffer.take(limit, wall=0.0)
        assert [one.tag for one in taken] == self.model[:limit]
        del self.model[:limit]
        self.out += taken

    @rule()
    def put_back(self) -> None:
        self.buffer.put_back(self.out)
        self.model = [one.tag for one in self.out] + self.model
        self.out = []

    @rule(count=st.integers(1, 5))
    def settle(self, count: int) -> None:
        done, self.out = self.out[:count], self.out[count:]
        assert self.buffer.forget(done) == (len(done), len(done))
        assert self.buffer.forget(done) == (0, 0)
        self.settled += len(done)

    @rule(parity=st.integers(0, 1))
    def remove(self, parity: int) -> None:
        gone = self.buffer.remove(lambda one: one.tag % 2 == parity)
        assert [one.tag for one in gone] == [tag for tag in self.model if tag % 2 == parity]
        self.model = [tag for tag in self.model if tag % 2 != parity]
        self.released += len(gone)

    @invariant()
    def everything_is_somewhere(self) -> None:
        assert [one.tag for one in self.buffer.queue] == self.model
        counters = self.buffer.counters()
        assert counters.fetched == self.settled + self.released + counters.buffered + counters.held
        assert counters.granted + counters.buffered + counters.held <= 20


TestBufferMachine = BufferMachine.TestCase


def test_ra11_aged_names_the_head_that_waited_long_enough() -> None:
    """RA-11: by batches, with the age of each; messages that left from the middle never make another look older."""
    one = buffer()
    one.plan()
    first, second, third = [[arrival(number), arrival(number + 1)] for number in (1, 3, 5)]
    for at, batch in ((10.0, first), (20.0, second), (30.0, third)):
        one.add(batch, at)
    assert one.aged(40.0, 31.0) == {}
    assert one.aged(40.0, 20.0) == {id(each): 30.0 for each in first} | {id(each): 20.0 for each in second}
    one.queue.popleft()
    assert one.aged(40.0, 30.0) == {id(first[1]): 30.0}
    one.remove(lambda each: each is second[0])
    assert set(one.aged(40.0, 20.0)) <= {id(first[1]), id(second[1])}
    assert len(one.aged(40.0, 10.0)) == 4
