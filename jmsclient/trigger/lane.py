"""One receiver of a trigger with its window, and the pipeline that works it off. A trigger has one lane; a transacted one has a
lane, and with it a session and a transaction, for each of its handlers (TR-62).

Opens what a lane needs and closes it again; knows nothing of other lanes, nor of the trigger's states.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from jmsclient.clock import Clock
from jmsclient.destination import Persistence, Topic
from jmsclient.history.retention import warn_of_short_history_ttl
from jmsclient.intake import Intake
from jmsclient.jms.read_ahead import decide
from jmsclient.message import Message
from jmsclient.options import AcknowledgeMode, ConsumerOptions, DefaultReadAhead
from jmsclient.transport.contract import Receiver, ReceiverSpec, SubscriptionKind, Transport
from jmsclient.trigger.binding import BatchCall, SetCall, bind
from jmsclient.trigger.counters import Counters
from jmsclient.trigger.declaration import Declaration
from jmsclient.trigger.delivery import Delivery
from jmsclient.trigger.handlers import Call, Send
from jmsclient.trigger.join_spec import JoinSpec
from jmsclient.trigger.joins import SetContent, members
from jmsclient.trigger.outbox import Line, Outbox
from jmsclient.trigger.pipeline import Pipeline
from jmsclient.trigger.report import TriggerReport
from jmsclient.trigger.stand_in import StandIn
from jmsclient.trigger.suspension import States
from jmsclient.trigger.transaction import Transaction

OPEN_TIMEOUT = 30.0
CLOSE_TIMEOUT = 5.0


class Lane:
    """Open from the moment it is made; `close` after its pipeline was told to stop. Raises what the transport raises."""

    def __init__(
        self,
        declaration: Declaration,
        transport: Transport,
        outbox: Outbox,
        *,
        counters: Counters,
        worker: str,
        clock: Clock,
        on_failed: Callable[[], None],
        on_recovered: Callable[[], None] | None,
        on_suspended: Callable[[str], None],
        request_timeout: float,
        on_set_completed: Callable[[], None] | None = None,
        carries_out: bool = True,
        stand_in: StandIn | None = None,
        states: States | None = None,
    ) -> None:
        self._clock = clock
        deadline = clock.deadline(OPEN_TIMEOUT)
        capabilities = transport.capabilities
        send: Send = outbox.send_gathered
        self._transaction: Transaction | None = None
        if declaration.transacted:
            self._transaction = Transaction(transport, declaration.name, clock, request_timeout)
            self._session = self._transaction.transport_session
            send = partial(outbox.send_gathered, line=Line(self._session, clock))
        else:
            self._session = transport.open_session(transacted=False, deadline=deadline)
        bell = clock.bell()
        options = ConsumerOptions()
        takes_all = declaration.destination.persistence is Persistence.NON and _takes_ahead(
            declaration, None, options, capable=capabilities.take_on_arrival
        )
        intake = Intake(
            window=declaration.window,
            window_bytes=options.buffer_bytes,
            refill=options.read_ahead_refill,
            counts_unsettled=True,
            clock=clock,
            on_arrival=bell.ring,
            on_closed=lambda _: bell.ring(),
            records_hand_over=capabilities.records_hand_over,
            sent_settled=takes_all,
        )
        kind: SubscriptionKind = "topic" if isinstance(declaration.destination, Topic) else "queue"
        spec = ReceiverSpec(destination=declaration.destination, selector=declaration.selector, kind=kind, takes_all=takes_all)
        receiver = self._session.open_receiver(spec, intake, deadline)
        if _takes_ahead(declaration, receiver, options, capable=capabilities.take_on_arrival):
            intake.set_window(options.read_ahead_messages, takes=True)
        self.pipeline = Pipeline(
            declaration,
            call=call_of(declaration),
            send=send,
            send_copy=outbox.dead_letter,
            capabilities=lambda: transport.capabilities,
            clock=clock,
            worker=worker,
            bell=bell,
            intake=intake,
            on_failed=on_failed,
            on_recovered=on_recovered,
            provider_error_destination=getattr(receiver, "error_destination", None),
            counters=counters,
            transaction=self._transaction,
            on_suspended=on_suspended,
            on_set_completed=on_set_completed,
            carries_out=carries_out,
            stand_in=stand_in,
            idle_timeout=options.idle_timeout,
            states=states,
        )
        intake.attach(receiver, lambda: transport.capabilities.records_hand_over)
        _check_retention(declaration, receiver)
        self.pipeline.start()
        intake.start()

    def close_session(self) -> None:
        """What is unsettled goes back to the provider. Idempotent."""
        if self._transaction is not None:
            self._transaction.close()
            return
        self._session.close(self._clock.monotonic() + CLOSE_TIMEOUT)

    def join(self) -> TriggerReport:
        """Wait until the pipeline has stopped, and close what was opened."""
        report = self.pipeline.join()
        self.close_session()
        return report


def check_handler(function: Callable[..., Any], batch: int, join: JoinSpec | None, *, transacted: bool) -> None:
    """Raises ConfigurationError for one that cannot be called as its trigger would."""
    _call(function, batch, join, transacted=transacted)


def call_of(declaration: Declaration) -> Call:
    """How its handler is called."""
    return _call(declaration.function, declaration.batch, declaration.join, transacted=declaration.transacted)


def _call(function: Callable[..., Any], batch: int, join: JoinSpec | None, *, transacted: bool) -> Call:
    if join is None or not join.gathers:
        return (bind if batch == 1 else BatchCall)(function, transacted=transacted)
    if join.kind == "xor":
        call = bind(function)
        return lambda message, delivery: call(_members(message, delivery, join)[0], delivery)
    of_a_set = SetCall(function)
    return lambda message, delivery: of_a_set(_members(message, delivery, join), delivery)


def _members(message: Message, delivery: Delivery, join: JoinSpec) -> list[Message]:
    """Of a set, in the order in which its destinations were declared; fewer where somebody decided to run an incomplete one."""
    content = message.content
    assert isinstance(content, SetContent)
    order = [one.address for one in join.destinations]
    places = members(delivery.history_entry)
    received = [Message.received(one, delivery.delivery_count) for one in content.members]
    return [one for _, one in sorted(zip(places, received, strict=True), key=lambda pair: _index(order, pair[0]))]


def _index(order: list[str], place: str) -> int:
    return order.index(place) if place in order else len(order)


def _takes_ahead(declaration: Declaration, receiver: Receiver | None, options: ConsumerOptions, *, capable: bool) -> bool:
    """A trigger without duplicate detection counts as a DUPS_OK consumer; with it, it never takes ahead (TR-28, TR-64)."""
    if declaration.history is not None and declaration.non_persistent != "bypass":
        return False
    return decide(
        declaration.destination.read_ahead_allowed,
        getattr(receiver, "default_read_ahead", DefaultReadAhead.UNKNOWN),
        mode=AcknowledgeMode.TRANSACTED if declaration.transacted else AcknowledgeMode.DUPS_OK,
        read_ahead_messages=options.read_ahead_messages,
        prefetch=declaration.prefetch,
        capable=capable,
    ).used


def _check_retention(declaration: Declaration, receiver: Receiver) -> None:
    """TR-54, now that the provider has told its redelivery delay."""
    if declaration.history is not None:
        warn_of_short_history_ttl(
            declaration.name,
            declaration.history_ttl,
            lease=declaration.lease,
            max_deliveries=declaration.max_deliveries,
            redelivery_delay=getattr(receiver, "redelivery_delay", 0.0),  # where the provider tells
            retry_budget=declaration.max_retries * declaration.retry_interval,
            max_outage=declaration.options.max_outage,
        )
