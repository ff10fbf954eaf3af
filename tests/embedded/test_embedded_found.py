"""Examples that the reference model and the random calls failed on once, each as a plain test."""

from __future__ import annotations

import pytest

from jmsclient.transport.contract import Outcome, Verb

from .conftest import Client


@pytest.mark.parametrize("verb", Verb)
def test_t12_to_t15_what_is_named_twice_in_one_settlement_is_settled_once(client: Client, verb: Verb) -> None:
    client.send("a", "b")
    receiver, arrivals = client.take(2, hand_over=True)
    receiver.settle([arrivals[0], arrivals[0]], Outcome(verb=verb))
    numbers = client.admin.statistics("q")
    assert numbers.messages_pending == 1
    back = verb not in (Verb.ACCEPT, Verb.DEAD_LETTER)
    assert client.shown() == [("visible", int(verb is not Verb.RELEASE))] * back + [("receive", 1)]
