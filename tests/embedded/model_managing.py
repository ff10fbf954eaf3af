"""The steps of the state machine that an operator takes, and those of the clock.

Source: T3, T8, T9, T16, T17, the pause table, IF-2, IF-3, IF-15, IF-20, IF-31 to IF-35.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import rule

from jmsclient.destination import Destination, Queue
from jmsclient.errors import (
    DestinationPausedError,
    IllegalStateError,
    InvalidDestinationError,
)
from jmsclient.transport.contract import ReceiverSpec, Verb

from .model_cast import LookingSink
from .model_machine import PATIENCE, TOPIC, ids_of, nothing
from .model_receiving import ReceivingSteps
from .model_sending import MAXIMA, NUMBER, PAUSES, QUEUES, SETTINGS, SOMETIMES, WHERE
from .reference_broker import DEFINED, Room, settings_of
from .reference_place import Message


class ManagingSteps(ReceivingSteps):
    """See the module."""

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
            self.then(nothing)
        elif what == "move" and (target.paused("production") or target.paused("insertion")):
            self.refused(calls[what], DestinationPausedError, "T17: a move into what is paused")
            self.then(nothing)
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
        sink = LookingSink()
        real = actor.real.open_receiver(ReceiverSpec(destination=Queue(queue), selector=selector, kind="browse"), sink, None)
        real.request(1000)
        real.drain(None)
        wall = self.clock.wall()
        there = [one for one in self.model.places[queue].visible if one.expires_at is None or one.expires_at > wall]
        expect = [one.id for one in there if colour in (None, one.colour)]
        assert sink.ids == expect, f"browsing {queue} shows {sink.ids}, not {expect}"
        real.close(None)
        self.then(nothing)

    @rule(queue=QUEUES)
    def reset_statistics(self, queue: str) -> None:
        """IF-15."""
        self.admin.reset_statistics(queue)
        place = self.model.places[queue]
        place.numbers["messages_high"] = len(place.current)
        place.numbers["bytes_high"] = sum(one.size for one in place.current)
        place.numbers["consumers_high"] = len(place.takers)
        self.then(nothing)

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
