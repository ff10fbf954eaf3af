"""From a declaration and a transport to a running trigger: receiver, buffer, pipeline and the senders its handlers use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jmsclient.clock import Clock
from jmsclient.errors import ConfigurationError
from jmsclient.history.retention import warn_of_short_history_ttl
from jmsclient.intake import Intake
from jmsclient.jms.read_ahead import decide
from jmsclient.options import AcknowledgeMode, ConsumerOptions, DefaultReadAhead
from jmsclient.transport.contract import ReceiverSpec, Transport, TransportSession
from jmsclient.trigger.binding import BatchCall, bind
from jmsclient.trigger.declaration import Declaration
from jmsclient.trigger.outbox import Outbox
from jmsclient.trigger.pipeline import Pipeline, TriggerReport


@dataclass(slots=True)
class RunningTrigger:
    """A started trigger; `join` waits for its pipeline to stop and closes what it opened."""

    declaration: Declaration
    pipeline: Pipeline
    session: TransportSession
    outbox: Outbox
    clock: Clock

    @classmethod
    def start(
        cls,
        declaration: Declaration,
        transport: Transport,
        *,
        worker: str,
        clock: Clock,
        on_failed: Callable[[], None],
        on_recovered: Callable[[], None] | None = None,
    ) -> RunningTrigger:
        """Open the receiver and start the pipeline. Raises ConfigurationError where TR-45 has nowhere to put a failed message,
        and what the transport raises."""
        deadline = clock.deadline(30.0)
        capabilities = transport.capabilities
        nowhere = declaration.error_destination is None and capabilities.reject != "dead_letter" and not declaration.durable
        if nowhere and "dead_letter" in (declaration.on_error, declaration.policy):
            raise ConfigurationError(
                f"trigger {declaration.name!r}: this provider has no error destination of its own; give error_destination="
            )
        if declaration.history is not None:
            declaration.history.check(strict=declaration.options.strict)
        session = transport.open_session(transacted=False, deadline=deadline)
        outbox = Outbox(transport, clock)
        bell = clock.bell()
        options = ConsumerOptions()
        # A trigger without duplicate detection counts as a DUPS_OK consumer; with it, it never takes ahead (TR-28, TR-64).
        may_take = declaration.history is None or declaration.non_persistent == "bypass"
        intake = Intake(
            window=declaration.window,
            window_bytes=options.buffer_bytes,
            refill=options.read_ahead_refill,
            counts_unsettled=True,
            clock=clock,
            on_arrival=bell.ring,
            on_closed=lambda _: bell.ring(),
            records_hand_over=capabilities.records_hand_over,
        )
        spec = ReceiverSpec(destination=declaration.destination, selector=declaration.selector)
        receiver = session.open_receiver(spec, intake, deadline)
        decision = decide(
            declaration.destination.read_ahead_allowed,
            getattr(receiver, "default_read_ahead", DefaultReadAhead.UNKNOWN),
            mode=AcknowledgeMode.DUPS_OK,
            read_ahead_messages=options.read_ahead_messages,
            prefetch=declaration.prefetch,
            capable=capabilities.take_on_arrival,
        )
        if may_take and decision.used:
            intake.set_window(options.read_ahead_messages, takes=True)
        pipeline = Pipeline(
            declaration,
            call=bind(declaration.function) if declaration.batch == 1 else BatchCall(declaration.function),
            send=outbox.send_gathered,
            send_copy=outbox.dead_letter,
            capabilities=capabilities,
            clock=clock,
            worker=worker,
            bell=bell,
            intake=intake,
            on_failed=on_failed,
            on_recovered=on_recovered,
            provider_error_destination=getattr(receiver, "error_destination", None),
        )
        intake.attach(receiver)
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
        pipeline.start()
        intake.start()
        return cls(declaration, pipeline, session, outbox, clock)

    def resume(self, actor: str = "application") -> None:
        """Take messages again after a suspension that used-up retries began (TR-59). Any thread; without one, nothing happens."""
        self.pipeline.resume(actor)

    def join(self) -> TriggerReport:
        report = self.pipeline.join()
        self.session.close(self.clock.monotonic() + 5.0)
        self.outbox.close()
        return report
