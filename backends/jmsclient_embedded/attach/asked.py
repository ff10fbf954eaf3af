"""Owns what an attached client can ask of its transport: each question by name, with the values it takes and gives.

Must not know of frames or threads; what a question raises goes back to who asked. Source: transport/contract.py, administration.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from jmsclient import envelope
from jmsclient.clock import Clock
from jmsclient.destination import Destination
from jmsclient.errors import IllegalStateError, UnsupportedFeatureError
from jmsclient.options import DefaultReadAhead
from jmsclient.transport.administration import Administration
from jmsclient.transport.contract import ReceiverSpec, Sender, Transport, TransportSession
from jmsclient_embedded.attach.frames import Frame
from jmsclient_embedded.attach.pushing import ServedReceiver
from jmsclient_embedded.attach.values import from_json, plain_content

ADMINISTRATION = frozenset(Administration.__abstractmethods__)


class Asked:
    """Thread-safe as the transport is: sessions, senders and receivers are dicts by the numbers that the client gave them."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        receivers: dict[int, ServedReceiver],
        new_receiver: Callable[[int], ServedReceiver],
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._receivers = receivers
        self._new_receiver = new_receiver
        self._sessions: dict[int, TransportSession] = {}
        self._senders: dict[int, tuple[int, Sender]] = {}

    def do(self, frame: Frame) -> Any:
        """Ask it; returns or raises what the transport does."""
        header = frame.header
        left = header.get("left")
        deadline = self._clock.deadline(None if left is None else float(left))
        arguments = {name: from_json(value) for name, value in header.get("with", {}).items()}
        if frame.pieces:
            arguments["pieces"] = frame.pieces
        name = header["ask"]
        if name not in QUESTIONS:
            raise UnsupportedFeatureError(f"{name!r}: the process that holds the store does not know this question")
        return getattr(self, name)(deadline, **arguments)

    # -- sessions --------------------------------------------------------------------------------------------------------

    def open_session(self, deadline: float | None, *, session: int, transacted: bool) -> None:
        self._sessions[session] = self._transport.open_session(transacted=transacted, deadline=deadline)

    def close_session(self, deadline: float | None, *, session: int) -> None:
        found = self._sessions.get(session)
        if found is None:
            return
        found.close(deadline)
        del self._sessions[session]
        for number, served in list(self._receivers.items()):
            if served.session == session:
                del self._receivers[number]
        for number, (owner, _) in list(self._senders.items()):
            if owner == session:
                del self._senders[number]

    def flush(self, deadline: float | None, *, session: int) -> None:
        self._session(session).flush(deadline)

    def commit(self, deadline: float | None, *, session: int) -> None:
        self._session(session).commit(deadline)

    def rollback(self, deadline: float | None, *, session: int, redelivery_delay: float) -> None:
        self._session(session).rollback(redelivery_delay=redelivery_delay, deadline=deadline)

    def unsubscribe(self, deadline: float | None, *, session: int, name: str) -> None:
        self._session(session).unsubscribe(name, deadline)

    def create_temporary(self, deadline: float | None, *, session: int, kind: Literal["queue", "topic"]) -> Destination:
        return self._session(session).create_temporary(kind, deadline)

    def delete_temporary(self, deadline: float | None, *, session: int, destination: Destination) -> None:
        self._session(session).delete_temporary(destination, deadline)

    # -- receivers -------------------------------------------------------------------------------------------------------

    def open_receiver(self, deadline: float | None, *, session: int, receiver: int, spec: ReceiverSpec) -> dict[str, Any]:
        served = self._new_receiver(receiver)
        served.session = session
        served.receiver = opened = self._session(session).open_receiver(spec, served, deadline)
        self._receivers[receiver] = served
        return {
            "default_read_ahead": getattr(opened, "default_read_ahead", DefaultReadAhead.UNKNOWN),
            "error_destination": getattr(opened, "error_destination", None),
            "redelivery_delay": getattr(opened, "redelivery_delay", 0.0),
        }

    def drain(self, deadline: float | None, *, receiver: int) -> None:
        self._receiver(receiver).receiver.drain(deadline)

    def close_receiver(self, deadline: float | None, *, receiver: int) -> None:
        served = self._receivers.get(receiver)
        if served is None:
            return
        served.receiver.close(deadline)
        served.closed_by_client = True
        if not served.unsettled:
            self._receivers.pop(receiver, None)

    def handing_over(self, deadline: float | None, *, receiver: int, tags: list[int]) -> None:
        served = self._receivers.get(receiver)
        if served is None:
            return
        arrivals = served.find(tags)
        served.receiver.handing_over(arrivals)
        for arrival in arrivals:
            arrival.handed_over = True

    # -- senders ---------------------------------------------------------------------------------------------------------

    def open_sender(self, deadline: float | None, *, session: int, sender: int, destination: Destination) -> None:
        self._senders[sender] = session, self._session(session).open_sender(destination, deadline)

    def close_sender(self, deadline: float | None, *, sender: int) -> None:
        found = self._senders.pop(sender, None)
        if found is not None:
            found[1].close(deadline)

    def send(
        self, deadline: float | None, *, sender: int, room: float | None, confirm: float | None, pieces: list[bytes]
    ) -> list[str]:
        found = self._senders.get(sender)
        if found is None:
            raise IllegalStateError("this sender is closed")
        messages = [plain_content(envelope.decode(piece)) for piece in pieces]
        receipts = found[1].send(messages, room_deadline=self._clock.deadline(room), confirm_timeout=confirm)
        return [receipt.message_id for receipt in receipts]

    # -- administration --------------------------------------------------------------------------------------------------

    def administration(self, deadline: float | None, *, method: str, positional: list[Any], named: dict[str, Any]) -> Any:
        if method not in ADMINISTRATION:
            raise UnsupportedFeatureError(f"{method!r}: the process that holds the store does not know this call")
        return getattr(self._transport.administration(), method)(*positional, **named)

    # -- by number -------------------------------------------------------------------------------------------------------

    def _session(self, number: int) -> TransportSession:
        found = self._sessions.get(number)
        if found is None:
            raise IllegalStateError("this session is closed")
        return found

    def _receiver(self, number: int) -> ServedReceiver:
        found = self._receivers.get(number)
        if found is None:
            raise IllegalStateError("this receiver is closed")
        return found


QUESTIONS = frozenset(name for name in vars(Asked) if not name.startswith("_") and name != "do")
