"""What a test has seen, for its assertions: how deliveries were settled, which events were heard."""

from __future__ import annotations

from jmsclient.events import Event
from jmsclient.testing import ScriptedBackend
from jmsclient.transport.contract import Verb


def verbs(backend: ScriptedBackend) -> list[Verb]:
    """Of every settlement, in order."""
    return [settlement.verb for settlement in backend.settlements]


def named(events: list[Event], name: str) -> list[Event]:
    """Those with this name, in order."""
    return [one for one in events if one.name == name]
