"""The steps of the state machine that receive, settle and end what receives (T8 to T15, IF-5, IF-9 to IF-14, IF-18, IF-28)."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import rule

from jmsclient.destination import Queue
from jmsclient.errors import (
    IllegalStateError,
    InvalidDestinationError,
    TransactionRolledBackError,
)
from jmsclient.transport.contract import Outcome, ReceiverSpec, Verb
from jmsclient_embedded.transport import simulate_connection_loss

from .conftest import hand
from .model_cast import Actor, LookingSink, Reader
from .model_machine import TOPIC, nothing
from .model_sending import NUMBER, QUEUES, SOMETIMES, SendingSteps
from .reference_broker import DEFINED, settings_of
from .reference_place import Place


class ReceivingSteps(SendingSteps):
    """See the module."""

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
            self.refused(lambda: actor.real.open_receiver(spec, LookingSink(), None), IllegalStateError, "a subscription in use")
            self.then(nothing)
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
            self.then(nothing)

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
            self.then(nothing)

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
