"""A connection that outlives its links (`transport/link.py`): what applications see of an outage. O06, S08; IF-27, IF-28, IF-39."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from jmsclient import AcknowledgeMode, Connection, Message, Session, connect, events
from jmsclient.clock import Bell
from jmsclient.errors import (
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    SendError,
    TransactionInDoubtError,
    TransactionRolledBackError,
    UnsupportedFeatureError,
)
from jmsclient.options import ConnectionOptions
from jmsclient.testing.manual_clock import ManualBell, ManualClock
from jmsclient.testing.scripted import DEFAULT_CAPABILITIES, ScriptedBackend
from jmsclient.testing.scripted_links import ScriptedReceiver
from jmsclient.transport.contract import Arrival
from jmsclient.transport.registry import parse_places

from .conftest import until

Until = Callable[..., None]
FAST = "initial_reconnect_delay=0.001&max_reconnect_delay=0.01"


@pytest.fixture
def backend() -> Iterator[ScriptedBackend]:
    with ScriptedBackend() as backend:
        yield backend
        assert backend.violations == []


@pytest.fixture
def connection(backend: ScriptedBackend) -> Iterator[Connection]:
    with connect(f"failover:({backend.url})?{FAST}", request_timeout=5.0) as connection:
        yield connection


@pytest.fixture
def heard() -> Iterator[list[str]]:
    names: list[str] = []
    end = events.subscribe(lambda event: names.append(event.name))
    yield names
    end()


class Outage:
    """The provider is away until `end`."""

    def __init__(self, backend: ScriptedBackend, connection: Connection) -> None:
        self._backend = backend
        self._connection = connection

    def begin(self) -> None:
        self._backend.refuse_connect(ConnectionLostError("nobody listens"))
        self._backend.lose_link()
        self._wait(lambda: self._link.present is None)

    def end(self) -> None:
        self._backend.refuse_connect(None)
        self._wait(lambda: self._link.present is not None)

    def blink(self) -> None:
        """Lost, and back."""
        self.begin()
        self.end()

    @property
    def _link(self) -> Any:
        return self._connection.transport

    def _wait(self, condition: Callable[[], object]) -> None:
        until(condition)


@pytest.fixture
def outage(backend: ScriptedBackend, connection: Connection) -> Outage:
    return Outage(backend, connection)


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    found: list[object] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


# -- receiving ----------------------------------------------------------------------------------------------------------


def test_o06_a_receive_that_waits_goes_on_through_the_outage(
    backend: ScriptedBackend, connection: Connection, outage: Outage, wait_until: Until, heard: list[str]
) -> None:
    consumer = connection.create_session().create_consumer("Q")
    thread, found = in_thread(lambda: consumer.receive(5.0))
    wait_until(lambda: consumer._active)
    outage.blink()
    backend.deliver("Q", "after")
    thread.join(20)
    assert [one.text for one in found if isinstance(one, Message)] == ["after"]
    assert connection.failure is None
    assert heard.count("link_lost") == heard.count("link_back") == 1  # one line a fault
    assert "lost" not in heard


def test_a_receive_ends_at_its_time_out_during_an_outage(connection: Connection, outage: Outage, backend: ScriptedBackend) -> None:
    consumer = connection.create_session().create_consumer("Q")
    outage.begin()
    assert consumer.receive(0.05) is None
    assert consumer.receive(0) is None
    outage.end()
    backend.deliver("Q", "later")
    message = consumer.receive(5.0)
    assert message is not None
    assert message.text == "later"


@pytest.mark.parametrize("prefetch", [0, 1, 10, 100])
def test_ra26_what_was_kept_leaves_the_buffer_and_comes_again(
    prefetch: int, backend: ScriptedBackend, connection: Connection, outage: Outage, wait_until: Until
) -> None:
    """RA-26: kept arrivals of a lost receiver count as released; IF-17: no more is asked for than fits."""
    consumer = connection.create_session().create_consumer("Q", prefetch=prefetch)
    backend.deliver("Q", [f"m{number}" for number in range(30)])
    first = consumer.receive(5.0)
    assert first is not None
    if prefetch > 1:
        wait_until(lambda: consumer.read_ahead.buffered_messages > 0)
    outage.begin()
    assert consumer.read_ahead.buffered_messages == 0
    outage.end()
    seen = [first.text]
    while (message := consumer.receive(0.2)) is not None:
        seen.append(message.text)
        assert message.delivery_count == 1  # nobody had seen it
        assert backend.demand("Q") <= max(1, prefetch)
    assert seen == [f"m{number}" for number in range(30)]
    counters = consumer.intake.counters
    assert counters.fetched == counters.delivered + counters.released


def test_taken_messages_stay_and_are_handed_over_first(
    backend: ScriptedBackend, connection: Connection, outage: Outage, wait_until: Until
) -> None:
    """RA-3, architecture "Reconnect is the core's": the provider has them no more."""
    consumer = connection.create_session().create_consumer("queue:///Q?readAheadAllowed=YES")
    backend.deliver("Q", ["taken"], persistent=False)
    backend.deliver("Q", ["kept"])
    wait_until(lambda: consumer.read_ahead.buffered_messages == 2)
    outage.begin()
    assert consumer.read_ahead.buffered_messages == consumer.read_ahead.buffered_taken == 1
    message = consumer.receive(0)  # while there is no link
    assert message is not None
    assert message.text == "taken"
    outage.end()
    message = consumer.receive(5.0)
    assert message is not None
    assert message.text == "kept"
    assert consumer.receive(0) is None


def test_a_listener_goes_on(backend: ScriptedBackend, connection: Connection, outage: Outage, wait_until: Until) -> None:
    seen: list[str | None] = []
    consumer = connection.create_session().create_consumer("Q")
    consumer.listener = lambda message: seen.append(message.text)
    backend.deliver("Q", ["a"])
    wait_until(lambda: seen == ["a"])
    outage.blink()
    backend.deliver("Q", ["b", "c"])
    wait_until(lambda: seen == ["a", "b", "c"])


def test_a_consumer_made_during_an_outage_waits_for_its_end(
    backend: ScriptedBackend, connection: Connection, outage: Outage
) -> None:
    session = connection.create_session()
    outage.begin()
    thread, found = in_thread(lambda: session.create_consumer("Q").receive(5.0))
    other, made = in_thread(connection.create_session)
    backend.deliver("Q", "m")
    outage.end()
    thread.join(20)
    other.join(20)
    assert [one.text for one in found if isinstance(one, Message)] == ["m"]
    assert isinstance(made[0], Session)


def test_an_outage_is_not_waited_for_on_the_keeper(connection: Connection, outage: Outage) -> None:
    """The main thread waits for a link itself, so that others get what they ask of the keeper."""
    session = connection.create_session()
    consumer = session.create_consumer("Q")
    outage.begin()

    def close() -> None:
        consumer.close()  # if it had to wait for the main thread, the outage would not end
        outage.end()

    closer = threading.Timer(0.05, close)
    closer.start()
    with connection.create_session() as other:  # on the main thread
        other.create_consumer("R").close()
    closer.join()


def test_a_receiver_that_is_refused_when_it_is_opened_again_says_why(
    backend: ScriptedBackend, connection: Connection, outage: Outage, wait_until: Until
) -> None:
    session = connection.create_session()
    consumer = session.create_consumer("Q")
    outage.begin()
    backend.refuse_attach(InvalidDestinationError("no such queue any more"))
    outage.end()
    wait_until(lambda: consumer.intake.ended)
    with pytest.raises(InvalidDestinationError, match="no such queue"):
        consumer.receive(10)
    backend.refuse_attach(None)
    assert session.create_consumer("Q").receive(0) is None  # the session lives


def test_a_receiver_that_cannot_be_opened_yet_keeps_no_other_waiting(
    backend: ScriptedBackend, connection: Connection, outage: Outage, wait_until: Until, heard: list[str]
) -> None:
    """Such as a subscription of which the provider still thinks that the lost link has it."""
    session = connection.create_session()
    consumer = session.create_consumer("Q")
    producer = connection.create_session().create_producer("R")
    outage.begin()
    backend.refuse_attach(IllegalStateError("somebody else has it"))
    outage.end()
    wait_until(lambda: "receiver_lost" in heard)
    backend.refuse_attach(None)
    producer.send("r")
    backend.deliver("Q", "m")
    message = consumer.receive(5.0)
    assert message is not None


def test_a_temporary_queue_does_not_outlive_its_link(connection: Connection, outage: Outage, wait_until: Until) -> None:
    """The provider ends it with the connection that made it; nothing is made under its name by itself."""
    session = connection.create_session()
    queue = session.create_temporary_queue()
    outage.blink()
    assert session.create_temporary_queue().name != queue.name


# -- a receiver that the peer closes ------------------------------------------------------------------------------------


def test_a_receiver_that_the_peer_closes_is_opened_again(
    backend: ScriptedBackend, connection: Connection, wait_until: Until, heard: list[str]
) -> None:
    consumer = connection.create_session().create_consumer("Q")
    backend.deliver("Q", ["m1", "m2"])
    wait_until(lambda: consumer.read_ahead.buffered_messages == 2)
    backend.close_receivers(ConnectionLostError("closed for no good reason"))
    wait_until(lambda: "receiver_lost" in heard)
    for text in ("m1", "m2"):
        message = consumer.receive(5.0)
        assert message is not None
        assert message.text == text
    assert "link_lost" not in heard
    assert consumer.receive(0) is None


def test_a_receiver_that_the_peer_closes_and_refuses_ends(
    backend: ScriptedBackend, connection: Connection, wait_until: Until
) -> None:
    consumer = connection.create_session().create_consumer("Q")
    backend.refuse_attach(InvalidDestinationError("no such queue any more"))
    backend.close_receivers(None)
    wait_until(lambda: consumer.intake.ended)
    with pytest.raises(InvalidDestinationError):
        consumer.receive(10)


def test_a_receiver_that_the_peer_closes_for_a_reason_ends(
    backend: ScriptedBackend, connection: Connection, wait_until: Until
) -> None:
    consumer = connection.create_session().create_consumer("Q")
    backend.close_receivers(InvalidDestinationError("deleted"))
    wait_until(lambda: consumer.intake.ended)
    with pytest.raises(InvalidDestinationError, match="deleted"):
        consumer.receive(10)


def test_a_session_that_opens_nothing_has_its_link_made_again(
    backend: ScriptedBackend, connection: Connection, wait_until: Until, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that is about to stop ends sessions first; the link may say nothing for long."""
    monkeypatch.setattr("jmsclient.transport.link.NOTICE", 0.05)
    consumer = connection.create_session().create_consumer("Q")
    backend.refuse_attach(ConnectionLostError("the session has ended"))
    backend.close_receivers(ConnectionLostError("the session has ended"))
    wait_until(lambda: "link_lost" in heard)
    backend.refuse_attach(None)
    backend.deliver("Q", "m")
    message = consumer.receive(5.0)
    assert message is not None
    assert connection.failure is None


def test_a_session_that_only_sends_has_its_link_made_again(
    backend: ScriptedBackend, connection: Connection, wait_until: Until, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jmsclient.transport.link.NOTICE", 0.05)
    producer = connection.create_session().create_producer("R", send_timeout=5.0)
    producer.send("r1")
    backend.refuse_sends(ConnectionLostError("the session has ended"))
    with pytest.raises(SendError, match="nothing was sent"):
        producer.send("r2")
    backend.refuse_sends(None)
    backend.refuse_attach(ConnectionLostError("the session has ended"))
    _thread, found = in_thread(lambda: producer.send("r3"))
    wait_until(lambda: "link_lost" in heard)
    backend.refuse_attach(None)
    wait_until(lambda: found)
    assert [one.body() for one in backend.waiting("R")] == ["r1", "r3"]


def test_closing_while_a_receiver_is_opened_again(backend: ScriptedBackend, connection: Connection, wait_until: Until) -> None:
    before = set(threading.enumerate())
    consumer = connection.create_session().create_consumer("Q")
    backend.refuse_attach(IllegalStateError("somebody else has it"))
    backend.close_receivers(None)
    consumer.close()
    connection.close(10.0)
    wait_until(lambda: not [one for one in set(threading.enumerate()) - before if "reopen" in one.name])


# -- acknowledging ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL])
def test_o06_an_acknowledge_of_an_old_delivery_settles_no_other(
    mode: AcknowledgeMode, backend: ScriptedBackend, connection: Connection, outage: Outage, heard: list[str]
) -> None:
    consumer = connection.create_session(mode).create_consumer("Q", prefetch=1)
    backend.deliver("Q", ["m1", "m2"])
    old = consumer.receive(5.0)
    assert old is not None
    outage.blink()
    again = consumer.receive(5.0)
    assert again is not None
    assert (again.text, again.delivery_count) == ("m1", 2)  # seen before
    old.acknowledge()
    assert heard.count("stale_acknowledge") == 1
    assert backend.settlements == []
    assert again.message_id in backend.unsettled("Q")
    again.acknowledge()
    assert [one.message_id for one in backend.settlements] == [again.message_id]


def test_session_acknowledge_after_an_outage_skips_what_was_lost(
    backend: ScriptedBackend, connection: Connection, outage: Outage
) -> None:
    session = connection.create_session(AcknowledgeMode.CLIENT)
    consumer = session.create_consumer("Q", prefetch=1)
    backend.deliver("Q", ["m1"])
    assert consumer.receive(5.0) is not None
    outage.begin()
    session.acknowledge()  # nothing left to acknowledge, and no reason to wait
    session.recover()
    outage.end()
    assert backend.settlements == []
    message = consumer.receive(5.0)
    assert message is not None
    session.acknowledge()
    assert len(backend.settlements) == 1


def test_auto_and_iteration_through_an_outage(backend: ScriptedBackend, connection: Connection, outage: Outage) -> None:
    """IF-39: what a loop had in hand when the link was lost comes again; its late accept does nothing."""
    consumer = connection.create_session().create_consumer("Q", prefetch=1)
    backend.deliver("Q", ["m1", "m2"])
    seen: list[tuple[str | None, int]] = []
    for message in consumer:
        seen.append((message.text, message.delivery_count))
        if len(seen) == 1:
            outage.blink()
        if message.text == "m2":
            break
    assert seen == [("m1", 1), ("m1", 2), ("m2", 1)]


def test_dups_ok_gathered_before_an_outage(backend: ScriptedBackend, connection: Connection, outage: Outage) -> None:
    session = connection.create_session(AcknowledgeMode.DUPS_OK)
    consumer = session.create_consumer("Q")
    backend.deliver("Q", ["m1"])
    assert consumer.receive(5.0) is not None
    outage.blink()
    consumer.flush_gathered()
    message = consumer.receive(0.3)
    assert message is None or message.text == "m1"


# -- sending ------------------------------------------------------------------------------------------------------------


def test_a_send_during_an_outage_waits_for_its_end(backend: ScriptedBackend, connection: Connection, outage: Outage) -> None:
    producer = connection.create_session().create_producer("Q")
    producer.send("before")
    outage.begin()
    thread, found = in_thread(lambda: producer.send("during"))
    outage.end()
    thread.join(20)
    assert found == [backend.waiting("Q")[-1].message_id]
    assert [one.body() for one in backend.waiting("Q")] == ["before", "during"]


def test_a_send_during_an_outage_ends_at_its_time_out_unsent(
    backend: ScriptedBackend, connection: Connection, outage: Outage
) -> None:
    producer = connection.create_session().create_producer("Q", send_timeout=0.05)
    producer.send("before")
    outage.begin()
    with pytest.raises(SendError, match="nothing was sent") as raised:
        producer.send("during")
    assert len(raised.value.unsent) == 1
    assert raised.value.in_doubt == ()
    outage.end()
    assert backend.sent == 1


def test_a_send_under_way_is_in_doubt_and_not_repeated(
    backend: ScriptedBackend, connection: Connection, outage: Outage, wait_until: Until
) -> None:
    producer = connection.create_session().create_producer("Q")
    backend.hold_confirmations()
    thread, found = in_thread(lambda: producer.send("m"))
    wait_until(lambda: backend.sent == 1)
    outage.begin()
    backend.release_confirmations()
    outage.end()
    thread.join(20)
    assert isinstance(found[0], SendError)
    assert len(found[0].in_doubt) == 1
    assert backend.sent == 1
    producer.send("next")
    assert backend.sent == 2


# -- transactions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def transacted(connection: Connection) -> Session:
    return connection.create_session(AcknowledgeMode.TRANSACTED)


def test_s08_b_lost_before_the_commit(
    backend: ScriptedBackend, transacted: Session, outage: Outage, connection: Connection
) -> None:
    consumer = transacted.create_consumer("Q")
    producer = transacted.create_producer("R")
    backend.deliver("Q", ["m1"])
    assert consumer.receive(5.0) is not None
    producer.send("r1")
    outage.blink()
    producer.send("r1 again, in what is lost already")
    with pytest.raises(TransactionRolledBackError):
        transacted.commit()
    assert backend.waiting("R") == []
    transacted.commit()  # the next one is empty
    assert backend.waiting("R") == []
    message = consumer.receive(5.0)
    assert message is not None
    assert message.delivery_count == 2
    producer.send("r1")
    transacted.commit()
    assert [one.body() for one in backend.waiting("R")] == ["r1"]
    assert consumer.receive(0) is None


def test_s08_b_while_disconnected(backend: ScriptedBackend, transacted: Session, outage: Outage) -> None:
    transacted.create_producer("R").send("r1")
    outage.begin()
    with pytest.raises(TransactionRolledBackError):
        transacted.commit()
    transacted.commit()
    outage.end()
    assert backend.waiting("R") == []


def test_s08_c_rollback_while_disconnected(backend: ScriptedBackend, transacted: Session, outage: Outage) -> None:
    consumer = transacted.create_consumer("Q")
    backend.deliver("Q", ["m1"])
    assert consumer.receive(5.0) is not None
    outage.begin()
    transacted.rollback()
    outage.end()
    message = consumer.receive(5.0)
    assert message is not None
    transacted.commit()
    assert consumer.receive(0) is None


def test_s08_an_old_message_makes_a_new_transaction_fail(
    backend: ScriptedBackend, transacted: Session, outage: Outage, connection: Connection
) -> None:
    """What was received over the lost link and what is sent over the new one are one transaction, of which a part is lost."""
    consumer = transacted.create_consumer("Q")
    producer = transacted.create_producer("R")
    backend.deliver("Q", ["m1"])
    assert consumer.receive(5.0) is not None
    outage.blink()
    producer.send("r1")
    with pytest.raises(TransactionRolledBackError):
        transacted.commit()
    assert backend.waiting("R") == []


def test_an_empty_transaction_survives_an_outage(backend: ScriptedBackend, transacted: Session, outage: Outage) -> None:
    consumer = transacted.create_consumer("Q")
    outage.blink()
    backend.deliver("Q", ["m1"])
    assert consumer.receive(5.0) is not None
    transacted.commit()
    assert backend.waiting("Q") == []


def test_s08_a_commit_in_doubt_is_not_repeated(backend: ScriptedBackend, transacted: Session, outage: Outage) -> None:
    producer = transacted.create_producer("R")
    producer.send("r1")
    backend.refuse_commits(TransactionInDoubtError("the link was lost"), applied=True)
    with pytest.raises(TransactionInDoubtError):
        transacted.commit()
    backend.refuse_commits(None)
    outage.blink()
    transacted.commit()
    assert [one.body() for one in backend.waiting("R")] == ["r1"]


def test_s08_a_send_under_way_in_a_transaction_says_that_all_of_it_is_undone(
    backend: ScriptedBackend, transacted: Session, outage: Outage, wait_until: Until
) -> None:
    producer = transacted.create_producer("R")
    backend.hold_confirmations()
    _thread, found = in_thread(lambda: producer.send("r1"))
    wait_until(lambda: backend.sent == 1)
    outage.begin()
    backend.release_confirmations()
    outage.end()
    wait_until(lambda: found)
    assert isinstance(found[0], TransactionRolledBackError)
    with pytest.raises(TransactionRolledBackError):
        transacted.commit()  # until then, or until a rollback, it stays so
    producer.send("r2")
    transacted.commit()
    assert [one.body() for one in backend.waiting("R")] == ["r2"]


def test_s08_the_first_send_of_a_transaction_on_a_lost_link_goes_out_on_the_next(
    backend: ScriptedBackend, transacted: Session, connection: Connection
) -> None:
    producer = transacted.create_producer("R")
    backend.lose_link()
    producer.send("r1")  # whether the loss was noticed or not
    transacted.commit()
    assert [one.body() for one in backend.waiting("R")] == ["r1"]


# -- capabilities -------------------------------------------------------------------------------------------------------


def test_after_a_failover_to_another_product_what_it_lacks_is_refused(wait_until: Until) -> None:
    lesser = replace(DEFAULT_CAPABILITIES, transactions=False, browse=False)
    with (
        ScriptedBackend() as one,
        ScriptedBackend(lesser) as two,
        connect(f"failover:({one.url},{two.url})?{FAST}", request_timeout=2.0) as connection,
    ):
        transacted = connection.create_session(AcknowledgeMode.TRANSACTED)
        session = connection.create_session()
        consumer = session.create_consumer("Q")
        assert connection.capabilities.transactions
        one.refuse_connect(ConnectionLostError("gone"))
        one.lose_link()
        wait_until(lambda: not connection.capabilities.transactions)
        two.deliver("Q", "m")
        assert consumer.receive(5.0) is not None
        with pytest.raises(UnsupportedFeatureError, match="browse"):
            session.create_browser("Q")
        with pytest.raises(UnsupportedFeatureError, match="transactions"):
            transacted.create_producer("R").send("r")


@pytest.mark.parametrize("way", ["receive", "iterate", "listen"])
@pytest.mark.parametrize("first", [True, False], ids=["to one that does not", "to one that records"])
def test_if_11_the_next_product_is_told_of_a_hand_over_where_it_wants_that(
    monkeypatch: pytest.MonkeyPatch, wait_until: Until, way: str, first: bool
) -> None:
    """A persistent message is recorded before the application sees it: by what the present provider says, not the first one."""
    told: list[tuple[bool, str | None]] = []

    def handing_over(self: ScriptedReceiver, arrivals: Sequence[Arrival]) -> None:
        records = self.transport.capabilities.records_hand_over
        told.extend((records, str(arrival.content.body())) for arrival in arrivals)

    monkeypatch.setattr(ScriptedReceiver, "handing_over", handing_over)
    monkeypatch.setattr("jmsclient.testing.scripted.check_capabilities", lambda _: None)  # what it cannot do is done here
    kinds = [replace(DEFAULT_CAPABILITIES, records_hand_over=one) for one in (first, not first)]
    with (
        ScriptedBackend(kinds[0]) as one,
        ScriptedBackend(kinds[1]) as two,
        connect(f"failover:({one.url},{two.url})?{FAST}", request_timeout=2.0) as connection,
    ):
        consumer = connection.create_session().create_consumer("Q")
        seen: list[str | None] = []
        if way == "listen":
            consumer.listener = lambda message: seen.append(message.text)

        def see(backend: ScriptedBackend, text: str) -> None:
            backend.deliver("Q", text)
            if way != "listen":
                message = consumer.receive(5.0) if way == "receive" else next(iter(consumer))
                assert message is not None
                seen.append(message.text)
            wait_until(lambda: text in seen)

        see(one, "a")
        one.refuse_connect(ConnectionLostError("gone"))
        one.lose_link()
        wait_until(lambda: connection.capabilities.records_hand_over is not first)
        see(two, "b")
    assert told == [(True, "a" if first else "b")]


def test_ra_13_after_a_failover_nothing_idle_is_given_back_where_a_release_counts(wait_until: Until) -> None:
    lesser = replace(DEFAULT_CAPABILITIES, release_without_count=False)
    clock = ManualClock()
    with ScriptedBackend() as one, ScriptedBackend(lesser) as two:
        places = parse_places(f"failover:({one.url},{two.url})?{FAST}")
        places = replace(places, endpoints=tuple(replace(endpoint, clock=clock) for endpoint in places.endpoints))
        with Connection(places, start=True, request_timeout=60.0, options=ConnectionOptions()) as connection:
            consumer = connection.create_session().create_consumer("Q")
            one.deliver("Q", "a")
            wait_until(lambda: consumer.read_ahead.buffered_messages == 1)
            wait_until(lambda: (clock.advance(1.0), consumer.read_ahead.released)[1] == 1)  # type: ignore[func-returns-value]
            one.refuse_connect(ConnectionLostError("gone"))
            one.lose_link()
            wait_until(lambda: (clock.advance(0.1), connection.capabilities.release_without_count)[1] is False)  # type: ignore[func-returns-value]
            assert consumer.receive_no_wait() is None
            two.deliver("Q", "b")
            wait_until(lambda: consumer.read_ahead.buffered_messages == 1)
            for _ in range(120):
                clock.advance(1.0)
            connection.keeper.call(lambda: None)
            assert consumer.read_ahead.buffered_messages == 1


# -- giving up, closing -------------------------------------------------------------------------------------------------


def test_when_the_tries_are_used_up_the_connection_fails(backend: ScriptedBackend, wait_until: Until) -> None:
    told: list[Exception] = []
    url = f"failover:({backend.url})?{FAST}&max_reconnect_attempts=3"
    with connect(url, request_timeout=2.0) as connection:
        connection.exception_listener = told.append
        session = connection.create_session()
        consumer = session.create_consumer("Q")
        thread, found = in_thread(lambda: consumer.receive(5.0))
        wait_until(lambda: consumer._active)
        backend.refuse_connect(ConnectionLostError("nobody listens"))
        backend.lose_link()
        thread.join(20)
        assert isinstance(found[0], ConnectionLostError)
        wait_until(lambda: told)
        assert "3 tries" in str(told[0])
        with pytest.raises(ConnectionLostError):
            session.create_producer("Q").send("m")


@pytest.mark.parametrize("busy", ["send", "receive", "open", "nothing"])
def test_closing_during_an_outage_returns_at_once(
    busy: str, backend: ScriptedBackend, connection: Connection, outage: Outage, wait_until: Until
) -> None:
    before = set(threading.enumerate())
    session = connection.create_session()
    consumer = session.create_consumer("Q")
    producer = connection.create_session().create_producer("Q")
    producer.send("m0")
    assert consumer.receive(5.0) is not None
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: producer.send("m"),
        "receive": lambda: consumer.receive(20.0),
        "open": connection.create_session,
        "nothing": lambda: None,
    }
    outage.begin()
    thread, found = in_thread(calls[busy])
    if busy == "receive":
        wait_until(lambda: consumer._active)
    connection.close(10.0)
    thread.join(10.0)
    assert not thread.is_alive()
    assert found == [None] or isinstance(found[0], (IllegalStateError, ConnectionLostError))
    wait_until(lambda: not [one for one in set(threading.enumerate()) - before if "reconnect" in one.name])


class _Recorded(ManualBell):
    """Whoever tries again does not wait; for how long it would have is written down."""

    __slots__ = ("_waits",)

    def __init__(self, clock: ManualClock, waits: list[float]) -> None:
        super().__init__(clock)
        self._waits = waits

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None or not threading.current_thread().name.startswith("jmsclient-reconnect"):
            return super().wait(timeout)
        self._waits.append(timeout)
        return False


class _HastyClock(ManualClock):
    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def bell(self) -> Bell:
        return _Recorded(self, self.waits)


def test_back_off_doubles_up_to_the_longest(backend: ScriptedBackend, wait_until: Until) -> None:
    """With jitter of up to a half, so that those who were cut off together do not come back together."""
    clock = _HastyClock()
    places = parse_places(
        f"failover:({backend.url})?initial_reconnect_delay=1&max_reconnect_delay=8&max_reconnect_attempts=6", clock=clock
    )
    with Connection(places, start=True, request_timeout=10.0, options=ConnectionOptions()) as connection:
        backend.refuse_connect(ConnectionLostError("nobody listens"))
        backend.lose_link()
        wait_until(lambda: connection.failure is not None)
    for waited, longest in zip(clock.waits[-6:], (1, 2, 4, 8, 8, 8), strict=True):
        assert longest / 2 <= waited <= longest
