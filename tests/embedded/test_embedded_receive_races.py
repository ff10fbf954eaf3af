"""Ten thousand receives against sends, time-outs and closes (IF-6); transactions, pauses, quotas, closes and cut links at once
(IF-5, IF-7, IF-9, IF-10, IF-28, IF-31); whatever raises inside a receive leaves no waiter behind (IF-4)."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import connect as connect_publicly
from jmsclient.clock import SystemBell, SystemClock
from jmsclient.destination import Queue
from jmsclient.errors import (
    ConnectionLostError,
    DestinationPausedError,
    IllegalStateError,
    ResourceAllocationError,
    SendError,
    TransactionRolledBackError,
)
from jmsclient.jms.consumer import MessageConsumer
from jmsclient.transport.contract import ACCEPT, RETRY, Arrival, ReceiverSpec
from jmsclient_embedded.invariants import check
from jmsclient_embedded.receiver import EmbeddedReceiver
from jmsclient_embedded.session import EmbeddedSession
from jmsclient_embedded.transport import simulate_connection_loss

from .conftest import PATIENCE, Background, Client, Connect, RecordingSink, content, hand, until

RACES = 10_000
RECEIVERS = 3
TIMEOUTS = (0, 0, 0.0001, 0.0005, 0.002)


class Races:
    """One queue; who receives, who sends, who closes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent: list[str] = []
        self.got: list[str] = []
        self.receives = 0
        self.closed = 0
        self.consumers: dict[int, MessageConsumer] = {}
        self.over = threading.Event()

    def receive(self, worker: int, chance: random.Random) -> None:
        mine = 0
        with connect_publicly(self.url) as connection:
            while mine * RECEIVERS < RACES:
                with connection.create_session() as session:
                    consumer = self.consumers[worker] = session.create_consumer("q", prefetch=chance.choice([0, 1, 5]))
                    for _ in range(chance.randint(1, 40)):
                        mine += 1
                        if not self._receive_one(consumer, chance.choice(TIMEOUTS)):
                            break
        self.receives += mine

    def _receive_one(self, consumer: MessageConsumer, timeout: float) -> bool:
        try:
            message = consumer.receive(timeout)
        except IllegalStateError:  # closed by the other thread
            return False
        if message is not None:
            self.got.append(str(message.text))
        return True

    def send(self) -> None:
        with connect_publicly(self.url) as connection, connection.create_session() as session:
            producer = session.create_producer("q")
            while not self.over.is_set():
                if len(self.sent) - len(self.got) < 10:  # mostly somebody waits for the next one
                    self.sent.append(f"{len(self.sent)}")
                    producer.send(self.sent[-1])
                else:
                    self.over.wait(0.0002)

    def close(self, chance: random.Random) -> None:
        while not self.over.wait(chance.uniform(0.0, 0.002)):
            consumer = self.consumers.get(chance.randrange(RECEIVERS))
            if consumer is not None:
                consumer.close()
                self.closed += 1


def test_if_6_ten_thousand_races_of_send_timeout_cancel_and_close_conserve_the_count(url: str, client: Client) -> None:
    seed = random.randrange(1 << 30)
    races = Races(url)
    helpers = [Background(races.send), Background(lambda: races.close(random.Random(f"{seed}c")))]
    receivers = [
        threading.Thread(target=races.receive, args=(number, random.Random(f"{seed}r{number}"))) for number in range(RECEIVERS)
    ]
    for thread in receivers:
        thread.start()
    for thread in receivers:
        thread.join(60)
    hangs = [thread for thread in receivers if thread.is_alive()]
    races.over.set()
    for one in helpers:
        one.result()
    assert not hangs, f"seed {seed}: it hangs"
    assert races.receives >= RACES
    check(client.broker)
    with connect_publicly(url) as connection, connection.create_session() as session:
        consumer = session.create_consumer("q")
        rest = []
        while (message := consumer.receive(0)) is not None:
            rest.append(str(message.text))
            assert message.delivery_count == 1, f"seed {seed}: IF-11: {message.text} was only in a window"
    assert Counter(races.got + rest) == Counter(races.sent), f"seed {seed}, {races.closed} closed"
    numbers = client.admin.statistics("q")
    assert (numbers.messages_current, numbers.messages_pending) == (0, 0), f"seed {seed}"


# -- everything at once ----------------------------------------------------------------------------------------------------


class Books:
    """What is true after all: a send or a commit that returned, and an accept that was committed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: list[str] = []
        self.in_doubt: set[str] = set()
        """Their link was cut while they were sent or committed."""
        self.accepted: list[str] = []
        self.accepted_in_doubt: set[str] = set()


class Crowd:
    """Threads that do everything to one queue, each with a connection of its own."""

    def __init__(self, connect: Connect, url: str, seed: int, rounds: int) -> None:
        self.connect, self.url, self.seed, self.rounds = connect, url, seed, rounds
        self.books = Books()

    def dice(self, who: str) -> random.Random:
        return random.Random(f"{self.seed}{who}")

    def transact(self, name: str) -> None:
        """Receives and sends in one transaction; commits, rolls back, closes, or is cut off by another thread in the midst."""
        chance = self.dice(name)
        for number in range(self.rounds):
            client = self.connect(self.url)
            session = client.transport.open_session(transacted=True, deadline=None)
            cut = Background(lambda: self._cut(client, chance.uniform(0.0, 0.002))) if chance.random() < 0.1 else None  # noqa: B023
            try:
                self._transaction(session, f"{name}-{number}", chance, risky=cut is not None)
            except (ConnectionLostError, IllegalStateError, TransactionRolledBackError, DestinationPausedError, SendError):
                pass  # none of it is true
            except ResourceAllocationError:
                pass
            finally:
                if cut is not None:
                    cut.result()
                client.transport.close(None)

    def _cut(self, client: Client, after: float) -> None:
        threading.Event().wait(after)
        simulate_connection_loss(client.transport)

    def _transaction(self, session: EmbeddedSession, name: str, chance: random.Random, *, risky: bool) -> None:
        sink = RecordingSink()
        receiver = session.open_receiver(ReceiverSpec(destination=Queue("q")), sink, None)
        receiver.request(chance.randint(1, 4))
        for part in range(chance.randint(1, 3)):
            made: list[str] = []
            one = content(message_id=f"{name}-{part}", persistent=chance.random() < 0.5)
            deadline = session.broker.clock.deadline(chance.choice([0.0, 0.002]))
            session.open_sender(Queue("q"), None).send([one], room_deadline=deadline, confirm_timeout=PATIENCE)
            made.append(str(one.message_id))
            if chance.random() < 0.5:
                receiver.drain(None)
            taken = [arrival for arrival in sink.arrivals if not arrival.settled]
            self._end(session, receiver, taken, made, chance, risky=risky)

    def _end(
        self,
        session: EmbeddedSession,
        receiver: EmbeddedReceiver,
        taken: list[Arrival],
        made: list[str],
        chance: random.Random,
        *,
        risky: bool,
    ) -> None:
        hand(receiver, taken)
        receiver.settle(taken, ACCEPT)
        if chance.random() < 0.3:
            session.rollback(redelivery_delay=chance.choice([0.0, 0.001]), deadline=None)
            return
        ids = [str(arrival.content.message_id) for arrival in taken]
        if risky:
            with self.books.lock:
                self.books.in_doubt.update(made)
                self.books.accepted_in_doubt.update(ids)
        session.commit(None)
        with self.books.lock:
            self.books.sent += made
            self.books.accepted += ids

    def send(self, name: str) -> None:
        chance = self.dice(name)
        client = self.connect(self.url)
        sender = client.session.open_sender(Queue("q"), None)
        for number in range(self.rounds * 3):
            one = content(message_id=f"{name}-{number}", persistent=chance.random() < 0.3, priority=chance.choice([4, 4, 9]))
            deadline = client.broker.clock.deadline(chance.choice([0.0, 0.005]))
            try:
                sender.send([one], room_deadline=deadline, confirm_timeout=PATIENCE)
            except (ResourceAllocationError, DestinationPausedError):
                continue
            with self.books.lock:
                self.books.sent.append(str(one.message_id))

    def receive(self, name: str) -> None:
        """A plain session; settles in all ways, and leaves the rest to its close."""
        chance = self.dice(name)
        for _ in range(self.rounds):
            client = self.connect(self.url)
            receiver, sink = client.receiver(demand=chance.randint(1, 5))
            for _ in range(chance.randint(1, 3)):
                taken = [arrival for arrival in sink.arrivals if not arrival.settled]
                hand(receiver, taken)
                outcome = chance.choice([ACCEPT, ACCEPT, RETRY])
                for arrival in taken:
                    if arrival.tag.delivery is arrival and outcome is ACCEPT:
                        with self.books.lock:
                            self.books.accepted.append(str(arrival.content.message_id))
                receiver.settle(taken, outcome)
                receiver.request(1)
            client.transport.close(None)

    def operate(self) -> None:
        chance = self.dice("operator")
        admin = self.connect(self.url).admin
        for _ in range(self.rounds):
            pause = chance.choice(["production", "insertion", "consumption"])
            where = chance.choice(["q", None])
            getattr(admin, f"pause_{pause}")(where)
            if chance.random() < 0.3:
                admin.create_queue("q", messages_maximum=chance.choice([5, 30, -1]), error_destination=None)
            getattr(admin, f"resume_{pause}")(where)


@pytest.mark.parametrize(("stored", "rounds"), [(False, 1000), (True, 300)], ids=["memory", "store"])
def test_if_7_if_28_if_31_transactions_pauses_quotas_closes_and_cut_links_at_once(
    connect: Connect, url: str, stored: bool, rounds: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    seed = random.randrange(1 << 30)
    place = f"{url}?store={tmp_path_factory.mktemp('crowd')}/crowd.db" if stored else url
    keep = connect(place)
    keep.admin.create_queue("q", messages_maximum=20, error_destination=None)
    crowd = Crowd(connect, place, seed, rounds)
    calls: list[Callable[[], None]] = [
        *(lambda name=name: crowd.transact(name) for name in ("t1", "t2")),
        lambda: crowd.send("s"),
        lambda: crowd.receive("r"),
        crowd.operate,
    ]
    threads = [Background(call) for call in calls]
    for one in threads:
        one._thread.join(60)
        one.result()
    check(keep.broker)
    books, admin = crowd.books, keep.admin
    rest = [str(one.message_id) for one in admin.messages("q")]
    assert all(one.state in ("visible", "delayed") for one in admin.messages("q")), f"seed {seed}"
    sure = [one for one in books.accepted if one not in books.accepted_in_doubt]
    assert len(set(sure)) == len(sure), f"seed {seed}: accepted twice: {Counter(sure).most_common(3)}"
    assert not set(sure) & set(rest), f"seed {seed}: accepted, and still there"
    lost = set(books.sent) - set(books.accepted) - books.accepted_in_doubt - set(rest)
    assert not lost, f"seed {seed}: lost {sorted(lost)[:5]}"
    unsent = set(rest) - set(books.sent) - books.in_doubt
    assert not unsent, f"seed {seed}: never sent {sorted(unsent)[:5]}"
    numbers = admin.statistics("q")
    assert numbers.messages_received == numbers.messages_acknowledged + len(rest), f"seed {seed}: {numbers}"
    assert numbers.blocked_senders == numbers.consumers_current == 0, f"seed {seed}: {numbers}"


# -- whatever raises inside a receive ------------------------------------------------------------------------------------


class Struck(Exception):  # noqa: N818  it is no error
    """Raised where nobody expects it."""


Strike = Callable[[Any, pytest.MonkeyPatch], None]


def on_receiver(name: str, *, first: bool) -> Strike:
    """That call of the receiver raises, before or after it did what it does."""

    def strike(consumer: Any, patch: pytest.MonkeyPatch) -> None:
        receiver = consumer.intake._receiver
        real = getattr(receiver, name)

        def struck(*given: object) -> None:
            patch.undo()
            if not first:
                real(*given)
            raise Struck

        patch.setattr(receiver, name, struck)

    return strike


def on_bell(consumer: Any, patch: pytest.MonkeyPatch) -> None:
    """The wait itself raises."""

    class StruckBell(SystemBell):
        def wait(self, timeout: float | None = None) -> bool:
            patch.undo()
            raise Struck

    patch.setattr(consumer._session, "bell", StruckBell())


def on_timer(consumer: Any, patch: pytest.MonkeyPatch) -> None:
    """Arming the time-out raises."""

    def struck(*given: object) -> float:
        patch.undo()
        raise Struck

    patch.setattr(SystemClock, "left", struck)


STRIKES: dict[str, Strike] = {
    "arming the timer": on_timer,
    "the wait": on_bell,
    "before the request": on_receiver("request", first=True),
    "after the request": on_receiver("request", first=False),
    "before the drain": on_receiver("drain", first=True),
    "after the drain": on_receiver("drain", first=False),
}


@pytest.mark.parametrize("strike", STRIKES.values(), ids=STRIKES)
def test_if_4_whatever_raises_inside_a_receive_leaves_no_waiter(
    client: Client, url: str, strike: Strike, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next message goes to another consumer, and nothing keeps it from there (the WebLogic case)."""
    with connect_publicly(url) as connection, connection.create_session() as session:
        consumer = session.create_consumer("q", prefetch=0)
        strike(consumer, monkeypatch)
        with pytest.raises(Struck):
            consumer.receive(0.01)
        until(lambda: not any(outlet.demand for outlet in client.broker.granting.line("q").outlets))
        check(client.broker)
        client.send("next")
        with connect_publicly(url) as other, other.create_session() as another:
            message = another.create_consumer("q", prefetch=0).receive(PATIENCE)
            assert message is not None
            assert (message.text, message.delivery_count) == ("next", 1)
        assert consumer.receive(0) is None
    check(client.broker)


@pytest.mark.parametrize("strike", STRIKES.values(), ids=STRIKES)
def test_if_4_who_receives_again_at_once_gets_the_next_message(client: Client, url: str, strike: Strike) -> None:
    """What is undone of the first wait takes nothing from the second."""
    with connect_publicly(url) as connection, connection.create_session() as session:
        consumer = session.create_consumer("q", prefetch=0)
        for number in range(10):
            with pytest.MonkeyPatch.context() as patch:
                strike(consumer, patch)
                with pytest.raises(Struck):
                    consumer.receive(0.001)

            def send_late(text: str = f"{number}") -> None:
                threading.Event().wait(0.002)
                client.send(text)

            late = Background(send_late)
            message = consumer.receive(PATIENCE)
            late.result()
            assert message is not None
            assert (message.text, message.delivery_count) == (f"{number}", 1)
    check(client.broker)


def test_if_4_user_code_that_raises_inside_a_sink_strands_nothing(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """What it was given is its own until it closes; the broker goes on, for it and for the others."""

    def raises(batch: list[Arrival]) -> None:
        raise Struck

    receiver, sink = client.receiver(demand=2, on_batch=raises)
    client.send("a", "b", "c")
    sink.wait(2)
    client.take(1)
    check(client.broker)
    receiver.close(None)
    client.session.close(None)
    assert client.shown() == [("visible", 0)] * 3
    assert "failed to take a batch" in caplog.text
