"""A reference model of the embedded broker: what each call does to plain lists, written down beside the rules.

It knows nothing of how the broker works. This half: how transactions, receivers and sessions end, pauses, time, management, and the
end of a process. Source: rules.md, T5 to T17, the pause table, IF-5 to IF-15, IF-28, IF-31 to IF-35.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .reference_delivery import DEFINED, Delivery, settings_of
from .reference_place import UNHELD, Message, Place, Session, Taker
from .reference_room import Room, TopicModel, Waiter

__all__ = ["DEFINED", "Reference", "Room", "TopicModel", "Waiter", "settings_of"]


class Reference(Delivery):
    """See the module."""

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
