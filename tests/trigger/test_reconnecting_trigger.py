"""Triggers whose link is lost go on without a new receiver object of theirs: exactly once with a history. O06, S08, TR-62."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from jmsclient import Delivery, Worker
from jmsclient.errors import ConfigurationError, ConnectionLostError, JmsClientError, RequestTimeoutError, TransactionInDoubtError
from jmsclient.events import Event, subscribe
from jmsclient.testing import ScriptedBackend
from jmsclient.testing.scripted import DEFAULT_CAPABILITIES

Until = Callable[..., None]
SETTINGS = "initial_reconnect_delay=0.001&max_reconnect_delay=0.005"


def url_of(backend: ScriptedBackend, more: str = "") -> str:
    return f"failover:({backend.url})?{SETTINGS}{more}"


def link_of(worker: Worker) -> Any:
    return worker._transport


def lose(backend: ScriptedBackend, worker: Worker, until: Until) -> None:
    dead = link_of(worker).present
    backend.lose_link()
    until(lambda: link_of(worker).present not in (None, dead))


def test_o06_a_message_in_hand_completes_and_its_copy_is_a_duplicate(
    backend: ScriptedBackend, until: Until, events: list[Event]
) -> None:
    ran: list[str] = []
    running, go_on = threading.Event(), threading.Event()
    worker = Worker(url_of(backend), history="memory:")

    @worker.trigger("Q", prefetch=10)
    def handle(text: str) -> None:
        ran.append(text)
        if len(ran) == 3:
            running.set()
            assert go_on.wait(60)

    backend.deliver("Q", [f"m{number}" for number in range(30)])
    with worker:
        assert running.wait(30)
        lose(backend, worker, until)
        go_on.set()
        until(lambda: len(ran) == 30)
        (trigger,) = worker.triggers.values()
        until(lambda: trigger.counters["duplicate"] == 1)
        until(lambda: not backend.waiting("Q") and not backend.unsettled("Q"))
        assert trigger.running
    assert ran == [f"m{number}" for number in range(30)]
    assert not {event.name for event in events} & {"in_doubt", "delivery_limit"}
    assert backend.dead_letters == []


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.timeout(60)
def test_each_message_runs_once_through_many_losses(concurrency: int, backend: ScriptedBackend, until: Until) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    ran: list[str] = []
    worker = Worker(url_of(backend), history="memory:")

    @worker.trigger("Q", prefetch=10, concurrency=concurrency)
    def handle(text: str) -> None:
        ran.append(text)

    sent: list[str] = []
    with worker:
        for number in range(60):
            fresh = [f"m{number}-{one}" for one in range(chance.randrange(1, 8))]
            sent += fresh
            backend.deliver("Q", list(fresh))
            enough = len(ran) + chance.randrange(len(fresh))
            until(lambda enough=enough: len(ran) >= enough)
            lose(backend, worker, until)
        until(lambda: len(ran) >= len(sent))
        until(lambda: not backend.waiting("Q") and not backend.unsettled("Q"))
    assert Counter(ran) == Counter(sent), seed
    assert backend.dead_letters == []


@pytest.mark.timeout(60)
def test_tr62_a_transacted_trigger_sends_once_through_many_losses(backend: ScriptedBackend, until: Until) -> None:
    """What was received over one link and sent over the next is rolled back; the message comes again, and is New."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    ran: list[str] = []
    worker = Worker(url_of(backend), history="memory:")

    @worker.trigger("Q", prefetch=3, transacted=True, concurrency=2)
    def handle(text: str, delivery: Delivery) -> None:
        ran.append(text)
        delivery.send("R", text)

    sent: list[str] = []
    with worker:
        for number in range(40):
            fresh = [f"m{number}-{one}" for one in range(chance.randrange(1, 6))]
            sent += fresh
            backend.deliver("Q", list(fresh))
            enough = len(ran) + chance.randrange(len(fresh))
            until(lambda enough=enough: len(ran) >= enough)
            lose(backend, worker, until)
        until(lambda: len(backend.waiting("R")) >= len(sent))
        until(lambda: not backend.waiting("Q") and not backend.unsettled("Q"))
    assert Counter(one.body() for one in backend.waiting("R")) == Counter(sent), seed


def test_tr62_a_loss_between_receiving_and_sending_rolls_back(backend: ScriptedBackend, until: Until) -> None:
    worker = Worker(url_of(backend), history="memory:")
    ran: list[int] = []

    @worker.trigger("Q", transacted=True)
    def handle(text: str, delivery: Delivery) -> None:
        ran.append(delivery.delivery_count)
        if len(ran) == 1:
            lose(backend, worker, until)
        delivery.send("R", text)

    backend.deliver("Q", "m")
    with worker:
        until(lambda: len(backend.waiting("R")) == 1)
        until(lambda: not backend.waiting("Q") and not backend.unsettled("Q"))
    assert ran == [1, 2]
    assert len(backend.waiting("R")) == 1


def test_s08_a_commit_in_doubt_stays_so(backend: ScriptedBackend, until: Until, events: list[Event]) -> None:
    worker = Worker(url_of(backend), history="memory:")

    @worker.trigger("Q", transacted=True, in_doubt="dead_letter")
    def handle(text: str, delivery: Delivery) -> None:
        delivery.send("R", text)

    backend.refuse_commits(TransactionInDoubtError("the link was lost"), applied=True)
    backend.deliver("Q", "m")
    with worker:
        until(lambda: any(event.name == "commit_in_doubt" for event in events))
        backend.refuse_commits(None)
        lose(backend, worker, until)
        assert len(backend.waiting("R")) == 1


def test_a_worker_stops_during_an_outage(backend: ScriptedBackend, until: Until) -> None:
    ran: list[str] = []
    worker = Worker(url_of(backend), history="memory:", grace=5.0)
    before = set(threading.enumerate())

    @worker.trigger("Q")
    def handle(text: str) -> None:
        ran.append(text)

    with worker:
        backend.deliver("Q", "m")
        until(lambda: ran)
        backend.refuse_connect(ConnectionLostError("nobody listens"))
        backend.lose_link()
        until(lambda: link_of(worker).present is None)
        report = worker.stop(20.0)
    assert report.clean
    until(lambda: not [one for one in set(threading.enumerate()) - before if "reconnect" in one.name])


def test_a_worker_ends_when_the_tries_are_used_up(backend: ScriptedBackend, until: Until) -> None:
    ran: list[str] = []
    worker = Worker(url_of(backend, "&max_reconnect_attempts=2"), history="memory:")

    @worker.trigger("Q")
    def handle(text: str) -> None:
        ran.append(text)
        backend.refuse_connect(ConnectionLostError("nobody listens"))
        backend.lose_link()

    backend.deliver("Q", "m")
    with pytest.raises(ConnectionLostError, match="2 tries"):
        worker.run()
    assert ran == ["m"]


# -- before there ever was a link (decision 11) -------------------------------------------------------------------------


def counting(worker: Worker) -> list[str]:
    """What its trigger got."""
    ran: list[str] = []

    @worker.trigger("Q")
    def handle(text: str) -> None:
        ran.append(text)
        worker.request_stop()

    return ran


def test_a_worker_that_runs_waits_for_its_first_broker(backend: ScriptedBackend, until: Until) -> None:
    worker = Worker(url_of(backend), history="memory:")
    ran = counting(worker)
    told: list[Event] = []
    unsubscribe = subscribe(told.append)
    backend.refuse_connect(ConnectionLostError("nobody listens"))
    backend.deliver("Q", "m")
    reports: list[Any] = []
    running = threading.Thread(target=lambda: reports.append(worker.run()))
    running.start()
    until(lambda: [event for event in told if event.name == "waiting"])
    backend.refuse_connect(RequestTimeoutError("no answer"))
    backend.refuse_connect(None)
    running.join(10.0)
    unsubscribe()
    assert not running.is_alive()
    assert ran == ["m"]
    assert reports[0].clean
    waits = [event for event in told if event.name == "waiting"]
    assert len(waits) == 1, "once, however long it lasts"
    assert "nobody listens" in waits[0].text


def test_a_stop_ends_the_wait_for_the_first_broker(backend: ScriptedBackend, until: Until) -> None:
    worker = Worker(f"failover:({backend.url})?initial_reconnect_delay=1000&max_reconnect_delay=1000", history="memory:")
    counting(worker)
    told: list[str] = []
    unsubscribe = subscribe(lambda event: told.append(event.name))
    backend.refuse_connect(ConnectionLostError("nobody listens"))
    reports: list[Any] = []
    running = threading.Thread(target=lambda: reports.append(worker.run()))
    running.start()
    until(lambda: "waiting" in told)
    worker.request_stop()
    running.join(10.0)
    unsubscribe()
    assert not running.is_alive()
    assert (reports[0].clean, reports[0].lines()) == (True, [])
    backend.refuse_connect(None)
    backend.deliver("Q", "m")
    assert worker.run().clean, "it can run again"


@pytest.mark.parametrize(
    ("parameters", "error", "says"),
    [
        ("&max_reconnect_attempts=2", ConnectionLostError("nobody listens"), "3 tries: nobody listens"),
        ("&reconnect=no", ConnectionLostError("nobody listens"), "^nobody listens"),
        ("", ConfigurationError("check the password"), "check the password"),
    ],
    ids=["tries used up", "not to be tried", "nothing that time mends"],
)
def test_a_first_broker_that_is_not_waited_for(backend: ScriptedBackend, parameters: str, error: JmsClientError, says: str) -> None:
    worker = Worker(url_of(backend, parameters), history="memory:")
    ran = counting(worker)
    before = set(threading.enumerate())
    backend.refuse_connect(error)
    with pytest.raises(type(error), match=says):
        worker.run()
    with pytest.raises(type(error), match=str(error)):
        worker.start()
    assert ran == []
    left = set(threading.enumerate()) - before
    assert [one for one in left if "reconnect" in one.name or "pipeline" in one.name] == []


# -- to another product -------------------------------------------------------------------------------------------------


def test_after_a_failover_nothing_is_given_back_later_where_the_provider_cannot_delay(until: Until) -> None:
    """TR-67: what the present provider can do decides, not what the first one could."""
    seen: list[str] = []
    with (
        ScriptedBackend(replace(DEFAULT_CAPABILITIES, delayed_release=True)) as one,
        ScriptedBackend(replace(DEFAULT_CAPABILITIES, delayed_release=False)) as two,
    ):
        worker = Worker(f"failover:({one.url},{two.url})?{SETTINGS}")

        @worker.trigger("Q", in_doubt="redeliver", error_destination="E", max_deliveries=4, on_error="acknowledge")
        def handle(text: str) -> None:
            seen.append(text)

        with worker:
            one.deliver("Q", "a", 2)
            until(lambda: [one for one in one.settlements if one.outcome.delay])
            one.refuse_connect(ConnectionLostError("gone"))
            one.lose_link()
            until(lambda: link_of(worker).present is not None and not link_of(worker).capabilities.delayed_release)
            two.deliver("Q", "b", 2)
            until(lambda: two.settlements)
            assert not [settled for settled in two.settlements if settled.outcome.delay]
        assert (one.violations, two.violations) == ([], [])
    assert seen == []
