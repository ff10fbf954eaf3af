"""The life of one receiving link: attached, open, taken away for a moment, closing, gone.

Owns attach and what must be checked then (IF-26), the order of closing (IF-27), and what some brokers need besides: a session
of its own, or a link that is detached so that others get what it gave back. What is marked so runs on the I/O thread. Must not
know messages. Rules IF-9, IF-18, IF-26, IF-27.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from jmsclient.errors import (
    ConnectionLostError,
    IllegalStateError,
    InvalidSelectorError,
    JmsClientError,
    RequestTimeoutError,
    UnsupportedFeatureError,
)
from jmsclient.transport.contract import RELEASE as RELEASED
from jmsclient.transport.contract import RETRY, Arrival, ReceiverSpec, Sink
from jmsclient_amqp.draining import Draining, Phase
from jmsclient_amqp.engine.links import Disposition, SessionHandle
from jmsclient_amqp.loop import Answer
from jmsclient_amqp.outcomes import disposition_of
from jmsclient_amqp.refusals import link_lost, link_refused, of_another_kind
from jmsclient_amqp.termini import SELECTOR, local, source_of, wanted_filters

if TYPE_CHECKING:
    from jmsclient_amqp.session import AmqpSession


class LinkLife(Draining):
    """What `AmqpReceiver` is built on. Names with one underscore are shared by the two."""

    def __init__(self, session: AmqpSession, spec: ReceiverSpec, sink: Sink) -> None:
        super().__init__(session, spec, sink)
        self._product = session.product
        self._names = session.transport.link_names
        self._address = session.product.naming.address(spec.destination)
        self._link_name: str | None = None
        self._durable = spec.kind in ("durable", "shared_durable")
        self._keeps_returned = session.product.keeps_returned
        self._own: SessionHandle | None = None  # where a link needs a session of its own
        self._returned = False
        self._owed = 0  # demand that came while the link was away
        self._drainable = session.transport.capabilities.drain != "no"
        self._takes_all = spec.takes_all and self._product.settles_what_arrives  # else a close would lose what is on its way
        self._held: dict[int, Arrival] = {}  # what is unsettled, by number; this and the rest belong to the I/O thread
        self._attaching: Answer[None] | None = None
        self._closes: list[Answer[None]] = []

    # -- attaching --------------------------------------------------------------------------------------------------

    def open(self, deadline: float | None) -> None:
        """Attach and wait for the peer. Raises what the contract says."""
        try:
            self._loop.ask(self._attach, deadline, f"the attach of {self._what}")
        except RequestTimeoutError:
            self._tell(self._give_up)
            raise

    def _attach(self, answer: Answer[None], _: Any) -> None:
        spec = self.spec
        try:
            name = self._link_name = self._transport.link_name("receiver") if spec.name is None else self._names.take(spec)
        except IllegalStateError as error:
            answer.fail(error)
            self._phase = Phase.GONE
            return
        self._attaching = self._transport.awaited(answer)
        self._make_link(name)
        self._session.attached(self)

    def _make_link(self, name: str, first_number: int = 0) -> None:
        spec = self.spec
        source = source_of(
            spec,
            self._address,
            modified=self._product.modified,
            global_share=not self._transport.has_client_id,
            durable_queue=self._product.durable_queues,
        )
        pre_settled = spec.pre_settled or spec.kind == "browse" or self._takes_all
        handle = self._session.handle
        if self._product.session_per_receiver:
            handle = self._own = self._transport.engine.session()
        self.link = handle.receiver(name, source, local(name), pre_settled=pre_settled, first_number=first_number)

    def _look_at_attach(self, attaching: Answer[None]) -> None:
        link = self.link
        if self._own is not None and self._own.remote_closed:  # one broker refuses a link by ending its session
            condition = self._own.remote_condition
            self._own.close()
            self._free()
            other = self._product.naming.existing(self.spec.destination) if of_another_kind(condition) else None
            if other is not None and other != self._address and self._link_name is not None:
                self._address = other
                self._make_link(self._link_name)
            else:
                self._end(link_refused(self._what, condition))
            return
        if link.remote_closed:
            error = link_refused(self._what, link.remote_condition, selector=self.spec.selector is not None)
            self._attaching = None
            self._end(error)
            link.close()
            self._free()
            self._loop.after_writing(lambda: self._refused(attaching, error))
        elif link.remote_open and not link.refused:
            missing = wanted_filters(self.spec) - link.remote_filters
            if missing:
                link.close()
                self._end(_not_applied(missing, self._what))
                return
            self._attaching = None
            self._phase = Phase.OPEN
            self._transport.answered(attaching)
            attaching.give(None)

    def _refused(self, attaching: Answer[None], error: JmsClientError) -> None:
        """The detach is out: a link of the same name may follow. Until then, the end of the connection would answer."""
        self._transport.answered(attaching)
        attaching.fail(error)

    def _give_up(self, *_: Any) -> None:
        if self._phase is Phase.ATTACHING:
            self.link.close()
            self._end(RequestTimeoutError(f"the attach of {self._what} was given up"))

    # -- what was given back to a broker that keeps it for the same link ----------------------------------------------

    def _recycle(self) -> None:
        """Detach for a moment: then others get it, and this link too when it asks again."""
        self._returned = False
        self._phase = Phase.RECYCLING
        if self._durable:
            self._transport.expect_detach(self.link.address, self._reattach)
            self.link.detach()
        else:
            self.link.close()

    def _reattach(self) -> None:
        number = self.link.next_number
        self.link.free()
        if self._closed:
            self._end(link_lost(self._what, None))
            return
        name = self._link_name if self.spec.name is not None else None
        self._make_link(name or self._transport.link_name("receiver"), number)
        self._phase = Phase.REATTACHING

    def _look_at_reattach(self) -> None:
        if self.link.remote_closed:
            self._closed_by_peer_or_us()
        elif self.link.remote_open and not self.link.refused:
            self._phase = Phase.OPEN
            owed, self._owed = self._owed, 0
            if self._closes:
                self._stop()
            elif owed:
                self.link.flow(owed)

    # -- closing ----------------------------------------------------------------------------------------------------

    def close(self, deadline: float | None) -> None:
        self._closed = True
        answer: Answer[None] = Answer(self._transport.clock)
        if self._loop.here:
            self._tell(self._close, answer)
            return
        if self._transport.dead:
            return
        try:
            self._loop.ask(self._close, deadline, f"the close of {self._what}")
        except RequestTimeoutError:
            self._tell(self._detach_now)
            raise
        except ConnectionLostError:
            pass  # it has ended while we asked: nothing can be delivered any more

    def _close(self, answer: Answer[None], _: Any) -> None:
        """Stop credit, drain, then detach, or stay for what the session holds (IF-27)."""
        if self._phase in (Phase.GONE, Phase.LINGERING):
            answer.give(None)
            return
        self._closes.append(self._transport.awaited(answer))
        if self._phase is Phase.OPEN:
            self._stop()

    def _stop(self) -> None:
        self._phase = Phase.STOPPING
        if not self._drainable or self.link.drained:
            self._stopped()
        else:
            self._begin_drain()

    def _stopped(self) -> None:
        if self._held:
            self._phase = Phase.LINGERING
            self._give_closes()
        else:
            self._detach()

    def _detach(self) -> None:
        self._phase = Phase.DETACHING
        if self._durable:  # to close it would delete the subscription
            self._transport.expect_detach(self.link.address, self._detached)
            self.link.detach()
        elif self._own is not None:
            own = self._own
            own.close()
            if self._product.end_patience is not None:
                self._loop.after(self._product.end_patience, lambda: self._end_unanswered(own))
        else:
            self.link.close()

    def _end_unanswered(self, own: SessionHandle) -> None:
        if self._own is own:
            self._closed_by_peer_or_us()

    def _free(self) -> None:
        if self._own is not None:
            if self._own.remote_closed:
                self._own.free()
            self._own = None
        else:
            self.link.free()

    def _detached(self) -> None:
        self.link.forget()
        self._free()
        self._end(link_lost(self._what, None))

    def _closed_by_peer_or_us(self) -> None:
        if self._phase is Phase.RECYCLING:
            self._reattach()
            return
        asked = self._phase is Phase.DETACHING
        condition = self._own.remote_condition if self._own is not None else None
        error = link_lost(self._what, condition or self.link.remote_condition)
        if not asked:
            self.link.close()
            if self._own is not None:
                self._own.close()
        self._held.clear()
        self.link.forget()
        self._free()
        self._end(error)
        if not asked and not self._closed:
            self._sink.closed(error)

    def stop_demand(self) -> None:
        """The session is about to end: nothing is delivered any more, and credit is taken back."""
        self._closed = True
        if self._phase is Phase.OPEN:
            self._phase = Phase.STOPPING
            if self._drainable and not self.link.drained:
                self._begin_drain()

    def open_on(self, address: str) -> bool:
        """It receives from the destination of this URI."""
        return self._phase is not Phase.GONE and self.spec.destination.address == address

    @property
    def quiet(self) -> bool:
        """Nothing more will arrive."""
        return self._phase is not Phase.STOPPING or not self._drainable or self.link.drained

    def give_back(self) -> None:
        """At the end of its session: settle all that is unsettled."""
        for arrival in self._return_held():
            arrival.settled = True
        if self._own is not None and self._phase not in (Phase.DETACHING, Phase.GONE):
            self._detach()

    def _return_held(self) -> list[Arrival]:
        """Settle all that is unsettled: what was handed over counts, the rest does not (T13, T14). Which it was."""
        held = list(self._held.values())
        modified = self._product.modified
        for outcome, seen in ((RETRY, True), (RELEASED, False)):
            arrivals = [arrival for arrival in held if arrival.handed_over is seen]
            if arrivals:
                self._settle(arrivals, disposition_of(outcome, modified=modified))
        return held

    @property
    def apart(self) -> bool:
        """It has a session of its own, which has not ended."""
        return self._own is not None

    def lost(self, error: JmsClientError, *, alone: bool) -> None:
        """The session or the connection has ended. `alone`: the connection lives on, so nobody else tells the sink."""
        tell = alone and self._phase is Phase.OPEN and not self._closed
        self._held.clear()
        self._end(error)
        if tell:
            self._sink.closed(error)

    def _end(self, error: JmsClientError) -> None:
        """The link is gone: whoever waits hears of it."""
        attaching, self._attaching = self._attaching, None
        if attaching is not None:
            self._transport.answered(attaching)
            attaching.fail(error)
        if self._phase in (Phase.DETACHING, Phase.RECYCLING):
            self._transport.forget_detach(self.link.address)
        self._phase = Phase.GONE
        if self._link_name is not None:
            self._names.give(self._link_name)
        self._session.detached(self)
        drains, self._drains = self._drains, []
        if self._closed:
            self._give(drains)
        else:  # whether something was on its way is not known
            self._gone = error
            for drain in drains:
                self._transport.answered(drain)
                drain.fail(error)
        self._give_closes()

    def _give_closes(self) -> None:
        closes, self._closes = self._closes, []
        self._give(closes)

    def _give(self, answers: list[Answer[None]]) -> None:
        for answer in answers:
            self._transport.answered(answer)
            answer.give(None)

    @abstractmethod
    def look(self) -> None:
        """New bytes have been processed (I/O thread)."""

    @abstractmethod
    def _settle(self, arrivals: list[Arrival], disposition: Disposition) -> None:
        """Settle these (I/O thread)."""


def _not_applied(missing: frozenset[str], what: str) -> JmsClientError:
    if SELECTOR in missing:
        return InvalidSelectorError(f"the broker did not say that it applies the selector of {what}, so it is not relied on")
    return UnsupportedFeatureError(f"the broker did not say that it applies {', '.join(sorted(missing))} to {what}")
