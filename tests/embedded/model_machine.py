"""The state machine that drives a real embedded broker and the reference model through the same calls, and compares all that shows.

What the broker does by itself (its thread, the store's, senders that wait) is waited for after each step; then the model is told
of the step, and reads off the sinks which receiver got what. Rules are named in what each step calls; the comparison is `books`.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from jmsclient.destination import Destination, Queue, Topic
from jmsclient.message import MessageKind, PlainContent
from jmsclient.testing import ManualClock
from jmsclient.transport.contract import ReceiverSpec
from jmsclient.transport.registry import parse_url
from jmsclient_embedded.administration import EmbeddedAdministration
from jmsclient_embedded.broker import Broker
from jmsclient_embedded.invariants import check
from jmsclient_embedded.registry import close_broker
from jmsclient_embedded.settings import QueueSettings
from jmsclient_embedded.transport import EmbeddedBackend

from .conftest import Listener
from .model_cast import Actor, Cast, ModelSink, Reader
from .reference_broker import Reference, TopicModel
from .reference_place import Message, Place, Session, Taker

T = TypeVar("T")
TOPIC = Topic("t")
PATIENCE = 30.0
_numbers = itertools.count(1)
_ENDED = {
    "entered": None,
    "timeout": "ResourceAllocationError",
    "closed": "IllegalStateError",
    "lost": "ConnectionLostError",
    "repointed": "ResourceAllocationError",
}
"""What a send that waited raises."""


class BrokerMachine(RuleBasedStateMachine):
    """The stage: a broker, the model, and how a step is done on both. The steps are in the classes made from it."""

    stored = False

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model = Reference(self.clock, stored=self.stored)
        self.folder = tempfile.TemporaryDirectory() if self.stored else None
        self.path = Path(self.folder.name) / "model.db" if self.folder else None
        self.pool = ThreadPoolExecutor(1)
        self.senders = ThreadPoolExecutor(8)
        self.ids = itertools.count(1)
        self.cast = Cast()
        self.name = f"model-{next(_numbers)}"
        self.connect()

    def connect(self) -> None:
        """Two connections, the first with a client identifier."""
        for client_id in ("one", None):
            self.connect_one(client_id)
        self.scanned_at = self.broker._next_scan

    def connect_one(self, client_id: str | None) -> None:
        url = f"embedded:{self.name}" + (f"?store={self.path}" if self.path else "")
        endpoint = parse_url(url, client_id=client_id, clock=self.clock)
        self.cast.transports.append(EmbeddedBackend().connect(endpoint, Listener(), deadline=None))

    @property
    def broker(self) -> Broker:
        return self.cast.transports[0].broker

    @property
    def admin(self) -> EmbeddedAdministration:
        return EmbeddedAdministration(self.broker)

    def teardown(self) -> None:
        for actor in self.cast.actors:
            actor.real.close(None)
        for one in self.cast.blocked:
            one.result.exception(PATIENCE)
        close_broker(self.broker)
        self.pool.shutdown()
        self.senders.shutdown()
        if self.folder is not None:
            self.folder.cleanup()

    # -- one step -------------------------------------------------------------------------------------------------------

    def do(self, call: Callable[[], T], *, elsewhere: bool = False) -> T:
        """Make a call, by the main thread (whose steps the broker's thread does) or by another (which does them itself)."""
        return self.pool.submit(call).result(PATIENCE) if elsewhere else call()

    def refused(self, call: Callable[[], object], expect: type[Exception], why: str) -> None:
        """The call raises this, and changes nothing (which `books` shows)."""
        error: Exception | None = None
        try:
            call()
        except expect as raised:
            error = raised
        assert type(error) is expect, f"{why}: {error!r}, not {expect.__name__}"

    def quiet(self) -> bool:
        """Wait until nothing is on its way any more; whether there was a scan for expired messages since the last time."""
        end = time.monotonic() + PATIENCE
        while True:
            self.broker.flush(None)
            if self.broker.steps.ask(self._nothing_on_its_way):
                break
            assert time.monotonic() < end, "it does not come to rest"
        before, self.scanned_at = self.scanned_at, self.broker._next_scan
        return before != self.scanned_at

    def _nothing_on_its_way(self) -> bool:
        broker = self.broker
        if broker.granting.timed:
            broker._fall_due()
        commits = broker.writing._commits
        if commits.running is not None or commits.next.changes or broker._aftermath.recalls:
            return False
        outlets = [outlet for line in broker.granting.lines.values() for outlet in line.outlets]
        outlets += [one.real.outlet for one in self.cast.readers]
        return not any(outlet.pumping or outlet.idle for outlet in outlets)

    def then(self, change: Callable[[], T]) -> T:
        """The step is done: once all is quiet, the model does it too."""
        scanned = self.quiet()
        result = change()
        self.model.settle_down()
        if scanned:
            self.model.scan()
            self.model.settle_down()
        self.finish_blocked()
        return result

    # -- senders that wait --------------------------------------------------------------------------------------------------

    def block(self, call: Callable[[], None]) -> Future[None]:
        """Start a send that will wait, and wait until it does."""
        expected = sum(not one.waiter.ended for one in self.cast.blocked) + 1
        result = self.senders.submit(call)
        end = time.monotonic() + PATIENCE
        while not result.done() and len(self.broker.admission._waiting) < expected:
            assert time.monotonic() < end, "T1: the send neither waits nor ends"
            threading.Event().wait(0.0002)
        return result

    def finish_blocked(self) -> None:
        """Senders whose wait is over, by the model, return, with what the model says."""
        for one in [one for one in self.cast.blocked if one.waiter.ended]:
            self.cast.blocked.remove(one)
            one.actor.busy = False
            error = one.result.exception(PATIENCE)
            expect = _ENDED[one.waiter.ended]
            if expect is not None and one.waiter.entered:
                expect = "SendError"
            found = None if error is None else type(error).__name__
            assert found == expect, f"T2, T3: a send of which {one.waiter.entered} entered ended with {error!r}, not {expect}"
        assert not [one for one in self.cast.blocked if one.result.done()], "T1: a send returned that should still wait for room"

    # -- things to act with -------------------------------------------------------------------------------------------------

    def actor(self, number: int, *, transacted: bool) -> Actor:
        """A session of one of the connections; made where there is none of the kind."""
        connection = number % 2
        free = [
            one
            for one in self.cast.actors
            if one.model.connection == connection and one.model.transacted is transacted and not one.busy
        ]
        if free:
            return free[number // 2 % len(free)]
        real = self.cast.transports[connection].open_session(transacted=transacted, deadline=None)
        made = Actor(real, Session(real.group.name, transacted, connection))
        self.cast.actors.append(made)
        return made

    def reader(self, number: int) -> Reader | None:
        found = [one for one in self.cast.readers if not self.actor_of(one).busy]
        return found[number % len(found)] if found else None

    def actor_of(self, reader: Reader) -> Actor:
        return next(one for one in self.cast.actors if one.model is reader.taker.session)

    def content(
        self,
        *,
        persistent: bool,
        priority: int = 4,
        life: float | None = None,
        delay: float | None = None,
        colour: str = "red",
        size: int = 3,
    ) -> PlainContent:
        wall = self.clock.wall()
        number = next(self.ids)
        return PlainContent(
            kind=MessageKind.TEXT,
            body="x" * size,
            message_id=f"m{number}",
            persistent=persistent,
            priority=priority,
            expiration=None if life is None else wall + life,
            delivery_time=None if delay is None else wall + delay,
            timestamp=wall,
            properties={"colour": colour, "unit": f"u{number % 2}"},
        )

    def message(self, content: PlainContent, settings: QueueSettings) -> Message:
        """What the model knows of it, changed as its destination says."""
        wall = self.clock.wall()
        persistent, priority, expires_at, birth = content.persistent, content.priority, content.expiration, content.delivery_time
        if settings.time_to_deliver_override >= 0:
            birth = wall + settings.time_to_deliver_override
        if settings.time_to_live_override >= 0:
            expires_at = wall + settings.time_to_live_override if settings.time_to_live_override else None
        if settings.priority_override >= 0:
            priority = settings.priority_override
        if settings.delivery_mode_override is not None:
            persistent = settings.delivery_mode_override == "persistent"
        colour, unit = str(content.properties()["colour"]), str(content.properties()["unit"])
        return Message(str(content.message_id), priority or 0, persistent, content.size, colour, unit, expires_at, birth)

    def open_reader(self, actor: Actor, place: Place, spec: ReceiverSpec, colour: str | None) -> Reader:
        sink = ModelSink()
        real = sink.receiver = actor.real.open_receiver(spec, sink, None)
        taker = Taker(real.outlet.holder.name, place, actor.model, colour, lambda: sink.arrivals, spec.pre_settled)
        reader = Reader(real, sink, taker)
        self.cast.readers.append(reader)
        return reader

    def topic(self) -> TopicModel:
        return self.model.topics[TOPIC.name]

    def places_of(self, where: Destination | None) -> list[Place]:
        if where is None:
            return self.model.everywhere()
        return list(self.topic().subscriptions) if isinstance(where, Topic) else [self.model.places[where.name]]

    def flags(self, where: Destination | None) -> set[str]:
        """The pauses of a place itself."""
        if where is None:
            return self.model.server
        return self.topic().flags if isinstance(where, Topic) else self.model.places[where.name].flags

    # -- the comparison -------------------------------------------------------------------------------------------------------

    def books(self) -> None:
        """Everything that shows, at any quiet point: IF-7 and IF-8 by the checker, and that it is as the model says."""
        self.do(self._compare, elsewhere=True)

    def _compare(self) -> None:
        check(self.broker)
        for reader in self.cast.readers:
            unknown = [one.content.message_id for one in reader.sink.arrivals[reader.taker.seen :]]
            assert not unknown, f"T10: {unknown} came to {reader.taker.name}, which should not have them"
        for place in self.model.places.values():
            blocked = sum(one.waiter.place is place and not one.waiter.ended for one in self.cast.blocked)
            self._compare_place(place, blocked)
        self._compare_topic()

    def _compare_place(self, place: Place, blocked: int) -> None:
        shown = [
            (one.message_id, one.state, one.owner, one.delivery_count, one.priority, one.persistent, one.size)
            for one in self.admin.messages(Queue(place.name))
        ]
        visible = sum(one[1] == "visible" for one in shown)
        expect = place.described()
        assert shown[:visible] == expect[:visible], f"J-5 {place.name}: what is visible\n{shown}\nis not\n{expect}"
        assert sorted(map(repr, shown)) == sorted(map(repr, expect)), f"J-4 {place.name}: there is\n{shown}\nnot\n{expect}"
        found, wanted = self.admin.statistics(Queue(place.name)), place.statistics(blocked)
        assert found == wanted, f"J-2 {place.name}: the numbers\n{found}\nare not\n{wanted}"

    def _compare_topic(self) -> None:
        if TOPIC.name not in self.model.topics:
            return
        topic = self.topic()
        lines = self.broker.topics.topics[TOPIC.name].lines
        found = sorted([str(one.content.message_id) for one in line.queue.browse()] for line in lines)
        wanted = sorted([one.id for one in place.visible] for place in topic.subscriptions)
        assert found == wanted, f"J-5 the subscriptions show {found}, not {wanted}"
        infos = sorted(repr((one.message_id, one.state, one.owner, one.delivery_count)) for one in self.admin.messages(TOPIC))
        expect = sorted(repr(one[:4]) for place in topic.subscriptions for one in place.described())
        assert infos == expect, f"J-4 the topic has\n{infos}\nnot\n{expect}"
        numbers, parts = self.admin.statistics(TOPIC), [place.statistics(0) for place in topic.subscriptions]
        for name in (
            "messages_current",
            "messages_pending",
            "messages_high",
            "messages_received",
            "bytes_received",
            "bytes_removed",
        ):
            assert getattr(numbers, name) == sum(getattr(part, name) for part in parts), (
                f"J-2 the topic's {name}: {numbers}, {parts}"
            )


def ids_of(messages: Sequence[Message]) -> list[str]:
    return [one.id for one in messages]


def nothing() -> None:
    pass
