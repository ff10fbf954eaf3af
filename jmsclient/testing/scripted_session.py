"""Owns the sessions of a ScriptedBackend: receivers, senders, one transaction where there is any, temporary queues.

Must not know the script. What could deliver or exclude a delivery runs on the transport's thread. Source: transport/contract.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from jmsclient.destination import Destination, Queue
from jmsclient.errors import IllegalStateError, InvalidDestinationError, UnsupportedFeatureError
from jmsclient.testing.scripted_links import ScriptedReceiver, ScriptedSender
from jmsclient.testing.scripted_transaction import ScriptedTransaction
from jmsclient.transport.contract import Receiver, ReceiverSpec, Sender, Sink, TransportSession

if TYPE_CHECKING:
    from jmsclient.testing.scripted_transport import ScriptedTransport


class ScriptedSession(TransportSession):
    """Receivers and senders, and what closed receivers left unsettled where the capability says so."""

    def __init__(self, transport: ScriptedTransport, transaction: ScriptedTransaction | None) -> None:
        self.transport = transport
        self.transaction = transaction
        self.receivers: list[ScriptedReceiver] = []
        self.open = True

    def _check(self) -> None:
        self.transport.check_alive()
        if not self.open:
            raise IllegalStateError("this transport session is closed")
        error = self.transport.state.refused_attach
        if error is not None:
            raise error

    def open_receiver(self, spec: ReceiverSpec, sink: Sink, deadline: float | None) -> Receiver:
        browses = spec.kind == "browse" and self.transport.capabilities.browse
        if (spec.kind != "queue" and not browses) or spec.selector is not None:
            raise UnsupportedFeatureError("the scripted backend has queues without selectors only")
        if spec.default_outcome not in ("accepted", None):
            raise UnsupportedFeatureError(f"default_outcome={spec.default_outcome!r}: the scripted backend knows accepted only")
        with self.transport.state.lock:
            self._check()
            if self.transport.state.temporaries.get(spec.destination.address, self.transport) is not self.transport:
                raise InvalidDestinationError(f"{spec.destination.address}: a temporary queue of another connection")
            receiver = ScriptedReceiver(self, spec, sink)
            self.receivers.append(receiver)
            self.transport.receivers.append(receiver)
        return receiver

    def open_sender(self, destination: Destination, deadline: float | None) -> Sender:
        if destination.scheme != "queue":
            raise UnsupportedFeatureError("the scripted backend has queues only")
        with self.transport.state.lock:
            self._check()
        return ScriptedSender(self, destination.address)

    # -- transactions -------------------------------------------------------------------------------------------------

    def commit(self, deadline: float | None) -> None:
        refused = self.transport.state.refused_commit
        applied = refused is None or refused[1]
        with self.transport.state.lock:
            self.transport.check_alive()
            transaction = self._transaction()
            if applied:
                transaction.commit(self.transport.state.queues)
            else:
                transaction.roll_back(self.transport.state.queues)
        self.transport.wake_all()
        if refused is not None:
            raise refused[0]

    def rollback(self, *, redelivery_delay: float, deadline: float | None) -> None:
        state = self.transport.state
        with state.lock:
            self.transport.check_alive()
            if redelivery_delay and not self.transport.capabilities.delayed_release:
                state.violations.append(f"a rollback with a delay of {redelivery_delay} s, though delayed_release is not declared")
            due = self.transport.clock.monotonic() + redelivery_delay if redelivery_delay else 0.0
            self._transaction().roll_back(state.queues, due=due)
        self.transport.wake_all()

    def _transaction(self) -> ScriptedTransaction:
        if self.transaction is None:
            raise IllegalStateError("this transport session is not transacted")
        return self.transaction

    # -- temporary queues ---------------------------------------------------------------------------------------------

    def create_temporary(self, kind: Literal["queue", "topic"], deadline: float | None) -> Destination:
        if kind == "topic":
            raise UnsupportedFeatureError("the scripted backend has queues only")
        with self.transport.state.lock:
            self._check()
            queue = Queue(f"scripted.temporary.{self.transport.state.next_number()}")
            self.transport.state.temporaries[queue.address] = self.transport
        return queue

    def delete_temporary(self, destination: Destination, deadline: float | None) -> None:
        state = self.transport.state
        with state.lock:
            self._check()
            if any(receiver.address == destination.address for receiver in self.transport.receivers):
                raise IllegalStateError(f"{destination.address}: a consumer is open on it")
            state.temporaries.pop(destination.address, None)
            state.queues.drop(destination.address)

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self, deadline: float | None) -> None:
        self.transport.call(self.end, deadline)

    def end(self) -> None:
        """Close all of it (on the thread)."""
        with self.transport.state.lock:
            if not self.open:
                return
            self.open = False
            if self in self.transport.sessions:
                self.transport.sessions.remove(self)
            for receiver in self.receivers:
                receiver.detach()
                receiver.give_back(counted=True)
            self._undo(counted=True)
        self.transport.wake_all()

    def lose(self, counted: bool) -> None:
        """The link died (under the state's lock)."""
        self.open = False
        for receiver in self.receivers:
            receiver.detach()
            receiver.give_back(counted=counted)
        self._undo(counted)

    def _undo(self, counted: bool) -> None:
        if self.transaction is not None:
            self.transaction.roll_back(self.transport.state.queues, counted=counted)
