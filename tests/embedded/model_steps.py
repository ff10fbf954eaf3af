"""The steps of the state machine: sends, receives, settlements, ends, pauses, clock steps, management, and the end of the process.

Each step does something to the broker and then the same to the model (model_machine.py compares them). A step for which there is
nothing to do it with does nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from jmsclient.destination import Destination, Queue
from jmsclient.errors import (
    DestinationPausedError,
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
    SendError,
    TransactionRolledBackError,
)
from jmsclient.transport.contract import Outcome, ReceiverSpec, Verb
from jmsclient_embedded.registry import close_broker
from jmsclient_embedded.transport import simulate_connection_loss

from .conftest import hand
from .model_machine import PATIENCE, TOPIC, Actor, Blocked, BrokerMachine, Cast, Reader, ids_of
from .reference_broker import DEFINED, Room, TopicModel, Waiter, settings_of
from .reference_place import Message, Place

QUEUES = st.sampled_from(DEFINED)
NUMBER = st.integers(0, 7)
COLOURS = st.sampled_from(["red", "blue"])
SOMETIMES = st.sampled_from([False, False, False, True])
PAUSES = st.sampled_from(["production", "insertion", "consumption"])
WHERE = st.sampled_from([Queue("q1"), Queue("q2"), Queue("q3"), TOPIC, None])
MAXIMA = st.sampled_from([-1, -1, 3, 5, 0])

SETTINGS = st.fixed_dictionaries(
    {
        "redelivery_limit": st.sampled_from([-1, 0, 1, 2]),
        "redelivery_delay": st.sampled_from([-1.0, -1.0, 0.0, 2.0]),
        "redelivery_multiplier": st.sampled_from([1.0, 2.0]),
        "redelivery_delay_maximum": st.sampled_from([None, 3.0]),
        "error_destination": st.sampled_from(["DLQ", "DLQ", None]),
        "unit_of_order": st.sampled_from([None, None, "unit"]),
    }
)
OVERRIDES = st.fixed_dictionaries(
    {
        "priority_override": st.sampled_from([-1, -1, 7]),
        "time_to_live_override": st.sampled_from([-1.0, -1.0, 0.0, 6.0]),
        "time_to_deliver_override": st.sampled_from([-1.0, -1.0, -1.0, 2.0]),
        "delivery_mode_override": st.sampled_from([None, None, None, "persistent", "non_persistent"]),
    }
)


class Steps(BrokerMachine):
    """See the module."""

    @initialize(
        one=SETTINGS,
        two=SETTINGS,
        three=SETTINGS,
        overrides=OVERRIDES,
        policy=st.sampled_from(["discard", "log", "redirect"]),
        maxima=st.tuples(MAXIMA, st.sampled_from([-1, -1, 40])),
        fifo=st.booleans(),
    )
    def begin(
        self,
        one: dict[str, object],
        two: dict[str, object],
        three: dict[str, object],
        overrides: dict[str, object],
        policy: str,
        maxima: tuple[int, int],
        fifo: bool,
    ) -> None:
        """q1 may have its expired ones redirected and sends overridden; q2 and q3 share a quota; t is a topic."""
        messages, size = maxima
        self.admin.create_quota("room", messages_maximum=messages, bytes_maximum=size, policy="fifo" if fifo else "preemptive")
        given = {
            "q1": {**one, **overrides, "expiration_policy": policy},
            "q2": {**two, "quota": "room"},
            "q3": {**three, "quota": "room"},
        }
        room = self.room = Room(messages, size, fifo)
        for name, settings in given.items():
            self.admin.create_queue(name, **settings)  # type: ignore[arg-type]
            place = self.model.place(name, settings_of(**settings))
            if name != "q1":
                self.model.rooms[place] = room
                room.members.append(place)
        self.admin.create_topic(TOPIC.name, redelivery_limit=1)
        self.model.topics[TOPIC.name] = TopicModel()
        self.quiet()

    # -- sending ----------------------------------------------------------------------------------------------------------

    @rule(
        number=NUMBER,
        queue=QUEUES,
        transacted=SOMETIMES,
        how_many=st.integers(1, 3),
        persistent=st.booleans(),
        priority=st.sampled_from([4, 4, 4, 9]),
        life=st.sampled_from([None, None, None, 1.5, 4.0, 40.0]),
        delay=st.sampled_from([None, None, None, 1.0, 5.0]),
        colour=COLOURS,
        size=st.integers(0, 12),
        wait=st.sampled_from([0.0, 3.0, None]),
        elsewhere=st.booleans(),
    )
    def send(
        self,
        number: int,
        queue: str,
        transacted: bool,
        how_many: int,
        persistent: bool,
        priority: int,
        life: float | None,
        delay: float | None,
        colour: str,
        size: int,
        wait: float | None,
        elsewhere: bool,
    ) -> None:
        """T1 to T7, IF-31, O07."""
        given = {"priority": priority, "life": life, "delay": delay, "colour": colour, "size": size}
        parts = [{**given, "persistent": persistent ^ (index == 1)} for index in range(how_many)]
        self.put(number, queue, parts, transacted=transacted, wait=wait, elsewhere=elsewhere)

    def put(
        self, number: int, queue: str, parts: list[dict[str, Any]], *, transacted: bool, wait: float | None, elsewhere: bool
    ) -> None:
        """Send one message for each of `parts`, in one call."""
        contents = [self.content(**part) for part in parts]
        actor = self.actor(number, transacted=transacted)
        place = self.model.place(queue)
        messages = [self.message(one, place.settings) for one in contents]
        verdict = self.model.verdict(queue, messages, may_wait=wait != 0.0)
        if verdict == "waits" and len(self.cast.blocked) >= (1 if self.stored else 4):
            return  # which of two is stored first is left open; and there are only so many threads
        sender = actor.real.open_sender(Queue(queue), None)
        deadline = None if wait is None else self.clock.monotonic() + wait

        def call() -> None:
            sender.send(contents, room_deadline=deadline, confirm_timeout=None)

        if verdict == "waits":
            result = self.block(call)
            actor.busy = True
            waiter = Waiter(place, actor.model, [], deadline)
            self.cast.blocked.append(Blocked(waiter, actor, result))
            blocked = self.cast.blocked[-1]

            def wait_too() -> None:
                blocked.waiter = self.model.send(queue, messages, actor.model, deadline, may_wait=True)

            self.then(wait_too)
            return
        errors = {
            "paused": DestinationPausedError,
            "never": ResourceAllocationError,
            "full": ResourceAllocationError,
            "part": SendError,
        }
        if verdict in errors:
            self.refused(lambda: self.do(call, elsewhere=elsewhere), errors[verdict], f"IF-31, T3: a send that is {verdict}")
        else:
            self.do(call, elsewhere=elsewhere)
        if verdict in ("enters", "part"):
            self.then(lambda: self.model.send(queue, messages, actor.model, deadline, may_wait=False))
        else:
            self.then(_nothing)

    @rule(number=NUMBER, transacted=SOMETIMES, how_many=st.integers(1, 3), persistent=st.booleans(), colour=COLOURS)
    def publish(self, number: int, transacted: bool, how_many: int, persistent: bool, colour: str) -> None:
        """A copy for each subscription."""
        contents = [
            self.content(persistent=persistent, priority=4, life=None, delay=None, colour=colour, size=3) for _ in range(how_many)
        ]
        actor = self.actor(number, transacted=transacted)
        sender = actor.real.open_sender(TOPIC, None)
        messages = [self.message(one, settings_of()) for one in contents]
        flags = self.topic().flags | self.model.server
        if flags & {"production", "insertion"}:
            self.refused(
                lambda: sender.send(contents, room_deadline=None, confirm_timeout=None), DestinationPausedError, "the pause table"
            )
            self.then(_nothing)
        else:
            sender.send(contents, room_deadline=None, confirm_timeout=None)
            self.then(lambda: self.model.publish(TOPIC.name, messages, actor.model))

    # -- receiving ----------------------------------------------------------------------------------------------------------

    @rule(
        number=NUMBER,
        queue=QUEUES,
        transacted=SOMETIMES,
        colour=st.sampled_from([None, None, "red"]),
        demand=st.integers(0, 3),
        pre_settled=SOMETIMES,
    )
    def open_receiver(
        self, number: int, queue: str, transacted: bool, colour: str | None, demand: int, pre_settled: bool = False
    ) -> None:
        """IF-5, RA-8; DO-1 where it is sent settled."""
        actor = self.actor(number, transacted=transacted)
        spec = ReceiverSpec(
            destination=Queue(queue),
            selector=None if colour is None else f"colour = '{colour}'",
            pre_settled=pre_settled and not transacted,
        )
        reader = self.open_reader(actor, self.model.place(queue), spec, colour)
        self.then(lambda: self.model.open(reader.taker))
        if demand:
            self.request(reader, demand)

    @rule(number=NUMBER, durable=st.booleans(), colour=st.sampled_from([None, "blue"]), demand=st.integers(0, 3))
    def subscribe(self, number: int, durable: bool, colour: str | None, demand: int) -> None:
        """A subscription; a durable one belongs to the first connection, and one with another selector is made anew (JM 8.3.3)."""
        actor = self.actor(number & ~1 if durable else number, transacted=False)
        selector = None if colour is None else f"colour = '{colour}'"
        spec = ReceiverSpec(
            destination=TOPIC, selector=selector, kind="durable" if durable else "topic", name="d" if durable else None
        )
        topic = self.topic()
        place = next((one for one in topic.subscriptions if one.stored), None) if durable else None
        if place is not None and (place.takers or (topic.wants[place] != colour and place.in_state("receive"))):
            self.refused(lambda: actor.real.open_receiver(spec, _NoSink(), None), IllegalStateError, "a subscription in use")
            self.then(_nothing)
            return
        if place is not None and topic.wants[place] != colour:
            self.model.end_subscription(place)
            place = None
        if place is None:
            place = Place(
                f"t-{next(self.ids)}", settings_of(redelivery_limit=1), stored=durable, above=(self.model.server, topic.flags)
            )
            topic.subscriptions.append(place)
            topic.wants[place] = colour
        reader = self.open_reader(actor, place, spec, None)
        self.then(lambda: self.model.open(reader.taker))
        if demand:
            self.request(reader, demand)

    @rule()
    def unsubscribe(self) -> None:
        """A durable subscription goes with all that waits in it, unless it is in use."""
        actor = self.actor(0, transacted=False)
        place = next((one for one in self.topic().subscriptions if one.stored), None)
        if place is None:
            self.refused(lambda: actor.real.unsubscribe("d", None), InvalidDestinationError, "no such subscription")
        elif place.takers or place.in_state("receive"):
            self.refused(lambda: actor.real.unsubscribe("d", None), IllegalStateError, "a subscription in use")
        else:
            actor.real.unsubscribe("d", None)
            gone = place
            self.then(lambda: self.model.end_subscription(gone))

    @rule(number=NUMBER, demand=st.integers(1, 4))
    def more_demand(self, number: int, demand: int) -> None:
        reader = self.reader(number)
        if reader is not None:
            self.request(reader, demand)

    def request(self, reader: Reader, demand: int) -> None:
        reader.real.request(demand)

        def wanted() -> None:
            if reader.taker.open:
                reader.taker.demand += demand
                self.model.grant(reader.taker.place)

        self.then(wanted)

    @rule(number=NUMBER)
    def drain(self, number: int) -> None:
        """IF-18: no demand is left."""
        reader = self.reader(number)
        if reader is not None:
            reader.real.drain(None)
            reader.taker.demand = 0
            self.then(_nothing)

    def holding(self, number: int) -> Reader | None:
        """A receiver that holds something; where there is none, one gets something, unless that is paused."""
        if not any(reader.held() for reader in self.cast.readers):
            queue = DEFINED[number % 3]
            self.open_receiver(number, queue, transacted=number > 4, colour=None, demand=3)
            self.put(
                number // 2, queue, [{"persistent": index != 1} for index in range(3)], transacted=False, wait=0.0, elsewhere=False
            )
        found = [reader for reader in self.cast.readers if reader.held() and not self.actor_of(reader).busy]
        return found[number % len(found)] if found else None

    @rule(number=NUMBER, how_many=st.integers(1, 3))
    def hand_over(self, number: int, how_many: int) -> None:
        """T11, IF-11: the application sees them."""
        reader = self.holding(number)
        if reader is not None:
            unseen = [one.arrival for one in reader.held() if not one.handed_over]
            hand(reader.real, [one for one in unseen[:how_many] if one is not None])
            self.then(_nothing)

    @rule(
        number=NUMBER,
        verb=st.sampled_from([Verb.ACCEPT, Verb.ACCEPT, *Verb]),
        which=st.integers(1, 7),
        delay=st.sampled_from([0.0, 0.0, 2.0]),
        seen=st.booleans(),
        twice=SOMETIMES,
        elsewhere=st.booleans(),
    )
    def settle(self, number: int, verb: Verb, which: int, delay: float, seen: bool, twice: bool, elsewhere: bool) -> None:
        """The settlement table; what is settled twice is settled once."""
        reader = self.holding(number)
        if reader is None:
            return
        held = reader.held()[:3]
        chosen = [one for index, one in enumerate(held) if which >> index & 1] or held[:1]
        arrivals = [one.arrival for one in chosen if one.arrival is not None]
        if seen:
            hand(reader.real, arrivals)
        real = reader.real
        self.do(lambda: real.settle(arrivals + arrivals[:twice], Outcome(verb=verb, delay=delay)), elsewhere=elsewhere)
        self.then(lambda: self.model.settle(chosen, verb, delay))

    # -- ends -----------------------------------------------------------------------------------------------------------------

    @rule(number=NUMBER, commit=st.booleans(), delay=st.sampled_from([0.0, 3.0]))
    def end_transaction(self, number: int, commit: bool, delay: float) -> None:
        """T5, T6, T12, T14, IF-28."""
        if number > 3:
            self.holding(number)
        else:  # something sent in it, and something sent beside it, which it comes behind
            for transacted in (True, False):
                part = {"persistent": number > 1}
                self.put(number, DEFINED[number % 3], [part, part], transacted=transacted, wait=0.0, elsewhere=False)
        actor = self.actor(number, transacted=True)
        if not commit:
            actor.real.rollback(redelivery_delay=delay, deadline=None)
            self.then(lambda: self.model.rollback(actor.model, delay))
        elif actor.model.broken:
            self.refused(lambda: actor.real.commit(None), TransactionRolledBackError, "IF-28: what it accepted was taken away")
            self.then(lambda: self.model.commit(actor.model))
        else:
            actor.real.commit(None)
            assert self.then(lambda: self.model.commit(actor.model))

    @rule(number=NUMBER)
    def close_receiver(self, number: int) -> None:
        """IF-9."""
        reader = self.holding(number) if number > 3 else self.reader(number)
        if reader is not None:
            reader.real.close(None)
            closed = reader.taker
            self.then(lambda: self.model.close(closed))

    @rule(number=NUMBER, elsewhere=st.booleans())
    def close_session(self, number: int, elsewhere: bool) -> None:
        """IF-9, IF-14; a send that waits fails (O07)."""
        if self.cast.actors:
            actor = self.cast.actors[number % len(self.cast.actors)]
            self.do(lambda: actor.real.close(None), elsewhere=elsewhere)
            self.forget([actor])

    def forget(self, actors: Sequence[Actor], how: str = "closed") -> None:
        """These sessions are gone."""

        def gone() -> None:
            for actor in actors:
                self.model.close_session(actor.model, how)

        self.then(gone)
        self.cast.readers = [one for one in self.cast.readers if one.taker.session not in [actor.model for actor in actors]]
        self.cast.actors = [one for one in self.cast.actors if one not in actors]

    @rule()
    def lose_connection(self) -> None:
        """IF-10: the second connection dies; everything is back, at once."""
        lost = self.cast.transports.pop()
        simulate_connection_loss(lost)
        self.connect_one(None)
        self.forget([one for one in self.cast.actors if one.model.connection == 1], "lost")

    # -- pauses and time --------------------------------------------------------------------------------------------------------

    @rule(what=PAUSES, where=WHERE, again=SOMETIMES, elsewhere=st.booleans())
    def pause(self, what: str, where: Destination | None, again: bool, elsewhere: bool) -> None:
        """The pause table; T9, T13, IF-20. `again`: what is paused is paused, what is not is resumed; nothing changes."""
        self.set_pause(what, where, (what in self.flags(where)) is again, elsewhere=elsewhere)

    def set_pause(self, what: str, where: Destination | None, paused: bool, *, elsewhere: bool = False) -> None:
        call = getattr(self.admin, f"{'pause' if paused else 'resume'}_{what}")
        changed = self.do(lambda: call(where), elsewhere=elsewhere)
        flags = self.flags(where)
        expected = self.then(lambda: self.model.pause(flags, self.places_of(where), what, paused=paused))
        assert changed is expected, f"{what} of {where} was {'not ' if changed else ''}{paused} before"

    @rule(
        seconds=st.sampled_from([0.5, 1.0, 2.5, 6.0, 31.0, 31.0]),
        jump=st.sampled_from([0.0, 0.0, 0.0, 3600.0, -3600.0, 3.0]),
        number=NUMBER,
    )
    def time(self, seconds: float, jump: float, number: int) -> None:
        """T3, T8, T16; IF-2, IF-3, IF-33."""
        if number > 4:
            parts = [{"persistent": number > 5, "life": 1.5}, {"persistent": number > 5, "delay": 1.0}]
            self.put(number, DEFINED[number % 3], parts, transacted=False, wait=0.0, elsewhere=False)
        end = self.clock.monotonic() + seconds
        over = [one for one in self.cast.blocked if one.waiter.deadline is not None and one.waiter.deadline <= end]
        if over and (
            len(over) > 1 or any(one.expires_at is not None for place in self.model.everywhere() for one in place.messages)
        ):
            return  # which comes first, its end or the room that something expired leaves, is left open
        self.clock.jump_wall(jump)
        self.clock.advance(seconds)
        for one in over:
            one.result.exception(PATIENCE)
        scanned = self.quiet()
        self.model.time_out()
        if scanned:
            self.model.scan()
        self.model.fall_due()
        self.model.settle_down()
        self.finish_blocked()

    # -- management ---------------------------------------------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(["move", "delete", "drain"]),
        where=st.sampled_from([Queue("q1"), Queue("q2"), TOPIC]),
        colour=st.sampled_from([None, "red"]),
        by_id=st.booleans(),
        ready=st.booleans(),
    )
    def manage(self, what: str, where: Destination, colour: str | None, by_id: bool, ready: bool) -> None:
        """T17, IF-35."""
        places = self.places_of(where)
        everything = [one for place in places for one in place.messages]
        wanted = ids_of(everything[::2]) if by_id or (what == "delete" and colour is None) else None
        selector = None if colour is None else f"colour = '{colour}'"

        def chosen(message: Message) -> bool:
            return what == "drain" or (colour in (None, message.colour) and (wanted is None or message.id in wanted))

        target = self.model.places["q3"]
        calls: dict[str, Callable[[], object]] = {
            "move": lambda: self.admin.move(where, Queue("q3"), selector, message_ids=wanted),
            "delete": lambda: self.admin.delete(where, selector, message_ids=wanted),
            "drain": lambda: self.admin.drain(where),
        }
        if ready:
            self.set_pause("consumption", where, True)
        flags = self.model.server | self.flags(where)
        if "consumption" not in flags or flags & {"production", "insertion"}:
            self.refused(calls[what], IllegalStateError, f"T17: {what} while {flags} is paused")
            self.then(_nothing)
        elif what == "move" and (target.paused("production") or target.paused("insertion")):
            self.refused(calls[what], DestinationPausedError, "T17: a move into what is paused")
            self.then(_nothing)
        else:
            held = sorted((one.id, one.shown_as) for one in everything if one.state in ("send", "receive") and chosen(one))
            picked = {one.id for one in everything if chosen(one)}
            held = sorted(held + [(one, "not selected") for one in set(wanted or ()) - picked if what != "drain"])
            result = calls[what]()
            away = self.then(lambda: self.model.take_away(places, chosen, target if what == "move" else None))
            assert sorted(result.done) == sorted(ids_of(away)), f"IF-35: {result} but {ids_of(away)}"  # type: ignore[attr-defined]
            assert sorted(result.refused) == held, f"IF-35: {result} but {held} cannot"  # type: ignore[attr-defined]

    @rule(number=NUMBER, verb=st.sampled_from([Verb.RETRY, Verb.RELEASE, Verb.ACCEPT, Verb.DEAD_LETTER]), one=st.booleans())
    def recover_stuck(self, number: int, verb: Verb, one: bool) -> None:
        """Administration settles in the owner's place; what the owner does later is stale."""
        if one:
            self.holding(number)
        held = [message for place in self.model.everywhere() for message in place.in_state("receive")]
        if not held:
            self.refused(lambda: self.admin.recover_stuck("nobody", verb.value), InvalidDestinationError, "nobody holds")
            return
        message = held[number % len(held)]
        assert message.owner is not None
        name = message.id if one else message.owner.shown_as
        found = [other for other in held if other.owner is not None and name in (other.id, other.owner.shown_as)]
        takers = list(dict.fromkeys(other.owner for other in found))
        order = [(taker, [other for other in found if other.owner is taker]) for taker in takers]
        assert self.admin.recover_stuck(name, verb.value) == len(found)

        def recovered() -> None:
            for taker, messages in order:
                assert taker is not None
                arrived = taker.arrived()
                self.model.settle(sorted(messages, key=lambda one: arrived.index(one.arrival)), verb, forced=True)  # type: ignore[arg-type]

        self.then(recovered)

    @rule(queue=QUEUES, colour=st.sampled_from([None, "red"]))
    def browse(self, queue: str, colour: str | None) -> None:
        """All that is visible, in order; nothing changes by it (IF-11)."""
        actor = self.actor(1, transacted=False)
        selector = None if colour is None else f"colour = '{colour}'"
        sink = _NoSink()
        real = actor.real.open_receiver(ReceiverSpec(destination=Queue(queue), selector=selector, kind="browse"), sink, None)
        real.request(1000)
        real.drain(None)
        wall = self.clock.wall()
        there = [one for one in self.model.places[queue].visible if one.expires_at is None or one.expires_at > wall]
        expect = [one.id for one in there if colour in (None, one.colour)]
        assert sink.ids == expect, f"browsing {queue} shows {sink.ids}, not {expect}"
        real.close(None)
        self.then(_nothing)

    @rule(queue=QUEUES)
    def reset_statistics(self, queue: str) -> None:
        """IF-15."""
        self.admin.reset_statistics(queue)
        place = self.model.places[queue]
        place.numbers["messages_high"] = len(place.current)
        place.numbers["bytes_high"] = sum(one.size for one in place.current)
        place.numbers["consumers_high"] = len(place.takers)
        self.then(_nothing)

    @rule(queue=QUEUES, settings=SETTINGS, quota=st.sampled_from(["room", "room", "own", None]), messages=MAXIMA)
    def change_settings(self, queue: str, settings: dict[str, object], quota: str | None, messages: int) -> None:
        """What is there keeps what it has; turning to another quota fails who waits (IF-31)."""
        if self.stored and self.cast.blocked:
            return
        place = self.model.places[queue]
        old = self.model.rooms.get(place)
        room: Room | None = None
        if quota == "room":
            room, given = self.room, {**settings, "quota": "room"}
        elif quota == "own" and messages >= 0:
            room = old if old is not None and old is not self.room else Room(messages, -1)
            room.messages_maximum, given = messages, {**settings, "messages_maximum": messages}
        else:
            given = settings
        self.admin.create_queue(queue, **given)  # type: ignore[arg-type]
        self.then(lambda: self.model.define(place, settings_of(**given), room))

    @rule(messages=MAXIMA, size=st.sampled_from([-1, 40]), fifo=st.booleans())
    def change_quota(self, messages: int, size: int, fifo: bool) -> None:
        """IF-31: lowering it denies new sends only; who waits and fits now is admitted."""
        if self.stored and self.cast.blocked:
            return
        self.admin.create_quota("room", messages_maximum=messages, bytes_maximum=size, policy="fifo" if fifo else "preemptive")

        def changed() -> None:
            self.room.messages_maximum, self.room.bytes_maximum, self.room.fifo = messages, size, fifo

        self.then(changed)

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        if self.model.topics:
            self.books()


class StoredSteps(Steps):
    """With a store: the process ends, cleanly or not, and another one begins."""

    stored = True

    @rule()
    def close_and_open(self) -> None:
        """All connections are closed; what is stored is there again."""
        for transport in self.cast.transports:
            transport.close(None)
        self.model_sessions_end()
        self.begin_anew()

    @rule(number=NUMBER, seen=st.booleans(), released=st.booleans())
    def crash(self, number: int, seen: bool, released: bool) -> None:
        """kill -9: the files are as they are (IF-11). Before it something may be handed over, and given back all the same."""
        reader = self.holding(number)
        if reader is not None and seen:
            held = reader.held()
            arrivals = [one.arrival for one in held if one.arrival is not None]
            hand(reader.real, arrivals)
            if released:
                reader.real.settle(arrivals, Outcome(verb=Verb.RELEASE, delay=60.0))
                self.then(lambda: self.model.settle(held, Verb.RELEASE, 60.0))
        self.then(_nothing)
        assert self.folder is not None
        assert self.path is not None
        copied = self.path.with_name(f"crash-{next(self.ids)}.db")
        for file in self.path.parent.glob(f"{self.path.name}*"):
            if not file.name.endswith((".lock", ".sock", "-shm")):
                shutil.copy(file, copied.with_name(file.name.replace(self.path.name, copied.name)))
        for transport in self.cast.transports:
            transport.close(None)
        for one in self.cast.blocked:
            one.result.exception(PATIENCE)
        self.path = copied
        for room in set(self.model.rooms.values()):
            room.waiters.clear()
        self.begin_anew()

    def model_sessions_end(self) -> None:
        for connection in (0, 1):
            for actor in [one for one in self.cast.actors if one.model.connection == connection]:
                self.model.close_session(actor.model)
                self.model.settle_down()
        self.finish_blocked()

    def begin_anew(self) -> None:
        close_broker(self.broker)
        self.cast = Cast()
        self.connect()
        self.model.restart()
        self.then(_nothing)


class _NoSink:
    """Of a receiver that only looks, or is refused."""

    def __init__(self) -> None:
        self.ids: list[str | None] = []

    def delivered(self, batch: list) -> None:  # type: ignore[type-arg]
        self.ids += [one.content.message_id for one in batch]

    def recall(self) -> None:
        pass

    def closed(self, error: Exception | None) -> None:
        raise AssertionError(f"closed by the broker: {error}")


def _nothing() -> None:
    pass
