"""The contract through the socket of a store: the broker is another process's as far as this transport can tell."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from jmsclient.destination import Destination, Queue
from jmsclient.testing.conformance import ConformanceSuite, Harness, RecordingListener
from jmsclient.transport.contract import Transport, TransportListener
from jmsclient.transport.registry import find_backend, parse_url
from jmsclient_embedded.attach.attaching import attach
from jmsclient_embedded.attach.remote import RemoteTransport
from jmsclient_embedded.invariants import check
from jmsclient_embedded.transport import EmbeddedTransport


class AttachedHarness(Harness):
    def __init__(self, folder: Path) -> None:
        self.store = folder / "broker.db"
        url = f"embedded:conformance-{secrets.token_hex(4)}?store={self.store}"
        self.holder = find_backend("embedded").connect(parse_url(url), RecordingListener(), deadline=None)

    def connect(self, listener: TransportListener) -> Transport:
        return attach(self.store, parse_url("embedded:"), listener)

    def lose_link(self, transport: Transport) -> None:
        assert isinstance(transport, RemoteTransport)
        transport.link.wire.cut()

    def error_destination(self, queue: Destination) -> Destination | None:
        return Queue("DLQ")

    def close(self) -> None:
        assert isinstance(self.holder, EmbeddedTransport)
        check(self.holder.broker)
        self.holder.close(None)


class TestAttached(ConformanceSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_harness(self) -> Harness:
        return AttachedHarness(self.folder)
