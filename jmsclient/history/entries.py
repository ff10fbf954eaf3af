"""What a document history keeps about one message, and how each command changes it. Pure: time comes in as an argument.

Must know no store, clock or thread. An entry says *started*, never *received*. `apply` is the one description of the
transitions; the memory and SQLite histories run it, and the Redis script repeats it and is held to it by the same tests.
Source: rules TR-34 to TR-46 and TR-57.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from jmsclient.history.commands import (
    KNOWN,
    VERSION,
    Alike,
    Claim,
    Command,
    Complete,
    Decide,
    Entry,
    Join,
    Park,
    Release,
    Renew,
    Reply,
    State,
    frames,
)

__all__ = [
    "Alike",
    "Claim",
    "Command",
    "Complete",
    "Decide",
    "Entry",
    "Join",
    "KNOWN",
    "Park",
    "Release",
    "Renew",
    "Reply",
    "State",
    "Stored",
    "VERSION",
    "apply",
    "copy_change",
    "frames",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """An entry as a store keeps it, times absolute on the store's clock (seconds).

    `lease_until` None: a deadline is missing, which means locked until `expires_at` (TR-41). `before` is what a claim was made
    over, for its repeat and for a release without a run. `by` is the token of the last release or park that left this
    entry to another owner, so that its repeat changes nothing (TR-39).
    """

    state: State
    token: str
    fencing_token: int
    lease_until: float | None
    attempt: int
    started_at: float
    updated_at: float
    expires_at: float
    before: Stored | None = None
    by: str | None = None
    outcome: str | None = None
    reason: str | None = None
    owner: str | None = None
    body_hash: bytes | None = None
    copies: int = 0
    version: int = VERSION
    decision: str | None = None
    decided_by: str | None = None
    decided_at: float | None = None

    @property
    def locked_until(self) -> float:
        return self.expires_at if self.lease_until is None else self.lease_until

    @property
    def keeps_copy(self) -> bool:
        """A whole message is kept with it, and for its sake the entry has no time to live: until it is completed (TR-34)."""
        return self.expires_at == math.inf and self.state not in (State.COMPLETED, State.JOINED)

    def waited_too_long(self, now: float) -> bool:
        """A set of messages that never became complete (TR-63)."""
        return self.state is State.IN_DOUBT and self.decision == "join" and self.locked_until <= now

    def undecided(self, now: float) -> bool:
        """A parked copy that waits for a decision, or whose run was abandoned."""
        if self.state is State.IN_DOUBT:
            return self.decision is None
        return self.keeps_copy and self.state is State.PROCESSING and self.locked_until <= now

    def seen(self, now: float) -> Entry:
        """As the client is shown it."""
        return Entry(
            state=self.state,
            token=self.token,
            fencing_token=self.fencing_token,
            lease_left=max(0.0, self.locked_until - now),
            attempt=self.attempt,
            outcome=self.outcome,
            reason=self.reason,
            owner=self.owner,
            body_hash=self.body_hash,
            copies=self.copies,
            started=max(0.0, now - self.started_at),
            updated=max(0.0, now - self.updated_at),
            version=self.version,
            decision=self.decision,
            decided_by=self.decided_by,
            decided=0.0 if self.decided_at is None else max(0.0, now - self.decided_at),
        )


def copy_change(before: Stored | None, after: Stored | None, command: Command) -> Literal["put", "add", "drop"] | None:
    """What a command does to the copy that is kept with an entry: `put` the command's own, `add` a member's frame, or drop it."""
    if isinstance(command, Join):
        return "add" if before is not None else "put"
    if isinstance(command, Park) and (before is None or before.state is not State.IN_DOUBT):
        return "put"
    return "drop" if before is not None and before.keeps_copy and (after is None or not after.keeps_copy) else None


class _Times(TypedDict):
    """The fields that every write of a lease sets."""

    lease_until: float | None
    updated_at: float
    expires_at: float


def apply(stored: Stored | None, command: Command, now: float, *, cautious: bool = False) -> tuple[Stored | None, Reply]:
    """The entry after `command`, and the answer. `stored` must be None where it is past its `expires_at` (TR-44)."""
    match command:
        case Claim():
            return _claim(stored, command, now, cautious)
        case Complete():
            return _complete(stored, command, now)
        case Release():
            return _release(stored, command, now)
        case Renew():
            return _renew(stored, command, now)
        case Park():
            return _park(stored, command, now)
        case Decide():
            return _decide(stored, command, now)
        case Join():
            return _join(stored, command, now)
    raise TypeError(f"not a history command: {command!r}")


def _claim(stored: Stored | None, command: Claim, now: float, cautious: bool) -> tuple[Stored | None, Reply]:
    if stored is not None and stored.version == VERSION and stored.state is State.PROCESSING and stored.token == command.token:
        # The first reply was lost: answer as then (TR-39), and let the lease run from now.
        renewed = replace(stored, **_lease(stored, command, now))
        return renewed, _owned(renewed, stored.before.seen(now) if stored.before else None, cautious)
    before = stored.seen(now) if stored else None
    if not _may_claim(stored, command, now, cautious):
        return stored, Reply(done=False, entry=before, cautious=cautious)
    claimed = Stored(
        state=State.PROCESSING,
        token=command.token,
        fencing_token=_fence(stored, now),
        attempt=stored.attempt + 1 if stored else 1,
        started_at=now,
        before=replace(stored, before=None) if stored else None,
        owner=command.owner,
        body_hash=command.body_hash if command.body_hash is not None or stored is None else stored.body_hash,
        decision=stored.decision if stored else None,
        decided_by=stored.decided_by if stored else None,
        decided_at=stored.decided_at if stored else None,
        **_lease(stored, command, now),
    )
    return claimed, _owned(claimed, before, cautious)


def _may_claim(stored: Stored | None, command: Claim, now: float, cautious: bool) -> bool:
    if stored is None:
        return not command.decided and (command.undeterred or not cautious)
    if stored.version != VERSION:
        return False
    if command.body_hash is not None and stored.body_hash not in (None, command.body_hash):
        return False  # TR-47: another message under the same id
    if stored.state is State.RETRYING:
        return stored.locked_until <= now or stored.token == command.token
    if stored.state is State.IN_DOUBT:
        return command.decided and stored.decision == "new"
    return command.take_over and stored.state is State.PROCESSING and stored.locked_until <= now


def _complete(stored: Stored | None, command: Complete, now: float) -> tuple[Stored | None, Reply]:
    if _held_by_another(stored, command):
        return stored, _lost(stored, now)
    if stored is not None and stored.state in (State.COMPLETED, State.JOINED):
        return stored, _owned(stored, None, False)
    completed = replace(
        stored or _anew(command, now),
        state=State.JOINED if command.outcome == "joined" else State.COMPLETED,
        outcome=command.outcome,
        before=None,
        lease_until=now,
        updated_at=now,
        expires_at=now + command.history_ttl,
    )
    return completed, _owned(completed, None, False)


def _release(stored: Stored | None, command: Release, now: float) -> tuple[Stored | None, Reply]:
    undo = command.to is None
    before = stored.seen(now) if stored else None
    if undo and stored is not None and stored.by == command.token and stored.version == VERSION:
        return stored, Reply(done=True, entry=before, token=command.token)  # undone before; the reply was lost
    if _held_by_another(stored, command):
        return stored, _lost(stored, now)
    if stored is not None and stored.state not in ((State.PROCESSING,) if undo else OPEN):
        return stored, Reply(done=False, entry=before)
    if command.to is not None:
        released = replace(
            stored or _anew(command, now), state=command.to, reason=command.reason, before=None, **_lease(stored, command, now)
        )
        return released, _owned(released, before, False)
    left = None
    if stored is not None and stored.before is not None:
        left = replace(stored.before, by=command.token, updated_at=now, expires_at=_end(stored, command, now))
    return left, Reply(done=True, entry=before, token=command.token)


def _renew(stored: Stored | None, command: Renew, now: float) -> tuple[Stored | None, Reply]:
    if _held_by_another(stored, command):
        return stored, _lost(stored, now)
    if stored is not None and stored.state not in (State.PROCESSING, State.RETRYING):
        return stored, Reply(done=False, entry=stored.seen(now))
    renewed = replace(stored or _anew(command, now), **_lease(stored, command, now))
    return renewed, _owned(renewed, stored.seen(now) if stored else None, False)


def _park(stored: Stored | None, command: Park, now: float) -> tuple[Stored | None, Reply]:
    before = stored.seen(now) if stored else None
    if stored is not None and not _may_park(stored, command, now):
        return stored, Reply(done=False, entry=before)
    parked = stored or _anew(command, now)
    if parked.state is not State.IN_DOUBT or parked.waited_too_long(now):
        parked = replace(
            parked,
            state=State.IN_DOUBT,
            reason=command.reason,
            before=None,
            by=command.token,
            lease_until=now,
            updated_at=now,
            expires_at=math.inf,
            decision=None,
            decided_by=None,
            decided_at=None,
        )
    elif parked.by != command.token:
        parked = replace(parked, by=command.token, copies=parked.copies + 1, updated_at=now)
    return parked, Reply(done=True, entry=before, token=parked.token, attempt=parked.attempt)


def _may_park(stored: Stored, command: Park, now: float) -> bool:
    if stored.version != VERSION:
        return False
    if stored.state in (State.IN_DOUBT, State.FAILED):
        return True
    over = stored.token == command.token or stored.locked_until <= now or command.reason == IN_PROGRESS
    return stored.state in OPEN and over


def _decide(stored: Stored | None, command: Decide, now: float) -> tuple[Stored | None, Reply]:
    before = stored.seen(now) if stored else None
    decidable = stored is not None and (stored.state is State.IN_DOUBT or stored.undecided(now))
    if stored is None or stored.version != VERSION or not decidable:
        return stored, Reply(done=False, entry=before)
    decided = replace(
        stored,
        state=State.IN_DOUBT,
        before=None,
        lease_until=now,
        decision=command.decision,
        decided_by=command.by,
        decided_at=now,
    )
    return decided, Reply(done=True, entry=before, token=decided.token, attempt=decided.attempt)


def _join(stored: Stored | None, command: Join, now: float) -> tuple[Stored | None, Reply]:
    before = stored.seen(now) if stored else None
    members = (stored.body_hash if stored else None) or b"\n"
    if stored is not None and stored.version == VERSION and command.line in members:
        return stored, Reply(done=True, entry=before, token=stored.token, attempt=stored.attempt)
    waits = stored is None or (stored.decision == "join" and stored.state is State.IN_DOUBT and stored.locked_until > now)
    if not waits or command.prefix in members or (stored is not None and stored.version != VERSION):
        return stored, Reply(done=False, entry=before)
    members += command.line[1:]
    complete = members.count(b"\n") - 1 >= command.needed
    waiting = stored or replace(_anew(command, now), state=State.IN_DOUBT, attempt=0, expires_at=math.inf)
    joined = replace(
        waiting,
        body_hash=members,
        lease_until=now if complete else stored.lease_until if stored else now + command.expires,
        decision="new" if complete else "join",
        decided_by="join" if complete else None,
        decided_at=now,
        updated_at=now,
    )
    return joined, Reply(done=True, entry=before, token=joined.token, attempt=joined.attempt)


IN_PROGRESS = "in_progress"
"""The reason to park a copy although its owner's lease is alive, where a trigger says so (TR-35); a late `complete` settles it."""
OPEN = (State.PROCESSING, State.RETRYING, State.FAILED)
"""States whose owner has not finished."""


def _fence(stored: Stored | None, now: float) -> int:
    """Rises for the id: max(last + 1, the store's time in microseconds) (TR-39)."""
    return max(stored.fencing_token + 1 if stored else 0, int(now * 1_000_000))


def _end(stored: Stored | None, command: Command, now: float) -> float:
    """When the entry disappears by itself: never, while a copy is kept with it."""
    return math.inf if stored is not None and stored.keeps_copy else now + command.history_ttl


def _lease(stored: Stored | None, command: Claim | Release | Renew, now: float) -> _Times:
    lease = command.lease
    if lease is None and stored is not None and stored.keeps_copy:
        lease = command.history_ttl
    return {
        "lease_until": None if lease is None else now + lease,
        "updated_at": now,
        "expires_at": _end(stored, command, now),
    }


def _held_by_another(stored: Stored | None, command: Command) -> bool:
    """An entry of an unknown version counts as another's: it is never overwritten."""
    return stored is not None and (stored.token != command.token or stored.version != VERSION)


def _owned(stored: Stored, before: Entry | None, cautious: bool) -> Reply:
    return Reply(
        done=True,
        entry=before,
        token=stored.token,
        fencing_token=stored.fencing_token,
        attempt=stored.attempt,
        cautious=cautious,
    )


def _lost(stored: Stored | None, now: float) -> Reply:
    return Reply(done=False, entry=stored.seen(now) if stored else None, lease_lost=True)


def _anew(command: Command, now: float) -> Stored:
    """The entry was absent (evicted, expired, lost): it is written again under the caller's token (TR-39)."""
    return Stored(
        state=State.PROCESSING,
        token=command.token,
        fencing_token=_fence(None, now),
        lease_until=now,
        attempt=1,
        started_at=now,
        updated_at=now,
        expires_at=now,
        owner=command.owner if isinstance(command, Park) else None,
    )
