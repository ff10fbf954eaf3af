"""Owns the sessions of the embedded backend as the contract sees them: what they open, how their transactions end.

Must not know of states, storage or turns. Source: transport/contract.py; rules IF-9, IF-14, IF-28. Thread-safe.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

from jmsclient.destination import Destination
from jmsclient.errors import IllegalStateError, RequestTimeoutError, StoreError, TransactionInDoubtError
from jmsclient.transport.contract import ReceiverSpec, Sink, TransportSession
from jmsclient_embedded.outlet import Group
from jmsclient_embedded.receiver import EmbeddedReceiver
from jmsclient_embedded.sender import EmbeddedSender
from jmsclient_embedded.steps import Answer

if TYPE_CHECKING:
    from jmsclient_embedded.transport import EmbeddedTransport


class EmbeddedSession(TransportSession):
    """A session; transacted where its group has a transaction."""

    def __init__(self, transport: EmbeddedTransport, group: Group) -> None:
        self.transport = transport
        self.broker = transport.broker
        self.group = group
        self._closed = False

    @property
    def gone(self) -> bool:
        """Its connection died, or belongs to the process that this one was forked from: there is nothing left to close."""
        return self.transport.lost or self.broker.disowned

    def open_receiver(self, spec: ReceiverSpec, sink: Sink, deadline: float | None) -> EmbeddedReceiver:
        self.check_open()
        return EmbeddedReceiver(self, spec, sink, deadline)

    def open_sender(self, destination: Destination, deadline: float | None) -> EmbeddedSender:
        self.check_open()
        return EmbeddedSender(self, destination)

    def check_open(self) -> None:
        """Raises ConnectionLostError or IllegalStateError."""
        self.transport.check_open()
        if self._closed:
            raise IllegalStateError("this session is closed")

    def flush(self, deadline: float | None) -> None:
        self.check_open()
        self.broker.flush(deadline)

    # -- transactions -----------------------------------------------------------------------------------------------

    def commit(self, deadline: float | None) -> None:
        self.check_open()
        transaction = self.group.transaction
        if transaction is None:
            raise IllegalStateError("commit: this session is not transacted")

        def commit(answer: Answer[None]) -> None:
            self.broker.transactions.commit(transaction, answer)

        try:
            self.broker.ask_later(commit, deadline, "a confirmation of the commit")
        except RequestTimeoutError as error:
            raise TransactionInDoubtError(f"the commit is under way, and not confirmed in time: {error}") from error

    def rollback(self, *, redelivery_delay: float, deadline: float | None) -> None:
        self.check_open()
        transaction = self.group.transaction
        if transaction is None:
            raise IllegalStateError("rollback: this session is not transacted")
        self.broker.steps.ask(lambda: self.broker.transactions.rollback(transaction, redelivery_delay), deadline)
        with contextlib.suppress(StoreError):  # it is done; what counts of it are not in the rows yet is in the journal, and told
            self.broker.flush(deadline)

    # -- subscriptions and temporary destinations ---------------------------------------------------------------------

    def unsubscribe(self, name: str, deadline: float | None) -> None:
        self.check_open()
        client_id = self.transport.client_id
        self.broker.steps.ask(lambda: self.broker.topics.unsubscribe(client_id, name), deadline)
        self.broker.flush(deadline)

    def create_temporary(self, kind: Literal["queue", "topic"], deadline: float | None) -> Destination:
        self.check_open()
        return self.broker.steps.ask(lambda: self.broker.catalogue.create_temporary(kind, self.transport), deadline)

    def delete_temporary(self, destination: Destination, deadline: float | None) -> None:
        self.check_open()
        catalogue = self.broker.catalogue

        self.broker.steps.ask(lambda: catalogue.delete_temporary(destination, self.broker.discard_all), deadline)

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self, deadline: float | None) -> None:
        if self.gone or self._closed:
            return

        def close(answer: Answer[None]) -> None:
            self.broker.closing.close_group(self.group, answer.give)

        self.broker.ask_later(close, deadline, "the end of a session")
        self._closed = True
        self.transport.forget(self)
        self.broker.flush(deadline)
