"""A connection that outlives its links: when one is lost, it makes another, and has everything opened on it again.

Owns the places, the tries and their times, and which transport is the present one; what is opened on it is that of `linked.py`. A
backend's Transport lives once; this one keeps its face, so nobody above need know. It must not know what messages are for. One
thread lives as long as the outage. One line says that a link is lost, one that it is back. Source: architecture "Reconnect is the
core's"; cases O06, S08; IF-27, IF-28.

`lock` guards which transport, sessions and receivers there are; nothing is called under it.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from itertools import chain
from typing import Any

from jmsclient.clock import Bell, Clock
from jmsclient.errors import ConnectionLostError, IllegalStateError, JmsClientError
from jmsclient.events import emit
from jmsclient.transport.administration import Administration
from jmsclient.transport.contract import Endpoint, Transport, TransportListener, TransportSession
from jmsclient.transport.failover import Places, Tries
from jmsclient.transport.linked import NOTICE, REFUSALS, LinkedSession, Reopened, earlier
from jmsclient.transport.linked_receiver import LinkedReceiver
from jmsclient.transport.registry import find_backend

JOIN_TIMEOUT = 1.0
"""Seconds that a close waits for a try that is under way; what it still reaches, it closes by itself."""


def open_link(places: Places, listener: TransportListener, *, deadline: float | None, timeout: float | None) -> Transport:
    """Reach one of the places, each tried once, in order. A connection that is not tried again is the backend's own transport.

    `timeout` in seconds bounds each later try. Raises what `Backend.connect` does, of the last place that was tried; what is
    wrong with the configuration of one keeps no other from being tried."""
    if places.tries is None:
        endpoint = places.endpoints[0]
        return find_backend(endpoint.scheme).connect(endpoint, listener, deadline=deadline)
    link = Link(places, places.tries, listener, timeout)
    link.open(deadline)
    return link


class _Listener:
    """Hears of the end of one transport."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.error: Exception | None = None

    def lost(self, error: Exception) -> None:
        self.error = error
        self._link.lost(self, error)


class Link(Transport):
    """See the module. `capabilities` and `peer` are those of the present transport, or of the last one."""

    def __init__(self, places: Places, tries: Tries, listener: TransportListener, timeout: float | None) -> None:
        self.clock: Clock = places.clock
        self.lock = threading.Lock()
        self.over: JmsClientError | None = None
        """Why there will be no other transport: closed, or given up."""
        self.present: Transport | None = None
        self._places = places
        self._tries = tries
        self._listener = listener
        self._timeout = timeout
        self._heard: _Listener | None = None  # of the present transport
        self._sessions: dict[LinkedSession, None] = {}
        self._waiting: tuple[Bell, ...] = ()  # replaced whole, under the lock
        self._retry = self.clock.bell()
        self._thread: threading.Thread | None = None

    # -- the first time ---------------------------------------------------------------------------------------------

    def open(self, deadline: float | None) -> None:
        """Reach one of the places; once. Raises as `open_link`."""
        endpoints = self._places.endpoints
        for left in range(len(endpoints), 0, -1):
            try:
                self._reach(endpoints[-left], self._share(deadline, left))
            except JmsClientError:
                if left == 1:
                    raise
            else:
                return

    def _share(self, deadline: float | None, places: int) -> float | None:
        """Until when the first of so many places may take, for the others to have a chance."""
        left = self.clock.left(deadline)
        return None if left is None else self.clock.deadline(left / places)

    # -- waiting ----------------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], object], deadline: float | None) -> bool:
        """Wait until it is so: True. False at the deadline. On the caller's thread."""
        if condition():
            return True
        bell = self.clock.bell()
        with self.lock:
            self._waiting = (*self._waiting, bell)
        try:
            while not condition():
                left = self.clock.left(deadline)
                if left is not None and left <= 0:
                    return False
                bell.wait(left)
            return True
        finally:
            with self.lock:
                self._waiting = tuple(one for one in self._waiting if one is not bell)

    def changed(self) -> None:
        """Have those who wait look again."""
        for bell in self._waiting:
            bell.ring()

    def over_error(self) -> JmsClientError:
        """A fresh error: why there is no link, nor will be."""
        assert self.over is not None
        return type(self.over)(str(self.over))

    # -- losing it --------------------------------------------------------------------------------------------------

    def lost(self, heard: _Listener, error: Exception) -> None:
        """On a thread of the backend. Nobody need hear of a transport that is not the present one: whoever makes it looks."""
        with self.lock:
            if heard is not self._heard or self.over is not None:
                return
            dead, self.present, self._heard = self.present, None, None
            receivers = tuple(chain.from_iterable(map(LinkedSession.lose, self._sessions)))
            thread = self._thread = threading.Thread(
                target=self._reconnect, args=(dead, error), name=f"jmsclient-reconnect-{self._places.name}", daemon=True
            )
        emit("connection", "link_lost", f"lost {self._places}: {error}; it is tried again", level=logging.WARNING)
        for receiver in receivers:
            receiver.tell(error)
        self.changed()
        thread.start()

    def _reconnect(self, dead: Transport | None, error: Exception) -> None:
        if dead is not None:
            self._discard(dead.close)  # its threads
        last = error
        tried = 0
        for delay in self._tries.delays(random.random):
            self._retry.wait(delay)
            for endpoint in self._places.endpoints:
                if self.over is not None:
                    return
                tried += 1
                try:
                    self._reach(endpoint, self.clock.deadline(self._timeout))
                except Exception as failure:  # noqa: BLE001  a backend's own fault must not end the tries
                    last = failure
                else:
                    return
        self._give_up(last, tried)

    # -- one receiver only ------------------------------------------------------------------------------------------

    def repair(self, receiver: LinkedReceiver, error: Exception | None) -> None:
        """The peer has closed it, and the link lives: open it again, on a thread that lives until it is."""
        what = receiver.spec.destination.address
        emit("connection", "receiver_lost", f"{what}: {error or 'closed by the provider'}; tried again", level=logging.WARNING)
        name = f"jmsclient-reopen-{self._places.name}"
        threading.Thread(target=self._repair, args=(receiver, error), name=name, daemon=True).start()

    def _repair(self, receiver: LinkedReceiver, error: Exception | None) -> None:
        last = error or ConnectionLostError("closed by the provider")
        for delay in self._tries.delays(random.random):
            self.wait(lambda: not receiver.lacking(), self.clock.deadline(delay))
            if not receiver.lacking():
                return  # closed; or the link is lost, and with it all is opened again
            try:
                receiver.reopen(self.clock.deadline(self._timeout))
            except REFUSALS as failure:
                last = failure
                break
            except Exception as failure:  # noqa: BLE001  as in `_reconnect`
                last = failure
            else:
                if not receiver.lacking():
                    return
        if receiver.lacking():
            receiver.refused(last)

    def distrust(self, session: LinkedSession, inner: TransportSession, error: Exception) -> None:
        """Nothing can be opened in this session, and the link does not say that it is lost: have another one."""
        with self.lock:
            heard = self._heard
        if heard is not None and session.inner is inner:
            self.lost(heard, error)

    def _give_up(self, error: Exception, tried: int) -> None:
        text = f"{self._places}: not reached again in {tried} tries: {error}"
        with self.lock:
            if self.over is not None:
                return
            self.over = failure = ConnectionLostError(text)
        self.changed()
        self._listener.lost(failure)

    # -- reaching it ------------------------------------------------------------------------------------------------

    def _reach(self, endpoint: Endpoint, deadline: float | None) -> None:
        """Connect, and open there what is open here. Raises what the backend raises, and leaves nothing behind then."""
        heard = _Listener(self)
        transport = find_backend(endpoint.scheme).connect(endpoint, heard, deadline=deadline)
        try:
            reopened = [session.reopen(transport, deadline) for session in tuple(self._sessions)]
            gone = self._install(transport, heard, reopened)
        except BaseException:
            self._discard(transport.close)
            raise
        for one in reopened:
            for receiver in one.receivers:
                receiver.tell(None)
                receiver.entered()
            for receiver, error in one.refused.items():
                receiver.refused(error)
            for receiver, error in one.later.items():
                self.repair(receiver, error)
        for close in gone:
            self._discard(close)
        self.changed()

    def _install(self, transport: Transport, heard: _Listener, reopened: list[Reopened]) -> list[Callable[[float | None], Any]]:
        """From now on it is the present one. Returns the closes of what was closed here while it was opened there."""
        with self.lock:
            if self.over is not None:
                raise self.over_error()
            if heard.error is not None:
                raise ConnectionLostError(f"lost again at once: {heard.error}")
            again = self._thread is not None
            self.present, self._heard, self._thread = transport, heard, None
            self.peer, self.capabilities, self.in_process = transport.peer, transport.capabilities, transport.in_process
            gone = list(chain.from_iterable(map(Reopened.install, reopened)))
        if again:
            product = f"{self.peer.product} {self.peer.version}"
            emit("connection", "link_back", f"{self._places} is back: {product}", level=logging.WARNING)
        return gone

    def _discard(self, close: Callable[[float | None], Any]) -> None:
        try:
            close(self.clock.deadline(NOTICE))
        except Exception as error:  # noqa: BLE001  nobody needs it
            emit("connection", "close_failed", f"{self._places}: {error}", level=logging.DEBUG)

    # -- the contract -----------------------------------------------------------------------------------------------

    def open_session(self, *, transacted: bool, deadline: float | None) -> TransportSession:
        session = LinkedSession(self, transacted=transacted)
        while True:
            transport = self._awaited(deadline)
            try:
                inner = transport.open_session(transacted=transacted, deadline=deadline)
            except ConnectionLostError:
                if not self.wait(lambda held=transport: self.present is not held, self.noticed(deadline)):  # type: ignore[misc]
                    raise
                continue
            with self.lock:
                if self.present is transport:
                    session.inner = inner
                    self._sessions[session] = None
                    return session

    def _awaited(self, deadline: float | None) -> Transport:
        self.wait(lambda: self.present is not None or self.over is not None, deadline)
        present = self.present
        if present is not None:
            return present
        if self.over is not None:
            raise self.over_error()
        raise ConnectionLostError(f"{self._places} is lost and was not back in time; it is tried further")

    def noticed(self, deadline: float | None) -> float | None:
        """Until when a transport that says it is lost will have told so."""
        return earlier(deadline, self.clock.deadline(NOTICE))

    def session_closed(self, session: LinkedSession) -> None:
        """Forget it; under the lock."""
        self._sessions.pop(session, None)

    def ready(self, deadline: float | None) -> None:
        self._awaited(deadline)

    def administration(self) -> Administration:
        return self._awaited(self.clock.deadline(0.0)).administration()

    def closing(self) -> None:
        with self.lock:
            if self.present is None and self.over is None:
                self.over = IllegalStateError("this connection is closed")
                self._retry.ring()
        self.changed()

    def close(self, deadline: float | None) -> None:
        with self.lock:
            transport, self.present, self._heard = self.present, None, None
            thread = self._thread
            self.over = self.over or IllegalStateError("this transport is closed")
        self._retry.ring()
        self.changed()
        try:
            if transport is not None:
                transport.close(deadline)
        finally:
            if thread is not None and thread is not threading.current_thread() and thread.ident is not None:
                thread.join(JOIN_TIMEOUT)
