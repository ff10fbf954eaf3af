"""Events as metrics, for Prometheus and OpenTelemetry: the right numbers, few labels, and no id among them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from jmsclient import Worker
from jmsclient.events import emit
from jmsclient.exporters.opentelemetry import OpenTelemetryExporter
from jmsclient.exporters.prometheus import PrometheusExporter
from jmsclient.exporters.totals import COUNTERS
from jmsclient.testing import TestBroker


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
    found = points(reader)
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


def busy_worker(look: Callable[[Worker], None]) -> None:
    """Three messages and a copy of one, through a trigger with a history; then `look`, with the worker still running."""
    worker = Worker(history="memory:")
    worker.trigger("queue:///orders", name="book")(lambda: None)
    with TestBroker() as broker:
        worker.url = broker.url
        with worker:
            for uuid in ("a", "b", "c", "a"):
                broker.send("queue:///orders", uuid, properties={"uuid": uuid})
            counters = worker.triggers["book"]
            end = time.monotonic() + 30
            while counters.counters["completed"] < 3 or counters.counters["duplicate"] < 1:
                assert time.monotonic() < end
                time.sleep(0.005)
            look(worker)


def test_tr65_prometheus_has_every_counter_of_a_trigger_whatever_is_reset() -> None:
    registry = CollectorRegistry()

    def look(worker: Worker) -> None:
        exporter = PrometheusExporter(registry, worker=worker)
        exporter.start()
        try:
            worker.triggers["book"].reset_counters()
            value = registry.get_sample_value
            assert value("jmsclient_trigger_new_total", {"trigger": "book"}) == 3
            assert value("jmsclient_trigger_duplicate_total", {"trigger": "book"}) == 1
            assert value("jmsclient_trigger_store_errors_total", {"trigger": "book"}) == 0
            assert value("jmsclient_trigger_sweeper_removed_total", {"trigger": "book"}) == 0
            assert (value("jmsclient_trigger_store_seconds_total", {"trigger": "book"}) or 0) > 0
            assert value("jmsclient_trigger_resolver_seconds_total", {"trigger": "book"}) == 0
            text = generate_latest(registry).decode()
            assert text.count("# TYPE jmsclient_trigger_") == len(COUNTERS) == len(worker.triggers["book"].totals)
        finally:
            exporter.stop()
        assert generate_latest(registry) == b""

    busy_worker(look)


def test_tr65_opentelemetry_has_every_counter_of_a_trigger_whatever_is_reset() -> None:
    def look(worker: Worker) -> None:
        reader = InMemoryMetricReader()
        provider = MeterProvider(metric_readers=[reader])
        exporter = OpenTelemetryExporter(meter_provider=provider, worker=worker)
        assert not any(name.startswith("jmsclient.trigger.") for name in points(reader))
        exporter.start()
        worker.triggers["book"].reset_counters()
        found = points(reader)
        exporter.stop()
        assert points(reader).keys() == {name for name in found if not name.startswith("jmsclient.trigger.")}
        provider.shutdown()
        assert {name for name in found if name.startswith("jmsclient.trigger.")} == {f"jmsclient.trigger.{one}" for one in COUNTERS}
        known = {"messaging.system": "jms", "jmsclient.trigger": "book"}
        assert found["jmsclient.trigger.new"] == [(known, 3)]
        assert found["jmsclient.trigger.duplicate"] == [(known, 1)]
        assert found["jmsclient.trigger.store_time"][0][1] > 0

    busy_worker(look)


def points(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, object], float]]]:
    """What was measured: attributes and sum, by the name of the metric."""
    data = reader.get_metrics_data()
    if data is None or not data.resource_metrics:
        return {}
    return {
        metric.name: [
            (dict(point.attributes or {}), getattr(point, "sum", getattr(point, "value", 0.0))) for point in metric.data.data_points
        ]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
