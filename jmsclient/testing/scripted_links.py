"""Owns the receivers and senders of a ScriptedBackend.

Must not know the script, nor threads: whatever could deliver or exclude a delivery runs where the transport runs it.
Source: transport/contract.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jmsclient.errors import IllegalStateError, SendError, UnsupportedFeatureError
from jmsclient.events import emit
from jmsclient.message import PlainContent
from jmsclient.testing.scripted_queue import Held
from jmsclient.testing.scripted_state import Confirmation
from jmsclient.testing.scripted_transaction import ScriptedTransaction
from jmsclient.transport.contract import ACCEPT, Arrival, Outcome, Receipt, Receiver, ReceiverSpec, Sender, Sink, Verb

if TYPE_CHECKING:
    from jmsclient.testing.scripted_session import ScriptedSession


class ScriptedReceiver(Receiver):
    """One receiving link. Its fields are guarded by the state's lock; `push` runs on the transport's thread only."""

    def __init__(self, session: ScriptedSession, spec: ReceiverSpec, sink: Sink) -> None:
        self.session = session
        self.transport = session.transport
        self.state = session.transport.state
        self.address = spec.destination.address
        self.spec = spec
        self.sink = sink
        self.demand = 0
        self.open = True
        self.unsettled: dict[int, tuple[Held, Arrival]] = {}
        self.number = self.state.next_number()
        self.last_seen = 0

    def request(self, count: int) -> None:
        with self.state.lock:
            if not self.open:
                return
            if count <= 0:
                self.state.violations.append(f"request({count}): expected at least 1")
                return
            self.state.requests.append((self.address, count))
            self.demand += count
        self.transport.wake()

    def settle(self, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        stale = 0
        transaction = self.session.transaction if outcome.verb is Verb.ACCEPT else None
        now = self.transport.clock.monotonic()
        with self.state.lock:
            for arrival in arrivals:
                if transaction is not None and arrival.tag in self.unsettled:
                    self._accept(transaction, arrival)
                    continue
                held, _ = self.unsettled.pop(arrival.tag, (None, None))
                if held is not None:
                    arrival.settled = True
                    handed_over = arrival.handed_over
                    self.state.settle(held, outcome, receiver=self.number, handed_over=handed_over, now=now)
                elif not arrival.settled:
                    stale += 1
            self.state.stale += stale
        if stale:
            emit("transport", "stale_settlement", f"{stale} settlements of a dead receiver were dropped", count=stale)
        if outcome.verb is not Verb.ACCEPT:
            self.transport.wake_all()

    def _accept(self, transaction: ScriptedTransaction, arrival: Arrival) -> None:
        """Into the transaction first: struck in between, it is in both, and the transaction has it."""
        held, _ = transaction.accepted[arrival.tag] = self.unsettled[arrival.tag]
        del self.unsettled[arrival.tag]
        arrival.settled = True
        self.state.log(held, ACCEPT, handed_over=arrival.handed_over)

    def withdraw(self) -> int:
        with self.state.lock:
            left, self.demand = self.demand, 0
        return left

    def drain(self, deadline: float | None) -> None:
        if self.transport.capabilities.drain == "no":
            raise UnsupportedFeatureError("this scripted backend cannot drain a receiver")
        with self.state.lock:
            self.transport.check_alive()
        self.transport.call(self._drain, deadline)

    def _drain(self) -> None:
        if self.transport.capabilities.drain == "yes":
            self.push()
        with self.state.lock:
            self.demand = 0

    def close(self, deadline: float | None) -> None:
        self.transport.call(self._close, deadline)

    def _close(self) -> None:
        with self.state.lock:
            self.detach()
            if self.transport.capabilities.close_returns_unsettled == "at_close":
                self.give_back(counted=True)
        self.transport.wake_all()

    def close_by_peer(self, error: Exception | None) -> None:
        """The other end detached this receiver (on the thread)."""
        with self.state.lock:
            if not self.open:
                return
            self.detach()
            self.give_back(counted=True)
        self.sink.closed(error)
        self.transport.wake_all()

    def push(self) -> bool:
        """Deliver what was asked for and is there (on the thread, so that close and drain exclude it)."""
        with self.state.lock:
            if not self.open or not self.demand:
                return False
            batch = self._seen() if self.spec.kind == "browse" else self._taken()
            self.demand -= len(batch)
        if batch:
            self.sink.delivered(batch)
        return bool(batch)

    def _taken(self) -> list[Arrival]:
        taken = self.state.queues.take(self.address, self.number, self.demand, self.transport.clock.monotonic())
        return [self._arrival(held, settled=self.spec.pre_settled) for held in taken]

    def _seen(self) -> list[Arrival]:
        """What a browser sees next; it holds nothing."""
        seen = self.state.queues.visible_after(self.address, self.last_seen, self.demand, self.transport.clock.monotonic())
        self.last_seen = seen[-1].number if seen else self.last_seen
        return [self._arrival(held, settled=True) for held in seen]

    def _arrival(self, held: Held, *, settled: bool) -> Arrival:
        says = self.transport.capabilities.delivery_count
        count = held.delivery_count
        if says == "none":
            count = -1
        elif says == "derived":
            count = min(count, 2)
        arrival = Arrival(
            self,
            self.state.next_number(),
            held.content,
            delivery_count=count,
            persistent=held.content.persistent,
            size=held.content.size,
            count_derived=says == "derived",
            settled=settled,
            expires_at=held.content.expiration,
        )
        if not settled:
            self.unsettled[arrival.tag] = (held, arrival)
        return arrival

    def detach(self) -> None:
        """No more demand, no more pushes (under the state's lock)."""
        self.open = False
        self.demand = 0
        if self in self.transport.receivers:
            self.transport.receivers.remove(self)

    def give_back(self, *, counted: bool) -> None:
        """Return what is unsettled: handed over ones `counted`, others as they were (under the state's lock)."""
        transaction = self.session.transaction
        for tag, (held, arrival) in self.unsettled.items():
            if transaction is not None and tag in transaction.accepted:
                continue
            self.state.queues.give_back(held, counted=counted and arrival.handed_over)
        self.unsettled.clear()


class ScriptedSender(Sender):
    """One sending link: written at once, confirmed by the transport's thread."""

    def __init__(self, session: ScriptedSession, address: str) -> None:
        self._session = session
        self._transport = session.transport
        self._address = address

    def send(
        self, messages: Sequence[PlainContent], *, room_deadline: float | None, confirm_timeout: float | None
    ) -> list[Receipt]:
        transport, state = self._transport, self._transport.state
        confirmation = Confirmation(transport.clock.bell())
        with state.lock:
            transport.check_alive()
            if not self._session.open:
                raise IllegalStateError("this transport session is closed")
            if state.refused_send is not None:
                raise state.refused_send
            if any(content.delivery_time is not None for content in messages):
                raise UnsupportedFeatureError("the scripted backend has no delayed delivery")
            ids = [self._write(content) for content in messages]
            transport.unconfirmed.append(confirmation)
        transport.wake_all()
        if transport.on_thread:
            transport.confirm()
        else:
            transport.post(transport.confirm)
        if not confirmation.bell.wait(confirm_timeout):
            raise SendError("not confirmed in time", in_doubt=ids)
        if confirmation.error is not None:
            raise SendError("the link was lost before the confirmation", in_doubt=ids) from confirmation.error
        return [Receipt(message_id) for message_id in ids]

    def _write(self, content: PlainContent) -> str:
        self._transport.state.sent += 1
        if content.message_id is None:
            content.message_id = f"ID:scripted-{self._transport.state.next_number()}"
        transaction = self._session.transaction
        if transaction is None:
            self._transport.state.queues.put(self._address, content)
        else:
            transaction.sent.append((self._address, content))
        return content.message_id
