"""The contract on the embedded broker, in memory and with a store."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from jmsclient.destination import Destination, Queue
from jmsclient.testing.conformance import ConformanceSuite, Harness
from jmsclient.transport.contract import Transport, TransportListener
from jmsclient.transport.registry import find_backend, parse_url
from jmsclient_embedded.registry import close_broker
from jmsclient_embedded.transport import EmbeddedTransport, simulate_connection_loss


class EmbeddedHarness(Harness):
    def __init__(self, parameters: str = "") -> None:
        self.url = f"embedded:conformance-{secrets.token_hex(4)}{parameters}"
        self._transport: EmbeddedTransport | None = None

    def connect(self, listener: TransportListener) -> Transport:
        transport = find_backend("embedded").connect(parse_url(self.url), listener, deadline=None)
        assert isinstance(transport, EmbeddedTransport)
        self._transport = transport
        return transport

    def lose_link(self, transport: Transport) -> None:
        simulate_connection_loss(transport)

    def error_destination(self, queue: Destination) -> Destination | None:
        return Queue("DLQ")

    def close(self) -> None:
        if self._transport is not None:
            close_broker(self._transport.broker)


class TestEmbedded(ConformanceSuite):
    def make_harness(self) -> Harness:
        return EmbeddedHarness()


class TestEmbeddedWithStore(ConformanceSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_harness(self) -> Harness:
        return EmbeddedHarness(f"?store={self.folder / 'broker.db'}")
