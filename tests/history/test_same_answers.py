"""Whatever the commands, every store answers as `entries.apply` does: the Redis script repeats it, the others run it.

Leases are long or over, so that the time between two commands does not matter; what depends on the time of day is compared in
shape.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import fakeredis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jmsclient.history import (
    Claim,
    Complete,
    Decide,
    DocumentHistory,
    Entry,
    Join,
    Park,
    ParkedMessage,
    Release,
    Renew,
    Reply,
    State,
    open_history,
)
from jmsclient.history.entries import Command, Stored, apply
from jmsclient.history.redis import RedisHistory
from jmsclient.history.sql import SqlHistory

from .conftest import REAL, trust

IDS = st.sampled_from(["1", "1", "1", "2"])
TOKENS = st.sampled_from(["a", "b", "c"])
LEASES = st.sampled_from([0.0, -10.0, 1000.0])
WORDS = st.sampled_from([None, "", "why", "=é"])

COMMANDS = st.one_of(
    st.builds(
        Claim,
        trigger=st.just("t"),
        id=IDS,
        token=TOKENS,
        lease=st.one_of(LEASES, st.none()),
        take_over=st.booleans(),
        delivery_count=st.sampled_from([-1, 1, 7]),
        despite_loss=st.booleans(),
        owner=WORDS,
        body_hash=st.sampled_from([None, b"", b"\xff"]),
        decided=st.booleans(),
    ),
    st.builds(Complete, trigger=st.just("t"), id=IDS, token=TOKENS, outcome=st.sampled_from(["done", "failed", "joined"])),
    st.builds(
        Release,
        trigger=st.just("t"),
        id=IDS,
        token=TOKENS,
        to=st.sampled_from([None, State.RETRYING, State.FAILED]),
        lease=LEASES,
        reason=WORDS,
    ),
    st.builds(Renew, trigger=st.just("t"), id=IDS, token=TOKENS, lease=st.one_of(LEASES, st.none())),
    st.builds(
        Park,
        trigger=st.just("t"),
        id=IDS,
        token=TOKENS,
        envelope=st.sampled_from([b"one", b"\x00two"]),
        reason=st.sampled_from(["abandoned", "resolver", "in_progress"]),
        delivery_count=st.sampled_from([-1, 1, 7]),
        owner=WORDS,
    ),
    st.builds(
        Join,
        trigger=st.just("t"),
        id=IDS,
        token=TOKENS,
        place=st.sampled_from(["a", "a b"]),
        member=st.sampled_from(["1", "2é"]),
        envelope=st.sampled_from([b"one", b"\x00two"]),
        needed=st.sampled_from([1, 2, 3]),
        expires=st.sampled_from([1000.0, 1000.0, 0.0]),
    ),
    st.builds(
        Decide, trigger=st.just("t"), id=IDS, token=TOKENS, decision=st.sampled_from(["new", "new", "duplicate"]), by=st.just("me")
    ),
)
GROUPS = st.lists(st.lists(COMMANDS, min_size=1, max_size=6), min_size=1, max_size=6)


class Model:
    """`apply` over a dictionary, at a time that stands still."""

    def __init__(self, cautious: bool) -> None:
        self.cautious = cautious
        self.entries: dict[str, Stored] = {}
        self.copies: dict[str, tuple[Any, ...]] = {}

    def exchange(self, commands: list[Command]) -> list[Reply]:
        return [self.one(command) for command in commands]

    def one(self, command: Command) -> Reply:
        before = self.entries.get(command.id)
        after, reply = apply(before, command, 1e6, cautious=self.cautious)
        if after is None:
            self.entries.pop(command.id, None)
        else:
            self.entries[command.id] = after
        if after is None or after.state in (State.COMPLETED, State.JOINED):
            self.copies.pop(command.id, None)
        elif isinstance(command, Park) and reply.done and (before is None or before.state is not State.IN_DOUBT):
            self.copies[command.id] = (command.delivery_count, command.envelope)
        elif isinstance(command, Join) and after is not before:
            self.copies[command.id] = (-1, self.copies.get(command.id, (-1, b""))[1] + command.frame)
        return reply

    def in_doubt(self) -> list[tuple[Any, ...]]:
        return sorted(self.copy(id_) for id_ in self.copies if self.entries[id_].undecided(1e6))

    def decided(self) -> list[tuple[Any, ...]]:
        left = [id_ for id_ in self.copies if self.entries[id_].decision and self.entries[id_].locked_until <= 1e6]
        return sorted(self.copy(id_) for id_ in left)

    def copy(self, id_: str) -> tuple[Any, ...]:
        stored = self.entries[id_]
        who = (stored.owner or "", stored.decision or "", stored.decided_by or "")
        return (id_, stored.reason or "", stored.copies, *who, stored.attempt, *self.copies[id_])


def timeless(reply: Reply) -> Reply:
    """Without what depends on the time of day; a lease is over, long, or as long as the entry lives."""
    return replace(
        reply, fencing_token=min(reply.fencing_token, 1), entry=None if reply.entry is None else entry_shape(reply.entry)
    )


def entry_shape(entry: Entry) -> Entry:
    return replace(
        entry,
        fencing_token=min(entry.fencing_token, 1),
        lease_left=round(entry.lease_left, -2),
        started=0.0,
        updated=0.0,
        decided=0.0,
    )


@pytest.fixture(scope="module", params=["memory", "sqlite", "sql", "fakeredis", *REAL])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocumentHistory]:
    """One store for all examples: each takes a namespace of its own, which is quicker than a new store."""
    match request.param:
        case "fakeredis":
            opened: DocumentHistory = RedisHistory(fakeredis.FakeRedis())
        case "redis" | "valkey" | "postgresql":
            opened = open_history(request.getfixturevalue(f"{request.param}_url"), namespace=uuid4().hex)
        case "sql":
            file = tmp_path_factory.mktemp("same") / "shop.db"
            opened = SqlHistory(lambda: sqlite3.connect(file))
        case "sqlite":
            opened = open_history(f"sqlite:{tmp_path_factory.mktemp('same') / 'history.db'}")
        case kind:
            opened = open_history(f"{kind}:")
    with opened:
        yield opened


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(groups=GROUPS, lost=st.booleans())
def test_tr38_every_store_answers_as_the_pure_transitions(store: DocumentHistory, groups: list[list[Command]], lost: bool) -> None:
    cautious = isinstance(store, RedisHistory) and lost
    if isinstance(store, RedisHistory):
        trust(store, since=time.time() if lost else 0.0)
    model = Model(cautious)
    trigger = uuid4().hex
    fences: dict[str, int] = {}
    for group in groups:
        there = store.exchange([replace(command, trigger=trigger) for command in group])
        assert [timeless(reply) for reply in there] == [timeless(reply) for reply in model.exchange(group)]
        rises(group, there, fences)
    for id_ in ("1", "2"):
        found, expected = store.lookup(trigger, id_), model.entries.get(id_)
        assert (None if found is None else entry_shape(found)) == (None if expected is None else entry_shape(expected.seen(1e6)))
    assert sorted(map(shown, store.in_doubt(trigger))) == model.in_doubt()
    assert sorted(map(shown, store.decided(trigger))) == model.decided()
    assert {one.id for one in (*store.in_doubt(trigger), *store.decided(trigger))} <= set(model.copies)


def shown(one: ParkedMessage) -> tuple[Any, ...]:
    who = (one.owner or "", one.decision or "", one.decided_by or "")
    return (one.id, one.reason, one.copies, *who, one.attempt, one.delivery_count, one.envelope)


def rises(group: list[Command], replies: list[Reply], fences: dict[str, int]) -> None:
    """TR-39: the fencing number of an id never falls while its entry is there."""
    for command, reply in zip(group, replies, strict=True):
        if isinstance(command, Claim) and reply.done:
            assert reply.fencing_token >= fences.get(command.id, 0)
            fences[command.id] = reply.fencing_token
        if isinstance(command, Release) and command.to is None and reply.done:
            fences.pop(command.id, None)
