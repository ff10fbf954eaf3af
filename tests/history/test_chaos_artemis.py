"""Four workers on one queue of a real Artemis, killed with SIGKILL at any moment, and a sender that repeats itself, with Redis.

Each id runs once, or is In Doubt and listed; the journals are clean (TR-37, TR-38, TR-39). Clocks that differ change nothing
(TR-43). JMSCLIENT_TEST_CHAOS=full: two minutes and 20,000 messages, instead of what everybody has the patience for.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from jmsclient import Session, connect
from jmsclient.history import open_history

from ..brokers.artemis import Artemis  # noqa: TID252  tests are no package that has a name
from .chaos_fleet import Fleet, checked, quiet, send
from .conftest import trust
from .redis_program import until

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)

MESSAGES, SECONDS = (20_000, 120.0) if os.environ.get("JMSCLIENT_TEST_CHAOS") == "full" else (4_000, 12.0)
WORKERS, HANDLERS = 4, 4
CLOCK_AHEAD = 20 * 60.0

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(120 + 4 * SECONDS)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is left of a run."""

    kills: int
    names: list[str]
    ran: Counter[str]
    parked: set[str]
    states: dict[str, str]
    left: int
    sent: Counter[str]
    dead: list[str]
    findings: list[str]
    runs: int


def chaos(
    url: str,
    history_url: str,
    folder: Path,
    *,
    messages: int,
    seconds: float,
    ahead: tuple[float, ...] = (),
    half_way: Callable[[], None] = lambda: None,
    out: bool = False,
    **settings: Any,
) -> Outcome:
    """Let the fleet work, for about `seconds`, and be killed meanwhile, until nobody has anything to do.

    `out`: each handler sends a message, too. `settings` are the trigger's.
    """
    trigger, queue = f"orders-{uuid4().hex}", f"queue:///chaos.{uuid4().hex}"
    journal, effects = folder / "journal.jsonl", folder / "effects"
    names = [f"{trigger}/{number}" for number in range(messages)]
    between = min(1.5, seconds / 10)
    pace = seconds * WORKERS * HANDLERS / messages
    with open_history(history_url) as history:
        trust(history)  # type: ignore[arg-type]
    with connect(url) as connection:
        send(connection, queue, names, messages // 5)
    arguments = (url, queue, history_url, trigger, str(journal), str(effects))
    environment = {"CHAOS_PACE": str(pace), "CHAOS_SETTINGS": json.dumps(settings), "CHAOS_OUT": f"{queue}.out" if out else ""}
    fleet = Fleet(WORKERS, *arguments, ahead=ahead, **environment)
    try:
        kill_at_random(fleet, seconds / 2, between)
        fleet.wait_until_they_run()
        half_way()
        kill_at_random(fleet, seconds / 2, between)
        patience = time.monotonic() + 45.0 + 2 * seconds  # quiet is it also while nobody reaches the broker
        known = Known(history_url, trigger, names)
        until(
            lambda: journal.exists() and quiet(journal) and (time.monotonic() > patience or known.all()),
            timeout=60.0 + 2 * seconds,
        )
        fleet.check()
    finally:
        fleet.end()
    with connect(url) as connection:
        session = connection.create_session()
        left = bodies(session, queue)
        sent = Counter(bodies(session, f"{queue}.out"))
        browser = session.create_browser("queue:///DLQ")
        dead = [str(message.body) for message in browser if str(message.body).startswith(trigger)]
    with open_history(history_url) as history:
        parked = {one.id for one in history.in_doubt(trigger)}
        states = history.lookup_many(trigger, [(name, "uuid") for name in names])
    report = checked(journal)
    return Outcome(
        kills=fleet.kills,
        names=names,
        ran=Counter(effects.read_text().split()),
        parked=parked,
        states={name: entry.state.value if entry else "unknown" for name, entry in zip(names, states, strict=True)},
        left=len(left),
        sent=sent,
        dead=dead,
        findings=[f"{one.kind}: {one.id}: {one.text}" for one in report.findings if one.certain],
        runs=report.runs,
    )


class Known:
    """Whether the history knows all of these ids; looked up anew until it does."""

    def __init__(self, history_url: str, trigger: str, names: list[str]) -> None:
        self._url, self._trigger = history_url, trigger
        self._left = names

    def all(self) -> bool:
        with open_history(self._url) as history:
            entries = history.lookup_many(self._trigger, [(name, "uuid") for name in self._left])
        self._left = [name for name, entry in zip(self._left, entries, strict=True) if entry is None]
        return not self._left


def bodies(session: Session, queue: str) -> list[str]:
    """What is on it."""
    found = []
    with session.create_consumer(queue) as consumer:
        while (message := consumer.receive(0.5)) is not None:
            found.append(str(message.body))
    return found


def each_sent_once(outcome: Outcome) -> None:
    """What handlers sent is there once, and of everything that is completed."""
    assert {name: times for name, times in outcome.sent.items() if times > 1} == {}
    assert outcome.sent.keys() <= outcome.ran.keys()
    assert outcome.ran.keys() - outcome.sent.keys() <= outcome.parked


def kill_at_random(fleet: Fleet, seconds: float, between: float) -> None:
    """One and another, whatever they do, for so long; `between` seconds apart on average."""
    end = time.monotonic() + seconds
    while (next_kill := time.monotonic() + random.expovariate(1 / between)) < end:
        until(lambda at=next_kill: time.monotonic() >= at, timeout=seconds)
        fleet.kill_one(wait=False)


def each_ran_once_or_is_listed(outcome: Outcome, *, committed: frozenset[str] = frozenset(), faults: int = 0) -> None:
    """`committed`: those whose transaction is committed may have lost the worker before it could say so in the history. `faults`:
    how often something else hit every handler at once."""
    numbers = Counter(outcome.states.values())
    shown = f"{outcome.kills} kills, {len(outcome.names)} ids, {len(outcome.parked)} in doubt, {numbers}"
    print(shown)
    assert outcome.kills >= 1, shown
    assert {name: times for name, times in outcome.ran.items() if times > 1} == {}
    assert {name for name in outcome.names if not outcome.ran[name]} <= outcome.parked
    assert outcome.ran.keys() <= set(outcome.names)
    assert {name for name, state in outcome.states.items() if state not in ("completed", "in_doubt")} <= committed, shown
    most = (outcome.kills + faults * WORKERS) * HANDLERS  # one a handler and kill
    assert numbers["in_doubt"] == len(outcome.parked) <= most, shown
    assert outcome.left == 0, "left on the queue"
    assert outcome.dead == [], "nothing failed, so nothing is a dead letter"
    assert outcome.findings == []
    assert outcome.runs <= WORKERS + outcome.kills


def test_tr37_on_artemis_each_id_runs_once_or_is_in_doubt(artemis_url: str, redis_url: str, tmp_path: Path) -> None:
    outcome = chaos(artemis_url, redis_url, tmp_path, messages=MESSAGES, seconds=SECONDS, out=True)
    each_ran_once_or_is_listed(outcome)
    each_sent_once(outcome)


def test_tr37_on_artemis_with_transacted_handlers(artemis_url: str, redis_url: str, tmp_path: Path) -> None:
    """The broker rolls back what a killed one had not committed: what it sent is gone, and its message is In Doubt. Killed after
    the commit and before it is completed, a message is gone from the queue, its work done once."""
    outcome = chaos(artemis_url, redis_url, tmp_path, messages=600, seconds=4.0, out=True, transacted=True)
    each_ran_once_or_is_listed(outcome, committed=frozenset(outcome.sent))
    each_sent_once(outcome)


def test_tr43_clocks_twenty_minutes_apart_change_nothing(artemis_url: str, redis_url: str, tmp_path: Path) -> None:
    """With a lease of one second: every entry of one worker would be abandoned, or its own never, were the clocks asked."""
    ahead = (0.0, CLOCK_AHEAD, 0.0, -CLOCK_AHEAD)
    outcome = chaos(artemis_url, redis_url, tmp_path, messages=600, seconds=4.0, ahead=ahead)
    each_ran_once_or_is_listed(outcome)
    times = [json.loads(line)["time"] for line in (tmp_path / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    assert max(times) - min(times) > 2 * CLOCK_AHEAD, "the workers' clocks were that far apart"


def test_o06_artemis_itself_killed_meanwhile(artemis: Artemis, redis_url: str, tmp_path: Path) -> None:
    """What was acknowledged on its way comes again and is a Duplicate, what was sent on its way makes its message In Doubt; the
    workers go on by themselves."""

    def kill_the_broker() -> None:
        artemis.kill()
        artemis.start()

    outcome = chaos(artemis.url, redis_url, tmp_path, messages=1200, seconds=8.0, half_way=kill_the_broker, out=True)
    each_ran_once_or_is_listed(outcome, faults=1)
    each_sent_once(outcome)
