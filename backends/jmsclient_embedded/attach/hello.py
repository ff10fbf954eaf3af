"""Owns what the two sides say of themselves first, and who is let in. Pure, but for the transport that is made for a client.

Must not know of sockets. The protocol's number changes with its words; both sides are parts of the same library, so that only equal
numbers understand each other, and a difference says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jmsclient.errors import ConfigurationError, StoreInUseError
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Peer
from jmsclient_embedded.attach.frames import ProtocolError
from jmsclient_embedded.attach.values import from_json, to_json
from jmsclient_embedded.parameters import BrokerParameters, parse_parameters

PRODUCT = "jmsclient-embedded"
PROTOCOL = 1
_OF_THIS_PROCESS = ("store", "attach", "private")


def greeting(parameters: Mapping[str, str], client_id: str | None) -> dict[str, Any]:
    """What a client says; `parameters` are its URL's."""
    given = {name: value for name, value in parameters.items() if name not in _OF_THIS_PROCESS}
    return {"hello": {"product": PRODUCT, "protocol": PROTOCOL}, "parameters": given, "client_id": client_id}


def check_greeting(said: Mapping[str, Any], holder: BrokerParameters) -> None:
    """Refuse who speaks another protocol, or asks for another broker than there is. Raises StoreInUseError, ConfigurationError."""
    check_protocol(said["hello"], "attaching process")
    given = said["parameters"]
    if not given:
        return
    if replace(parse_parameters(given), store=holder.store, private=holder.private) != holder:
        raise ConfigurationError("the process that holds the store opened it with other parameters; use the same, or none")


def answer(peer: Peer, capabilities: Capabilities) -> dict[str, Any]:
    """What the holder says."""
    return {"product": PRODUCT, "protocol": PROTOCOL, "version": peer.version, "capabilities": to_json(capabilities)}


def read_answer(said: Mapping[str, Any]) -> tuple[Peer, Capabilities]:
    """Who the holder is and what it can do. Raises StoreInUseError for another protocol, ProtocolError for what is no answer."""
    check_protocol(said, "process that holds the store")
    capabilities = from_json(said.get("capabilities"))
    if not isinstance(capabilities, Capabilities):
        raise ProtocolError("an answer without capabilities")
    return Peer(product=PRODUCT, version=str(said.get("version"))), capabilities


def check_protocol(said: Mapping[str, Any], who: str) -> None:
    """Raises StoreInUseError."""
    product, protocol = said.get("product"), said.get("protocol")
    if product != PRODUCT or protocol != PROTOCOL:
        raise StoreInUseError(
            f"the {who} speaks {product!r}, protocol {protocol!r}, and this side {PRODUCT!r}, protocol {PROTOCOL}: "
            "use the same version of jmsclient in both"
        )
