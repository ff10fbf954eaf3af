"""Two hundred losses at random moments under load: nothing is lost, nothing is settled that was not acknowledged. O06, S08."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection, Message, Session, connect
from jmsclient.errors import ConnectionLostError, SendError, TransactionRolledBackError
from jmsclient.testing.scripted import ScriptedBackend

from .conftest import until

LOSSES = 200
SETTINGS = "initial_reconnect_delay=0.0005&max_reconnect_delay=0.002"


class Application:
    """One of each kind of work; what each has seen and done, by message id."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.over = False
        self.seen: dict[str, Counter[str | None]] = {queue: Counter() for queue in ("auto", "loop", "client", "in")}
        self.sent: list[str] = []
        self.in_doubt: list[str] = []
        self.undone = 0
        self.failures: list[BaseException] = []
        self.sessions: list[Session] = []
        work: list[Callable[[Session], None]] = [self.receive, self.loop, self.forward, self.send]
        self.threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in work]
        session = self._session(AcknowledgeMode.CLIENT)
        session.create_consumer("client", listener=self.listen)
        for thread in self.threads:
            thread.start()

    def _session(self, mode: AcknowledgeMode) -> Session:
        session = self.connection.create_session(mode)
        self.sessions.append(session)
        return session

    def _run(self, work: Callable[[Session], None]) -> None:
        try:
            work(self._session(AcknowledgeMode.TRANSACTED if work == self.forward else AcknowledgeMode.AUTO))
        except BaseException as error:
            self.failures.append(error)

    def receive(self, session: Session) -> None:
        consumer = session.create_consumer("auto", prefetch=3)
        while not self.over:
            message = consumer.receive(0.05)
            if message is not None:
                self.seen["auto"][message.text] += 1

    def loop(self, session: Session) -> None:
        for message in session.create_consumer("loop"):
            self.seen["loop"][message.text] += 1

    def listen(self, message: Message) -> None:
        self.seen["client"][message.text] += 1
        message.acknowledge()

    def forward(self, session: Session) -> None:
        consumer, producer = session.create_consumer("in"), session.create_producer("out")
        while not self.over:
            message = consumer.receive(0.05)
            if message is None:
                continue
            self.seen["in"][message.text] += 1
            try:
                producer.send(message.text)  # type: ignore[arg-type]
                session.commit()
            except (TransactionRolledBackError, SendError):
                self.undone += 1
                session.rollback()

    def send(self, session: Session) -> None:
        producer = session.create_producer("sent")
        number = 0
        while not self.over:
            number += 1
            try:
                producer.send(f"s{number}")
            except SendError as error:
                if error.in_doubt:
                    self.in_doubt.append(f"s{number}")
            else:
                self.sent.append(f"s{number}")
            threading.Event().wait(0.0005)

    def close(self) -> None:
        self.over = True
        for session in self.sessions:
            session.close(5.0)
        for thread in self.threads:
            thread.join(20)


@pytest.mark.timeout(120)
def test_two_hundred_losses_lose_nothing_and_settle_nothing_wrongly() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with ScriptedBackend() as backend, connect(f"failover:({backend.url})?{SETTINGS}", request_timeout=10.0) as connection:
        link: Any = connection.transport
        application = Application(connection)
        delivered: dict[str, list[str]] = {queue: [] for queue in application.seen}
        for number in range(LOSSES):
            for queue, texts in delivered.items():
                fresh = [f"{queue}-{number}-{one}" for one in range(chance.randrange(1, 6))]
                texts += fresh
                backend.deliver(queue, list(fresh))
            if chance.random() < 0.3:
                backend.refuse_connect(ConnectionLostError("nobody listens"))
            progress = sum(map(len, application.seen.values())) + chance.randrange(4)  # of those at least four
            until(lambda progress=progress: sum(map(len, application.seen.values())) >= progress or link.present is None)
            backend.lose_link()
            backend.refuse_connect(None)
            until(lambda: link.present is not None)
        for queue, texts in delivered.items():
            until(
                lambda queue=queue, texts=texts: set(texts) <= application.seen[queue].keys(),
                timeout=10.0,
                what=lambda queue=queue, texts=texts: (
                    f"seed {seed}, {queue}: {sorted(set(texts) - application.seen[queue].keys())}"
                ),
            )
        done = len(delivered["in"])
        until(lambda: len(backend.waiting("out")) >= done, timeout=10.0, what=lambda: f"seed {seed}")
        application.close()
        assert application.failures == [], seed
        assert connection.failure is None
        out = [one.body() for one in backend.waiting("out")]
        assert Counter(out) == Counter(delivered["in"]), f"seed {seed}: a transaction was not done once"
        stored = {one.body() for one in backend.waiting("sent")}
        assert set(application.sent) <= stored <= {*application.sent, *application.in_doubt}, seed
        for queue in delivered:  # nothing is left, and nothing was accepted that nobody saw
            assert backend.waiting(queue) == [], f"seed {seed}: {queue}"
            assert backend.unsettled(queue) == []
        assert backend.violations == []
        for settled in backend.settlements:
            assert settled.handed_over or settled.verb.name == "RELEASE", f"seed {seed}: {settled}"
        assert application.undone > 0


@pytest.mark.parametrize("moment", ["receive", "send", "commit", "rollback", "recover", "acknowledge", "close"])
@pytest.mark.timeout(60)
def test_a_loss_at_any_moment_of_a_call(moment: str) -> None:
    """Forty times each: the link is cut while the call runs; then everything works."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    mode = AcknowledgeMode.TRANSACTED if moment in ("commit", "rollback") else AcknowledgeMode.CLIENT
    with ScriptedBackend() as backend, connect(f"failover:({backend.url})?{SETTINGS}", request_timeout=10.0) as connection:
        link: Any = connection.transport
        session = connection.create_session(mode)
        consumer, producer = session.create_consumer("Q"), session.create_producer("R")
        calls: dict[str, Callable[[], object]] = {
            "receive": lambda: consumer.receive(10),
            "send": lambda: producer.send("r"),
            "commit": session.commit,
            "rollback": session.rollback,
            "recover": session.recover,
            "acknowledge": session.acknowledge,
            "close": consumer.close,
        }
        for _ in range(40):
            backend.deliver("Q", ["m"])
            if moment != "receive":
                assert consumer.receive(5.0) is not None, seed
            cut = threading.Timer(chance.random() * 0.001, backend.lose_link)
            cut.start()
            try:
                calls[moment]()
            except (SendError, TransactionRolledBackError, ConnectionLostError):
                pass
            cut.join()
            until(lambda: link.present is not None)
            if moment == "close":
                consumer = session.create_consumer("Q")
            settle = session.commit if mode is AcknowledgeMode.TRANSACTED else session.acknowledge
            for _ in range(100):  # all of it comes, and can be settled
                while consumer.receive(0.01) is not None:
                    pass
                with suppress(TransactionRolledBackError, ConnectionLostError):
                    settle()
                    if not backend.waiting("Q") and not backend.unsettled("Q"):
                        break
            assert backend.waiting("Q") == backend.unsettled("Q") == [], seed
        assert backend.violations == []
