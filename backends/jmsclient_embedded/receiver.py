"""Owns the receivers of the embedded backend as the contract sees them.

Must not know of states, storage or turns. Source: transport/contract.py; rules IF-5, IF-8, IF-11, IF-18. Thread-safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jmsclient.destination import Queue, Topic
from jmsclient.errors import IllegalStateError, InvalidDestinationError, UnsupportedFeatureError
from jmsclient.selector import compile_selector
from jmsclient.transport.contract import ACCEPT, Arrival, Outcome, Receiver, ReceiverSpec, Sink
from jmsclient_embedded.catalogue import TEMPORARY
from jmsclient_embedded.default_outcome import default_outcome
from jmsclient_embedded.entry import Delivery, Entry, stored
from jmsclient_embedded.line import Line
from jmsclient_embedded.outlet import Outlet
from jmsclient_embedded.steps import Answer
from jmsclient_embedded.topics import DURABLE

if TYPE_CHECKING:
    from jmsclient_embedded.session import EmbeddedSession


class EmbeddedReceiver(Receiver):
    """A receiver. `default_read_ahead` is the DEFREADA of its destination (RA-1), `error_destination` where that destination's
    failed messages go (TR-45), `redelivery_delay` how many seconds they wait at least before they come again (TR-54)."""

    def __init__(self, session: EmbeddedSession, spec: ReceiverSpec, sink: Sink, deadline: float | None) -> None:
        self._session = session
        self._broker = broker = session.broker
        transacted = session.group.transaction is not None
        if spec.pre_settled and transacted:
            raise UnsupportedFeatureError(
                "at most once: not in a transacted session, where each message belongs to the transaction"
            )
        selector = compile_selector(spec.selector)
        is_topic = isinstance(spec.destination, Topic)
        settled = default_outcome(spec.default_outcome) if spec.pre_settled else None
        if is_topic is (spec.kind in ("queue", "browse")):
            raise InvalidDestinationError(
                f"{spec.destination.address}: a receiver of kind {spec.kind!r} needs the other kind of place"
            )

        def attach() -> Outlet:
            return broker.closing.open_outlet(
                self._line(spec),
                session.group,
                self,
                sink,
                pre_settled=settled,
                selector=None if is_topic else selector,
                browses=spec.kind == "browse",
            )

        self.outlet = broker.steps.ask(attach, deadline)
        self._gathers = not transacted and spec.kind != "browse"
        self._gathered = broker.settling.gathered
        self._journal = None if broker.store is None else broker.store.journal
        settings = self.outlet.line.settings
        self.default_read_ahead = settings.default_read_ahead
        self.redelivery_delay = max(0.0, settings.redelivery_delay)
        self.error_destination = None if settings.error_destination is None else Queue(settings.error_destination)
        if spec.kind in DURABLE:
            broker.flush(deadline)

    def _line(self, spec: ReceiverSpec) -> Line:
        broker, transport = self._broker, self._session.transport
        if self._session.group.closing:
            raise IllegalStateError("this session is closed")
        broker.catalogue.check_receiver(spec.destination, transport)
        if isinstance(spec.destination, Topic):
            if spec.kind in DURABLE and spec.destination.name.startswith(TEMPORARY):
                raise InvalidDestinationError(f"{spec.destination.address}: a temporary topic has no durable subscriptions")
            return broker.topics.subscribe(spec, transport.client_id, transport)
        return broker.granting.line(spec.destination.name)

    def request(self, count: int) -> None:
        self._broker.request(self.outlet, count)

    def accept(self, arrival: Arrival) -> None:
        """Hot path: an append, where nothing is written and nobody waits for what it sets free; the next step carries it out."""
        if (
            not self._gathers
            or not self.outlet.line.lax
            or arrival.settled
            or (type(arrival) is not Delivery and arrival.tag.stored)
        ):
            self.settle((arrival,), ACCEPT)
            return
        self._gathered.append(arrival)  # handed over before it is marked, as in `settle`
        arrival.settled = True

    def settle(self, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        fresh = [arrival for arrival in arrivals if not arrival.settled]
        if not fresh:
            return
        if outcome is ACCEPT and self._may_gather(fresh):
            self._gathered.extend(fresh)
            for arrival in fresh:
                arrival.settled = True
            return
        # Handed over before they are marked: an exception in between leads to a second settlement, which does nothing.
        self._broker.settle(self.outlet, fresh, outcome)
        for arrival in fresh:
            arrival.settled = True

    def _may_gather(self, arrivals: Sequence[Arrival]) -> bool:
        if not self._gathers or not self.outlet.line.lax:
            return False
        return self._broker.store is None or not any(map(stored, arrivals))

    def handing_over(self, arrivals: Sequence[Arrival]) -> None:
        journal = self._journal
        if journal is None:
            return
        if len(arrivals) == 1:  # a receive: once a message, so without lists
            if stored(arrivals[0]) and not arrivals[0].settled:
                entry: Entry = arrivals[0].tag
                entry.marked = True
                journal.mark_one(entry.sequence, entry.count + 1)
            return
        entries: list[Entry] = [arrival.tag for arrival in arrivals if not arrival.settled and stored(arrival)]
        if entries:
            for entry in entries:
                entry.marked = True
            journal.mark([(entry.sequence, entry.count + 1) for entry in entries])

    def drain(self, deadline: float | None) -> None:
        broker = self._broker
        self._session.check_open()

        def drain(answer: Answer[None]) -> None:
            broker.granting.stop_demand(self.outlet, answer.give)

        broker.ask_later(drain, deadline, "the end of a drain")

    def close(self, deadline: float | None) -> None:
        broker = self._broker
        if self._session.gone:
            return

        def close(answer: Answer[None]) -> None:
            broker.closing.close_outlet(self.outlet, answer.give)

        broker.ask_later(close, deadline, "the end of a receiver")
