"""How a worker comes to its provider: each place tried once; or patiently, again and again with growing pauses, until it is there
or a stop is asked for.

Each try of a patient one is made on a thread of its own, so that a stop waits for no peer that says nothing. It knows nothing of
what a worker does. Source: decision 11; rule RA-16, cases O01 and O02.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from jmsclient.clock import Bell, Clock
from jmsclient.errors import ConnectionLostError, RequestTimeoutError
from jmsclient.events import emit
from jmsclient.transport.contract import Transport, TransportListener
from jmsclient.transport.failover import Places
from jmsclient.transport.link import open_link

CLOSE_TIMEOUT = 5.0


class StoppedEarly(Exception):  # noqa: N818  it is no error
    """A stop was asked for before all had begun."""


class Reaching:
    """Of one start of a worker, `name`; `timeout` seconds bound each try. `stop` from any thread, signal handlers included."""

    def __init__(self, places: Places, listener: TransportListener, *, clock: Clock, timeout: float, name: str) -> None:
        self._places = places
        self._listener = listener
        self._clock = clock
        self._timeout = timeout
        self._name = name
        self._bell = clock.bell()
        self._stopped = False

    def stop(self) -> None:
        """Have `patiently` give up. Returns at once."""
        self._stopped = True
        self._bell.ring()

    def once(self) -> Transport:
        """Each place once, on this thread. Raises what `open_link` does."""
        deadline = self._clock.deadline(self._timeout)
        return open_link(self._places, self._listener, deadline=deadline, timeout=self._timeout)

    def patiently(self) -> Transport:
        """Raises StoppedEarly; ConnectionLostError when its tries are used up; what waiting does not mend at once."""
        tries = self._places.tries
        delays = tries.delays(random.random) if tries is not None else iter(())
        tried = 0
        while True:
            try:
                return self._try()
            except (ConnectionLostError, RequestTimeoutError) as error:
                tried += 1
                delay = next(delays, None)
                if delay is None:
                    raise (
                        error if tried == 1 else ConnectionLostError(f"{self._places}: not reached in {tried} tries: {error}")
                    ) from error
                if tried == 1:
                    text = f"{self._places} is not there yet: {error}; it is tried again"
                    emit("worker", "waiting", text, level=logging.WARNING, worker=self._name)
            self._wait(lambda: False, self._clock.deadline(delay))

    def _try(self) -> Transport:
        attempt = _Attempt(self.once, self._bell, self._clock)
        try:
            self._wait(lambda: attempt.ended, None)
        except BaseException:
            attempt.abandon()
            raise
        return attempt.outcome()

    def _wait(self, condition: Callable[[], bool], deadline: float | None) -> None:
        """Until it is so, or the deadline; the bell is rung for it. Raises StoppedEarly."""
        while not self._stopped and not condition():
            left = self._clock.left(deadline)
            if left is not None and left <= 0:
                return
            self._bell.wait(left)
        if self._stopped:
            raise StoppedEarly


class _Attempt:
    """One try, on a thread that begins with it; `bell` is rung when it has ended."""

    def __init__(self, reach: Callable[[], Transport], bell: Bell, clock: Clock) -> None:
        self._reach = reach
        self._clock = clock
        self._bell = bell
        self._lock = threading.Lock()  # guards the next two, held for that only
        self._abandoned = False
        self._outcome: Transport | BaseException | None = None
        threading.Thread(target=self._run, name="jmsclient-reaching", daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._outcome is not None

    def outcome(self) -> Transport:
        """Raises what the try raised."""
        outcome = self._outcome
        assert outcome is not None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def abandon(self) -> None:
        """Nobody waits for it any more: what it comes to is closed."""
        with self._lock:
            self._abandoned = True
            outcome = self._outcome
        self._close(outcome)

    def _run(self) -> None:
        outcome: Transport | BaseException
        try:
            outcome = self._reach()
        except BaseException as error:  # noqa: BLE001  whoever waits raises it
            outcome = error
        with self._lock:
            self._outcome = outcome
            abandoned = self._abandoned
        self._bell.ring()
        if abandoned:
            self._close(outcome)

    def _close(self, outcome: Transport | BaseException | None) -> None:
        if outcome is not None and not isinstance(outcome, BaseException):
            outcome.close(self._clock.deadline(CLOSE_TIMEOUT))
