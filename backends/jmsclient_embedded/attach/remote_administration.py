"""Owns administration of the broker that another process holds: every call of the contract is one question to that process.

Must not know what the calls do: they are made from the contract itself, so that a call that is added there is here too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from jmsclient.transport.administration import Administration
from jmsclient_embedded.attach.link import Link

TIMEOUT = 120.0
"""Seconds that a call may take: a move of very many messages takes its time."""


def _asked(name: str) -> Callable[..., Any]:
    promised = getattr(Administration, name)
    signature = inspect.signature(promised)

    @functools.wraps(promised, updated=())  # without the mark of an abstract method
    def call(self: _Asking, *positional: Any, **named: Any) -> Any:
        signature.bind(self, *positional, **named)  # a wrong call is a TypeError here, not there
        deadline = self.link.clock.deadline(TIMEOUT)
        return self.link.ask("administration", deadline, method=name, positional=list(positional), named=named)

    return call


class _Asking:
    def __init__(self, link: Link) -> None:
        self.link = link


_calls = {name: _asked(name) for name in sorted(Administration.__abstractmethods__)}
_made = type("RemoteAdministration", (_Asking, Administration), _calls)


def remote_administration(link: Link) -> Administration:
    """The administration of the broker at the other end of `link`. Thread-safe."""
    administration: Administration = _made(link)
    return administration
