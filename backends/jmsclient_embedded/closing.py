"""Owns how receivers and sessions begin and end at the broker, and what becomes of the messages they hold.

Must not know of storage or threads. All under the broker's lock. Source: rules IF-5, IF-8, IF-9, IF-10, O07 (close ends a send that
waits).
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident

from jmsclient.selector import Selector
from jmsclient.transport.contract import RELEASE, Receiver, Sink
from jmsclient_embedded.admission import Admission
from jmsclient_embedded.default_outcome import DefaultOutcome
from jmsclient_embedded.entry import Holder
from jmsclient_embedded.granting import Granting, undelivered, when_idle
from jmsclient_embedded.line import Line
from jmsclient_embedded.outlet import Group, Outlet
from jmsclient_embedded.settling import Settling
from jmsclient_embedded.transaction import Transaction
from jmsclient_embedded.transactions import Transactions


class Closing:
    """Openings and closings of outlets and groups. `left` is called, under the lock, with a line that lost a receiver and all
    that it held."""

    def __init__(self, granting: Granting, settling: Settling, admission: Admission, transactions: Transactions) -> None:
        self.left: Callable[[Line], None] = _ignore
        self._granting = granting
        self._settling = settling
        self._admission = admission
        self._transactions = transactions

    def open_group(self, origin: object = None, *, transacted: bool = False) -> Group:
        """The record of a new session."""
        name = f"session-{next(self._granting.numbers)}"
        return Group(name, origin, Transaction() if transacted else None)

    def open_outlet(
        self,
        line: Line,
        group: Group,
        receiver: Receiver,
        sink: Sink,
        *,
        pre_settled: DefaultOutcome | None = None,
        selector: Selector | None = None,
        browses: bool = False,
    ) -> Outlet:
        """Attach a receiver, without demand, in a session that is open."""
        number = next(self._granting.numbers)
        kind = "browser" if browses else "consumer"
        holder = Holder(line.queue, number, f"{kind}-{number}", selector, transacted=group.transaction is not None)
        holder.transaction = group.transaction
        browsing = iter(list(line.queue.browse())) if browses else None
        outlet = Outlet(line, holder, group, receiver, sink, pre_settled=pre_settled, browsing=browsing)
        group.outlets.add(outlet)
        if not browses:
            self._granting.holders[number] = line.queue.holders[number] = holder
            line.attach(outlet)
        return outlet

    def close_outlet(self, outlet: Outlet, closed: Callable[[], None]) -> None:
        """Match it no more; what was not pushed yet goes back, the rest goes to its session when nobody pushes any more."""
        if not outlet.closing:
            outlet.closing = True
            outlet.line.detach(outlet)
            self._settling.give_back(outlet.line, undelivered(outlet), RELEASE)
            outlet.outbox = []
            if not outlet.pumping:
                self._bequeath(outlet)
        when_idle(outlet, closed)

    def close_group(self, group: Group, closed: Callable[[], None]) -> None:
        """Close all its outlets; when they are, everything unsettled goes back and no message names it (IF-9)."""
        group.closed.append(closed)
        group.closing = True
        self._admission.forget(group)
        for outlet in tuple(group.outlets):
            self.close_outlet(outlet, _nothing)
        if not group.outlets:
            self._end_group(group)
        elif any(outlet.pumper == get_ident() for outlet in group.outlets):  # closed from inside its own sink: it ends later
            closed()

    def lose_group(self, group: Group) -> None:
        """Its connection died: everything goes back now, whoever is being pushed to (IF-10)."""
        group.closing = True
        self._admission.forget(group, lost=True)
        for outlet in tuple(group.outlets):
            outlet.closing = True
            outlet.line.detach(outlet)
            outlet.outbox = []
        for outlet in tuple(group.outlets):
            self._bequeath(outlet)
        self._end_group(group)

    def idle(self, outlet: Outlet) -> None:
        """Nobody pushes to it any more: end its closing, call who waits for that."""
        if outlet.closing:
            self._bequeath(outlet)
        calls, outlet.idle = outlet.idle, []
        for call in calls:
            call()

    def _bequeath(self, outlet: Outlet) -> None:
        group, holder = outlet.group, outlet.holder
        if outlet not in group.outlets:
            return
        group.outlets.discard(outlet)
        if outlet.browsing is None:
            for empty in [one for one in group.inherited if not one.held]:
                group.inherited.remove(empty)
                self._forget(empty)
            holder.name = group.name
            group.inherited.append(holder)
            self.left(outlet.line)
        if group.closing and not group.outlets:
            self._end_group(group)

    def _end_group(self, group: Group) -> None:
        if group.transaction is not None:
            self._transactions.abandon(group.transaction)
        holders, group.inherited = group.inherited, []
        self._settling.give_back_unsettled(holders)
        for holder in holders:
            self._forget(holder)
        calls, group.closed = group.closed, []
        for call in calls:
            call()

    def _forget(self, holder: Holder) -> None:
        del self._granting.holders[holder.number]
        del holder.queue.holders[holder.number]
        line = self._granting.lines.get(holder.queue.name)
        if line is not None:
            self.left(line)


def _nothing() -> None:
    pass


def _ignore(line: Line) -> None:
    pass
