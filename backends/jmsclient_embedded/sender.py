"""Owns the senders of the embedded backend as the contract sees them: identity, overrides, rows, and what became of a send.

Must not know of states, storage or turns. Source: transport/contract.py; rules IF-30 to IF-32; T1 to T4. Thread-safe.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jmsclient.destination import Destination, Topic
from jmsclient.errors import RequestTimeoutError, ResourceAllocationError, SendError, StoreError
from jmsclient.message import PlainContent, Texts
from jmsclient.transport.contract import Receipt, Sender
from jmsclient_embedded.admission import Sending
from jmsclient_embedded.rows import columns, text_columns
from jmsclient_embedded.settings import QueueSettings

if TYPE_CHECKING:
    from jmsclient_embedded.session import EmbeddedSession


class EmbeddedSender(Sender):
    """A sender to one destination."""

    def __init__(self, session: EmbeddedSession, destination: Destination) -> None:
        self._session = session
        self._broker = session.broker
        self._destination = destination
        self._name = destination.name
        self._topic = isinstance(destination, Topic)
        self._short = not self._topic and session.group.transaction is None

    def send(
        self, messages: Sequence[PlainContent], *, room_deadline: float | None, confirm_timeout: float | None
    ) -> list[Receipt]:
        self._session.check_open()
        broker = self._broker
        if type(messages) is Texts:  # they have ids, and nobody looks at them before they are taken
            persistent = messages.persistent
        else:
            persistent = broker.store is not None and any(message.persistent for message in messages)
            for message in messages:
                if message.message_id is None:
                    message.message_id = f"ID:{uuid.uuid4().hex}"
        receipts: list[Receipt] = messages  # type: ignore[assignment]  # each says its id: it is its own receipt, at no cost
        if self._short:
            line = broker.granting.lines.get(self._name)
            stored = persistent and broker.store is not None
            if line is not None and line.plain and not stored and broker.put(line, messages):
                return receipts
        ids = messages.ids if type(messages) is Texts else [one.message_id for one in receipts]
        self._send(messages, ids, persistent, room_deadline, confirm_timeout)
        return receipts

    def _send(
        self,
        messages: Sequence[PlainContent],
        ids: list[str],
        persistent: bool,
        room_deadline: float | None,
        confirm_timeout: float | None,
    ) -> None:
        broker = self._broker
        settings = self._settings()
        if settings.overrides:
            wall = broker.clock.wall()
            for message in messages:
                override(message, settings, wall)
            persistent = any(message.persistent for message in messages)
        rows = None
        if broker.store is not None and persistent:
            rows = text_columns(messages) if type(messages) is Texts else columns(messages)
        where = self._destination.address
        try:
            sending = broker.send(
                lambda: broker.catalogue.route(self._destination),
                messages,
                rows,
                self._session.group,
                room_deadline=room_deadline,
                confirm_timeout=confirm_timeout,
            )
        except RequestTimeoutError as error:
            raise SendError(f"{where}: no confirmation within {confirm_timeout} s", in_doubt=ids) from error
        self._check(sending, ids)

    def _settings(self) -> QueueSettings:
        """Read without the lock: an override that is set this very moment counts for the next send."""
        broker = self._broker
        found = broker.topics.topics.get(self._name) if self._topic else broker.granting.lines.get(self._name)
        return broker.granting.defaults if found is None else found.settings

    def _check(self, sending: Sending, ids: list[str]) -> None:
        where, entered = self._destination.address, sending.entered
        error = sending.error
        if isinstance(error, StoreError):
            raise SendError(f"{where}: {error}", confirmed=ids[: sending.stored], unsent=ids[sending.stored :]) from error
        if entered == len(ids) and error is None:
            return
        if error is None:
            error = ResourceAllocationError(f"{where}: no room within the send timeout")
        if entered:
            raise SendError(f"{where}: {error}", confirmed=ids[:entered], unsent=ids[entered:]) from error
        raise error


def override(message: PlainContent, settings: QueueSettings, wall: float) -> None:
    """Change a message, ours since it was handed over, as its destination says; `wall` is the time of sending."""
    if settings.time_to_deliver_override >= 0:
        delay = settings.time_to_deliver_override
        message.delivery_time = wall + delay if delay else None
    if settings.time_to_live_override >= 0:
        time_to_live = settings.time_to_live_override
        message.expiration = wall + time_to_live if time_to_live else None
    if settings.priority_override >= 0:
        message.priority = settings.priority_override
    if settings.delivery_mode_override is not None:
        message.persistent = settings.delivery_mode_override == "persistent"
