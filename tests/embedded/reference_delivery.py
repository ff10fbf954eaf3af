"""A reference model of the embedded broker, the first half: how messages enter their places, are granted, settled and redirected.

What is stored becomes visible when a step is over (`settle_down`), as the store writes it. Source: rules.md, T1 to T17, the
settlement table, IF-11 to IF-14, IF-31, IF-33.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from jmsclient.clock import Clock
from jmsclient.transport.contract import Verb
from jmsclient_embedded.settings import QueueSettings

from .reference_place import Message, Place, Session, Taker
from .reference_room import Room, TopicModel, Waiter

DEFINED = ("q1", "q2", "q3")
"""The queues that administration makes; any other is there while it is used."""


def settings_of(**given: object) -> QueueSettings:
    return replace(QueueSettings(), **given)  # type: ignore[arg-type]


class Delivery:
    """See the module."""

    def __init__(self, clock: Clock, *, stored: bool) -> None:
        self.clock = clock
        self.stored = stored
        self.server: set[str] = set()
        self.places: dict[str, Place] = {}
        self.topics: dict[str, TopicModel] = {}
        self.rooms: dict[Place, Room] = {}
        self.unwritten: list[tuple[Place, list[Message]]] = []
        self.sequence = itertools.count(1)

    # -- destinations ---------------------------------------------------------------------------------------------------

    def place(self, name: str, settings: QueueSettings | None = None) -> Place:
        """A queue, made on first use."""
        if name not in self.places:
            self.places[name] = Place(name, settings or QueueSettings(), above=(self.server,))
        return self.places[name]

    def everywhere(self) -> list[Place]:
        return [*self.places.values(), *(one for topic in self.topics.values() for one in topic.subscriptions)]

    def define(self, place: Place, settings: QueueSettings, room: Room | None) -> None:
        """Other settings; with another quota, those that wait for room in the old one fail (IF-31)."""
        place.settings = settings
        old = self.rooms.get(place)
        if old is not room:
            if old is not None:
                del self.rooms[place]
                old.members.remove(place)
                for waiter in [one for one in old.waiters if one.place is place]:
                    waiter.ended = "repointed"
                    old.waiters.remove(waiter)
            if room is not None:
                self.rooms[place] = room
                room.members.append(place)
        self.grant(place)

    # -- granting -------------------------------------------------------------------------------------------------------

    def grant(self, place: Place) -> None:
        """T10 as long as somebody can be served; then nobody who wants something may be left without it."""
        if place.paused("consumption") or place.gone:
            return
        while any(self._take_some(place, taker) for taker in place.takers):
            pass
        for taker in place.takers:
            waiting = [one.id for one in place.visible if taker.may_have(one)]
            assert not (taker.demand and waiting), (
                f"J-13 {place.name}: {taker.name} wants {taker.demand} and may have {waiting} in order; next came {taker.next_id()}"
            )

    def _take_some(self, place: Place, taker: Taker) -> bool:
        """As many as came to it one after the other; whether there was one."""
        before = taker.seen
        expired = place.numbers.copy()
        while taker.demand and self._take_one(place, taker):
            pass
        if taker.pre_settled:
            place.leave([one for one in place.in_state("receive") if one.owner is taker], "messages_acknowledged")
        return taker.seen > before or place.numbers != expired

    def _take_one(self, place: Place, taker: Taker) -> bool:
        for message in place.visible:
            over = message.expires_at is not None and message.expires_at <= self.clock.wall()
            if over and (taker.colour is None or taker.may_have(message)):
                self.expire(place, [message])
                return True
            if taker.may_have(message):
                return taker.next_id() == message.id and self._taken(taker, message)
        return False

    def _taken(self, taker: Taker, message: Message) -> bool:
        arrival = taker.arrived()[taker.seen]
        assert arrival.delivery_count == message.count + 1, f"IF-11 {message.id}: {arrival} after {message.count} hand-overs"
        taker.seen += 1
        taker.demand -= 1
        message.state, message.owner, message.arrival = "receive", taker, arrival
        return True

    # -- sending --------------------------------------------------------------------------------------------------------

    def verdict(self, name: str, messages: Sequence[Message], *, may_wait: bool) -> str:
        """What becomes of a send: `paused`, `never` (it cannot fit), `waits`, `full`, `part` or `enters`."""
        place = self.place(name)
        if place.paused("production") or place.paused("insertion"):
            return "paused"
        room = self.rooms.get(place)
        if room is None:
            return "enters"
        if not all(room.fits_ever(one) for one in messages):
            return "never"
        fitting = 0 if room.must_wait() else room.fitting(messages)
        if fitting == len(messages):
            return "enters"
        return "waits" if may_wait else "part" if fitting else "full"

    def send(self, name: str, messages: Sequence[Message], session: Session, deadline: float | None, *, may_wait: bool) -> Waiter:
        """A send that is not refused; what it returns says how many entered."""
        place = self.place(name)
        room = self.rooms.get(place)
        waiter = Waiter(place, session, list(messages), deadline)
        if room is None:
            self._enter_some(waiter, len(messages))
        elif not room.must_wait():
            self._enter_some(waiter, room.fitting(messages))
        if not waiter.left:
            waiter.ended = "entered"
        elif may_wait and room is not None:
            room.waiters.append(waiter)
        return waiter

    def _enter_some(self, waiter: Waiter, number: int) -> None:
        if number:
            some, waiter.left = waiter.left[:number], waiter.left[number:]
            waiter.entered += number
            self.put(waiter.place, some, waiter.session)

    def publish(self, name: str, messages: Sequence[Message], session: Session) -> None:
        """A send to a topic that is not paused: a copy for each subscription that selects it."""
        topic = self.topics[name]
        for place in topic.subscriptions:
            wanted = topic.wants[place]
            copies = [one.copy() for one in messages if wanted in (None, one.colour)]
            if copies:
                self.put(place, copies, session)

    def put(self, place: Place, messages: list[Message], session: Session) -> None:
        for one in messages:
            one.sequence = next(self.sequence)
            one.stored = self.stored and place.stored and one.persistent
        if session.transacted:
            self._hide(place, messages)
            for one in messages:
                one.in_transaction = True
            session.sent.append((place, messages))
        elif any(one.stored for one in messages):
            self._hide(place, messages)
            self.unwritten.append((place, messages))
        else:
            place.enter(messages, self.clock.wall())
            self.grant(place)

    def _hide(self, place: Place, messages: list[Message]) -> None:
        place.messages += messages
        for one in messages:
            one.state = "send"

    def _unhide(self, place: Place, messages: list[Message]) -> None:
        for one in messages:
            place.messages.remove(one)
            one.state = "gone"

    def settle_down(self) -> None:
        """What waits for the store is written; then whoever waits for room is served, as long as somebody can be."""
        while True:
            parts, self.unwritten = self.unwritten, []
            for place, messages in parts:
                self._unhide(place, messages)
                place.enter(messages, self.clock.wall())
            for place in dict.fromkeys(place for place, _ in parts):
                self.grant(place)
            served = [self._serve(room) for room in set(self.rooms.values())]
            if not (parts or any(served)):
                return

    def _serve(self, room: Room) -> bool:
        before = sum(one.entered for one in room.waiters)
        after = 0
        for waiter in list(room.waiters):
            if not waiter.held_back:
                self._enter_some(waiter, room.fitting(waiter.left))
            after += waiter.entered
            if not waiter.left:
                waiter.ended = "entered"
                room.waiters.remove(waiter)
            elif room.fifo and not waiter.held_back:
                break
        return after > before

    # -- settling ---------------------------------------------------------------------------------------------------------

    def settle(self, messages: list[Message], verb: Verb, delay: float = 0.0, *, forced: bool = False) -> None:
        """One outcome for messages of one place that somebody holds. `forced`: by administration, in its owner's place."""
        if not messages:
            return
        owner = messages[0].owner
        assert owner is not None
        place, session = owner.place, owner.session
        if forced:
            for one in messages:
                assert one.owner is not None
                theirs = one.owner.session
                if theirs.transacted and (one in theirs.accepted or one.handed_over):
                    theirs.broken |= verb is not Verb.ACCEPT
                if one in theirs.accepted:
                    theirs.accepted.remove(one)
        if verb is Verb.ACCEPT and session.transacted and not forced:
            session.accepted += messages
        elif verb is Verb.ACCEPT:
            place.leave(messages, "messages_acknowledged")
            self.grant(place)
        elif verb is Verb.DEAD_LETTER:
            self.redirect(place, messages, unwanted="messages_discarded")
            self.grant(place)
        else:
            counted = verb is not Verb.RELEASE
            self.give_back(place, messages, counted=counted, delay=delay, planned=counted, barred=verb is Verb.RETRY_ELSEWHERE)
            self.grant(place)

    def give_back(
        self, place: Place, messages: Sequence[Message], *, counted: bool, delay: float, planned: bool, barred: bool = False
    ) -> None:
        """T13, T14, T15, without granting it again."""
        exceeded = []
        for one in messages:
            if barred and one.owner is not None:
                one.barred.append(one.owner)
            one.owner, one.arrival = None, None
            one.count += counted
            if counted and 0 <= place.settings.redelivery_limit < one.count:
                exceeded.append(one)
                continue
            wait = self._delay(place.settings, one.count, delay) if planned else delay
            if wait > 0:
                one.state, one.due = "delayed", self.clock.monotonic() + wait
            else:
                place.show(one)
        if exceeded:
            self.redirect(place, exceeded, unwanted="messages_discarded")

    def _delay(self, settings: QueueSettings, deliveries: int, wanted: float) -> float:
        base = settings.redelivery_delay if settings.redelivery_delay >= 0 else wanted
        longest = settings.redelivery_delay_maximum
        grown = base * settings.redelivery_multiplier ** max(0, deliveries - 1)
        return grown if longest is None else min(grown, longest)

    def redirect(self, place: Place, messages: Sequence[Message], *, unwanted: str) -> None:
        """To the error destination, without expiry and birth; where there is none they are `unwanted`."""
        target = place.settings.error_destination
        copies = []
        for one in messages:
            copy = one.copy()
            copy.expires_at = copy.birth = None
            copy.stored = one.stored
            copies.append(copy)
        place.leave(messages, unwanted if target is None else "messages_moved")
        if target is not None:
            self.transfer(self.place(target), copies)

    def transfer(self, target: Place, copies: Sequence[Message]) -> None:
        for copy in copies:
            copy.sequence = next(self.sequence)
            if copy.stored:
                self._hide(target, [copy])
                self.unwritten.append((target, [copy]))
            else:
                target.enter([copy], self.clock.wall())
        self.grant(target)

    def expire(self, place: Place, messages: Sequence[Message]) -> None:
        """T16."""
        if place.settings.expiration_policy == "redirect":
            self.redirect(place, messages, unwanted="messages_expired")
        else:
            place.leave(messages, "messages_expired")
