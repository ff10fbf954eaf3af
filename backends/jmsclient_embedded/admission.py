"""Owns how messages enter their destination: refused while it is paused, changed by its overrides, held up while there is no room.

Must not know of sessions' ends or of the sender's thread. All under the broker's lock. Source: rules IF-31, IF-32, T1 to T4, T7;
the pause table; O07. A send that waits is no message yet: nothing counts it but `blocked_senders`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from jmsclient.clock import Clock
from jmsclient.destination import Destination
from jmsclient.errors import (
    ConnectionLostError,
    DestinationPausedError,
    IllegalStateError,
    JmsClientError,
    ResourceAllocationError,
)
from jmsclient.message import Content
from jmsclient_embedded.entry import Entry, new_entries
from jmsclient_embedded.granting import Granting
from jmsclient_embedded.line import Line
from jmsclient_embedded.outlet import Group
from jmsclient_embedded.quota import Quota
from jmsclient_embedded.rows import Columns, TextColumns
from jmsclient_embedded.steps import Answer
from jmsclient_embedded.transaction import SentPart
from jmsclient_embedded.writing import Writing


class Route(Protocol):
    """Where messages are sent: a queue, or a topic with its subscriptions."""

    @property
    def destination(self) -> Destination: ...
    @property
    def production_paused(self) -> bool: ...
    @property
    def insertion_paused(self) -> bool: ...
    @property
    def quota(self) -> Quota | None: ...

    def lines_for(self, content: Content, origin: object) -> Sequence[Line]: ...


class Sending:
    """One send under way: `entered` messages are on their destination, `answer` is given when all are, and stored.

    `columns` are what is written to the store, None for a message that is not; None where nothing is."""

    def __init__(
        self,
        admission: Admission,
        route: Route,
        contents: Sequence[Content],
        columns: Sequence[Columns | None] | None,
        group: Group,
        answer: Answer[None],
    ) -> None:
        self.entered = 0
        self.error: JmsClientError | None = None
        """Why it ended before all were there and stored."""
        self.stored = len(contents)
        """How many of those that entered are stored, or need not be."""
        self.group = group
        self.route = route
        self.answer = answer
        self.room: Answer[None] | None = None
        """Of one that waits for room: given when it waits no more."""
        self._admission = admission
        self.contents = contents
        self._columns = columns
        self._writes = 0
        self._given_up = False

    def try_to_enter(self) -> bool:
        """As many as there is room for, in order; True where nobody waits here any more."""
        if self._given_up:  # struck while it was being handed over to the broker
            return True
        if self.route.insertion_paused:
            return False
        first = self.entered
        self.entered = self._admission.enter(self, self.contents, self._columns, first)
        if self.entered == len(self.contents):
            self._stop_waiting()
            return True
        return False

    def give_up(self) -> None:
        """Wait for room no longer (T3). What entered stays, and `answer` is given when it is stored."""
        self._given_up = True
        quota = self.route.quota
        if quota is not None and self in quota.waiting:
            quota.waiting.remove(self)
            quota.freed()
        self._stop_waiting()

    def fail(self, error: JmsClientError) -> None:
        """Its session or its room is gone."""
        if self.error is None:
            self.error = error
        self.give_up()

    @property
    def held_back(self) -> bool:
        """It is not room that it waits for, but the end of a pause."""
        return self.route.insertion_paused

    def begin_write(self) -> Callable[[JmsClientError | None], None]:
        """A part of it waits for the store: call this when that is stored, or with why not."""
        first = self.entered
        self._writes += 1
        return lambda error: self._end_write(first, error)

    def _end_write(self, first: int, error: JmsClientError | None) -> None:
        self._writes -= 1
        if error is not None:
            self.stored = min(self.stored, first)
            self.fail(error)  # what waits for room is not sent: it would be there without what was to come before it
        self._finish()

    def _stop_waiting(self) -> None:
        if self.room is not None:
            self._admission.waits_no_more(self)
            self.room.give()
        self._finish()

    def _finish(self) -> None:
        if not self._writes and (self._given_up or self.entered == len(self.contents)):
            self.answer.give()


class Admission:
    """See the module."""

    def __init__(self, granting: Granting, writing: Writing, clock: Clock) -> None:
        self._granting = granting
        self._writing = writing
        self._clock = clock
        self._waiting: dict[Sending, None] = {}
        self.freed_quotas: dict[Quota, None] = {}
        """Those in which there may be room for one that waits."""

    # -- a send -----------------------------------------------------------------------------------------------------

    def begin(self, sending: Sending, *, may_wait: bool) -> None:
        """Begin a send. Raises DestinationPausedError; ResourceAllocationError for a message that can never fit, or where there is
        no room and it may not wait."""
        route = sending.route
        if sending.group.closing:
            raise IllegalStateError("the session is closed; nothing was sent")
        if route.production_paused:
            raise DestinationPausedError(
                f"{route.destination.address}: production is paused; nothing was sent; try again after it is resumed"
            )
        quota = route.quota
        if quota is not None:
            self._check_size(route, quota, sending.contents)
        if (quota is not None and quota.must_wait()) or not sending.try_to_enter():
            assert quota is not None
            if may_wait:
                sending.room = sending.answer.another()
                quota.waiting.append(sending)
                self._waiting[sending] = None
            elif sending.entered:
                sending.give_up()
            else:
                raise ResourceAllocationError(f"{route.destination.address}: no room, and the send may not wait; nothing was sent")

    def _check_size(self, route: Route, quota: Quota, contents: Sequence[Content]) -> None:
        for content in contents:
            size = getattr(content, "size", 0)
            if not quota.fits_ever(size):
                raise ResourceAllocationError(
                    f"{route.destination.address}: a message of {size} bytes can never fit into a quota of "
                    f"{quota.messages_maximum} messages and {quota.bytes_maximum} bytes (-1: no maximum); nothing was sent"
                )

    def enter(self, sending: Sending, contents: Sequence[Content], columns: Sequence[Columns | None] | None, first: int) -> int:
        """T7 or T4 for `contents` from `first` on, as far as there is room; returns how many are there now."""
        quota = sending.route.quota
        transaction = sending.group.transaction
        if quota is None and transaction is None and isinstance(sending.route, Line):
            self._enter_queue(sending, sending.route, contents, columns)
            return len(contents)
        parts: dict[Line, tuple[list[Entry], list[Columns | None]]] = {}
        copies = size = 0
        index = first
        for index in range(first, len(contents)):
            content = contents[index]
            lines = sending.route.lines_for(content, sending.group.origin)
            one = getattr(content, "size", 0)
            if quota is not None and lines and not quota.room_for(copies + len(lines), size + one * len(lines)):
                break
            copies += len(lines)
            size += one * len(lines)
            one_row = None if columns is None else columns[index]
            for line in lines:
                entries, written = parts.setdefault(line, ([], []))
                stored = one_row is not None and line.stored
                entries.append(Entry(self._granting.next_sequence(), content, stored=stored))
                written.append(one_row if stored else None)
        else:
            index = len(contents)
        for line, (entries, written) in parts.items():
            self._put(sending, line, entries, written)
        if transaction is not None:
            transaction.sent += [SentPart(line, *part) for line, part in parts.items()]
        return index

    def _enter_queue(
        self, sending: Sending, line: Line, contents: Sequence[Content], columns: Sequence[Columns | None] | None
    ) -> None:
        """All of them into one queue that has room for any number: what nearly every stored message does."""
        if line.stored and isinstance(columns, TextColumns) and columns.texts.untouched:
            self._writing.send_texts(line, columns, self._granting.reserve, sending.begin_write())
            return
        written = columns if columns is not None and line.stored else [None] * len(contents)
        entries = new_entries(contents, [one is not None for one in written], self._granting.sequence.__next__)
        self._put(sending, line, entries, written)

    def _put(self, sending: Sending, line: Line, entries: list[Entry], written: Sequence[Columns | None]) -> None:
        if sending.group.transaction is not None:
            line.queue.begin_send(entries, transacted=True)
        elif any(one is not None for one in written):
            self._writing.send(line, entries, written, sending.begin_write())
        else:
            line.queue.add(entries, self._clock.wall())
            self._granting.shown(line)

    # -- those that wait --------------------------------------------------------------------------------------------

    def freed(self, quota: Quota) -> None:
        """There may be room: whoever waits is served at the end of this step."""
        self.freed_quotas[quota] = None

    def serve(self) -> None:
        """At the end of a step: admit who waits, where room was freed."""
        while self.freed_quotas:
            quota, _ = self.freed_quotas.popitem()
            quota.serve()

    def blocked(self, route: Route) -> int:
        """How many sends wait at this destination."""
        quota = route.quota
        return 0 if quota is None else sum(isinstance(one, Sending) and one.route is route for one in quota.waiting)

    def forget(self, group: Group, *, lost: bool = False) -> None:
        """Its session closes, or its connection is lost: its sends end."""
        for sending in [one for one in self._waiting if one.group is group]:
            kind, what = (ConnectionLostError, "connection was lost") if lost else (IllegalStateError, "session was closed")
            sending.fail(kind(f"the {what} while the send waited for room; nothing more was sent"))

    def fail_waiters(self, route: Route, quota: Quota) -> None:
        """The destination turned to another quota: those that waited for room in this one fail (IF-31)."""
        for one in [one for one in quota.waiting if isinstance(one, Sending) and one.route is route]:
            quota.waiting.remove(one)
            one.fail(
                ResourceAllocationError(f"{route.destination.address} was given another quota while the send waited; send again")
            )

    def waits_no_more(self, sending: Sending) -> None:
        """It entered, or gave up."""
        self._waiting.pop(sending, None)
