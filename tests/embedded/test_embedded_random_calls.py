"""Ten thousand calls of administration with random arguments, traffic between them: only documented errors, the books balance after
each, and a call that is refused changes nothing ("Bad input"; IF-7, IF-8, IF-35; T17)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jmsclient.destination import Queue, Topic
from jmsclient.errors import (
    ConfigurationError,
    DestinationPausedError,
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
    SendError,
    TransactionRolledBackError,
    UnsupportedFeatureError,
)
from jmsclient.options import DefaultReadAhead
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Outcome, ReceiverSpec, Verb
from jmsclient_embedded.broker import Broker
from jmsclient_embedded.invariants import check
from jmsclient_embedded.registry import close_broker

from .conftest import Client, RecordingSink, content, hand

CALLS = 50
"""In one example."""
DOCUMENTED = (ConfigurationError, IllegalStateError, UnsupportedFeatureError, DestinationPausedError)
REFUSALS = (
    DestinationPausedError,
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
    SendError,
    TransactionRolledBackError,
)
"""What the traffic may meet, whatever administration did before."""

STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-2, -1, 0, 1, 9, 10, 2**31, 2**63, 2**64, 10**400, -(10**400)]),
    st.floats(),
    st.text(),
    st.text(st.characters(categories=["Cs", "Cc", "Zs", "So"]), max_size=4),
    st.binary(max_size=4),
    st.lists(st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.sampled_from([object(), Queue, len, ACCEPT, Verb.RETRY, {1}, (1, "a"), 1j, float("nan"), float("inf")]),
)
NAMES = ["q", "other", "DLQ", "t", "new", "queue:///q", "topic:///t", "topic:///new"]
WRONG_NAMES = ["queue:///%00", "queue://q?x=1", "q\x1ft", "  ", "", "\ud800", "jmsclient-temporary-1", "commit-1"]


def mostly(*right: Any, wrong: Any = STRANGE) -> Any:
    """One of the right values; once in eight times something strange."""
    return st.integers(0, 7).flatmap(lambda dice: st.sampled_from(right) if dice else wrong)


PLACE = mostly("q", "q", "other", *NAMES, Queue("q"), Topic("t"), Queue("gone"), wrong=st.sampled_from(WRONG_NAMES) | STRANGE)
SELECTOR = mostly(None, None, "colour = 'red'", "JMSPriority > 4", "colour = ", "1 / 0 = 1", "x LIKE 'a' ESCAPE 'b'")
IDS = mostly(None, ["ID:1"], ["ID:2", "nothing"], ("ID:1", "ID:2", "ID:3"), [])
STATES = mostly(None, "visible", "receive", "receive+transaction", "delayed", "gone", "no")
OUTCOME = mostly(
    *("retry", "release", "accept", "dead_letter", "retry_elsewhere", ACCEPT, RELEASE, RETRY),
    wrong=st.builds(
        Outcome,
        verb=st.sampled_from([*Verb, "retry", None]),
        delay=mostly(0.0, 1, -1.0),
        reason=mostly(None, "why"),
        properties=mostly({}, {"a": 1}, {"a": object()}, {1: "a"}, {"a b": 1}),
    )
    | STRANGE,
)
OWNER = mostly("ID:1", "ID:2", "ID:3", "session-1", "consumer-3", "consumer-4", "")
NUMBER = mostly(-1, 0, 1, 2, 5, 100)
SECONDS = mostly(-1.0, 0.0, 0.5, 3600)
LEFT_AS_IT_IS = mostly(None, False, True)
QUEUE_SETTINGS = {
    "bytes_maximum": NUMBER,
    "messages_maximum": NUMBER,
    "quota": mostly(None, "room", "room", "missing"),
    "bytes_threshold_high": NUMBER,
    "bytes_threshold_low": NUMBER,
    "messages_threshold_high": NUMBER,
    "messages_threshold_low": NUMBER,
    "redelivery_delay": SECONDS,
    "redelivery_multiplier": mostly(1, 1.0, 2.0, 10**400),
    "redelivery_delay_maximum": mostly(None, 0.0, 5),
    "redelivery_limit": mostly(-1, 0, 1),
    "error_destination": mostly(None, *NAMES, wrong=st.sampled_from(WRONG_NAMES) | STRANGE),
    "expiration_policy": mostly("discard", "log", "redirect"),
    "time_to_deliver_override": SECONDS,
    "time_to_live_override": SECONDS,
    "priority_override": mostly(-1, 0, 9),
    "delivery_mode_override": mostly(None, "persistent", "non_persistent"),
    "unit_of_order": mostly(None, "colour"),
    "production_paused_at_startup": LEFT_AS_IT_IS,
    "insertion_paused_at_startup": LEFT_AS_IT_IS,
    "consumption_paused_at_startup": LEFT_AS_IT_IS,
    "default_read_ahead": mostly("no", "yes", "YES", "disabled", DefaultReadAhead.YES),
}
ONLY_QUEUES = ("bytes_threshold", "messages_threshold", "unit_of_order", "paused_at_startup")
TOPIC_SETTINGS = {name: one for name, one in QUEUE_SETTINGS.items() if not any(word in name for word in ONLY_QUEUES)}
FEW = {"max_size": 3}


def some_of(options: dict[str, Any]) -> Any:
    """A few keywords of a call."""
    if not options:
        return st.just({})
    return st.lists(st.sampled_from(sorted(options)), max_size=3, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: options[name] for name in names})
    )


def calls_of(name: str, *arguments: Any, **keywords: Any) -> Any:
    return st.tuples(st.just(name), st.tuples(*arguments), some_of(keywords))


PAUSING = [f"{what}_{pause}" for what in ("pause", "resume") for pause in ("production", "insertion", "consumption")]
CALL = st.one_of(
    calls_of("destinations"),
    calls_of("statistics", PLACE),
    calls_of("reset_statistics", PLACE),
    calls_of("messages", PLACE, SELECTOR, STATES),
    st.tuples(st.sampled_from(PAUSING), st.tuples(PLACE | st.none()), st.just({})),
    st.tuples(st.sampled_from(PAUSING[3:]), st.tuples(mostly(None, "q", "other", "t")), st.just({})),
    calls_of("move", PLACE, PLACE, SELECTOR, message_ids=IDS),
    calls_of("move", st.just("q"), st.just("other"), SELECTOR, message_ids=IDS),
    calls_of("pause_consumption", st.just("q")),
    calls_of("delete", PLACE, SELECTOR, message_ids=IDS),
    calls_of("drain", PLACE),
    calls_of("recover_stuck", OWNER, OUTCOME),
    calls_of("recover_stuck", st.just("ID:1"), OUTCOME),
    calls_of("create_queue", mostly(*NAMES, wrong=STRANGE), **QUEUE_SETTINGS),
    calls_of("create_queue", st.sampled_from(["q", "other", "new"]), **QUEUE_SETTINGS),
    calls_of("create_topic", mostly(*NAMES, wrong=STRANGE), **TOPIC_SETTINGS),
    calls_of("create_topic", st.just("t"), **TOPIC_SETTINGS),
    calls_of("create_quota", mostly("room"), bytes_maximum=NUMBER, messages_maximum=NUMBER, policy=mostly("fifo", "preemptive")),
    calls_of("delete_destination", PLACE),
)
TRAFFIC = st.tuples(st.just(""), st.lists(st.tuples(st.integers(0, 10), st.integers(0, 3)), min_size=3, max_size=6))


class Traffic:
    """Sends and receives that leave something in many states, whatever administration did before."""

    def __init__(self, url: str) -> None:
        self.client = Client(url)
        self.transacted = self.client.transport.open_session(transacted=True, deadline=None)
        self.number = 0
        self.client.admin.create_quota("room", messages_maximum=5)
        self.client.admin.create_queue("q")
        self.client.admin.create_queue("other", quota="room", redelivery_limit=1)
        self.client.admin.create_topic("t")
        self.receivers: list[tuple[Any, RecordingSink]] = []

    def step(self, parts: list[tuple[int, int]]) -> None:
        for what, number in parts:
            try:
                self._step(what, number)
            except REFUSALS:
                pass  # what administration made of its place does not let it

    def _step(self, what: int, number: int) -> None:
        client = self.client
        self.number = self.number % 3 + 1
        message = content(
            "x" * number,
            message_id=f"ID:{self.number}",
            persistent=number > 1,
            priority=4 + number,
            properties={"colour": "red" if number else "blue"},
            expiration=None if number else client.broker.clock.wall() + 60.0,
            delivery_time=client.broker.clock.wall() + 60.0 if number == 3 else None,
        )
        places = (Queue("q"), Queue("q"), Topic("t"), Queue("other"))
        if what < 3:
            session = self.transacted if what == 2 else client.session
            sender = session.open_sender(places[number], None)
            sender.send([message], room_deadline=client.broker.clock.monotonic(), confirm_timeout=10.0)
        elif what == 3:
            sink = RecordingSink()
            session = self.transacted if number == 3 else client.session
            place = places[number]
            spec = ReceiverSpec(
                destination=place,
                kind="topic" if isinstance(place, Topic) else "queue",
                selector="colour = 'red'" if number == 1 else None,
            )
            receiver = session.open_receiver(spec, sink, None)
            receiver.request(number)
            self.receivers.append((receiver, sink))
        elif what == 9:
            kind = ("durable", "shared", "shared_durable", "durable")[number]
            sink = RecordingSink()
            spec = ReceiverSpec(
                destination=Topic("t"),
                kind=kind,  # type: ignore[arg-type]
                name=f"s{number % 2}",
                selector="colour = 'red'" if number == 3 else None,
            )
            receiver = (self.transacted if number == 2 else client.session).open_receiver(spec, sink, None)
            receiver.request(number)
            self.receivers.append((receiver, sink))
        elif what == 10:
            client.session.unsubscribe(f"s{number % 2}", None)
        elif what == 4 and self.receivers:
            receiver, sink = self.receivers[number % len(self.receivers)]
            unseen = [one for one in sink.arrivals if not (one.settled or one.handed_over)]
            hand(receiver, unseen[:number])
        elif what == 5 and self.receivers:
            receiver, sink = self.receivers[number % len(self.receivers)]
            receiver.settle(sink.arrivals[-2:], (ACCEPT, RELEASE, RETRY, ACCEPT)[number])
        elif what == 6:
            self.transacted.commit(None) if number else self.transacted.rollback(redelivery_delay=1.0, deadline=None)
        elif what == 7 and self.receivers:
            receiver, _ = self.receivers.pop(0)
            receiver.close(None)
        elif what == 8 and number == 3:
            client.session.close(None)
            self.receivers = [one for one in self.receivers if one[0]._session is self.transacted]
            client.session = client.transport.open_session(transacted=False, deadline=None)


def everything(broker: Broker) -> object:
    """All that can be seen of a broker, and what cannot, as values to compare."""
    return broker.steps.ask(lambda: _everything(broker))


def _everything(broker: Broker) -> object:
    catalogue, topics, granting = broker.catalogue, broker.topics, broker.granting
    lines = {}
    for name, line in granting.lines.items():
        held = [entry for holder in line.queue.holders.values() for entry in holder.held.values()]
        there = [
            (one.sequence, one.content.message_id, one.state, one.count, one.priority) for one in (*line.queue.unheld(), *held)
        ]
        owners = {number: list(holder.held) for number, holder in line.queue.holders.items()}
        flags = (line.flags.production, line.flags.insertion, line.flags.consumption)
        demand = sorted((outlet.holder.name, outlet.demand, outlet.wanting) for outlet in line.outlets)
        consumers = (line.consumers_high, line.consumers_total)
        lines[name] = (there, owners, flags, demand, consumers, line.settings, line.queue.statistics(), id(line.quota), line.plain)
    quotas = {
        name: (one.bytes_maximum, one.messages_maximum, one.policy, len(one.members), len(one.waiting))
        for name, one in catalogue.quotas.items()
    }
    routes = {
        name: (
            one.settings,
            one.flags.production,
            one.flags.insertion,
            one.flags.consumption,
            id(one.quota),
            list(one.subscriptions),
        )
        for name, one in topics.topics.items()
    }
    server = (granting.server.production, granting.server.insertion, granting.server.consumption)
    return (lines, quotas, routes, server, list(topics.subscriptions), list(catalogue.temporary), list(granting.holders))


def call_one(traffic: Traffic, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    broker = traffic.client.broker
    traffic.client.broker.flush(None)
    before = everything(broker)
    call: Callable[..., object] = getattr(traffic.client.admin, name)
    said = f"{name}{arguments!r} {keywords!r}"
    error: Exception | None = None
    try:
        call(*arguments, **keywords)
    except Exception as raised:
        error = raised
    if error is not None:
        assert isinstance(error, DOCUMENTED), f"{said} raised {error!r}, which is not documented"
        assert str(error), f"{said} raised an error without a text"
        assert everything(broker) == before, f"{said} raised {error!r} and changed something"
    check(broker)


def run(url: str, steps: list[Any]) -> None:
    traffic = Traffic(url)
    try:
        for name, *rest in steps:
            if name:
                call_one(traffic, name, *rest)
            else:
                traffic.step(*rest)
                check(traffic.client.broker)
        traffic.transacted.close(None)
        traffic.client.session.close(None)
        check(traffic.client.broker)
    finally:
        close_broker(traffic.client.broker)


PROFILE = settings(derandomize=True, database=None, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
STEPS = st.lists(st.integers(0, 4).flatmap(lambda dice: CALL if dice < 3 else TRAFFIC), min_size=CALLS, max_size=CALLS)


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(PROFILE, max_examples=340)
@given(steps=STEPS)
def test_if_7_random_calls_raise_documented_errors_and_those_refused_change_nothing(steps: list[Any]) -> None:
    """340 times 50 steps, three of five of them calls: ten thousand."""
    run(f"embedded:random-{secrets.token_hex(6)}", steps)


@settings(PROFILE, max_examples=20)
@given(steps=STEPS)
def test_if_7_what_random_calls_leave_can_be_opened_again(steps: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same with a store: whatever was done, the store is sound."""
    url = f"embedded:random-{secrets.token_hex(6)}?store={tmp_path_factory.mktemp('random')}/random.db"
    run(url, steps)
    again = Client(url)
    try:
        check(again.broker)
    finally:
        close_broker(again.broker)
