"""A sender that is opened again, by the next send, on each new link.

What may have been sent is never repeated; only what a backend refused before anything was written goes out on the next link. It
must not know how links are made (`link.py`). Rules IF-28, IF-30; case S08.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from jmsclient.destination import Destination
from jmsclient.errors import ConnectionLostError, SendError, TransactionRolledBackError
from jmsclient.message import PlainContent
from jmsclient.transport.contract import Receipt, Sender, TransportSession

if TYPE_CHECKING:
    from jmsclient.transport.linked import LinkedSession


class LinkedSender(Sender):
    """See the module. It is opened again by the next send."""

    def __init__(self, session: LinkedSession, destination: Destination) -> None:
        self._session = session
        self._destination = destination
        self._made: tuple[TransportSession, Sender] | None = None

    def open(self, deadline: float | None) -> Sender:
        """The one of the present link. Raises as `TransportSession.open_sender`."""
        made = self._session.ask(lambda inner: (inner, inner.open_sender(self._destination, deadline)), deadline)
        self._made = made
        return made[1]

    def send(
        self, messages: Sequence[PlainContent], *, room_deadline: float | None, confirm_timeout: float | None
    ) -> list[Receipt]:
        session = self._session
        while True:
            made = self._made
            sender = made[1] if made is not None and made[0] is session.inner else self._reopened(messages, room_deadline)
            first, session.used = not session.used, True
            try:
                return sender.send(messages, room_deadline=room_deadline, confirm_timeout=confirm_timeout)
            except ConnectionLostError as error:  # nothing was written
                if not self._lost(room_deadline):
                    self._made = None  # whatever it is, the next send opens another
                    raise self._unsent(messages, error) from error
                if first:
                    session.begin()
                elif session.transacted:
                    raise self._undone(error) from error
            except SendError as error:
                if session.transacted and isinstance(error.__cause__, ConnectionLostError) and self._lost(room_deadline):
                    raise self._undone(error) from error
                raise

    def _lost(self, deadline: float | None) -> bool:
        """Whether the link that it stands for is lost, once whoever lost it has told."""
        return self._session.changes(None if self._made is None else self._made[0], deadline)

    def _undone(self, error: Exception) -> TransactionRolledBackError:
        return TransactionRolledBackError(f"{self._destination.address}: {error}; the transaction was lost with its link")

    def _reopened(self, messages: Sequence[PlainContent], deadline: float | None) -> Sender:
        try:
            return self.open(deadline)
        except ConnectionLostError as error:
            if self._session.link.over is not None or self._session.closed:
                raise
            raise self._unsent(messages, error) from error

    def _unsent(self, messages: Sequence[PlainContent], error: Exception) -> SendError:
        ids = [one.message_id for one in messages if one.message_id is not None]
        return SendError(f"{self._destination.address}: {error}; nothing was sent", unsent=ids)

    def close(self, deadline: float | None) -> None:
        made, self._made = self._made, None
        if made is not None and made[0] is self._session.inner:
            with suppress(ConnectionLostError):
                made[1].close(deadline)
