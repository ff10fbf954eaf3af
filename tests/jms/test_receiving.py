"""receive and iteration: waiting, order, windows, time-outs (P02 to P04, P07; RA-6, RA-23, RA-26, IF-1, IF-4, IF-16, IF-39).

Among others: RA-17, P03.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from jmsclient import (
    Connection,
    ConsumerOptions,
    IllegalStateError,
    MessageConsumer,
    MessageFormatError,
    RequestTimeoutError,
    connect,
)
from jmsclient.clock import SystemBell
from jmsclient.testing.scripted import ScriptedBackend
from jmsclient.testing.scripted_links import ScriptedReceiver

from .conftest import when

Put = Callable[..., list[str]]
Rest = Callable[..., list[tuple[str | None, int]]]
RA = "queue:///Q?readAheadAllowed=YES"


def later(seconds: float, call: Callable[[], Any]) -> threading.Timer:
    timer = threading.Timer(seconds, call)
    timer.start()
    return timer


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan"), "1", True])
def test_if1_bad_timeouts_are_refused_before_anything_happens(connection: Connection, put: Put, timeout: Any) -> None:
    consumer = connection.create_session().create_consumer("Q", prefetch=0)
    with pytest.raises(ValueError, match="timeout="):
        consumer.receive(timeout)
    assert consumer.read_ahead.requests_sent == 0


@pytest.mark.parametrize("timeout", [None, 2**63 - 1, float("inf")])
def test_p04_for_ever_waits_for_the_message(connection: Connection, put: Put, timeout: Any) -> None:
    consumer = connection.create_session().create_consumer("Q")
    sent: list[float] = []
    timer = later(0.3, lambda: (sent.append(time.monotonic()), put("m1")))
    message = consumer.receive(timeout)
    assert message is not None
    assert message.text == "m1"
    assert sent
    timer.join()


@pytest.mark.parametrize("timeout", [0, 0.001])
def test_p04_zero_and_tiny_return_at_once(connection: Connection, timeout: float) -> None:
    consumer = connection.create_session().create_consumer("Q")
    began = time.monotonic()
    assert consumer.receive(timeout) is None
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("prefetch", [0, 10])
def test_p03_no_wait_asks_the_broker(connection: Connection, put: Put, prefetch: int) -> None:
    put("m1", "m2", "m3")
    consumer = connection.create_session().create_consumer("Q", prefetch=prefetch)
    found = [consumer.receive_no_wait() for _ in range(4)]
    assert [message and message.text for message in found] == ["m1", "m2", "m3", None]


def test_p02_no_demand_is_left_by_a_receive_that_timed_out(connection: Connection, other: Connection, put: Put) -> None:
    a = connection.create_session().create_consumer("Q", prefetch=0)
    assert a.receive(0.05) is None
    put("m1", "m2")
    time.sleep(0.2)
    assert a.read_ahead.buffered_messages == 0
    b = other.create_session().create_consumer("Q", prefetch=0)
    first, second = b.receive(10), a.receive(10)
    assert first is not None
    assert second is not None
    assert [(m.text, m.delivery_count, m.redelivered) for m in (first, second)] == [("m1", 1, False), ("m2", 1, False)]


def test_p02_variant_closed_instead(connection: Connection, put: Put, rest: Rest) -> None:
    a = connection.create_session().create_consumer("Q", prefetch=0)
    assert a.receive(0.05) is None
    put("m1", "m2")
    a.close()
    assert rest() == [("m1", 1), ("m2", 1)]


def test_if16_prefetch_0_fetches_one_at_a_time(connection: Connection, put: Put) -> None:
    put("m1", "m2", "m3")
    consumer = connection.create_session().create_consumer(RA, prefetch=0)
    assert consumer.read_ahead.status.name == "INHIBITED"
    assert "prefetch=0" in consumer.read_ahead.explain()
    for _ in range(2):
        assert consumer.receive(10) is not None
        assert consumer.read_ahead.buffered_messages == 0
    assert consumer.read_ahead.fetched == 2


@pytest.mark.parametrize("size", range(1, 11))
def test_ra6_kept_and_taken_come_in_transport_order(
    connection: Connection, put: Put, size: int, balanced: Callable[[MessageConsumer], bool]
) -> None:
    """RA-6: N1 N2 P3 N4."""
    for text, persistent in (("N1", False), ("N2", False), ("P3", True), ("N4", False)):
        put(text, persistent=persistent)
    session = connection.create_session()
    consumer = session.create_consumer(RA, options=ConsumerOptions(read_ahead_messages=size))
    assert consumer.read_ahead.status.name == "YES"
    assert [message and message.text for message in (consumer.receive(10) for _ in range(4))] == ["N1", "N2", "P3", "N4"]
    assert balanced(consumer)


def test_ra5_only_non_persistent_ones_are_taken(connection: Connection, put: Put, wait_until: Callable[..., None]) -> None:
    put("N1", persistent=False)
    put("P2")
    consumer = connection.create_session().create_consumer(RA)
    wait_until(lambda: consumer.read_ahead.buffered_messages == 2)
    assert consumer.read_ahead.buffered_taken == 1


def test_if39_iteration_acknowledges_when_the_next_is_asked_for(connection: Connection, put: Put, rest: Rest) -> None:
    put("a", "b", "c")
    session = connection.create_session()
    with session.create_consumer("Q") as consumer:
        seen = []
        for message in consumer:
            seen.append(message.text)
            if len(seen) == 2:
                break
    assert seen == ["a", "b"]
    assert rest() == [("c", 1)]


@pytest.mark.parametrize("level", ["consumer", "session", "connection"])
def test_if39_an_exception_that_leaves_the_block_gives_the_message_back(
    url: str, connection: Connection, put: Put, rest: Rest, level: str
) -> None:
    from jmsclient import connect

    put("a", "b")
    own = connect(url)
    session = own.create_session()
    consumer = session.create_consumer("Q")
    block: Any = {"consumer": consumer, "session": session, "connection": own}[level]

    def work() -> None:
        with block:
            for message in consumer:
                if message.text == "b":
                    raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        work()
    own.close()
    assert rest() == [("b", 2)]


def test_auto_receive_acknowledges_before_it_returns(connection: Connection, put: Put, rest: Rest) -> None:
    put("a", "b")
    consumer = connection.create_session().create_consumer("Q")

    def work() -> None:
        with consumer:
            assert consumer.receive(10) is not None
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        work()
    assert rest() == [("b", 1)]


@pytest.mark.parametrize("what", ["consumer", "session", "connection"])
def test_p07_ra23_close_wakes_a_receive(
    url: str, connection: Connection, put: Put, rest: Rest, wait_until: Callable[..., None], what: str
) -> None:
    from jmsclient import connect

    own = connect(url)
    session = own.create_session()
    consumer = session.create_consumer("Q")
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(consumer.receive()))
    thread.start()
    wait_until(lambda: session.inside)
    began = time.monotonic()
    {"consumer": consumer, "session": session, "connection": own}[what].close()
    took = time.monotonic() - began
    thread.join(20)
    assert result == [None]
    assert took < 5
    with pytest.raises(IllegalStateError):
        consumer.receive(0)
    put("m1")
    assert rest() == [("m1", 1)]
    own.close()


def test_iteration_ends_when_another_thread_closes(connection: Connection, put: Put) -> None:
    put("a")
    consumer = connection.create_session().create_consumer("Q")
    closing = when(lambda: consumer.read_ahead.delivered == 1, consumer.close)
    assert [message.text for message in consumer] == ["a"]
    closing.join()


def test_a_second_thread_gets_illegal_state_and_harms_nothing(
    connection: Connection, put: Put, wait_until: Callable[..., None]
) -> None:
    session = connection.create_session()
    consumer = session.create_consumer("Q")
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(consumer.receive(20)))
    thread.start()
    wait_until(lambda: session.inside)
    with pytest.raises(IllegalStateError, match="one thread at a time"):
        consumer.receive(0)
    put("m")
    thread.join(20)
    assert result[0].text == "m"
    assert consumer.receive(0) is None


def test_threads_may_take_turns(connection: Connection, put: Put) -> None:
    put(*[str(number) for number in range(6)])
    consumer = connection.create_session().create_consumer("Q")
    seen: list[str | None] = []

    def one() -> None:
        message = consumer.receive(10)
        assert message is not None
        seen.append(message.text)

    for _ in range(6):
        thread = threading.Thread(target=one)
        thread.start()
        thread.join()
    assert seen == ["0", "1", "2", "3", "4", "5"]


def test_a_stopped_connection_hands_nothing_over(connection: Connection, put: Put) -> None:
    """RA-12."""
    consumer = connection.create_session().create_consumer("Q")
    put("a")
    connection.stop()
    assert consumer.receive(0.05) is None
    later(0.1, connection.start)
    message = consumer.receive(5)
    assert message is not None
    assert message.text == "a"


def test_ra17_quiesce_then_empty(connection: Connection, put: Put, wait_until: Callable[..., None]) -> None:
    put("a", "b", persistent=False)
    consumer = connection.create_session().create_consumer(RA)
    wait_until(lambda: consumer.read_ahead.buffered_messages == 2)
    assert consumer.quiesce() == 2
    put("c", persistent=False)
    found = [consumer.receive(5) for _ in range(3)]
    assert [message and message.text for message in found] == ["a", "b", None]
    assert consumer.close().discarded == 0


def test_receive_body_of_another_type_stays_at_the_head(connection: Connection, put: Put) -> None:
    put("text")
    consumer = connection.create_session().create_consumer("Q")
    with pytest.raises(MessageFormatError, match="TEXT"):
        consumer.receive_body(dict, 1)
    assert consumer.receive_body(str, 10) == "text"


def test_if40_a_wait_that_is_interrupted_leaves_no_waiter(connection: Connection, other: Connection, put: Put) -> None:
    """IF-4: the next message goes to another consumer."""
    consumer = connection.create_session().create_consumer("Q", prefetch=0)
    session: Any = consumer._session

    class Struck(SystemBell):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    session.bell, bell = Struck(), session.bell
    with pytest.raises(KeyboardInterrupt):
        consumer.receive(5)
    session.bell = bell
    time.sleep(0.05)
    put("m")
    message = other.create_session().create_consumer("Q", prefetch=0).receive(10)
    assert message is not None
    assert consumer.read_ahead.buffered_messages == 0


def test_closed_consumer_refuses_to_receive_and_closes_twice(connection: Connection) -> None:
    consumer = connection.create_session().create_consumer("Q")
    consumer.close()
    consumer.close()
    with pytest.raises(IllegalStateError):
        consumer.receive()
    assert list(consumer) == []


# -- a provider that takes long to say what it has ------------------------------------------------------------------------


def slow_drains(monkeypatch: pytest.MonkeyPatch, times: int) -> list[float]:
    """So many drains of the scripted backend are not answered in time; how long each was given."""
    given: list[float] = []
    drain = ScriptedReceiver.drain

    def drained(self: ScriptedReceiver, deadline: float | None) -> None:
        given.append(float("inf") if deadline is None else deadline - self.transport.clock.monotonic())
        if len(given) > times:
            drain(self, deadline)
            return
        with self.state.lock:
            self.demand = 0  # the provider does it, and its answer comes too late
        raise RequestTimeoutError("no answer")

    monkeypatch.setattr(ScriptedReceiver, "drain", drained)
    return given


def test_c12_a_receive_with_a_window_is_not_kept_by_what_is_still_arriving(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends about in time; the demand, which nobody knows then, is made sure of by the next one that has to wait."""
    given = slow_drains(monkeypatch, 2)
    with ScriptedBackend() as backend, connect(backend.url, request_timeout=5.0) as connection:
        consumer = connection.create_session().create_consumer("Q", prefetch=10)
        assert consumer.receive(0.0) is None
        assert given[0] <= 1.0
        assert consumer.intake.unsure
        found: list[str | None] = []
        waiting = threading.Thread(target=lambda: found.extend(one.text for one in [consumer.receive(10.0)] if one is not None))
        waiting.start()
        backend.deliver("Q", "late")
        waiting.join(10.0)
        assert found == ["late"]
        assert not consumer.intake.unsure
        backend.deliver("Q", [str(number) for number in range(30)])
        texts = [consumer.receive(5.0) for _ in range(30)]
        assert [one.text for one in texts if one is not None] == [str(number) for number in range(30)]


def test_if_18_a_receive_without_a_window_has_its_demand_taken_back_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came later would wait for nobody (P02)."""
    given = slow_drains(monkeypatch, 1)
    with ScriptedBackend() as backend, connect(backend.url, request_timeout=5.0) as connection:
        consumer = connection.create_session().create_consumer("Q", prefetch=0)
        with pytest.raises(RequestTimeoutError):
            consumer.receive(0.0)
        assert given[0] > 1.0
        backend.deliver("Q", "later")
        message = consumer.receive(5.0)
        assert message is not None
        assert message.text == "later"
