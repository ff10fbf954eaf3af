"""What a trigger sends: its handlers' gathered messages and dead-lettered copies. Thread-safe; handler threads call it.

One transport session and one sender a destination, opened on first use and shared under a lock: a send is rare beside a handler.
"""

from __future__ import annotations

import threading
from typing import Any

from jmsclient.clock import Clock
from jmsclient.destination import Destination
from jmsclient.jms.outgoing import MessageIds, outgoing
from jmsclient.message import Message, PlainContent
from jmsclient.transport.contract import Sender, Transport, TransportSession
from jmsclient.trigger.delivery import Gathered

SEND_TIMEOUT = 30.0


class Outbox:
    """Senders by destination on a session of its own."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._lock = threading.Lock()
        self._ids = MessageIds()
        self._session: TransportSession | None = None
        self._senders: dict[str, Sender] = {}

    def send_gathered(self, gathered: list[Gathered]) -> None:
        """Send what a handler asked for, confirmed, one batch a destination in the order asked. Raises what `Sender.send` does."""
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
        for destination, contents in batches.items():
            self._send(destination, contents)

    def dead_letter(self, destination: Destination, message: Message, properties: dict[str, Any]) -> None:
        """Send a full copy under its own id, priority and persistence, with the reason as properties."""
        old = message.content
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
        self._send(destination, [content])

    def close(self) -> None:
        """Close the session. Idempotent."""
        with self._lock:
            session, self._session, self._senders = self._session, None, {}
        if session is not None:
            session.close(self._clock.deadline(SEND_TIMEOUT))

    def _send(self, destination: Destination, contents: list[PlainContent]) -> None:
        deadline = self._clock.deadline(SEND_TIMEOUT)
        with self._lock:
            if self._session is None:
                self._session = self._transport.open_session(transacted=False, deadline=deadline)
            sender = self._senders.get(destination.address)
            if sender is None:
                sender = self._senders[destination.address] = self._session.open_sender(destination, deadline)
            sender.send(contents, room_deadline=deadline, confirm_timeout=SEND_TIMEOUT)
