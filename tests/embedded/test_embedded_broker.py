"""The broker through its transport, in memory: owners, counts, error destination, times, turns, threads.

Among others: IF-5, IF-10, IF-13.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from jmsclient.clock import SYSTEM_CLOCK
from jmsclient.destination import Queue
from jmsclient.errors import ConfigurationError, ConnectionLostError, IllegalStateError
from jmsclient.events import Event, subscribe
from jmsclient.options import DefaultReadAhead
from jmsclient.testing.manual_clock import ManualClock
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, RETRY_ELSEWHERE, Arrival, Outcome, Verb
from jmsclient_embedded.invariants import check
from jmsclient_embedded.registry import open_broker, release_broker
from jmsclient_embedded.transport import simulate_connection_loss

from .conftest import PATIENCE, Client, Connect, content, hand, in_thread


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for something that the broker's own thread does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happens"
        time.sleep(0.001)


# -- owners and counts ---------------------------------------------------------------------------------------------------


def test_t10_if_8_a_granted_message_names_its_consumer_and_keeps_its_count(client: Client) -> None:
    client.send("a", "b")
    client.take(1)
    assert client.shown() == [("visible", 0), ("receive", 0)]
    owner = client.admin.messages("q")[1].owner
    assert owner is not None
    assert owner.startswith("consumer-")


def test_if_9_a_closed_consumer_owns_nothing_its_session_what_is_unsettled(client: Client) -> None:
    client.send("a", "b", "c")
    receiver, arrivals = client.take(2, hand_over=True)
    receiver.close(None)
    assert {one.owner for one in client.admin.messages("q")} == {None, client.session.group.name}
    receiver.settle(arrivals[:1], ACCEPT)  # the session still may
    client.session.close(None)
    assert client.shown() == [("visible", 1), ("visible", 0)]
    receiver.settle(arrivals[1:], ACCEPT)  # and after its end no more
    assert client.shown() == [("visible", 1), ("visible", 0)]


def test_if_9_closing_returns_what_was_granted_and_not_pushed(client: Client) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def block(batch: list[Arrival]) -> None:
        inside.set()
        assert go_on.wait(PATIENCE)

    receiver, sink = client.receiver(on_batch=block)
    pusher = threading.Thread(target=lambda: receiver.request(9))
    client.send("first")
    client.shown()  # the main thread's send is carried out: the pusher pushes itself
    pusher.start()
    assert inside.wait(PATIENCE)
    in_thread(lambda: client.send("second", "third"))  # granted, waits behind the batch that is being pushed
    closer = threading.Thread(target=lambda: receiver.close(None))
    closer.start()
    eventually(lambda: [one.state for one in client.admin.messages("q")] == ["visible", "visible", "receive"])
    assert closer.is_alive()  # a batch is still inside the sink
    go_on.set()
    closer.join(PATIENCE)
    pusher.join(PATIENCE)
    assert sink.bodies == ["first"]
    assert client.shown() == [("visible", 0), ("visible", 0), ("receive", 0)]


def test_if_11_releases_never_count_and_retries_always_do(client: Client) -> None:
    client.send("a")
    seen = []
    for outcome in (RELEASE, RETRY, RELEASE, RETRY, RETRY_ELSEWHERE, RELEASE):
        receiver, (arrival,) = client.take(1)
        seen.append(arrival.delivery_count)
        receiver.settle([arrival], outcome)
    assert seen == [1, 1, 2, 2, 3, 4]


def test_ra_14_twenty_rounds_of_windows_leave_the_counts_as_they_were(client: Client) -> None:
    client.send(*(str(number) for number in range(10)))
    for _ in range(20):
        session = client.transport.open_session(transacted=False, deadline=None)
        client.session, kept = session, client.session
        client.take(10)
        session.close(None)
        client.session = kept
    assert client.shown() == [("visible", 0)] * 10


def test_if_10_a_lost_connection_gives_everything_back_at_once(connect: Connect) -> None:
    clock = ManualClock()
    client, other = connect(clock=clock), connect(clock=clock)
    client.send("seen", "unseen", "new")
    receiver, sink = client.receiver(demand=2)
    arrivals = sink.wait(2)
    hand(receiver, arrivals[:1])
    simulate_connection_loss(client.transport)
    assert client.listener.heard.wait(PATIENCE)
    assert other.shown() == [("visible", 1), ("visible", 0), ("visible", 0)]
    assert other.take(3)[1][0].delivery_count == 2
    assert len(client.listener.errors) == 1
    receiver.settle(arrivals, ACCEPT)
    receiver.request(5)
    receiver.close(None)
    client.session.close(None)
    client.transport.close(None)
    assert other.shown() == [("receive", 1), ("receive", 0), ("receive", 0)]
    with pytest.raises(ConnectionLostError):
        client.transport.open_session(transacted=False, deadline=None)
    with pytest.raises(ConnectionLostError):
        client.send("too late")


def test_settlements_that_come_too_late_are_counted_and_told(client: Client) -> None:
    events: list[Event] = []
    unsubscribe = subscribe(events.append)
    client.send("a")
    receiver, arrivals = client.take(1)
    client.session.close(None)
    arrivals[0].settled = False  # as if it had been on its way
    receiver.settle(arrivals, ACCEPT)
    check(client.broker)
    unsubscribe()
    assert client.broker.settling.stale == 1
    assert [one.fields for one in events if one.name == "stale_settlement"] == [{"queue": "q", "count": 1}]


# -- limits and the error destination --------------------------------------------------------------------------------------


def test_if_13_t15_the_limit_leads_to_the_error_destination_and_says_why(client: Client) -> None:
    client.admin.create_queue("q", redelivery_limit=1, error_destination="errors")
    client.send(content("poison", properties={"uuid": "u-1"}, expiration=time.time() + 60, correlation_id="c"))
    for _ in range(2):
        receiver, arrivals = client.take(1, hand_over=True)
        receiver.settle(arrivals, Outcome(verb=Verb.RETRY, reason="ValueError"))
    assert client.shown() == []
    _, (dead,) = client.take(1, "errors")
    assert dead.content.body() == "poison"
    properties = dict(dead.content.properties())
    assert abs(properties.pop("JMS_jmsclient_failed_at") - SYSTEM_CLOCK.wall()) < PATIENCE
    assert properties == {
        "uuid": "u-1",
        "JMS_jmsclient_original_destination": "queue:///q",
        "JMS_jmsclient_reason": "redelivery limit reached: ValueError",
        "JMS_jmsclient_deliveries": 2,
    }
    assert dead.content.message_id == arrivals[0].content.message_id
    assert dead.content.header("correlation_id") == "c"
    assert dead.expires_at is None  # IF-33: a redirect drops the expiry
    assert dead.delivery_count == 1
    assert client.admin.statistics("q").messages_moved == 1


def test_if_13_the_urls_limit_is_every_queues_but_not_the_error_destinations(connect: Connect, url: str) -> None:
    client = connect(f"{url}?redelivery_limit=0")
    client.send("a")
    for _ in range(2):
        receiver, arrivals = client.take(1)
        receiver.settle(arrivals, RETRY)
        if client.shown() == []:
            break
    for _ in range(3):
        receiver, arrivals = client.take(1, "DLQ")
        receiver.settle(arrivals, RETRY)
    assert client.shown("DLQ") == [("visible", 3)]


def test_dead_letter_goes_to_dlq_with_the_given_properties(client: Client) -> None:
    client.send("a", "b", "c")
    receiver, sink = client.receiver(demand=2)
    arrivals = sink.wait(2)
    hand(receiver, arrivals[:1])
    receiver.settle(arrivals, Outcome(verb=Verb.DEAD_LETTER, reason="unreadable", properties={"trigger": "t", "n": 3}))
    _, dead = client.take(2, "DLQ")
    assert [one.content.body() for one in dead] == ["a", "b"]
    assert [one.content.properties()["JMS_jmsclient_deliveries"] for one in dead] == [1, 0]
    assert all(one.content.properties()["JMS_jmsclient_reason"] == "unreadable" for one in dead)
    assert all(one.content.properties()["trigger"] == "t" for one in dead)
    assert client.shown() == [("visible", 0)]


def test_t15_without_an_error_destination_it_is_discarded_and_counted(client: Client) -> None:
    client.admin.create_queue("q", redelivery_limit=0, error_destination=None)
    client.send("a")
    receiver, arrivals = client.take(1)
    receiver.settle(arrivals, RETRY)
    assert client.shown() == []
    assert client.admin.statistics("q").messages_discarded == 1


def test_a_dead_letter_of_the_error_destination_itself_is_not_lost(client: Client) -> None:
    client.send("a", queue="DLQ")
    receiver, arrivals = client.take(1, "DLQ")
    receiver.settle(arrivals, Outcome(verb=Verb.DEAD_LETTER))
    assert client.shown("DLQ") == [("visible", 0)]


def test_retry_elsewhere_goes_to_another_consumer_though_the_first_waits(client: Client) -> None:
    receiver, sink = client.receiver(demand=5)
    client.send("a")
    receiver.settle(sink.wait(1), RETRY_ELSEWHERE)
    assert client.shown() == [("visible", 1)]
    _, other = client.receiver(demand=1)
    assert other.wait(1)[0].delivery_count == 2
    client.send("b")
    assert [one.content.body() for one in sink.wait(2)] == ["a", "b"]


# -- times -----------------------------------------------------------------------------------------------------------------


def test_tr_67_a_delayed_release_waits_uncounted_and_keeps_its_place(connect: Connect) -> None:
    clock = ManualClock()
    client = connect(clock=clock)
    client.send("a", "b")
    receiver, arrivals = client.take(1)
    receiver.settle(arrivals, Outcome(verb=Verb.RELEASE, delay=30.0))
    assert client.shown() == [("visible", 0), ("delayed", 0)]
    clock.advance(29.9)
    assert client.shown() == [("visible", 0), ("delayed", 0)]
    clock.advance(0.2)
    eventually(lambda: client.shown() == [("visible", 0), ("visible", 0)])
    assert [one.content.body() for one in client.take(2)[1]] == ["a", "b"]


def test_if_2_a_redelivery_delay_ignores_the_wall_clock(connect: Connect) -> None:
    clock = ManualClock()
    client = connect(clock=clock)
    client.send("a")
    receiver, arrivals = client.take(1)
    receiver.settle(arrivals, Outcome(verb=Verb.RETRY, delay=10.0))
    assert client.shown() == [("delayed", 1)]
    clock.jump_wall(3600)
    clock.advance(1)
    assert client.shown() == [("delayed", 1)]
    clock.advance(9.1)
    eventually(lambda: client.shown() == [("visible", 1)])


def test_if_3_delivery_time_follows_a_forward_step_within_a_second_and_a_backward_step_repeats_nothing(connect: Connect) -> None:
    clock = ManualClock()
    client = connect(clock=clock)
    _, sink = client.receiver(demand=5)
    client.send(content("later", delivery_time=clock.wall() + 3600))
    assert client.shown() == [("delayed", 0)]
    clock.jump_wall(3600)
    clock.advance(1)
    sink.wait(1)
    clock.jump_wall(-7200)
    clock.advance(1)
    assert client.shown() == [("receive", 0)]


def test_if_33_expiry_at_the_hand_over_and_by_the_scan(connect: Connect) -> None:
    clock = ManualClock()
    client = connect(clock=clock)
    client.send(content("dies", expiration=clock.wall() + 5), "lives", content("dies too", expiration=clock.wall() + 5))
    clock.advance(6)
    assert [one.content.body() for one in client.take(1)[1]] == ["lives"]
    assert client.admin.statistics("q").messages_expired == 1
    clock.advance(30)
    eventually(lambda: client.admin.statistics("q").messages_expired == 2)


# -- turns, drain, re-entry --------------------------------------------------------------------------------------------------


def test_consumers_of_one_queue_are_served_in_turn(client: Client) -> None:
    sinks = [client.receiver(demand=100)[1] for _ in range(3)]
    client.send(*(str(number) for number in range(90)))
    for sink in sinks:
        sink.wait(30)
    for _ in range(6):
        client.send("x")
    for sink in sinks:
        sink.wait(32)
    check(client.broker)
    assert [len(sink.arrivals) for sink in sinks] == [32, 32, 32]


def test_if_18_after_drain_there_is_no_demand_and_nothing_follows(client: Client) -> None:
    receiver, sink = client.receiver(demand=10)
    client.send("a")
    receiver.drain(None)
    assert sink.bodies == ["a"]
    client.send("b")
    assert client.shown() == [("visible", 0), ("receive", 0)]
    receiver.request(1)
    sink.wait(2)


def test_if_5_a_closed_consumer_is_matched_no_more(client: Client) -> None:
    receiver, sink = client.receiver(demand=10)
    receiver.close(None)
    client.send("a")
    assert client.shown() == [("visible", 0)]
    assert sink.arrivals == []


@pytest.mark.parametrize("thread", ["main", "other"])
def test_a_sink_may_settle_and_request_and_order_is_kept(client: Client, thread: str) -> None:
    receivers = []

    def take_on_arrival(batch: list[Arrival]) -> None:
        receivers[0].settle(batch, ACCEPT)
        receivers[0].request(len(batch))

    receiver, sink = client.receiver(on_batch=take_on_arrival)
    receivers.append(receiver)
    bodies = [str(number) for number in range(300)]

    def work() -> None:
        client.send(*bodies[:100])
        receiver.request(3)
        for body in bodies[100:]:
            client.send(body)

    if thread == "main":
        work()
    else:
        in_thread(work)
    sink.wait(300)
    assert sink.bodies == bodies
    assert client.shown() == []


def test_a_batch_takes_one_push(client: Client) -> None:
    _, sink = client.receiver(demand=1000)
    client.send(*(str(number) for number in range(500)))
    sink.wait(500)
    assert sink.batches == [500]


def test_a_sink_that_raises_does_not_stop_the_broker(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    def fail(batch: list[Arrival]) -> None:
        raise ValueError("a fault of the sink")

    client.receiver(demand=1, on_batch=fail)
    client.send("a", "b")
    assert client.take(1)[1][0].content.body() == "b"
    assert "failed to take a batch" in caplog.text


def test_close_from_inside_the_own_sink_does_not_hang(client: Client) -> None:
    closed = threading.Event()

    def close(batch: list[Arrival]) -> None:
        client.session.close(None)
        closed.set()

    client.receiver(demand=1, on_batch=close)
    sender = client.transport.open_session(transacted=False, deadline=None).open_sender(Queue("q"), None)
    in_thread(lambda: sender.send([content("a")], room_deadline=None, confirm_timeout=None))
    assert closed.wait(PATIENCE)
    assert client.shown() == [("visible", 0)]


# -- what it says of itself, and refuses -----------------------------------------------------------------------------------


def test_ra_1_the_queues_defread_shows_on_the_receiver(connect: Connect, url: str) -> None:
    client = connect(f"{url}?default_read_ahead=yes")
    client.admin.create_queue("never", default_read_ahead=DefaultReadAhead.DISABLED)
    assert client.receiver("any")[0].default_read_ahead is DefaultReadAhead.YES
    assert client.receiver("never")[0].default_read_ahead is DefaultReadAhead.DISABLED
    assert client.receiver("DLQ")[0].default_read_ahead is DefaultReadAhead.YES


def test_if_25_a_pre_settled_delivery_is_gone_when_sent(client: Client) -> None:
    client.send("a")
    _, sink = client.receiver(demand=1, pre_settled=True)
    assert sink.wait(1)[0].settled
    assert client.shown() == []
    assert client.admin.statistics("q").messages_acknowledged == 1


def test_a_closed_session_or_transport_says_so(client: Client) -> None:
    client.session.close(None)
    client.session.close(None)
    with pytest.raises(IllegalStateError, match="session is closed"):
        client.receiver()
    client.transport.close(None)
    client.transport.close(None)
    with pytest.raises(IllegalStateError, match="transport is closed"):
        client.transport.open_session(transacted=False, deadline=None)
    assert client.listener.errors == []


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ("stroe=x", "unknown parameter 'stroe'.*store,.*redelivery_limit,.*default_read_ahead"),
        ("redelivery_limit=many", "redelivery_limit='many'"),
        ("redelivery_limit=-2", "redelivery_limit=-2"),
        ("production_paused=perhaps", "production_paused='perhaps'.*true, false or default"),
        ("default_read_ahead=perhaps", "default_read_ahead='perhaps'.*no, yes, disabled"),
        ("store=", "store=''"),
    ],
)
def test_a_bad_parameter_is_named_with_what_is_allowed(connect: Connect, url: str, parameters: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        connect(f"{url}?{parameters}")


def test_one_name_is_one_broker_and_other_parameters_are_refused(connect: Connect, url: str) -> None:
    first, second = connect(f"{url}?redelivery_limit=2"), connect()
    assert first.broker is second.broker
    connect(f"{url}?redelivery_limit=2")
    with pytest.raises(ConfigurationError, match="other parameters"):
        connect(f"{url}?redelivery_limit=3")
    assert open_broker(first.broker.name, clock=SYSTEM_CLOCK) is first.broker


def test_a_broker_in_memory_outlives_its_connections(connect: Connect) -> None:
    first = connect()
    first.send("a")
    first.transport.close(None)
    assert connect().shown() == [("visible", 0)]


def test_messages_without_an_id_get_one(client: Client) -> None:
    client.send(content("a", message_id=None), content("b", message_id=None))
    ids = {one.message_id for one in client.admin.messages("q")}
    assert len(ids) == 2
    assert all(one is not None and one.startswith("ID:") for one in ids)


def test_bodies_in_memory_are_the_senders_own_object(client: Client) -> None:
    message = content("a" * 1000, persistent=False)
    client.send(message)
    assert client.take(1)[1][0].content is message


def test_a_private_broker_ends_with_its_last_connection() -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if "just-for-this" in thread.name]

    first = open_broker("just-for-this", {"private": "yes"})
    assert open_broker("just-for-this") is first
    release_broker(first)
    assert threads()
    release_broker(first)
    assert not threads()
    with pytest.raises(ConfigurationError, match="private='maybe': expected yes or no"):
        open_broker("just-for-this", {"private": "maybe"})
