"""IF-40 through the socket: exceptions from signal handlers at random points of an attached consumer strand and hang nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jmsclient import AcknowledgeMode, Connection, connect
from jmsclient.transport.contract import Backend, Endpoint, Transport, TransportListener
from jmsclient.transport.registry import register, unregister
from jmsclient_embedded.attach.attaching import attach

from ..lightning import ENOUGH, GUARDED, SWALLOWED, Season, lightning  # noqa: TID252  tests are no package that has a name
from .attached import holding, wait_until
from .conftest import Client

pytestmark = [GUARDED, SWALLOWED]
SECONDS = 1.5
MESSAGES = 5000


class ThroughTheSocket(Backend):
    """Attaches, although the store is held by this very process."""

    def __init__(self, store: Path) -> None:
        self._store = store

    def connect(self, endpoint: Endpoint, listener: TransportListener, *, deadline: float | None) -> Transport:
        return attach(self._store, endpoint, listener)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def holder(store: Path) -> Iterator[Client]:
    with holding(store) as client:
        yield client


@pytest.fixture
def attached(holder: Client, store: Path) -> Iterator[Connection]:
    register("attached", ThroughTheSocket(store))
    try:
        with connect("attached:") as connection:
            yield connection
    finally:
        unregister("attached")


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL])
def test_if_40_nothing_is_stranded(holder: Client, attached: Connection, mode: AcknowledgeMode, persistent: bool) -> None:
    attached.create_session().create_producer("q", persistent=persistent).send_many(map(str, range(MESSAGES)))
    session = attached.create_session(mode)
    consumer = session.create_consumer("q", prefetch=20)
    season = Season(SECONDS)
    strikes = 0

    def take() -> None:
        while season.lasts(strikes):
            message = consumer.receive(0.01)
            if message is not None:
                message.acknowledge()

    with lightning(0.00005, 0.003) as storm:
        while season.lasts(strikes):
            strikes += storm.hits(take)
    attached.close()
    assert strikes > ENOUGH
    numbers = holder.admin.statistics("q")
    assert numbers.messages_acknowledged > 0
    assert numbers.messages_acknowledged + numbers.messages_current == MESSAGES
    assert {state for state, _ in holder.shown()} <= {"visible"}
    wait_until(lambda: not holder.broker.granting.holders)
