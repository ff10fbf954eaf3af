"""A trigger as its worker runs it: its lanes, its states, its counters (TR-59, TR-61, TR-65).

Enabled: it takes messages, unless it is suspended for a reason or its pipeline failed. Suspended: it fetches nothing. Disabled: it
has no receiver. Every change is an event with reason and actor; none outlives a restart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from jmsclient.clock import Clock
from jmsclient.errors import ConfigurationError, IllegalStateError, UnsupportedFeatureError
from jmsclient.events import emit
from jmsclient.options import seconds
from jmsclient.transport.contract import Transport
from jmsclient.trigger.counters import Counters, total
from jmsclient.trigger.declaration import Declaration
from jmsclient.trigger.lane import Lane
from jmsclient.trigger.outbox import Outbox
from jmsclient.trigger.pipeline import Pipeline
from jmsclient.trigger.report import TriggerReport
from jmsclient.trigger.stand_in import StandIn
from jmsclient.trigger.suspension import States

TriggerState = Literal["enabled", "suspended", "disabled"]


class RunningTrigger:
    """`worker.triggers[name]`, from `Worker.start` to `Worker.stop`. Thread-safe; handlers may call it too."""

    def __init__(
        self, declaration: Declaration, outbox: Outbox, open_lane: Callable[[RunningTrigger, int, Counters], Lane]
    ) -> None:
        self.declaration = declaration
        self._outbox = outbox
        self._open_lane = open_lane
        self._counters = [Counters() for _ in lanes_of(declaration)]
        self._swept_at_start = self._swept_at_reset = self._swept
        self._changing = threading.Lock()  # guards what lanes there are; held while a trigger is disabled or enabled
        self._disabled = False
        self._states = States()
        self._ending = False
        self._lingering: tuple[Lane, ...] = ()
        self._lanes: tuple[Lane, ...] = ()
        self._open()

    @classmethod
    def start(
        cls,
        declaration: Declaration,
        transport: Transport,
        *,
        worker: str,
        clock: Clock,
        on_failed: Callable[[], None],
        on_recovered: Callable[[], None] | None = None,
        request_timeout: float = 30.0,
        stand_in: StandIn | None = None,
    ) -> RunningTrigger:
        """Open the receiver and start the pipeline. Raises ConfigurationError where TR-45 has nowhere to put a failed message,
        UnsupportedFeatureError where a transacted trigger's provider has no transactions, and what the transport raises."""
        if declaration.transacted and not transport.capabilities.transactions:
            raise UnsupportedFeatureError(f"trigger {declaration.name!r}: transacted=True, but this provider has no transactions")
        nowhere = (
            declaration.error_destination is None and transport.capabilities.reject != "dead_letter" and not declaration.durable
        )
        settings = {
            "on_error": declaration.on_error,
            "in_doubt": declaration.policy,
            "TriggerOptions.on_max_deliveries": declaration.options.on_max_deliveries,
        }
        asking = next((name for name, value in settings.items() if value == "dead_letter"), None)
        if nowhere and asking is not None:
            raise ConfigurationError(
                f"trigger {declaration.name!r}: {asking} is 'dead_letter', and this provider has no error destination of its own; "
                "give error_destination="
            )
        outbox = Outbox(transport, clock)

        lanes = lanes_of(declaration)

        def open_lane(trigger: RunningTrigger, number: int, counters: Counters) -> Lane:
            return Lane(
                lanes[number],
                transport,
                outbox,
                counters=counters,
                worker=worker,
                clock=clock,
                on_failed=on_failed,
                on_recovered=on_recovered or trigger._recovered,
                on_suspended=partial(trigger._suspended_in, counters),
                request_timeout=request_timeout,
                on_set_completed=trigger._set_completed,
                carries_out=number == 0,
                stand_in=stand_in,
                states=trigger._states,
            )

        return cls(declaration, outbox, open_lane)

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def pipeline(self) -> Pipeline:
        """The engine that runs now, or ran last; of a transacted trigger the first of several."""
        return self._lanes[0].pipeline

    @property
    def state(self) -> TriggerState:
        if self._disabled:
            return "disabled"
        return "enabled" if self._states.suspended.oldest is None else "suspended"

    @property
    def running(self) -> bool:
        """It takes messages now."""
        return self.state == "enabled" and self.error is None and all(lane.pipeline.alive for lane in self._lanes)

    @property
    def reason(self) -> str | None:
        """Why it does not take messages; None: it does."""
        if self._disabled:
            return "disabled"
        error = self.error
        return self._states.suspended.oldest if error is None else f"{type(error).__name__}: {error}"

    @property
    def counters(self) -> dict[str, float]:
        """Since it started, or since the last `reset_counters` (TR-65). `sweeper_removed` is the history's, which others may share;
        times are seconds."""
        swept = self._swept - self._swept_at_reset
        return {**total([one.as_dict() for one in self._counters]), "sweeper_removed": swept}

    @property
    def totals(self) -> dict[str, float]:
        """The same since it started, whatever was reset: only rising, as exporters of metrics need it."""
        swept = self._swept - self._swept_at_start
        return {**total([one.since_start() for one in self._counters]), "sweeper_removed": swept}

    def reset_counters(self) -> dict[str, float]:
        """Count from zero again; returns the old values, none of which is lost or counted twice."""
        before, self._swept_at_reset = self._swept_at_reset, self._swept
        return {**total([one.reset() for one in self._counters]), "sweeper_removed": self._swept_at_reset - before}

    @property
    def _swept(self) -> int:
        history = self.declaration.history
        return 0 if history is None else history.swept

    # -- changing it --------------------------------------------------------------------------------------------------

    def suspend(self, actor: str = "application") -> None:
        """Fetch no more messages; those that are buffered are still run. Returns at once. Until `resume` or a restart."""
        for lane in self._lanes:
            lane.pipeline.suspend(actor)

    def resume(self, actor: str = "application") -> None:
        """Take messages again after `suspend`, or after a suspension that used-up retries began (TR-59). Without one, nothing
        happens; one because of the history ends by itself."""
        for lane in self._lanes:
            lane.pipeline.resume(actor)

    def _set_completed(self) -> None:
        """In one of its lanes; the first one runs it."""
        for lane in self._lanes[:1]:
            lane.pipeline.look()

    def _recovered(self) -> None:
        self.resume("monitor")

    def _suspended_in(self, counters: Counters, why: str) -> None:
        """Retries were used up in the lane of these counters: that holds for all of them."""
        for lane, own in zip(self._lanes, self._counters, strict=False):
            if own is not counters:
                lane.pipeline.suspend_too(why)

    def disable(self, grace: float = 3.0, actor: str = "application") -> int:
        """Stop fetching, give running handlers `grace` seconds, then close the receiver: what is buffered or still running goes
        back to the provider (TR-61). Returns how many messages handlers are still busy with: their leases are renewed and their
        `complete` counts, so that the copies which come again are in progress, then Duplicates.

        Waits until the receiver is closed. A disabled trigger is left as it is. Raises ConfigurationError for a wrong `grace`.
        """
        seconds("grace", grace)
        with self._changing:
            if self._disabled or self._ending:
                return 0
            self._disabled = True
            for lane in self._lanes:
                lane.pipeline.detach(lane.pipeline.deadline(grace))
            left = [lane for lane in self._lanes if lane.pipeline.wait_until_gone()]
            for lane in self._lanes:
                if lane in left:
                    lane.close_session()
                else:
                    lane.join()
            self._lingering = (*(one for one in self._lingering if one.pipeline.alive), *left)
            busy = sum(lane.pipeline.busy for lane in left)
            self._tell("disabled", f"is disabled by the {actor}" + (f", {busy} messages still run" if busy else ""), actor)
            return busy

    def enable(self, actor: str = "application") -> None:
        """Open a receiver and take messages again after `disable`. An enabled trigger is left as it is. Raises IllegalStateError
        where the worker has stopped, and what the transport raises."""
        with self._changing:
            if self._ending:
                raise IllegalStateError(f"trigger {self.declaration.name!r}: its worker has stopped")
            if self._disabled:
                self._open()
                self._disabled = False
                self._tell("enabled", f"is enabled by the {actor}", actor)

    def _open(self) -> None:
        """All lanes, or none."""
        lanes: list[Lane] = []
        self._states = States()
        try:
            for number, counters in enumerate(self._counters):
                lanes.append(self._open_lane(self, number, counters))
        except BaseException:
            for lane in lanes:
                lane.pipeline.stop(0.0)
                lane.join()
            raise
        self._lanes = tuple(lanes)

    def _tell(self, name: str, text: str, actor: str) -> None:
        trigger = self.declaration.name
        emit("trigger", name, f"trigger {trigger!r} {text}", trigger=trigger, reason=name, actor=actor)

    # -- its end ------------------------------------------------------------------------------------------------------

    def stop(self, deadline: float | None) -> None:
        """See `Pipeline.stop`."""
        for lane in self._all():
            lane.pipeline.stop(deadline)

    def join(self) -> TriggerReport:
        """Wait until all of it has stopped, and close what it opened."""
        with self._changing:
            self._ending = True
            report = TriggerReport.of_all([lane.join() for lane in self._all()])
        self._outbox.close()
        return report

    def _all(self) -> list[Lane]:
        """Those that run, and those that a disable left behind with a handler; once each."""
        return list(dict.fromkeys((*self._lingering, *self._lanes)))

    @property
    def inside(self) -> bool:
        """Whoever asks is in one of its handlers, and would wait for itself."""
        return any(lane.pipeline.inside for lane in self._all())

    @property
    def error(self) -> BaseException | None:
        """What ended it without being told to."""
        return next((lane.pipeline.error for lane in self._lanes if lane.pipeline.error is not None), None)


def lanes_of(declaration: Declaration) -> list[Declaration]:
    """What each lane is to be: one for each destination of a join, and for each handler of a transacted trigger."""
    join = declaration.join
    destinations = [declaration.destination] if join is None else list(join.destinations)
    handlers = declaration.concurrency if declaration.transacted else 1
    one = replace(declaration, concurrency=1, one_of=handlers) if declaration.transacted else declaration
    return [replace(one, destination=destination) for destination in destinations for _ in range(handlers)]
