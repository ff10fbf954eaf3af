"""A history that does not answer (TR-49, TR-50): each policy, the mark on each message, and what is told when it is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jmsclient import Delivery, Message, Status, Worker
from jmsclient.errors import ConfigurationError
from jmsclient.events import Event
from jmsclient.history import DocumentHistory, State, open_history
from jmsclient.history.entries import Command, Complete
from jmsclient.options import TriggerOptions
from jmsclient.testing import ScriptedBackend, TestBroker
from jmsclient.transport.contract import Verb
from jmsclient.trigger.delivery import ResolverRequest

from ..seen import verbs  # noqa: TID252  tests are no package that has a name

Q = "queue:///orders"
Until = Callable[..., None]
Switchable = Callable[..., Any]


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jmsclient.trigger.outage.FIRST_PROBE", 0.1)


@pytest.fixture
def history() -> DocumentHistory:
    return open_history("memory:")


def message(text: str, uuid: str) -> Message:
    return Message(text, properties={"uuid": uuid})


def marked(events: list[Event]) -> list[Any]:
    return [one.fields["id"] for one in events if one.name == "history_unavailable"]


def test_d06_a_the_handler_does_not_run_while_the_history_is_away_and_runs_once_as_new_when_it_is_back(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, switchable: Switchable
) -> None:
    away = switchable(history)
    ran: list[str] = []
    worker = Worker(backend.url, history=away)

    @worker.trigger(Q)
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        away.off = Command
        backend.deliver(Q, message("m1", "1"))
        until(lambda: worker.triggers[Q].pipeline.suspended == "history_unavailable")
        time.sleep(0.3)
        assert ran == []
        assert Verb.ACCEPT not in verbs(backend)
        away.off = None
        until(lambda: ran == ["m1"])
        until(lambda: Verb.ACCEPT in verbs(backend))
        assert worker.triggers[Q].pipeline.counters.new == 1
        assert worker.triggers[Q].pipeline.suspended is None


def test_d06_a_fail_open_runs_at_once_with_a_mark_on_each_message(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event], switchable: Switchable
) -> None:
    away = switchable(history)
    away.off = Command
    ran: list[str] = []
    worker = Worker(backend.url, history=away)

    @worker.trigger(Q, history_unavailable="run")
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        backend.deliver(Q, [message("a", "1"), message("b", "2")])
        until(lambda: len(backend.settlements) == 2)
        assert worker.triggers[Q].pipeline.counters.store_errors < 3  # not asked for each message
        assert worker.triggers[Q].pipeline.suspended is None
        away.off = None
        until(lambda: history.lookup(Q, "2", source="uuid") is not None)
        backend.deliver(Q, [message("a", "1"), message("c", "3")])  # what ran meanwhile is known now
        until(lambda: len(backend.settlements) == 4)
    assert ran == ["a", "b", "c"]
    assert marked(events) == ["1", "2"]
    assert verbs(backend) == [Verb.ACCEPT] * 4
    names = [one.name for one in events if one.name in ("history_outage", "history_back")]
    assert names == ["history_outage", "history_back"]


def test_d06_b_a_completion_lost_with_the_history_makes_the_next_delivery_in_doubt_never_new(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event], switchable: Switchable
) -> None:
    away = switchable(history)
    ran: list[str] = []
    worker = Worker(backend.url, history=away)

    @worker.trigger(Q, lease=0.3, history_unavailable="run", in_doubt="acknowledge")
    def book(body: str) -> None:
        ran.append(body)
        away.off = Complete

    with worker:
        backend.deliver(Q, message("m1", "1"))
        until(lambda: Verb.RETRY in verbs(backend))
        away.off = None
        until(lambda: worker.triggers[Q].pipeline.counters.in_doubt == 1)
    assert ran == ["m1"]
    assert [one.name for one in events].count("completed_not_recorded") == 1


def test_tr50_what_was_committed_and_cannot_be_recorded_is_not_said_to_be_gone(
    history: DocumentHistory, until: Until, events: list[Event], switchable: Switchable
) -> None:
    """TR-37: the message was committed with what its handler sent; a further copy of it is In Doubt."""
    away = switchable(history)
    ran: list[str] = []

    with TestBroker() as broker:
        worker = Worker(broker.url, history=away)

        @worker.trigger(Q, transacted=True, lease=0.3, in_doubt="acknowledge")
        def book(body: str, delivery: Delivery) -> None:
            ran.append(body)
            delivery.send("queue:///invoices", body)
            away.off = Complete

        with worker:
            broker.send(Q, "m1", properties={"uuid": "1"})
            until(lambda: "completed_not_recorded" in [one.name for one in events])
            away.off = None
            until(lambda: worker.triggers[Q].state == "enabled")
            broker.send(Q, "m1", properties={"uuid": "1"})
            until(lambda: worker.triggers[Q].counters["in_doubt"] == 1)
        assert [one.body for one in broker.messages("queue:///invoices")] == ["m1"]
    assert ran == ["m1"]
    (told,) = [one.text for one in events if one.name == "completed_not_recorded"]
    assert "was committed" in told
    assert not {"taken_message_gone", "given_back"} & {one.name for one in events}


def test_tr49_in_doubt_carries_out_the_in_doubt_policy(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event], switchable: Switchable
) -> None:
    away = switchable(history)
    away.off = Command
    worker = Worker(backend.url, history=away)

    @worker.trigger(Q, history_unavailable="in_doubt", error_destination="queue:///errors")
    def book(body: str) -> None:
        raise AssertionError("an In Doubt message is not run")

    with worker:
        backend.deliver(Q, [message("a", "1"), message("b", "2")])
        until(lambda: len(backend.settlements) == 2)
    assert verbs(backend) == [Verb.ACCEPT] * 2
    copies = backend.waiting("queue:///errors")
    assert [copy.properties()["JMS_jmsclient_reason"] for copy in copies] == ["in_doubt: history_unavailable"] * 2
    assert marked(events) == ["1", "2"]


def test_tr49_in_doubt_parks_and_acknowledges_only_when_the_history_is_back(
    backend: ScriptedBackend, until: Until, tmp_path: Path, switchable: Switchable
) -> None:
    history = open_history(f"sqlite:{tmp_path / 'history.db'}")
    away = switchable(history)
    away.durable = True
    away.off = Command
    worker = Worker(backend.url, history=away)

    @worker.trigger(Q, history_unavailable="in_doubt")
    def book(body: str) -> None:
        raise AssertionError("an In Doubt message is not run")

    with worker:
        backend.deliver(Q, message("a", "1"))
        until(lambda: worker.triggers[Q].pipeline.counters.in_doubt == 1)
        assert backend.settlements == []
        away.off = None
        until(lambda: verbs(backend) == [Verb.ACCEPT])
    (parked,) = history.in_doubt(Q)
    history.close()
    assert (parked.id, parked.reason) == ("1", "history_unavailable")


@pytest.mark.parametrize("answer", [Status.NEW, Status.DUPLICATE])
def test_tr49_resolver_asks_the_resolver_about_each_message(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, switchable: Switchable, answer: Status
) -> None:
    away = switchable(history)
    away.off = Command
    asked: list[ResolverRequest] = []
    ran: list[str] = []

    def resolver(request: ResolverRequest) -> Status:
        asked.append(request)
        return answer

    worker = Worker(backend.url, history=away)

    @worker.trigger(Q, history_unavailable="resolver", resolver=resolver)
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        backend.deliver(Q, [message("a", "1"), message("b", "2")])
        until(lambda: len(backend.settlements) == 2)
    assert verbs(backend) == [Verb.ACCEPT] * 2
    assert [(one.id, one.delivery_count, one.entry) for one in asked] == [("1", 1, None), ("2", 1, None)]
    assert ran == (["a", "b"] if answer is Status.NEW else [])


def test_tr56_a_resolver_that_answered_is_not_asked_again_when_its_claim_finds_no_history(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, switchable: Switchable
) -> None:
    away = switchable(history)
    history.claim(Q, "1", source="uuid", lease=0.0)
    asked: list[ResolverRequest] = []
    ran: list[str] = []

    def resolver(request: ResolverRequest) -> Status:
        asked.append(request)
        away.off = Command
        return Status.NEW

    worker = Worker(backend.url, history=away)

    @worker.trigger(Q, history_unavailable="resolver", resolver=resolver)
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        backend.deliver(Q, message("a", "1"))
        until(lambda: verbs(backend) == [Verb.ACCEPT])
    assert (len(asked), ran) == (1, ["a"])


def test_a_stop_does_not_wait_for_a_history_that_is_only_to_be_noted_in(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, switchable: Switchable
) -> None:
    away = switchable(history)
    away.off = Command
    worker = Worker(backend.url, history=away)

    @worker.trigger(Q, history_unavailable="run")
    def book(body: str) -> None: ...

    worker.start()
    backend.deliver(Q, message("a", "1"))
    until(lambda: verbs(backend) == [Verb.ACCEPT])
    begun = time.monotonic()
    assert worker.stop(60.0).clean
    assert time.monotonic() - begun < 30.0


def test_d05_messages_without_an_id_all_run_with_one_warning_and_no_record(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event]
) -> None:
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q)
    def orders(body: str) -> None:
        ran.append(body)

    @worker.trigger("queue:///other")
    def other(body: str) -> None:
        ran.append(body)

    with worker:
        for text in ("1", "2", "3", "4"):
            one = Message(text, properties={"uuid": ""} if text == "4" else {})
            one.content.message_id = ""  # what a provider makes of a sender that asked for none
            backend.deliver(Q, one)
        backend.deliver(Q, message("5", "X"))
        backend.deliver("queue:///other", message("6", "X"))
        until(lambda: len(backend.settlements) == 6)
    assert sorted(ran) == ["1", "2", "3", "4", "5", "6"]
    assert [one.name for one in events].count("no_id") == 1
    assert "duplicate" not in [one.name for one in events]
    assert history.statistics()["completed"] == 2
    for id_ in ("", "None"):
        for source in ("uuid", "JMSMessageID"):
            assert history.lookup(Q, id_, source=source) is None
    entry = history.lookup(Q, "X", source="uuid")
    assert entry is not None
    assert entry.state is State.COMPLETED


def test_d05_strict_refuses_messages_without_an_id_with_a_named_reason(
    backend: ScriptedBackend, history: DocumentHistory, until: Until, events: list[Event]
) -> None:
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, error_destination="queue:///errors", options=TriggerOptions(strict=True))
    def orders(body: str) -> None:
        ran.append(body)

    with worker:
        for text in ("1", "2"):
            one = Message(text)
            one.content.message_id = ""
            backend.deliver(Q, one)
        backend.deliver(Q, message("3", "X"))
        until(lambda: len(backend.settlements) == 3)
    assert ran == ["3"]
    refused = backend.waiting("queue:///errors")
    assert [one.body() for one in refused] == ["1", "2"]
    assert [value for one in refused for name, value in one.properties().items() if name.endswith("reason")] == ["no_id", "no_id"]
    (warning,) = [one for one in events if one.name == "no_id"]
    assert "refused" in warning.text
    assert history.statistics() == {"completed": 1}


def test_tr49_resolver_needs_one(backend: ScriptedBackend) -> None:
    worker = Worker(backend.url, history="memory:")

    @worker.trigger(Q, history_unavailable="resolver")
    def book(body: str) -> None: ...

    with pytest.raises(ConfigurationError, match="needs a resolver"):
        worker.start()
