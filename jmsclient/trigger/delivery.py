"""What a handler is given beside the body (`Delivery`), and what a resolver is asked (`ResolverRequest`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jmsclient.destination import Destination, parse_destination
from jmsclient.errors import IllegalStateError
from jmsclient.history.contract import HistoryTransaction
from jmsclient.history.entries import Entry
from jmsclient.jms.outgoing import Sending
from jmsclient.jms.session import Session
from jmsclient.message import Body, Message, PropertyValue
from jmsclient.trigger.decision import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """One message that a handler asked to be sent."""

    destination: Destination
    message: Message
    persistent: bool | None
    priority: int | None
    time_to_live: float | None
    delivery_delay: float | None


RETURNED = (
    "the handler of this message has returned, and what it sends is on its way or, where it raised, dropped; from a thread or task "
    "that outlives it, send with a producer of your own connection"
)


class Delivery:
    """One delivery to a handler. Belongs to the handler, and to what it waits for, until it returns.

    `status` is NEW; `attempt` counts the runs of this message (1 first); `delivery_count` is the provider's (-1 unknown);
    `history_entry` is what the history held before (None: nothing); `fencing_token` rises for the id with each owner (0 where
    there is no history), for services that can refuse an older one.
    """

    __slots__ = (
        "_gathered",
        "_returned",
        "_session",
        "attempt",
        "delivery_count",
        "fencing_token",
        "history_entry",
        "message",
        "status",
        "transaction",
        "trigger",
    )

    def __init__(
        self, *, message: Message, trigger: str, status: Status, attempt: int, history_entry: Entry | None, fencing_token: int
    ) -> None:
        self.message = message
        self.trigger = trigger
        self.status = status
        self.attempt = attempt
        self.delivery_count = message.delivery_count
        self.history_entry = history_entry
        self.fencing_token = fencing_token
        self.transaction: HistoryTransaction | None = None
        self._session: Session | None = None
        self._gathered: list[Gathered | None] = []
        """Until None, which the return appends: the one order of sends and return that all threads agree on, without a lock."""
        self._returned = False

    @property
    def session(self) -> Session | None:
        """That of a transacted trigger's handler. Raises IllegalStateError when the handler has returned."""
        if self._returned and self._session is not None:
            raise IllegalStateError(f"session: {RETURNED}")
        return self._session

    @session.setter
    def session(self, session: Session) -> None:
        self._session = session

    def returned(self) -> list[Gathered]:
        """The handler has returned or raised (not for applications): what it asked to have sent before. From now on it may ask for
        nothing more."""
        self._returned = True  # first: whoever comes behind the None sees it
        gathered = self._gathered
        gathered.append(None)
        before: list[Gathered] = []
        if gathered[0] is None:
            return before
        for one in gathered:
            if one is None:
                break
            before.append(one)
        return before

    def send(
        self,
        destination: str | Destination,
        body: Body | Message,
        *,
        properties: Mapping[str, PropertyValue] | None = None,
        correlation_id: str | None = None,
        reply_to: str | Destination | None = None,
        type: str | None = None,  # noqa: A002  the JMS header is called so
        persistent: bool | None = None,
        priority: int | None = None,
        time_to_live: float | None = None,
        delivery_delay: float | None = None,
    ) -> None:
        """Have a message sent after the handler returned and before its delivery is completed. Never blocks; what was gathered
        is dropped if the handler raises. Raises ConfigurationError and MessageFormatError for what cannot be sent, and
        IllegalStateError when the handler has returned: a send from another thread at that moment either goes out or raises."""
        if self._returned:
            raise IllegalStateError(f"send: {RETURNED}")
        message = (
            body
            if isinstance(body, Message)
            else Message(body, properties=properties, correlation_id=correlation_id, reply_to=reply_to, type=type)
        )
        to = parse_destination(destination)
        if not priority is time_to_live is delivery_delay is None:  # checked here, while the handler can still be told
            Sending(to, priority=priority, time_to_live=time_to_live, delivery_delay=delivery_delay or 0.0)
        gathered = Gathered(
            destination=to,
            message=message,
            persistent=persistent,
            priority=priority,
            time_to_live=time_to_live,
            delivery_delay=delivery_delay,
        )
        self._gathered.append(gathered)
        if self._came_late(gathered):
            raise IllegalStateError(f"send: {RETURNED}")

    def _came_late(self, gathered: Gathered) -> bool:
        """The handler returned while this was sent, and before it."""
        if not self._returned:
            return False
        return next(one for one in self._gathered if one is None or one is gathered) is None


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolverRequest:
    """What a resolver is told: `id` is None where the message has none (TR-32); `entry` is None without a history."""

    id: str | None
    source: str | None
    trigger: str
    message: Message
    delivery_count: int
    entry: Entry | None
