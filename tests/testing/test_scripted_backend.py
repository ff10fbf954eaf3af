"""The script of a ScriptedBackend: what a test tells it is what the core sees. (The contract itself: tests/conformance.)"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from jmsclient.destination import Queue, Topic
from jmsclient.errors import (
    ConfigurationError,
    ConnectionLostError,
    InvalidDestinationError,
    RequestTimeoutError,
    SendError,
    UnsupportedFeatureError,
)
from jmsclient.message import Message, MessageKind, PlainContent
from jmsclient.testing.manual_clock import ManualClock
from jmsclient.testing.scripted import DEFAULT_CAPABILITIES, ScriptedBackend
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, RETRY_ELSEWHERE, Outcome, ReceiverSpec, Verb
from jmsclient.transport.registry import find_backend, parse_url


def eventually(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.001)


def content(body: str) -> PlainContent:
    return PlainContent(kind=MessageKind.TEXT, body=body, message_id=f"ID:{body}")


def test_deliver_takes_bodies_messages_and_contents_and_says_the_count(bench: Any) -> None:
    receiver, sink = bench.receiver()
    ids = bench.backend.deliver("Q", ["a", Message("b"), content("c")], delivery_count=3)
    receiver.request(5)
    eventually(lambda: len(sink.arrivals) == 3)
    assert sink.bodies == ["a", "b", "c"]
    assert [arrival.delivery_count for arrival in sink.arrivals] == [3, 3, 3]
    assert [arrival.content.message_id for arrival in sink.arrivals] == ids
    assert bench.backend.demand("Q") == 2
    assert bench.backend.requests == [("queue:///Q", 5)]


def test_tr_29_a_count_that_is_unknown_stays_unknown(bench: Any) -> None:
    receiver, sink = bench.receiver()
    bench.backend.deliver("Q", "a", delivery_count=-1)
    receiver.request(2)
    eventually(lambda: len(sink.arrivals) == 1)
    receiver.settle(sink.arrivals[:1], RETRY)
    eventually(lambda: len(sink.arrivals) == 2)
    assert [arrival.delivery_count for arrival in sink.arrivals] == [-1, -1]


def test_the_settle_log_names_message_outcome_and_count(bench: Any) -> None:
    receiver, sink = bench.receiver()
    ids = bench.backend.deliver("Q", ["a", "b"])
    receiver.request(2)
    eventually(lambda: len(sink.arrivals) == 2)
    sink.arrivals[0].handed_over = True
    receiver.settle(sink.arrivals[:1], ACCEPT)
    receiver.settle(sink.arrivals, RELEASE)
    log = [(line.message_id, line.verb, line.handed_over) for line in bench.backend.settlements]
    assert log == [(ids[0], Verb.ACCEPT, True), (ids[1], Verb.RELEASE, False)]
    assert [waiting.body() for waiting in bench.backend.waiting("Q")] == ["b"]


def test_retry_elsewhere_bars_this_receiver_only(bench: Any) -> None:
    first, first_sink = bench.receiver()
    bench.backend.deliver("Q", "a")
    first.request(5)
    eventually(lambda: first_sink.arrivals)
    first.settle(first_sink.arrivals, RETRY_ELSEWHERE)
    second, second_sink = bench.receiver()
    second.request(1)
    eventually(lambda: second_sink.arrivals)
    assert second_sink.arrivals[0].delivery_count == 2
    assert len(first_sink.arrivals) == 1


def test_held_confirmations_come_late(bench: Any) -> None:
    bench.backend.hold_confirmations()
    sender = bench.session.open_sender(Queue("Q"), None)
    receipts: list[Any] = []
    thread = threading.Thread(target=lambda: receipts.extend(sender.send([content("a")], room_deadline=None, confirm_timeout=None)))
    thread.start()
    eventually(lambda: bench.backend.sent == 1)
    thread.join(0.02)
    assert thread.is_alive()
    bench.backend.release_confirmations()
    thread.join(5)
    assert [receipt.message_id for receipt in receipts] == ["ID:a"]


def test_a_confirmation_that_never_comes_leaves_the_send_in_doubt(bench: Any) -> None:
    bench.backend.hold_confirmations()
    sender = bench.session.open_sender(Queue("Q"), None)
    with pytest.raises(SendError) as caught:
        sender.send([content("a")], room_deadline=None, confirm_timeout=0.01)
    assert caught.value.in_doubt == ("ID:a",)


def test_a_link_lost_before_the_confirmation_leaves_the_send_in_doubt(bench: Any) -> None:
    bench.backend.hold_confirmations()
    sender = bench.session.open_sender(Queue("Q"), None)
    errors: list[SendError] = []

    def send() -> None:
        with pytest.raises(SendError) as caught:
            sender.send([content("a")], room_deadline=None, confirm_timeout=None)
        errors.append(caught.value)

    thread = threading.Thread(target=send)
    thread.start()
    eventually(lambda: bench.backend.sent == 1)
    bench.backend.lose_link()
    thread.join(5)
    assert errors[0].in_doubt == ("ID:a",)
    assert isinstance(errors[0].__cause__, ConnectionLostError)


def test_if_10_a_lost_link_is_told_once_and_gives_everything_back(bench: Any) -> None:
    receiver, sink = bench.receiver()
    bench.backend.deliver("Q", ["seen", "unseen"])
    receiver.request(2)
    eventually(lambda: len(sink.arrivals) == 2)
    sink.arrivals[0].handed_over = True
    error = ConnectionLostError("cut")
    bench.backend.lose_link(error)
    bench.backend.lose_link()
    eventually(lambda: bench.listener.losses)
    assert bench.listener.losses == [error]
    assert len(bench.backend.waiting("Q")) == 2
    receiver.settle(sink.arrivals, ACCEPT)
    assert bench.backend.stale_settlements == 2
    assert len(bench.backend.waiting("Q")) == 2
    with pytest.raises(ConnectionLostError):
        bench.session.open_sender(Queue("Q"), None)
    receiver.close(None)
    bench.transport.close(None)
    assert bench.listener.losses == [error]


def test_refused_connect_attach_and_send(bench: Any) -> None:
    sender = bench.session.open_sender(Queue("Q"), None)
    bench.backend.refuse_attach(InvalidDestinationError("no such queue"))
    with pytest.raises(InvalidDestinationError):
        bench.receiver()
    with pytest.raises(InvalidDestinationError):
        bench.session.open_sender(Queue("Q"), None)
    bench.backend.refuse_attach(None)
    bench.receiver()
    bench.backend.refuse_sends(ConnectionLostError("not now"))
    with pytest.raises(ConnectionLostError, match="not now"):
        sender.send([content("a")], room_deadline=None, confirm_timeout=None)
    assert bench.backend.sent == 0
    bench.backend.refuse_connect(ConnectionLostError("down"))
    with pytest.raises(ConnectionLostError, match="down"):
        bench.backend.connect(parse_url(bench.backend.url), bench.listener, deadline=None)


def test_a_receiver_closed_by_the_peer_says_so_once_and_gives_back(bench: Any) -> None:
    receiver, sink = bench.receiver()
    other, other_sink = bench.receiver("OTHER")
    bench.backend.deliver("Q", "a")
    receiver.request(2)
    eventually(lambda: sink.arrivals)
    error = InvalidDestinationError("the queue was deleted")
    bench.backend.close_receivers(error, "Q")
    bench.backend.close_receivers(error, "Q")
    eventually(lambda: sink.closings)
    receiver.close(None)
    assert sink.closings == [error]
    assert other_sink.closings == []
    assert len(bench.backend.waiting("Q")) == 1
    receiver.request(1)
    other.request(1)
    bench.backend.deliver("OTHER", "b")
    eventually(lambda: other_sink.arrivals)
    assert len(sink.arrivals) == 1


def test_tr_67_a_delay_that_was_not_declared_is_a_violation() -> None:
    with ScriptedBackend() as backend:
        transport = backend.connect(parse_url(backend.url), _Nobody(), deadline=None)
        sink = _Nobody()
        session = transport.open_session(transacted=False, deadline=None)
        receiver = session.open_receiver(ReceiverSpec(destination=Queue("Q")), sink, None)
        backend.deliver("Q", "a")
        receiver.request(1)
        receiver.drain(None)
        receiver.settle(sink.arrivals, Outcome(verb=Verb.RETRY, delay=1.0))
        receiver.request(0)
        assert len(backend.violations) == 2


class _Nobody:
    def __init__(self) -> None:
        self.arrivals: list[Any] = []

    def delivered(self, batch: list[Any]) -> None:
        self.arrivals.extend(batch)

    def recall(self) -> None:
        """What this sink holds, it settles by itself."""

    def closed(self, error: Exception | None) -> None:
        raise AssertionError(error)

    def lost(self, error: Exception) -> None:
        raise AssertionError(error)


@pytest.mark.parametrize(
    "capabilities",
    [Capabilities(topics=True), Capabilities(selectors=True), Capabilities(reject="until_limit")],
    ids=["topics", "selectors", "until_limit"],
)
def test_it_declares_nothing_it_cannot_imitate(capabilities: Capabilities) -> None:
    with pytest.raises(ConfigurationError, match="ScriptedBackend"):
        ScriptedBackend(capabilities)


def test_what_it_cannot_do_is_refused_at_the_call(bench: Any) -> None:
    with pytest.raises(UnsupportedFeatureError):
        bench.session.open_receiver(ReceiverSpec(destination=Topic("T"), kind="topic"), _Nobody(), None)
    with pytest.raises(UnsupportedFeatureError):
        bench.session.open_receiver(ReceiverSpec(destination=Queue("Q"), selector="a = 1"), _Nobody(), None)
    sender = bench.session.open_sender(Queue("Q"), None)
    late = PlainContent(kind=MessageKind.TEXT, body="x", delivery_time=2e9)
    with pytest.raises(UnsupportedFeatureError):
        sender.send([late], room_deadline=None, confirm_timeout=None)


def test_leaving_the_block_forgets_the_scheme_and_ends_the_threads() -> None:
    with ScriptedBackend() as backend:
        assert find_backend(backend.scheme) is backend
        transport = backend.connect(parse_url(backend.url), _Nobody(), deadline=None)
    with pytest.raises(ConfigurationError, match="unknown scheme"):
        find_backend(backend.scheme)
    with pytest.raises(ConnectionLostError):
        transport.open_session(transacted=False, deadline=None)
    assert DEFAULT_CAPABILITIES.delayed_release is False


def test_tr_67_a_delay_passes_on_the_connections_clock() -> None:
    clock = ManualClock()
    capabilities = replace(DEFAULT_CAPABILITIES, delayed_release=True)
    with ScriptedBackend(capabilities) as backend:
        transport = backend.connect(parse_url(backend.url, clock=clock), _Nobody(), deadline=None)
        sink = _Nobody()
        receiver = transport.open_session(transacted=False, deadline=None).open_receiver(
            ReceiverSpec(destination=Queue("Q")), sink, None
        )
        backend.deliver("Q", "a")
        receiver.request(2)
        eventually(lambda: sink.arrivals)
        receiver.settle(sink.arrivals, Outcome(verb=Verb.RETRY, delay=60.0))
        eventually(lambda: clock.waiters)
        clock.advance(59.0)
        receiver.drain(None)
        assert len(sink.arrivals) == 1
        receiver.request(1)
        clock.advance(1.0)
        eventually(lambda: len(sink.arrivals) == 2)
        assert sink.arrivals[1].delivery_count == 2
        assert not backend.violations


def test_a_call_that_waits_times_out_on_the_connections_clock() -> None:
    clock = ManualClock()
    gate = threading.Event()
    with ScriptedBackend() as backend:
        transport = backend.connect(parse_url(backend.url, clock=clock), _Nobody(), deadline=None)
        sink = _Nobody()
        sink.delivered = lambda batch: gate.wait(5)  # type: ignore[assignment,method-assign]
        receiver = transport.open_session(transacted=False, deadline=None).open_receiver(
            ReceiverSpec(destination=Queue("Q")), sink, None
        )
        backend.deliver("Q", "a")
        receiver.request(1)
        errors: list[Exception] = []

        def drain() -> None:
            with pytest.raises(RequestTimeoutError) as caught:
                receiver.drain(clock.deadline(30.0))
            errors.append(caught.value)

        thread = threading.Thread(target=drain)
        thread.start()
        eventually(lambda: clock.waiters)
        clock.advance(31.0)
        thread.join(5)
        gate.set()
        assert len(errors) == 1
