"""How a session opens what receives: the checks that need no provider, the receiver, its buffer and the read-ahead decision.

What a provider cannot do is refused here, by its capabilities, before anything is asked of it. It must not know how messages are
handed over or settled. Rules RA-1, RA-3, RA-8, RA-9, IF-25, IF-37; C09; Jakarta Messaging 3.1 sections 4.11, 8.3 and 8.4.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jmsclient.destination import Destination, Persistence, TemporaryQueue, TemporaryTopic, Topic, parse_destination
from jmsclient.errors import ConfigurationError, IllegalStateError, InvalidDestinationError, UnsupportedFeatureError
from jmsclient.intake import Intake
from jmsclient.jms.consumer import MessageConsumer
from jmsclient.jms.read_ahead import ReadAheadDecision, decide
from jmsclient.jms.sweep import Sweep
from jmsclient.options import AcknowledgeMode, ConsumerOptions, DefaultReadAhead, count
from jmsclient.selector import compile_selector
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Receiver, ReceiverSpec, SubscriptionKind

if TYPE_CHECKING:
    from jmsclient.jms.session import Session

DEFAULT_PREFETCH = 100
_SETTLED_AT_ONCE = (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK)
_NEEDS: dict[SubscriptionKind, tuple[str, ...]] = {
    "queue": (),
    "browse": ("browse",),
    "topic": ("topics",),
    "durable": ("topics", "durable_subscriptions"),
    "shared": ("topics", "shared_subscriptions"),
    "shared_durable": ("topics", "durable_subscriptions", "shared_subscriptions"),
}
"""The capabilities without which a provider has no receiver of that kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a consumer is to be, checked as far as it can be without the provider; `prefetch` as the caller gave it."""

    spec: ReceiverSpec
    prefetch: int | None
    options: ConsumerOptions


# -- checks -------------------------------------------------------------------------------------------------------------


def checked_selector(selector: str | None, capabilities: Capabilities) -> str | None:
    """The selector's text, None for a blank one. Whatever the provider can do, one that is none is refused here (C09)."""
    selection = compile_selector(selector)
    if selection is not None and not capabilities.selectors:
        raise UnsupportedFeatureError("selector: this provider offers none; filter in the application")
    return None if selection is None else selection.text


def checked_kind(kind: SubscriptionKind, destination: Destination, capabilities: Capabilities) -> SubscriptionKind:
    """Raises UnsupportedFeatureError where the provider lacks what this kind needs."""
    for needed in _NEEDS[kind]:
        if not getattr(capabilities, needed):
            raise UnsupportedFeatureError(f"{destination.address}: this provider offers no {needed.replace('_', ' ')}")
    return kind


def checked_topic(topic: str | Topic) -> Topic:
    """Only topics have subscriptions. Raises InvalidDestinationError for a queue, a bare name included."""
    target = parse_destination(topic)
    if not isinstance(target, Topic):
        raise InvalidDestinationError(f"{target.address}: a subscription needs a topic; write topic:///{target.name}")
    return target


def checked_name(name: str) -> str:
    """Raises ConfigurationError where a subscription's name is no text or empty."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"subscription name {name!r}: expected a text that is not empty")
    return name


def checked_client_id(name: str, client_id: str | None) -> None:
    """An unshared durable subscription is found again by client id and name (JM 4.11.3). Raises IllegalStateError without."""
    if client_id is None:
        raise IllegalStateError(
            f"durable subscription {name!r}: this connection has no client id; give one to connect(client_id=…), "
            "or share the subscription with create_shared_durable_consumer"
        )


def checked_owner(session: Session, destination: Destination) -> Destination:
    """Only the connection that made a temporary destination may consume from it (JM 6.2.2). Raises InvalidDestinationError."""
    if isinstance(destination, TemporaryQueue | TemporaryTopic) and not destination.made_by(session.connection):
        raise InvalidDestinationError(f"{destination.address}: a temporary destination of another connection, or of a closed one")
    return destination


def checked_at_most_once(session: Session, at_most_once: bool) -> bool:
    """IF-25: what is settled when it is sent leaves nothing to acknowledge, commit or roll back."""
    if at_most_once and session.acknowledge_mode not in _SETTLED_AT_ONCE:
        raise ConfigurationError(
            f"at_most_once: this session is {session.acknowledge_mode.name}, and messages settled when sent cannot be given back; "
            "use an AUTO or DUPS_OK session"
        )
    return at_most_once


def checked_prefetch(prefetch: int | None) -> int | None:
    """Raises ConfigurationError for what is no window."""
    count("prefetch", prefetch, none=True)
    return prefetch


# -- opening ------------------------------------------------------------------------------------------------------------


def open_consumer(session: Session, wanted: Wanted) -> MessageConsumer:
    """Attach a receiver and the buffer it fills; shielded from exceptions of signal handlers, and inside the session.

    It is known to the session before it looks whether the connection is started, so a start meanwhile is never missed (IF-37)."""
    options = wanted.options
    spec = _taking_all(session, wanted.spec, wanted)
    intake = Intake(
        window=DEFAULT_PREFETCH if wanted.prefetch is None else wanted.prefetch,
        window_bytes=options.buffer_bytes,
        refill=options.read_ahead_refill,
        records_hand_over=session.capabilities.records_hand_over,
        sent_settled=spec.pre_settled or spec.takes_all,
        clock=session.clock,
        on_arrival=session.bell.ring,
    )
    receiver = session.transport_session.open_receiver(spec, intake, session.request_deadline())
    decision = _decide(session, spec.destination, receiver, wanted)
    if decision.used:
        intake.set_window(options.read_ahead_messages, takes=True)
    transport = session.connection.transport
    intake.attach(receiver, lambda: transport.capabilities.records_hand_over)
    consumer = MessageConsumer(
        session,
        spec.destination,
        spec.selector,
        intake,
        receiver,
        decision,
        close_in_listener=options.close_in_listener,
    )
    held = weakref.ref(consumer)
    session.keeper.call(lambda: session.hold(held))
    Sweep(consumer, session, options).plan()
    failure = session.connection.failure
    if failure is not None:
        intake.closed(failure)
    else:
        session.adapt()
    return consumer


def _taking_all(session: Session, spec: ReceiverSpec, wanted: Wanted) -> ReceiverSpec:
    """Says so where everything is to be taken: read ahead is used, and the destination declared non-persistent altogether."""
    if spec.destination.persistence is not Persistence.NON or not _decide(session, spec.destination, None, wanted).used:
        return spec
    return replace(spec, takes_all=True)


def _decide(session: Session, destination: Destination, receiver: Receiver | None, wanted: Wanted) -> ReadAheadDecision:
    default = getattr(receiver, "default_read_ahead", DefaultReadAhead.UNKNOWN)
    if default is DefaultReadAhead.UNKNOWN:
        default = session.connection.options.default_read_ahead
    return decide(
        destination.read_ahead_allowed,
        default,
        mode=session.acknowledge_mode,
        read_ahead_messages=wanted.options.read_ahead_messages,
        prefetch=wanted.prefetch,
        capable=session.capabilities.take_on_arrival,
    )
