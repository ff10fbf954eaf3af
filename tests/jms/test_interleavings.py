"""1,000 random interleavings of stop, start, close, listener swap and receive from four threads.

Rules RA-16, RA-20, RA-21, RA-22, RA-23, RA-26, IF-5, IF-6. A thousand in AUTO, fewer in the other acknowledge modes, with the
calls that those have. Each run has a plan drawn from a seed: what each thread does, and how long it dawdles before. The threads
meet before every step, so that what the plan puts side by side happens side by side. No call may hang. Afterwards each message was
handed over, each time with the next count, or waits on the queue with the count that follows, or was dropped unseen and counted. A
failure names the seed: `SEED=… pytest …` repeats it.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection, ConsumerOptions, IllegalStateError, Message, MessageConsumer, connect

RUNS = {mode: 1000 if mode is AcknowledgeMode.AUTO else 150 for mode in AcknowledgeMode}
THREADS = 4
STEPS = 6
MESSAGES = 12
PATIENCE = 30.0
POLICIES = ("DELIVER_ALL", "DELIVER_CURRENT")
ACTIONS = ("stop", "start", "start", "close", "listen", "silence", "receive", "receive", "receive", "open", "quiesce")
MORE = {
    AcknowledgeMode.AUTO: (),
    AcknowledgeMode.DUPS_OK: ("recover",),
    AcknowledgeMode.CLIENT: ("receive", "acknowledge", "acknowledge", "recover", "recover"),
    AcknowledgeMode.INDIVIDUAL: ("receive", "acknowledge one", "acknowledge one", "acknowledge", "recover", "recover"),
    AcknowledgeMode.TRANSACTED: ("receive", "commit", "commit", "rollback", "rollback"),
}


@pytest.fixture
def _fine_switching() -> Iterator[None]:
    """Threads take turns a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.00005)
    yield
    sys.setswitchinterval(before)


class Run:
    """One plan at work on one session."""

    def __init__(self, connection: Connection, mode: AcknowledgeMode, seed: int) -> None:
        self.dice = random.Random(seed)
        self.connection = connection
        self.session = connection.create_session(mode)
        self.queue = f"Q{seed}"
        self.sent = [f"{'p' if self.dice.random() < 0.5 else 'n'}{number}" for number in range(MESSAGES)]
        self.actions = ACTIONS + MORE[mode]
        self.seen: list[Message] = []
        self.consumers: list[MessageConsumer] = []
        self.wrong: list[BaseException] = []
        self.plans = [[self._step() for _ in range(STEPS)] for _ in range(THREADS)]
        self._meeting = threading.Barrier(THREADS)
        self._calls: dict[str, Callable[[], Any]] = {
            "stop": connection.stop,
            "start": connection.start,
            "close": lambda: self.consumer.close(timeout=PATIENCE),
            "listen": lambda: setattr(self.consumer, "listener", self.hear),
            "silence": lambda: setattr(self.consumer, "listener", None),
            "receive": self.receive,
            "open": self.open,
            "quiesce": lambda: self.consumer.quiesce(),
            "acknowledge": self.session.acknowledge,
            "acknowledge one": lambda: self.seen and self.seen[-1].acknowledge(),
            "recover": self.session.recover,
            "commit": self.session.commit,
            "rollback": self.session.rollback,
        }
        self.put()
        self.open()

    def _step(self) -> tuple[str, float]:
        return self.dice.choice(self.actions), self.dice.choice((0.0, 0.0, 0.0001, 0.0005))

    @property
    def consumer(self) -> MessageConsumer:
        return self.consumers[-1]

    def put(self) -> None:
        with self.connection.create_session() as session:
            for text in self.sent:
                session.create_producer(self.queue, persistent=text[0] == "p").send(text)

    def open(self) -> None:
        policy = POLICIES[len(self.consumers) % 2]
        uri = f"queue:///{self.queue}?readAheadAllowed=YES&readAheadClosePolicy={policy}"
        options = ConsumerOptions(read_ahead_messages=4)
        self.consumers.append(self.session.create_consumer(uri, options=options))

    def hear(self, message: Message) -> None:
        self.seen.append(message)

    def receive(self) -> None:
        message = self.consumer.receive(0.001)
        if message is not None:
            self.seen.append(message)

    # -- the run ------------------------------------------------------------------------------------------------------

    def go(self) -> None:
        threads = [threading.Thread(target=self._work, args=(plan,), daemon=True) for plan in self.plans]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in threads), "a thread hangs"
        assert self.wrong == []

    def _work(self, plan: list[tuple[str, float]]) -> None:
        for action, dawdle in plan:
            self._meeting.wait(PATIENCE)
            if dawdle:
                time.sleep(dawdle)
            try:
                self._calls[action]()
            except IllegalStateError:  # closed, or another thread's turn: as it should be
                pass
            except BaseException as error:  # told by the main thread, which fails
                self.wrong.append(error)

    def check(self) -> None:
        """Nothing lost, nothing twice, every count right."""
        self.connection.start()
        self.session.close(PATIENCE)
        rest = self.rest()
        delivered = sum(consumer.read_ahead.delivered for consumer in self.consumers)
        discarded = sum(consumer.read_ahead.discarded_on_close for consumer in self.consumers)
        assert delivered == len(self.seen)
        counts: dict[str, list[int]] = {text: [] for text in self.sent}
        for message in self.seen:
            counts[str(message.text)].append(message.delivery_count)
        for text, seen in counts.items():
            assert sorted(seen) == list(range(1, len(seen) + 1)), (text, seen)
        for text, count in rest:
            assert count == len(counts[text]) + 1, (text, count, counts[text])
        missing = [text for text, seen in counts.items() if not seen and text not in dict(rest)]
        assert len(rest) == len(dict(rest))
        assert len(missing) == discarded, (missing, discarded)
        assert all(text[0] == "n" for text in missing), missing  # nothing persistent is ever dropped

    def rest(self) -> list[tuple[str, int]]:
        found = []
        with self.connection.create_session() as session, session.create_consumer(self.queue) as consumer:
            while (message := consumer.receive(0)) is not None:
                found.append((str(message.text), message.delivery_count))
        return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_fine_switching")
@pytest.mark.parametrize("mode", list(AcknowledgeMode), ids=lambda mode: mode.name)
def test_ra26_nothing_hangs_or_is_lost_whatever_four_threads_do_at_once(url: str, mode: AcknowledgeMode) -> None:
    given = os.environ.get("SEED")
    first = int(given) if given else secrets.randbits(32)
    with connect(url) as connection:
        for seed in range(first, first + (1 if given else RUNS[mode])):
            run = Run(connection, mode, seed)
            try:
                run.go()
                run.check()
            except BaseException as error:
                plans = "\n".join(" ".join(action for action, _ in plan) for plan in run.plans)
                raise AssertionError(f"SEED={seed}: {error}\n{plans}") from error
