"""The commands that a trigger makes for every message are whole, and say what they have in common (TR-38, TR-53)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from jmsclient.history import Claim, Complete
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


def test_terms_are_one_object_for_what_a_store_may_treat_alike_only() -> None:
    def terms(made: Work, **flags: bool) -> object:
        return ASKING.claim(made, **({"take_over": False, "despite_loss": False} | flags)).terms

    usual = terms(work())
    assert terms(work()) is usual is not None
    others = [
        terms(work(2)),
        terms(work(source="JMSMessageID")),
        terms(work(), take_over=True),
        terms(work(), despite_loss=True),
        terms(work(), decided=True),
        ASKING.complete(work(), "done").terms,
        ASKING.complete(work(), "joined").terms,
    ]
    assert len({id(one) for one in [usual, *others]}) == len(others) + 1
    assert terms(work(body_hash=b"hash")) is None
