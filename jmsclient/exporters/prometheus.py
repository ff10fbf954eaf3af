"""Events as Prometheus metrics: what each trigger decided, what became of its messages, what went wrong, how long handlers took;
and the counters of a worker's triggers, read when they are asked for (TR-65).

Labels are few and of few values: never an id, never a text. Needs the package prometheus-client (extra `telemetry`). Must not know
where an event comes from. Source: the conventions of Prometheus; docs/reference/events.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from jmsclient.events import Event, subscribe
from jmsclient.exporters.totals import COUNTERS, HasTriggers, totals

DECISIONS = ("new", "duplicate", "in_doubt", "in_progress")
OUTCOMES = ("completed", "acknowledged", "given_back", "parked", "retrying")


class PrometheusExporter:
    """`start` registers the metrics in `registry` and listens, `stop` ends both. With `worker`, the counters of its triggers are
    among them. Serve them as you like: `prometheus_client` has `start_http_server` and an ASGI and WSGI application.
    Thread-safe."""

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, worker: HasTriggers | None = None) -> None:
        self._registry = registry
        self._worker = worker
        self._unsubscribe: Callable[[], None] | None = None
        self._metrics: list[Any] = []

    def start(self) -> None:
        """Raises ValueError where such metrics are registered already."""
        registry = self._registry
        self._decisions = Counter("jmsclient_decisions", "Deliveries decided", ["trigger", "status"], registry=registry)
        self._outcomes = Counter("jmsclient_outcomes", "What became of deliveries", ["trigger", "outcome"], registry=registry)
        self._faults = Counter("jmsclient_faults", "Events of level warning and above", ["area", "event"], registry=registry)
        self._seconds = Histogram("jmsclient_process_seconds", "Seconds from start to completion", ["trigger"], registry=registry)
        self._suspended = Gauge("jmsclient_suspended", "1 while a trigger takes no messages", ["trigger"], registry=registry)
        self._metrics = [self._decisions, self._outcomes, self._faults, self._seconds, self._suspended]
        if self._worker is not None:
            counters = _Counters(self._worker)
            registry.register(counters)
            self._metrics.append(counters)
        self._unsubscribe = subscribe(self)

    def stop(self) -> None:
        """Idempotent."""
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is None:
            return
        unsubscribe()
        for metric in self._metrics:
            self._registry.unregister(metric)

    def __call__(self, event: Event) -> None:
        """The listener."""
        if event.level >= logging.WARNING:
            self._faults.labels(event.area, event.name).inc()
        trigger = event.fields.get("trigger")
        if event.area != "trigger" or trigger is None:
            return
        if event.name in DECISIONS:
            self._decisions.labels(trigger, event.name).inc()
        elif event.name in OUTCOMES:
            self._outcomes.labels(trigger, event.name).inc()
            if event.name == "completed" and event.fields.get("seconds") is not None:
                self._seconds.labels(trigger).observe(event.fields["seconds"])
        elif event.name in ("suspended", "resumed"):
            self._suspended.labels(trigger).set(event.name == "suspended")


class _Counters(Collector):
    """Reads when it is collected: nothing is paid a message."""

    def __init__(self, worker: HasTriggers) -> None:
        self._worker = worker

    def describe(self) -> Iterable[CounterMetricFamily]:
        return [_family(name) for name in COUNTERS]

    def collect(self) -> Iterable[CounterMetricFamily]:
        found = totals(self._worker)
        for name in COUNTERS:
            family = _family(name)
            for trigger, values in found.items():
                family.add_metric([trigger], values[name])
            yield family


def _family(name: str) -> CounterMetricFamily:
    seconds = name.endswith("_time")
    metric = name.removesuffix("_time") + "_seconds" if seconds else name
    what = f"Seconds spent in the {name.removesuffix('_time')}" if seconds else f"The counter {name} of a trigger"
    return CounterMetricFamily(f"jmsclient_trigger_{metric}", what, labels=["trigger"])
