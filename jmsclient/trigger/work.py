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
    (TR-34); `copying`: it is not settled before its copy is confirmed."""

    # What most messages never change is the class's: five stores a message, not twenty-four.
    answer: Any = None
    attempt: int = 1
    body_hash: bytes | None = None
    claimed: bool = False
    copying: bool = False
    entry: Entry | None = None
    error: BaseException | None = None
    fencing_token: int = 0
    given_up: bool = False
    history_lost: bool = False
    lease_until: float = 0.0
    outcome: str = "done"
    """What its `completed` entry says, or would say."""
    parked: ParkedMessage | None = None
    question: AskResolver | None = None
    recorded: bool = False
    renew_at: float | None = None
    renew_until: float | None = None
    retries: int = 0
    retry_at: float | None = None
    started: float = 0.0
    unrecorded: bool = False

    def __init__(self, arrival: Arrival, message: Message, id: str | None, source: str | None, token: str) -> None:  # noqa: A002
        self.arrival = arrival
        self.message = message
        self.id = id
        self.source = source
        self.token = token
