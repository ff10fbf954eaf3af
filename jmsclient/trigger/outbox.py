"""What a trigger sends: its handlers' gathered messages and dead-lettered copies. Thread-safe; handler threads call it.

Whoever sends takes a line (a transport session and a sender for each destination) that nobody uses, and gives it back afterwards:
no two threads wait for each other, and there are never more lines than sends at once. What belongs to a transaction goes out on
the line of that transaction instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from jmsclient.clock import Clock
from jmsclient.destination import Destination
from jmsclient.errors import ConnectionLostError, JmsClientError, RequestTimeoutError, SendError
from jmsclient.jms.outgoing import MessageIds, outgoing
from jmsclient.message import Message, PlainContent
from jmsclient.transport.contract import Sender, Transport, TransportSession
from jmsclient.trigger.delivery import Gathered
from jmsclient.trigger.unreadable import readable

SEND_TIMEOUT = 30.0


class GatheredInDoubtError(JmsClientError):
    """A handler is done, and what it sent has not arrived, or nobody knows; no fault of its own."""


class Line:
    """Senders by destination on one transport session, opened on first use. One thread at a time."""

    def __init__(self, session: TransportSession, clock: Clock) -> None:
        self.session = session
        self._clock = clock
        self._senders: dict[str, Sender] = {}

    def send(self, destination: Destination, contents: Sequence[PlainContent], deadline: float | None = None) -> None:
        """Send these, confirmed; wait for room until `deadline` (None: SEND_TIMEOUT from now). Raises what `Sender.send` does."""
        deadline = self._clock.deadline(SEND_TIMEOUT) if deadline is None else deadline
        sender = self._senders.get(destination.address)
        if sender is None:
            sender = self._senders[destination.address] = self.session.open_sender(destination, deadline)
        sender.send(contents, room_deadline=deadline, confirm_timeout=SEND_TIMEOUT)


class Outbox:
    """See the module."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._ids = MessageIds()
        self._lines: deque[Line] = deque()
        self._idle: deque[Line] = deque()  # append and pop are atomic: no lock

    def send_gathered(self, gathered: Sequence[Gathered], line: Line | None = None) -> None:
        """Send what a handler asked for, confirmed, one batch a destination in the order asked; on `line`, if given. Raises what
        `Sender.send` does, and GatheredInDoubtError where some of it has or may have arrived, or a provider that cannot be reached
        has not got it; in a transaction nothing has arrived."""
        batches: dict[Destination, list[PlainContent]] = {}
        for one in gathered:
            content = outgoing(
                one.message,
                destination=one.destination,
                message_id=self._ids.next(),
                now=self._clock.wall(),
                persistent=True if one.persistent is None else one.persistent,
                priority=one.priority,
                time_to_live=one.time_to_live,
                delivery_delay=one.delivery_delay or 0.0,
            )
            batches.setdefault(one.destination, []).append(content)
        for number, (destination, contents) in enumerate(batches.items()):
            if line is not None:
                line.send(destination, contents)
            else:
                self._send_gathered(destination, contents, is_first=number == 0)

    def _send_gathered(self, destination: Destination, contents: Sequence[PlainContent], *, is_first: bool) -> None:
        try:
            self._send(destination, contents)
        except JmsClientError as error:
            if is_first and _nothing_arrived(error):
                raise
            raise GatheredInDoubtError(f"to {destination.address}: {error}") from error

    def dead_letter(
        self, destination: Destination, message: Message, properties: dict[str, Any], deadline: float | None = None
    ) -> None:
        """Send a full copy under its own id, priority and persistence, with the reason as properties; room is waited for until
        `deadline`. One that cannot be read is sent as what stands for it."""
        old = readable(message.content)
        message = Message.received(old, message.delivery_count)
        content = PlainContent(
            kind=old.kind,
            body=old.body(),
            properties={**old.properties(), **properties},
            message_id=old.message_id or self._ids.next(),
            destination=destination.address,
            persistent=message.persistent,
            priority=message.priority,
            timestamp=old.header("timestamp"),
            correlation_id=old.header("correlation_id"),
            reply_to=old.header("reply_to"),
            type=old.header("type"),
        )
        self._send(destination, [content], deadline)

    def close(self) -> None:
        """Close its sessions. Idempotent."""
        while self._lines:
            self._lines.pop().session.close(self._clock.deadline(SEND_TIMEOUT))
        self._idle.clear()

    def _send(self, destination: Destination, contents: Sequence[PlainContent], deadline: float | None = None) -> None:
        try:
            line = self._idle.pop()  # the one used last
        except IndexError:
            line = Line(self._transport.open_session(transacted=False, deadline=self._clock.deadline(SEND_TIMEOUT)), self._clock)
            self._lines.append(line)
        try:
            if deadline is None:
                line.send(destination, contents)
            else:
                line.send(destination, contents, deadline)
        finally:
            self._idle.append(line)


def _nothing_arrived(error: JmsClientError) -> bool:
    """And that is not because the provider was out of reach: it has refused, and will do so again."""
    if isinstance(error, SendError):
        return not error.in_doubt and not error.confirmed and not isinstance(error.__cause__, ConnectionLostError)
    return not isinstance(error, ConnectionLostError | RequestTimeoutError)
