"""Session: makes consumers and producers, keeps what was handed over until it is acknowledged, has one dispatcher for listeners.

One thread at a time, by a try-lock: `inside` is the thread that is in a call. Testing and storing it are plain attribute steps
with no call between, and so is clearing it in `finally`: CPython switches threads and runs signal handlers only after calls and at
jumps back, so an exception from a signal handler can leave neither the try-lock held nor the test half done (IF-40). A second
thread gets IllegalStateError. While a listener is set and the connection started, `owner` is the dispatcher's thread.
Rules RA-20, RA-24, IF-9, IF-14, IF-27, IF-36, IF-37, IF-39, IF-40; S04, S05; Jakarta Messaging 6.2.
"""

from __future__ import annotations

import logging
import threading
import weakref
from _thread import get_ident
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from jmsclient.clock import SystemBell
from jmsclient.destination import Destination, Topic, parse_destination
from jmsclient.errors import CloseTimeout, IllegalStateError, JmsClientError, UnsupportedFeatureError
from jmsclient.events import emit
from jmsclient.intake import Intake
from jmsclient.jms.acknowledgement import BY_APPLICATION, Unacknowledged, checked_mode, settle_by_receiver, when_asked
from jmsclient.jms.consumer import LOOK_INTERVAL, MessageConsumer
from jmsclient.jms.dispatcher import dispatch_until_closed
from jmsclient.jms.hand_over import HandOver, MessageListener
from jmsclient.jms.producer import MessageProducer
from jmsclient.jms.read_ahead import ReadAheadDecision, decide
from jmsclient.jms.sweep import Sweep
from jmsclient.message import Message
from jmsclient.options import AcknowledgeMode, ConsumerOptions, DefaultReadAhead, count, seconds
from jmsclient.selector import compile_selector
from jmsclient.transport.contract import ACCEPT, RETRY, Outcome, Receiver, ReceiverSpec, TransportSession, Verb

if TYPE_CHECKING:
    from jmsclient.jms.connection import Connection

DEFAULT_PREFETCH = 100


class Session:
    """Made by `Connection.create_session`. `close` of it and of what it made, listeners and statistics from any thread; the
    rest one thread at a time. `redelivery_delay` in seconds is read by `recover` (IF-14)."""

    def __init__(
        self,
        connection: Connection,
        acknowledge: AcknowledgeMode,
        *,
        redelivery_delay: float,
    ) -> None:
        self.acknowledge_mode = checked_mode(acknowledge)
        seconds("redelivery_delay", redelivery_delay)
        self.redelivery_delay = redelivery_delay
        self.closed = False
        self.inside = 0
        self.owner = 0
        self.calling: HandOver | None = None
        self.unacknowledged = Unacknowledged()
        self.clock = connection.clock
        self.keeper = connection.keeper
        self.capabilities = connection.capabilities
        self.request_timeout = connection.request_timeout
        self.default_send_timeout = connection.default_send_timeout
        self.message_ids = connection.message_ids
        self.bell = connection.clock.bell()
        self._connection = connection
        self._closing = False
        self._held: tuple[weakref.ref[MessageConsumer], ...] = ()  # replaced whole, on the keeper only
        self._listening: tuple[MessageConsumer, ...] = ()  # these live on though the application forgot them
        self._producers: tuple[MessageProducer, ...] = ()
        self._lingering: tuple[tuple[Intake, Receiver], ...] = ()  # closed consumers whose messages are still to be settled
        self._to_end: tuple[MessageConsumer, ...] = ()  # closed by another consumer's listener: ended after that call
        self._dispatcher: threading.Thread | None = None
        self.transport_session: TransportSession = connection.transport.open_session(
            transacted=False, deadline=self._request_deadline()
        )
        self._complete = True

    _complete = False  # nothing to close before it is

    def __del__(self) -> None:
        """Forgotten by the application (RA-25): a note for the keeper, which takes it up again and closes it. It takes no lock."""
        if self._complete and not self.closed:
            self.keeper.note(self._close_forgotten)

    def _close_forgotten(self) -> None:
        self.retry_in_hand()
        self._closing = True
        self._end(None)

    # -- the one thread ---------------------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """The connection delivers; read live, so that a start during creation is never missed (IF-37)."""
        return self._connection.started

    def busy_error(self) -> IllegalStateError:
        """For a second thread inside."""
        if self.owner not in (0, get_ident()):
            return self._owned_error()
        return IllegalStateError(
            f"this session is in use by thread {self.inside}; a session serves one thread at a time: make one session a thread"
        )

    def check_owner(self, thread: int) -> None:
        """Raise IllegalStateError where the session belongs to its dispatcher and `thread` is not that."""
        if self.owner not in (0, thread):
            raise self._owned_error()

    def _owned_error(self) -> IllegalStateError:
        return IllegalStateError(
            "a listener is set on this session, so it belongs to its dispatcher thread; use another session here"
        )

    def is_dispatcher(self, thread: int) -> bool:
        """Whether this is the thread that calls the listeners."""
        return self._dispatcher is not None and self._dispatcher.ident == thread

    def dead_error(self) -> IllegalStateError | None:
        """Why nothing works any more, where the connection ended by a fork."""
        failure = self._connection.failure
        return failure if isinstance(failure, IllegalStateError) else None

    @property
    def consumers(self) -> tuple[MessageConsumer, ...]:
        """Those that are open and not forgotten by the application (RA-25)."""
        return tuple(consumer for held in self._held if (consumer := held()) is not None)

    @property
    def failed(self) -> bool:
        """The connection is gone for good."""
        return self._connection.failure is not None

    def check_alive(self) -> None:
        """Raise IllegalStateError on a closed session, ConnectionLostError on a lost connection."""
        if self._connection.failure is not None:
            raise self._connection.failure
        if self.closed:
            raise IllegalStateError("this session is closed")

    def _enter(self, me: int) -> None:
        """What a call checks before it stores `inside`; the store must follow at once."""
        self.check_alive()
        if self._closing:
            raise IllegalStateError("this session is closed")
        self.check_owner(me)
        if self.inside:
            raise self.busy_error()

    def _request_deadline(self) -> float | None:
        return self.clock.deadline(self.request_timeout)

    # -- making consumers and producers -----------------------------------------------------------------------------

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

        `prefetch` is the window in messages (None: 100; 0: demand only while a receive waits, and no read ahead).
        `at_most_once` asks for deliveries that are settled when sent: a crash loses up to a window of them. Raises
        InvalidDestinationError, InvalidSelectorError, UnsupportedFeatureError, ConfigurationError, IllegalStateError,
        RequestTimeoutError.
        """
        target = parse_destination(destination)
        selection = compile_selector(selector)  # whatever the provider can do: a selector that is none is refused here (C09)
        count("prefetch", prefetch, none=True)
        options = options or ConsumerOptions()
        if selection is not None and not self.capabilities.selectors:
            raise UnsupportedFeatureError("selector: this provider offers none; filter in the application")
        if isinstance(target, Topic) and not self.capabilities.topics:
            raise UnsupportedFeatureError(f"{target.address}: this provider offers no topics")
        spec = ReceiverSpec(
            destination=target,
            selector=None if selection is None else selection.text,
            kind="topic" if isinstance(target, Topic) else "queue",
            no_local=no_local,
            pre_settled=at_most_once,
            default_outcome=default_outcome,
        )
        me = get_ident()
        self._enter(me)
        self.inside = me
        try:
            consumer = self.keeper.shielded(lambda: self._open(spec, prefetch, options))
        finally:
            self.inside = 0
        if listener is not None:
            consumer.listener = listener
        return consumer

    def _open(self, spec: ReceiverSpec, prefetch: int | None, options: ConsumerOptions) -> MessageConsumer:
        window = DEFAULT_PREFETCH if prefetch is None else prefetch
        intake = Intake(
            window=window,
            window_bytes=options.buffer_bytes,
            refill=options.read_ahead_refill,
            records_hand_over=self.capabilities.records_hand_over,
            clock=self.clock,
            on_arrival=self.bell.ring,
        )
        receiver = self.transport_session.open_receiver(spec, intake, self._request_deadline())
        decision = self._decide(spec.destination, receiver, prefetch, options)
        if decision.used:
            intake.set_window(options.read_ahead_messages, takes=True)
        intake.attach(receiver)
        consumer = MessageConsumer(
            self,
            spec.destination,
            spec.selector,
            intake,
            receiver,
            decision,
            records_hand_over=self.capabilities.records_hand_over,
        )
        self._held = (*self._held, weakref.ref(consumer))
        Sweep(consumer, self, options).plan()
        if self._connection.failure is not None:
            intake.closed(self._connection.failure)
        elif self.started:
            intake.start()
        return consumer

    def _decide(
        self, destination: Destination, receiver: Receiver, prefetch: int | None, options: ConsumerOptions
    ) -> ReadAheadDecision:
        default = getattr(receiver, "default_read_ahead", DefaultReadAhead.UNKNOWN)
        if default is DefaultReadAhead.UNKNOWN:
            default = self._connection.options.default_read_ahead
        return decide(
            destination.read_ahead_allowed,
            default,
            mode=self.acknowledge_mode,
            read_ahead_messages=options.read_ahead_messages,
            prefetch=prefetch,
            capable=self.capabilities.take_on_arrival,
        )

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
        ever. `send_timeout` bounds the wait for room only. Raises InvalidDestinationError, ConfigurationError,
        UnsupportedFeatureError, IllegalStateError."""
        self.check_alive()
        self.check_owner(get_ident())
        producer = MessageProducer(
            self,
            None if destination is None else parse_destination(destination),
            persistent=persistent,
            priority=priority,
            time_to_live=time_to_live,
            delivery_delay=delivery_delay,
            send_timeout=send_timeout,
        )
        self._producers = (*self._producers, producer)
        return producer

    # -- acknowledging ----------------------------------------------------------------------------------------------

    def acknowledge(self) -> None:
        """In CLIENT and INDIVIDUAL: acknowledge all that this session has handed over (JM 6.2.10); in AUTO and DUPS_OK nothing.
        Returns when the provider has it as safely as it makes it. Raises IllegalStateError on a closed session or in a second
        thread."""
        if self.acknowledge_mode not in BY_APPLICATION:
            self.check_alive()
            return
        self._settle_all(ACCEPT)
        self._flush()

    def _flush(self) -> None:
        self.keeper.shielded(lambda: self.transport_session.flush(self._request_deadline()))

    def acknowledge_message(self, message: Message) -> None:
        """What `message.acknowledge()` does in this session; in INDIVIDUAL from any thread."""
        arrival = message.arrival
        closed = self.closed or self._closing
        what = when_asked(self.acknowledge_mode, closed=closed, settled=arrival.settled)
        if what == "session":
            self.acknowledge()
        elif what == "message":
            arrival.receiver.settle((arrival,), ACCEPT)
            if self._lingering:
                self.keeper.note(self.settle_lingering)
            self._flush()

    def _settle_all(self, outcome: Outcome) -> None:
        me = get_ident()
        self._enter(me)
        self.inside = me
        try:
            for consumer in self.consumers:
                consumer.undo_struck()
            arrivals = self.unacknowledged.all()
            settle_by_receiver(arrivals, outcome)
            self.unacknowledged.forget(arrivals)
        finally:
            self.inside = 0
        if self._lingering:
            self.keeper.call(self.settle_lingering)

    def recover(self) -> None:
        """Give back all that was handed over and not acknowledged, to be delivered again, in order, after
        `redelivery_delay` where the provider can delay. Raises IllegalStateError as `acknowledge` does."""
        me = get_ident()
        self._enter(me)
        self.inside = me
        try:
            self.keeper.call(self._recover)
        finally:
            self.inside = 0

    def _recover(self) -> None:
        """Unread messages go back first, so that they come after the ones that are older."""
        delay = self.redelivery_delay if self.capabilities.delayed_release else 0.0
        consumers = self.consumers
        for consumer in consumers:
            consumer.undo_struck()
            consumer.flush_gathered()
            consumer.intake.stop()
            try:
                consumer.intake.drain(self._request_deadline())
            except JmsClientError as error:
                emit("session", "drain_failed", f"recovering without a drain: {error}", level=logging.WARNING)
            consumer.intake.release_buffered()
        arrivals = self.unacknowledged.all()
        settle_by_receiver(arrivals, Outcome(verb=Verb.RETRY, delay=delay) if delay else RETRY)
        self.unacknowledged.forget(arrivals)
        for consumer in consumers:
            consumer.retry_in_hand()
            if self.started and not consumer.quiesced:
                consumer.intake.start()
        self.settle_lingering()

    def commit(self) -> None:
        """Raises IllegalStateError: this session is not transacted."""
        raise IllegalStateError(f"commit: this session is {self.acknowledge_mode.name}, not TRANSACTED")

    def rollback(self) -> None:
        """Raises IllegalStateError: this session is not transacted."""
        raise IllegalStateError(f"rollback: this session is {self.acknowledge_mode.name}, not TRANSACTED; use recover()")

    # -- the dispatcher ---------------------------------------------------------------------------------------------

    def listeners_changed(self) -> None:
        """A listener was set or ended, or the connection started or stopped: who owns the session now?"""
        self._listening = tuple(consumer for consumer in self.consumers if consumer.listening)
        wanted = bool(self._listening)
        if wanted and self._dispatcher is None:
            self.keeper.call(self._start_dispatcher)
        dispatcher = self._dispatcher
        self.owner = dispatcher.ident or 0 if wanted and self.started and dispatcher is not None else 0
        self.bell.ring()

    def _start_dispatcher(self) -> None:
        if self._dispatcher is None and not self.closed:
            dispatcher = threading.Thread(
                target=dispatch_until_closed, args=(self,), name=f"jmsclient-listener-{id(self):x}", daemon=True
            )
            self._dispatcher = dispatcher  # before it runs: a listener may ask at once whose thread it is
            dispatcher.start()

    def end_after_call(self, consumer: MessageConsumer) -> None:
        """A listener closed another consumer of its session; that one ends when the running call has returned."""
        self._to_end = (*self._to_end, consumer)

    # -- closing ----------------------------------------------------------------------------------------------------

    def consumer_closed(self, consumer: MessageConsumer) -> None:
        """It has given back what it had; its receiver stays while something of it is unsettled (IF-27)."""
        self._held = tuple(held for held in self._held if held() not in (None, consumer))
        self._listening = tuple(one for one in self._listening if one is not consumer)
        self._lingering = (*self._lingering, (consumer.intake, consumer.receiver))
        self.settle_lingering()
        self.owner = self.owner if any(one.listening for one in self.consumers) else 0

    def settle_lingering(self) -> None:
        """Detach the receivers that nothing needs any more. On the keeper or the dispatcher."""
        if self._to_end and self.calling is None:
            ending, self._to_end = self._to_end, ()
            for consumer in ending:
                consumer.end_if_emptied()
        if not self._lingering:
            return
        calling = self.calling
        needed = [
            (intake, receiver)
            for intake, receiver in self._lingering
            if self.unacknowledged.any_of(receiver) or (calling is not None and calling.receiver is receiver)
        ]
        done = [pair for pair in self._lingering if pair not in needed]
        self._lingering = tuple(needed)
        for intake, _ in done:
            intake.close_receiver(self._request_deadline())

    def producer_closed(self, producer: MessageProducer) -> None:
        """Forget it."""
        self._producers = tuple(one for one in self._producers if one is not producer)

    def in_thread(self, call: Callable[[], object]) -> None:
        """Run a close that a signal handler asked for; it may wait, so neither there nor on the keeper."""
        threading.Thread(target=_quietly, args=(call,), name="jmsclient-closer", daemon=True).start()

    def close(self, timeout: float | None = 30.0) -> None:
        """Close its consumers as their policies say, give back what is not acknowledged (as a counted attempt), and end the
        dispatcher. Waits for running calls up to `timeout` seconds, then CloseTimeout: close it again. From any thread but its
        own listener's (IllegalStateError; JM 6.2.15); from a signal handler it only leaves a note. Closing twice does nothing.
        """
        if self.closed:
            return
        me = get_ident()
        if self.is_dispatcher(me):
            raise IllegalStateError("a listener cannot close its own session; close the consumer, or close it from another thread")
        self._closing = True
        if self.inside == me:
            self.keeper.note(lambda: self.in_thread(lambda: self.close(timeout)))
            for consumer in self.consumers:
                consumer.note_closing()
            return
        deadline = self.clock.deadline(timeout)
        late: CloseTimeout | None = None
        for consumer in self.consumers:
            try:
                consumer.close(timeout=self.clock.left(deadline))
            except CloseTimeout as error:
                late = error
        if late is not None:
            raise late
        self.keeper.call(lambda: self._end(deadline))
        dispatcher = self._dispatcher
        if dispatcher is not None:
            dispatcher.join(self.clock.left(deadline))

    def _end(self, deadline: float | None) -> None:
        """On the keeper: what was handed over and not acknowledged is a counted attempt; then nothing names the session."""
        if self.closed:
            return
        for producer in self._producers:
            producer.close()
        arrivals = self.unacknowledged.all()
        try:
            settle_by_receiver(arrivals, RETRY)
            self.transport_session.flush(self._request_deadline())
            self.unacknowledged.forget(arrivals)
            self.settle_lingering()
            self.transport_session.close(self._request_deadline())
        except JmsClientError as error:
            if self._connection.failure is None:
                emit("session", "close_failed", f"closing a session: {error}", level=logging.WARNING)
        self.closed = True
        self._connection.session_closed(self)
        self.bell.ring()

    # -- what the connection tells ----------------------------------------------------------------------------------

    def start(self) -> None:
        """The connection started: for the connection."""
        for consumer in self.consumers:
            if not consumer.quiesced:
                consumer.intake.start()
        self.listeners_changed()

    def stop(self, deadline: float | None) -> None:
        """The connection stopped: fetch nothing, wait for the running listener (JM 6.1.4). For the connection."""
        for consumer in self.consumers:
            consumer.intake.stop()
        self.owner = 0
        self.bell.ring()
        pause = SystemBell()
        while self.calling is not None and not self.is_dispatcher(get_ident()):
            left = self.clock.left(deadline)
            if left is not None and left <= 0:
                raise CloseTimeout("stop: a listener is still running", listener_running=True)
            pause.wait(LOOK_INTERVAL)

    def lost(self, error: Exception) -> None:
        """The connection is gone for good: for the connection."""
        for consumer in self.consumers:
            consumer.intake.closed(error)
        self.bell.ring()

    def retry_in_hand(self) -> None:
        """An exception leaves the `with` block of the session or the connection (IF-39)."""
        for consumer in self.consumers:
            consumer.retry_in_hand()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.retry_in_hand()
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.acknowledge_mode.name}{' closed' if self.closed else ''}>"


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except JmsClientError as error:
        emit("session", "close_failed", f"a close asked for by a signal handler: {error}", level=logging.WARNING)
