"""Plain messages wait as bare contents (`MessageQueue.put`), texts that came together as one (`MessageQueue.put_texts`), and both
are held as deliveries (`MessageQueue.take_bare`): nobody can tell them from those that were entries from the start.

Four queues are driven alike, and only what comes out is compared: the checker walks over everything, and whoever looks at a message
makes an entry of it.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jmsclient.message import MessageKind, PlainContent, Texts
from jmsclient.selector import compile_selector
from jmsclient.transport.contract import Receiver
from jmsclient_embedded.entry import Delivery, Entry, Holder, deliveries
from jmsclient_embedded.invariants import check_queue
from jmsclient_embedded.queue import MessageQueue
from jmsclient_embedded.selection import Selection
from jmsclient_embedded.settings import QueueSettings
from jmsclient_embedded.states import State

NOW, WALL = 50.0, 1000.0
RECEIVER: Receiver = None  # type: ignore[assignment]  # nobody asks it for anything


def texts(*bodies: str, **headers: Any) -> Texts:
    alike = {"destination": "queue:///q", "persistent": False, "priority": 4, "timestamp": 1.0, **headers}
    return Texts(list(bodies), [f"ID:{number}" for number in range(len(bodies))], **alike)


def content(body: str = "x", **headers: Any) -> PlainContent:
    return PlainContent(kind=MessageKind.TEXT, body=body, **headers)


class Side:
    """A queue with two owners; what is done to it is named by sequence numbers."""

    def __init__(self, how: str) -> None:
        self.queue = MessageQueue("q", QueueSettings())
        self.owners = [Holder(self.queue, number, f"consumer-{number}") for number in (1, 2)]
        self.queue.holders.update({one.number: one for one in self.owners})
        self._how = how
        self._sequence = itertools.count(1)

    def _reserve(self, count: int) -> int:
        first, *_ = (next(self._sequence) for _ in range(count))
        return first

    def send(self, priority: int, number: int, expires: bool) -> None:
        if self._how in ("texts", "deliveries") and not expires:
            assert self.queue.put_texts(texts(*("x" * one for one in range(number)), priority=priority), self._reserve)
            return
        contents = [content("x" * one, priority=priority, expiration=WALL - 1 if expires else None) for one in range(number)]
        entered = self.queue.put(contents, self._sequence.__next__) if self._how != "entries" else 0
        self.queue.add([Entry(next(self._sequence), one) for one in contents[entered:]], WALL)

    def take(self, owner: int, most: int) -> tuple[list[int], list[int]]:
        holder = self.owners[owner]
        contents = self.queue.take_bare(holder, most) if self._how == "deliveries" else []
        bare = [one.content.header("sequence") for one in deliveries(contents, RECEIVER, holder)]
        granted, expired = self.queue.take(holder, most - len(bare), WALL) if most > len(bare) else ([], [])
        return [*bare, *(one.sequence for one in granted)], [one.sequence for one in expired]

    def held(self) -> list[int]:
        return sorted(sequence for owner in self.owners for sequence in owner.held)

    def _entry(self, sequence: int) -> Entry:
        one = self._held(sequence)
        return one if isinstance(one, Entry) else one.tag

    def _held(self, sequence: int) -> Entry | Delivery:
        return next(owner.held[sequence] for owner in self.owners if sequence in owner.held)

    def accept(self, sequence: int) -> None:
        one = self._held(sequence)
        if isinstance(one, Delivery):
            owner, one.owner = one.owner, None
            assert owner is not None
            self.queue.accept_bare(owner, [one])
        else:
            self.queue.accept([one])

    def give_back(self, sequence: int, barred: bool) -> None:
        self.queue.give_back([self._entry(sequence)], counted=True, now=NOW, barred=barred)

    def browse(self) -> list[int]:
        return [one.sequence for one in self.queue.browse()]

    def take_away(self, index: int) -> int:
        found = list(self.queue.browse())
        gone = found[index % len(found)]
        self.queue.take_away([gone])
        self.queue.deleted += 1  # the part of the caller
        return gone.sequence


@settings(max_examples=300)
@given(st.data())
def test_j_4_however_they_came_and_are_held_nobody_can_tell(data: st.DataObject) -> None:
    sides = [Side("texts"), Side("bare"), Side("entries"), Side("deliveries")]
    for _ in range(data.draw(st.integers(1, 25))):
        held = sides[0].held()
        steps = ["send", "send", "take", "take"] + ["accept", "give_back"] * bool(held) + ["browse"]
        what = data.draw(st.sampled_from(steps))
        if what == "send":
            arguments: tuple[Any, ...] = (data.draw(st.integers(3, 5)), data.draw(st.integers(1, 4)), data.draw(st.booleans()))
        elif what == "take":
            arguments = (data.draw(st.integers(0, 1)), data.draw(st.integers(1, 5)))
        elif what == "browse":
            arguments = ()
            if sides[0].queue.visible and data.draw(st.booleans()):
                what, arguments = "take_away", (data.draw(st.integers(0, 20)),)
        else:
            arguments = (data.draw(st.sampled_from(held)),)
            if what == "give_back":
                arguments += (data.draw(st.booleans()),)
        outcomes = [getattr(side, what)(*arguments) for side in sides]
        assert outcomes == outcomes[:1] * 4
        statistics = [side.queue.statistics() for side in sides]
        assert statistics == statistics[:1] * 4
    for side in sides:
        check_queue(side.queue, side.owners)
    left = [side.browse() for side in sides]
    assert left == left[:1] * 4


@pytest.mark.parametrize(
    "special",
    [
        content(expiration=WALL + 5),
        content(delivery_time=WALL + 5),
        content(priority=12),
        content(priority=None),
    ],
    ids=["expires", "unborn", "priority-12", "no-priority"],
)
def test_t7_what_is_special_goes_the_long_way_and_so_does_what_follows_it(special: PlainContent) -> None:
    side = Side("bare")
    number = itertools.count(1).__next__
    assert side.queue.put([content(), special, content()], number) == 1
    assert side.queue.put([special], number) == 0
    assert side.queue.visible == 1


def test_j_4_the_same_content_is_never_on_a_queue_twice_under_one_number() -> None:
    side = Side("bare")
    one, number = content(), itertools.count(1).__next__
    assert side.queue.put([one], number) == 1
    assert side.queue.put([one], number) == 0


@pytest.mark.parametrize("how", [{"unit_of_order": "u"}, {"bytes_threshold_high": 10, "bytes_threshold_low": 5}])
def test_t7_a_queue_that_has_to_look_at_each_takes_none_the_short_way(how: dict[str, Any]) -> None:
    queue = MessageQueue("q", QueueSettings(**how))
    assert queue.put([content()], itertools.count(1).__next__) == 0
    assert not queue.put_texts(texts("a"), lambda count: 1)


def test_t7_texts_that_somebody_has_looked_at_go_the_long_way() -> None:
    """They are made, so whoever made them may hold them: the queue has to have those, not others like them."""
    queue = MessageQueue("q", QueueSettings())
    seen = texts("a", "b")
    assert [one.body() for one in seen] == ["a", "b"]
    assert not queue.put_texts(seen, lambda count: 1)
    assert queue.put(seen, itertools.count(1).__next__) == 2
    assert [entry.content for entry in queue.browse()] == list(seen)
    assert not queue.put_texts(seen, lambda count: 1)


@pytest.mark.parametrize("special", [texts(), texts("a", priority=12)], ids=["none", "priority-12"])
def test_t7_texts_without_a_place_go_the_long_way(special: Texts) -> None:
    assert not MessageQueue("q", QueueSettings()).put_texts(special, lambda count: 1)


def test_t7_a_taken_text_is_what_was_sent() -> None:
    queue = MessageQueue("q", QueueSettings())
    owner = Holder(queue, 1, "consumer-1")
    assert queue.put_texts(texts("a", "\u00e4", "c", persistent=True, priority=7, timestamp=5.0), lambda count: 11)
    granted, _ = queue.take(owner, 2, WALL)
    (last,) = queue.browse()
    found = [(one.sequence, one.content.message_id, one.content.body(), one.size, one.content.kind) for one in (*granted, last)]
    assert found == [
        (11, "ID:0", "a", 1, MessageKind.TEXT),
        (12, "ID:1", "\u00e4", 2, MessageKind.TEXT),
        (13, "ID:2", "c", 1, MessageKind.TEXT),
    ]
    headers = {name: last.content.header(name) for name in ("destination", "persistent", "priority", "timestamp", "expiration")}
    assert headers == {"destination": "queue:///q", "persistent": True, "priority": 7, "timestamp": 5.0, "expiration": None}
    assert queue.statistics().bytes_received == 4


def test_a_delivery_has_an_entry_when_somebody_asks_and_stands_for_it_before() -> None:
    queue = MessageQueue("q", QueueSettings())
    owner = Holder(queue, 1, "consumer-1")
    queue.holders[1] = owner
    assert queue.put_texts(texts("a", "b", "c"), lambda count: 1)
    first, second = deliveries(queue.take_bare(owner, 2), RECEIVER, owner)
    assert isinstance(first, Delivery)
    assert isinstance(second, Delivery)
    assert (first.delivery_count, first.settled, first.handed_over, first.size, first.content.body()) == (1, False, False, 1, "a")
    assert list(owner.held.values()) == [first, second]
    entry = first.tag
    assert first.tag is entry
    assert (entry.sequence, entry.state, entry.owner, entry.delivery, entry.count) == (1, State.RECEIVE, owner, first, 0)
    assert list(owner.held.values()) == [entry, second]
    second.owner = None
    queue.accept_bare(owner, [second])
    assert (second.tag.state, second.tag.owner, second.tag.delivery) == (State.GONE, None, None)
    check_queue(queue, [owner])


@pytest.mark.parametrize("how", ["selection", "returned", "expires"])
def test_what_others_have_to_know_of_is_not_taken_bare(how: str) -> None:
    queue = MessageQueue("q", QueueSettings())
    owner = Holder(queue, 1, "consumer-1")
    queue.holders[1] = owner
    if how == "selection":
        assert queue.put_texts(texts("a"), lambda count: 1)
        selector = compile_selector("JMSPriority = 4")
        assert selector is not None
        queue.begin_selection(Selection(selector, 2))
    elif how == "returned":
        assert queue.put_texts(texts("a", "b"), lambda count: 1)
        granted, _ = queue.take(owner, 1, WALL)
        queue.give_back(granted, counted=True, now=NOW)
    else:
        queue.add([Entry(1, content(expiration=WALL + 5))], WALL)
        assert queue.put_texts(texts("a"), lambda count: 2)
    assert queue.take_bare(owner, 5) == []
    assert queue.visible == len(list(queue.browse()))
