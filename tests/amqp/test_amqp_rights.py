"""A user without the right to what it asks for: an error at once that says so, on each broker that can be told; the rest goes on.

The list "Bad input": no rights. RabbitMQ, which ends the session, is in `test_amqp_rabbitmq.py`; Artemis in `test_amqp_brokers.py`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

import pytest

import jmsclient
from jmsclient import events
from jmsclient.errors import ConfigurationError, SendError

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the first test of a broker may have to fetch it
POOR = "poor"
"""A user of both, with the password of the other and rights to `live.` only."""
PATIENCE = 20.0


@pytest.mark.parametrize("broker", ["broker_j", "classic"])
def test_no_rights(broker: str, request: pytest.FixtureRequest) -> None:
    running: Any = request.getfixturevalue(broker)
    lost: list[str] = []
    end = events.subscribe(lambda event: lost.append(event.text) if event.name == "link_lost" else None)
    others, mine = f"q.{secrets.token_hex(4)}", f"live.{secrets.token_hex(4)}"
    with jmsclient.connect(running.url, username=POOR, request_timeout=PATIENCE) as connection:
        session = connection.create_session()
        attempts: list[Callable[[], object]] = [
            lambda: session.create_consumer(others),
            lambda: list(session.create_browser(others)),
            lambda: session.create_producer(others).send("x"),  # one broker says so only to the message
        ]
        for forbidden in attempts:
            start = time.monotonic()
            with pytest.raises((ConfigurationError, SendError), match="has not the right") as caught:
                forbidden()
            assert time.monotonic() - start < PATIENCE / 2, "it did not say so, a time-out did"
            assert running.password not in str(caught.value)
        session.create_producer(mine).send("mine")
        message = session.create_consumer(mine).receive(PATIENCE)
        assert message is not None
        assert message.text == "mine"
    end()
    assert lost == []
