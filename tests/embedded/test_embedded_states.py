"""The tables of states.py: what counts where, and that each verb has its row."""

from __future__ import annotations

import pytest

from jmsclient.transport.contract import Verb
from jmsclient_embedded.states import CURRENT, PENDING, SETTLEMENT, TRANSITIONS, State, allowed


def test_each_state_that_stays_counts_as_current_or_pending_never_both() -> None:
    transient = {State.EXPIRED, State.REDELIVERY_COUNT_EXCEEDED}
    assert set(State) - transient - {State.GONE} == CURRENT | PENDING
    assert not CURRENT & PENDING


def test_gone_is_the_end_and_only_visible_is_taken() -> None:
    assert not [one for one in TRANSITIONS if one.source is State.GONE]
    into = {one.source for one in TRANSITIONS if one.target is State.RECEIVE and one.rule != "T11"}
    assert into == {State.VISIBLE}


@pytest.mark.parametrize("verb", Verb)
def test_settlement_table_has_a_row_for_each_verb_that_its_transitions_allow(verb: Verb) -> None:
    rule = SETTLEMENT[verb]
    targets = {one.target for one in TRANSITIONS if one.rule == rule.rule and one.source is State.RECEIVE}
    back = {State.VISIBLE, State.DELAYED, State.PAUSED, State.ORDERED}
    gone = {State.GONE} if verb is Verb.ACCEPT else {State.REDELIVERY_COUNT_EXCEEDED}
    assert targets == (gone if rule.leaves else back)


def test_if_11_only_a_retry_always_counts() -> None:
    assert [verb for verb in Verb if SETTLEMENT[verb].counted] == [Verb.RETRY, Verb.RETRY_ELSEWHERE]
    assert [verb for verb in Verb if SETTLEMENT[verb].barred] == [Verb.RETRY_ELSEWHERE]


def test_no_message_leaves_the_application_without_an_outcome() -> None:
    assert not allowed(State.RECEIVE, State.SEND)
    assert not allowed(State.VISIBLE, State.SEND)
    assert allowed(None, State.VISIBLE)
