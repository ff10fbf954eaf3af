"""The broker's answer is lost on its way: nobody knows what happened, and the client says so. S08 (a), O04 (a), C12; IF-28.

A proxy before a real broker swallows what that says, or lets it through slowly.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jmsclient
from jmsclient import AcknowledgeMode, Connection, Message, events
from jmsclient.errors import ConnectionLostError, SendError, TransactionInDoubtError, TransactionRolledBackError

from ..brokers.proxy import Proxy  # noqa: TID252  there is no package to name

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the first test of a broker may have to fetch it
PATIENCE = 20.0
TIME_OUT = 2.0

Behind = Callable[[str], Proxy]


@pytest.fixture
def queue() -> str:
    return f"live.{secrets.token_hex(6)}"


@pytest.fixture
def link_back() -> Iterator[threading.Event]:
    """The link is there again."""
    found = threading.Event()
    end = events.subscribe(lambda event: found.set() if event.name == "link_back" else None)
    yield found
    end()


def left(url: str, *queues: str) -> list[str | None]:
    """What the broker has, read to a mark that is sent now."""
    found: list[str | None] = []
    with jmsclient.connect(url) as connection:
        for one in queues:
            with connection.create_session() as session:
                session.create_producer(one).send("end")
                consumer = session.create_consumer(one)
                while (message := consumer.receive(PATIENCE)) is not None and message.text != "end":
                    found.append(message.text)
                assert message is not None
    return found


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def sent_in_doubt(producer: Any, *bodies: str) -> SendError:
    with pytest.raises(SendError) as caught:
        producer.send_many(bodies)
    return caught.value


def test_s08_a_send_whose_confirmation_is_swallowed_and_whose_link_is_then_lost(
    url: str, queue: str, behind: Behind, link_back: threading.Event
) -> None:
    """The broker has it, and nobody has heard so: it is in doubt, and it is not sent again over the next link."""
    proxy = behind(url)
    with jmsclient.connect(proxy.url, request_timeout=PATIENCE) as connection:
        producer = connection.create_session().create_producer(queue)
        producer.send("known")
        proxy.swallow("from the broker")
        cutting = threading.Thread(target=lambda: (swallowed(proxy), proxy.heal()))
        cutting.start()
        error = sent_in_doubt(producer, "a", "b")
        cutting.join(PATIENCE)
        assert (len(error.in_doubt), error.confirmed, error.unsent) == (2, (), ())
        assert link_back.wait(PATIENCE)
        producer.send("later")
    assert left(url, queue) == ["known", "a", "b", "later"], "never repeated"


def test_s08_a_send_that_never_arrives_is_as_much_in_doubt(
    url: str, queue: str, behind: Behind, link_back: threading.Event
) -> None:
    proxy = behind(url)
    with jmsclient.connect(proxy.url, request_timeout=PATIENCE) as connection:
        producer = connection.create_session().create_producer(queue)
        producer.send("known")
        proxy.swallow("from the client")
        cutting = threading.Thread(target=lambda: (swallowed(proxy, "from the client"), proxy.heal()))
        cutting.start()
        assert len(sent_in_doubt(producer, "a").in_doubt) == 1
        cutting.join(PATIENCE)
        assert link_back.wait(PATIENCE)
    assert left(url, queue) == ["known"]


def test_s08_a_send_that_is_not_confirmed_in_time(url: str, queue: str, behind: Behind) -> None:
    proxy = behind(url)
    with jmsclient.connect(proxy.url, request_timeout=TIME_OUT) as connection:
        producer = connection.create_session().create_producer(queue)
        producer.send("known")
        proxy.swallow("from the broker")
        start = time.monotonic()
        error = sent_in_doubt(producer, "a")
        assert TIME_OUT - 0.1 < time.monotonic() - start < TIME_OUT + 10
        assert (len(error.in_doubt), error.confirmed) == (1, ())
        proxy.heal()
    assert left(url, queue) == ["known", "a"]


def swallowed(proxy: Proxy, direction: Any = "from the broker") -> None:
    """Something was."""
    end = time.monotonic() + PATIENCE
    while not proxy.swallowed[direction]:
        assert time.monotonic() < end, f"nothing came {direction}"
        time.sleep(0.005)


def in_transaction(connection: Connection, queue: str) -> tuple[Any, Any]:
    """A session with m1 received and r1 sent, and its consumer."""
    session = connection.create_session(AcknowledgeMode.TRANSACTED)
    consumer = session.create_consumer(f"{queue}.m")
    message = consumer.receive(PATIENCE)
    assert message is not None
    assert message.text == "m1"
    session.create_producer(f"{queue}.r").send("r1")
    return session, consumer


def transactional(connection: Connection) -> bool:
    return connection.capabilities.transactions


@pytest.mark.parametrize("direction", ["from the broker", "from the client"])
def test_s08_a_commit_whose_answer_is_swallowed_is_in_doubt(
    url: str, queue: str, behind: Behind, link_back: threading.Event, direction: Any
) -> None:
    """(a): an error of its own within about the time-out; r1 is there exactly if m1 is gone; commit again sends nothing again."""
    proxy = behind(url)
    with jmsclient.connect(proxy.url, request_timeout=TIME_OUT) as connection:
        if not transactional(connection):
            return
        connection.create_session().create_producer(f"{queue}.m").send("m1")
        session, consumer = in_transaction(connection, queue)
        proxy.swallow(direction)
        start = time.monotonic()
        with pytest.raises(TransactionInDoubtError) as caught:
            session.commit()
        assert not isinstance(caught.value, TransactionRolledBackError)
        assert TIME_OUT - 0.1 < time.monotonic() - start < TIME_OUT + 10
        proxy.heal()
        assert link_back.wait(PATIENCE)
        session.commit()  # of nothing
        again = consumer.receive(1.0)
        if again is not None:
            assert again.text == "m1"
            assert again.redelivered or connection.capabilities.count_after_loss != "raised"
            session.create_producer(f"{queue}.r").send("r2")
        session.commit()
    committed = direction == "from the broker"
    assert left(url, f"{queue}.m", f"{queue}.r") == (["r1"] if committed else ["r2"])


def test_s08_a_commit_that_its_link_does_not_survive_is_in_doubt(url: str, queue: str, behind: Behind) -> None:
    proxy = behind(url)
    with jmsclient.connect(proxy.url, request_timeout=PATIENCE) as connection:
        if not transactional(connection):
            return
        connection.create_session().create_producer(f"{queue}.m").send("m1")
        session, _ = in_transaction(connection, queue)
        proxy.swallow("from the broker")
        cutting = threading.Thread(target=lambda: (swallowed(proxy), proxy.heal()))
        cutting.start()
        with pytest.raises(TransactionInDoubtError):
            session.commit()
        cutting.join(PATIENCE)
        session.rollback()
    assert left(url, f"{queue}.m", f"{queue}.r") == ["r1"]


def test_o04_a_connection_that_died_silently(url: str, queue: str, behind: Behind) -> None:
    """(a): noticed by the idle time-out; a receive that waits goes on over the next link, and what was not acknowledged comes
    back."""
    proxy = behind(url)
    through = f"{proxy.url}{'&' if '?' in proxy.url else '?'}idle_timeout=2"
    with jmsclient.connect(url) as direct, jmsclient.connect(through, request_timeout=PATIENCE) as connection:
        session = connection.create_session(AcknowledgeMode.CLIENT)
        consumer = session.create_consumer(queue)
        producer = direct.create_session().create_producer(queue)
        producer.send("a")
        message = consumer.receive(PATIENCE)
        assert message is not None
        proxy.swallow("from the broker", "from the client")
        lost, start = threading.Event(), time.monotonic()
        end = events.subscribe(lambda event: lost.set() if event.name == "link_lost" else None)
        healing = threading.Thread(target=lambda: (lost.wait(PATIENCE), proxy.heal()))
        healing.start()
        again = consumer.receive(PATIENCE)
        end()
        assert lost.is_set()
        assert again is not None, f"nothing came within {time.monotonic() - start:.1f} s"
        assert again.text == "a"
        again.acknowledge()
        healing.join(PATIENCE)
    assert left(url, queue) == []


def test_o04_a_handler_that_takes_longer_than_the_idle_time_out(url: str, queue: str) -> None:
    """(b): heartbeats go on both ways while it runs; the message is acknowledged once, over the same link."""
    lost: list[str] = []
    end = events.subscribe(lambda event: lost.append(event.name) if event.name == "link_lost" else None)
    done = threading.Event()

    def listener(message: Message) -> None:
        threading.Event().wait(5.0)  # what takes long is what is tested
        done.set()

    with jmsclient.connect(f"{url}{'&' if '?' in url else '?'}idle_timeout=2") as connection:
        connection.create_session().create_producer(queue).send("long")
        consumer = connection.create_session().create_consumer(queue, listener=listener)
        assert done.wait(PATIENCE)
        consumer.close()
    end()
    assert lost == []
    assert left(url, queue) == []


def test_c12_a_large_message_over_a_slow_link(url: str, queue: str, behind: Behind) -> None:
    """A receive that ends while it is still arriving gives None, and the next gives all of it."""
    proxy = behind(url)
    large = secrets.token_bytes(2 << 20)
    with jmsclient.connect(url, request_timeout=60.0) as direct:
        producer = direct.create_session().create_producer(queue)
        for body in (large, b"small", b"small"):
            producer.send(body)
    with jmsclient.connect(proxy.url, request_timeout=60.0) as connection:
        consumer = connection.create_session().create_consumer(queue)
        proxy.slow(1 << 20)
        start = time.monotonic()
        first = consumer.receive(0.2)
        assert first is None
        assert time.monotonic() - start < 1.5
        found = [consumer.receive(30) for _ in range(3)]
        assert time.monotonic() - start > 1.5, "the link was not slow"
    assert [None if one is None else one.delivery_count for one in found] in ([1, 1, 1], [-1, -1, -1])
    digests = [hashlib.sha256(one.body).hexdigest() if one is not None else None for one in found]  # type: ignore[arg-type]
    assert digests == [hashlib.sha256(body).hexdigest() for body in (large, b"small", b"small")]


def test_if_18_a_drain_that_never_reaches_the_broker(url: str, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link is given up, what waits in the buffer goes back uncounted and in order, and comes over another link."""
    texts = [str(number) for number in range(5)]
    with jmsclient.connect(f"{url}{'&' if '?' in url else '?'}drain_timeout=1") as connection:
        if connection.capabilities.drain == "no":
            return
        consumer = connection.create_session().create_consumer(queue, prefetch=10)
        connection.create_session().create_producer(queue).send_many(texts)
        until(lambda: consumer.read_ahead.buffered_messages == len(texts))
        with monkeypatch.context() as patched:
            patched.setattr("jmsclient_amqp.engine.links.ReceivingLink.drain", lambda link: None)
            consumer.intake.drain(None)  # as a receive does that finds nothing
        found = [consumer.receive(PATIENCE) for _ in texts]
        assert [one.text for one in found if one is not None] == texts
        assert {one.delivery_count for one in found if one is not None} in ({1}, {-1})
        figures = consumer.read_ahead
        assert (figures.fetched, figures.delivered, figures.released) == (10, 5, 5)
    assert left(url, queue) == []


@pytest.mark.parametrize("reconnect", ["yes", "no"])
def test_ra_7_a_browser_loop_whose_link_is_lost_ends_with_an_error(url: str, queue: str, behind: Behind, reconnect: str) -> None:
    proxy = behind(url)
    count = 250
    through = f"{proxy.url}{'&' if '?' in proxy.url else '?'}reconnect={reconnect}"
    with jmsclient.connect(url) as direct, jmsclient.connect(through, request_timeout=PATIENCE) as connection:
        if not connection.capabilities.browse:
            return
        direct.create_session().create_producer(queue, persistent=False).send_many(str(number) for number in range(count))
        seen: list[str | None] = []

        def browse() -> None:
            for message in connection.create_session().create_browser(queue):
                seen.append(message.text)
                if len(seen) == 100:
                    proxy.cut()

        with pytest.raises(ConnectionLostError):
            browse()
        assert 100 <= len(seen) < count
        assert seen == [str(number) for number in range(len(seen))]
        if reconnect == "yes":
            again = [message.text for message in connection.create_session().create_browser(queue)]
            assert again == [str(number) for number in range(count)]
