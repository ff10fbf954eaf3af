"""Every combination of the decision table: TR-28, TR-29, TR-30, TR-31, TR-36, TR-53, TR-55."""

from itertools import product

import pytest

from jmsclient.errors import IllegalStateError
from jmsclient.history.entries import VERSION, Entry, State
from jmsclient.trigger.decision import AskResolver, Duplicate, InDoubt, InProgress, New, Status, classify

COUNTS = (1, 2, 7, -1)
ABANDONED = Entry(state=State.PROCESSING, attempt=2)


def expected_without_history(count: int, resolver: bool) -> object:
    if count == 1:
        return New()
    if resolver:
        return AskResolver("redelivered" if count > 1 else "count_unknown")
    return New() if count == -1 else InDoubt("redelivered")


@pytest.mark.parametrize(("count", "resolver"), list(product(COUNTS, (False, True))))
@pytest.mark.parametrize("entry", [None, ABANDONED])
def test_tr30_without_a_history_count_and_resolver_decide(count: int, resolver: bool, entry: Entry | None) -> None:
    # whatever an entry said, there is no history to have said it
    assert classify(count, entry, has_history=False, has_resolver=resolver) == expected_without_history(count, resolver)


# entry -> (without resolver, with resolver); the count does not matter once there is an entry (TR-31)
WITH_ENTRY = {
    "completed": (Entry(state=State.COMPLETED), Duplicate(), Duplicate()),
    "joined": (Entry(state=State.JOINED), Duplicate(), Duplicate()),
    "failed": (Entry(state=State.FAILED), Duplicate(unfinished=True), Duplicate(unfinished=True)),
    "in_doubt": (Entry(state=State.IN_DOUBT), InDoubt("parked"), InDoubt("parked")),
    "processing alive": (Entry(state=State.PROCESSING, lease_left=3.5), InProgress(3.5), InProgress(3.5)),
    "abandoned": (ABANDONED, InDoubt("abandoned"), AskResolver("abandoned", 3)),
    "retrying alive": (Entry(state=State.RETRYING, lease_left=0.1), InProgress(0.1), InProgress(0.1)),
    "retrying": (Entry(state=State.RETRYING, attempt=4), New(5), New(5)),
    "unknown state": (Entry(state=State.UNKNOWN), InDoubt("unknown_version"), InDoubt("unknown_version")),
    "unknown version": (
        Entry(state=State.COMPLETED, version=VERSION + 1),
        InDoubt("unknown_version"),
        InDoubt("unknown_version"),
    ),
    "other hash": (
        Entry(state=State.COMPLETED, body_hash=b"other"),
        InDoubt("id_reused"),
        InDoubt("id_reused"),
    ),
}


@pytest.mark.parametrize(("count", "resolver", "cautious"), list(product(COUNTS, (False, True), (False, True))))
@pytest.mark.parametrize("name", WITH_ENTRY)
def test_tr30_with_an_entry_the_history_decides(name: str, count: int, resolver: bool, cautious: bool) -> None:
    entry, without, with_resolver = WITH_ENTRY[name]
    decision = classify(count, entry, has_history=True, has_resolver=resolver, cautious=cautious, body_hash=b"this")
    assert decision == (with_resolver if resolver else without)


@pytest.mark.parametrize(("count", "resolver", "cautious"), list(product(COUNTS, (False, True), (False, True))))
def test_tr31_without_an_entry_it_is_new_unless_the_store_is_cautious(count: int, resolver: bool, cautious: bool) -> None:
    decision = classify(count, None, has_history=True, has_resolver=resolver, cautious=cautious)
    if cautious and count != 1:  # TR-53
        assert decision == (AskResolver("history_lost") if resolver else InDoubt("history_lost"))
    else:
        assert decision == New(1)


@pytest.mark.parametrize("option", ["same_transaction", "retry_abandoned"])
@pytest.mark.parametrize("resolver", [False, True])
def test_tr36_abandoned_is_new_where_no_effect_can_be_there_or_the_risk_is_asked_for(option: str, resolver: bool) -> None:
    assert classify(2, ABANDONED, has_history=True, has_resolver=resolver, **{option: True}) == New(3)


@pytest.mark.parametrize(
    ("answer", "decision"),
    [(Status.NEW, New(3)), (Status.DUPLICATE, Duplicate()), (Status.IN_DOUBT, InDoubt("resolver"))],
)
def test_tr55_the_resolver_finishes_the_decision(answer: Status, decision: object) -> None:
    asked = classify(2, ABANDONED, has_history=True, has_resolver=True)
    assert isinstance(asked, AskResolver)
    assert asked.after_resolver(answer) == decision


def test_tr55_another_answer_is_an_error() -> None:
    with pytest.raises(IllegalStateError, match="expected Status"):
        AskResolver("abandoned").after_resolver("NEW")  # type: ignore[arg-type]


def test_tr30_each_decision_has_the_status_it_stands_for() -> None:
    assert [one.status for one in (New(), Duplicate(), InDoubt("x"), InProgress(1), AskResolver("x"))] == [
        Status.NEW,
        Status.DUPLICATE,
        Status.IN_DOUBT,
        None,
        None,
    ]


@pytest.mark.parametrize("count", [0, -1, -7])
def test_tr29_a_count_below_one_is_an_unknown_count(count: int) -> None:
    assert classify(count, None, has_history=False, has_resolver=False) == New()
    assert classify(count, None, has_history=False, has_resolver=True) == AskResolver("count_unknown")


@pytest.mark.parametrize("count", [2, 2**31, 10**12])
def test_tr29_no_upper_limit_of_a_count_is_assumed(count: int) -> None:
    assert classify(count, None, has_history=False, has_resolver=False) == InDoubt("redelivered")
