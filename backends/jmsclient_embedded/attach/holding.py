"""Owns what joins a broker with a store to its socket: a transport for each process that attaches.

Such a transport does not keep the broker alive: a store is held by the process that opened it, as long as that needs it.
"""

from __future__ import annotations

from typing import Any

from jmsclient.transport.contract import Transport
from jmsclient_embedded.attach.hello import answer, check_greeting
from jmsclient_embedded.attach.listening import Listening
from jmsclient_embedded.attach.serving import Lose
from jmsclient_embedded.broker import Broker
from jmsclient_embedded.parameters import BrokerParameters
from jmsclient_embedded.transport import EmbeddedTransport


def listening_for(broker: Broker, parameters: BrokerParameters) -> Listening | None:
    """The socket of a broker, to be started; None where there is no store."""
    if parameters.store is None:
        return None

    def welcome(said: dict[str, Any]) -> tuple[Transport, Lose, dict[str, Any]]:
        check_greeting(said, parameters)
        transport = EmbeddedTransport(broker, _Deaf(), _keep, client_id=said.get("client_id"))
        return transport, transport.lose, answer(transport.peer, transport.capabilities)

    return Listening(parameters.store, broker.name or "default", broker.clock, welcome)


def _keep(broker: Broker, deadline: float | None) -> None:
    """The broker lives on."""


class _Deaf:
    """The listener of a transport whose client hears of its end by itself."""

    def lost(self, error: Exception) -> None:
        """It was its own doing."""
