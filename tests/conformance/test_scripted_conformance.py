"""The contract on a ScriptedBackend, with each answer a capability can give."""

from __future__ import annotations

from dataclasses import replace

from jmsclient.destination import Destination, parse_destination
from jmsclient.testing.conformance import ConformanceSuite, Harness
from jmsclient.testing.scripted import DEFAULT_CAPABILITIES, ScriptedBackend
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Transport, TransportListener
from jmsclient.transport.registry import parse_url


class ScriptedHarness(Harness):
    def __init__(self, capabilities: Capabilities) -> None:
        self.backend = ScriptedBackend(capabilities)
        self._lost = False

    def connect(self, listener: TransportListener) -> Transport:
        return self.backend.connect(parse_url(self.backend.url), listener, deadline=None)

    def lose_link(self, transport: Transport) -> None:
        self.backend.lose_link()

    def error_destination(self, queue: Destination) -> Destination | None:
        return parse_destination(self.backend.error_destination)

    def close(self) -> None:
        assert not self.backend.violations


class TestScripted(ConformanceSuite):
    def make_harness(self) -> Harness:
        return ScriptedHarness(DEFAULT_CAPABILITIES)


class TestScriptedAtItsBest(ConformanceSuite):
    def make_harness(self) -> Harness:
        return ScriptedHarness(
            replace(DEFAULT_CAPABILITIES, delayed_release=True, close_returns_unsettled="at_session_end", reject="requeue")
        )


class TestScriptedAtItsWorst(ConformanceSuite):
    """Like RabbitMQ: no drain, no count, nothing uncounted."""

    def make_harness(self) -> Harness:
        return ScriptedHarness(
            Capabilities(delivery_count="derived", count_after_loss="not_raised", reject="discard", drain="may_miss")
        )


class TestScriptedWithoutDrainOrCount(ConformanceSuite):
    def make_harness(self) -> Harness:
        return ScriptedHarness(Capabilities(delivery_count="none", drain="no", close_returns_unsettled="at_close"))
