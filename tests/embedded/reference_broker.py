"""A reference model of the embedded broker: what each call does to plain lists, written down beside the rules.

It knows nothing of how the broker works; `reference_place.py` is one destination of it. What is stored becomes visible when a step
is over (`settle_down`), as the store writes it. Source: rules.md, T1 to T17, the pause table, the settlement table, IF-5 to IF-15,
IF-28, IF-31 to IF-35.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from jmsclient.clock import Clock
from jmsclient.transport.contract import Verb
from jmsclient_embedded.settings import QueueSettings

from .reference_place import UNHELD, Message, Place, Session, Taker

DLQ = "DLQ"


@dataclass(eq=False)
class Room:
    """A quota: how much the places that share it may hold, and who waits, first come first."""

    messages_maximum: int
    bytes_maximum: int
    fifo: bool = True
    members: list[Place] = field(default_factory=list)
    waiters: list[Waiter] = field(default_factory=list)

    def fits_ever(self, message: Message) -> bool:
        return 0 not in (self.messages_maximum, self.bytes_maximum) and not 0 <= self.bytes_maximum < message.size

    def must_wait(self) -> bool:
        return self.fifo and not all(one.held_back for one in self.waiters)

    def fitting(self, messages: Sequence[Message]) -> int:
        """How many of these, from the first on, fit now."""
        there = [one for place in self.members for one in place.messages]
        number, size = len(there), sum(one.size for one in there)
        for index, message in enumerate(messages):
            number, size = number + 1, size + message.size
            if not self.fits_ever(message) or 0 <= self.messages_maximum < number or 0 <= self.bytes_maximum < size:
                return index
        return len(messages)


@dataclass(eq=False)
class Waiter:
    """A send that waits for room."""

    place: Place
    session: Session
    left: list[Message]
    deadline: float | None
    entered: int = 0
    ended: str = ""
    """`entered`, `timeout`, `closed`, `lost` or `repointed`; empty: it waits."""

    @property
    def held_back(self) -> bool:
        """It may not enter whatever room there is: nobody stands behind it."""
        return self.place.paused("insertion")


@dataclass(eq=False)
class TopicModel:
    flags: set[str] = field(default_factory=set)
    subscriptions: list[Place] = field(default_factory=list)
    wants: dict[Place, str | None] = field(default_factory=dict)
    """The colour that a subscription selects."""


class Reference:
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

    # -- ends -------------------------------------------------------------------------------------------------------------

    def commit(self, session: Session) -> bool:
        """T5 and T12, in the order in which they were sent; False: it could only be rolled back."""
        if session.broken:
            self.rollback(session, 0.0, planned=False)
            return False
        for _, messages in session.sent:
            for one in messages:
                one.sequence = next(self.sequence)
        for place, messages in session.sent:
            self._unhide(place, messages)
            place.enter(messages, self.clock.wall())
        accepted = self._by_place(session.accepted)
        for place, messages in accepted.items():
            place.leave(messages, "messages_acknowledged")
        touched = [*(place for place, _ in session.sent), *accepted]
        session.sent, session.accepted = [], []
        for place in dict.fromkeys(touched):
            self.grant(place)
        return True

    def rollback(self, session: Session, delay: float, *, planned: bool = True) -> None:
        """T6 and T14: all are back before the first is granted again."""
        for place, messages in session.sent:
            self._unhide(place, messages)
        accepted = self._by_place(session.accepted)
        session.sent, session.accepted, session.broken = [], [], False
        for place, messages in accepted.items():
            self.give_back(place, messages, counted=True, delay=delay, planned=planned)
        for place in accepted:
            self.grant(place)

    def _by_place(self, messages: Sequence[Message]) -> dict[Place, list[Message]]:
        found: dict[Place, list[Message]] = {}
        for one in messages:
            assert one.owner is not None
            found.setdefault(one.owner.place, []).append(one)
        return found

    def open(self, taker: Taker) -> None:
        place = taker.place
        place.takers.append(taker)
        taker.session.takers.append(taker)
        place.add_to("consumers_total", 1)
        place.numbers["consumers_high"] = max(place.numbers.get("consumers_high", 0), len(place.takers))

    def close(self, taker: Taker) -> None:
        """What it holds passes to its session (IF-9); a subscription that is not durable ends."""
        if taker.open:
            taker.open = False
            taker.demand = 0
            taker.place.takers.remove(taker)
            if taker.place.name not in self.places and not taker.place.stored and not taker.place.takers:
                self.end_subscription(taker.place)

    def end_subscription(self, place: Place) -> None:
        """What nobody holds is gone; the rest when it is settled. Nothing can be seen of it any more."""
        for topic in self.topics.values():
            if place in topic.subscriptions:
                topic.subscriptions.remove(place)
        place.leave(place.in_state(*UNHELD), "messages_deleted")
        place.gone = True

    def close_session(self, session: Session, how: str = "closed") -> None:
        """Handed over ones go back counted, others not, none delayed (IF-9, IF-14); a transaction is rolled back."""
        for room in set(self.rooms.values()):
            for waiter in [one for one in room.waiters if one.session is session]:
                waiter.ended = how
                room.waiters.remove(waiter)
        for taker in session.takers:
            self.close(taker)
        for place, messages in session.sent:
            self._unhide(place, messages)
        session.sent, session.accepted, session.broken = [], [], False
        touched = []
        for taker in session.takers:
            held = [one for one in taker.place.in_state("receive") if one.owner is taker]
            held.sort(key=lambda one: taker.arrived().index(one.arrival))  # type: ignore[arg-type]
            seen, unseen = [one for one in held if one.handed_over], [one for one in held if not one.handed_over]
            self.give_back(taker.place, seen, counted=True, delay=0.0, planned=False)
            self.give_back(taker.place, unseen, counted=False, delay=0.0, planned=False)
            touched.append(taker.place)
        for place in dict.fromkeys(touched):
            self.grant(place)

    # -- pauses and time ----------------------------------------------------------------------------------------------------

    def pause(self, flags: set[str], places: Sequence[Place], what: str, *, paused: bool) -> bool:
        """Set or clear one flag that counts for `places`; False where it was so already."""
        if (what in flags) is paused:
            return False
        before = {place: place.paused("consumption") for place in places}
        (flags.add if paused else flags.remove)(what)
        for place in places:
            if not place.paused("insertion"):
                for one in sorted(place.in_state("paused"), key=lambda one: one.sequence):
                    place.show(one)
            if place.paused("consumption") and not before[place]:
                self._recall(place)
            self.grant(place)
        return True

    def _recall(self, place: Place) -> None:
        """T13: what no application has seen is back in its place, and still asked for (IF-20)."""
        for taker in place.takers:
            unseen = [
                one
                for one in place.in_state("receive")
                if one.owner is taker and not one.handed_over and one not in taker.session.accepted
            ]
            taker.demand += len(unseen)
            self.give_back(place, unseen, counted=False, delay=0.0, planned=False)

    def scan(self) -> None:
        """T16 for all that nobody holds."""
        wall = self.clock.wall()
        for place in self.everywhere():
            gone = [one for one in place.in_state(*UNHELD) if one.expires_at is not None and one.expires_at <= wall]
            if gone:
                self.expire(place, sorted(gone, key=lambda one: one.sequence))
                self.grant(place)

    def fall_due(self) -> None:
        """T8, soonest first."""
        now, wall = self.clock.monotonic(), self.clock.wall()
        for place in self.everywhere():
            delayed = place.in_state("delayed")
            again = [(one.due, one.sequence, one) for one in delayed if one.due is not None and one.due <= now]
            born = [(one.birth, one.sequence, one) for one in delayed if one.due is None and (one.birth or 0.0) <= wall]
            for *_, one in (*sorted(again, key=lambda one: one[:2]), *sorted(born, key=lambda one: one[:2])):
                place.show(one)
            if again or born:
                self.grant(place)

    def time_out(self) -> list[Waiter]:
        """T3."""
        now = self.clock.monotonic()
        over = [
            one for room in set(self.rooms.values()) for one in room.waiters if one.deadline is not None and one.deadline <= now
        ]
        for waiter in over:
            self.rooms[waiter.place].waiters.remove(waiter)
            waiter.ended = "timeout"
        return over

    # -- management -----------------------------------------------------------------------------------------------------------

    def take_away(self, places: Sequence[Place], chosen: Callable[[Message], bool], target: Place | None) -> list[Message]:
        """T17: those that nobody holds are deleted, or moved as they are."""
        everything: list[Message] = []
        for place in places:
            done = [one for one in place.in_state(*UNHELD) if chosen(one)]
            done.sort(key=lambda one: one.sequence)
            copies = []
            for one in done:
                copy = one.copy()
                copy.stored = one.stored
                copies.append(copy)
            place.leave(done, "messages_deleted" if target is None else "messages_moved")
            if target is not None and done:
                self.transfer(target, copies)
            everything += done
        return everything

    # -- the end of a process ---------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """What the store has is there again, in its order: what had been handed over counts one delivery more (IF-11), what was
        only in a window does not; pauses, delays, owners and what was not stored are gone."""
        self.server.clear()
        self.unwritten = []
        exceeded: dict[Place, list[Message]] = {}
        for topic in self.topics.values():
            topic.flags.clear()
            topic.subscriptions = [one for one in topic.subscriptions if one.stored]
        for place in self.everywhere():
            there = [one for one in place.messages if one.stored and one.state != "send"]
            place.messages, place.takers = [], []
            place.flags.clear()
            place.heads.clear()
            place.numbers.clear()
            for one in sorted(there, key=lambda one: one.sequence):
                interrupted = one.handed_over
                one.count += interrupted
                one.owner, one.arrival, one.due, one.barred = None, None, None, []
                if interrupted and 0 <= place.settings.redelivery_limit < one.count:
                    exceeded.setdefault(place, []).append(one)
                else:
                    place.enter([one], self.clock.wall())
        for name in [name for name, place in self.places.items() if name not in DEFINED and not place.numbers]:
            del self.places[name]
        for place, messages in exceeded.items():
            place.messages += messages
            place.add_to("messages_received", len(messages))
            place.add_to("bytes_received", sum(one.size for one in messages))
            self.redirect(place, messages, unwanted="messages_discarded")


DEFINED = ("q1", "q2", "q3")
"""The queues that administration makes; any other is there while it is used."""


def settings_of(**given: object) -> QueueSettings:
    return replace(QueueSettings(), **given)  # type: ignore[arg-type]
