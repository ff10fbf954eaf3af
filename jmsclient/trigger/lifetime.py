"""How a pipeline begins and ends: a gentle stop, a grace, what goes back, and what outlives it (TR-61, TR-66; case O01).

`stop` and `detach` from any thread; the end itself is the pipeline thread's, or the stand-in's where that is inside a handler which
outlasts the grace. It knows nothing of what a turn does.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod

from jmsclient.destination import ReadAheadClosePolicy
from jmsclient.errors import JmsClientError
from jmsclient.events import emit
from jmsclient.transport.contract import RELEASE
from jmsclient.trigger.handler_loop import LAST_MOMENT
from jmsclient.trigger.report import TriggerReport
from jmsclient.trigger.rooms import Rooms


class Lifetime(Rooms):
    """What `Pipeline` is built on."""

    @abstractmethod
    def _stand_in_turn(self) -> float | None:
        """The stand-in's."""

    @property
    def alive(self) -> bool:
        """Its thread runs."""
        return self._thread.is_alive() and not self._over

    @property
    def inside(self) -> bool:
        """Whoever asks is on a thread of its own: in one of its handlers."""
        return threading.current_thread() is self._thread or self._handlers.inside

    def start(self) -> None:
        self._handlers.begin()
        self._thread.start()
        if self._handlers.inline and self._stand_in is not None:
            self._stand_in.add(self._stand_in_turn, self.declaration.lease / 6)

    def stop(self, deadline: float | None) -> None:
        """Begin to stop: no new handler starts (but for taken messages under DELIVER_ALL); running ones have until `deadline`
        (monotonic; None: no limit). May be called again, also from a signal handler; the earliest deadline holds."""
        self._lingers = False
        self._begin_stop(deadline)

    def detach(self, deadline: float | None) -> None:
        """Begin to stop, but outlive `deadline`: then the receiver is closed and the provider has everything back, while handlers
        that still run keep their leases, and their `complete` counts (TR-61). `wait_until_gone` returns when that is so."""
        self._lingers = True
        self._begin_stop(deadline)

    def wait_until_gone(self) -> bool:
        """After `detach`: until nothing runs any more, or its deadline; True if handlers still run."""
        self._gone.wait()
        self._gone.ring()  # for whoever else waits
        return bool(self._desk.running) and self.alive

    def _begin_stop(self, deadline: float | None) -> None:
        earlier = self._stop_deadline
        if earlier is None or (deadline is not None and deadline < earlier):
            self._stop_deadline = deadline
        self._stopping = True
        self._ring()

    def join(self) -> TriggerReport:
        """Wait until it has stopped."""
        if self._thread.ident is not None:
            self._stopped.wait()
            self._stopped.ring()
        if not self._desk.running:
            self._thread.join()
        report = self._intake.close(self._clock.monotonic() + 5.0)
        return TriggerReport(
            trigger=self.declaration.name,
            finished=self._finished - self._finished_at_stop,
            released=self._released_at_stop + report.released,
            discarded=self._discarded_at_stop + report.discarded,
            unfinished=len(self._desk.running) + self._unfinished,
        )

    # -- the end ------------------------------------------------------------------------------------------------------

    def _ended(self) -> bool:
        if not self._stopping:
            return False
        if self._stop_deadline is not None and self._clock.monotonic() >= self._stop_deadline:
            if not self._lingers:
                return self._past_the_grace(self._clock.monotonic())
            self._close_receiver()
        waiting = (self._desk.ledger is not None and self._desk.ledger.pressing) or self._intake.buffered > 0
        return self._desk.stopping and not self._desk.running and not self._claiming and not waiting

    def _close_receiver(self) -> None:
        """The grace is over and a handler still runs: the provider gets everything back, the handler goes on."""
        self._stop_deadline = None
        self._desk.settle()
        report = self._intake.close(self._clock.monotonic() + 5.0)
        self._released_at_stop += report.released
        self._discarded_at_stop += report.discarded
        self._desk.detached = True
        self._gone.ring()

    def _past_the_grace(self, now: float) -> bool:
        """Async handlers are cancelled, and have a last moment to come back in. True when that is over."""
        if self._cancelled_at is None:
            self._cancelled_at = now
            self._handlers.cancel()
        waiting = self._handlers.cancellable or self._handlers.finished
        return not waiting or now >= self._cancelled_at + LAST_MOMENT

    def _broken(self, error: BaseException) -> None:
        self.error = error
        emit(
            "trigger",
            "pipeline_failed",
            f"trigger {self.declaration.name!r} stopped: {type(error).__name__}: {error}",
            level=logging.ERROR,
            trigger=self.declaration.name,
        )

    def _finish(self) -> None:
        """The end, once: by the pipeline's thread, or by the stand-in where that is in a handler which outlasts the grace."""
        if self._over:
            return
        self._over = True
        self._copies.stop()
        self._give_back_all()
        if self._stand_in is not None:
            self._stand_in.remove(self._stand_in_turn)
        self._handlers.stop(0.0 if self._desk.running else 1.0)
        self._gone.ring()
        if self.error is not None:
            self._on_failed()
        self._stopped.ring()

    def _begin_to_stop(self) -> None:
        """No more demand; kept messages go back uncounted; taken ones are run first under DELIVER_ALL (RA-16, TR-67)."""
        self._desk.stopping = True
        self._retries.interrupt()
        self._finished_at_stop = self._finished
        self._released_at_stop += len(self._held) + self._suspension.withhold()
        self._intake.settle(self._held.take_all(), RELEASE)
        policy = self.declaration.destination.read_ahead_close_policy
        if policy is ReadAheadClosePolicy.DELIVER_CURRENT:
            self._discarded_at_stop += self._intake.discard_taken()

    def _give_back_all(self) -> None:
        """The last word on every delivery this pipeline still has, whatever ended it (TR-66). Those that still run are left to
        the close of the receiver, which counts them."""
        try:
            self._desk.settle()
            unstarted = [work.arrival for work in (*self._claiming.values(), *self._ready)]
            unstarted += self._held.take_all() + self._late
            if unstarted:
                self._intake.settle(unstarted, RELEASE)
        except JmsClientError as error:
            emit("trigger", "give_back_failed", f"trigger {self.declaration.name!r}: {error}", level=logging.ERROR)
