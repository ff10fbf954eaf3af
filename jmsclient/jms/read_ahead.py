"""Whether a consumer reads ahead: one pure function of who has a say, with the reason in words; and the view people get of it.

Rules RA-1, RA-3, RA-4, RA-26, IF-16.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from jmsclient.destination import ReadAheadAllowed
from jmsclient.options import AcknowledgeMode, DefaultReadAhead

if TYPE_CHECKING:
    from jmsclient.intake import Intake


class ReadAheadStatus(IntEnum):
    """RA-26. NO: not asked for; DISABLED: forbidden by the provider; INHIBITED: asked for and not possible here."""

    NO = 0
    YES = 1
    DISABLED = 2
    INHIBITED = 3
    BACKLOG = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadAheadDecision:
    """The status, who decided it (destination, provider, session, acknowledge mode, consumer or transport), and why."""

    status: ReadAheadStatus
    decided_by: str
    reason: str

    @property
    def used(self) -> bool:
        """Non-persistent messages are taken."""
        return self.status is ReadAheadStatus.YES


_MODES = (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK)


def decide(
    allowed: ReadAheadAllowed,
    default: DefaultReadAhead,
    *,
    mode: AcknowledgeMode,
    read_ahead_messages: int,
    prefetch: int | None,
    capable: bool,
) -> ReadAheadDecision:
    """RA-1 and RA-3: `allowed` is what the destination says, `default` the provider (DEFREADA), `capable` whether the transport
    can settle on arrival, `prefetch` what the caller gave."""
    asked = _asked(allowed, default)
    return asked if not asked.used else _inhibited(mode, read_ahead_messages, prefetch, capable) or asked


def _asked(allowed: ReadAheadAllowed, default: DefaultReadAhead) -> ReadAheadDecision:
    """The table of rules.md: five of its fifteen cells are on."""
    status = ReadAheadStatus
    if allowed is ReadAheadAllowed.NO:
        return _decision(status.NO, "destination", "the destination says readAheadAllowed=NO")
    if default is DefaultReadAhead.DISABLED:
        return _decision(status.DISABLED, "provider", "the provider's default read ahead (DEFREADA) is DISABLED")
    if allowed is ReadAheadAllowed.YES:
        return _decision(status.YES, "destination", "the destination says readAheadAllowed=YES and the provider does not forbid it")
    if default is DefaultReadAhead.YES:
        return _decision(status.YES, "provider", "the destination leaves it to the provider, whose default (DEFREADA) is YES")
    said = "whose default (DEFREADA) is NO" if default is DefaultReadAhead.NO else "which names no default, so NO"
    return _decision(status.NO, "provider", f"the destination leaves it to the provider, {said}")


def _inhibited(mode: AcknowledgeMode, read_ahead_messages: int, prefetch: int | None, capable: bool) -> ReadAheadDecision | None:
    status = ReadAheadStatus.INHIBITED
    if mode is AcknowledgeMode.TRANSACTED:
        return _decision(status, "session", "it was asked for, but the session is transacted")
    if mode not in _MODES:
        return _decision(status, "acknowledge mode", f"it was asked for, but the acknowledge mode is {mode.name}")
    if prefetch == 0:
        return _decision(status, "consumer", "it was asked for, but the consumer was made with prefetch=0")
    if read_ahead_messages == 0:
        return _decision(status, "consumer", "it was asked for, but read_ahead_messages is 0")
    if not capable:
        return _decision(status, "transport", "it was asked for, but this provider cannot settle messages on arrival")
    return None


def _decision(status: ReadAheadStatus, decided_by: str, reason: str) -> ReadAheadDecision:
    return ReadAheadDecision(status=status, decided_by=decided_by, reason=reason)


class ReadAhead:
    """What a consumer's read ahead does, and the numbers of RA-26. A live view, readable from any thread."""

    __slots__ = ("_decision", "_intake")

    def __init__(self, decision: ReadAheadDecision, intake: Intake) -> None:
        self._decision = decision
        self._intake = intake

    @property
    def status(self) -> ReadAheadStatus:
        """BACKLOG while taken messages wait for an application that takes nothing (RA-13)."""
        if self._intake.idle and self._decision.used and self._intake.counters.buffered_taken:
            return ReadAheadStatus.BACKLOG
        return self._decision.status

    @property
    def reason(self) -> str:
        return self._decision.reason

    def explain(self) -> str:
        """Who decided it and why, in one sentence (RA-4)."""
        used = "Read ahead is used" if self._decision.used else f"Read ahead is not used ({self.status.name})"
        if self.status is ReadAheadStatus.BACKLOG:
            used = "Read ahead is used, and its messages wait for an application that takes none (BACKLOG)"
        return f"{used}: the {self._decision.decided_by} decided, for {self._decision.reason}."

    @property
    def buffered_messages(self) -> int:
        return self._intake.buffered

    @property
    def buffered_taken(self) -> int:
        """How many messages a kill -9 would lose now (RA-25)."""
        return self._intake.counters.buffered_taken

    @property
    def buffered_bytes(self) -> int:
        return self._intake.counters.buffered_bytes

    @property
    def oldest_age(self) -> float:
        """Seconds."""
        return self._intake.oldest_age

    @property
    def held(self) -> int:
        return self._intake.counters.held

    @property
    def refused(self) -> int:
        return self._intake.counters.refused

    @property
    def fetched(self) -> int:
        return self._intake.counters.fetched

    @property
    def delivered(self) -> int:
        return self._intake.counters.delivered

    @property
    def requests_sent(self) -> int:
        return self._intake.counters.requests_sent

    @property
    def released(self) -> int:
        return self._intake.counters.released

    @property
    def purged(self) -> int:
        return self._intake.counters.purged

    @property
    def expired(self) -> int:
        return self._intake.counters.expired

    @property
    def discarded_on_close(self) -> int:
        return self._intake.counters.discarded

    def __repr__(self) -> str:
        return f"<ReadAhead {self.status.name} buffered={self.buffered_messages}>"
