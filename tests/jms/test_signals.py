"""IF-40: exceptions raised from signal handlers at random points strand nothing, hang nothing, hold no lock; close from a handler;
forks."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection, IllegalStateError, Session, connect
from jmsclient.events import subscribe
from jmsclient.testing.scripted import ScriptedBackend

from ..lightning import ENOUGH, GUARDED, SWALLOWED, Lightning, Season, Struck, lightning  # noqa: TID252  tests are no package that has a name

pytestmark = GUARDED
SECONDS = 2.0
BATCH = 2000


class Box:
    """Where a call's result is stored with no bytecode between at which a signal could strike; `note` counts it afterwards."""

    def __init__(self) -> None:
        self.message: Any = None
        self.seen: Counter[str] = Counter()

    def note(self) -> None:
        if self.message is not None:
            self.seen[self.message.text] += 1


def receive_one(session: Session, consumer: Any, box: Box) -> None:
    box.message = consumer.receive(0.02)
    box.note()


def iterate_some(session: Session, consumer: Any, box: Box) -> None:
    for box.message in consumer:
        box.note()
        if len(box.seen) % 20 == 0:
            return


def acknowledge_some(session: Session, consumer: Any, box: Box) -> None:
    receive_one(session, consumer, box)
    if sum(box.seen.values()) % 7 == 0:
        session.acknowledge()


def acknowledge_one(session: Session, consumer: Any, box: Box) -> None:
    receive_one(session, consumer, box)
    if box.message is not None:
        box.message.acknowledge()


CASES = [
    ("receive", AcknowledgeMode.AUTO, receive_one, 10),
    ("receive_without_window", AcknowledgeMode.AUTO, receive_one, 0),
    ("iterate", AcknowledgeMode.AUTO, iterate_some, 10),
    ("acknowledge", AcknowledgeMode.CLIENT, acknowledge_some, 10),
    ("gather", AcknowledgeMode.DUPS_OK, receive_one, 10),
    ("acknowledge_one", AcknowledgeMode.INDIVIDUAL, acknowledge_one, 10),
]


def one_strike(storm: Lightning, work: Any, session: Session, consumer: Any, box: Box) -> None:
    """Work until struck."""

    def go_on() -> None:
        while True:
            work(session, consumer, box)

    assert storm.hits(go_on)
    box.note()


class Supply:
    """Keeps the queue filled, and knows what it sent."""

    def __init__(self, connection: Connection) -> None:
        self._producer = connection.create_session().create_producer("Q")
        self.sent: dict[str, str] = {}

    def fill(self, seen: int) -> None:
        if len(self.sent) - seen < BATCH:
            texts = [str(number) for number in range(len(self.sent), len(self.sent) + BATCH)]
            self.sent.update(zip(texts, self._producer.send_many(texts), strict=True))


@SWALLOWED
@pytest.mark.parametrize(("mode", "work", "prefetch"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_if40_nothing_is_stranded(
    url: str, mode: AcknowledgeMode, work: Any, prefetch: int, wait_until: Callable[..., None]
) -> None:
    """Every message was seen, is still on the queue, or (acknowledged in AUTO, struck before the return, then its consumer
    closed) is named by an event."""
    box = Box()
    struck: set[object] = set()
    unsubscribe = subscribe(lambda event: struck.add(event.fields.get("message_id")) if event.name == "struck" else None)
    with connect(url) as filler:
        supply = Supply(filler)
        own = connect(url)
        session = own.create_session(mode)
        consumer = session.create_consumer("Q", prefetch=prefetch)
        strikes = 0
        season = Season(SECONDS)
        with lightning() as storm:
            while season.lasts(strikes):
                supply.fill(len(box.seen))
                one_strike(storm, work, session, consumer, box)
                strikes += 1
                if strikes % 25 == 0:
                    close_struck(storm, consumer)
                    wait_until(lambda: emptied(consumer))  # noqa: B023  the keeper may be at it still
                    consumer = session.create_consumer("Q", prefetch=prefetch)
            if mode is AcknowledgeMode.CLIENT:
                session.acknowledge()
            close_struck(storm, own)
        assert strikes > ENOUGH
        rest: set[str | None] = set()
        with filler.create_session() as reading, reading.create_consumer("Q") as last:
            while (message := last.receive(0.5)) is not None:
                rest.add(message.text)
        unsubscribe()
        missing = [text for text, name in supply.sent.items() if not (box.seen[text] or text in rest or name in struck)]
        assert missing == []


def emptied(consumer: Any) -> bool:
    counters = consumer.intake.counters
    return bool(counters.buffered == counters.held == 0)


def close_struck(storm: Lightning, target: Any) -> None:
    """Close under fire until it is closed; the fire ends before a machine that is too busy for so short a time makes it endless."""
    tries = 0
    while not target.closed:
        tries += 1
        if tries < 200:
            storm.hits(target.close)
        else:
            target.close()


@SWALLOWED
def test_if40_a_transacted_move_is_all_or_nothing(url: str) -> None:
    """Messages are moved from one queue to another, each with its mark; whatever strikes, each is in exactly one of them."""
    with connect(url) as filler:
        given = [str(number) for number in range(BATCH)]
        filler.create_session().create_producer("Q").send_many(given)
        own = connect(url)
        session = own.create_session(AcknowledgeMode.TRANSACTED)
        strikes = turns = 0
        season = Season(SECONDS)
        with lightning() as storm:
            while season.lasts(strikes):
                consumer = session.create_consumer("Q" if turns % 2 == 0 else "R", prefetch=10)
                producer = session.create_producer("R" if turns % 2 == 0 else "Q")
                while move(storm, session, consumer, producer):
                    strikes += 1
                    if strikes % 25 == 0:
                        break
                close_struck(storm, consumer)
                turns += consumer.read_ahead.fetched == 0  # there is nothing left to move: back again
            close_struck(storm, own)
        assert strikes > ENOUGH
        left, moved = [texts_of(filler, queue) for queue in ("Q", "R")]
        assert Counter(left + moved) == Counter(given)
        assert moved or turns


@SWALLOWED
def test_if40_a_struck_browser_holds_nothing(url: str) -> None:
    with connect(url) as filler:
        given = [str(number) for number in range(300)]
        filler.create_session().create_producer("Q").send_many(given)
        own = connect(url)
        session = own.create_session()
        strikes = 0
        season = Season(SECONDS / 2)

        def browse() -> None:
            assert len(list(browser)) == len(given)

        with lightning() as storm:
            while season.lasts(strikes):
                browser = session.create_browser("Q")
                while season.lasts(strikes) and not storm.hits(browse):
                    pass
                strikes += 1
            assert [message.text for message in session.create_browser("Q")] == given
            close_struck(storm, own)
        assert strikes > ENOUGH
        assert texts_of(filler, "Q") == given


def move(storm: Lightning, session: Session, consumer: Any, producer: Any) -> bool:
    """Move messages until struck, and roll back what was struck: True. False where nothing is left."""

    def all_of_them() -> None:
        while (message := consumer.receive(0.02)) is not None:
            producer.send(message.text)
            session.commit()

    if not storm.hits(all_of_them):
        return False
    session.rollback()
    return True


def texts_of(connection: Connection, queue: str) -> list[str | None]:
    found: list[str | None] = []
    with connection.create_session() as reading, reading.create_consumer(queue) as last:
        while (message := last.receive(0.5)) is not None:
            found.append(message.text)
    return found


def test_if40_a_close_that_is_struck_before_it_begins_ends_with_its_demand(
    connection: Connection, other: Connection, put: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody closes it again, and its receiver stays for what is not acknowledged: what comes then is for others."""
    put("a", "b")
    session = connection.create_session(AcknowledgeMode.CLIENT)
    consumer = session.create_consumer("Q", prefetch=10)
    assert consumer.receive(10) is not None

    def struck(*_: object) -> None:
        raise Struck

    with monkeypatch.context() as patch:
        patch.setattr(session, "close_on_keeper", struck)
        with pytest.raises(Struck):
            consumer.close()
    connection.keeper.call(lambda: None)
    assert consumer.closed
    assert emptied(consumer)
    put("c")
    found = [message and message.text for message in map(other.create_session().create_consumer("Q").receive, (10, 10, 0))]
    assert found == ["b", "c", None]


@SWALLOWED
@pytest.mark.parametrize("what", ["consumer", "session", "connection"])
def test_if40_close_from_a_signal_handler(url: str, what: str, wait_until: Callable[..., None]) -> None:
    """The receive that the handler interrupted returns None, and everything closes."""
    own = connect(url)
    session = own.create_session()
    consumer = session.create_consumer("Q")
    target: Any = {"consumer": consumer, "session": session, "connection": own}[what]

    def close(number: int, frame: Any) -> None:
        if session.inside and not closed:
            closed.append(True)
            target.close()

    closed: list[bool] = []
    before = signal.signal(signal.SIGALRM, close)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)  # until the receive waits
        assert consumer.receive(30) is None
        assert closed
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    wait_until(lambda: target.closed)
    with pytest.raises(IllegalStateError):
        consumer.receive(0)
    own.close()


@SWALLOWED
def test_ctrl_c_ends_a_receive_without_timeout(connection: Connection) -> None:
    """O02."""
    consumer = connection.create_session().create_consumer("Q")
    with lightning(0.1, 0.1, raises=KeyboardInterrupt) as storm:
        began = time.monotonic()
        assert storm.hits(consumer.receive)
        assert time.monotonic() - began < 10


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_if40_a_forked_childs_connection_is_dead_and_says_so() -> None:
    with ScriptedBackend() as backend, connect(backend.url) as own:
        session = own.create_session()
        consumer = session.create_consumer("Q")
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            answer = "nothing was raised"
            try:
                consumer.receive(0)
            except IllegalStateError as error:
                answer = str(error)
            own.close()
            os.write(writer, answer.encode())
            os._exit(0)
        os.close(writer)
        assert "fork" in os.read(reader, 1000).decode()
        os.close(reader)
        assert os.waitpid(child, 0)[1] == 0
        assert consumer.receive(0) is None
