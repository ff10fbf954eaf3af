"""Administration while messages travel (IF-7, IF-8, IF-20, IF-31, IF-35): nothing is lost or comes twice, the books balance."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from jmsclient import AcknowledgeMode, connect
from jmsclient.errors import (
    DestinationPausedError,
    IllegalStateError,
    InvalidDestinationError,
    JmsClientError,
    ResourceAllocationError,
    TransactionRolledBackError,
)
from jmsclient_embedded.invariants import check

from .conftest import Background, Client, until

ROUNDS = 120
EXPECTED = (DestinationPausedError, ResourceAllocationError)


class Traffic:
    """Senders and consumers of one queue; what each did is written down."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent: list[str] = []
        self.got: list[str] = []
        self.enough = threading.Event()
        self.over = threading.Event()

    def send(self, name: str, mode: AcknowledgeMode) -> None:
        """Again until it is taken: what raised was not sent."""
        with connect(self.url) as connection, connection.create_session(mode) as session:
            producer = session.create_producer("q", send_timeout=0.05)
            while not self.enough.is_set():
                text = f"{name}-{len(self.sent)}"
                while True:
                    try:
                        producer.send(text)
                        if mode is AcknowledgeMode.TRANSACTED:
                            session.commit()
                        break
                    except EXPECTED:
                        if mode is AcknowledgeMode.TRANSACTED:
                            session.rollback()
                self.sent.append(text)

    def receive(self, mode: AcknowledgeMode, prefetch: int) -> None:
        with connect(self.url) as connection, connection.create_session(mode) as session:
            consumer = session.create_consumer("q", prefetch=prefetch)
            while not self.over.is_set():
                message = consumer.receive(0.02)
                if message is None:
                    continue
                if mode is AcknowledgeMode.TRANSACTED:
                    try:
                        session.commit()
                    except TransactionRolledBackError:
                        continue
                elif mode is AcknowledgeMode.CLIENT:
                    session.acknowledge()
                self.got.append(message.text or "")


def actions(client: Client, chance: random.Random, *, recovers: bool) -> list[Callable[[], object]]:
    admin = client.admin

    def paused(call: Callable[[], object]) -> None:
        admin.pause_consumption("q")
        call()
        admin.resume_consumption("q")

    def there_and_back() -> None:
        paused(lambda: admin.move("q", "aside"))
        admin.pause_consumption("aside")
        admin.move("aside", "q")
        admin.resume_consumption("aside")

    def one_by_one(which: str) -> None:
        getattr(admin, f"pause_{which}")(chance.choice(["q", None]))
        for where in ("q", None):
            getattr(admin, f"resume_{which}")(where)

    def recover() -> None:
        held = [one for one in admin.messages("q") if one.owner is not None]
        if held:
            admin.recover_stuck(str(chance.choice(held).message_id), "release")

    found: list[Callable[[], object]] = [
        lambda: one_by_one("production"),
        lambda: one_by_one("insertion"),
        lambda: one_by_one("consumption"),
        there_and_back,
        lambda: admin.create_queue("q", messages_maximum=chance.choice([3, 20, 100])),
        lambda: admin.create_queue("q", quota="shared"),
        lambda: admin.create_quota("shared", messages_maximum=chance.choice([2, 30]), policy=chance.choice(["fifo", "preemptive"])),
        lambda: admin.reset_statistics("q"),
        lambda: client.bodies("q"),
        lambda: check(client.broker),
    ]
    return [*found, recover] if recovers else found


@pytest.mark.parametrize("recovers", [False, True], ids=["", "with recover_stuck"])
@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
def test_if_7_nothing_is_lost_whatever_an_operator_does(
    tmp_path_factory: pytest.TempPathFactory, connect: object, recovers: bool, stored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Without `recover_stuck` each message comes exactly once; with it, one that is at work may come again, and none is lost."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    url = f"embedded:?store={tmp_path_factory.mktemp('store') / 'shop.db'}" if stored else f"embedded:race-{seed}"
    client: Client = connect(url)  # type: ignore[operator]
    client.admin.create_queue("q", messages_maximum=50)
    client.admin.create_queue("aside")
    client.admin.create_quota("shared", messages_maximum=10)
    traffic = Traffic(url)
    takers = ((AcknowledgeMode.AUTO, 0), (AcknowledgeMode.AUTO, 7), (AcknowledgeMode.CLIENT, 7), (AcknowledgeMode.TRANSACTED, 3))
    senders = [
        Background(lambda name=name, mode=mode: traffic.send(name, mode))  # type: ignore[misc]
        for name, mode in (("a", AcknowledgeMode.AUTO), ("t", AcknowledgeMode.TRANSACTED))
    ]
    consumers = [Background(lambda taker=taker: traffic.receive(*taker)) for taker in takers]  # type: ignore[misc]
    done = actions(client, chance, recovers=recovers)
    try:
        for _ in range(ROUNDS):
            try:
                chance.choice(done)()
            except (IllegalStateError, InvalidDestinationError, JmsClientError):
                client.admin.resume_consumption("q")
    finally:
        client.admin.create_queue("q")
        for word in ("production", "insertion", "consumption"):
            getattr(client.admin, f"resume_{word}")()
            getattr(client.admin, f"resume_{word}")("q")
        traffic.enough.set()
        for one in senders:
            one.result()
        try:
            until(lambda: client.stats("q").messages_current + client.stats("q").messages_pending == 0)
        finally:
            traffic.over.set()
    for one in consumers:
        one.result()
    check(client.broker)
    twice = {text: number for text, number in Counter(traffic.got).items() if number > 1}
    assert set(traffic.got) == set(traffic.sent), f"seed {seed}"
    assert recovers or not twice, f"seed {seed}: {twice}"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [], f"seed {seed}"
