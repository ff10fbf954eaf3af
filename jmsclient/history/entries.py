"""What a document history keeps about one message, and how each command changes it. Pure: time comes in as an argument.

An entry says *started*, never *received*. `apply` is the one description of the transitions; the memory and SQLite histories run it,
and the Redis script repeats it and is held to it by the same tests. Source: rules TR-34 to TR-46 and TR-57.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

VERSION = 1
"""Version of the entry format. An entry of another version is In Doubt, never overwritten."""


class State(Enum):
    """Where a message stands in the history of one trigger."""

    PROCESSING = "processing"
    COMPLETED = "completed"
    RETRYING = "retrying"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    JOINED = "joined"
    UNKNOWN = "unknown"
    """Written by a version that this one does not understand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One entry as its store gave it back; `lease_left` and the ages were worked out by the store's own clock.

    `lease_left` is seconds, 0.0 when the lease is over; `attempt` counts the runs begun (1 first); `copies` how many further
    copies of a parked message were acknowledged; `started` and `updated` are seconds ago.
    """

    state: State
    token: str = ""
    fencing_token: int = 0
    lease_left: float = 0.0
    attempt: int = 1
    outcome: str | None = None
    reason: str | None = None
    owner: str | None = None
    body_hash: bytes | None = None
    copies: int = 0
    started: float = 0.0
    updated: float = 0.0
    version: int = VERSION

    @property
    def lease_alive(self) -> bool:
        return self.lease_left > 0


# -- commands -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """What all have: the entry's key (trigger id, message id, the id's source) and the owner's token."""

    trigger: str
    id: str
    source: str = "JMSMessageID"
    token: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim(Command):
    """Say *started*, if nothing forbids it, and learn what was there before: one atomic step (TR-38).

    Claims: no entry (unless the store is `cautious` and `delivery_count` is not 1), and `retrying` whose lease is over. With
    `take_over` also an abandoned `processing` (TR-36, TR-55), and a parked `in_doubt` that was decided NEW. An entry with another
    body hash or of another version is never claimed. Repeated with the same token it answers as the first time.
    """

    lease: float = 60.0
    history_ttl: float = 86400.0
    delivery_count: int = 1
    take_over: bool = False
    owner: str | None = None
    body_hash: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Complete(Command):
    """Say *done*. Own token, even past the lease: done. No entry: written anew. Another token: lease lost (TR-39).
    An undecided parked entry that this token left behind is settled as Duplicate (TR-34)."""

    outcome: str = "done"
    history_ttl: float = 86400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Release(Command):
    """Give a claim up. `to` None: as if it had never been made (the service did not start; an earlier planned retry stays
    planned). RETRYING: our own redelivery is planned. FAILED: dead-lettering has begun (TR-45). `lease` keeps a lease alive
    meanwhile (TR-57), 0.0 ends it."""

    to: State | None = None
    lease: float = 0.0
    reason: str | None = None
    history_ttl: float = 86400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Renew(Command):
    """Prolong the lease to `lease` seconds from now. No entry: written anew with this token (TR-39)."""

    lease: float = 60.0
    history_ttl: float = 86400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Park(Command):
    """Make the entry `in_doubt` together with a full copy, in one step (TR-34). Parks: no entry, an abandoned `processing`,
    `retrying` without lease, `failed`, or an entry of this token. A further copy of a parked message only raises `copies`."""

    envelope: bytes = b""
    reason: str = ""
    delivery_count: int = -1
    history_ttl: float = 86400.0
    owner: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """The answer to one command.

    `done`: the command took effect (for Claim: claimed). `entry`: what was there before it, None where there was nothing.
    `token` and `fencing_token` are those of the entry now owned; `attempt` the number of the run that a claim begins.
    `lease_lost`: another owner holds the entry. `cautious`: the store lost what it knew (TR-53). `prior_token` (Park): who
    had claimed it before.
    """

    done: bool
    entry: Entry | None = None
    token: str = ""
    fencing_token: int = 0
    attempt: int = 1
    lease_lost: bool = False
    cautious: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """An entry as a store keeps it, times absolute on the store's clock (seconds). `planned` is the attempt count that a
    release without a run goes back to (0: no entry at all)."""

    state: State
    token: str
    fencing_token: int
    lease_until: float
    attempt: int
    started_at: float
    updated_at: float
    expires_at: float
    planned: int = 0
    outcome: str | None = None
    reason: str | None = None
    owner: str | None = None
    body_hash: bytes | None = None
    copies: int = 0
    version: int = VERSION

    def seen(self, now: float) -> Entry:
        """As the client is shown it."""
        return Entry(
            state=self.state,
            token=self.token,
            fencing_token=self.fencing_token,
            lease_left=max(0.0, self.lease_until - now),
            attempt=self.attempt,
            outcome=self.outcome,
            reason=self.reason,
            owner=self.owner,
            body_hash=self.body_hash,
            copies=self.copies,
            started=max(0.0, now - self.started_at),
            updated=max(0.0, now - self.updated_at),
            version=self.version,
        )


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
    raise TypeError(f"not a history command: {command!r}")


def _fence(stored: Stored | None, now: float) -> int:
    """Rises for the id: max(last + 1, the store's time in microseconds) (TR-39)."""
    return max(stored.fencing_token + 1 if stored else 0, int(now * 1_000_000))


def _claim(stored: Stored | None, command: Claim, now: float, cautious: bool) -> tuple[Stored | None, Reply]:
    if stored is not None and stored.version != VERSION:
        return stored, Reply(done=False, entry=stored.seen(now), cautious=cautious)
    if stored is not None and stored.token == command.token and stored.state is State.PROCESSING:
        # The first reply was lost: answer as then (TR-39), and let the lease run from now.
        before = None
        if stored.planned:
            before = replace(stored, state=State.RETRYING, attempt=stored.planned, lease_until=now).seen(now)
        renewed = replace(stored, lease_until=now + command.lease, updated_at=now, expires_at=now + command.history_ttl)
        return renewed, _owned(renewed, before, cautious)
    if stored is not None and stored.body_hash != command.body_hash and None not in (stored.body_hash, command.body_hash):
        return stored, Reply(done=False, entry=stored.seen(now), cautious=cautious)
    if not _may_claim(stored, command, now, cautious):
        return stored, Reply(done=False, entry=stored.seen(now) if stored else None, cautious=cautious)
    claimed = Stored(
        state=State.PROCESSING,
        token=command.token,
        fencing_token=_fence(stored, now),
        lease_until=now + command.lease,
        attempt=stored.attempt + 1 if stored else 1,
        started_at=now,
        updated_at=now,
        expires_at=now + command.history_ttl,
        planned=stored.attempt if stored and stored.state is State.RETRYING else 0,
        owner=command.owner,
        body_hash=command.body_hash if command.body_hash is not None else (stored.body_hash if stored else None),
    )
    return claimed, _owned(claimed, stored.seen(now) if stored else None, cautious)


def _may_claim(stored: Stored | None, command: Claim, now: float, cautious: bool) -> bool:
    if stored is None:
        return not (cautious and command.delivery_count != 1) or command.take_over
    if stored.state is State.RETRYING:
        return stored.lease_until <= now
    return command.take_over and stored.state is State.PROCESSING and stored.lease_until <= now


def _owned(stored: Stored, before: Entry | None, cautious: bool) -> Reply:
    return Reply(
        done=True,
        entry=before,
        token=stored.token,
        fencing_token=stored.fencing_token,
        attempt=stored.attempt,
        cautious=cautious,
    )


def _refused(stored: Stored, now: float) -> Reply:
    """Another owner holds it."""
    return Reply(done=False, entry=stored.seen(now), lease_lost=True)


def _complete(stored: Stored | None, command: Complete, now: float) -> tuple[Stored | None, Reply]:
    if stored is not None and (stored.token != command.token or stored.version != VERSION):
        return stored, _refused(stored, now)
    completed = replace(
        stored or _anew(command, now),
        state=State.COMPLETED,
        outcome=command.outcome,
        lease_until=now,
        updated_at=now,
        expires_at=now + command.history_ttl,
    )
    return completed, _owned(completed, stored.seen(now) if stored else None, False)


def _release(stored: Stored | None, command: Release, now: float) -> tuple[Stored | None, Reply]:
    if stored is not None and (stored.token != command.token or stored.version != VERSION):
        return stored, _refused(stored, now)
    if stored is not None and stored.state in (State.COMPLETED, State.IN_DOUBT):
        return stored, Reply(done=False, entry=stored.seen(now))
    before = stored.seen(now) if stored else None
    times = {"lease_until": now + command.lease, "updated_at": now, "expires_at": now + command.history_ttl}
    if command.to is not None:
        released = replace(stored or _anew(command, now), state=command.to, reason=command.reason, **times)  # type: ignore[arg-type]
        return released, _owned(released, before, False)
    if stored is not None and stored.planned:
        back = replace(stored, state=State.RETRYING, attempt=stored.planned, planned=0, **times)  # type: ignore[arg-type]
        return back, _owned(back, before, False)
    return None, Reply(done=True, entry=before, token=command.token)


def _renew(stored: Stored | None, command: Renew, now: float) -> tuple[Stored | None, Reply]:
    if stored is not None and (stored.token != command.token or stored.version != VERSION):
        return stored, _refused(stored, now)
    if stored is not None and stored.state not in (State.PROCESSING, State.RETRYING):
        return stored, Reply(done=False, entry=stored.seen(now))
    renewed = replace(
        stored or _anew(command, now),
        lease_until=now + command.lease,
        updated_at=now,
        expires_at=now + command.history_ttl,
    )
    return renewed, _owned(renewed, stored.seen(now) if stored else None, False)


def _park(stored: Stored | None, command: Park, now: float) -> tuple[Stored | None, Reply]:
    if stored is not None and stored.version != VERSION:
        return stored, Reply(done=False, entry=stored.seen(now))
    if stored is not None and stored.state is State.IN_DOUBT:
        again = replace(stored, copies=stored.copies + 1, updated_at=now, expires_at=now + command.history_ttl)
        return again, Reply(done=True, entry=stored.seen(now), token=stored.token, attempt=stored.attempt)
    own = stored is not None and stored.token == command.token
    free = (
        stored is None
        or stored.state is State.FAILED
        or (stored.state in (State.PROCESSING, State.RETRYING) and stored.lease_until <= now)
    )
    if not own and not free:
        return stored, Reply(done=False, entry=stored.seen(now) if stored else None)
    parked = replace(
        stored or _anew(command, now),
        state=State.IN_DOUBT,
        reason=command.reason,
        lease_until=now,
        updated_at=now,
        expires_at=now + command.history_ttl,
        copies=0,
    )
    return parked, Reply(done=True, entry=stored.seen(now) if stored else None, token=parked.token, attempt=parked.attempt)


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
        owner=getattr(command, "owner", None),
    )
