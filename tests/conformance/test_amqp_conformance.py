"""The contract on real AMQP brokers."""

from __future__ import annotations

from itertools import count

import pytest

from jmsclient.destination import Destination, Queue, Topic
from jmsclient.testing.conformance import ConformanceSuite, Harness
from jmsclient.transport.contract import Transport, TransportListener
from jmsclient.transport.registry import find_backend, parse_url

amqp = pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the first test of a broker may have to fetch it
_numbers = count()


class AmqpHarness(Harness):
    def __init__(self, url: str, error_destination: Destination | None) -> None:
        self.url = url
        self._error_destination = error_destination

    def connect(self, listener: TransportListener) -> Transport:
        endpoint = parse_url(self.url)
        return find_backend(endpoint.scheme).connect(endpoint, listener, deadline=endpoint.clock.deadline(self.patience))

    def lose_link(self, transport: Transport) -> None:
        amqp.cut(transport)

    def topic(self) -> Topic:
        """One that exists where topics have to."""
        return Topic(f"topic.{next(_numbers) % 20}")

    def error_destination(self, queue: Destination) -> Destination | None:
        return self._error_destination


class TestBrokerJ(ConformanceSuite):
    @pytest.fixture(autouse=True)
    def _broker(self, broker_j_url: str) -> None:
        self.url = broker_j_url

    def make_harness(self) -> Harness:
        return AmqpHarness(self.url, None)


class TestClassic(ConformanceSuite):
    @pytest.fixture(autouse=True)
    def _broker(self, classic_url: str) -> None:
        self.url = classic_url

    def make_harness(self) -> Harness:
        return AmqpHarness(self.url, Queue("ActiveMQ.DLQ"))


class TestRabbitMQ(ConformanceSuite):
    @pytest.fixture(autouse=True)
    def _broker(self, rabbitmq_url: str) -> None:
        self.url = rabbitmq_url

    def make_harness(self) -> Harness:
        return AmqpHarness(self.url, None)


class TestArtemis(ConformanceSuite):
    @pytest.fixture(autouse=True)
    def _broker(self, artemis_url: str) -> None:
        self.url = artemis_url

    def make_harness(self) -> Harness:
        return AmqpHarness(self.url, Queue("DLQ"))
