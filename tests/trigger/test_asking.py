"""The commands that a trigger makes for every message are whole, and say what they have in common (TR-38, TR-53)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from jmsclient.history import Claim, Complete
from jmsclient.history.entries import Command
from jmsclient.trigger.asking import Asking
from jmsclient.trigger.work import Work

ASKING = Asking(cast(Any, SimpleNamespace(name="t", lease=5.0, history_ttl=50.0)), "host:1")


def work(count: int = 1, *, source: str = "uuid", body_hash: bytes | None = None) -> Work:
    made = Work(cast(Any, SimpleNamespace(delivery_count=count)), cast(Any, None), "1", source, "a")
    made.body_hash = body_hash
    return made


@pytest.mark.parametrize("body_hash", [None, b"hash"])
@pytest.mark.parametrize("flag", ["take_over", "despite_loss", "decided", None])
@pytest.mark.parametrize("count", [1, 2, -1])
def test_a_claim_has_all_that_a_claim_has(count: int, flag: str | None, body_hash: bytes | None) -> None:
    flags = {"take_over": False, "despite_loss": False, "decided": False} | ({flag: True} if flag else {})
    assert ASKING.claim(work(count, body_hash=body_hash), **flags) == Claim(
        trigger="t",
        id="1",
        source="uuid",
        token="a",
        history_ttl=50.0,
        lease=5.0,
        delivery_count=count,
        owner="host:1",
        body_hash=body_hash,
        brief=body_hash is None,
        **flags,
    )


def test_a_completion_has_all_that_a_completion_has() -> None:
    expected = Complete(trigger="t", id="1", source="uuid", token="a", history_ttl=50.0, outcome="rejected")
    assert ASKING.complete(work(), "rejected") == expected


def test_what_is_alike_is_said_with_one_object_which_stands_for_nothing_else() -> None:
    def like(*works: Work, take_over: bool = False, despite_loss: bool = False) -> Command:
        asked = ASKING.claims(works, take_over=take_over, despite_loss=despite_loss)
        assert asked.lasting
        return asked.like

    usual = like(work())
    assert like(work(), work()) is usual
    others = [
        like(work(2)),
        like(work(source="JMSMessageID")),
        like(work(), take_over=True),
        like(work(), despite_loss=True),
        ASKING.completions([work()], "done").like,
        ASKING.completions([work()], "joined").like,
        ASKING.completions([work(source="JMSMessageID")], "done").like,
    ]
    assert len({id(one) for one in [usual, *others]}) == len(others) + 1


@pytest.mark.parametrize("count", [1, 2, -1])
def test_tr39_commands_that_are_alike_are_each_what_they_would_be_by_themselves(count: int) -> None:
    works = [work(count), work(count)]
    works[1].id, works[1].token = "2", "b"
    claims = ASKING.claims(works, take_over=True, despite_loss=False)
    assert list(claims.commands()) == [ASKING.claim(one, take_over=True, despite_loss=False) for one in works]
    assert list(claims.part(1, 2).commands()) == list(claims.commands())[1:]
    completions = ASKING.completions(works, "done")
    assert list(completions.commands()) == [ASKING.complete(one, "done") for one in works]
    assert len(claims) == len(completions) == 2
