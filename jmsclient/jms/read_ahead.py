"""Whether a consumer reads ahead: one pure function of who has a say, with the reason in words (RA-1, RA-3, RA-4, IF-16)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from jmsclient.destination import ReadAheadAllowed
from jmsclient.options import AcknowledgeMode, DefaultReadAhead


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
