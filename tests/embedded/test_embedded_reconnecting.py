"""The holder of a store is killed: who is attached and is tried again goes on, as the next holder or with it. O06, S08, IF-11."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection, Worker, connect
from jmsclient.errors import TransactionRolledBackError

from .attached import fresh_name, wait_until

HOLDER = """
import sys
from jmsclient import connect
connection = connect(sys.argv[1])
connection.create_session().create_producer("q").send_many(str(n) for n in range(30))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def holder(store: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the store, in which thirty messages wait."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", HOLDER, f"embedded:?store={store}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait(10)
    process.stdin.close()
    process.stdout.close()


def attached(store: Path) -> Connection:
    url = f"embedded:{fresh_name()}?store={store}&attach=yes&reconnect=yes&initial_reconnect_delay=0.01"
    return connect(url, request_timeout=10.0)


def kill(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait(10)


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK])
def test_o06_a_consumer_goes_on_when_the_holder_is_killed(
    mode: AcknowledgeMode, store: Path, holder: subprocess.Popen[str]
) -> None:
    with attached(store) as connection:
        assert not connection.transport.in_process
        session = connection.create_session(mode)
        consumer = session.create_consumer("q", prefetch=10)
        seen: list[tuple[str | None, int]] = []
        for _ in range(3):
            message = consumer.receive(10.0)
            assert message is not None
            seen.append((message.text, message.delivery_count))
        link: Any = connection.transport
        first = link.present
        kill(holder)
        wait_until(lambda: link.present not in (None, first))  # before that, what is in the buffer may still be handed over
        while {text for text, _ in seen} != {str(number) for number in range(30)} or len(seen) < 30:
            message = consumer.receive(10.0)
            assert message is not None, seen
            seen.append((message.text, message.delivery_count))
        again = seen[3:]
        assert all(count == 1 for text, count in again if int(text or "") >= 3)  # nobody had seen them
        if mode is AcknowledgeMode.CLIENT:
            assert again[:3] == [("0", 2), ("1", 2), ("2", 2)]  # the store knows that they were handed over (IF-11)
            session.acknowledge()
        session.close()
        with connection.create_session() as other:
            assert other.create_consumer("q").receive(0) is None


def test_o06_a_listener_goes_on_when_the_holder_is_killed(store: Path, holder: subprocess.Popen[str]) -> None:
    with attached(store) as one, attached(store) as two:
        seen: list[str | None] = []
        other = two.create_session().create_consumer("q", prefetch=3)
        assert other.receive(10.0) is not None  # first: the listener may be done with all of them in no time
        one.create_session().create_consumer("q", listener=lambda message: seen.append(message.text), prefetch=3)
        wait_until(lambda: len(seen) >= 3)
        kill(holder)
        two.create_session().create_producer("q", send_timeout=10.0).send("last")
        wait_until(lambda: "last" in seen or other.read_ahead.buffered_messages)


def test_s08_b_a_transaction_of_a_killed_holder(store: Path, holder: subprocess.Popen[str]) -> None:
    with attached(store) as connection:
        session = connection.create_session(AcknowledgeMode.TRANSACTED)
        consumer, producer = session.create_consumer("q"), session.create_producer("r", send_timeout=10.0)
        assert consumer.receive(10.0) is not None
        producer.send("r0")
        link: Any = connection.transport
        first = link.present
        kill(holder)
        wait_until(lambda: link.present is not first)  # before that, a commit is in doubt
        with pytest.raises(TransactionRolledBackError):
            session.commit()
        message = consumer.receive(10.0)
        assert message is not None
        assert (message.text, message.delivery_count) == ("0", 2)
        producer.send("r1")
        session.commit()
        results = session.create_consumer("r")
        found = results.receive(10.0)
        assert found is not None
        assert found.text == "r1"
        assert results.receive(0) is None
        session.commit()


def test_o06_a_trigger_goes_on_when_the_holder_is_killed(store: Path, holder: subprocess.Popen[str], tmp_path: Path) -> None:
    ran: list[str] = []
    url = f"embedded:{fresh_name()}?store={store}&attach=yes&reconnect=yes&initial_reconnect_delay=0.01"
    worker = Worker(url, history=f"sqlite:{tmp_path / 'history.db'}")

    @worker.trigger("q", prefetch=10)
    def handle(text: str) -> None:
        ran.append(text)
        if len(ran) == 3:
            kill(holder)

    with worker:
        wait_until(lambda: len(set(ran)) == 30)
        (trigger,) = worker.triggers.values()
        wait_until(lambda: trigger.counters["duplicate"] >= 1)
    assert sorted(map(int, ran)) == list(range(30))
