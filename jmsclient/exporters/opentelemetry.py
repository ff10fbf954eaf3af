"""Events as OpenTelemetry metrics, by the messaging conventions where these have a name for them; and the counters of a worker's
triggers, read when they are asked for (TR-65).

Needs the package opentelemetry-api (extra `telemetry`); which SDK collects them is the application's. Attributes are few and of few
values: never an id, never a text. Source: OpenTelemetry's messaging conventions (in development); docs/reference/events.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

from jmsclient.events import Event, subscribe
from jmsclient.exporters.totals import COUNTERS, HasTriggers, totals

STATUSES = ("new", "duplicate", "in_doubt")
SETTLED = {"acknowledged": "ack", "given_back": "release"}


class OpenTelemetryExporter:
    """`start` listens, `stop` ends that. `system` is `messaging.system`, such as `activemq`. With `worker`, the counters of its
    triggers are told too. Thread-safe."""

    def __init__(
        self, *, system: str = "jms", meter_provider: MeterProvider | None = None, worker: HasTriggers | None = None
    ) -> None:
        meter = get_meter("jmsclient", meter_provider=meter_provider)
        self._system = system
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", unit="{message}", description="Deliveries decided by triggers"
        )
        self._duration = meter.create_histogram(
            "messaging.process.duration", unit="s", description="Seconds from a handler's start to its completion"
        )
        self._settled = meter.create_counter("jmsclient.settled", unit="{message}", description="Deliveries settled by triggers")
        self._faults = meter.create_counter("jmsclient.faults", unit="{event}", description="Events of level warning and above")
        self._unsubscribe: Callable[[], None] | None = None
        if worker is not None:
            self._observe(meter, worker)

    def start(self) -> None:
        if self._unsubscribe is None:
            self._unsubscribe = subscribe(self)

    def stop(self) -> None:
        """Idempotent."""
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()

    def __call__(self, event: Event) -> None:
        """The listener."""
        if event.level >= logging.WARNING:
            self._faults.add(1, {"jmsclient.area": event.area, "jmsclient.event": event.name})
        trigger = event.fields.get("trigger")
        if event.area != "trigger" or trigger is None:
            return
        known = {"messaging.system": self._system, "jmsclient.trigger": trigger}
        if event.name in STATUSES:
            self._consumed.add(
                1,
                {
                    **known,
                    "messaging.operation.name": "process",
                    "messaging.operation.type": "process",
                    "jmsclient.status": event.name,
                },
            )
        elif event.name in SETTLED:
            operation = SETTLED[event.name]
            self._settled.add(1, {**known, "messaging.operation.name": operation, "messaging.operation.type": "settle"})
        elif event.name == "completed" and event.fields.get("seconds") is not None:
            outcome = str(event.fields.get("outcome"))
            self._duration.record(
                event.fields["seconds"], {**known, "messaging.operation.name": "process", "jmsclient.outcome": outcome}
            )

    def _observe(self, meter: Meter, worker: HasTriggers) -> None:
        def observed(name: str, _: CallbackOptions) -> Iterable[Observation]:
            if self._unsubscribe is None:
                return
            for trigger, values in totals(worker).items():
                yield Observation(values[name], {"messaging.system": self._system, "jmsclient.trigger": trigger})

        for name in COUNTERS:
            meter.create_observable_counter(
                f"jmsclient.trigger.{name}",
                callbacks=[partial(observed, name)],
                unit="s" if name.endswith("_time") else "1",
                description=f"The counter {name} of a trigger",
            )
