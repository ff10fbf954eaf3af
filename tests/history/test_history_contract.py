"""What every document history promises: the same tests for memory, SQLite, fakeredis and a real Redis (TR-32 to TR-45)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from jmsclient.errors import HistoryUnavailableError, LeaseLostError
from jmsclient.history import Claim, Claimed, Complete, DocumentHistory, Park, Release, Renew, State
from jmsclient.history.contract import stored_id
from jmsclient.history.entries import Alike, Reply

T = "orders"
Forge = Callable[..., None]


def state(history: DocumentHistory, id: str) -> State | None:  # noqa: A002
    entry = history.lookup(T, id)
    return None if entry is None else entry.state


def abandon(history: DocumentHistory, id: str, token: str = "gone") -> None:  # noqa: A002
    """A claim whose lease is over."""
    assert history.claim(T, id, token=token, lease=0.0).claimed


def park(history: DocumentHistory, id: str, token: str = "parker") -> bool:  # noqa: A002
    return history.park(T, id, token=token, envelope=b"\x00\xffwhole", reason="abandoned", delivery_count=3).done


# -- groups (TR-38) ---------------------------------------------------------------------------------------------------------


def done(replies: list[Reply]) -> list[bool]:
    return [reply.done for reply in replies]


def test_tr38_commands_that_are_alike_are_answered_in_their_order_whatever_is_there(history: DocumentHistory) -> None:
    history.claim(T, "done", token="earlier")
    history.complete(T, "done", token="earlier")
    history.claim(T, "runs", token="other")
    history.claim(T, "mine", token="t2")
    claims = Alike(
        Claim(trigger=T, id="", token="", brief=True), ["new", "done", "mine", "runs", "new"], ["t0", "t1", "t2", "t3", "t4"]
    )
    (replies,) = history.begin([claims]).replies()
    assert done(replies) == [True, False, True, False, False]
    assert [reply.entry and reply.entry.state for reply in replies] == [
        None,
        State.COMPLETED,
        None,
        State.PROCESSING,
        State.PROCESSING,
    ]
    assert [entry and entry.token for entry in [history.lookup(T, "new"), history.lookup(T, "runs")]] == ["t0", "other"]


def test_tr38_several_kinds_of_commands_go_in_one_group_in_the_order_given(history: DocumentHistory) -> None:
    claim, complete = Claim(trigger=T, id="", token="", brief=True), Complete(trigger=T, id="", token="")
    asked = [
        Alike(claim, ["1", "2", "3"], ["a", "b", "c"], lasting=True),
        Alike(complete, ["1", "2"], ["a", "b"], lasting=True),
        Alike.of(Complete(trigger=T, id="3", token="another")),
        Alike(claim, ["2", "4"], ["d", "e"], lasting=True),
        Alike(complete, ["4", "3"], ["e", "c"], lasting=True),
        Alike.of(Claim(trigger="another", id="1", token="f")),
    ]
    for _ in range(2):  # a repeat with the same tokens changes nothing but for what is completed
        replies = history.begin(asked).replies()
        assert [len(of_these) for of_these in replies] == [3, 2, 1, 2, 2, 1]
        assert [reply.lease_lost for reply in replies[2]] == [True]
    assert done(replies[5]) == [True]
    assert [state(history, id_) for id_ in "1234"] == [State.COMPLETED] * 4
    assert history.begin([]).replies() == []


# -- claim (TR-38, TR-39) ---------------------------------------------------------------------------------------------------


def test_tr38_the_first_claim_wins_and_the_second_is_shown_the_first(history: DocumentHistory) -> None:
    first = history.claim(T, "1", token="a")
    assert (first.claimed, first.entry, first.attempt) == (True, None, 1)
    second = history.claim(T, "1", token="b")
    assert not second.claimed
    assert second.entry is not None
    assert (second.entry.state, second.entry.token, second.entry.lease_alive) == (State.PROCESSING, "a", True)
    assert second.entry.fencing_token == first.fencing_token > 0


def test_tr39_a_repeated_claim_answers_as_the_first_time(history: DocumentHistory) -> None:
    first = history.claim(T, "1", token="a")
    assert history.claim(T, "1", token="a") == first


def test_tr39_a_repeated_take_over_shows_the_abandoned_run_again(history: DocumentHistory) -> None:
    abandon(history, "1")
    first = history.claim(T, "1", token="b", take_over=True)
    again = history.claim(T, "1", token="b", take_over=True)
    for answer in (first, again):
        assert answer.claimed
        assert answer.entry is not None
        assert (answer.entry.token, answer.entry.state, answer.attempt) == ("gone", State.PROCESSING, 2)
    assert again.fencing_token == first.fencing_token


def test_tr39_the_fencing_number_rises_with_each_owner(history: DocumentHistory) -> None:
    numbers = [history.claim(T, "1", token="0", lease=0.0).fencing_token]
    numbers += [history.claim(T, "1", token=token, lease=0.0, take_over=True).fencing_token for token in "123"]
    history.release(T, "1", token="3")
    numbers.append(history.claim(T, "1", token="4", take_over=True).fencing_token)
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("lease", [0.0, -5.0], ids=["zero", "past"])
def test_tr36_tr41_a_lease_that_is_over_leaves_an_abandoned_entry(history: DocumentHistory, lease: float) -> None:
    history.claim(T, "1", token="a", lease=lease)
    refused = history.claim(T, "1", token="b")
    assert not refused.claimed
    assert refused.entry is not None
    assert refused.entry.lease_left == 0.0
    assert history.claim(T, "1", token="c", take_over=True).claimed


def test_tr41_a_lease_not_given_locks_until_history_ttl(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a", lease=None, history_ttl=500.0)
    refused = history.claim(T, "1", token="b", take_over=True)
    assert not refused.claimed
    assert refused.entry is not None
    assert 490.0 < refused.entry.lease_left <= 500.0


def test_tr41_a_lease_missing_in_the_store_locks_until_history_ttl(history: DocumentHistory, forge: Forge) -> None:
    history.claim(T, "1", token="a", lease=0.0, history_ttl=500.0)
    forge(history, T, "1", lease=None)
    refused = history.claim(T, "1", token="b", take_over=True)
    assert not refused.claimed
    for entry in (refused.entry, history.lookup(T, "1")):
        assert entry is not None
        assert 490.0 < entry.lease_left <= 500.0


def test_tr41_a_lease_in_the_future_is_alive_and_told(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a", lease=60.0)
    entry = history.lookup(T, "1")
    assert entry is not None
    assert 55.0 < entry.lease_left <= 60.0


def test_tr46_a_planned_retry_is_claimed_with_the_next_attempt(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a")
    history.release(T, "1", token="a", to=State.RETRYING, reason="handler")
    second = history.claim(T, "1", token="b")
    assert second.claimed
    assert second.attempt == 2
    assert second.entry is not None
    assert (second.entry.state, second.entry.reason) == (State.RETRYING, "handler")


def test_tr57_a_retry_in_place_keeps_its_lease_against_others_only(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a")
    history.release(T, "1", token="a", to=State.RETRYING, lease=60.0)
    other = history.claim(T, "1", token="b")
    assert not other.claimed
    assert other.entry is not None
    assert other.entry.lease_alive
    mine = history.claim(T, "1", token="a")
    assert (mine.claimed, mine.attempt) == (True, 2)


def test_tr47_another_body_hash_is_never_claimed(history: DocumentHistory) -> None:
    def claim(token: str, body_hash: bytes | None) -> bool:
        command = Claim(trigger=T, id="1", token=token, lease=0.0, take_over=True, body_hash=body_hash)
        return history.exchange([command])[0].done

    assert claim("a", b"\x00\xff1")
    assert not claim("b", b"\x00\xff2")
    assert claim("c", None)
    entry = history.lookup(T, "1")
    assert entry is not None
    assert entry.body_hash == b"\x00\xff1"


def test_a_claim_names_its_owner(history: DocumentHistory) -> None:
    history.exchange([Claim(trigger=T, id="1", token="a", owner="host é/7")])
    entry = history.lookup(T, "1")
    assert entry is not None
    assert entry.owner == "host é/7"


# -- complete -------------------------------------------------------------------------------------------------------------


def test_tr39_complete_is_done_by_its_owner_even_past_the_lease(history: DocumentHistory) -> None:
    abandon(history, "1", token="a")
    history.complete(T, "1", token="a", outcome="done")
    history.complete(T, "1", token="a", outcome="ignored: a repeat")
    entry = history.lookup(T, "1")
    assert entry is not None
    assert (entry.state, entry.outcome, entry.lease_left) == (State.COMPLETED, "done", 0.0)


def test_tr39_complete_by_another_token_is_lease_lost(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a")
    with pytest.raises(LeaseLostError, match="another owner"):
        history.complete(T, "1", token="b")
    assert state(history, "1") is State.PROCESSING


def test_tr39_complete_of_an_absent_entry_writes_it_anew(history: DocumentHistory) -> None:
    history.complete(T, "1", token="a")
    assert state(history, "1") is State.COMPLETED


def test_tr37_what_is_completed_is_never_claimed_released_renewed_or_parked(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a")
    history.complete(T, "1", token="a")
    key = {"trigger": T, "id": "1"}
    replies = history.exchange(
        [
            Claim(**key, token="b", take_over=True),
            Claim(**key, token="a", take_over=True),
            Release(**key, token="a"),
            Release(**key, token="a", to=State.RETRYING),
            Renew(**key, token="a"),
            Park(**key, token="a", envelope=b"x", reason="late"),
            Park(**key, token="c", envelope=b"x", reason="late"),
        ]
    )
    assert [reply.done for reply in replies] == [False] * 7
    assert state(history, "1") is State.COMPLETED
    assert history.in_doubt() == []


# -- release and renew ----------------------------------------------------------------------------------------------------


def test_tr45_a_release_without_a_run_leaves_nothing_and_may_be_repeated(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a")
    history.release(T, "1", token="a")
    history.release(T, "1", token="a")
    assert state(history, "1") is None
    assert history.statistics() == {}


def test_tr46_a_release_without_a_run_leaves_the_planned_retry(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a")
    history.release(T, "1", token="a", to=State.RETRYING)
    history.claim(T, "1", token="b")
    history.release(T, "1", token="b")
    history.release(T, "1", token="b")  # the first answer was lost
    entry = history.lookup(T, "1")
    assert entry is not None
    assert (entry.state, entry.attempt) == (State.RETRYING, 1)
    assert history.claim(T, "1", token="c").attempt == 2


def test_tr37_a_release_of_a_take_over_leaves_the_abandoned_run_and_its_owner(history: DocumentHistory) -> None:
    abandon(history, "1", token="a")
    assert history.claim(T, "1", token="b", take_over=True).claimed
    history.release(T, "1", token="b")
    entry = history.lookup(T, "1")
    assert entry is not None
    assert (entry.state, entry.token, entry.attempt, entry.lease_left) == (State.PROCESSING, "a", 1, 0.0)
    history.complete(T, "1", token="a")
    assert state(history, "1") is State.COMPLETED


def test_tr39_release_by_another_token_is_lease_lost(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a")
    with pytest.raises(LeaseLostError):
        history.release(T, "1", token="b")


def test_tr45_failed_is_remembered_until_it_is_completed(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a")
    history.release(T, "1", token="a", to=State.FAILED, reason="handler")
    found = history.claim(T, "1", token="b", take_over=True)
    assert not found.claimed
    assert found.entry is not None
    assert (found.entry.state, found.entry.token, found.entry.reason) == (State.FAILED, "a", "handler")
    history.complete(T, "1", token=found.entry.token, outcome="failed")
    assert state(history, "1") is State.COMPLETED


def test_a_release_tells_its_own_reason_only(history: DocumentHistory) -> None:
    history.release(T, "1", token="a", to=State.RETRYING, reason="first")
    history.release(T, "1", token="a", to=State.FAILED)
    entry = history.lookup(T, "1")
    assert entry is not None
    assert (entry.state, entry.reason) == (State.FAILED, None)


def test_a_release_to_another_state_is_refused_before_anything_is_sent(history: DocumentHistory) -> None:
    with pytest.raises(ValueError, match=r"RETRYING or State\.FAILED"):
        history.release(T, "1", token="a", to=State.COMPLETED)


def test_tr39_tr40_renew_prolongs_the_lease_and_writes_a_lost_entry_anew(history: DocumentHistory) -> None:
    abandon(history, "1", token="a")
    history.renew(T, "1", token="a", lease=60.0)
    history.renew(T, "2", token="a", lease=60.0)
    for entry in history.lookup_many(T, [("1", "JMSMessageID"), ("2", "JMSMessageID")]):
        assert entry is not None
        assert (entry.state, entry.token, entry.lease_left > 50) == (State.PROCESSING, "a", True)
    with pytest.raises(LeaseLostError):
        history.renew(T, "1", token="b")


# -- park (TR-34) -----------------------------------------------------------------------------------------------------------


def test_tr34_parking_keeps_the_full_copy_once_and_counts_further_ones(history: DocumentHistory) -> None:
    abandon(history, "1", token="a")
    assert park(history, "1", "b")
    assert park(history, "1", "b")  # a repeat, the answer was lost
    for token in "cd":
        assert history.park(T, "1", token=token, envelope=b"another", reason="parked").done
    (parked,) = history.in_doubt(T)
    assert (parked.trigger, parked.id, parked.source) == (T, "1", "JMSMessageID")
    assert (parked.envelope, parked.reason, parked.delivery_count) == (b"\x00\xffwhole", "abandoned", 3)
    assert (parked.copies, parked.attempt) == (2, 1)
    assert 0.0 <= parked.age < 10.0
    assert history.get(T, "1") is not None
    assert history.get(T, "2") is None


def test_tr34_a_late_complete_of_the_old_owner_settles_the_parked_copy(history: DocumentHistory) -> None:
    abandon(history, "1", token="a")
    park(history, "1", "b")
    with pytest.raises(LeaseLostError):
        history.complete(T, "1", token="b")
    history.complete(T, "1", token="a")
    assert state(history, "1") is State.COMPLETED
    assert history.in_doubt() == []
    assert not park(history, "1", "c")  # a further copy is a Duplicate


def test_tr34_what_is_parked_is_not_claimed_released_or_renewed(history: DocumentHistory) -> None:
    park(history, "1", "a")
    key = {"trigger": T, "id": "1", "token": "a"}
    replies = history.exchange([Claim(**key, take_over=True), Release(**key, to=State.RETRYING), Renew(**key)])
    assert [reply.done for reply in replies] == [False] * 3
    assert state(history, "1") is State.IN_DOUBT
    assert len(history.in_doubt()) == 1


@pytest.mark.parametrize(
    ("before", "parks"),
    [("nothing", True), ("own", True), ("alive", False), ("failed", True), ("retrying", True), ("waiting", False)],
)
def test_tr34_parks_only_what_nobody_else_runs(history: DocumentHistory, before: str, parks: bool) -> None:
    if before != "nothing":
        history.claim(T, "1", token="parker" if before == "own" else "a")
    if before in ("retrying", "waiting"):
        history.release(T, "1", token="a", to=State.RETRYING, lease=60.0 if before == "waiting" else 0.0)
    if before == "failed":
        history.release(T, "1", token="a", to=State.FAILED)
    assert park(history, "1") is parks
    assert (state(history, "1") is State.IN_DOUBT) is parks
    assert len(history.in_doubt()) == parks


def test_tr34_parked_copies_have_no_time_to_live(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a", history_ttl=0.05)
    history.park(T, "1", token="a", envelope=b"x", reason="resolver")
    history.claim(T, "2", token="a", history_ttl=0.05)
    time.sleep(0.15)
    history.purge_expired()
    assert [one.id for one in history.in_doubt()] == ["1"]
    assert (state(history, "1"), state(history, "2")) == (State.IN_DOUBT, None)


def test_tr42_a_settled_copy_lives_history_ttl_again(history: DocumentHistory) -> None:
    history.park(T, "1", token="a", envelope=b"x", reason="resolver")
    history.complete(T, "1", token="a", history_ttl=0.05)
    time.sleep(0.15)
    assert state(history, "1") is None


def test_parked_messages_of_all_triggers_are_listed_oldest_first(history: DocumentHistory) -> None:
    places = [("b{x}:y", "1"), ("a", "2"), ("b{x}:y", "3:é")]
    for trigger, id_ in places:
        history.park(trigger, id_, token="t", envelope=b"x", reason="r", source="uuid")
        time.sleep(0.002)
    assert [(one.trigger, one.id) for one in history.in_doubt()] == places
    assert [one.id for one in history.in_doubt("a")] == ["2"]
    assert {one.source for one in history.in_doubt()} == {"uuid"}
    assert history.in_doubt("none") == []


# -- keys (TR-32, TR-33) ----------------------------------------------------------------------------------------------------


def test_tr32_tr33_trigger_source_and_id_are_one_key(history: DocumentHistory) -> None:
    places = [("a", "JMSMessageID", "x"), ("b", "JMSMessageID", "x"), ("a", "uuid", "x"), ("a", "uuid", "X"), ("a:uuid", "", "x")]
    assert all(history.claim(trigger, id_, source=source).claimed for trigger, source, id_ in places)
    assert not any(history.claim(trigger, id_, source=source).claimed for trigger, source, id_ in places)


@pytest.mark.parametrize("odd", ["é" * 150, "sha256:0", "a\x00b", "\ud800", "{}:*?[x]", "'; --", " "])
def test_tr32_odd_ids_are_ids(history: DocumentHistory, odd: str) -> None:
    assert history.claim(T, odd, token="a").claimed
    assert not history.claim(T, odd, token="b").claimed
    history.complete(T, odd, token="a")
    assert history.lookup(T, odd) is not None
    history.park(T, odd + "!", token="a", envelope=b"x", reason="r")
    assert [one.id for one in history.in_doubt()] == [stored_id(odd + "!")]


# -- time (TR-42 to TR-44) --------------------------------------------------------------------------------------------------


def test_tr44_past_history_ttl_is_absent_and_the_id_is_new(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a", lease=0.01, history_ttl=0.05)
    history.complete(T, "2", token="a", history_ttl=0.05)
    time.sleep(0.15)
    assert (state(history, "1"), state(history, "2")) == (None, None)
    assert history.statistics() == {}
    assert history.claim(T, "1", token="b").entry is None


def test_tr42_each_write_begins_history_ttl_anew(history: DocumentHistory) -> None:
    for attempt in range(20):
        one, two = f"{attempt}-1", f"{attempt}-2"
        started = time.monotonic()
        history.claim(T, one, token="a", history_ttl=0.2)
        history.renew(T, one, token="a", history_ttl=600.0)
        history.claim(T, two, token="a", history_ttl=0.2)
        history.complete(T, two, token="a", history_ttl=600.0)
        if time.monotonic() - started < 0.2:  # else the first may have been over before the second came
            break
    time.sleep(0.3)
    assert (state(history, one), state(history, two)) == (State.PROCESSING, State.COMPLETED)


# -- versions ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forged", [{"version": 2}, {"version": 2, "state": "suspended"}], ids=["known_state", "new_state"])
def test_an_entry_of_another_version_is_shown_and_never_changed(
    history: DocumentHistory, forge: Forge, forged: dict[str, object], request: pytest.FixtureRequest
) -> None:
    if "state" in forged and "memory" in request.node.name:
        forged = {"version": 2, "state": State.UNKNOWN}  # memory holds no text that another version could have written
    history.claim(T, "1", token="a", lease=0.0)
    forge(history, T, "1", **forged)
    key = {"trigger": T, "id": "1", "token": "a"}
    commands = [
        Claim(**key, take_over=True),
        Complete(**key),
        Release(**key),
        Release(**key, to=State.FAILED),
        Renew(**key),
        Park(**key, envelope=b"x"),
    ]
    for reply in history.exchange(commands):
        assert not reply.done
        assert reply.entry is not None
        assert reply.entry.version == 2
        assert reply.entry.state is (State.UNKNOWN if "state" in forged else State.PROCESSING)


# -- groups and the rest ----------------------------------------------------------------------------------------------------


def test_a_group_is_carried_out_and_answered_in_order(history: DocumentHistory) -> None:
    key = {"trigger": T, "id": "1"}
    replies = history.exchange(
        [
            Claim(**key, token="a"),
            Claim(trigger="other", id="1", token="x"),
            Complete(**key, token="a"),
            Claim(**key, token="b"),
            Claim(trigger=T, id="2", token="b"),
        ]
    )
    assert [reply.done for reply in replies] == [True, True, True, False, True]
    assert replies[3].entry is not None
    assert replies[3].entry.state is State.COMPLETED
    assert history.exchange([]) == []


def test_lookup_many_answers_in_order_and_changes_nothing(history: DocumentHistory) -> None:
    history.claim(T, "1", token="a")
    ids = [("2", "JMSMessageID"), ("1", "JMSMessageID"), ("1", "uuid")]
    found = history.lookup_many(T, iter(ids))
    assert [entry is not None for entry in found] == [False, True, False]
    assert history.lookup_many(T, []) == []
    assert history.statistics() == {"processing": 1}


def test_statistics_count_entries_by_state(history: DocumentHistory) -> None:
    for number in range(3):
        history.claim(T, f"p{number}")
    history.complete(T, "c", token="a")
    history.park("another", "d", token="a", envelope=b"x", reason="r")
    assert history.statistics() == {"processing": 3, "completed": 1, "in_doubt": 1}


def test_a_closed_history_says_so_and_closing_twice_is_fine(history: DocumentHistory) -> None:
    history.claim(T, "1")
    history.close()
    history.close()
    for call in (lambda: history.claim(T, "2"), lambda: history.lookup(T, "1"), history.in_doubt, history.statistics):
        with pytest.raises(HistoryUnavailableError, match="closed"):
            call()


def test_claimed_is_a_value(history: DocumentHistory) -> None:
    claimed = history.claim(T, "1", token="a")
    assert claimed == Claimed(claimed=True, entry=None, token="a", fencing_token=claimed.fencing_token, attempt=1)
    assert history.durable is (type(history).__name__ != "MemoryHistory")
