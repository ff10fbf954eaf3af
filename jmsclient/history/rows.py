"""An entry as a row of a table, and back: what the SQLite and SQL histories share. Pure.

Must know no database: rows are tuples in the order of `COLUMNS`. Source: rules TR-34 to TR-46.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from jmsclient.history.contract import ParkedMessage
from jmsclient.history.entries import State, Stored

COLUMNS = (
    "state, token, fencing_token, lease_until, attempt, started_at, updated_at, expires_at, made_over, left_by, "
    "outcome, reason, owner, body_hash, copies, version, decision, decided_by, decided_at"
)
Key = tuple[str, str, str, str]
"""Namespace, trigger, source, id."""


def to_row(stored: Stored) -> tuple[Any, ...]:
    """In the order of `COLUMNS`."""
    return (
        stored.state.value,
        stored.token,
        stored.fencing_token,
        stored.lease_until,
        stored.attempt,
        stored.started_at,
        stored.updated_at,
        stored.expires_at,
        None if stored.before is None else _to_json(stored.before),
        stored.by,
        stored.outcome,
        stored.reason,
        stored.owner,
        stored.body_hash,
        stored.copies,
        stored.version,
        stored.decision,
        stored.decided_by,
        stored.decided_at,
    )


FIELDS = tuple(field.name for field in fields(Stored))  # in the order of COLUMNS


def from_row(row: Sequence[Any]) -> Stored:
    """An entry of a state that this version does not know is UNKNOWN."""
    values = dict(zip(FIELDS, row, strict=False))  # one of format 1 that an entry was made over ends with its version
    try:
        values["state"] = State(values["state"])
    except ValueError:  # of a version that this one does not know
        values["state"] = State.UNKNOWN
    if values["before"] is not None:
        values["before"] = _from_json(values["before"])
    return Stored(**values)


def _to_json(before: Stored) -> str:
    row = list(to_row(before))
    row[13] = None if before.body_hash is None else before.body_hash.hex()
    return json.dumps(row)


def _from_json(text: str) -> Stored:
    row = json.loads(text)
    row[13] = None if row[13] is None else bytes.fromhex(row[13])
    return from_row(row)


def parked_of(row: Sequence[Any], now: float) -> ParkedMessage:
    """From trigger, id, source, reason, delivery count, parked at, copies, owner, attempt, envelope, decision, by, decided at."""
    trigger, id_, source, reason, delivery_count, parked_at, copies, owner, attempt, envelope, decision, by, decided_at = row
    return ParkedMessage(
        trigger=trigger,
        id=id_,
        source=source,
        reason=reason or "",
        delivery_count=delivery_count,
        age=max(0.0, now - parked_at),
        copies=copies,
        owner=owner,
        attempt=attempt,
        envelope=envelope,
        decision=decision,
        decided_by=by,
        decided=0.0 if decided_at is None else max(0.0, now - decided_at),
    )
