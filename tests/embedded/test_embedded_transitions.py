"""The transition table of states.py against the broker: every move of a message is one of its rows, and every rule moves one."""

from __future__ import annotations

from typing import Any

import pytest

from jmsclient.message import PlainContent
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Outcome, Verb
from jmsclient_embedded.entry import Entry
from jmsclient_embedded.states import TRANSITIONS, State, allowed

from .conftest import Client, Connect, content, until

Move = tuple[State | None, State]


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> set[Move]:
    """Every change of a message's state while the test runs."""
    slot, seen = Entry.__dict__["state"], set[Move]()

    def change(entry: Entry, state: State | None) -> None:
        try:
            before = slot.__get__(entry)
        except AttributeError:  # it is being made
            before = None
        if before is None and state is State.RECEIVE:  # a plain message gets its entry when it is taken
            seen.update({(None, State.VISIBLE), (State.VISIBLE, state)})
        elif state is not None and state is not before:
            seen.add((before, state))
        slot.__set__(entry, state)

    monkeypatch.setattr(Entry, "state", property(slot.__get__, change))
    return seen


def one(body: str, **settings: Any) -> PlainContent:
    return content(body, properties={"unit": "u"} if body.startswith("unit") else {}, **settings)


def empty(client: Client) -> None:
    client.admin.pause_consumption("q")
    client.admin.drain("q")
    client.admin.resume_consumption("q")


def test_every_move_is_in_the_table_and_every_rule_moves_one(
    timed: Client, connect: Connect, url: str, clock: ManualClock, moves: set[Move]
) -> None:
    """T4 to T17, IF-34."""
    admin = timed.admin
    admin.create_queue("q", unit_of_order="unit", redelivery_limit=2)
    admin.create_queue("elsewhere")
    tx = connect(url, clock, transacted=True)

    def soon(body: str) -> PlainContent:
        return one(body, expiration=clock.wall() + 5)

    def later(body: str) -> PlainContent:
        return one(body, delivery_time=clock.wall() + 5)

    # T4 to T6: transactions, into each state
    tx.send("rolled back")
    tx.rollback()
    tx.send("visible", later("delayed"), one("unit head"), one("unit ordered"))
    tx.commit()
    tx.send("paused")
    admin.pause_insertion("q")
    tx.commit()
    # T8, T9: due while paused and while not
    clock.advance(6)
    until(lambda: {state for state, _ in timed.shown()} == {"visible", "ordered", "paused"})
    admin.resume_insertion("q")
    # IF-34, T10, T12: the head finishes
    receiver, sink = timed.receiver(demand=10)
    for number in range(4, 6):
        sink.wait(number)
        receiver.settle(sink.arrivals[:number], ACCEPT)
    timed.session.flush(None)
    receiver.close(None)
    assert timed.numbers() == (0, 0)
    # T7: plain sends into each state, T8 into an order, T16 out of each
    timed.send(soon("visible"), one("unit head", expiration=clock.wall() + 5), soon("unit ordered"), later("unit delayed"))
    timed.send(one("delayed", delivery_time=clock.wall() + 500, expiration=clock.wall() + 5))
    tx.send(soon("paused"))
    clock.advance(4)
    admin.pause_insertion("q")
    tx.commit()
    clock.advance(30)
    until(lambda: timed.stats().messages_expired == 5)
    admin.resume_insertion("q")
    empty(timed)
    # T13 and T14 into each state, T15, T17 out of each
    for outcome in (RELEASE, RETRY, Outcome(verb=Verb.RELEASE, delay=5.0), Outcome(verb=Verb.RETRY, delay=5.0)):
        for paused in (False, True):
            timed.send("back")
            receiver, arrivals = timed.take(1, hand_over=True)
            if paused:
                admin.pause_insertion("q")
            receiver.settle(arrivals, outcome)
            receiver.close(None)
            timed.session.flush(None)
            admin.resume_insertion("q")
            empty(timed)
    timed.send(one("unit head"), one("unit ordered"), later("delayed"))
    admin.pause_consumption("q")
    admin.move("q", "elsewhere")
    admin.resume_consumption("q")
    timed.send("failing")
    receiver, arrivals = timed.take(1, hand_over=True)
    receiver.settle(arrivals, Outcome(verb=Verb.DEAD_LETTER))
    timed.session.flush(None)

    # T8 and T9 behind a head
    timed.send("unit of no one", one("unit head"), later("unit due"), later("due"))
    tx.send(one("unit paused"))
    admin.pause_insertion("q")
    tx.commit()
    admin.resume_insertion("q")
    clock.advance(6)
    until(lambda: timed.numbers()[1] == 0)
    # a transfer into a queue that is paused, which is then removed
    admin.create_queue("failing", redelivery_limit=0, error_destination="q")
    timed.send("a", queue="failing")
    receiver, arrivals = timed.take(1, "failing", hand_over=True)
    admin.pause_insertion("q")
    receiver.settle(arrivals, RETRY)
    until(lambda: timed.stats().pending_by_kind.paused == 1)
    timed.session.close(None)
    admin.delete_destination("q")

    rows = [row for row in TRANSITIONS if row.source is not row.target]  # T11, the hand-over, changes the count only
    table = {(row.source, row.target) for row in rows}
    assert {move for move in moves if not allowed(*move)} == set()
    for rule in {row.rule for row in rows}:
        assert moves & {(row.source, row.target) for row in rows if row.rule == rule}, f"{rule} moved nothing"
    assert table - moves == {(State.RECEIVE, State.ORDERED)}  # one that was received is its unit's head
