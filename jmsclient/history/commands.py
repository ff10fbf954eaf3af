"""What is asked of a document history and what it answers: entries as they are shown, commands, replies. Pure values.

Must know no store, clock or thread, nor how a command changes an entry (`entries` does). Source: rules TR-34 to TR-46, TR-57 and
TR-63.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from urllib.parse import quote

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


@dataclass(kw_only=True, slots=True)  # not frozen: a duplicate would cost a third more
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
    decision: str | None = None
    """`new` or `duplicate`: what `decided_by` decided about the parked copy, `decided` seconds ago."""
    decided_by: str | None = None
    decided: float = 0.0

    @property
    def lease_alive(self) -> bool:
        return self.lease_left > 0


# -- commands -----------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, slots=True)  # not frozen: that costs as much again, twice a message; yet nobody changes one
class Command:
    """What all have: the entry's key (trigger id, message id, the id's source), the owner's token, and how long what it writes
    lives without another write, in seconds (TR-40, TR-42)."""

    trigger: str
    id: str
    source: str = "JMSMessageID"
    token: str
    history_ttl: float = 86400.0


@dataclass(kw_only=True, slots=True)
class Claim(Command):
    """Say *started*, if nothing forbids it, and learn what was there before: one atomic step (TR-38).

    Claims: no entry (unless the store is `cautious` and `delivery_count` is not 1), and `retrying` whose lease is over or that
    this token left. With `take_over` also an abandoned `processing` (TR-36, TR-55). With `despite_loss` a cautious store is no
    hindrance: somebody has said that it is New (TR-53). An entry with another body hash or of another version is never claimed.
    Repeated with the same token it answers as the first time. `lease` None: locked until the entry's history_ttl is over; zero or
    past: over at once (TR-41). With `decided` also a parked copy that was decided to be New: of all who carry the decision out, one
    claims it, and the copy stays until it is completed (TR-34). With `brief` it is enough to be told that the message is completed
    (`KNOWN`), for nobody looks at how and when.
    """

    lease: float | None = 60.0
    delivery_count: int = 1
    take_over: bool = False
    owner: str | None = None
    body_hash: bytes | None = None
    decided: bool = False
    despite_loss: bool = False
    brief: bool = False

    @property
    def undeterred(self) -> bool:
        """A cautious store does not keep it from claiming where there is no entry."""
        return self.despite_loss or self.delivery_count == 1


@dataclass(kw_only=True, slots=True)
class Complete(Command):
    """Say *done*. Own token, even past the lease: done. No entry: written anew. Another token: lease lost (TR-39).
    An undecided parked entry that this token left behind is settled as Duplicate (TR-34). A repeat changes nothing. With outcome
    `joined` it becomes `joined`: what was to be done with this message is to add it to a set (TR-63)."""

    outcome: str = "done"


@dataclass(kw_only=True, slots=True)
class Release(Command):
    """Give a claim up. `to` None: as if it had never been made (the service did not start): a planned retry is planned again,
    an abandoned run that was taken over is abandoned again. RETRYING: our own redelivery is planned. FAILED: dead-lettering
    has begun (TR-45). `lease` keeps a lease alive meanwhile (TR-57), 0.0 ends it."""

    to: State | None = None
    lease: float = 0.0
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.to not in (None, State.RETRYING, State.FAILED):
            raise ValueError(f"release to {self.to}: expected None, State.RETRYING or State.FAILED")


@dataclass(kw_only=True, slots=True)
class Renew(Command):
    """Prolong the lease to `lease` seconds from now. No entry: written anew with this token (TR-39)."""

    lease: float | None = 60.0


@dataclass(kw_only=True, slots=True)
class Park(Command):
    """Make the entry `in_doubt` together with a full copy, in one step (TR-34). Parks: no entry, an abandoned `processing`,
    `retrying` without lease, `failed`, or an unfinished entry of this token. A parked entry has no time to live. A further
    copy of a parked message only raises `copies`; a repeat with the same token does not."""

    envelope: bytes = b""
    reason: str = ""
    delivery_count: int = -1
    owner: str | None = None


@dataclass(kw_only=True, slots=True)
class Decide(Command):
    """Record what somebody decided about a parked copy: `new` or `duplicate`, and who (TR-34). A worker carries it out; until
    then the last decision holds. A run of such a copy that was abandoned is decided in the same way. `token` means nothing."""

    decision: str = "new"
    by: str = ""

    def __post_init__(self) -> None:
        if self.decision not in ("new", "duplicate"):
            raise ValueError(f"decision {self.decision!r}: expected 'new' or 'duplicate'")


@dataclass(kw_only=True, slots=True)
class Join(Command):
    """Add a message to the set that `id` names (TR-63). Each `place` takes one `member`, the message's id, with a full copy; the
    set waits `expires` seconds from its first. With the last of `needed` places it is as if somebody had decided that it is New: a
    worker runs it from its copies, once. Not done: the place is taken, the set was run, or it waited too long. A repeat changes
    nothing. A set that waited too long may be parked. Its entry's `body_hash` is its members' lines, its copy their frames."""

    place: str
    member: str
    envelope: bytes
    needed: int
    expires: float = 86400.0

    @property
    def prefix(self) -> bytes:
        """What the line of whoever has this place begins with."""
        return f"\n{quote(self.place, safe='')} ".encode()

    @property
    def line(self) -> bytes:
        """The member's line among the set's."""
        return self.prefix + f"{quote(self.member, safe='', errors='surrogatepass')}\n".encode()

    @property
    def frame(self) -> bytes:
        """The copy, so that several can follow each other."""
        return struct.pack(">I", len(self.envelope)) + self.envelope


@dataclass(slots=True)
class Alike:
    """At least one command, all of which differ in id and token only: what is said once is looked at once. `like` is what they are
    but for that; `lasting`: it will be used again, so that a store may remember what it made of it."""

    like: Command
    ids: list[str]
    tokens: list[str]
    lasting: bool = False

    @classmethod
    def of(cls, command: Command) -> Alike:
        """One by itself."""
        return cls(command, [command.id], [command.token])

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, end: int) -> Alike:
        return Alike(self.like, self.ids[start:end], self.tokens[start:end], self.lasting)

    def commands(self) -> Iterator[Command]:
        """Each by itself."""
        like = self.like
        kind = type(like)
        rest = [(one.name, getattr(like, one.name)) for one in fields(like) if one.name not in ("id", "token")]
        for id_, token in zip(self.ids, self.tokens, strict=True):
            command: Command = object.__new__(kind)  # by plain stores: `replace` costs three times as much, twice a message
            for name, value in rest:
                setattr(command, name, value)
            command.id = id_
            command.token = token
            yield command


def frames(copy: bytes) -> list[bytes]:
    """The envelopes of a set's members, in the order in which they joined."""
    found = []
    while copy:
        end = 4 + struct.unpack_from(">I", copy)[0]
        found.append(copy[4:end])
        copy = copy[end:]
    return found


@dataclass(slots=True)  # not frozen, as a command
class Reply:
    """The answer to one command.

    `done`: the command took effect (for Claim: claimed). `entry`: what was there before it, None where there was nothing, and
    of a Complete that is done, for it was the owner's own.
    `token` and `fencing_token` are those of the entry now owned (no token: the command's own); `attempt` the number of the run that
    a claim begins.
    `lease_lost`: another owner holds the entry. `cautious`: the store lost what it knew (TR-53).
    """

    done: bool
    entry: Entry | None = None
    token: str = ""
    fencing_token: int = 0
    attempt: int = 1
    lease_lost: bool = False
    cautious: bool = False


KNOWN = Reply(done=False, entry=Entry(state=State.COMPLETED))
"""A brief answer: completed before."""
