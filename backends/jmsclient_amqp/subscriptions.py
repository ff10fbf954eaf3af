"""Durable and shared subscriptions: how their links are called, and how one is deleted.

A subscription is found again by container id and link name; several links that share one say so behind a bar in their names, as
other JMS clients do, so that both can share a subscription. What is marked so runs on the I/O thread. Source: the JMS mapping
of AMQP 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsclient.errors import IllegalStateError, InvalidDestinationError, JmsClientError
from jmsclient.transport.contract import ReceiverSpec
from jmsclient_amqp.engine.library import Condition
from jmsclient_amqp.engine.links import ReceivingLink, Terminus
from jmsclient_amqp.loop import Answer
from jmsclient_amqp.primitives import symbols
from jmsclient_amqp.refusals import link_refused
from jmsclient_amqp.termini import local
from jmsclient_amqp.wishes import desiring

if TYPE_CHECKING:
    from jmsclient_amqp.session import AmqpSession


def global_link(name: str) -> str:
    """The name of the first link of a durable subscription that is shared and of no client."""
    return f"{name}|global"


class LinkNames:
    """The names of the subscription links that are open on one connection (I/O thread)."""

    def __init__(self, *, has_client_id: bool) -> None:
        self._has_client_id = has_client_id
        self._open: dict[str, str] = {}  # link name: subscription

    def take(self, spec: ReceiverSpec) -> str:
        """A name for a new link. Raises IllegalStateError where the subscription has its one consumer already."""
        assert spec.name is not None
        if spec.kind == "durable":
            if spec.name in self._open:
                raise IllegalStateError(f"subscription {spec.name!r}: this connection has a consumer open on it")
            name = spec.name
        else:
            number = 1
            while (name := self._shared(spec, number)) in self._open:
                number += 1
        self._open[name] = spec.name
        return name

    def _shared(self, spec: ReceiverSpec, number: int) -> str:
        if spec.kind == "shared":
            return f"{spec.name}|{'' if self._has_client_id else 'global-'}volatile{number}"
        first = self.of_durable(str(spec.name), shared=True)
        return first if number == 1 else f"{first}|{number}" if self._has_client_id else f"{first}{number}"

    def of_durable(self, name: str, *, shared: bool) -> str:
        """The name of the first link of a durable subscription."""
        return name if self._has_client_id or not shared else global_link(name)

    def give(self, name: str) -> None:
        """That link is gone."""
        self._open.pop(name, None)

    def is_open(self, subscription: str) -> bool:
        """Whether a consumer is open on it."""
        return subscription in self._open.values()


class Removal:
    """Deletes a durable subscription: finds it by a link of its name without a source, and closes that (I/O thread).

    One of no client id belongs to no container, so the broker is told what to look for by what the link desires. If somebody else
    consumes from it the broker keeps it and does not say so: so it is looked for once more."""

    def __init__(self, session: AmqpSession, name: str, answer: Answer[None]) -> None:
        self._session = session
        self._name = name
        self._answer = answer
        self._global = not session.transport.has_client_id
        self._found = False
        self._again = False
        self._link: ReceivingLink | None = None

    def begin(self) -> None:
        """Look for it."""
        if self._global:
            self._session.loop.after_writing(self._attach_wishing)
        else:
            self._attach(self._name)

    def _attach_wishing(self) -> None:
        if not self._session.over and not self._answer.done:
            self._attach(global_link(self._name))
            self._session.transport.engine.amend(desiring(symbols(["shared", "global"])))

    def _attach(self, link: str) -> None:
        self._link = self._session.handle.receiver(link, Terminus(None, absent=True), local(link), pre_settled=False)

    def look(self) -> None:
        """New bytes have been processed."""
        link = self._link
        if link is None:
            return
        if link.remote_closed:
            condition = link.remote_condition
            link.close()
            link.free()
            self._link = None
            self._gone(condition)
        elif not self._found and link.remote_open and not link.refused:
            self._found = True
            link.close()

    def _gone(self, condition: Condition | None) -> None:
        """The link is: it was refused, or closed by us."""
        if self._again:
            in_use = f"subscription {self._name!r}: a consumer is open on it"
            self._end(IllegalStateError(in_use) if self._found else None)
        elif not self._found:
            self._end(self._not_found(condition))
        elif self._global:
            self._found, self._again = False, True
            self.begin()
        else:
            self._end(None)

    def _not_found(self, condition: Condition | None) -> JmsClientError:
        if condition is None or condition.name == "amqp:not-found":
            return InvalidDestinationError(f"there is no durable subscription {self._name!r}")
        if condition.name in ("amqp:resource-locked", "amqp:illegal-state"):
            return IllegalStateError(f"subscription {self._name!r}: a consumer is open on it ({condition})")
        return link_refused(f"to delete the subscription {self._name!r}", condition)

    def lost(self, error: JmsClientError) -> None:
        """The session or the connection has ended."""
        self._session.parted(self)
        self._tell(error)

    def _end(self, error: JmsClientError | None) -> None:
        self._session.parted(self)
        self._session.loop.after_writing(lambda: self._tell(error))

    def _tell(self, error: JmsClientError | None) -> None:
        """The detach is out: a link of the same name may follow."""
        self._session.transport.answered(self._answer)
        if error is None:
            self._answer.give(None)
        else:
            self._answer.fail(error)
