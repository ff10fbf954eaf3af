"""One queue, call by call: order, positions, counts, limits, times (T7 to T16)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from jmsclient.errors import ConfigurationError
from jmsclient.message import MessageKind, PlainContent
from jmsclient_embedded.entry import Entry, Holder
from jmsclient_embedded.invariants import check_queue
from jmsclient_embedded.queue import MessageQueue
from jmsclient_embedded.settings import QueueSettings
from jmsclient_embedded.states import State

NOW = 100.0
WALL = 1_000_000.0


class Bench:
    """A queue with two owners; each step is followed by the checker."""

    def __init__(self, **settings: Any) -> None:
        self.queue = MessageQueue("q", QueueSettings(**settings))
        self.owners = [Holder(self.queue, number, f"consumer-{number}") for number in (1, 2)]
        self.queue.holders.update({one.number: one for one in self.owners})
        self._sequence = itertools.count(1)

    def entries(self, *bodies: str, **headers: Any) -> list[Entry]:
        return [
            Entry(next(self._sequence), PlainContent(kind=MessageKind.TEXT, body=body, message_id=body, **headers))
            for body in bodies
        ]

    def add(self, *bodies: str, **headers: Any) -> list[Entry]:
        entries = self.entries(*bodies, **headers)
        self.queue.add(entries, WALL)
        self.check()
        return entries

    def take(self, most: int, owner: int = 0, wall: float = WALL) -> list[Entry]:
        granted, _ = self.queue.take(self.owners[owner], most, wall)
        self.check()
        return granted

    def back(self, *entries: Entry, counted: bool = False, **how: Any) -> list[Entry]:
        exceeded = self.queue.give_back(entries, counted=counted, now=NOW, **how)
        self.queue.moved += len(exceeded)  # the caller's part: it says what becomes of them
        self.check()
        return exceeded

    def check(self) -> None:
        check_queue(self.queue, self.owners)

    def order(self) -> list[str | None]:
        return [one.content.message_id for one in self.queue.unheld()]


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.check()


def ids(entries: list[Entry]) -> list[str | None]:
    return [one.content.message_id for one in entries]


def test_t7_t10_first_sent_first_taken_and_counted_as_pending(bench: Bench) -> None:
    bench.add("a", "bb", "ccc")
    assert ids(bench.take(2)) == ["a", "bb"]
    numbers = bench.queue.statistics()
    assert (numbers.messages_current, numbers.messages_pending, numbers.messages_high) == (1, 2, 3)
    assert (numbers.bytes_current, numbers.bytes_pending, numbers.bytes_received) == (3, 3, 6)


def test_priorities_go_first_and_values_beyond_the_range_are_clamped(bench: Bench) -> None:
    bench.add("low", priority=0)
    bench.add("normal")
    bench.add("high", priority=9)
    bench.add("higher than there is", priority=12)
    bench.add("lower than there is", priority=-3)
    assert ids(bench.take(9)) == ["high", "higher than there is", "normal", "low", "lower than there is"]


@pytest.mark.parametrize("given_back", [(0,), (1,), (2,), (0, 2), (2, 0), (1, 2, 0)])
def test_t13_t14_what_comes_back_takes_its_old_place(bench: Bench, given_back: tuple[int, ...]) -> None:
    bench.add("a", "b", "c", "d")
    taken = bench.take(3)
    for index in given_back:
        bench.back(taken[index], counted=index == 1)
    assert bench.order() == [one for one in "abcd" if one == "d" or "abc".index(one) in given_back]
    assert [one.count for one in taken] == [0, int(1 in given_back), 0]


def test_rule_order_after_mixed_priorities_come_back(bench: Bench) -> None:
    bench.add("low 1", "low 2", priority=1)
    bench.add("high 1", "high 2", priority=8)
    taken = bench.take(3)
    bench.back(*taken)
    assert bench.order() == ["high 1", "high 2", "low 1", "low 2"]


def test_t14_t8_a_delay_ends_at_its_time_in_the_old_place(bench: Bench) -> None:
    bench.add("a", "b")
    taken = bench.take(1)
    bench.back(*taken, counted=True, delay=5.0)
    assert taken[0].state is State.DELAYED
    assert bench.queue.next_due() == (NOW + 5.0, None)
    assert bench.queue.show_due(NOW + 4.999, WALL) == 0
    assert bench.queue.show_due(NOW + 5.0, WALL) == 1
    assert bench.order() == ["a", "b"]
    assert taken[0].count == 1


def test_if_3_an_unborn_message_follows_the_wall_clock(bench: Bench) -> None:
    bench.add("later", delivery_time=WALL + 60)
    bench.add("at once", delivery_time=WALL - 60)
    assert ids(bench.take(5)) == ["at once"]
    assert bench.queue.next_due() == (None, WALL + 60)
    assert bench.queue.show_due(NOW + 1e6, WALL) == 0
    assert bench.queue.show_due(NOW, WALL + 60) == 1
    assert ids(bench.take(5)) == ["later"]


@pytest.mark.parametrize(("limit", "deliveries"), [(0, 1), (1, 2), (3, 4)])
def test_if_13_t15_limit_n_is_n_plus_one_deliveries(limit: int, deliveries: int) -> None:
    bench = Bench(redelivery_limit=limit)
    bench.add("a")
    for delivery in range(1, deliveries + 1):
        (entry,) = bench.take(1)
        assert bench.back(entry) == []  # a release is no delivery, however often
        (entry,) = bench.take(1)
        exceeded = bench.back(entry, counted=True)
        assert exceeded == ([entry] if delivery == deliveries else [])
    assert entry.state is State.GONE
    assert bench.order() == []


def test_if_13_minus_one_is_no_limit(bench: Bench) -> None:
    bench.add("a")
    for _ in range(50):
        assert bench.back(*bench.take(1), counted=True) == []
    assert bench.take(1)[0].count == 50


def test_t16_a_receiver_that_may_not_have_it_finds_that_it_has_expired(bench: Bench) -> None:
    bench.add("a", expiration=WALL + 0.5)
    bench.back(*bench.take(1), counted=True, barred=True)
    assert bench.take(1, wall=WALL + 0.7) == []
    assert (bench.queue.expired, bench.order()) == (1, [])


def test_settlement_retry_elsewhere_is_not_offered_to_that_owner_again(bench: Bench) -> None:
    bench.add("a", "b")
    bench.back(*bench.take(1), counted=True, barred=True)
    assert ids(bench.take(5)) == ["b"]
    assert ids(bench.take(5, owner=1)) == ["a"]


def test_t12_accepted_is_gone_and_its_owner_forgets_it(bench: Bench) -> None:
    bench.add("a", "b")
    taken = bench.take(2)
    bench.queue.accept(taken[:1])
    bench.check()
    assert list(bench.owners[0].held) == [2]
    assert bench.queue.statistics().messages_acknowledged == 1


def test_if_33_expired_messages_are_never_taken(bench: Bench) -> None:
    bench.add("dies", expiration=WALL + 1)
    bench.add("lives", expiration=WALL + 10)
    granted, expired = bench.queue.take(bench.owners[0], 5, WALL + 1)
    assert (ids(granted), ids(expired)) == (["lives"], ["dies"])


def test_t16_the_scan_finds_visible_delayed_and_unborn_and_leaves_received(bench: Bench) -> None:
    bench.add("received", "delayed", "visible", expiration=WALL + 1)
    bench.add("unborn", expiration=WALL + 1, delivery_time=WALL + 5)  # IF-32: it expires unseen
    bench.add("stays")
    taken = bench.take(2)
    bench.back(taken[1], delay=9.0)
    assert bench.queue.expire(WALL) == []
    assert sorted(map(str, ids(bench.queue.expire(WALL + 1)))) == ["delayed", "unborn", "visible"]
    bench.check()
    assert bench.order() == ["stays"]
    assert not bench.queue.has_delayed
    bench.queue.accept(taken[:1])
    assert bench.queue.expiring == 0


def test_t4_t5_what_is_being_stored_is_pending_and_not_received_yet(bench: Bench) -> None:
    stored, failed = bench.entries("stored"), bench.entries("failed")
    bench.queue.begin_send(stored)
    bench.queue.begin_send(failed)
    bench.check()
    assert bench.take(5) == []
    numbers = bench.queue.statistics()
    assert (numbers.messages_pending, numbers.messages_received) == (2, 0)
    bench.add("sent after it, visible before it")
    bench.queue.end_send(stored, WALL)
    bench.queue.fail_send(failed)
    bench.check()
    assert bench.order() == ["stored", "sent after it, visible before it"]
    assert failed[0].state is State.GONE


def test_if_15_high_is_the_peak_of_current(bench: Bench) -> None:
    bench.add("a", "b", "c")
    bench.queue.accept(bench.take(3))
    bench.add("d")
    assert bench.queue.statistics().messages_high == 3


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"redelivery_limit": -2}, "redelivery_limit=-2"),
        ({"redelivery_limit": 1.5}, "redelivery_limit=1.5"),
        ({"redelivery_limit": True}, "redelivery_limit=True"),
        ({"error_destination": ""}, "error_destination=''"),
        ({"default_read_ahead": "yes"}, "default_read_ahead='yes'"),
    ],
)
def test_a_setting_that_cannot_work_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        QueueSettings(**settings)
