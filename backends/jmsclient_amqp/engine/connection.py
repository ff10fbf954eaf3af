"""A connection and its transport: bytes in, bytes out, states to look at.

There is no collector, hence no events: after new bytes the states are looked at, and what was delivered is taken in a loop;
that is what makes it fast. Must not know sockets, threads or messages. One engine is touched by one thread only, because every
call drops the interpreter's lock. Source: AMQP 1.0 part 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cproton_ffi import ffi, lib

from jmsclient_amqp.engine.library import (
    NULL,
    REMOTE_CLOSED,
    REMOTE_OPEN,
    Condition,
    EngineError,
    condition_of,
    fill,
    symbols_of,
    value_of,
)
from jmsclient_amqp.engine.links import Scratch, SessionHandle, address_of

BUFFER = 1 << 18
OUTGOING = 1 << 19
"""Bytes that go to the socket in one call, at most. The engine gives out what the peer's frames hold at a time, a fourth of this or
less; every call costs a system call, and wakes a peer that has nothing else to do."""
INCOMING_FRAMES = 2048
"""How many frames a peer may send of a session before it hears from us: times the largest frame, what is on its way at most when
credit is taken back (RA-9). Enough that with the usual windows of messages it is always renewed before it is used up."""


class Engine:
    """A connection and its transport: bytes in, bytes out."""

    def __init__(
        self, *, container: str, hostname: str, idle_timeout: float, max_frame: int, properties: bytes, desired: bytes
    ) -> None:
        self._max_frame = max_frame
        self._connection = connection = lib.pn_connection()
        self._transport = transport = lib.pn_transport()
        lib.pn_connection_set_container(connection, container.encode())
        lib.pn_connection_set_hostname(connection, hostname.encode())
        fill(lib.pn_connection_properties(connection), properties)
        fill(lib.pn_connection_desired_capabilities(connection), desired)
        lib.pn_transport_set_idle_timeout(transport, round(idle_timeout * 1000))
        lib.pn_transport_set_max_frame(transport, max_frame)
        lib.pn_transport_bind(transport, connection)
        self._out = bytearray(OUTGOING)
        self._out_view = memoryview(self._out)
        self._out_pointer = ffi.from_buffer(self._out)
        self._unsent = self._filled = 0  # what is between these goes out first
        self.incoming = bytearray(BUFFER)
        """Where the socket's bytes go before `feed`."""
        self._incoming_pointer = ffi.from_buffer(self.incoming)
        self._scratch = Scratch()
        self._amended = b""  # goes out before what the engine has
        self.freed = False

    def open(self) -> None:
        lib.pn_connection_open(self._connection)

    @property
    def remote_open(self) -> bool:
        return bool(lib.pn_connection_state(self._connection) & REMOTE_OPEN)

    @property
    def remote_closed(self) -> bool:
        return bool(lib.pn_connection_state(self._connection) & REMOTE_CLOSED)

    @property
    def remote_condition(self) -> Condition | None:
        return condition_of(lib.pn_connection_remote_condition(self._connection))

    @property
    def remote_properties(self) -> dict[str, Any]:
        found = value_of(lib.pn_connection_remote_properties(self._connection))
        return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}

    @property
    def offered(self) -> frozenset[str]:
        return symbols_of(lib.pn_connection_remote_offered_capabilities(self._connection))

    def close(self) -> None:
        lib.pn_connection_close(self._connection)

    def session(self, *, receives: bool = True) -> SessionHandle:
        session = lib.pn_session(self._connection)
        if receives:
            lib.pn_session_set_incoming_capacity(session, INCOMING_FRAMES * self._max_frame)
        return SessionHandle(session, self._scratch)

    # -- bytes ------------------------------------------------------------------------------------------------------

    def feed(self, count: int) -> None:
        """Process the first `count` bytes of `incoming`. Raises EngineError."""
        done = 0
        while done < count:
            step = lib.pn_transport_push(self._transport, self._incoming_pointer + done, count - done)
            if step <= 0:
                break  # it takes no more: an error, or the peer has closed
            done += step
        self.check()

    def end_of_input(self) -> None:
        """The peer has closed the socket. Raises EngineError where it should not have."""
        lib.pn_transport_close_tail(self._transport)

    def check(self) -> None:
        """Raises EngineError where the transport has failed."""
        condition = condition_of(lib.pn_transport_condition(self._transport))
        if condition is not None:
            raise EngineError(condition)

    def pending(self) -> memoryview | None:
        """Bytes to send; call `sent` with how many were."""
        if self._unsent == self._filled and not self._amended:
            self._unsent, self._filled = 0, self._fill()
        if self._unsent < self._filled:
            return self._out_view[self._unsent : self._filled]
        return memoryview(self._amended) if self._amended else None

    def _fill(self) -> int:
        """Take what the engine has to say, as much as there is room for; how much."""
        transport, filled = self._transport, 0
        while filled < OUTGOING:
            count = min(lib.pn_transport_pending(transport), OUTGOING - filled)
            if count <= 0:
                break
            lib.pn_transport_peek(transport, self._out_pointer + filled, count)
            lib.pn_transport_pop(transport, count)
            filled += count
        return filled

    def sent(self, count: int) -> None:
        if self._unsent < self._filled:
            self._unsent += count
        else:
            self._amended = self._amended[count:]

    def amend(self, change: Callable[[bytes], bytes]) -> None:
        """Have what it has to say now, whole frames, changed before it goes out. Only when all that it said before is on its
        way: else a frame may be half out."""
        assert self._unsent == self._filled
        count = self._fill()
        assert 0 < count < OUTGOING
        self._amended = change(bytes(self._out_view[:count]))

    def tick(self, now: float) -> float | None:
        """Heartbeats: send one if it is due, fail if the peer's is overdue. When to call again. Raises EngineError."""
        due = lib.pn_transport_tick(self._transport, round(now * 1000))
        self.check()
        return due / 1000 if due > 0 else None

    def free(self) -> None:
        """Let go of everything; nothing of this engine may be used afterwards."""
        if not self.freed:
            self.freed = True
            lib.pn_transport_unbind(self._transport)
            lib.pn_decref(self._transport)
            lib.pn_connection_release(self._connection)
            lib.pn_decref(self._connection)

    def hear_detaches(self) -> DetachEvents:
        """From now on, until `stop`: a detach without `closed` leaves no state behind, only an event."""
        return DetachEvents(self._connection)


class DetachEvents:
    """Watches for detaches, at the price of an event a delivery; so only while one is awaited."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._collector = lib.pn_collector()
        lib.pn_connection_collect(connection, self._collector)

    def take(self) -> list[int]:
        """The links that were detached since, by address."""
        found: list[int] = []
        while True:
            event = lib.pn_collector_peek(self._collector)
            if event == NULL:
                return found
            if lib.pn_event_type(event) == lib.PN_LINK_REMOTE_DETACH:
                found.append(address_of(lib.pn_event_link(event)))
            lib.pn_collector_pop(self._collector)

    def stop(self) -> None:
        lib.pn_connection_collect(self._connection, NULL)
        lib.pn_collector_free(self._collector)
