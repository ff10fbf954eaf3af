"""Owns the conformance checks of topics and of the subscriptions that need no client identifier.

Must not know any backend: a check asks for a capability, never for a product; what is not declared, the core refuses before it gets
here. None waits for time to pass. Source: transport/contract.py; Jakarta Messaging 3.1 sections 4.11 and 8.3.
"""

from __future__ import annotations

import pytest

from jmsclient.destination import Topic
from jmsclient.errors import InvalidDestinationError, UnsupportedFeatureError
from jmsclient.testing.check import check, counts_after
from jmsclient.testing.trial import RecordingSink, Trial
from jmsclient.transport.contract import ACCEPT, Receiver, ReceiverSpec, SubscriptionKind

NAME = "conformance"


def subscribed(trial: Trial, topic: Topic, kind: SubscriptionKind = "topic", *, window: int = 50) -> tuple[Receiver, RecordingSink]:
    """A receiver of the topic, with demand."""
    sink = RecordingSink()
    trial.sinks.append(sink)
    name = None if kind == "topic" else f"{NAME}.{topic.name}"
    spec = ReceiverSpec(destination=topic, kind=kind, name=name)
    receiver = trial.session.open_receiver(spec, sink, trial.deadline)
    receiver.request(window)
    return receiver, sink


def finish(trial: Trial, receiver: Receiver, sink: RecordingSink) -> None:
    """Accept what came, and close."""
    receiver.settle(sink.arrivals, ACCEPT)
    trial.session.flush(trial.deadline)
    receiver.close(trial.deadline)


@check("JM-4.2.3")
def each_receiver_of_a_topic_gets_what_is_sent_while_it_is_open(trial: Trial) -> None:
    if not trial.capabilities.topics:
        return
    topic = trial.harness.topic()
    first, first_sink = subscribed(trial, topic)
    trial.send("a", queue=topic)
    trial.wait_for_arrivals(first_sink, 1)
    second, second_sink = subscribed(trial, topic)
    trial.send("b", "c", queue=topic)
    trial.wait_for(
        lambda: len(first_sink.arrivals) >= 3 and len(second_sink.arrivals) >= 2, f"{first_sink.bodies} and {second_sink.bodies}"
    )
    assert (first_sink.bodies, second_sink.bodies) == (["a", "b", "c"], ["b", "c"])
    assert all(count in counts_after(trial, 0) for count in first_sink.counts)
    finish(trial, first, first_sink)
    finish(trial, second, second_sink)


@check("JM-8.3.2")
def sharers_get_each_message_once(trial: Trial) -> None:
    if not (trial.capabilities.topics and trial.capabilities.shared_subscriptions):
        return
    topic = trial.harness.topic()
    first, first_sink = subscribed(trial, topic, "shared", window=2)
    second, second_sink = subscribed(trial, topic, "shared", window=2)
    trial.send("a", "b", "c", "d", queue=topic)
    trial.wait_for_arrivals(first_sink, 2)
    trial.wait_for_arrivals(second_sink, 2)
    assert sorted(first_sink.bodies + second_sink.bodies) == ["a", "b", "c", "d"]
    finish(trial, first, first_sink)
    finish(trial, second, second_sink)


@check("JM-8.3.4")
def a_shared_durable_subscription_collects_until_it_is_unsubscribed(trial: Trial) -> None:
    capable = trial.capabilities
    if not (capable.topics and capable.shared_subscriptions and capable.durable_subscriptions):
        return
    topic = trial.harness.topic()
    name = f"{NAME}.{topic.name}"
    receiver, sink = subscribed(trial, topic, "shared_durable")
    trial.send("a", queue=topic)
    trial.wait_for_arrivals(sink, 1)
    finish(trial, receiver, sink)
    trial.send("b", "c", queue=topic)
    receiver, sink = subscribed(trial, topic, "shared_durable")
    trial.wait_for_arrivals(sink, 2)
    assert sink.bodies == ["b", "c"]
    finish(trial, receiver, sink)
    try:
        trial.session.unsubscribe(name, trial.deadline)
    except UnsupportedFeatureError:  # a provider may find it by client identifier only
        return
    with pytest.raises(InvalidDestinationError):
        trial.session.unsubscribe(name, trial.deadline)
