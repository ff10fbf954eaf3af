"""A receiving link as the contract sees it: demand down, batches of arrivals up, outcomes down again.

Owns demand, drain (IF-18), what arrives (IF-11, IF-19) and settlement with explicit outcomes (IF-22). What is marked so runs on
the I/O thread. `_push` and `accept` are the hot path. Rules IF-5, IF-11, IF-16 to IF-20, IF-25; RA-5, RA-14; C12.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jmsclient.destination import Topic
from jmsclient.errors import ConnectionLostError, MessageFormatError, TransactionRolledBackError, UnsupportedFeatureError
from jmsclient.events import emit
from jmsclient.transport.contract import Arrival, Outcome, ReceiverSpec, Sink, Verb
from jmsclient_amqp.content import AmqpContent
from jmsclient_amqp.draining import Phase
from jmsclient_amqp.engine.library import MODIFIED, RELEASED, TRANSACTIONAL
from jmsclient_amqp.engine.links import Disposition
from jmsclient_amqp.header import derived_count, exact_count, expiry, no_count
from jmsclient_amqp.loop import Answer
from jmsclient_amqp.outcomes import ACCEPT, RELEASE, disposition_of, refused
from jmsclient_amqp.receiving_link import LinkLife

if TYPE_CHECKING:
    from jmsclient_amqp.session import AmqpSession

_BROWSER_LOOKS = 3
"""How often a browser that a drain brought nothing asks again: now and then a broker answers the drain before it has looked."""


class AmqpReceiver(LinkLife):
    """Made by `AmqpSession.open_receiver`. Thread-safe."""

    def __init__(self, session: AmqpSession, spec: ReceiverSpec, sink: Sink) -> None:
        super().__init__(session, spec, sink)
        product = session.product
        self._count_of = derived_count if product.first_acquirer else exact_count if product.counts else no_count
        self._topic = isinstance(spec.destination, Topic)
        self._transaction = session.transaction
        self._accepted: deque[Arrival] = deque()
        self._round = 1  # how often the thread has come to look, and one
        self._told = 0  # the last round of which it was told that some are there
        self._stale = 0
        self._warned = False
        self._came = 0  # these three belong to the I/O thread: messages since the last request or drain,
        self._asked = 0  # demand when the running drain began,
        self._looks = 0  # how often it may ask again

    # -- demand -----------------------------------------------------------------------------------------------------

    def request(self, count: int) -> None:
        self._tell(self._request, count)

    def _request(self, count: int, _: Any) -> None:
        if self._closed:
            return
        self._came = 0
        if self._phase is Phase.OPEN:
            self.link.flow(count)
        elif self._phase in (Phase.RECYCLING, Phase.REATTACHING):
            self._owed += count

    def withdraw(self) -> int:
        """On the I/O thread: the sink is called there. A consumer's drain takes back all by itself; a browser's is its page."""
        if self._phase is not Phase.OPEN or (self._drains and self.spec.kind != "browse") or not self._loop.here:
            return 0
        return self.link.withdraw()

    def drain(self, deadline: float | None) -> None:
        if not self._drainable:
            raise UnsupportedFeatureError(f"{self._transport.peer.product} cannot drain a receiver")
        self._session.check_open()
        self._loop.ask(self._drain, deadline, f"a drain of {self._what}")

    def _drain(self, answer: Answer[None], _: Any) -> None:
        if self._gone is not None:
            answer.fail(ConnectionLostError(str(self._gone)))
            return
        if self._phase is not Phase.OPEN or self.link.drained:
            self._owed = 0
            answer.give(None)
            return
        first = not self._drains
        self._drains.append(self._transport.awaited(answer))
        self._looks = _BROWSER_LOOKS if self.spec.kind == "browse" else 0
        self._asked = self.link.credit
        if first:
            self._begin_drain()
        else:
            self._press_drain()

    def _drained(self) -> None:
        """Of a browser that got nothing, ask again before it is believed: a broker may answer before it has looked."""
        if self._looks and not self._came:
            self._looks -= 1
            self.link.flow(self._asked)
            self._begin_drain()
            return
        self._came = 0
        drains, self._drains = self._drains, []
        self._give(drains)

    # -- what arrives -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """New bytes have been processed (I/O thread)."""
        link = self.link
        if self._attaching is not None:
            self._look_at_attach(self._attaching)
            return
        if self._phase is Phase.REATTACHING:
            self._look_at_reattach()
            return
        if self._own is not None and self._own.remote_closed:
            self._closed_by_peer_or_us()
            return
        taken = link.take()
        link.balance()
        if taken.messages:
            self._came += len(taken.messages)
            self._push(taken.messages)
        if taken.aborted and not self._closed:
            link.flow(taken.aborted)  # its credit is to be used by another (C12)
        if self._drains and link.drained:
            self._drained()
        if self._phase is Phase.STOPPING and link.drained:
            self._stopped()
        if link.remote_closed:
            self._closed_by_peer_or_us()

    def _push(self, messages: list[tuple[int, bytes, bool]]) -> None:
        batch: list[Arrival] = []
        add, held, find, now = batch.append, self._held, self._transport.headers.find, self._transport.clock.wall()
        naming, topic, count_of = self._product.naming, self._topic, self._count_of
        flagged, new = self._product.first_acquirer, Arrival.__new__
        for number, raw, settled in messages:
            try:
                sections, header = find(raw)
                expires_at = expiry(raw, sections, header, now)
            except MessageFormatError as error:
                self._refuse(number, settled, error)
                continue
            arrival = new(Arrival)  # plain stores: half the time of the call with its keywords
            arrival.receiver = self
            arrival.tag = number
            arrival.content = AmqpContent(raw, sections, header, naming, topic)
            arrival.delivery_count = count_of(header)
            arrival.persistent = header.durable
            arrival.size = sections.size
            arrival.count_derived = flagged
            arrival.settled = settled
            arrival.expires_at = expires_at
            arrival.locked_until = None
            arrival.handed_over = False
            if not settled:
                held[number] = arrival
            add(arrival)
        if self._closed:
            self._settle([arrival for arrival in batch if not arrival.settled], RELEASE)
        elif batch:
            if self._takes_all and not self._warned:
                self._look_for_persistent(batch)
            self._sink.delivered(batch)

    def _look_for_persistent(self, batch: list[Arrival]) -> None:
        """The destination is declared non-persistent, and is not: the user is to hear of it, once."""
        if any(arrival.persistent for arrival in batch):
            self._warned = True
            address = self.spec.destination.address
            text = (
                f"{address} is declared persistence=NON, and a persistent message came: read ahead, those too are lost by a crash"
            )
            emit("amqp", "persistent_taken", text, level=logging.WARNING, destination=address)

    def _refuse(self, number: int, settled: bool, error: MessageFormatError) -> None:
        """It is no message: settled, so that nobody here stumbles over it again, and its credit is granted anew (IF-19)."""
        emit("amqp", "undecodable", f"{self._what} got what is no message: {error}", level=logging.WARNING)
        if not settled:
            self.link.settle([number], refused(modified=self._product.modified))
        if not self._closed:
            self.link.flow(1)

    # -- settling ---------------------------------------------------------------------------------------------------

    def settle(self, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        fresh = [arrival for arrival in arrivals if not arrival.settled]
        if not fresh:
            return
        # Handed over before they are marked: an exception in between leads to a second settlement, which does nothing.
        if outcome.verb is Verb.ACCEPT:
            self._tell(self._settle, fresh, ACCEPT)
        else:
            self._tell(self._settle, fresh, disposition_of(outcome, modified=self._product.modified))
        if self._loop.error is not None:
            self._count_stale(len(fresh))
        for arrival in fresh:
            arrival.settled = True

    def accept(self, arrival: Arrival) -> None:
        """One append; the I/O thread is told once for all that it finds when it comes round."""
        if not arrival.settled:
            self._accepted.append(arrival)
            number = self._round
            if self._told != number:
                self._tell(self._accept)
                if self._loop.error is not None:
                    self._count_stale(1)
                self._told = number  # last, and of that round only: struck or late, it keeps nobody from telling again
            arrival.settled = True

    def _accept(self, *_: Any) -> None:
        self._round += 1  # first: what is appended from here on is told anew, what was before is found
        accepted = self._accepted
        arrivals = [accepted.popleft() for _ in range(len(accepted))]
        if arrivals:
            self._settle(arrivals, ACCEPT)

    def _settle(self, arrivals: list[Arrival], disposition: Disposition) -> None:
        transaction = self._transaction
        if transaction is None or disposition is not ACCEPT:
            self._apply(arrivals, disposition)
        else:
            transaction.when_declared(lambda: self._apply(arrivals, transaction.accept))

    def _apply(self, arrivals: list[Arrival], disposition: Disposition) -> None:
        held = self._held
        numbers = [arrival.tag for arrival in arrivals if held.pop(arrival.tag, None) is not None]
        if self._keeps_returned and disposition.code == RELEASED and self._leaves(held):
            self.link.leave(numbers)  # the link is closed below, and gives back uncounted what is unsettled; this would count
        elif numbers:
            self.link.settle(numbers, disposition)
        if len(numbers) < len(arrivals):
            self._count_stale(len(arrivals) - len(numbers))
            if disposition.code == TRANSACTIONAL and self._transaction is not None:
                text = f"a message of {self._what} came back to the broker before it was accepted in the transaction"
                self._transaction.doomed = TransactionRolledBackError(text)
        if self._keeps_returned and disposition.code in (RELEASED, MODIFIED):
            self._returned = True
        if held:
            return
        if self._phase is Phase.LINGERING:
            self._detach()
        elif self._returned and self._phase is Phase.OPEN and not self.link.credit:
            self._recycle()

    def _leaves(self, held: dict[int, Arrival]) -> bool:
        """The link is about to go, and no message of it is wanted."""
        return self._gone is not None or (not held and (self._closed or not self.link.credit))

    def _count_stale(self, count: int) -> None:
        """Settled too late: the broker has it back already, or somebody settled it twice."""
        first, self._stale = self._stale == 0, self._stale + count
        if first:
            text = f"{count} settlements of {self._what} came too late: the broker has those messages back"
            emit("amqp", "stale_settlement", text, level=logging.WARNING, count=count)
