"""Receivers with a selector: they get what they select, in order, and the rest keeps its place (C07 to C09 on the broker, RA-8)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jmsclient import Connection, connect
from jmsclient.clock import SYSTEM_CLOCK
from jmsclient.destination import Queue
from jmsclient.errors import InvalidSelectorError
from jmsclient.message import MessageKind, PlainContent
from jmsclient.selector import compile_selector
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, RETRY_ELSEWHERE, ReceiverSpec
from jmsclient_embedded.entry import Entry, Holder
from jmsclient_embedded.invariants import check, check_queue
from jmsclient_embedded.queue import MessageQueue
from jmsclient_embedded.settings import QueueSettings
from jmsclient_embedded.states import State

Client = Any
Connect = Callable[..., Any]


def coloured(body: str, colour: str, **headers: Any) -> PlainContent:
    return PlainContent(kind=MessageKind.TEXT, body=body, message_id=f"ID:{body}", properties={"colour": colour}, **headers)


def got(sink: Any, count: int) -> list[str]:
    """The bodies of all that arrived, once `count` have."""
    return [str(arrival.content.body()) for arrival in sink.wait(count)]


# -- on the broker -------------------------------------------------------------------------------------------------------


def test_it_gets_only_its_messages_in_order_and_the_rest_keeps_its_place(client: Client) -> None:
    client.send(*(coloured(str(number), "red" if number % 3 else "blue") for number in range(9)))
    blue, sink = client.receiver(selector="colour = 'blue'", demand=10)
    assert got(sink, 3) == ["0", "3", "6"]
    client.send(coloured("9", "blue"), coloured("10", "red"), coloured("11", "blue"))
    assert got(sink, 5) == ["0", "3", "6", "9", "11"]
    blue.settle(sink.arrivals, ACCEPT)
    _, arrivals = client.take(7)
    assert [arrival.content.body() for arrival in arrivals] == ["1", "2", "4", "5", "7", "8", "10"]
    assert len(client.shown()) == 7


def test_its_demand_is_kept_to_and_kept(client: Client) -> None:
    client.send(*(coloured(str(number), "blue") for number in range(5)))
    blue, sink = client.receiver(selector="colour = 'blue'", demand=2)
    assert got(sink, 2) == ["0", "1"]
    client.send(coloured("5", "red"))
    blue.request(1)
    assert got(sink, 3) == ["0", "1", "2"]
    blue.drain(None)
    assert len(sink.arrivals) == 3
    check(client.broker)


def test_what_it_gives_back_stands_where_it_stood_and_comes_to_it_again(client: Client) -> None:
    client.send(coloured("1", "red"), coloured("2", "blue"), coloured("3", "blue"), coloured("4", "red"), coloured("5", "blue"))
    blue, sink = client.receiver(selector="colour = 'blue'", demand=3)
    blue.settle(sink.wait(3)[:2], RELEASE)
    check(client.broker)
    blue.request(1)
    assert got(sink, 4) == ["2", "3", "5", "2"]
    blue.close(None)
    client.session.close(None)
    again = client.transport.open_session(transacted=False, deadline=None)
    client.session = again
    _, arrivals = client.take(5)
    assert [arrival.content.body() for arrival in arrivals] == ["1", "2", "3", "4", "5"]


def test_two_receivers_that_select_differently_and_one_that_takes_the_rest(client: Client) -> None:
    _, blue = client.receiver(selector="colour = 'blue'", demand=100)
    _, red = client.receiver(selector="colour IN ('red', 'pink')", demand=100)
    colours = ["blue", "red", "green", "pink"] * 5
    client.send(*(coloured(str(number), colour) for number, colour in enumerate(colours)))
    _, rest = client.receiver(demand=100)
    assert got(blue, 5) == [str(number) for number in range(20) if number % 4 == 0]
    assert got(red, 10) == [str(number) for number in range(20) if number % 2 == 1]
    assert got(rest, 5) == [str(number) for number in range(20) if number % 4 == 2]
    check(client.broker)


def test_what_it_selects_goes_to_others_as_well(client: Client) -> None:
    client.receiver(selector="colour = 'blue'")
    client.send(coloured("1", "blue"), coloured("2", "blue"))
    _, arrivals = client.take(2)
    assert [arrival.content.body() for arrival in arrivals] == ["1", "2"]
    check(client.broker)


def test_priorities_and_headers_are_honoured(client: Client) -> None:
    client.send(*(coloured(str(number), "blue", priority=number) for number in range(10)))
    _, sink = client.receiver(selector="JMSPriority BETWEEN 3 AND 5 AND JMSMessageID <> 'ID:4'", demand=5)
    assert got(sink, 2) == ["5", "3"]


def test_the_delivery_count_can_be_selected(client: Client) -> None:
    client.send("1", "2")
    _, again = client.receiver(selector="JMSXDeliveryCount > 1", demand=5)
    first, arrivals = client.take(2, hand_over=True)
    first.settle(arrivals[:1], RETRY)
    first.settle(arrivals[1:], RELEASE)
    assert got(again, 1) == ["1"]
    check(client.broker)


def test_what_it_sent_elsewhere_does_not_come_to_it_again(client: Client) -> None:
    client.send(coloured("1", "blue"))
    blue, sink = client.receiver(selector="colour = 'blue'", demand=5)
    blue.settle(sink.wait(1), RETRY_ELSEWHERE)
    check(client.broker)
    _, other = client.receiver(selector="colour = 'blue'", demand=5)
    assert got(other, 1) == ["1"]
    assert len(sink.arrivals) == 1


def test_expired_messages_are_not_handed_to_it(connect: Connect) -> None:
    clock = ManualClock()
    client = connect(clock=clock)
    soon = clock.wall() + 5
    client.send(coloured("1", "blue", expiration=soon), coloured("2", "blue"), coloured("3", "blue", expiration=soon))
    blue, sink = client.receiver(selector="colour = 'blue'")
    clock.advance(6)
    blue.request(2)
    assert got(sink, 1) == ["2"]
    assert client.admin.statistics("q").messages_current == 0
    check(client.broker)


def test_many_blocked_messages_are_judged_once_not_once_for_each_request(client: Client) -> None:
    client.send(*(coloured(str(number), "red") for number in range(20_000)))
    blue, sink = client.receiver(selector="colour = 'blue'")
    start = time.thread_time()
    for number in range(1_000):
        blue.request(1)
        client.send(coloured(f"b{number}", "blue"))
    assert len(sink.wait(1_000)) == 1_000
    assert time.thread_time() - start < 10  # judged anew each time, it would be 20,000,000 judgements
    blue.settle(sink.arrivals, ACCEPT)
    _, arrivals = client.take(20_000)
    assert [arrival.content.body() for arrival in arrivals] == [str(number) for number in range(20_000)]


def test_selected_from_a_store_after_a_restart(connect: Connect, url: str, tmp_path: Any) -> None:
    stored = f"{url}?store={tmp_path / 'broker.db'}"
    first = connect(stored)
    first.send(*(coloured(str(number), "blue" if number % 2 else "red", persistent=True) for number in range(6)))
    first.transport.close(None)
    again = connect(stored)
    _, sink = again.receiver(selector="colour = 'blue'", demand=9)
    assert got(sink, 3) == ["1", "3", "5"]


def test_a_broken_selector_is_refused_and_a_blank_one_is_none(client: Client) -> None:
    sink = client.receiver()[1]
    with pytest.raises(InvalidSelectorError, match="column 10"):
        client.session.open_receiver(ReceiverSpec(destination=Queue("q"), selector="load = 1 AMD x"), sink, None)
    client.send("1")
    _, sink = client.receiver(selector="  ", demand=1)
    assert got(sink, 1) == ["1"]


# -- one queue against a list ------------------------------------------------------------------------------------------------

SELECTORS = (None, "colour = 'blue'", "colour <> 'red' AND JMSPriority > 4", "JMSXDeliveryCount > 1", "nope = 1")
WALL = 1_000.0


class SelectionMachine(RuleBasedStateMachine):
    """Owners with and without selectors take from one queue; a list that is searched from its head says what each must get."""

    @initialize()
    def open(self) -> None:
        self.queue = MessageQueue("q", QueueSettings())
        self.selectors = [compile_selector(text) for text in SELECTORS]
        self.owners = [Holder(self.queue, number, str(number), one) for number, one in enumerate(self.selectors)]
        self.queue.holders.update(enumerate(self.owners))
        self.attached: set[int] = set()
        self.entries: list[Entry] = []
        self.barred: set[tuple[int, int]] = set()
        self.wall = WALL

    @rule(number=st.integers(1, len(SELECTORS) - 1))
    def attach_or_detach(self, number: int) -> None:
        selection = self.owners[number].selection
        assert selection is not None
        if number in self.attached:
            self.queue.end_selection(selection)
            self.attached.remove(number)
            self.owners[number] = self.queue.holders[number] = Holder(self.queue, number, str(number), self.selectors[number])
            for entry in self._in(State.RECEIVE):
                if entry.owner is not None and entry.owner.number == number:
                    entry.owner.held.pop(entry.sequence)
                    entry.owner = self.owners[number]
                    entry.owner.held[entry.sequence] = entry
        else:
            self.queue.begin_selection(selection)
            self.attached.add(number)

    @rule(
        colours=st.lists(st.sampled_from(["red", "blue", "green"]), max_size=4),
        priority=st.sampled_from([4, 4, 7]),
        life=st.sampled_from([None, None, 3.0]),
    )
    def add(self, colours: list[str], priority: int, life: float | None) -> None:
        for colour in colours:
            expiration = None if life is None else self.wall + life
            self.entries.append(Entry(len(self.entries) + 1, coloured("", colour, priority=priority, expiration=expiration)))
        self.queue.add(self.entries[len(self.entries) - len(colours) :], self.wall)

    @rule(number=st.integers(0, len(SELECTORS) - 1), most=st.integers(1, 4))
    def take(self, number: int, most: int) -> None:
        if number and number not in self.attached:
            return
        expect = []
        for entry in sorted(self._in(State.VISIBLE), key=lambda one: (-one.priority, one.sequence)):
            alive = entry.expires_at is None or entry.expires_at > self.wall
            selector = self.selectors[number]
            selected = selector is None or selector(entry.content, entry.count + 1)
            if alive and selected and (number, entry.sequence) not in self.barred and len(expect) < most:
                expect.append(entry.sequence)
        granted, expired = self.queue.take(self.owners[number], most, self.wall)
        assert [entry.sequence for entry in granted] == expect
        assert all(entry.expires_at is not None and entry.expires_at <= self.wall for entry in expired)

    def _in(self, state: State) -> list[Entry]:
        return [entry for entry in self.entries if entry.state is state]

    @precondition(lambda self: self._in(State.RECEIVE))
    @rule(data=st.data(), verb=st.sampled_from(["accept", "release", "retry", "elsewhere", "later"]))
    def settle(self, data: st.DataObject, verb: str) -> None:
        entries = data.draw(st.lists(st.sampled_from(self._in(State.RECEIVE)), min_size=1, max_size=4, unique=True))
        if verb == "accept":
            self.queue.accept(entries)
            return
        if verb == "elsewhere":
            self.barred |= {(entry.owner.number, entry.sequence) for entry in entries if entry.owner is not None}
        delay = 1.0 if verb == "later" else 0.0
        self.queue.give_back(entries, counted=verb != "release", now=self.wall, delay=delay, barred=verb == "elsewhere")

    @rule(seconds=st.sampled_from([0.5, 2.0]), scan=st.booleans())
    def time(self, seconds: float, scan: bool) -> None:
        self.wall += seconds
        self.queue.show_due(self.wall, self.wall)
        if scan:
            self.queue.expire(self.wall)

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "queue"):
            check_queue(self.queue, self.owners)


SelectionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSelectionAgainstList = SelectionMachine.TestCase


# -- through a session -------------------------------------------------------------------------------------------------------


@pytest.fixture
def connection(url: str) -> Any:
    with connect(url) as connection:
        yield connection


def test_a_selecting_consumer_gets_its_messages_and_nothing_is_lost(connection: Connection) -> None:
    session = connection.create_session()
    producer = session.create_producer("Q")
    for number in range(30):
        producer.send(str(number), properties={"load": number})
    heavy = session.create_consumer("Q", "load >= 20 OR load BETWEEN 5 AND 6")
    got = []
    while (message := heavy.receive_no_wait()) is not None:
        got.append(int(message.text or ""))
    assert got == [5, 6, *range(20, 30)]
    heavy.close()
    rest = session.create_consumer("Q")
    assert [int(message.text or "") for message in iter(rest.receive_no_wait, None)] == [*range(5), *range(7, 20)]


def test_no_wait_finds_nothing_behind_what_is_not_selected(connection: Connection) -> None:
    session = connection.create_session()
    session.create_producer("Q").send("x")
    consumer = session.create_consumer("Q", "nope = 1")
    assert consumer.receive_no_wait() is None
    start = SYSTEM_CLOCK.monotonic()
    assert consumer.receive(0.05) is None
    assert SYSTEM_CLOCK.monotonic() - start < 5
