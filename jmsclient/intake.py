"""What stands between a receiver and whoever takes its messages: demand, waking, settling, the fates of what waits. Thread-safe.

The sink of one receiver and the guard of one `Buffer`. It decides under its lock and acts (requests, settles, wakes) outside it. It
never refers to the consumer or trigger above, only to the two calls it was given, so that a dropped consumer can be collected.
Rules RA-5, RA-10 to RA-16, RA-26, IF-9, IF-16 to IF-18, IF-27; architecture "Threads, signals, finalizers".

`unsure`: an exception from a signal handler struck while demand changed hands, so what the provider still owes is not known; the
next wait resolves it with a drain. Thread-safe means here: `take`, `put_back` and the lock-free pop of `queue` are for one thread
at a time (the session's or the pipeline's), all else for any.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from jmsclient.buffer import Buffer, BufferCounters
from jmsclient.clock import Clock
from jmsclient.errors import ConnectionLostError, JmsClientError, UnsupportedFeatureError
from jmsclient.events import emit
from jmsclient.transport.contract import ACCEPT, RELEASE, Arrival, Outcome, Receiver, Verb


@dataclass(frozen=True, slots=True)
class CloseReport:
    """What became of the messages that waited when a consumer was closed (RA-16): handed over to the listener during close,
    given back to the provider, dropped (only ever taken ones)."""

    delivered: int = 0
    released: int = 0
    discarded: int = 0


_persistent = attrgetter("persistent")


def _nothing(error: Exception | None) -> None:
    """Nobody asked to hear of the receiver's end."""


class Intake:
    """See the module. `window` in messages (0: demand only through `want_one`), `window_bytes` in bytes, `refill` in percent.

    `takes`: non-persistent arrivals are settled ACCEPT on arrival, one call a batch. `counts_unsettled`: the window bounds what
    is granted, buffered and taken out but unsettled (triggers, IF-17); otherwise what is granted and buffered.
    `records_hand_over`: the capability of that name. `sent_settled`: the provider may settle when it sends, whatever the message,
    so that a persistent one can be lost like any other. `on_arrival` is called after a batch arrived that a waiter may be waiting
    for, on the backend's thread, and must be cheap; `on_closed` when the receiver is gone without our doing.
    """

    def __init__(
        self,
        *,
        window: int,
        window_bytes: int = 8 << 20,
        refill: int | Literal["empty"] = 75,
        takes: bool = False,
        counts_unsettled: bool = False,
        records_hand_over: bool = False,
        sent_settled: bool = False,
        clock: Clock,
        on_arrival: Callable[[], None],
        on_closed: Callable[[Exception | None], None] = _nothing,
    ) -> None:
        self.buffer = Buffer(window=window, window_bytes=window_bytes, refill=refill, counts_unsettled=counts_unsettled)
        self.queue = self.buffer.queue
        self.unsure = False
        self.closed_error: Exception | None = None
        self.idle = False
        """Demand was taken back because the application took nothing (RA-13); until it asks again."""
        self.ended = False
        """No message will arrive any more: closed by us, by the peer, or lost."""
        self._takes = takes
        self.records_hand_over = records_hand_over
        """The present provider has to be told before the application sees a persistent message (IF-11)."""
        self._asks_records: Callable[[], bool] | None = None
        self._sent_settled = sent_settled
        self._clock = clock
        self._on_arrival = on_arrival
        self._on_closed = on_closed
        self._receiver: Receiver | None = None
        self._present: Receiver | None = None  # of that, the one to ask; None during an outage
        self._lasts = False  # it outlives links
        self._running = False
        self._draining = 0  # drains that run: a receive's and the keeper's may overlap
        self._lock = threading.Lock()  # guards the buffer's figures and all but the left end of its queue; no call out under it

    # -- demand -----------------------------------------------------------------------------------------------------

    def set_window(self, window: int, *, takes: bool) -> None:
        """Decide anew how much to ask for and whether to take, once the receiver said what the provider's default is (RA-1);
        before `start`."""
        self.buffer.set_window(window)
        self._takes = takes

    def attach(self, receiver: Receiver, records_hand_over: Callable[[], bool] | None = None) -> None:
        """The receiver to ask and to settle on; no demand yet. `records_hand_over` is asked again after each outage, for the next
        link may be to another product; it must not keep a session or a connection alive."""
        with self._lock:
            self._asks_records = records_hand_over
            self._receiver = receiver
            self._present = receiver.present
            self._lasts = self._present is not receiver

    def renewed(self) -> None:
        """See `LastingSink`: what was asked for will not come, and what is kept has gone back with its link. What was taken stays,
        for the provider has it no more. The window is asked for where there is a link."""
        with self._lock:
            present = None if self._receiver is None else self._receiver.present
            if present is self._present or self.ended:
                return
            self._present = present
            self.buffer.drained()
            lost = self.buffer.remove(lambda arrival: not arrival.settled and arrival.receiver is not present)
            self.buffer.released += len(lost)
            self.unsure = False
            if present is not None and self._asks_records is not None:
                self.records_hand_over = self._asks_records()
        self.top_up()
        self._on_arrival()

    def start(self) -> None:
        """Allow demand and request the window (RA-12)."""
        self._running = True
        self.top_up()

    def stop(self) -> None:
        """Request nothing more; what was granted may still arrive (RA-12)."""
        self._running = False

    def _may_ask(self) -> bool:
        return self._running and not self._draining and not self.ended and not self.idle

    def top_up(self) -> None:
        """Request what the window has room for, if the refill share is reached (RA-10)."""
        try:
            while self._may_ask():
                with self._lock:  # who is asked for what is decided at once: a lost receiver owes nothing
                    receiver = self._present
                    count = 0 if receiver is None else self.buffer.plan()
                if not count or receiver is None:
                    return
                receiver.request(count)
                if len(self.queue) > self.buffer.mark:  # what came at once is enough: no second plan
                    return
        except BaseException:
            self.unsure = True
            raise

    def asked(self) -> None:
        """The application asks for messages: demand again, if it was taken back (RA-13), and the window."""
        self.idle = False
        self.top_up()

    def give_back_idle(self, deadline: float | None) -> int | None:
        """The application takes nothing: take demand back and release what is kept, its count unchanged; taken ones stay
        (RA-13). How many went back; None where nothing waits. On the keeper. Raises as `drain`."""
        if not self.queue or self.idle or self.ended:
            return None
        self.idle = True
        try:
            self.drain(deadline)
        finally:
            released = self.release_buffered()
            self.top_up()  # asked for meanwhile
            self._on_arrival()
        return released

    def purge(self, age: float, *, releasable: bool) -> list[tuple[Arrival, float, bool]]:
        """Take out what has waited `age` seconds or longer: taken ones are dropped, kept ones released where the provider can do
        that without counting it; with the seconds that each has waited and whether it was
        kept (RA-11). Asks for nothing: the next receive does."""
        now = self._clock.monotonic()
        with self._lock:
            ages = self.buffer.aged(now, age)
            if not ages:
                return []
            gone = self.buffer.remove(lambda arrival: id(arrival) in ages and (arrival.settled or releasable))
            self.buffer.purged += len(gone)
        purged = [(arrival, ages[id(arrival)], not arrival.settled) for arrival in gone]
        _settle([arrival for arrival, _, kept in purged if kept], RELEASE)
        self._on_arrival()
        return purged

    def release_held(self, age: float) -> list[Arrival]:
        """Give back every kept message that has waited `age` seconds or longer, before its provider's limit ends the hold (RA-15);
        which they are. Asks for nothing: the next receive does."""
        now = self._clock.monotonic()
        with self._lock:
            ages = self.buffer.aged(now, age)
            if not ages:
                return []
            held = self.buffer.remove(lambda arrival: id(arrival) in ages and not arrival.settled)
            self.buffer.released += len(held)
        _settle(held, RELEASE)
        self._on_arrival()
        return held

    def want_one(self) -> None:
        """Demand for one message, while a receive waits or a listener is idle, where there is no window (IF-17)."""
        try:
            if self._may_ask():
                with self._lock:
                    receiver = self._present
                    wanted = receiver is not None and self.buffer.want_one()
                if wanted and receiver is not None:
                    receiver.request(1)
        except BaseException:
            self.unsure = True
            raise

    def drain(self, deadline: float | None) -> bool:
        """Take all demand back, having received what was on its way (IF-18); then ask for the window again where there is one,
        however this ended.

        False where the provider cannot drain; what was granted then stays granted. Raises RequestTimeoutError, and
        ConnectionLostError where the link is not tried again. For one thread at a time.
        """
        receiver = self._present
        if receiver is None or self.ended:
            return True
        try:
            with self._lock:
                self._draining += 1
            self.unsure = True
            receiver.drain(deadline)
            self._drained(receiver)
        except ConnectionLostError:
            if not self._lasts:
                raise
            self._drained(receiver)  # a lost link owes nothing
        except UnsupportedFeatureError:
            self.unsure = False
            return False
        finally:
            with self._lock:
                self._draining -= 1
            self.top_up()  # late too: nothing was asked for meanwhile, not even of a link that took its place
        return True

    def _drained(self, receiver: Receiver) -> None:
        with self._lock:
            if receiver is self._present:  # else what is asked for since is another's
                self.buffer.drained()
        self.unsure = False

    # -- what a receiver pushes -------------------------------------------------------------------------------------

    def delivered(self, batch: list[Arrival]) -> None:
        """See `Sink`. Appended first and settled then: a message is never in neither place."""
        now = self._clock.monotonic()
        with self._lock:
            gone = self.ended or (self._lasts and batch[0].receiver is not self._present)  # its link was lost meanwhile
            wake = None if gone else self.buffer.add(batch, now)
            flooded = self.buffer.flooded
        if wake is None:
            _settle(batch, RELEASE)
            return
        if self._takes:
            taken = [arrival for arrival in batch if not (arrival.persistent or arrival.settled)]
            if taken:
                taken[0].receiver.settle(taken, ACCEPT)  # a batch comes from one
                self.buffer.taken += len(taken)
        if wake:
            self._on_arrival()
        if flooded:
            self._withdraw(batch[0].receiver)

    def _withdraw(self, receiver: Receiver) -> None:
        """Messages are larger than the demand was meant for: take back what can be, then ask by their size (RA-9)."""
        count = receiver.withdraw()
        if count:
            with self._lock:
                if receiver is self._present or not self._lasts:
                    self.buffer.withdrawn(count)
            self.top_up()

    def closed(self, error: Exception | None) -> None:
        """See `Sink`: the peer closed the receiver. What waits and was not taken has gone back with it."""
        with self._lock:
            if self.ended:
                return
            self.ended = True
            self._running = False
            self.closed_error = error
            self.buffer.released += len(self.buffer.remove(lambda arrival: not arrival.settled))
        self._on_closed(error)
        self._on_arrival()

    def recall(self) -> None:
        """See `Sink`: what is kept and buffered goes back; the window is asked for again, so that it comes when it may."""
        self.release_buffered()
        self.top_up()
        self._on_arrival()

    # -- taking, for the thread that uses it ------------------------------------------------------------------------

    def take(self, limit: int) -> list[Arrival]:
        """Up to `limit` arrivals from the head; expired ones are settled and counted instead (RA-11)."""
        if not self.queue:
            return []
        with self._lock:
            arrivals, expired = self.buffer.take(limit, self._clock.wall())
        if expired:
            _settle(expired, RELEASE)
        if len(self.queue) <= self.buffer.mark:
            self.top_up()
        return arrivals

    def put_back(self, arrivals: Sequence[Arrival]) -> None:
        """What was taken and not used, at the head, order kept."""
        with self._lock:
            self.buffer.put_back(arrivals)
        self._on_arrival()

    def drop_lost(self) -> bool:
        """One that a lock-free pop took could not be handed over, for its link is lost: True where it comes again, and counts as
        given back; False where no link will come."""
        if self._lasts:
            with self._lock:
                self.buffer.released += 1
        return self._lasts

    def drop_expired(self, arrival: Arrival) -> None:
        """One that a lock-free pop found expired: settled and counted."""
        with self._lock:
            self.buffer.expired += 1
        _settle([arrival], RELEASE)

    def handing_over(self, arrivals: Sequence[Arrival]) -> None:
        """The application is about to see these (IF-11)."""
        if self.records_hand_over:
            persistent = [arrival for arrival in arrivals if arrival.persistent and not arrival.settled]
            for receiver, group in _by_receiver(persistent):
                try:
                    receiver.handing_over(group)
                except ConnectionLostError:  # they come again; whoever asked decides what to do with these copies
                    if not self._lasts:
                        raise
        fresh = 0
        for arrival in arrivals:
            if not arrival.handed_over:
                arrival.handed_over = True
                fresh += 1
        with self._lock:
            self.buffer.delivered += fresh

    # -- settling ---------------------------------------------------------------------------------------------------

    def settle(self, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        """Settle these with one outcome, wherever they came from; settling twice does nothing. Any thread."""
        if not arrivals:
            return
        _settle(arrivals, outcome)
        with self._lock:
            _, unseen = self.buffer.forget(arrivals)
            if outcome.verb is Verb.RELEASE:
                self.buffer.released += unseen
            else:
                self.buffer.delivered += unseen
        if len(self.queue) <= self.buffer.mark:
            self.top_up()

    def release_buffered(self) -> int:
        """Give back every kept message that waits, its count unchanged (RA-14); taken ones stay. Returns how many."""
        with self._lock:
            kept = self.buffer.remove(lambda arrival: not arrival.settled)
            self.buffer.released += len(kept)
        _settle(kept, RELEASE)
        return len(kept)

    def discard_taken(self) -> int:
        """Drop every taken message that waits (RA-16). Returns how many.

        A persistent one among them that was not sent settled is one whose receive was struck by an exception after its acknowledge:
        it counts as delivered, for nothing persistent is ever discarded."""
        with self._lock:
            taken = self.buffer.remove(lambda arrival: arrival.settled)
            struck = [] if self._sent_settled else list(filter(_persistent, taken))
            self.buffer.discarded += len(taken) - len(struck)
            self.buffer.delivered += len(struck)
        for arrival in struck:
            emit(
                "intake",
                "struck",
                "acknowledged, but an exception struck before receive returned it, and its consumer was closed",
                level=logging.WARNING,
                message_id=arrival.content.message_id,
            )
        return len(taken) - len(struck)

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self, deadline: float | None, *, discard_taken: bool = True, keep_receiver: bool = False) -> CloseReport:
        """Stop demand, drain (bounded by `deadline`), release what is kept, drop what is taken unless told not to, close the
        receiver unless told to keep it for what the session still has to settle (IF-27). Idempotent. A provider that does not
        answer in time does not keep it from ending; what happened is told as an event."""
        self._running = False
        try:
            self.drain(deadline)
        except JmsClientError as error:
            emit("intake", "drain_failed", f"closing without a drain: {error}", level=logging.WARNING)
        with self._lock:
            self.ended = True
        released = self.release_buffered()
        discarded = self.discard_taken() if discard_taken else 0
        if not keep_receiver:
            self.close_receiver(deadline)
        self._on_arrival()
        return CloseReport(released=released, discarded=discarded)

    def close_receiver(self, deadline: float | None) -> None:
        """Detach. Idempotent; errors of a dead link are told as an event, for there is nothing left to close."""
        receiver = self._receiver
        if receiver is not None:
            try:
                receiver.close(deadline)
            except JmsClientError as error:
                emit("intake", "close_failed", f"the receiver could not be closed: {error}", level=logging.WARNING)

    # -- figures ----------------------------------------------------------------------------------------------------

    @property
    def buffered(self) -> int:
        """Messages that wait here, kept and taken."""
        return len(self.queue)

    @property
    def oldest_age(self) -> float:
        """Seconds that the message at the head has waited."""
        return self.buffer.oldest_age(self._clock.monotonic())

    @property
    def counters(self) -> BufferCounters:
        """The counters of RA-26 at this moment."""
        with self._lock:
            return self.buffer.counters()


def _by_receiver(arrivals: Iterable[Arrival]) -> list[tuple[Receiver, list[Arrival]]]:
    groups: dict[int, tuple[Receiver, list[Arrival]]] = {}
    for arrival in arrivals:
        groups.setdefault(id(arrival.receiver), (arrival.receiver, []))[1].append(arrival)
    return list(groups.values())


def _settle(arrivals: Sequence[Arrival], outcome: Outcome) -> None:
    """One call a receiver: after a reconnect, arrivals of several may come together."""
    if arrivals:
        first = arrivals[0].receiver
        if len(arrivals) == 1 or not [arrival for arrival in arrivals if arrival.receiver is not first]:
            first.settle(arrivals, outcome)
            return
    for receiver, group in _by_receiver(arrivals):
        receiver.settle(group, outcome)
