"""Temporary destinations: a link to a node that the broker makes for it, and that lives as long as the link.

The links belong to a session that the connection opens for itself, because a temporary destination outlives the session that
made it. All of it runs on the I/O thread. Source: the JMS mapping of AMQP 1.0; AMQP 1.0 section 3.5.10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from jmsclient.destination import Destination, parse_destination
from jmsclient.errors import JmsClientError
from jmsclient_amqp.engine.links import Terminus
from jmsclient_amqp.loop import Answer
from jmsclient_amqp.naming import TEMPORARY_QUEUE, TEMPORARY_TOPIC
from jmsclient_amqp.primitives import described, listed, mapped, symbol, symbols
from jmsclient_amqp.refusals import link_refused
from jmsclient_amqp.termini import local

if TYPE_CHECKING:
    from jmsclient_amqp.session import AmqpSession

_DELETE_ON_CLOSE: Final = mapped([symbol("lifetime-policy"), described(0x2B, listed([]))])


class Temporary:
    """One temporary destination."""

    def __init__(self, session: AmqpSession, kind: Literal["queue", "topic"], answer: Answer[Destination]) -> None:
        self._session = session
        self._kind = kind
        self._making: Answer[Destination] | None = answer
        self._deleting: list[Answer[None]] = []
        self.address = ""
        """The URI of the destination, once the broker has named it."""
        name = session.transport.link_name("temporary")
        target = Terminus(None, capabilities=symbols([f"temporary-{kind}"]), dynamic=True, properties=_DELETE_ON_CLOSE)
        self._link = session.handle.sender(name, local(name, outcomes=True), target)

    def look(self) -> None:
        """New bytes have been processed."""
        link = self._link
        if link.remote_closed:
            error = link_refused(f"to make a temporary {self._kind}", link.remote_condition)
            link.close()
            link.free()
            self._end(error)
        elif self._making is not None and link.remote_open and not link.refused:
            making, self._making = self._making, None
            kind = TEMPORARY_TOPIC if self._kind == "topic" else TEMPORARY_QUEUE
            destination = parse_destination(self._session.product.naming.uri(link.remote_address, kind))
            self.address = destination.address
            self._session.transport.answered(making)
            making.give(destination)

    def delete(self, answer: Answer[None]) -> None:
        """Close the link, and with it the destination."""
        self._deleting.append(self._session.transport.awaited(answer))
        self._link.close()

    def lost(self, error: JmsClientError) -> None:
        """The session or the connection has ended, and the destination with it."""
        self._end(error)

    def _end(self, error: JmsClientError) -> None:
        self._session.parted(self)
        self._session.transport.forget_temporary(self)
        making, self._making = self._making, None
        if making is not None:
            self._session.transport.answered(making)
            making.fail(error)
        for answer in self._deleting:
            self._session.transport.answered(answer)
            answer.give(None)
