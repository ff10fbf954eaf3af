"""Messages that are claimed and completed together, of which one fares otherwise: it leaves the others alone. TR-35, TR-38, TR-39,
TR-61, TR-66."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from jmsclient import Message, TriggerOptions, Worker
from jmsclient.events import Event
from jmsclient.history import State
from jmsclient.history.contract import Sent
from jmsclient.history.entries import Alike, Claim, Command, Complete, Reply
from jmsclient.history.memory import MemoryHistory
from jmsclient.testing import ManualClock, ScriptedBackend
from jmsclient.transport.contract import Verb

from ..seen import named  # noqa: TID252  tests are no package that has a name

Q = "queue:///orders"
Until = Callable[..., None]
NUMBER = 12


class Gated(MemoryHistory):
    """It answers the first call that has such a command when it is told to; `lost` is the id whose completion is refused."""

    def __init__(self, kind: type[Command]) -> None:
        super().__init__()
        self.waits, self.opened = threading.Event(), threading.Event()
        self.lost: str | None = None
        self.groups: list[Counter[type[Command]]] = []
        self._kind = kind

    def begin(self, asked: Sequence[Alike]) -> Sent:
        self.groups += [Counter({type(one.like): len(one)}) for one in asked]
        return super().begin(asked)

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        if not self.waits.is_set() and any(isinstance(one, self._kind) for one in commands):
            self.waits.set()
            assert self.opened.wait(60)
        replies = super().exchange([one for one in commands if not self._is_lost(one)])
        answers = iter(replies)
        return [Reply(done=False, lease_lost=True) if self._is_lost(one) else next(answers) for one in commands]

    def _is_lost(self, command: Command) -> bool:
        return isinstance(command, Complete) and command.id == self.lost

    def most(self, kind: type[Command]) -> int:
        return max(group[kind] for group in self.groups)


@pytest.fixture
def gated() -> Iterator[Callable[[type[Command]], Gated]]:
    made: list[Gated] = []

    def make(kind: type[Command]) -> Gated:
        made.append(Gated(kind))
        return made[-1]

    yield make
    for one in made:
        one.opened.set()


def messages(*uuids: str) -> list[Message]:
    return [Message(uuid, properties={"uuid": uuid}) for uuid in uuids]


def test_tr38_of_claims_made_together_one_is_refused_one_known_and_the_others_run_once(
    backend: ScriptedBackend, until: Until, gated: Callable[[type[Command]], Gated]
) -> None:
    history = gated(Claim)
    history.waits.set()
    known = history.claim(Q, "known", source="uuid")
    history.complete(Q, "known", token=known.token, source="uuid")
    elsewhere = history.claim(Q, "elsewhere", source="uuid", lease=3600.0)
    history.waits.clear()
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, concurrency=2, micro_batch=NUMBER, prefetch=100, options=TriggerOptions(in_progress_delay=0.05))
    def book(body: str) -> None:
        ran.append(body)

    new = [str(one) for one in range(NUMBER)]
    with worker:
        backend.deliver(Q, messages("first"))
        assert history.waits.wait(60)
        backend.deliver(Q, [*messages(*new[:5], "known", "elsewhere", new[0]), *messages(*new[5:])])
        until(lambda: worker.triggers[Q].pipeline._intake.buffered == NUMBER + 3)
        history.opened.set()
        counters = worker.triggers[Q].pipeline.counters
        until(lambda: counters.completed == NUMBER + 1)
        until(lambda: counters.in_progress >= 1)
        history.complete(Q, "elsewhere", token=elsewhere.token, source="uuid")
        until(lambda: counters.duplicate == 3)
        until(lambda: not backend.unsettled(Q))
    assert sorted(ran) == sorted(["first", *new])
    assert history.most(Claim) == NUMBER + 3
    assert (counters.new, counters.completed) == (NUMBER + 1, NUMBER + 1)


def test_tr39_of_completions_made_together_one_has_lost_its_lease_and_goes_back_alone(
    backend: ScriptedBackend, until: Until, gated: Callable[[type[Command]], Gated], events: list[Event]
) -> None:
    history = gated(Complete)
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, concurrency=2, micro_batch=NUMBER, prefetch=100)
    def book(body: str) -> None:
        ran.append(body)

    with worker:
        backend.deliver(Q, messages("first"))
        assert history.waits.wait(60), "its completion is on its way"
        backend.deliver(Q, messages(*map(str, range(NUMBER))))
        until(lambda: worker.triggers[Q].pipeline._intake.buffered == NUMBER)
        history.lost = "5"
        history.opened.set()
        counters = worker.triggers[Q].pipeline.counters
        until(lambda: counters.completed == NUMBER and counters.lease_lost == 1)
        until(lambda: len(backend.settlements) > NUMBER)
    first: dict[str | None, Verb] = {}
    for one in backend.settlements:
        first.setdefault(one.message_id, one.verb)
    assert Counter(first.values()) == {Verb.ACCEPT: NUMBER, Verb.RETRY: 1}
    assert Counter(ran) == Counter(["first", *map(str, range(NUMBER))])
    assert [event.fields["id"] for event in named(events, "lease_lost")] == ["5"]


def test_tr61_what_completes_together_after_its_trigger_was_disabled_is_recorded_and_not_acknowledged(
    backend: ScriptedBackend, until: Until, events: list[Event]
) -> None:
    history, go_on = MemoryHistory(), threading.Event()
    ran: list[str] = []
    worker = Worker(backend.url, history=history)

    @worker.trigger(Q, concurrency=4, prefetch=100)
    def book(body: str) -> None:
        ran.append(body)
        assert go_on.wait(60)

    uuids = [str(one) for one in range(4)]
    with worker:
        backend.deliver(Q, messages(*uuids))
        until(lambda: len(ran) == 4)
        try:
            assert worker.triggers[Q].disable(grace=0.0) == 4
        finally:
            go_on.set()
        until(lambda: all(history.lookup(Q, one, source="uuid").state is State.COMPLETED for one in uuids))  # type: ignore[union-attr]
        worker.triggers[Q].enable()
        until(lambda: len([one for one in backend.settlements if one.verb is Verb.ACCEPT]) == 4)
        assert worker.triggers[Q].counters["duplicate"] == 4
    assert sorted(ran) == uuids, "what came again is a Duplicate"
    assert len(named(events, "stale_acknowledge")) == 4


def test_tr67_copies_held_of_some_that_complete_together_are_decided_then_and_the_others_stay_held(
    backend: ScriptedBackend, until: Until, by_hand: Callable[[Worker], Worker], clock: ManualClock
) -> None:
    """At once: no time passes."""
    go_on, last = threading.Event(), threading.Event()
    ran: list[str] = []
    worker = by_hand(Worker(backend.url, history=MemoryHistory(clock=clock)))

    @worker.trigger(Q, concurrency=8, prefetch=100)
    def book(body: str) -> None:
        ran.append(body)
        assert (last if body == "last" else go_on).wait(60)

    uuids = [*map(str, range(6)), "last"]
    try:
        with worker:
            counters = worker.triggers[Q].pipeline.counters
            backend.deliver(Q, messages(*uuids))
            until(lambda: len(ran) == 7)
            backend.deliver(Q, messages("0", "3", "last"))
            until(lambda: counters.in_progress == 3)
            go_on.set()
            until(lambda: (counters.completed, counters.duplicate) == (6, 2))
            until(lambda: len(backend.settlements) == 8)
            assert len(backend.unsettled(Q)) == 2, "that which runs, and its copy"
            last.set()
            until(lambda: (counters.completed, counters.duplicate) == (7, 3))
            until(lambda: not backend.unsettled(Q))
    finally:
        go_on.set()
        last.set()
    assert sorted(ran) == sorted(uuids)
