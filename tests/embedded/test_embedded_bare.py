"""Plain messages wait as bare contents (`MessageQueue.put`): nobody can tell them from those that were entries from the start.

Two queues are driven alike, one through `put` and one through `add`, and only what comes out is compared: the checker walks over
everything, and whoever looks at a message makes an entry of it.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jmsclient.message import MessageKind, PlainContent
from jmsclient_embedded.entry import Entry, Holder
from jmsclient_embedded.invariants import check_queue
from jmsclient_embedded.queue import MessageQueue
from jmsclient_embedded.settings import QueueSettings

NOW, WALL = 50.0, 1000.0


def content(body: str = "x", **headers: Any) -> PlainContent:
    return PlainContent(kind=MessageKind.TEXT, body=body, **headers)


class Side:
    """A queue with two owners; what is done to it is named by sequence numbers."""

    def __init__(self, *, bare: bool) -> None:
        self.queue = MessageQueue("q", QueueSettings())
        self.owners = [Holder(self.queue, number, f"consumer-{number}") for number in (1, 2)]
        self.queue.holders.update({one.number: one for one in self.owners})
        self._bare = bare
        self._sequence = itertools.count(1)

    def send(self, priority: int, number: int, expires: bool) -> None:
        contents = [content("x" * one, priority=priority, expiration=WALL - 1 if expires else None) for one in range(number)]
        entered = self.queue.put(contents, self._sequence.__next__) if self._bare else 0
        self.queue.add([Entry(next(self._sequence), one) for one in contents[entered:]], WALL)

    def take(self, owner: int, most: int) -> tuple[list[int], list[int]]:
        granted, expired = self.queue.take(self.owners[owner], most, WALL)
        return [one.sequence for one in granted], [one.sequence for one in expired]

    def held(self) -> list[int]:
        return sorted(sequence for owner in self.owners for sequence in owner.held)

    def _entry(self, sequence: int) -> Entry:
        return next(owner.held[sequence] for owner in self.owners if sequence in owner.held)

    def accept(self, sequence: int) -> None:
        self.queue.accept([self._entry(sequence)])

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
def test_j_4_bare_contents_and_entries_are_taken_alike(data: st.DataObject) -> None:
    sides = [Side(bare=True), Side(bare=False)]
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
        assert getattr(sides[0], what)(*arguments) == getattr(sides[1], what)(*arguments)
        assert sides[0].queue.statistics() == sides[1].queue.statistics()
    for side in sides:
        check_queue(side.queue, side.owners)
    assert sides[0].browse() == sides[1].browse()


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
    side = Side(bare=True)
    number = itertools.count(1).__next__
    assert side.queue.put([content(), special, content()], number) == 1
    assert side.queue.put([special], number) == 0
    assert side.queue.visible == 1


def test_j_4_the_same_content_is_never_on_a_queue_twice_under_one_number() -> None:
    side = Side(bare=True)
    one, number = content(), itertools.count(1).__next__
    assert side.queue.put([one], number) == 1
    assert side.queue.put([one], number) == 0


@pytest.mark.parametrize("how", [{"unit_of_order": "u"}, {"bytes_threshold_high": 10, "bytes_threshold_low": 5}])
def test_t7_a_queue_that_has_to_look_at_each_takes_none_the_short_way(how: dict[str, Any]) -> None:
    queue = MessageQueue("q", QueueSettings(**how))
    assert queue.put([content()], itertools.count(1).__next__) == 0
