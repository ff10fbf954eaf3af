"""What every backend must do, as one class of tests that the author of a backend subclasses.

    from jmsclient.testing.conformance import ConformanceSuite, Harness

    class MyHarness(Harness):
        def connect(self, listener): return MyBackend().connect(parse_url("mine://localhost"), listener, deadline=None)
        def lose_link(self, transport): transport.socket.close()

    class TestMine(ConformanceSuite):
        def make_harness(self): return MyHarness()

Must not know any backend. Only this module and the checks that it imports import pytest. Source: transport/contract.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import pytest

_CHECKS = ("check", "trial", "closing_checks", "delivery_checks", "settlement_checks", "subscription_checks", "transaction_checks")
pytest.register_assert_rewrite(*(f"jmsclient.testing.{name}" for name in _CHECKS))  # so that a failure shows the values

from jmsclient.testing import (  # noqa: E402  each registers its checks
    closing_checks,  # noqa: F401
    delivery_checks,  # noqa: F401
    settlement_checks,  # noqa: F401
    subscription_checks,  # noqa: F401
    transaction_checks,  # noqa: F401
)
from jmsclient.testing.check import CHECKS, Check  # noqa: E402
from jmsclient.testing.trial import Harness, RecordingListener, RecordingSink, Trial  # noqa: E402

__all__ = ["CHECKS", "Check", "ConformanceSuite", "Harness", "RecordingListener", "RecordingSink", "Trial"]


class ConformanceSuite:
    """Subclass it in a test module under a name that pytest collects, and say how to make a harness."""

    @abstractmethod
    def make_harness(self) -> Harness:
        """A fresh harness for one check."""

    @pytest.fixture
    def trial(self) -> Iterator[Trial]:
        harness = self.make_harness()
        try:
            trial = Trial(harness)
            yield trial
            trial.finish()
        finally:
            harness.close()

    @pytest.mark.parametrize("check", CHECKS, ids=str)
    def test_conforms(self, trial: Trial, check: Check) -> None:
        check.run(trial)
