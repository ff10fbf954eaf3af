"""What a session makes: consumers, subscriptions, browsers, producers, temporary destinations. The calls people type.

Each checks what it was given, enters the session and has the work done by `jmsclient.jms.opening`, shielded from exceptions of
signal handlers. It must not know how messages travel. Rules RA-8, IF-25, IF-37; C09; Jakarta Messaging 3.1 sections 4.11, 6.2.1
to 6.2.4 and 8.3.
"""

from __future__ import annotations

import weakref
from _thread import get_ident
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, cast

from jmsclient.destination import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic, parse_destination
from jmsclient.errors import IllegalStateError, InvalidDestinationError, UnsupportedFeatureError
from jmsclient.jms.browser import QueueBrowser
from jmsclient.jms.consumer import MessageConsumer
from jmsclient.jms.hand_over import MessageListener
from jmsclient.jms.opening import (
    Wanted,
    checked_at_most_once,
    checked_client_id,
    checked_kind,
    checked_name,
    checked_owner,
    checked_prefetch,
    checked_selector,
    checked_topic,
    open_consumer,
)
from jmsclient.jms.producer import MessageProducer
from jmsclient.jms.settling import Settling
from jmsclient.options import ConsumerOptions
from jmsclient.transport.contract import ReceiverSpec, SubscriptionKind

if TYPE_CHECKING:
    from jmsclient.jms.session import Session


class Making(Settling):
    """What `Session` is built on, with `Settling` and `Guard`."""

    _producers: tuple[MessageProducer, ...] = ()  # replaced whole, on the keeper only

    @property
    def _session(self) -> Session:
        """Itself: nothing else is built on this."""
        return cast("Session", self)

    # -- consumers --------------------------------------------------------------------------------------------------

    def create_consumer(
        self,
        destination: str | Destination,
        selector: str | None = None,
        *,
        listener: MessageListener | None = None,
        no_local: bool = False,
        prefetch: int | None = None,
        at_most_once: bool = False,
        default_outcome: str | None = "accepted",
        options: ConsumerOptions | None = None,
    ) -> MessageConsumer:
        """A consumer of a queue or topic.

        `no_local`: not what this connection publishes to the topic. `prefetch` is the window in messages (None: 100; 0: demand
        only while a receive waits, and no read ahead). `at_most_once` asks for deliveries that are settled when sent: a crash
        loses up to a window of them. Raises InvalidDestinationError, InvalidSelectorError, UnsupportedFeatureError,
        ConfigurationError, IllegalStateError, RequestTimeoutError.
        """
        target = checked_owner(self._session, parse_destination(destination))
        spec = ReceiverSpec(
            destination=target,
            selector=checked_selector(selector, self.capabilities),
            kind=checked_kind("topic" if isinstance(target, Topic) else "queue", target, self.capabilities),
            no_local=no_local,
            pre_settled=checked_at_most_once(self._session, at_most_once),
            default_outcome=default_outcome,
        )
        return self._consumer(spec, listener, prefetch, options)

    def create_durable_consumer(
        self,
        topic: str | Topic,
        name: str,
        selector: str | None = None,
        *,
        listener: MessageListener | None = None,
        no_local: bool = False,
        prefetch: int | None = None,
        options: ConsumerOptions | None = None,
    ) -> MessageConsumer:
        """The consumer of a durable subscription, which is made if the connection's client id has none of that `name`: it collects
        messages while nobody consumes, until `unsubscribe`. With another topic, selector or `no_local` it is a new one (JM 4.11.3).

        Raises IllegalStateError without a client id or while another consumer has it; else as `create_consumer`."""
        checked_client_id(checked_name(name), self._connection.client_id)
        spec = self._subscription("durable", topic, name, selector, no_local=no_local)
        return self._consumer(spec, listener, prefetch, options)

    def create_shared_consumer(
        self,
        topic: str | Topic,
        name: str,
        selector: str | None = None,
        *,
        listener: MessageListener | None = None,
        prefetch: int | None = None,
        options: ConsumerOptions | None = None,
    ) -> MessageConsumer:
        """A consumer of a shared subscription that is not durable: each message goes to one of the consumers that share `name` (and
        the client id, where there is one); the last to close ends it (JM 4.11.2).

        Raises IllegalStateError where it is in use with another topic or selector; else as `create_consumer`."""
        return self._consumer(self._subscription("shared", topic, name, selector), listener, prefetch, options)

    def create_shared_durable_consumer(
        self,
        topic: str | Topic,
        name: str,
        selector: str | None = None,
        *,
        listener: MessageListener | None = None,
        prefetch: int | None = None,
        options: ConsumerOptions | None = None,
    ) -> MessageConsumer:
        """A consumer of a durable subscription that several share, with or without a client id (JM 4.11.4).

        Raises as `create_shared_consumer`."""
        return self._consumer(self._subscription("shared_durable", topic, name, selector), listener, prefetch, options)

    def unsubscribe(self, name: str) -> None:
        """Delete a durable subscription, shared or not, with all that waits in it. Raises IllegalStateError while it has a consumer
        or messages of it are neither acknowledged nor given back, InvalidDestinationError where there is none,
        UnsupportedFeatureError."""
        checked_name(name)
        if not self.capabilities.durable_subscriptions:
            raise UnsupportedFeatureError("unsubscribe: this provider offers no durable subscriptions")
        self.run_shielded(lambda: self._unsubscribe(name))

    def _unsubscribe(self, name: str) -> None:
        with self._hint_at_lingering():
            self.transport_session.unsubscribe(name, self.request_deadline())

    @contextmanager
    def _hint_at_lingering(self) -> Iterator[None]:
        """A subscription may be in use by a consumer that is closed, for its messages are not settled yet."""
        try:
            yield
        except IllegalStateError as error:
            if self._lingering:
                raise IllegalStateError(
                    f"{error}; or this session holds messages of a closed consumer that are not acknowledged or committed"
                ) from error
            raise

    def _subscription(
        self, kind: SubscriptionKind, topic: str | Topic, name: str, selector: str | None, *, no_local: bool = False
    ) -> ReceiverSpec:
        target = checked_owner(self._session, checked_topic(topic))
        return ReceiverSpec(
            destination=target,
            selector=checked_selector(selector, self.capabilities),
            kind=checked_kind(kind, target, self.capabilities),
            name=checked_name(name),
            no_local=no_local,
        )

    def _consumer(
        self, spec: ReceiverSpec, listener: MessageListener | None, prefetch: int | None, options: ConsumerOptions | None
    ) -> MessageConsumer:
        wanted = Wanted(spec=spec, prefetch=checked_prefetch(prefetch), options=options or ConsumerOptions())
        consumer = self.run_shielded(lambda: self._opened(wanted))
        if listener is not None:
            consumer.listener = listener
        return consumer

    def _opened(self, wanted: Wanted) -> MessageConsumer:
        if wanted.spec.name is None:
            return open_consumer(self._session, wanted)
        with self._hint_at_lingering():
            return open_consumer(self._session, wanted)

    # -- browsers ---------------------------------------------------------------------------------------------------

    def create_browser(self, destination: str | Queue, selector: str | None = None) -> QueueBrowser:
        """Look at the messages of a queue without taking them. Raises InvalidDestinationError for a topic; else as
        `create_consumer`."""
        target = parse_destination(destination)
        if not isinstance(target, Queue):
            raise InvalidDestinationError(f"{target.address}: only queues can be browsed")
        spec = ReceiverSpec(
            destination=checked_owner(self._session, target),
            selector=checked_selector(selector, self.capabilities),
            kind=checked_kind("browse", target, self.capabilities),
        )
        browser = QueueBrowser(self, spec)
        self.run_inside(browser.check)
        return browser

    # -- producers --------------------------------------------------------------------------------------------------

    def create_producer(
        self,
        destination: str | Destination | None = None,
        *,
        persistent: bool = True,
        priority: int = 4,
        time_to_live: float | None = None,
        delivery_delay: float = 0.0,
        send_timeout: float | None = None,
    ) -> MessageProducer:
        """A producer, for one destination or (None) for any that a send names. Times in seconds; `time_to_live` None: for
        ever. `send_timeout` bounds the wait for room only. In a TRANSACTED session what it sends is there after `commit`. Raises
        InvalidDestinationError, ConfigurationError, UnsupportedFeatureError, IllegalStateError."""
        self.check_alive()
        self.check_owner(get_ident())
        producer = MessageProducer(
            self._session,
            None if destination is None else parse_destination(destination),
            persistent=persistent,
            priority=priority,
            time_to_live=time_to_live,
            delivery_delay=delivery_delay,
            send_timeout=send_timeout,
        )
        self.keeper.note(lambda: self._remember(producer))
        return producer

    def _remember(self, producer: MessageProducer) -> None:
        if not producer.closed:
            self._producers = (*self._producers, producer)

    def producer_closed(self, producer: MessageProducer) -> None:
        """Forget it; from any thread."""
        self.keeper.note(lambda: self._forget_producer(producer))

    def _forget_producer(self, producer: MessageProducer) -> None:
        self._producers = tuple(one for one in self._producers if one is not producer)

    # -- temporary destinations -------------------------------------------------------------------------------------

    def create_temporary_queue(self) -> TemporaryQueue:
        """A queue of this connection's own: anybody may send to it, only this connection may consume from it. It lives until its
        `delete()` or the end of the connection. Raises UnsupportedFeatureError, IllegalStateError, RequestTimeoutError."""
        return TemporaryQueue(self._temporary("queue").name, weakref.ref(self._connection))

    def create_temporary_topic(self) -> TemporaryTopic:
        """As `create_temporary_queue`, a topic. Raises UnsupportedFeatureError where the provider has no topics."""
        if not self.capabilities.topics:
            raise UnsupportedFeatureError("create_temporary_topic: this provider offers no topics")
        return TemporaryTopic(self._temporary("topic").name, weakref.ref(self._connection))

    def _temporary(self, kind: Literal["queue", "topic"]) -> Destination:
        return self.run_shielded(lambda: self.transport_session.create_temporary(kind, self.request_deadline()))
