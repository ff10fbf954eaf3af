"""Deciding parked copies, the same on memory, SQLite, fakeredis and a real Redis: who decided, who carries it out, and that the
copy is there until it is done (TR-34)."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from jmsclient import Status
from jmsclient.errors import ConfigurationError, IllegalStateError, LeaseLostError
from jmsclient.history import Claim, Complete, DocumentHistory, ParkedMessage, Reply, State, open_history
from jmsclient.history.contract import new_token, stored_id

T = "orders"


def park(history: DocumentHistory, id: str = "1", *, source: str = "JMSMessageID", token: str = "owner") -> None:  # noqa: A002
    """What an owner left that died in its handler."""
    assert history.claim(T, id, token=token, source=source, lease=0.0).claimed
    history.park(T, id, token="parker", source=source, envelope=b"\x00whole", reason="abandoned", delivery_count=2)


def carry_out(history: DocumentHistory, token: str, *, lease: float = 60.0, history_ttl: float = 86400.0) -> Reply:
    """What a worker claims."""
    command = Claim(trigger=T, id="1", token=token, lease=lease, history_ttl=history_ttl, decided=True)
    return history.exchange([command])[0]


def ids(parked: list[ParkedMessage]) -> list[str]:
    return [one.id for one in parked]


def test_tr34_a_decision_is_kept_with_who_and_when_until_it_is_carried_out(history: DocumentHistory) -> None:
    park(history)
    history.decide(T, "1", Status.NEW, "ada")
    assert history.in_doubt(T) == []
    (one,) = history.decided(T)
    assert (one.decision, one.decided_by, one.envelope, one.reason) == ("new", "ada", b"\x00whole", "abandoned")
    assert 0 <= one.decided < 10
    got = history.get(T, "1")
    assert got is not None
    assert (got.id, got.decided_by) == ("1", "ada")
    entry = history.lookup(T, "1")
    assert entry is not None
    assert (entry.state, entry.decision, entry.decided_by) == (State.IN_DOUBT, "new", "ada")


def test_tr34_new_is_claimed_by_one_and_its_copy_stays_until_completed(history: DocumentHistory) -> None:
    park(history)
    assert not carry_out(history, "w").done  # nobody has decided
    history.decide(T, "1", Status.NEW, "ada")
    assert not history.claim(T, "1", token="a copy from the provider").claimed
    reply = carry_out(history, "w")
    assert (reply.done, reply.attempt) == (True, 2)
    assert not carry_out(history, "other").done
    assert carry_out(history, "w").done  # a lost reply
    assert (history.in_doubt(T), history.decided(T)) == ([], [])  # somebody is about it
    history.complete(T, "1", token="w")
    entry = history.lookup(T, "1")
    assert entry is not None
    assert (entry.state, entry.decided_by) == (State.COMPLETED, "ada")
    assert (history.in_doubt(T), history.decided(T)) == ([], [])


def test_tr34_of_fifty_that_carry_it_out_one_claims_it(history: DocumentHistory) -> None:
    park(history)
    history.decide(T, "1", Status.NEW, "ada")
    won: list[str] = []
    start = threading.Barrier(50)

    def race(token: str) -> None:
        start.wait()
        if carry_out(history, token).done:
            won.append(token)

    threads = [threading.Thread(target=race, args=(str(number),)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_tr34_a_worker_that_dies_with_it_leaves_it_in_doubt_and_decidable(history: DocumentHistory) -> None:
    park(history)
    history.decide(T, "1", Status.NEW, "ada")
    assert carry_out(history, "dead", lease=0.05, history_ttl=0.1).done
    time.sleep(0.2)  # its lease and its history_ttl are over
    assert ids(history.in_doubt(T)) == ["1"]
    assert ids(history.decided(T)) == ["1"]  # so that a worker parks it anew, or asks its resolver
    history.decide(T, "1", Status.DUPLICATE, "bob")
    (one,) = history.decided(T)
    assert (one.decision, one.decided_by, one.envelope) == ("duplicate", "bob", b"\x00whole")


def test_tr34_parked_again_it_is_undecided(history: DocumentHistory) -> None:
    park(history)
    history.decide(T, "1", Status.NEW, "ada")
    assert carry_out(history, "w").done
    history.park(T, "1", token="w", envelope=b"\x00whole", reason="failed")
    (one,) = history.in_doubt(T)
    assert (one.reason, one.decision, one.decided_by) == ("failed", None, None)
    assert history.decided(T) == []


def test_tr34_given_up_before_it_ran_it_is_decided_as_before(history: DocumentHistory) -> None:
    park(history)
    history.decide(T, "1", Status.NEW, "ada")
    assert carry_out(history, "w").done
    history.release(T, "1", token="w")
    assert ids(history.decided(T)) == ["1"]
    assert carry_out(history, "other").done


@pytest.mark.parametrize("state", [State.RETRYING, State.FAILED])
def test_tr34_planned_again_or_being_dead_lettered_it_is_left_to_a_worker(history: DocumentHistory, state: State) -> None:
    park(history)
    history.decide(T, "1", Status.NEW, "ada")
    assert carry_out(history, "w").done
    history.release(T, "1", token="w", to=state, lease=60.0, history_ttl=0.05)
    assert history.decided(T) == []
    history.release(T, "1", token="w", to=state, history_ttl=0.05)
    time.sleep(0.1)  # a copy has no time to live
    assert ids(history.decided(T)) == ["1"]
    assert carry_out(history, "next").done is (state is State.RETRYING)


def test_tr34_a_late_complete_of_the_old_owner_settles_it(history: DocumentHistory) -> None:
    park(history)
    history.complete(T, "1", token="owner")
    assert (history.in_doubt(T), history.get(T, "1")) == ([], None)
    park(history, "2")
    history.decide(T, "2", Status.NEW, "ada")
    history.complete(T, "2", token="owner")  # decided and not yet run: done is done
    assert history.decided(T) == []


def test_tr34_once_it_runs_a_late_complete_is_refused(history: DocumentHistory) -> None:
    park(history)
    history.decide(T, "1", Status.NEW, "ada")
    assert carry_out(history, "w").done
    with pytest.raises(LeaseLostError):
        history.complete(T, "1", token="owner")


def test_tr34_a_duplicate_is_completed_under_the_token_it_has(history: DocumentHistory) -> None:
    park(history)
    history.decide(T, "1", Status.DUPLICATE, "ada")
    assert not carry_out(history, "w").done
    entry = history.lookup(T, "1")
    assert entry is not None
    history.exchange([Complete(trigger=T, id="1", token=entry.token, outcome="decided: duplicate")])
    assert history.decided(T) == []
    entry = history.lookup(T, "1")
    assert entry is not None
    assert (entry.state, entry.outcome, entry.decided_by) == (State.COMPLETED, "decided: duplicate", "ada")


def test_tr34_the_last_decision_holds(history: DocumentHistory) -> None:
    park(history)
    history.decide(T, "1", Status.DUPLICATE, "ada")
    history.decide(T, "1", "new", "bob")
    assert carry_out(history, "w").done


def test_a_decision_about_nothing_is_refused(history: DocumentHistory) -> None:
    with pytest.raises(IllegalStateError, match="no message '9'"):
        history.decide(T, "9", Status.NEW, "ada")
    history.claim(T, "running", token="a")
    with pytest.raises(IllegalStateError):
        history.decide(T, "running", Status.NEW, "ada")
    park(history)
    with pytest.raises(ConfigurationError, match="IN_DOUBT"):
        history.decide(T, "1", Status.IN_DOUBT, "ada")
    with pytest.raises(ConfigurationError, match="who"):
        history.decide(T, "1", Status.NEW, "")


def test_tr32_one_id_from_two_sources_is_two_messages(history: DocumentHistory) -> None:
    park(history, source="uuid")
    park(history)
    with pytest.raises(ConfigurationError, match="source="):
        history.decide(T, "1", Status.NEW, "ada")
    history.decide(T, "1", Status.NEW, "ada", source="uuid")
    assert [one.source for one in history.in_doubt(T)] == ["JMSMessageID"]


def test_tr32_a_long_id_is_decided_by_the_id_that_the_message_has(history: DocumentHistory) -> None:
    long = "x" * 500
    history.park(T, long, token="parker", envelope=b"", reason="abandoned")
    history.decide(T, long, Status.NEW, "ada")
    assert history.get(T, long) is not None


@pytest.mark.parametrize("source", [None, "uuid"])
@pytest.mark.parametrize("id_", ["x" * 5000, "\ud800", "sha256:" + "0" * 64, "sha256:"])
def test_tr32_an_id_that_is_hashed_is_decided_by_either_form(history: DocumentHistory, id_: str, source: str | None) -> None:
    for form in (id_, stored_id(id_)):
        history.park(T, id_, token=new_token(), envelope=b"x", reason="abandoned", source="uuid")
        history.decide(T, form, Status.DUPLICATE, "ada", source=source)
        (decided,) = history.decided(T)
        assert decided.id == stored_id(id_)
        with pytest.raises(IllegalStateError):
            history.decide(T, id_ + "x", Status.NEW, "ada", source=source)


def test_decided_gives_the_oldest_first_and_at_most_the_limit(history: DocumentHistory) -> None:
    for number in range(4):
        park(history, str(number))
    for number in (3, 0, 2):
        history.decide(T, str(number), Status.NEW, "ada")
    assert ids(history.decided(T)) == ["0", "2", "3"]
    assert ids(history.decided(limit=2)) == ["0", "2"]
    assert history.decided("another") == []


def test_a_file_of_format_1_is_read_and_its_copies_can_be_decided(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with open_history(f"sqlite:{path}") as history:
        park(history)
    with sqlite3.connect(path) as connection:
        for column in ("decision", "decided_by", "decided_at"):
            connection.execute(f"ALTER TABLE entries DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with open_history(f"sqlite:{path}") as history:
        history.decide(T, "1", Status.NEW, "ada")
        assert carry_out(history, "w").done
