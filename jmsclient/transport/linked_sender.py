"""A sender that is opened again, by the next send, on each new link.

What may have been sent is never repeated; only what a backend refused before anything was written goes out on the next link. It
must not know how links are made (`link.py`). Rules IF-28, IF-30; case S08.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from jmsclient.destination import Destination
from jmsclient.errors import ConnectionLostError, SendError, TransactionRolledBackError
from jmsclient.message import PlainContent
from jmsclient.transport.contract import Begun, Receipt, Sender, TransportSession

if TYPE_CHECKING:
    from jmsclient.transport.linked import LinkedSession

Made = tuple[TransportSession, Sender]
"""A sender of one link, and its session there."""


class LinkedSender(Sender):
    """See the module. It is opened again by the next send."""

    def __init__(self, session: LinkedSession, destination: Destination) -> None:
        self._session = session
        self._destination = destination
        self._made: Made | None = None
        self._begun: weakref.ref[LinkedBegun] | None = None

    def open(self, deadline: float | None) -> Made:
        """The one of the present link. Raises as `TransportSession.open_sender`."""
        made = self._session.ask(lambda inner: (inner, inner.open_sender(self._destination, deadline)), deadline)
        self._made = made
        return made

    def send(
        self, messages: Sequence[PlainContent], *, room_deadline: float | None, confirm_timeout: float | None
    ) -> list[Receipt]:
        return self.send_begun(messages, None, room_deadline=room_deadline, confirm_timeout=confirm_timeout)

    @property
    def most_ahead(self) -> int:  # type: ignore[override]  # the contract has an attribute; here it changes with the link
        """None where something that was begun on a link before has yet to be sent again: it comes first."""
        made, begun = self._made, None if self._begun is None else self._begun()
        if made is None or made[0] is not self._session.inner or self._session.transacted:
            return 0
        return 0 if begun is not None and begun.made is not made else made[1].most_ahead

    def begin(self, messages: Sequence[PlainContent]) -> Begun:
        made = self._made
        if made is None:
            raise ConnectionLostError("the link was lost")
        begun = LinkedBegun(self, messages, made, made[1].begin(messages))
        self._begun = weakref.ref(begun)
        return begun

    def send_begun(
        self,
        messages: Sequence[PlainContent],
        begun: LinkedBegun | None,
        *,
        room_deadline: float | None,
        confirm_timeout: float | None,
    ) -> list[Receipt]:
        """As `send`; of what was begun on a link, wait for that first."""
        session = self._session
        while True:
            made = self._made if begun is None else begun.made
            if begun is None and (made is None or made[0] is not session.inner):
                made = self._reopened(messages, room_deadline)
            assert made is not None
            inner, begun = None if begun is None else begun.inner, None
            first, session.used = not session.used, True
            try:
                if inner is not None:
                    return inner.finish(room_deadline=room_deadline, confirm_timeout=confirm_timeout)
                return made[1].send(messages, room_deadline=room_deadline, confirm_timeout=confirm_timeout)
            except ConnectionLostError as error:  # nothing was written
                if not self._lost(made, room_deadline):
                    if self._made is made:
                        self._made = None  # whatever it is, the next send opens another
                    raise self._unsent(messages, error) from error
                if first:
                    session.begin()
                elif session.transacted:
                    raise self._undone(error) from error
            except SendError as error:
                if session.transacted and isinstance(error.__cause__, ConnectionLostError) and self._lost(made, room_deadline):
                    raise self._undone(error) from error
                raise

    def _lost(self, made: Made, deadline: float | None) -> bool:
        """Whether the link of that one is lost, once whoever lost it has told."""
        return self._session.changes(made[0], deadline)

    def _undone(self, error: Exception) -> TransactionRolledBackError:
        return TransactionRolledBackError(f"{self._destination.address}: {error}; the transaction was lost with its link")

    def _reopened(self, messages: Sequence[PlainContent], deadline: float | None) -> Made:
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


class LinkedBegun(Begun):
    """What was begun on one link; what that lost before it was written is sent on the next, when it is waited for."""

    def __init__(self, sender: LinkedSender, messages: Sequence[PlainContent], made: Made, inner: Begun) -> None:
        self.made = made
        self.inner = inner
        self.ids = inner.ids
        self.size = inner.size
        self._sender = sender
        self._messages = messages
        self._stopped = False

    @property
    def failed(self) -> bool:
        return self.inner.failed

    def finish(self, *, room_deadline: float | None, confirm_timeout: float | None) -> list[Receipt]:
        if self._stopped:
            return self.inner.finish(room_deadline=room_deadline, confirm_timeout=confirm_timeout)
        return self._sender.send_begun(self._messages, self, room_deadline=room_deadline, confirm_timeout=confirm_timeout)

    def stop(self) -> None:
        self._stopped = True
        self.inner.stop()
