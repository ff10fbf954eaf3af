"""Events as metrics, for Prometheus and OpenTelemetry: the right numbers, few labels, and no id among them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from jmsclient.events import emit
from jmsclient.exporters.opentelemetry import OpenTelemetryExporter
from jmsclient.exporters.prometheus import PrometheusExporter


def work() -> None:
    """Two messages and their troubles, as a trigger tells of them."""
    for id_ in ("1", "2"):
        emit("trigger", "new", "", level=logging.DEBUG, trigger="t", id=id_)
        emit("trigger", "completed", "", level=logging.DEBUG, trigger="t", id=id_, outcome="done", seconds=0.25)
        emit("trigger", "acknowledged", "", level=logging.DEBUG, trigger="t", id=id_)
    emit("trigger", "duplicate", "", trigger="t", id="1")
    emit("trigger", "suspended", "", level=logging.WARNING, trigger="t", reason="history_unavailable")
    emit("connection", "lost", "", level=logging.ERROR)


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    registry = CollectorRegistry()
    exporter = PrometheusExporter(registry)
    exporter.start()
    yield registry
    exporter.stop()
    exporter.stop()
    assert generate_latest(registry) == b""


def test_prometheus_counts_by_trigger(registry: CollectorRegistry) -> None:
    work()
    value = registry.get_sample_value
    assert value("jmsclient_decisions_total", {"trigger": "t", "status": "new"}) == 2
    assert value("jmsclient_decisions_total", {"trigger": "t", "status": "duplicate"}) == 1
    assert value("jmsclient_outcomes_total", {"trigger": "t", "outcome": "acknowledged"}) == 2
    assert value("jmsclient_process_seconds_sum", {"trigger": "t"}) == 0.5
    assert value("jmsclient_suspended", {"trigger": "t"}) == 1
    assert value("jmsclient_faults_total", {"area": "connection", "event": "lost"}) == 1
    emit("trigger", "resumed", "", trigger="t")
    assert value("jmsclient_suspended", {"trigger": "t"}) == 0
    assert b'"1"' not in generate_latest(registry)


def test_prometheus_hears_nothing_after_stop() -> None:
    registry = CollectorRegistry()
    exporter = PrometheusExporter(registry)
    exporter.start()
    exporter.stop()
    work()
    exporter.start()
    assert registry.get_sample_value("jmsclient_decisions_total", {"trigger": "t", "status": "new"}) is None
    exporter.stop()


def test_opentelemetry_speaks_by_the_messaging_conventions() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    exporter = OpenTelemetryExporter(system="activemq", meter_provider=provider)
    exporter.start()
    exporter.start()
    work()
    exporter.stop()
    work()
    found: dict[str, list[tuple[dict[str, object], float]]] = {}
    data = reader.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        points = metric.data.data_points
        found[metric.name] = [
            (dict(point.attributes or {}), getattr(point, "sum", getattr(point, "value", 0.0))) for point in points
        ]
    provider.shutdown()
    common = {"messaging.system": "activemq", "jmsclient.trigger": "t"}
    process = {**common, "messaging.operation.name": "process"}
    assert sorted(found["messaging.client.consumed.messages"], key=str) == [
        ({**process, "messaging.operation.type": "process", "jmsclient.status": "duplicate"}, 1),
        ({**process, "messaging.operation.type": "process", "jmsclient.status": "new"}, 2),
    ]
    assert found["messaging.process.duration"] == [({**process, "jmsclient.outcome": "done"}, 0.5)]
    assert found["jmsclient.settled"] == [({**common, "messaging.operation.name": "ack", "messaging.operation.type": "settle"}, 2)]
    assert sum(value for _, value in found["jmsclient.faults"]) == 2
