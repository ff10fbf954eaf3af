"""Threads against each other: no message is lost, doubled or stranded (IF-6, IF-7, IF-9), signals included (IF-40)."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter

import pytest

from jmsclient.destination import Queue
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Arrival, Outcome, ReceiverSpec, Verb
from jmsclient_embedded.invariants import check
from jmsclient_embedded.receiver import EmbeddedReceiver
from jmsclient_embedded.transport import simulate_connection_loss

from ..lightning import GUARDED, SWALLOWED, lightning  # noqa: TID252  tests are no package that has a name
from .conftest import PATIENCE, Client, Connect, RecordingSink, content, hand

SENDERS, RECEIVERS, MESSAGES = 3, 4, 600


@pytest.fixture(params=["memory", "store"])
def url(request: pytest.FixtureRequest, url: str, tmp_path: object) -> str:
    return url if request.param == "memory" else f"{url}?store={tmp_path}/races.db"


class Books:
    """What was sent and what was accepted."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: set[str] = set()
        self.accepted: Counter[str] = Counter()

    def accept(self, arrivals: list[Arrival]) -> None:
        with self.lock:
            self.accepted.update(str(one.content.message_id) for one in arrivals)


def run_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not [thread for thread in threads if thread.is_alive()], "it hangs"


def send_some(client: Client, books: Books, number: int, chance: random.Random) -> None:
    left = MESSAGES // SENDERS
    sender = client.session.open_sender(Queue("q"), None)
    while left:
        some = min(left, chance.randint(1, 20))
        left -= some
        batch = [content(f"{number}", persistent=chance.random() < 0.5) for _ in range(some)]
        sender.send(batch, room_deadline=None, confirm_timeout=PATIENCE)
        with books.lock:
            books.sent.update(str(one.message_id) for one in batch)


def receive_some(connect: Connect, books: Books, done: threading.Event, chance: random.Random) -> None:
    """Open, take, settle in all ways, drain, close, cut the link, start again, until everything was accepted."""
    while not done.is_set():
        client = connect()
        for _ in range(chance.randint(1, 4)):
            use_receiver(client, books, chance)
        if chance.random() < 0.3:
            simulate_connection_loss(client.transport)
        else:
            client.transport.close(None)
        with books.lock:
            if len(books.accepted) == MESSAGES:
                done.set()


def use_receiver(client: Client, books: Books, chance: random.Random) -> None:
    receiver, sink = client.receiver(demand=chance.randint(1, 30))
    used = 0
    for _ in range(chance.randint(1, 6)):
        fresh = sink.arrivals[used:]
        used += len(fresh)
        kept = [one for one in fresh if chance.random() < 0.9]
        settle_some(receiver, kept, books, chance)
        receiver.request(chance.randint(0, 5))
    if chance.random() < 0.5:
        receiver.drain(None)
    receiver.close(None)
    at_close = len(sink.arrivals)
    settle_some(receiver, sink.arrivals[used:at_close], books, chance)
    assert len(sink.arrivals) == at_close, "delivered after close"


def settle_some(receiver: EmbeddedReceiver, arrivals: list[Arrival], books: Books, chance: random.Random) -> None:
    if not arrivals:
        return
    outcome = chance.choice([ACCEPT, ACCEPT, RELEASE, RETRY, Outcome(verb=Verb.RELEASE, delay=0.005)])
    if outcome.verb is not Verb.RELEASE:
        hand(receiver, arrivals)
    if outcome is ACCEPT:
        books.accept(arrivals)
    receiver.settle(arrivals, outcome)


def test_if_6_if_7_every_message_is_accepted_exactly_once(connect: Connect) -> None:
    seed = random.randrange(1 << 30)
    keep = connect()  # so that a store stays open
    books, done = Books(), threading.Event()
    threads = [
        threading.Thread(target=send_some, args=(connect(), books, number, random.Random(f"{seed}s{number}")))
        for number in range(SENDERS)
    ]
    threads += [
        threading.Thread(target=receive_some, args=(connect, books, done, random.Random(f"{seed}r{number}")))
        for number in range(RECEIVERS)
    ]
    run_all(threads)
    check(keep.broker)
    assert keep.shown() == [], f"seed {seed}"
    assert books.accepted == Counter(books.sent), f"seed {seed}"
    numbers = keep.admin.statistics("q")
    assert numbers.messages_received == numbers.messages_acknowledged == MESSAGES


def test_if_18_drain_against_senders_loses_nothing(client: Client) -> None:
    sender = client.session.open_sender(Queue("q"), None)
    stop = threading.Event()
    sent = itertools.count()

    def send() -> None:
        while not stop.is_set():
            sender.send([content(str(next(sent)))], room_deadline=None, confirm_timeout=PATIENCE)

    sink = RecordingSink()
    receiver = client.session.open_receiver(ReceiverSpec(destination=Queue("q")), sink, None)

    def drain() -> None:
        for _ in range(300):
            receiver.request(3)
            receiver.drain(None)
            seen = len(sink.arrivals)
            receiver.settle(sink.arrivals[-3:], ACCEPT)
            assert len(sink.arrivals) == seen, "delivered after drain"
        stop.set()

    run_all([threading.Thread(target=send), threading.Thread(target=drain)])
    bodies = [str(body) for body in sink.bodies]
    assert bodies == [str(number) for number in range(len(bodies))]


@GUARDED
@SWALLOWED
def test_if_40_signals_that_raise_strand_nothing(client: Client) -> None:
    dice = random.Random(random.randrange(1 << 30))
    sender = client.session.open_sender(Queue("q"), None)
    sink = RecordingSink()
    receiver = client.session.open_receiver(ReceiverSpec(destination=Queue("q")), sink, None)

    def rounds() -> None:
        while True:
            sender.send([content("a"), content("b")], room_deadline=None, confirm_timeout=None)
            receiver.request(2)
            receiver.settle(sink.arrivals[-4:], dice.choice([ACCEPT, RELEASE, RETRY]))
            receiver.drain(None)

    with lightning(0.0001, 0.003) as storm:
        for _ in range(300):
            assert storm.hits(rounds)
    receiver.drain(None)
    check(client.broker)
    receiver.settle(list(sink.arrivals), ACCEPT)
    client.session.close(None)
    numbers = client.admin.statistics("q")
    assert numbers.messages_pending == 0
    assert numbers.messages_received == numbers.messages_current + numbers.messages_acknowledged
    client.session = client.transport.open_session(transacted=False, deadline=None)
    client.send("the broker still works")
    assert client.take(1)
