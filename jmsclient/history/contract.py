"""The document history: what became of each message id, for one trigger, across workers and restarts.

`exchange(commands) -> replies` is the primitive: one call to the store for a group, completions and next claims together. The
others are one-element calls. Time is the store's own (TR-43). Thread-safe, unless a class says otherwise; usable without a worker.
Source: rules TR-32 to TR-45.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count, islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from jmsclient.errors import ConfigurationError, IllegalStateError, LeaseLostError, UnsupportedFeatureError
from jmsclient.history.entries import Alike, Claim, Command, Complete, Decide, Entry, Park, Release, Renew, Reply, State

if TYPE_CHECKING:
    from jmsclient.trigger.decision import Status

MANY = 1_000_000_000
OPERATION_TIMEOUT = 2.0
"""Seconds that one call to a store may take, unless it is said otherwise (TR-49)."""
LONGEST_ID = 200
"""Bytes of an id that is stored as it is; longer ones are stored as `sha256:` and hex (TR-32)."""


LISTED = len("sha256:") + 64


def stored_id(id: str) -> str:  # noqa: A002  the field's word
    """The id as it is kept (TR-32). One that no UTF-8 can hold is hashed too, so that every store can keep it."""
    raw = id.encode("utf-8", "surrogatepass")
    if len(raw) > LONGEST_ID or id.startswith("sha256:") or (not id.isascii() and any("\ud800" <= char <= "\udfff" for char in id)):
        return "sha256:" + hashlib.sha256(raw).hexdigest()
    return id


def as_listed(id: str) -> str:  # noqa: A002
    """The id as it is kept, where it was taken from a list, which shows one that is hashed already."""
    return id if len(id) == LISTED and id.isascii() and id.startswith("sha256:") else stored_id(id)


class _Tokens:
    """Which process it is, by chance, and a number: no two are alike, and none costs a call to the system."""

    def __init__(self) -> None:
        self.begin()
        os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        _, self.next = token_maker()


def token_maker() -> tuple[str, Callable[[], str]]:
    """A beginning that no other tokens have, and what makes tokens with it. Thread-safe; not for a process forked from this one."""
    beginning = secrets.token_hex(8)
    return beginning, map((beginning + "-{:x}").format, count()).__next__


_tokens = _Tokens()


def new_token() -> str:
    """An owner's token, made before the call it is used in (TR-39)."""
    return _tokens.next()


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimed:
    """What `claim` says: `claimed`, and the entry that was there before (None: nothing was)."""

    claimed: bool
    entry: Entry | None
    token: str
    fencing_token: int
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ParkedMessage:
    """A message In Doubt, kept whole. `age` is seconds since it was parked; `envelope` is read with `jmsclient.envelope`.
    `decision` (`new` or `duplicate`, None: none yet) is what `decided_by` decided `decided` seconds ago."""

    trigger: str
    id: str
    source: str
    reason: str
    delivery_count: int
    age: float
    copies: int
    owner: str | None
    attempt: int
    envelope: bytes
    decision: str | None = None
    decided_by: str | None = None
    decided: float = 0.0


class HistoryTransaction:
    """The transaction in which a handler's effects and its `completed` entry commit together (TR-36). A handler asks for it by
    annotation and makes its effects on `connection`, a DB-API or SQLAlchemy connection from where the history has its own. It is
    committed after the handler returned, together with the entry, and rolled back when the handler raises or another owner has
    taken the message over. The handler neither commits nor rolls back. Belongs to the handler's thread."""

    __slots__ = ("connection",)

    def __init__(self, connection: Any) -> None:
        self.connection = connection


def _nothing() -> None:
    """It was not sent yet."""


@dataclass(slots=True)  # not frozen: it is made once a group, and would cost twice as much
class Sent:
    """A group that is on its way. Either `replies` is called, once, which waits for them, a list for each Alike, and raises as
    `exchange` does; or `abandon`, which does not wait: whether the group took effect stays unknown. Where all of a list say the
    same they may be one object, without a token."""

    replies: Callable[[], list[list[Reply]]]
    abandon: Callable[[], None] = _nothing


class DocumentHistory(ABC):
    """The contract of a history store. `durable`: what it says survives the process, so that messages may be parked in it.
    `transactional`: it can complete an entry inside a handler's transaction."""

    durable: bool = False
    transactional: bool = False
    namespace: str = "default"
    sends_ahead: bool = False
    """`begin` does send: one group can be on its way while the next is gathered."""

    def check(self, *, strict: bool = False) -> None:  # noqa: B027  most stores have nothing to look at
        """Look at the store before it is used, and warn by an event where its settings endanger what it keeps (TR-51, TR-52).

        With `strict` they raise ConfigurationError, as what cannot work does in any case. A store that does not answer is no error
        here (TR-49).
        """

    @property
    def swept(self) -> int:
        """How many entries its sweeper has removed by itself (TR-65); 0 where the store has an expiry of its own."""
        return 0

    @abstractmethod
    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """Carry out a group in order, each atomically, and answer each in the same order.

        Raises HistoryUnavailableError when the store did not answer in time; then each command may or may not have taken
        effect, and repeating it with the same token is safe.
        """

    def begin(self, asked: Sequence[Alike]) -> Sent:
        """Send a group, in order, and return at once, whatever went wrong. A store that cannot send ahead is asked when the replies
        are asked for."""

        def replies() -> list[list[Reply]]:
            found = iter(self.exchange([command for one in asked for command in one.commands()]))
            return [list(islice(found, len(one))) for one in asked]

        return Sent(replies)

    @abstractmethod
    def lookup_many(self, trigger: str, ids: Iterable[tuple[str, str]]) -> list[Entry | None]:
        """The entries of (id, source) pairs, without changing them."""

    @abstractmethod
    def in_doubt(self, trigger: str | None = None) -> list[ParkedMessage]:
        """The parked, undecided messages, oldest first, of one trigger or of all. A decided one whose run was abandoned is
        among them again."""

    def decided(self, trigger: str | None = None, *, limit: int = 100) -> list[ParkedMessage]:
        """Parked messages that a worker has to carry a decision out about, oldest first, at most `limit`: decided ones, and
        those whose run has to be tried again. None that a worker is about now."""
        return []

    @abstractmethod
    def purge_expired(self) -> int:
        """Remove what is past its history_ttl (parked messages have none); returns how many."""

    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """Entries by state name."""

    def transaction(self, completion: Complete | None) -> AbstractContextManager[HistoryTransaction]:
        """A transaction around one handler, at whose end `completion` is written and its token checked, before the commit (None:
        it only commits).

        Leaving the block raises LeaseLostError where another owner holds the entry, and HistoryUnavailableError where the
        database failed or it is not known whether it committed; what the block raises passes. In each case the entry tells the
        truth. Raises UnsupportedFeatureError where the history is not `transactional`.
        """
        raise UnsupportedFeatureError(f"{type(self).__name__} cannot take part in a handler's transaction; use an SqlHistory")

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections. Idempotent."""

    def get(self, trigger: str, id: str) -> ParkedMessage | None:  # noqa: A002
        """One parked message, undecided or decided and not carried out, by its id: as it is listed, or as the message has it."""
        names = (id, stored_id(id))
        found = next((one for one in self.in_doubt(trigger) if one.id in names), None)
        return found or next((one for one in self.decided(trigger, limit=MANY) if one.id in names), None)

    def decide(
        self,
        trigger: str,
        id: str,  # noqa: A002
        status: Status | str,
        by: str,
        *,
        source: str | None = None,
    ) -> None:
        """Decide about a parked message, by the id that it is listed with or has: Status.NEW has a worker of the trigger run it,
        Status.DUPLICATE has it settled as done (TR-34). `by` says who; that and the time are kept with the entry. Until a worker
        has begun, the last decision holds. `source` is needed only where two parked messages have one id.

        Raises IllegalStateError where no such message is parked, ConfigurationError for another status, an empty `by` and an
        id that is listed twice, HistoryUnavailableError.
        """
        decision = getattr(status, "value", status)
        if decision not in ("new", "duplicate"):
            raise ConfigurationError(f"status={status!r}: expected Status.NEW (run it) or Status.DUPLICATE (it was done)")
        if not by:
            raise ConfigurationError("by='': say who decides; it is kept with the message")
        if source is None:
            names = (id, stored_id(id))
            listed = [one for one in (*self.in_doubt(trigger), *self.decided(trigger, limit=MANY)) if one.id in names]
            sources = sorted({one.source for one in listed})
            if len(sources) > 1:
                raise ConfigurationError(
                    f"{id!r} is parked under {len(sources)} sources of ids; give source= ({', '.join(sources)})"
                )
            if listed:
                id, source = listed[0].id, listed[0].source  # noqa: A001
        for name in dict.fromkeys((as_listed(id), stored_id(id))):
            command = Decide(trigger=trigger, id=name, source=source or "JMSMessageID", token="", decision=decision, by=by)
            if self.exchange([command])[0].done:
                return
        raise IllegalStateError(f"no message {id!r} of trigger {trigger!r} is In Doubt: it may have been settled meanwhile")

    # -- one-element calls ------------------------------------------------------------------------------------------

    def claim(
        self,
        trigger: str,
        id: str,  # noqa: A002
        *,
        source: str = "JMSMessageID",
        token: str | None = None,
        lease: float | None = 60.0,
        history_ttl: float = 86400.0,
        take_over: bool = False,
    ) -> Claimed:
        """Say *started* for this id, once among all who try (TR-38)."""
        token = token or new_token()
        command = Claim(
            trigger=trigger,
            id=stored_id(id),
            source=source,
            token=token,
            lease=lease,
            history_ttl=history_ttl,
            take_over=take_over,
        )
        reply = self.exchange([command])[0]
        return Claimed(claimed=reply.done, entry=reply.entry, token=token, fencing_token=reply.fencing_token, attempt=reply.attempt)

    def complete(
        self,
        trigger: str,
        id: str,  # noqa: A002
        *,
        token: str,
        source: str = "JMSMessageID",
        outcome: str = "done",
        history_ttl: float = 86400.0,
    ) -> None:
        """Say *done*. Raises LeaseLostError where another owner holds the entry."""
        self._owned(
            Complete(trigger=trigger, id=stored_id(id), source=source, token=token, outcome=outcome, history_ttl=history_ttl)
        )

    def release(
        self,
        trigger: str,
        id: str,  # noqa: A002
        *,
        token: str,
        source: str = "JMSMessageID",
        to: State | None = None,
        lease: float = 0.0,
        reason: str | None = None,
        history_ttl: float = 86400.0,
    ) -> None:
        """Give a claim up; see `entries.Release`. Raises LeaseLostError where another owner holds the entry."""
        self._owned(
            Release(
                trigger=trigger,
                id=stored_id(id),
                source=source,
                token=token,
                to=to,
                lease=lease,
                reason=reason,
                history_ttl=history_ttl,
            )
        )

    def renew(
        self,
        trigger: str,
        id: str,  # noqa: A002
        *,
        token: str,
        source: str = "JMSMessageID",
        lease: float | None = 60.0,
        history_ttl: float = 86400.0,
    ) -> None:
        """Prolong the lease. Raises LeaseLostError where another owner holds the entry."""
        self._owned(Renew(trigger=trigger, id=stored_id(id), source=source, token=token, lease=lease, history_ttl=history_ttl))

    def park(
        self,
        trigger: str,
        id: str,  # noqa: A002
        *,
        token: str,
        envelope: bytes,
        reason: str,
        source: str = "JMSMessageID",
        delivery_count: int = -1,
    ) -> Reply:
        """Keep a full copy as In Doubt, in one step with the entry; see `entries.Park`."""
        command = Park(
            trigger=trigger,
            id=stored_id(id),
            source=source,
            token=token,
            envelope=envelope,
            reason=reason,
            delivery_count=delivery_count,
        )
        return self.exchange([command])[0]

    def lookup(self, trigger: str, id: str, *, source: str = "JMSMessageID") -> Entry | None:  # noqa: A002
        """The entry of one id, without changing it."""
        return self.lookup_many(trigger, [(stored_id(id), source)])[0]

    def _owned(self, command: Command) -> None:
        reply = self.exchange([command])[0]
        if reply.lease_lost:
            raise LeaseLostError(
                f"trigger {command.trigger!r}, id {command.id!r}: another owner holds the entry; do not acknowledge this message"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
