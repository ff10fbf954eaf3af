"""What the settings of a trigger say about messages that are no plain New or Duplicate: each policy, and what it may not do.

TR-28, TR-32 to TR-36, TR-39, TR-40, TR-45, TR-55, TR-58.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jmsclient import Delivery, Message, Status, TriggerOptions, Worker
from jmsclient.errors import ConfigurationError, HistoryUnavailableError
from jmsclient.events import Event
from jmsclient.history import DocumentHistory, Reply, State, open_history
from jmsclient.history.entries import Claim, Command
from jmsclient.history.memory import MemoryHistory
from jmsclient.testing import ManualClock, ScriptedBackend, TestBroker
from jmsclient.testing.scripted import DEFAULT_CAPABILITIES
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Verb
from jmsclient.trigger.delivery import ResolverRequest

from ..seen import named, verbs  # noqa: TID252  tests are no package that has a name

Q = "queue:///orders"
ERRORS = "queue:///errors"
Until = Callable[..., None]
ByHand = Callable[[Worker], Worker]


def message(uuid: str, body: str = "a") -> Message:
    return Message(body, properties={"uuid": uuid})


@pytest.fixture
def history(clock: ManualClock) -> DocumentHistory:
    """Its time stands still, as the worker's does that lives on `clock`."""
    return MemoryHistory(clock=clock)


# policy -> how it is settled, how often it ran, what is then known of it, how many copies are at the error destination
IN_DOUBT = {
    "acknowledge": (Verb.ACCEPT, 0, State.PROCESSING, 0),
    "dead_letter": (Verb.ACCEPT, 0, State.PROCESSING, 1),
    "redeliver": (Verb.RETRY, 0, State.PROCESSING, 0),
    "run": (Verb.ACCEPT, 1, State.COMPLETED, 0),
    None: (Verb.ACCEPT, 0, State.PROCESSING, 1),  # not durable: dead_letter
}


@pytest.mark.parametrize("policy", IN_DOUBT)
def test_tr34_an_abandoned_message_is_treated_as_the_policy_says(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event], policy: Any
) -> None:
    verb, runs, state, copies = IN_DOUBT[policy]
    history.claim(Q, "1", source="uuid", lease=0.0)
    ran: list[int] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, in_doubt=policy, error_destination=ERRORS)
    def book(delivery: Delivery) -> None:
        ran.append(delivery.attempt)

    with worker:
        backend.deliver(Q, message("1"), delivery_count=2)
        until(lambda: backend.settlements)
        counters = worker.triggers[Q].counters  # a message that goes back comes again
        assert counters["abandoned"] == 1 or (policy == "redeliver" and counters["abandoned"] == counters["in_doubt"] > 0)
    assert verbs(backend)[0] is verb
    assert ran == [2] * runs
    entry = history.lookup(Q, "1", source="uuid")
    assert entry is not None
    assert entry.state is state
    left = backend.waiting(ERRORS)
    assert [one.body() for one in left] == ["a"] * copies
    assert all("in_doubt: abandoned" in one.properties().values() for one in left)


def test_tr34_park_needs_a_durable_history(backend: ScriptedBackend) -> None:
    for history in (None, "memory:"):
        worker = Worker(backend.url, history=history)
        worker.trigger(Q, in_doubt="park")(lambda: None)
        with pytest.raises(ConfigurationError, match="must be durable"):
            worker.start()


@pytest.mark.parametrize("durable", [False, True])
def test_tr35_in_progress_may_be_taken_for_in_doubt_as_the_vendor_does(
    backend: ScriptedBackend, until: Until, events: list[Event], tmp_path: Path, durable: bool
) -> None:
    """Acknowledged while the first worker still runs: its `complete` then settles the parked copy (TR-34)."""
    history = open_history(f"sqlite:{tmp_path / 'history.db'}" if durable else "memory:")
    claim = history.claim(Q, "1", source="uuid", lease=60.0)
    worker = Worker(backend.url, history=history)
    worker.trigger(Q, in_progress="in_doubt", error_destination=ERRORS)(lambda: pytest.fail("it must not run"))
    with worker:
        backend.deliver(Q, message("1"))
        until(lambda: verbs(backend) == [Verb.ACCEPT])
        counters = worker.triggers[Q].counters
        assert (counters["in_progress"], counters["in_doubt"], counters["parked"]) == (1, 1, durable)
    (told,) = named(events, "in_doubt")
    assert "(in_progress)" in told.text
    assert [one.reason for one in history.in_doubt(Q)] == ["in_progress"] * durable
    assert len(backend.waiting(ERRORS)) == (not durable)
    history.complete(Q, "1", source="uuid", token=claim.token)
    assert history.in_doubt(Q) == []
    history.close()


def test_tr36_abandoned_may_be_run_again_and_the_event_says_so(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event]
) -> None:
    history.claim(Q, "1", source="uuid", lease=0.0)
    attempts: list[int] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, options=TriggerOptions(abandoned="retry"), resolver=lambda _: pytest.fail("nobody is asked"))
    def book(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)

    with worker:
        backend.deliver(Q, [message("1"), message("2")], delivery_count=2)
        until(lambda: len(backend.settlements) == 2)
        assert worker.triggers[Q].counters["abandoned"] == 1
    assert attempts == [2, 1]
    assert [(one.fields["id"], one.fields["over"]) for one in named(events, "new")] == [("1", "processing"), ("2", None)]


@pytest.mark.parametrize("taken_over", [False, True])
def test_tr40_a_lease_is_renewed_for_max_run_time_and_no_longer(
    backend: ScriptedBackend, history: DocumentHistory, by_hand: ByHand, clock: ManualClock, until: Until, taken_over: bool
) -> None:
    """Past its lease a run still completes with its own token, unless another has the entry now (TR-39)."""
    go_on = threading.Event()
    worker = by_hand(Worker(backend.url, history=history))

    @worker.trigger(Q, concurrency=2, lease=30.0, options=TriggerOptions(max_run_time=45.0))
    def book(body: str) -> None:
        assert go_on.wait(60)

    with worker:
        pipeline = worker.triggers[Q].pipeline
        backend.deliver(Q, message("1"))
        until(lambda: pipeline._leases.due())
        for passed in range(10, 50, 10):
            clock.advance(10.0)
            until(lambda passed=passed: pipeline._leases.due() in ([], [1000.0 + passed + 10.0]))
            entry = history.lookup(Q, "1", source="uuid")
            assert entry is not None
            assert entry.lease_alive
        clock.advance(31.0)  # 71 s since the claim, 31 s since the last renewal
        until(lambda: pipeline._leases.due() == [])
        entry = history.lookup(Q, "1", source="uuid")
        assert entry is not None
        assert (entry.state, entry.lease_alive) == (State.PROCESSING, False)
        if taken_over:
            assert history.claim(Q, "1", source="uuid", token="other", take_over=True).claimed
        go_on.set()
        until(lambda: backend.settlements)
        assert worker.triggers[Q].counters["lease_lost"] == taken_over
    assert verbs(backend)[0] is (Verb.RETRY if taken_over else Verb.ACCEPT)
    entry = history.lookup(Q, "1", source="uuid")
    assert entry is not None
    assert (entry.state is State.COMPLETED) is not taken_over


def test_tr34_a_late_complete_of_the_first_worker_settles_the_copy_that_a_second_one_parked(
    backend: ScriptedBackend, until: Until, tmp_path: Path
) -> None:
    history = open_history(f"sqlite:{tmp_path / 'history.db'}")
    started, go_on = threading.Event(), threading.Event()
    first, second = Worker(backend.url, history=history), Worker(backend.url, history=history)

    @first.trigger(Q, name="book", lease=0.1, options=TriggerOptions(max_run_time=0.0))
    def book(body: str) -> None:
        started.set()
        assert go_on.wait(60)

    second.trigger("queue:///copies", name="book")(lambda: pytest.fail("it must not run"))
    with first, second:
        backend.deliver(Q, message("1"))
        assert started.wait(30)
        backend.deliver("queue:///copies", message("1"), delivery_count=2)
        until(lambda: [one.reason for one in history.in_doubt("book")] == ["abandoned"])
        go_on.set()
        until(lambda: first.triggers["book"].counters["completed"] == 1)
        assert history.in_doubt("book") == []
        backend.deliver("queue:///copies", message("1"))
        until(lambda: second.triggers["book"].counters["duplicate"] == 1)
    history.close()


@pytest.mark.parametrize(("setting", "runs"), [("check", 1), ("bypass", 2)])
def test_tr28_messages_that_are_not_persistent_are_checked_unless_bypassed(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, setting: Any, runs: int
) -> None:
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, non_persistent=setting)
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        for _ in range(2):
            light = message("1", "light")
            light.content.persistent = False
            backend.deliver(Q, [light, message("2", "heavy")])
        trigger = worker.triggers[Q]
        until(lambda: trigger.counters["completed"] + trigger.counters["duplicate"] == 4)
        until(lambda: not backend.unsettled(Q))
    assert (ran.count("light"), ran.count("heavy")) == (runs, 1)
    assert (history.lookup(Q, "1", source="uuid") is None) is (setting == "bypass")


@pytest.mark.parametrize("with_history", [False, True])
def test_tr32_without_an_id_the_resolver_is_told_so_and_no_entry_is_made(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, with_history: bool
) -> None:
    asked: list[ResolverRequest] = []
    ran: list[str] = []

    def resolver(request: ResolverRequest) -> Status:
        asked.append(request)
        return Status.NEW

    worker = Worker(backend.url, history=history if with_history else None)

    @worker.trigger(Q, resolver=resolver)
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        nameless = Message("a")
        nameless.content.message_id = ""
        backend.deliver(Q, nameless, delivery_count=2)
        until(lambda: verbs(backend) == [Verb.ACCEPT])
    assert [(one.id, one.source, one.trigger, one.delivery_count, one.entry) for one in asked] == [(None, None, Q, 2, None)]
    assert asked[0].message.text == "a"
    assert ran == ["a"]
    assert history.statistics() == {}


def test_tr33_two_triggers_on_one_topic_each_have_a_history_of_their_own(until: Until) -> None:
    """And one that keeps its name keeps its history, whatever its function is called."""
    history = open_history("memory:")
    ran: list[str] = []
    worker, renamed = Worker(history=history), Worker(history=history)

    @worker.trigger("topic:///prices", name="chart")
    def draw(body: str) -> None:
        ran.append("draw")

    @worker.trigger("topic:///prices", name="alarm")
    def ring(body: str) -> None:
        ran.append("ring")

    @renamed.trigger("topic:///prices", name="chart")
    def draw_better(body: str) -> None:
        ran.append("draw better")

    with TestBroker() as broker:
        worker.url = renamed.url = broker.url
        with worker:
            broker.send("topic:///prices", "7", properties={"uuid": "x"})
            until(lambda: sorted(ran) == ["draw", "ring"])
            until(lambda: all(one.counters["completed"] == 1 for one in worker.triggers.values()))
        with renamed:
            broker.send("topic:///prices", "7", properties={"uuid": "x"})
            until(lambda: renamed.triggers["chart"].counters["duplicate"] == 1)
    assert sorted(ran) == ["draw", "ring"]
    history.close()


class LosesReplies(MemoryHistory):
    """Carries out, then says that it did not answer, as often as asked to."""

    losing = 0

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        replies = super().exchange(commands)
        if self.losing and any(isinstance(one, Claim) for one in commands):
            self.losing -= 1
            raise HistoryUnavailableError("the reply was lost")
        return replies


def test_tr39_a_claim_that_was_never_confirmed_is_released_by_its_token(
    backend: ScriptedBackend, by_hand: ByHand, clock: ManualClock, until: Until
) -> None:
    """It was made, nobody heard: without the release its message would be in progress for a lease, and then In Doubt."""
    history = LosesReplies(clock=clock)
    history.losing = 1
    attempts: list[int] = []
    worker = by_hand(Worker(backend.url, history=history))

    @worker.trigger(Q, lease=3600.0)
    def book(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)

    with worker:
        backend.deliver(Q, message("1"))
        until(lambda: worker.triggers[Q].state == "suspended" and clock.waiters >= 1)
        entry = history.lookup(Q, "1", source="uuid")
        assert entry is not None
        assert entry.state is State.PROCESSING
        assert attempts == []
        clock.advance(1.0)  # the probe
        until(lambda: verbs(backend)[-1:] == [Verb.ACCEPT])
        assert worker.triggers[Q].counters["in_progress"] == 0
    assert attempts == [1]


@pytest.mark.parametrize("answer", [Status.NEW, Status.DUPLICATE])
def test_tr55_of_two_whose_resolvers_say_new_one_claims_it_and_runs(
    backend: ScriptedBackend, history: DocumentHistory, by_hand: ByHand, clock: ManualClock, until: Until, answer: Status
) -> None:
    """The claim is what decides, for both were asked about the same abandoned run; and it is counted once a delivery (TR-65)."""
    history.claim("book", "1", source="uuid", lease=0.0)
    both_asked = threading.Barrier(2)
    go_on = threading.Event()
    attempts: list[int] = []
    workers = [by_hand(Worker(backend.url, history=history)) for _ in range(2)]

    def resolver(request: ResolverRequest) -> Status:
        both_asked.wait(60)
        return answer

    for number, worker in enumerate(workers):

        @worker.trigger(f"queue:///copies{number}", name="book", resolver=resolver)
        def book(delivery: Delivery) -> None:
            attempts.append(delivery.attempt)
            assert go_on.wait(60)

    def total(name: str) -> float:
        return sum(worker.triggers["book"].counters[name] for worker in workers)

    with workers[0], workers[1]:
        for number in range(2):
            backend.deliver(f"queue:///copies{number}", message("1"), delivery_count=2)
        if answer is Status.NEW:
            until(lambda: total("in_progress") == 1 and attempts == [2])
        go_on.set()
        until(lambda: total("completed") + total("duplicate") >= 1)
        clock.advance(5.0)
        until(lambda: len(backend.settlements) == 2)
        assert (total("resolver_calls"), total("abandoned"), total("lease_lost")) == (2, 2, 0)
    assert attempts == [2] * (answer is Status.NEW)
    assert verbs(backend) == [Verb.ACCEPT] * 2
    entry = history.lookup("book", "1", source="uuid")
    assert entry is not None
    assert entry.state is State.COMPLETED


@pytest.mark.parametrize("is_async", [False, True])
def test_tr40_leases_of_services_that_run_long_are_renewed(
    backend: ScriptedBackend, history: DocumentHistory, by_hand: ByHand, clock: ManualClock, until: Until, is_async: bool
) -> None:
    go_on = threading.Event()
    started: list[str] = []
    worker = by_hand(Worker(backend.url, history=history))

    def book(body: str) -> None:
        started.append(body)
        assert go_on.wait(60)

    async def book_async(body: str) -> None:
        started.append(body)
        assert await asyncio.to_thread(go_on.wait, 20)

    worker.trigger(Q, lease=30.0, concurrency=2)(book_async if is_async else book)
    with worker:
        leases = worker.triggers[Q].pipeline._leases
        backend.deliver(Q, [message("1"), message("2")])
        until(lambda: len(started) == 2)
        for passed in range(10, 200, 10):
            until(lambda passed=passed: min(leases.due(), default=0.0) == 1000.0 + passed)
            clock.advance(10.0)
        until(lambda: min(leases.due(), default=0.0) == 1200.0)
        entries = history.lookup_many(Q, [("1", "uuid"), ("2", "uuid")])
        assert [(entry.state, entry.lease_alive) for entry in entries if entry] == [(State.PROCESSING, True)] * 2
        go_on.set()
        until(lambda: verbs(backend) == [Verb.ACCEPT] * 2)


def test_tr55_what_the_resolver_says_besides_is_told(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event]
) -> None:
    answers: list[Any] = [(Status.DUPLICATE, "booked on Monday"), Status.NEW, (Status.NEW,)]
    for id_ in "123":
        history.claim(Q, id_, source="uuid", lease=0.0)
    worker = Worker(backend.url, history=history)
    worker.trigger(Q, resolver=lambda _: answers.pop(0))(lambda: None)
    with worker:
        backend.deliver(Q, [message(id_) for id_ in "123"], delivery_count=2)
        until(lambda: len(backend.settlements) == 3)
    told = named(events, "resolved")
    assert [(one.fields["answer"], one.fields["said"]) for one in told] == [
        ("duplicate", "booked on Monday"),
        ("new", None),
        ("new", None),
    ]
    assert "booked on Monday" in told[0].text


@pytest.mark.parametrize("action", ["dead_letter", "acknowledge"])
@pytest.mark.parametrize("with_history", [False, True])
def test_tr58_beyond_the_limit_a_message_is_not_run(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event], action: Any, with_history: bool
) -> None:
    ran: list[int] = []
    worker = Worker(backend.url, history=history if with_history else None)

    @worker.trigger(
        Q,
        max_deliveries=3,
        error_destination=ERRORS,
        resolver=lambda _: Status.NEW,
        options=TriggerOptions(on_max_deliveries=action),
    )
    def book(delivery: Delivery) -> None:
        ran.append(delivery.delivery_count)

    with worker:
        for number, count in enumerate((3, 4, -1)):  # the limit itself, above it, a count that says nothing
            backend.deliver(Q, message(str(number)), delivery_count=count)
        until(lambda: len(backend.settlements) == 3)
    assert ran == [3, -1]
    assert verbs(backend) == [Verb.ACCEPT] * 3
    assert len(backend.waiting(ERRORS)) == (action == "dead_letter")
    assert [one.fields["id"] for one in named(events, "delivery_limit")] == ["1"]
    entry = history.lookup(Q, "1", source="uuid")
    assert (entry.state if entry else None) is (State.COMPLETED if with_history else None)


def test_a_transacted_trigger_with_several_handlers_is_refused_on_a_topic(backend: ScriptedBackend) -> None:
    worker = Worker(backend.url)
    worker.trigger("topic:///prices", transacted=True, concurrency=2)(lambda: None)
    with pytest.raises(ConfigurationError, match="on a topic runs each message as often"):
        worker.start()


@pytest.mark.parametrize(
    "settings",
    [
        {"on_error": "dead_letter", "in_doubt": "acknowledge", "options": TriggerOptions(on_max_deliveries="acknowledge")},
        {"on_error": "acknowledge", "in_doubt": "dead_letter", "options": TriggerOptions(on_max_deliveries="acknowledge")},
        {"on_error": "acknowledge", "in_doubt": "acknowledge"},
    ],
    ids=["on_error", "in_doubt", "on_max_deliveries"],
)
def test_tr45_where_nothing_is_known_to_put_a_message_the_trigger_does_not_start(settings: dict[str, Any]) -> None:
    """Else the first such message would end it."""
    capabilities = Capabilities(drain="yes", reject="requeue", release_without_count=True)
    with ScriptedBackend(capabilities) as backend:
        for history in (None, "memory:"):
            worker = Worker(backend.url, history=history)
            worker.trigger(Q, **settings)(lambda: None)
            with pytest.raises(ConfigurationError, match="give error_destination="):
                worker.start()
            elsewhere = Worker(backend.url, history=history)
            elsewhere.trigger(Q, error_destination=ERRORS, **settings)(lambda: None)
            with elsewhere:
                assert elsewhere.triggers[Q].running
    assert DEFAULT_CAPABILITIES.reject == "dead_letter"  # what the other tests of this file rely on


def test_tr33_workers_that_share_a_history_handle_each_message_of_a_topic_once(until: Until) -> None:
    history = open_history("memory:")
    ran: list[str] = []
    workers = [Worker(history=history) for _ in range(2)]
    for worker in workers:

        @worker.trigger("topic:///prices", options=TriggerOptions(in_progress_delay=0.05))
        def draw(body: str) -> None:
            ran.append(body)

    with TestBroker() as broker:
        for worker in workers:
            worker.url = broker.url
        with workers[0], workers[1]:
            for number in range(20):
                broker.send("topic:///prices", str(number))
            triggers = [trigger for worker in workers for trigger in worker.triggers.values()]
            until(lambda: sum(trigger.counters["completed"] for trigger in triggers) == 20)
            until(lambda: sum(trigger.counters["duplicate"] for trigger in triggers) == 20)
    assert sorted(ran, key=int) == [str(number) for number in range(20)]
    history.close()
