"""The jms tests run on two backends, the scripted one with a thread of its own and the embedded one without."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from jmsclient import Connection, MessageConsumer, connect
from jmsclient.intake import Intake
from jmsclient.options import ConnectionOptions
from jmsclient.testing import ManualClock
from jmsclient.testing.scripted import ScriptedBackend
from jmsclient.transport.registry import parse_url


@pytest.fixture(params=["embedded", "scripted"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker of its own for each test."""
    if request.param == "embedded":
        yield f"embedded:test-{secrets.token_hex(8)}"
    else:
        with ScriptedBackend() as backend:
            yield backend.url


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with connect(url, request_timeout=10.0) as connection:
        yield connection


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(url: str, clock: ManualClock) -> Iterator[Connection]:
    """A connection whose time is moved by hand; `put` and `rest` then use it too, for an embedded broker has one clock."""
    endpoint = replace(parse_url(url), clock=clock)
    with Connection(endpoint, start=True, request_timeout=10.0, options=ConnectionOptions()) as timed:
        yield timed


@pytest.fixture
def other(url: str, connection: Connection) -> Iterator[Connection]:
    """A second connection to the same broker."""
    with connect(url, request_timeout=10.0) as other:
        yield other


@pytest.fixture
def put(request: pytest.FixtureRequest) -> Callable[..., list[str]]:
    """Send TEXT messages to a queue, from a session of its own."""

    connection: Connection = request.getfixturevalue("timed" if "timed" in request.fixturenames else "connection")

    def put(*texts: str, queue: str = "Q", persistent: bool = True) -> list[str]:
        with connection.create_session() as session:
            return session.create_producer(queue, persistent=persistent).send_many(texts)

    return put


@pytest.fixture
def rest(request: pytest.FixtureRequest) -> Callable[..., list[tuple[str | None, int]]]:
    """What is left on a queue: text and delivery count of each message."""

    by_hand = "timed" in request.fixturenames  # no time passes: ask the provider once
    connection: Connection = request.getfixturevalue("timed" if by_hand else "connection")

    def rest(queue: str = "Q", wait: float = 0.0 if by_hand else 0.3) -> list[tuple[str | None, int]]:
        found = []
        with connection.create_session() as session, session.create_consumer(queue) as consumer:
            while (message := consumer.receive(wait)) is not None:
                found.append((message.text, message.delivery_count))
        return found

    return rest


def until(condition: Callable[[], object], timeout: float = 20.0, what: Callable[[], str] = str) -> None:
    """Wait for a condition, at most `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {timeout} s {what()}")
        time.sleep(0.002)


@pytest.fixture
def wait_until() -> Callable[..., None]:
    return until


def when(condition: Callable[[], object], call: Callable[[], object]) -> threading.Thread:
    """Have something done by another thread once a condition is true."""
    thread = threading.Thread(target=lambda: (until(condition), call()), daemon=True)
    thread.start()
    return thread


def balance(intake: Intake) -> str:
    """RA-26: empty where fetched = delivered + buffered + held + released + purged + expired + discarded + refused."""
    c = intake.counters
    sums = c.delivered + c.buffered + c.held + c.released + c.purged + c.expired + c.discarded + c.refused
    return "" if c.fetched == sums else f"{c.fetched} fetched, but {sums} in all: {c}"


@pytest.fixture(autouse=True)
def _every_consumer_balances(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """RA-26 after each test, of every consumer that it made, when its connections are closed."""
    made: list[Intake] = []
    make = Intake.__init__

    def recorded(self: Intake, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(Intake, "__init__", recorded)
    yield
    for intake in made:
        until(lambda intake=intake: not balance(intake), what=lambda intake=intake: balance(intake))


@pytest.fixture
def balanced() -> Callable[[MessageConsumer], bool]:
    """RA-26: fetched = delivered + buffered + held + released + purged + expired + discarded + refused."""

    return lambda consumer: not balance(consumer.intake)
