"""Owns the conservation checker: `check(broker)` raises AssertionError naming the queue and what does not add up.

Must not change anything. Source: rules IF-7, IF-8, IF-9, IF-15. The invariants, checked at any quiet point:

- J-1 accepted = current + pending + removed, in messages and bytes (IF-7; what is still being stored is not accepted yet)
- J-2 the counters equal what a walk over the messages finds
- J-3 every message in `receive` names a live owner, which lists it, and an owner lists nothing else (IF-8)
- J-4 every message is in the state of the place where it is, and in one place only
- J-5 visible messages of one priority wait in the order in which they were sent
- J-6 the high-water mark is at least the current value (IF-15)
- J-7 a receiver that is closed wants nothing and stands in no turn (IF-5)
- J-8 what waits for a receiver with a selector is what is visible and selected, and nothing else
- J-9 what is ordered waits behind another message of its unit, which is the head of that unit and still there (IF-34)
- J-10 nothing is in the state `paused` while insertion is not paused
- J-11 pending by kind adds up to pending; what a transacted session holds counts as uncommitted
- J-12 the members of a quota are the queues that name it; a send waits only where there is no room for it (IF-31)
- J-13 nobody who wants a message is left without one that it may have, unless consumption is paused (T10)
- J-14 whoever looks at the clock knows of each queue that holds something delayed or something that expires (IF-3, IF-33)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING

from jmsclient_embedded.admission import Sending
from jmsclient_embedded.entry import Entry, Holder
from jmsclient_embedded.queue import MessageQueue
from jmsclient_embedded.states import CURRENT, PENDING, State

if TYPE_CHECKING:
    from jmsclient_embedded.broker import Broker
    from jmsclient_embedded.line import Line


def check(broker: Broker) -> None:
    """Check every queue of a broker. Raises AssertionError. Thread-safe."""

    def look() -> None:
        broker.admission.serve()  # room that steps before this one freed, under the same hold of the lock, is given at its end
        _check_broker(broker)

    broker.steps.ask(look)


def _check_broker(broker: Broker) -> None:
    holders = broker.granting.holders
    for number, holder in holders.items():
        assert holder.number == number, f"owner {holder.name} is listed as {number}"
    for line in broker.granting.lines.values():
        owners = [one for one in holders.values() if one.queue is line.queue]
        assert line.queue.holders == {one.number: one for one in owners}, f"J-3 {line.queue.name}: its owners are listed wrongly"
        check_queue(line.queue, owners)
        _check_turns(line)
        _check_quota(line)
        _check_stranded(line, broker.clock.wall())
        timed = line.queue.expiring or line.queue.has_delayed
        assert not timed or line in broker.granting.timed, f"J-14 {line.queue.name}: nobody looks at the clock for it"


def check_queue(queue: MessageQueue, holders: Iterable[Holder]) -> None:
    """Check one queue and its owners. Raises AssertionError."""
    name = queue.name
    unheld = list(queue.unheld())
    held = [entry for holder in holders for entry in _check_owner(holder)]
    everything = unheld + held
    assert len({entry.sequence for entry in everything}) == len(everything), f"J-4 {name}: a message is in two places"
    for entry in unheld:
        assert entry.state is not State.RECEIVE, f"J-3 {name}: {entry} is in receive and no one lists it"
        assert entry.state is not State.GONE, f"J-4 {name}: {entry} is gone and still there"
        assert entry.owner is None, f"J-3 {name}: {entry} names an owner"
    _check_counters(queue, everything)
    _check_kinds(queue, held)
    _check_order(queue, unheld)
    _check_units(queue, everything)
    for selection in queue.selections:
        selected = {entry.sequence for entry in unheld if entry.state is State.VISIBLE and selection.wants(entry)}
        assert selection.waiting == selected, f"J-8 {name}: {selection.waiting} waits, but {selected} is selected"


def _check_owner(holder: Holder) -> list[Entry]:
    entries = holder.entries()
    for sequence, entry in zip(holder.held, entries, strict=True):
        assert entry.sequence == sequence, f"J-3 {holder.name}: {entry} is listed as {sequence}"
        assert entry.state is State.RECEIVE, f"J-3 {holder.name}: {entry} is listed and not in receive"
        assert entry.owner is holder, f"J-3 {holder.name}: {entry} names another owner"
    return entries


def _check_counters(queue: MessageQueue, everything: list[Entry]) -> None:
    name, numbers = queue.name, queue.statistics()
    current = [entry for entry in everything if entry.state in CURRENT]
    pending = [entry for entry in everything if entry.state in PENDING]
    sending = [entry for entry in everything if entry.state is State.SEND]
    assert numbers.messages_current == len(current), f"J-2 {name}: {numbers} but {len(current)} current"
    assert numbers.messages_pending == len(pending), f"J-2 {name}: {numbers} but {len(pending)} pending"
    assert numbers.bytes_current == _size(current), f"J-2 {name}: {numbers} but {_size(current)} bytes current"
    assert numbers.bytes_pending == _size(pending), f"J-2 {name}: {numbers} but {_size(pending)} bytes pending"
    assert queue.uncommitted == len(sending), f"J-2 {name}: {queue.uncommitted} in send, but {len(sending)} found"
    expiring = sum(entry.expires_at is not None for entry in everything if entry.state is not State.SEND)
    assert queue.expiring == expiring, f"J-2 {name}: {queue.expiring} expiring, but {expiring} found"
    removed = (
        numbers.messages_acknowledged
        + numbers.messages_expired
        + numbers.messages_moved
        + numbers.messages_deleted
        + numbers.messages_discarded
    )
    there = len(everything) - len(sending)
    assert numbers.messages_received == there + removed, f"J-1 {name}: {numbers} but {there} there and {removed} removed"
    size = _size(everything) - _size(sending)
    assert numbers.bytes_received == size + numbers.bytes_removed, f"J-1 {name}: {numbers} but {size} bytes there"
    assert numbers.messages_high >= numbers.messages_current, f"J-6 {name}: {numbers}"
    assert numbers.bytes_high >= numbers.bytes_current, f"J-6 {name}: {numbers}"


def _check_kinds(queue: MessageQueue, held: list[Entry]) -> None:
    kinds = queue.pending_by_kind()
    total = sum(getattr(kinds, one.name) for one in fields(kinds))
    assert total == queue.pending, f"J-11 {queue.name}: {kinds} is not {queue.pending} pending"
    transacted = sum(entry.owner is not None and entry.owner.transacted for entry in held)
    assert kinds.uncommitted_received == transacted, f"J-11 {queue.name}: {kinds}, but {transacted} held in transactions"
    assert queue.insertion_paused or not kinds.paused, f"J-10 {queue.name}: {kinds} although insertion is not paused"


def _check_units(queue: MessageQueue, everything: list[Entry]) -> None:
    for entry in everything:
        head = None if entry.unit is None else queue.units.head_of(entry.unit)
        if entry.state is State.ORDERED:
            assert head is not None, f"J-9 {queue.name}: {entry} waits behind nobody"
            assert head is not entry, f"J-9 {queue.name}: {entry} waits behind itself"
            assert head in everything, f"J-9 {queue.name}: {entry} waits behind {head}, which is gone"
        elif entry.unit is not None and entry.state in (State.VISIBLE, State.RECEIVE):
            assert head is entry, f"J-9 {queue.name}: {entry} is not the head of its unit"


def _check_quota(line: Line) -> None:
    quota, name = line.quota, line.queue.name
    if quota is None:
        return
    assert line.queue in quota.members, f"J-12 {name}: it is no member of its quota"
    if quota.waiting and not any(queue.insertion_paused for queue in quota.members):
        assert quota.messages_maximum >= 0 or quota.bytes_maximum >= 0, f"J-12 {name}: a send waits for room that is not bounded"
    waiting = [one for one in quota.waiting if isinstance(one, Sending) and not one.held_back]
    for one in waiting[:1] if quota.policy == "fifo" else waiting:
        content = one.contents[one.entered]
        copies, size = len(one.route.lines_for(content, one.group.origin)), getattr(content, "size", 0)
        assert copies, f"J-12 {name}: a send waits for room that needs none"
        assert not quota.room_for(copies, size * copies), f"J-12 {name}: there is room, and a send waits for it"


def _check_order(queue: MessageQueue, unheld: list[Entry]) -> None:
    visible = [entry for entry in unheld if entry.state is State.VISIBLE]
    assert len(visible) == queue.visible, f"J-2 {queue.name}: {queue.visible} to be taken, but {len(visible)} found"
    for before, after in pairwise(visible):
        in_order = (-before.priority, before.sequence) < (-after.priority, after.sequence)
        assert in_order, f"J-5 {queue.name}: {before} stands before {after}"
    for ready in queue.new_in_order():
        assert all(one < other for one, other in pairwise(ready)), f"J-5 {queue.name}: new messages out of order"


def _check_turns(line: Line) -> None:
    name = line.queue.name
    assert len(set(line.wanting)) == len(line.wanting), f"J-7 {name}: a receiver stands in the turn twice"
    for outlet in line.outlets:
        assert outlet.wanting or not outlet.demand, f"J-7 {name}: {outlet.holder.name} has demand and stands in no turn"
    for outlet in line.wanting:
        assert outlet.wanting, f"J-7 {name}: {outlet.holder.name} stands in the turn and does not know"
        assert not outlet.closing, f"J-7 {name}: {outlet.holder.name} is closed and stands in the turn"
        assert outlet.demand > 0, f"J-7 {name}: {outlet.holder.name} stands in the turn without demand"


def _check_stranded(line: Line, wall: float) -> None:
    if line.consumption_paused or not line.wanting:
        return
    fresh = [entry for entry in line.queue.browse() if entry.expires_at is None or entry.expires_at > wall]
    for outlet in line.wanting:
        selection, number = outlet.holder.selection, outlet.holder.number
        for entry in fresh:
            may_have = number not in (entry.barred or ()) if selection is None else selection.wants(entry)
            assert not may_have, f"J-13 {line.queue.name}: {entry} waits, and {outlet.holder.name} wants it"


def _size(entries: Iterable[Entry]) -> int:
    return sum(entry.size for entry in entries)
