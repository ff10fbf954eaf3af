"""The conformance checks find faults: each fault below, planted in the ScriptedBackend, fails the check named beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jmsclient.destination import Destination, parse_destination
from jmsclient.errors import JmsClientError
from jmsclient.message import PlainContent
from jmsclient.testing.conformance import CHECKS, Harness, Trial
from jmsclient.testing.scripted import ScriptedBackend
from jmsclient.testing.scripted_links import ScriptedReceiver, ScriptedSender
from jmsclient.testing.scripted_queue import Held, Queues
from jmsclient.testing.scripted_session import ScriptedSession
from jmsclient.testing.scripted_state import ScriptedState
from jmsclient.testing.scripted_transaction import ScriptedTransaction
from jmsclient.testing.scripted_transport import ScriptedTransport
from jmsclient.transport.contract import RELEASE, Arrival, Outcome, Receipt, Transport, TransportListener
from jmsclient.transport.registry import parse_url

Patch = pytest.MonkeyPatch


class ImpatientHarness(Harness):
    patience = 0.3

    def __init__(self) -> None:
        self.backend = ScriptedBackend()

    def connect(self, listener: TransportListener) -> Transport:
        return self.backend.connect(parse_url(self.backend.url), listener, deadline=None)

    def lose_link(self, transport: Transport) -> None:
        self.backend.lose_link()


def replacing(cls: type, name: str, make: Callable[[Any], Any]) -> Callable[[Patch], None]:
    """A fault: the method of `cls` replaced by what `make` makes of the right one."""
    return lambda patch: patch.setattr(cls, name, make(getattr(cls, name)))


def push_unasked(right: Any) -> Any:
    def push(self: ScriptedReceiver) -> bool:
        self.demand = max(self.demand, 1) if self.open else 0
        return bool(right(self))

    return push


def request_one_too_many(right: Any) -> Any:
    return lambda self, count: right(self, count + 1)


def request_without_adding(right: Any) -> Any:
    def request(self: ScriptedReceiver, count: int) -> None:
        self.demand = 0
        right(self, count)

    return request


def deliver_backwards(right: Any) -> Any:
    def take(self: Queues, *arguments: Any) -> list[Held]:
        return list(reversed(right(self, *arguments)))

    return take


def deliver_twice(right: Any) -> Any:
    def take(self: Queues, address: str, *arguments: Any) -> list[Held]:
        taken: list[Held] = right(self, address, *arguments)
        for held in taken[:1]:
            if held.content.body() != "the end" and not held.barred:
                self.put(address, held.content)
        return taken

    return take


def settle_as_release(right: Any) -> Any:
    def settle(self: ScriptedReceiver, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        right(self, arrivals, RELEASE)

    return settle


def settle_forgetting(right: Any) -> Any:
    def settle(self: ScriptedReceiver, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        held = {arrival.tag: self.unsettled[arrival.tag] for arrival in arrivals if arrival.tag in self.unsettled}
        right(self, arrivals, outcome)
        self.unsettled.update(held)

    return settle


def count_all(right: Any) -> Any:
    return lambda self, held, *, counted, **more: right(self, held, counted=True, **more)


def count_none(right: Any) -> Any:
    return lambda self, held, *, counted, **more: right(self, held, counted=False, **more)


def append_what_comes_back(right: Any) -> Any:
    def give_back(self: Queues, held: Held, *, counted: bool, **more: Any) -> None:
        self.put(held.address, held.content, held.delivery_count + counted)

    return give_back


def do_nothing(right: Any) -> Any:
    return lambda self, *arguments, **more: None


def drain_only_the_demand(right: Any) -> Any:
    def drain(self: ScriptedReceiver) -> None:
        self.demand = 0

    return drain


def drain_without_deadline(right: Any) -> Any:
    return lambda self, deadline: self.transport.call(self._drain, None)


def close_only_in_name(right: Any) -> Any:
    def detach(self: ScriptedReceiver) -> None:
        return

    return detach


def tell_twice(right: Any) -> Any:
    def die(self: ScriptedTransport, error: Exception) -> None:
        self._jobs.append(lambda: self._listener.lost(error))
        right(self, error)

    return die


def confirm_backwards(right: Any) -> Any:
    def send(self: ScriptedSender, *arguments: Any, **more: Any) -> list[Receipt]:
        return list(reversed(right(self, *arguments, **more)))

    return send


def dead_letters_vanish(right: Any) -> Any:
    return lambda self, held, outcome: None


def roll_back_instead(right: Any) -> Any:
    return lambda self, queues: self.roll_back(queues)


def commit_instead(right: Any) -> Any:
    return lambda self, queues, **more: self.commit(queues)


def send_at_once(right: Any) -> Any:
    def write(self: ScriptedSender, content: PlainContent) -> str:
        message_id: str = right(self, content)
        transaction = self._session.transaction
        if transaction is not None:
            self._transport.state.queues.put(*transaction.sent.pop())
        return message_id

    return write


def show_backwards(right: Any) -> Any:
    return lambda self, *arguments: list(reversed(right(self, *arguments)))


def take_what_is_shown(right: Any) -> Any:
    def seen(self: ScriptedReceiver) -> list[Arrival]:
        return self._taken()

    return seen


def settle_all_that_waits(right: Any) -> Any:
    """Of a receiver that takes all: as a broker that settles what it has not sent yet."""

    def taken(self: ScriptedReceiver) -> list[Arrival]:
        arrivals: list[Arrival] = right(self)
        if self.spec.takes_all:
            self.state.queues.take(self.address, self.number, 1000, self.transport.clock.monotonic())
        return arrivals

    return taken


def withdraw_in_name(right: Any) -> Any:
    def withdraw(self: ScriptedReceiver) -> int:
        return self.demand

    return withdraw


FAULTS: dict[str, tuple[Callable[[Patch], None], str]] = {
    "pushes unasked": (replacing(ScriptedReceiver, "push", push_unasked), "nothing_arrives_before_it_is_requested"),
    "one too many": (replacing(ScriptedReceiver, "request", request_one_too_many), "demands_add_up_and_are_never_exceeded"),
    "demand replaced": (replacing(ScriptedReceiver, "request", request_without_adding), "demands_add_up_and_are_never_exceeded"),
    "backwards": (replacing(Queues, "take", deliver_backwards), "order_within_a_receiver_is_the_order_sent"),
    "twice": (replacing(Queues, "take", deliver_twice), "two_receivers_never_get_the_same_message"),
    "accept releases": (replacing(ScriptedReceiver, "settle", settle_as_release), "accept_removes"),
    "taken not removed": (
        replacing(ScriptedReceiver, "settle", settle_as_release),
        "taken_messages_are_gone_whatever_happens",
    ),
    "all that waits settled": (
        replacing(ScriptedReceiver, "_taken", settle_all_that_waits),
        "what_is_all_taken_is_not_lost_by_an_orderly_end",
    ),
    "withdrawn in name": (replacing(ScriptedReceiver, "withdraw", withdraw_in_name), "what_is_withdrawn_brings_nothing"),
    "settled twice": (replacing(ScriptedReceiver, "settle", settle_forgetting), "settling_twice_is_settling_once"),
    "release counted": (replacing(Queues, "give_back", count_all), "release_gives_back_with_the_count_unchanged"),
    "unseen counted": (replacing(Queues, "give_back", count_all), "close_of_a_session_counts_what_was_seen_and_nothing_else"),
    "retry not counted": (replacing(Queues, "give_back", count_none), "retry_raises_the_count"),
    "seen not counted": (replacing(Queues, "give_back", count_none), "close_of_a_receiver_returns_what_is_unsettled"),
    "loss not counted": (replacing(Queues, "give_back", count_none), "a_lost_link_is_told_once_and_its_messages_come_back"),
    "place lost": (replacing(Queues, "give_back", append_what_comes_back), "a_released_message_returns_to_its_place"),
    "never given back": (replacing(ScriptedSession, "end", do_nothing), "close_of_a_transport_closes_its_sessions"),
    "drain undelivered": (
        replacing(ScriptedReceiver, "_drain", drain_only_the_demand),
        "drain_delivers_what_is_on_its_way_and_leaves_no_demand",
    ),
    "demand left": (
        replacing(ScriptedReceiver, "_drain", do_nothing),
        "drain_delivers_what_is_on_its_way_and_leaves_no_demand",
    ),
    "demand left on empty": (replacing(ScriptedReceiver, "_drain", do_nothing), "drain_of_an_empty_queue_returns"),
    "deadline ignored": (replacing(ScriptedReceiver, "drain", drain_without_deadline), "what_waits_respects_its_deadline"),
    "open after close": (replacing(ScriptedReceiver, "detach", close_only_in_name), "nothing_is_delivered_after_close"),
    "streams after close": (
        replacing(ScriptedReceiver, "detach", close_only_in_name),
        "close_while_messages_stream_in_loses_none",
    ),
    "told twice": (replacing(ScriptedTransport, "die", tell_twice), "a_lost_link_is_told_once_and_its_messages_come_back"),
    "alive after loss": (replacing(ScriptedTransport, "check_alive", do_nothing), "a_lost_link_is_dead_for_good"),
    "receipts mixed up": (replacing(ScriptedSender, "send", confirm_backwards), "sends_are_confirmed_in_order"),
    "dead letter lost": (replacing(ScriptedState, "_reject", dead_letters_vanish), "a_dead_letter_does_what_reject_says"),
}
FAULTS |= {
    "commit rolls back": (
        replacing(ScriptedTransaction, "commit", roll_back_instead),
        "what_is_sent_is_there_after_the_commit",
    ),
    "sent at once": (replacing(ScriptedSender, "_write", send_at_once), "what_is_sent_is_gone_after_the_rollback"),
    "rollback commits": (
        replacing(ScriptedTransaction, "roll_back", commit_instead),
        "what_is_accepted_comes_again_after_the_rollback_counted_and_first",
    ),
    "accepted comes again": (
        replacing(ScriptedTransaction, "commit", roll_back_instead),
        "what_is_accepted_is_gone_after_the_commit",
    ),
    "rollback not counted": (
        replacing(Queues, "give_back", count_none),
        "what_is_accepted_comes_again_after_the_rollback_counted_and_first",
    ),
    "rolled back to the end": (
        replacing(Queues, "give_back", append_what_comes_back),
        "what_is_accepted_comes_again_after_the_rollback_counted_and_first",
    ),
    "transaction left open": (replacing(ScriptedSession, "_undo", do_nothing), "a_closed_session_rolls_back_at_once"),
    "commits anywhere": (replacing(ScriptedSession, "commit", do_nothing), "a_session_that_is_not_transacted_refuses"),
    "shown backwards": (
        replacing(ScriptedReceiver, "_seen", show_backwards),
        "a_browser_shows_all_in_order_and_changes_nothing",
    ),
    "browser takes": (
        replacing(ScriptedReceiver, "_seen", take_what_is_shown),
        "a_browser_shows_all_in_order_and_changes_nothing",
    ),
    "deleted while in use": (
        replacing(ScriptedSession, "delete_temporary", do_nothing),
        "a_temporary_queue_is_its_connections_own",
    ),
}
BY_NAME = {check.name: check for check in CHECKS}


class DeadLetterHarness(ImpatientHarness):
    def error_destination(self, queue: Destination) -> Destination:
        return parse_destination(self.backend.error_destination)


def judge(trial: Trial, name: str) -> None:
    BY_NAME[name].run(trial)
    trial.finish()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_check(fault: str) -> None:
    plant, name = FAULTS[fault]
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        trial = Trial(DeadLetterHarness())
        with pytest.raises((AssertionError, JmsClientError, pytest.fail.Exception)):  # the last: "did not raise"
            judge(trial, name)
    for transport in trial._transports:
        transport.close(None)


def test_there_are_twenty_checks_and_more_each_with_its_rule() -> None:
    assert len(CHECKS) >= 20
    assert len(BY_NAME) == len(CHECKS)
    assert all(check.rule for check in CHECKS)
