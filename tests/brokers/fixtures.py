"""Real AMQP brokers as fixtures: found by URL, or started for the run; one at a time, for each is a virtual machine.

Where neither is possible the test is skipped with the reason; with JMSCLIENT_REQUIRE_REAL=1, as in CI, it fails instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .artemis import Artemis
from .broker_j import BrokerJ
from .classic import Classic
from .launching import Broker, NotAvailable
from .rabbitmq import RabbitMQ

__all__ = ["artemis", "artemis_url", "broker_j", "broker_j_url", "classic", "classic_url", "rabbitmq", "rabbitmq_url"]
REQUIRE_REAL = "JMSCLIENT_REQUIRE_REAL"


def started(kind: type[Broker], factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = kind(factory.mktemp(kind.name))
    try:
        broker.prepare()
    except NotAvailable as reason:
        text = f"{kind.name} cannot be started here: {reason}"
        if os.environ.get(REQUIRE_REAL) == "1":
            pytest.fail(f"{text}, and {REQUIRE_REAL}=1 says that it must be there", pytrace=False)
        pytest.skip(text)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def artemis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """An ActiveMQ Artemis of this run: may be killed and started again by a test, which leaves it running."""
    yield from started(Artemis, tmp_path_factory)


@pytest.fixture(scope="session")
def broker_j(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Qpid Broker-J, as `artemis`."""
    yield from started(BrokerJ, tmp_path_factory)


@pytest.fixture(scope="session")
def classic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """An ActiveMQ Classic, as `artemis`."""
    yield from started(Classic, tmp_path_factory)


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A RabbitMQ with its AMQP 1.0 plug-in, as `artemis`."""
    yield from started(RabbitMQ, tmp_path_factory)


def url_of(name: str, request: pytest.FixtureRequest) -> str:
    """The broker of JMSCLIENT_TEST_<NAME>_URL, whose queues may be used, else one started for this run."""
    given = os.environ.get(f"JMSCLIENT_TEST_{name.upper()}_URL")
    if given:
        return given
    broker: Broker = request.getfixturevalue(name)
    return broker.url


@pytest.fixture(scope="session")
def artemis_url(request: pytest.FixtureRequest) -> str:
    return url_of("artemis", request)


@pytest.fixture(scope="session")
def broker_j_url(request: pytest.FixtureRequest) -> str:
    return url_of("broker_j", request)


@pytest.fixture(scope="session")
def classic_url(request: pytest.FixtureRequest) -> str:
    return url_of("classic", request)


@pytest.fixture(scope="session")
def rabbitmq_url(request: pytest.FixtureRequest) -> str:
    return url_of("rabbitmq", request)
