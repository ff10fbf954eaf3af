"""The contract through what outlives links: it has the face of a transport, so it has to keep the promises of one.

When its link is lost it does not become dead, so the checks of losing one are not for it while it is tried again: here it is
told not to come back.
"""

from __future__ import annotations

from dataclasses import replace

from jmsclient.destination import Destination, parse_destination
from jmsclient.errors import ConnectionLostError
from jmsclient.testing.conformance import ConformanceSuite, Harness
from jmsclient.testing.scripted import DEFAULT_CAPABILITIES, ScriptedBackend
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Transport, TransportListener
from jmsclient.transport.link import Link, open_link
from jmsclient.transport.registry import parse_places


class LinkedHarness(Harness):
    def __init__(self, capabilities: Capabilities) -> None:
        self.backend = ScriptedBackend(capabilities)
        self.backend.__enter__()

    def connect(self, listener: TransportListener) -> Transport:
        url = f"failover:({self.backend.url})?max_reconnect_attempts=1&initial_reconnect_delay=0"
        return open_link(parse_places(url), listener, deadline=None, timeout=5.0)

    def lose_link(self, transport: Transport) -> None:
        assert isinstance(transport, Link)
        self.backend.refuse_connect(ConnectionLostError("nobody listens"))
        self.backend.lose_link()
        transport.wait(lambda: transport.over is not None, transport.clock.deadline(5.0))
        self.backend.refuse_connect(None)

    def error_destination(self, queue: Destination) -> Destination | None:
        return parse_destination(self.backend.error_destination)

    def close(self) -> None:
        assert not self.backend.violations
        self.backend.__exit__(None, None, None)


class TestLinked(ConformanceSuite):
    def make_harness(self) -> Harness:
        return LinkedHarness(DEFAULT_CAPABILITIES)


class TestLinkedAtSessionEnd(ConformanceSuite):
    def make_harness(self) -> Harness:
        return LinkedHarness(replace(DEFAULT_CAPABILITIES, delayed_release=True, close_returns_unsettled="at_session_end"))
