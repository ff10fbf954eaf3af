"""Owns ScriptedBackend: a provider without a broker that does what a test tells it, when the test tells it.

Must not know the core above the contract. It has queues in memory, so that the conformance suite runs on it, and a script: late
confirmations, refused attach, lost link, receivers closed by the peer. Source: transport/contract.py; rules TR-67, IF-10, IF-27.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from types import TracebackType

from jmsclient.destination import Destination, parse_destination
from jmsclient.errors import ConnectionLostError
from jmsclient.message import Body, Message, PlainContent, checked_body
from jmsclient.testing.scripted_state import (
    ERROR_DESTINATION,
    DeadLetter,
    ScriptedState,
    Settlement,
    check_capabilities,
)
from jmsclient.testing.scripted_transport import ScriptedTransport
from jmsclient.transport import registry
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Backend, Endpoint, Transport, TransportListener

DEFAULT_CAPABILITIES = Capabilities(
    take_on_arrival=True,
    release_without_count=True,
    delivery_count="exact",
    count_after_loss="raised",
    reject="dead_letter",
    close_returns_unsettled="at_close",
    drain="yes",
    transactions=True,
    browse=True,
)
"""No `delayed_release`: the core then holds messages itself (TR-67)."""

_schemes = (f"scripted-{number}" for number in itertools.count(1))


class ScriptedBackend(Backend):
    """A backend a test scripts. Thread-safe; the script's calls return at once, their effect is pushed by a transport's thread.

    `with ScriptedBackend() as backend:` registers it under a scheme of its own for that time; connect to `backend.url`. Leaving
    the block ends the links that are still there. `error_destination` is where rejected messages go (`reject="dead_letter"`).
    """

    __test__ = False
    error_destination = ERROR_DESTINATION

    def __init__(self, capabilities: Capabilities = DEFAULT_CAPABILITIES, *, scheme: str | None = None) -> None:
        check_capabilities(capabilities)
        self.scheme = scheme or next(_schemes)
        self.schemes: Sequence[str] = (self.scheme,)
        self._state = ScriptedState(capabilities)
        self._transports: tuple[ScriptedTransport, ...] = ()

    @property
    def url(self) -> str:
        return f"{self.scheme}:"

    def __enter__(self) -> ScriptedBackend:
        registry.register(self.scheme, self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        registry.unregister(self.scheme)
        for transport in self._transports:
            transport.close(None)

    def connect(self, endpoint: Endpoint, listener: TransportListener, *, deadline: float | None) -> Transport:
        with self._state.lock:
            if self._state.refused_connect is not None:
                raise self._state.refused_connect
        transport = ScriptedTransport(self._state, self._wake_all, endpoint, listener)
        with self._state.lock:
            self._transports = (*(one for one in self._transports if one.dead is None), transport)
        return transport

    def _wake_all(self) -> None:
        for transport in self._transports:
            transport.wake()

    # -- the script: messages -----------------------------------------------------------------------------------------

    def deliver(
        self,
        destination: str | Destination,
        contents: PlainContent | Message | Body | Iterable[PlainContent | Message | str | bytes],
        delivery_count: int = 1,
        *,
        persistent: bool = True,
    ) -> list[str]:
        """Put messages on a queue as if someone had sent them; returns their ids.

        A list is many messages; anything else is one. `delivery_count` is what their first delivery says (-1: unknown).
        `persistent` counts for bodies only.
        """
        address = parse_destination(destination).address
        many = contents if isinstance(contents, list | tuple) else [contents]
        ids: list[str] = []
        with self._state.lock:
            for one in many:
                content = _content(one, persistent)
                if content.message_id is None:
                    content.message_id = f"ID:scripted-{self._state.next_number()}"
                content.destination = content.destination or address
                self._state.queues.put(address, content, delivery_count)
                ids.append(content.message_id)
        self._wake_all()
        return ids

    def waiting(self, destination: str | Destination) -> list[PlainContent]:
        """What waits on a queue, head first; what receivers hold unsettled is not in it."""
        with self._state.lock:
            return self._state.queues.contents(parse_destination(destination).address)

    # -- the script: faults -------------------------------------------------------------------------------------------

    def refuse_connect(self, error: Exception | None) -> None:
        """Raise `error` for every further connect; None: accept again."""
        with self._state.lock:
            self._state.refused_connect = error

    def refuse_attach(self, error: Exception | None) -> None:
        """Raise `error` for every further receiver and sender; None: accept again."""
        with self._state.lock:
            self._state.refused_attach = error

    def refuse_sends(self, error: Exception | None) -> None:
        """Raise `error` for every further send, of which nothing is written; None: accept again."""
        with self._state.lock:
            self._state.refused_send = error

    def refuse_commits(self, error: Exception | None, *, applied: bool = False) -> None:
        """Raise `error` for every further commit, which takes effect all the same where `applied`, else is rolled back; None:
        accept again."""
        with self._state.lock:
            self._state.refused_commit = None if error is None else (error, applied)

    def hold_confirmations(self) -> None:
        """Take sends, but confirm none until `release_confirmations`."""
        with self._state.lock:
            self._state.holding = True

    def release_confirmations(self) -> None:
        """Confirm what was held, and confirm at once again."""
        with self._state.lock:
            self._state.holding = False
        for transport in self._transports:
            transport.post(transport.confirm)

    def lose_link(self, error: Exception | None = None) -> None:
        """Break every live link: unsettled messages are back at once, each listener hears `lost` on its transport's thread."""
        for transport in self._transports:
            transport.die(error or ConnectionLostError("the link to the scripted backend was cut"))

    def close_receivers(self, error: Exception | None = None, destination: str | Destination | None = None) -> None:
        """Have the peer close all receivers (of one destination); their sinks hear `closed(error)`."""
        address = None if destination is None else parse_destination(destination).address
        for transport in self._transports:
            with self._state.lock:
                receivers = [one for one in transport.receivers if address in (None, one.address)]
            for receiver in receivers:
                transport.post(lambda receiver=receiver: receiver.close_by_peer(error))  # type: ignore[misc]

    # -- what happened ------------------------------------------------------------------------------------------------

    @property
    def settlements(self) -> list[Settlement]:
        """Every explicit outcome so far, in order."""
        with self._state.lock:
            return list(self._state.settlements)

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """What was rejected (unless `reject` is requeue), in order."""
        with self._state.lock:
            return list(self._state.dead_letters)

    @property
    def requests(self) -> list[tuple[str, int]]:
        """Every request so far: address and count (RA-10 asks for one a crossing)."""
        with self._state.lock:
            return list(self._state.requests)

    @property
    def violations(self) -> list[str]:
        """What the core asked for and must not; a test asserts that it is empty."""
        with self._state.lock:
            return list(self._state.violations)

    @property
    def stale_settlements(self) -> int:
        """Settlements on dead receivers."""
        with self._state.lock:
            return self._state.stale

    @property
    def sent(self) -> int:
        """Messages written by senders."""
        with self._state.lock:
            return self._state.sent

    def demand(self, destination: str | Destination) -> int:
        """What the open receivers of a queue have asked for and not yet got (IF-17)."""
        address = parse_destination(destination).address
        with self._state.lock:
            return sum(one.demand for transport in self._transports for one in transport.receivers if one.address == address)

    def unsettled(self, destination: str | Destination) -> list[str | None]:
        """Ids of what receivers of a queue hold unsettled, in the order delivered."""
        address = parse_destination(destination).address
        with self._state.lock:
            return [
                held.content.message_id
                for transport in self._transports
                for session in transport.sessions
                for receiver in session.receivers
                if receiver.address == address
                for held, _ in receiver.unsettled.values()
            ]


def _content(one: object, persistent: bool) -> PlainContent:
    if isinstance(one, Message):
        one = one.content
    if isinstance(one, PlainContent):
        return one
    kind, body = checked_body(one)
    return PlainContent(kind=kind, body=body, persistent=persistent)
