"""Owns the transport of an attached process: sessions and senders whose broker lives in the process that holds the store.

Must not know of frames and sockets (link.py). A call here is a question there, with the time that is left for it; what it raises
there it raises here. Source: transport/contract.py; rules IF-9, IF-10, IF-28.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from jmsclient import envelope
from jmsclient.destination import Destination
from jmsclient.errors import (
    ConnectionLostError,
    IllegalStateError,
    JmsClientError,
    RequestTimeoutError,
    SendError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsclient.message import PlainContent
from jmsclient.transport.administration import Administration
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import (
    Peer,
    Receipt,
    ReceiverSpec,
    Sender,
    Sink,
    Transport,
    TransportSession,
)
from jmsclient_embedded.attach.link import Link
from jmsclient_embedded.attach.remote_administration import remote_administration
from jmsclient_embedded.attach.remote_receiver import RemoteReceiver

SEND_BYTES = 8 * 1024 * 1024
"""Bytes of messages that are sent at a time, unless one message alone is longer."""
SEND_GRACE = 5.0
"""Seconds beyond a send's own time limits after which the holder is taken not to answer any more."""


class RemoteTransport(Transport):
    """A connection to the broker of another process on this machine. Thread-safe."""

    def __init__(self, link: Link, peer: Peer, capabilities: Capabilities) -> None:
        self.peer = peer
        self.capabilities = capabilities
        self.link = link
        self._numbers = itertools.count(1)
        self._sessions: dict[RemoteSession, None] = {}
        self._administration = remote_administration(link)

    def open_session(self, *, transacted: bool, deadline: float | None) -> RemoteSession:
        number = next(self._numbers)
        self.link.ask("open_session", deadline, session=number, transacted=transacted)
        session = RemoteSession(self, number)
        self._sessions[session] = None
        return session

    def administration(self) -> Administration:
        return self._administration

    def next_number(self) -> int:
        """For a session, receiver or sender."""
        return next(self._numbers)

    def forget(self, session: RemoteSession) -> None:
        """It closed."""
        self._sessions.pop(session, None)

    def close(self, deadline: float | None) -> None:
        try:
            for session in () if self.link.dead else tuple(self._sessions):
                session.close(deadline)
        finally:  # a holder that does not answer takes everything back when the link is gone
            self.link.close(deadline)


class RemoteSession(TransportSession):
    """A session of the holder's broker. Thread-safe."""

    def __init__(self, transport: RemoteTransport, number: int) -> None:
        self._transport = transport
        self._link = transport.link
        self._number = number
        self._receivers: dict[int, RemoteReceiver] = {}
        self._closed = False

    def open_receiver(self, spec: ReceiverSpec, sink: Sink, deadline: float | None) -> RemoteReceiver:
        self._check_open()
        receiver = RemoteReceiver(self._link, self._transport.next_number(), sink)
        receiver.open(self._number, spec, deadline)
        self._receivers[receiver.number] = receiver
        return receiver

    def open_sender(self, destination: Destination, deadline: float | None) -> RemoteSender:
        self._check_open()
        number = self._transport.next_number()
        self._ask("open_sender", deadline, sender=number, destination=destination)
        return RemoteSender(self._link, number, destination)

    def flush(self, deadline: float | None) -> None:
        self._ask("flush", deadline)

    def commit(self, deadline: float | None) -> None:
        if self._link.error is not None:
            raise TransactionRolledBackError(f"nothing was committed: {self._link.error}") from self._link.error
        self._check_open()
        try:
            self._ask("commit", deadline)
        except (ConnectionLostError, RequestTimeoutError) as error:
            raise TransactionInDoubtError(f"it may have been committed: {error}") from error

    def rollback(self, *, redelivery_delay: float, deadline: float | None) -> None:
        self._ask("rollback", deadline, redelivery_delay=redelivery_delay)

    def unsubscribe(self, name: str, deadline: float | None) -> None:
        self._ask("unsubscribe", deadline, name=name)

    def create_temporary(self, kind: Literal["queue", "topic"], deadline: float | None) -> Destination:
        made: Destination = self._ask("create_temporary", deadline, kind=kind)
        return made

    def delete_temporary(self, destination: Destination, deadline: float | None) -> None:
        self._ask("delete_temporary", deadline, destination=destination)

    def close(self, deadline: float | None) -> None:
        if self._closed or self._link.dead:
            return
        for receiver in tuple(self._receivers.values()):
            receiver.end()
        self._link.ask("close_session", deadline, in_order=True, session=self._number)
        self._closed = True
        for number in self._receivers:
            self._link.receivers.pop(number, None)
        self._transport.forget(self)

    def _ask(self, what: str, deadline: float | None, **arguments: Any) -> Any:
        self._check_open()
        return self._link.ask(what, deadline, session=self._number, **arguments)

    def _check_open(self) -> None:
        self._link.check_open()
        if self._closed:
            raise IllegalStateError("this session is closed")


class RemoteSender(Sender):
    """A sender of the holder's broker. Thread-safe."""

    def __init__(self, link: Link, number: int, destination: Destination) -> None:
        self._link = link
        self._number = number
        self._where = destination.address

    def send(
        self, messages: Sequence[PlainContent], *, room_deadline: float | None, confirm_timeout: float | None
    ) -> list[Receipt]:
        self._link.check_open()
        ids = [_identify(message) for message in messages]
        receipts: list[Receipt] = []
        for pieces in _portions([envelope.encode(message) for message in messages]):
            first = len(receipts)
            try:
                receipts += self._send(pieces, ids[first : first + len(pieces)], room_deadline, confirm_timeout)
            except JmsClientError as error:
                if not first:
                    raise
                raise _partly_sent(error, ids, first, len(pieces)) from error
        return receipts

    def _send(
        self, pieces: list[bytes], ids: list[str], room_deadline: float | None, confirm_timeout: float | None
    ) -> list[Receipt]:
        link = self._link
        room = link.clock.left(room_deadline)
        deadline = None
        if room is not None and confirm_timeout is not None:
            deadline = link.clock.deadline(room + confirm_timeout + SEND_GRACE)
        try:
            sent = link.ask("send", deadline, pieces=pieces, sender=self._number, room=room, confirm=confirm_timeout)
        except (ConnectionLostError, RequestTimeoutError) as error:
            raise SendError(f"{self._where}: {error}", in_doubt=ids) from error
        return [Receipt(one) for one in sent]

    def close(self, deadline: float | None) -> None:
        if not self._link.dead:
            self._link.ask("close_sender", deadline, sender=self._number)


def _partly_sent(error: JmsClientError, ids: list[str], first: int, number: int) -> SendError:
    """What a failure after the first portion means for all of them."""
    this = ids[first : first + number]
    if isinstance(error, SendError):
        confirmed, in_doubt, unsent = error.confirmed, error.in_doubt, error.unsent
    else:
        confirmed, in_doubt, unsent = (), (), tuple(this)
    return SendError(
        str(error.args[0]), confirmed=(*ids[:first], *confirmed), in_doubt=in_doubt, unsent=(*unsent, *ids[first + number :])
    )


def _portions(pieces: list[bytes]) -> Iterator[list[bytes]]:
    portion: list[bytes] = []
    size = 0
    for piece in pieces:
        if portion and size + len(piece) > SEND_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(piece)
        size += len(piece)
    if portion:
        yield portion


def _identify(message: PlainContent) -> str:
    if message.message_id is None:
        message.message_id = f"ID:{uuid.uuid4().hex}"
    return message.message_id
