"""Owns the transport of a ScriptedBackend, with a thread of its own that pushes.

Must not know the script. Everything that could deliver (push, drain, close, loss) runs on the transport's thread, one job after
the other, so that nothing is ever delivered after a close; requests and settlements only change the shared state and wake it.
Source: transport/contract.py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from jmsclient.clock import Clock
from jmsclient.errors import (
    ConnectionLostError,
    RequestTimeoutError,
    UnsupportedFeatureError,
)
from jmsclient.testing.scripted_links import ScriptedReceiver
from jmsclient.testing.scripted_session import ScriptedSession
from jmsclient.testing.scripted_state import Confirmation, ScriptedState
from jmsclient.testing.scripted_transaction import ScriptedTransaction
from jmsclient.transport.contract import (
    Endpoint,
    Peer,
    Transport,
    TransportListener,
    TransportSession,
)

JOIN_TIMEOUT = 5.0
"""Seconds that a closing transport waits for its thread, which has then nothing left to do."""


class ScriptedTransport(Transport):
    """One link. `wake` lets its thread look for something to push."""

    peer = Peer(product="scripted", version="1")

    def __init__(self, state: ScriptedState, wake_all: Callable[[], None], endpoint: Endpoint, listener: TransportListener):
        self.capabilities = state.capabilities
        self.clock: Clock = endpoint.clock
        self.state = state
        self.wake_all = wake_all
        self.receivers: list[ScriptedReceiver] = []
        self.sessions: list[ScriptedSession] = []
        self.unconfirmed: list[Confirmation] = []
        self.dead: ConnectionLostError | None = None
        self._listener = listener
        self._jobs: deque[Callable[[], None]] = deque()
        self._over = False  # no further job will come; set under the state's lock
        self._ended = False  # the thread takes no further job; set under the state's lock
        self._bell = self.clock.bell()
        self._thread = threading.Thread(target=self._run, name="jmsclient-scripted", daemon=True)
        self._thread.start()

    # -- the thread -------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        self._bell.ring()

    def post(self, job: Callable[[], None]) -> None:
        """Have the thread do something next."""
        with self.state.lock:
            self._jobs.append(job)
        self._bell.ring()

    def call(self, job: Callable[[], None], deadline: float | None) -> None:
        """Have the thread do it and wait for that; done at once by a caller who is the thread, or where the thread is over."""
        if threading.current_thread() is self._thread:
            job()
            return
        done = self.clock.bell()

        def and_tell() -> None:
            job()
            done.ring()

        with self.state.lock:
            ended = self._ended
            if not ended:
                self._jobs.append(and_tell)
        if ended:
            job()
            return
        self._bell.ring()
        if not done.wait(self.clock.left(deadline)):
            raise RequestTimeoutError("the scripted backend did not answer before the deadline")

    def _run(self) -> None:
        while True:
            while self._jobs:
                self._jobs.popleft()()
            with self.state.lock:
                if self._over and not self._jobs:
                    self._ended = True
                    return
                due = self.state.queues.next_due(self.clock.monotonic())
            if not self._push():
                self._bell.wait(None if due is None else max(0.0, due - self.clock.monotonic()))

    def _push(self) -> bool:
        """Push to each receiver what it has asked for; True if anything was pushed."""
        with self.state.lock:
            receivers = list(self.receivers)
        pushed = False
        for receiver in receivers:
            pushed = receiver.push() or pushed
        return pushed

    # -- the contract -----------------------------------------------------------------------------------------------

    def check_alive(self) -> None:
        if self.dead is not None:
            raise ConnectionLostError(str(self.dead))

    def open_session(self, *, transacted: bool, deadline: float | None) -> TransportSession:
        if transacted and not self.capabilities.transactions:
            raise UnsupportedFeatureError("this scripted backend has no transactions")
        with self.state.lock:
            self.check_alive()
            session = ScriptedSession(self, ScriptedTransaction() if transacted else None)
            self.sessions.append(session)
        return session

    def close(self, deadline: float | None) -> None:
        self.call(self._close_sessions, deadline)
        with self.state.lock:
            self._over = True
            self.dead = self.dead or ConnectionLostError("this transport is closed")
            self._fail_unconfirmed(self.dead)
        self._bell.ring()
        self.wake_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_TIMEOUT)

    def _close_sessions(self) -> None:
        for session in list(self.sessions):
            session.end()
        with self.state.lock:
            for address in [address for address, maker in self.state.temporaries.items() if maker is self]:
                del self.state.temporaries[address]
                self.state.queues.drop(address)

    # -- what the script does to it ---------------------------------------------------------------------------------

    def die(self, error: Exception) -> None:
        """The link is lost now; the listener hears of it on the thread, once."""
        with self.state.lock:
            if self.dead is not None:
                return
            self.dead = ConnectionLostError(str(error))
            counted = self.capabilities.count_after_loss != "not_raised"
            for session in self.sessions:
                session.lose(counted)
            self._fail_unconfirmed(error)
            self._over = True
            self._jobs.append(lambda: self._listener.lost(error))
        self._bell.ring()

    def _fail_unconfirmed(self, error: Exception) -> None:
        for confirmation in self.unconfirmed:
            confirmation.error = error
            confirmation.bell.ring()
        self.unconfirmed.clear()

    def confirm(self) -> None:
        """Confirm everything that was written (on the thread)."""
        with self.state.lock:
            if self.state.holding:
                return
            confirmed, self.unconfirmed = self.unconfirmed, []
        for confirmation in confirmed:
            confirmation.bell.ring()

    @property
    def on_thread(self) -> bool:
        return threading.current_thread() is self._thread
