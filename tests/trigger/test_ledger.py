"""The talk of a trigger with its history: what is sent ahead, and that nothing counts as told that was not. TR-38, TR-39, TR-50."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from jmsclient.errors import HistoryUnavailableError
from jmsclient.history import Claim, Complete, Release
from jmsclient.history.contract import DocumentHistory, Sent
from jmsclient.history.entries import Alike, Command, Reply
from jmsclient.testing import ManualClock
from jmsclient.trigger.ledger import FEW, MANY, MOST_AHEAD, Ledger
from jmsclient.trigger.work import Work


class Store(DocumentHistory):
    """Writes down which groups it is sent and which it is asked about; `silent`: those that it does not answer, by number."""

    sends_ahead = True
    exchange = in_doubt = lookup_many = purge_expired = statistics = close = None  # type: ignore[assignment]  # not asked

    def __init__(self) -> None:
        self.sent: list[list[Command]] = []
        self.sizes: list[int] = []
        self.asked: list[int] = []
        self.abandoned: list[int] = []
        self.silent: set[int] = set()

    def begin(self, asked: Sequence[Alike]) -> Sent:
        number = len(self.sent)
        self.sent.append([command for one in asked for command in one.commands()])
        self.sizes += [len(one) for one in asked]

        def replies() -> list[list[Reply]]:
            self.asked.append(number)
            if number in self.silent:
                raise HistoryUnavailableError("does not answer")
            return [[Reply(done=True, token=token) for token in one.tokens] for one in asked]

        return Sent(replies, lambda: self.abandoned.append(number))


Store.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


class Asker:
    """Adds claims and hears what becomes of them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.told: list[str] = []
        self.untold: list[str] = []

    def add(self, number: int, *, first: int = 0) -> list[str]:
        tokens = [str(one) for one in range(first, first + number)]
        for token in tokens:
            work = Work(cast(Any, None), cast(Any, None), token, "uuid", token)
            self.ledger.add(Claim(trigger="t", id=token, token=token), work, self._answered, self._unanswered)
        return tokens

    def _answered(self, work: Work, reply: Reply) -> None:
        assert reply.token == work.token
        self.told.append(work.token)

    def _unanswered(self, work: Work) -> None:
        self.untold.append(work.token)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def asker(store: Store) -> Asker:
    return Asker(Ledger(store, ManualClock()))


def test_tr38_a_few_are_one_call_sent_when_they_are_exchanged(store: Store, asker: Asker) -> None:
    tokens = asker.add(FEW - 1)
    assert store.sent == []
    asker.ledger.exchange()
    assert len(store.sent) == 1
    assert asker.told == tokens


def test_many_are_on_their_way_while_more_are_gathered_in_calls_that_grow_to_a_limit(store: Store, asker: Asker) -> None:
    tokens = asker.add(40 * FEW)
    sizes = [len(group) for group in store.sent]
    assert sizes == [FEW, 2 * FEW, *[MANY] * (MOST_AHEAD - 2)]
    assert store.asked == []
    assert len(asker.ledger) == 40 * FEW - sum(sizes) + MOST_AHEAD  # a group that is sent counts as one
    asker.ledger.exchange()
    assert [len(group) for group in store.sent] == [*sizes, 40 * FEW - sum(sizes)]
    assert asker.told == tokens
    assert store.asked == list(range(MOST_AHEAD + 1))
    assert len(asker.ledger) == 0


def test_a_store_that_cannot_send_ahead_is_asked_once(store: Store) -> None:
    store.sends_ahead = False
    asker = Asker(Ledger(store, ManualClock()))
    asker.add(10 * FEW)
    asker.ledger.exchange()
    assert len(store.sent) == 1


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_tr50_without_an_answer_nothing_sent_after_it_is_taken_for_told(store: Store, asker: Asker, silent: int) -> None:
    store.silent = {silent}
    tokens = asker.add(5 * FEW)  # two groups sent ahead, and the rest
    with pytest.raises(HistoryUnavailableError):
        asker.ledger.exchange()
    answered = sum(len(group) for group in store.sent[:silent])
    assert asker.told == tokens[:answered]
    assert asker.untold == tokens[answered:]
    assert store.asked == list(range(silent + 1)), "a time-out is waited for once, not once a group"
    assert store.abandoned == list(range(silent + 1, len(store.sent))), "no answer is left on a connection"
    store.silent = set()
    asker.ledger.exchange()
    again = store.sent[-1]
    assert [type(command) for command in again] == [Release] * len(asker.untold)
    assert [command.token for command in again] == asker.untold
    assert asker.told == tokens[:answered]  # nobody waits for a release


def test_tr49_while_it_does_not_answer_nothing_is_sent_ahead(store: Store, asker: Asker) -> None:
    store.silent = {0, 1}
    asker.add(1)
    with pytest.raises(HistoryUnavailableError):
        asker.ledger.exchange()
    asker.add(4 * FEW, first=1)
    assert len(store.sent) == 1
    with pytest.raises(HistoryUnavailableError):
        asker.ledger.exchange()
    assert len(store.sent) == 2
    asker.ledger.exchange()
    asker.add(FEW, first=1000)
    assert len(store.sent) == 4


@pytest.mark.parametrize("number", [1, 20, FEW, 3 * MANY])
def test_tr50_behind_more_notes_than_a_call_is_sent_for_nobody_is_told_of_nothing(store: Store, number: int) -> None:
    """As after an outage, when handlers that ran without the history end all at once."""
    ledger = Ledger(store, ManualClock())
    for one in range(FEW + 36):
        ledger.note(Complete(trigger="t", id=f"n{one}", token=f"n{one}"), work_of(f"n{one}"))
    works = [work_of(str(one)) for one in range(number)]
    told: list[str] = []

    def answered(some: Sequence[Work], replies: Sequence[Reply]) -> None:
        assert [work.token for work in some] == [reply.token for reply in replies] != []
        told.extend(work.token for work in some)

    tokens = [work.token for work in works]
    ledger.add_all(Alike(Claim(trigger="t", id="0", token="0"), list(tokens), list(tokens)), works, answered)
    ledger.exchange()
    assert told == tokens
    assert [command.token for group in store.sent for command in group] == [f"n{one}" for one in range(FEW + 36)] + tokens
    assert all(store.sizes), "an empty group is no group"


@pytest.mark.parametrize("silent", [0, 1])
def test_tr50_of_a_group_in_parts_the_answered_ones_are_told_and_the_rest_released(store: Store, silent: int) -> None:
    store.silent = {silent}
    ledger = Ledger(store, ManualClock())
    works = [work_of(str(one)) for one in range(FEW + 20)]
    tokens = [work.token for work in works]
    told: list[str] = []
    untold: list[str] = []
    ledger.add_all(
        Alike(Claim(trigger="t", id="0", token="0"), list(tokens), list(tokens), lasting=True),
        works,
        lambda some, replies: told.extend(work.token for work in some),
        lambda work: untold.append(work.token),
    )
    with pytest.raises(HistoryUnavailableError):
        ledger.exchange()
    assert told == tokens[: FEW * silent]
    assert untold == tokens[FEW * silent :]
    store.silent = set()
    ledger.exchange()
    assert [command.token for command in store.sent[-1]] == untold
    assert {type(command) for command in store.sent[-1]} == {Release}


def test_tr50_of_completions_in_parts_each_is_told_once_or_forgotten(store: Store) -> None:
    store.silent = {1}
    ledger = Ledger(store, ManualClock())
    works = [work_of(str(one)) for one in range(FEW + 20)]
    tokens = [work.token for work in works]
    told: list[str] = []
    asked = Alike(Complete(trigger="t", id="0", token="0"), list(tokens), list(tokens), lasting=True)
    ledger.add_all(asked, works, lambda some, replies: told.extend(work.token for work in some))
    with pytest.raises(HistoryUnavailableError):
        ledger.exchange()
    given_up = tokens[FEW + 5]
    assert not ledger.forget(tokens[0]), "it was answered"
    assert ledger.forget(given_up)
    assert not ledger.forget(given_up)
    assert len(ledger) == 19
    ledger.exchange()
    assert told == [token for token in tokens if token != given_up]
    assert ledger.pressing is False


def work_of(token: str) -> Work:
    return Work(cast(Any, None), cast(Any, None), token, "uuid", token)
