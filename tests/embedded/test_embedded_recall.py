"""IF-20: a consumption pause calls unread windows back, through the Session and the trigger that hold them."""

from __future__ import annotations

import threading

import pytest

from jmsclient import AcknowledgeMode, Connection, Message, Worker, connect
from jmsclient.testing import TestBroker
from jmsclient.transport.administration import Administration
from jmsclient.transport.contract import ACCEPT, Arrival

from .conftest import Background, Client, until

NUMBER = 30


def send(connection: Connection, number: int = NUMBER, queue: str = "q", *, persistent: bool = True) -> list[str]:
    texts = [str(one) for one in range(number)]
    with connection.create_session() as session:
        session.create_producer(queue, persistent=persistent).send_many(texts)
    return texts


def texts_of(messages: list[Message | None]) -> list[tuple[str | None, int]]:
    return [(message.text, message.delivery_count) for message in messages if message is not None]


@pytest.mark.parametrize("mode", list(AcknowledgeMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("everywhere", [False, True], ids=["one queue", "whole broker"])
def test_if_20_the_window_of_a_session_goes_back_uncounted_and_comes_again(
    client: Client, connection: Connection, mode: AcknowledgeMode, everywhere: bool
) -> None:
    """IF-20, pause table: nothing lost, counts unchanged, order kept; what was handed over stays with its session."""
    sent = send(connection)
    where = None if everywhere else "q"
    with connection.create_session(mode) as session:
        consumer = session.create_consumer("q", prefetch=10)
        got = [consumer.receive(5) for _ in range(3)]
        client.admin.pause_consumption(where)
        held = 0 if mode in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK) else 3
        until(lambda: client.numbers()[0] == NUMBER - 3)
        assert consumer.receive_no_wait() is None
        assert client.stats().pending_by_kind.unacknowledged + client.stats().pending_by_kind.uncommitted_received <= 3
        assert client.numbers()[1] in (held, 3)  # DUPS_OK gathers its acknowledges
        assert client.bodies() == sent[3:]
        client.admin.resume_consumption(where)
        got += [consumer.receive(5) for _ in range(NUMBER - 3)]
        assert texts_of(got) == [(text, 1) for text in sent]
        if mode is AcknowledgeMode.TRANSACTED:
            session.commit()
        elif mode is not AcknowledgeMode.AUTO:
            session.acknowledge()
    assert client.numbers() == (0, 0)


def test_if_20_a_listeners_window(client: Client, connection: Connection) -> None:
    sent = send(connection)
    heard: list[tuple[str | None, int]] = []
    inside, go_on = threading.Event(), threading.Event()

    def listen(message: Message) -> None:
        heard.append((message.text, message.delivery_count))
        if len(heard) == 1:
            inside.set()
            assert go_on.wait(60)

    with connection.create_session() as session:
        session.create_consumer("q", prefetch=10, listener=listen)
        assert inside.wait(30)
        client.admin.pause_consumption("q")
        assert client.numbers() == (NUMBER - 1, 1)  # it is back when the call returns
        go_on.set()
        until(lambda: client.numbers() == (NUMBER - 1, 0))
        assert len(heard) == 1
        client.admin.resume_consumption("q")
        until(lambda: len(heard) == NUMBER)
    assert heard == [(text, 1) for text in sent]


def test_if_20_taken_messages_are_the_clients_and_stay(client: Client, connection: Connection) -> None:
    """IF-20 with RA-5: only what is kept can go back."""
    sent = send(connection, persistent=False)
    with connection.create_session() as session:
        consumer = session.create_consumer("queue:///q?readAheadAllowed=YES")
        until(lambda: consumer.read_ahead.buffered_taken == NUMBER)
        client.admin.pause_consumption("q")
        assert consumer.read_ahead.buffered_taken == NUMBER
        assert texts_of([consumer.receive(5) for _ in range(NUMBER)]) == [(text, 1) for text in sent]


def test_if_20_again_and_again_while_messages_come_and_go(client: Client, connection: Connection) -> None:
    """IF-20: pausing and resuming while batches are pushed and taken loses and repeats nothing, and keeps the order."""
    number = 6000
    got: list[tuple[str | None, int]] = []

    def consume() -> None:
        with connection.create_session() as session, session.create_consumer("q", prefetch=20) as consumer:
            while len(got) < number:
                message = consumer.receive(10)
                assert message is not None, f"only {len(got)} came"
                got.append((message.text, message.delivery_count))

    client.admin.create_queue("q")
    consuming = Background(consume)
    sending = Background(lambda: [send(connection, 60) for _ in range(100)])
    rounds = 0
    while consuming.running and rounds < 2000:
        client.admin.pause_consumption("q")
        client.admin.resume_consumption("q")
        rounds += 1
    sending.result()
    consuming.result()
    assert got == [(str(one), 1) for _ in range(100) for one in range(60)]
    assert rounds > 5
    until(lambda: client.numbers() == (0, 0))


@pytest.mark.parametrize("concurrency", [1, 4])
def test_if_20_the_window_of_a_trigger(concurrency: int) -> None:
    """IF-20 through a real Pipeline: running ones end, the rest goes back, and it goes on by itself after the resume."""
    handled: list[tuple[str | None, int]] = []
    started = threading.Semaphore(0)
    go_on = threading.Event()
    worker = Worker()

    @worker.trigger("queue:///q", concurrency=concurrency, prefetch=12)
    def handle(message: Message) -> None:
        started.release()
        assert go_on.wait(60)
        handled.append((message.text, message.delivery_count))

    with TestBroker(worker) as broker, connect(broker.url) as connection:
        admin: Administration = connection.administration
        sent = send(connection)
        for _ in range(concurrency):
            assert started.acquire(timeout=10)
        admin.pause_consumption("q")

        def numbers() -> tuple[int, int]:
            found = admin.statistics("q")
            return found.messages_current, found.messages_pending

        until(lambda: numbers()[1] <= concurrency)
        assert numbers() == (NUMBER - concurrency, concurrency)
        go_on.set()
        until(lambda: numbers() == (NUMBER - concurrency, 0))
        assert len(handled) == concurrency
        admin.resume_consumption("q")
        until(lambda: len(handled) == NUMBER)
        until(lambda: numbers() == (0, 0))
        assert admin.statistics("q").messages_acknowledged == NUMBER
    assert sorted(handled) == sorted((text, 1) for text in sent)
    if concurrency == 1:
        assert handled == [(text, 1) for text in sent]


def test_if_20_what_is_granted_while_a_batch_is_pushed_goes_back_at_once(client: Client) -> None:
    """IF-20 while a sink is busy: what it was not pushed yet is back when the pause returns; it is told to give back the rest."""
    inside, go_on = threading.Event(), threading.Event()

    def busy(batch: list[Arrival]) -> None:
        inside.set()
        assert go_on.wait(60)

    receiver, sink = client.receiver(demand=10, on_batch=busy)
    until(lambda: not client.broker.steps.backlog)  # so that the sending thread pushes, not the broker's
    sending = Background(lambda: client.send("a"))
    assert inside.wait(30)
    client.send("b", "c")
    assert client.numbers() == (0, 3)
    client.admin.pause_consumption("q")
    assert client.numbers() == (2, 1)
    assert sink.recalls == 0  # never while it is pushed to
    go_on.set()
    sending.result()
    until(lambda: sink.recalls == 1)
    client.admin.resume_consumption("q")
    sink.wait(3)
    assert sink.bodies == ["a", "b", "c"]
    assert [arrival.delivery_count for arrival in sink.arrivals] == [1, 1, 1]
    receiver.settle(sink.arrivals, ACCEPT)


def test_if_20_what_was_sent_settled_is_not_called_back(client: Client) -> None:
    """IF-20, IF-25: a message that is gone from the queue is pushed still; a pause loses nothing."""
    inside, go_on = threading.Event(), threading.Event()

    def busy(batch: list[Arrival]) -> None:
        inside.set()
        assert go_on.wait(60)

    _, sink = client.receiver(demand=10, on_batch=busy, pre_settled=True)
    until(lambda: not client.broker.steps.backlog)  # so that the sending thread pushes, not the broker's
    sending = Background(lambda: client.send("a"))
    assert inside.wait(30)
    client.send("b", "c")
    client.admin.pause_consumption("q")
    go_on.set()
    sending.result()
    sink.wait(3)
    assert sink.bodies == ["a", "b", "c"]
    assert client.numbers() == (0, 0)


def test_if_20_a_listener_pauses_its_own_queue(client: Client, connection: Connection) -> None:
    """From inside the call: it gets nothing more until the resume, and its own message is acknowledged."""
    sent = send(connection)
    heard: list[str | None] = []

    def listen(message: Message) -> None:
        heard.append(message.text)
        if len(heard) == 3:
            connection.administration.pause_consumption("q")

    with connection.create_session() as session:
        session.create_consumer("q", prefetch=10, listener=listen)
        until(lambda: client.numbers() == (NUMBER - 3, 0))
        assert heard == sent[:3]
        client.admin.resume_consumption("q")
        until(lambda: client.numbers() == (0, 0))
    assert heard == sent


def test_if_20_a_handler_pauses_its_own_queue() -> None:
    handled: list[str | None] = []
    worker = Worker()

    @worker.trigger("queue:///q", prefetch=12)
    def handle(message: Message) -> None:
        handled.append(message.text)
        if len(handled) == 3:
            with connect(worker.url or "") as connection:
                connection.administration.pause_consumption("q")

    with TestBroker(worker) as broker, connect(broker.url) as connection:
        sent = send(connection)
        admin = connection.administration
        until(lambda: len(handled) == 3)
        until(lambda: admin.statistics("q").messages_current == NUMBER - 3)
        until(lambda: admin.statistics("q").messages_pending == 0)
        assert handled == sent[:3]
        admin.resume_consumption("q")
        until(lambda: len(handled) == NUMBER)
    assert handled == sent


@pytest.mark.parametrize("prefetch", [0, 1, 10])
def test_if_20_iteration_goes_on_after_the_resume(client: Client, connection: Connection, prefetch: int) -> None:
    sent = send(connection)
    got: list[tuple[str | None, int]] = []

    def iterate() -> None:
        with connection.create_session() as session, session.create_consumer("q", prefetch=prefetch) as consumer:
            for message in consumer:
                got.append((message.text, message.delivery_count))
                if len(got) == NUMBER:
                    return

    client.admin.pause_consumption("q")
    iterating = Background(iterate)
    until(lambda: client.stats().consumers_current == 1)
    for _ in range(20):
        client.admin.resume_consumption("q")
        client.admin.pause_consumption("q")
    client.admin.resume_consumption("q")
    iterating.result()
    assert got == [(text, 1) for text in sent]
