"""RA-1, RA-3, RA-4: who decides on read ahead."""

from __future__ import annotations

from typing import Any

import pytest

from jmsclient.destination import ReadAheadAllowed, parse_destination
from jmsclient.jms.read_ahead import ReadAheadDecision, ReadAheadStatus, decide
from jmsclient.options import AcknowledgeMode, DefaultReadAhead

WORDS = ["YES", "NO", "AS_DEST", "AS_Q_DEF", "AS_TOPIC_DEF"]
DEFAULTS = [DefaultReadAhead.NO, DefaultReadAhead.YES, DefaultReadAhead.DISABLED]
ON = {("YES", "NO"), ("YES", "YES"), ("AS_DEST", "YES"), ("AS_Q_DEF", "YES"), ("AS_TOPIC_DEF", "YES")}


def decided(allowed: str = "YES", default: DefaultReadAhead = DefaultReadAhead.NO, **settings: Any) -> ReadAheadDecision:
    flag = parse_destination(f"queue:///Q?readAheadAllowed={allowed}").read_ahead_allowed
    given = {"mode": AcknowledgeMode.AUTO, "read_ahead_messages": 1000, "prefetch": None, "capable": True, **settings}
    return decide(flag, default, **given)


@pytest.mark.parametrize("default", DEFAULTS)
@pytest.mark.parametrize("allowed", WORDS)
def test_ra1_exactly_five_of_fifteen_cells_are_on(allowed: str, default: DefaultReadAhead) -> None:
    assert decided(allowed, default).used == ((allowed, default.name) in ON)


@pytest.mark.parametrize("allowed", WORDS)
def test_ra1_unknown_counts_as_no(allowed: str) -> None:
    assert decided(allowed, DefaultReadAhead.UNKNOWN).used == decided(allowed, DefaultReadAhead.NO).used


@pytest.mark.parametrize(
    ("settings", "by"),
    [
        ({"mode": AcknowledgeMode.TRANSACTED}, "session"),
        ({"mode": AcknowledgeMode.CLIENT}, "acknowledge mode"),
        ({"mode": AcknowledgeMode.INDIVIDUAL}, "acknowledge mode"),
        ({"read_ahead_messages": 0}, "consumer"),
        ({"prefetch": 0}, "consumer"),
        ({"capable": False}, "transport"),
    ],
    ids=lambda value: str(value),
)
def test_ra3_asked_for_and_not_possible_is_inhibited_with_a_reason(settings: dict[str, Any], by: str) -> None:
    decision = decided(**settings)
    assert (decision.status, decision.decided_by) == (ReadAheadStatus.INHIBITED, by)
    assert decision.reason


def test_ra3_dups_ok_may_read_ahead() -> None:
    assert decided(mode=AcknowledgeMode.DUPS_OK).used


@pytest.mark.parametrize(
    ("allowed", "default", "status", "by"),
    [
        ("NO", DefaultReadAhead.YES, ReadAheadStatus.NO, "destination"),
        ("YES", DefaultReadAhead.DISABLED, ReadAheadStatus.DISABLED, "provider"),
        ("AS_DEST", DefaultReadAhead.NO, ReadAheadStatus.NO, "provider"),
        ("AS_DEST", DefaultReadAhead.YES, ReadAheadStatus.YES, "provider"),
        ("YES", DefaultReadAhead.NO, ReadAheadStatus.YES, "destination"),
    ],
)
def test_ra4_status_and_who_decided(allowed: str, default: DefaultReadAhead, status: ReadAheadStatus, by: str) -> None:
    decision = decided(allowed, default)
    assert (decision.status, decision.decided_by) == (status, by)


def test_ra26_numbers_of_the_statuses() -> None:
    assert [status.name for status in sorted(ReadAheadStatus)] == ["NO", "YES", "DISABLED", "INHIBITED", "BACKLOG"]
    assert [int(status) for status in sorted(ReadAheadStatus)] == [0, 1, 2, 3, 4]
    assert ReadAheadAllowed.AS_DEST == -1
