"""One delivery on its way through a trigger.

A `Work` is touched by the pipeline thread, then by one handler's thread, then by the pipeline thread again; the hand-over is the
queue's, so it needs no lock.
"""

from __future__ import annotations

from typing import Any

from jmsclient.history.contract import ParkedMessage
from jmsclient.history.entries import Entry
from jmsclient.message import Message
from jmsclient.transport.contract import Arrival
from jmsclient.trigger.decision import AskResolver


class Work:
    """`id` and `source` are None where the message has no id or is not checked; `token` owns its claim while `claimed`;
    `history_lost`: there was no entry, and the store may have lost one (TR-53); `unrecorded` runs although the history cannot be
    asked; `recorded`: its handler's transaction wrote `completed` (TR-36); `parked` is the stored copy that it was made from
    (TR-34)."""

    __slots__ = (
        "answer",
        "arrival",
        "attempt",
        "body_hash",
        "claimed",
        "entry",
        "error",
        "fencing_token",
        "given_up",
        "history_lost",
        "id",
        "lease_until",
        "message",
        "parked",
        "question",
        "recorded",
        "renew_at",
        "renew_until",
        "retries",
        "retry_at",
        "source",
        "started",
        "token",
        "unrecorded",
    )

    def __init__(self, arrival: Arrival, message: Message, id: str | None, source: str | None, token: str) -> None:  # noqa: A002
        self.arrival = arrival
        self.message = message
        self.id = id
        self.source = source
        self.token = token
        self.attempt = 1
        self.body_hash: bytes | None = None
        self.claimed = False
        self.entry: Entry | None = None
        self.fencing_token = 0
        self.started = 0.0
        self.renew_at: float | None = None
        self.renew_until: float | None = None
        self.retries = 0
        self.retry_at: float | None = None
        self.lease_until = 0.0
        self.error: BaseException | None = None
        self.question: AskResolver | None = None
        self.answer: Any = None
        self.given_up = False
        self.history_lost = False
        self.recorded = False
        self.unrecorded = False
        self.parked: ParkedMessage | None = None
