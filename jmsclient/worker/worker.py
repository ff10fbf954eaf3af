"""A worker: connects, runs the pipelines of the triggers that were declared on it, and stops them gently.

It installs no signal handlers (the command line does, see `shutdown`) and its threads are named and joined. `trigger`,
`start`, `stop` and `run` belong to one thread; `request_stop` may be called from any thread and from a signal handler.
Source: api.md "Triggers and workers"; rules TR-28, TR-45, RA-16; case O01.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from jmsclient.clock import SYSTEM_CLOCK, Clock
from jmsclient.errors import ConfigurationError, ConnectionLostError, HistoryUnavailableError, IllegalStateError
from jmsclient.events import emit
from jmsclient.exporters.journal import SharedJournal
from jmsclient.history.contract import DocumentHistory
from jmsclient.history.opening import open_history
from jmsclient.jms.connection import default_url
from jmsclient.options import (
    WorkerOptions,
    key_part,
    seconds,
)
from jmsclient.transport.contract import Transport
from jmsclient.transport.registry import parse_places
from jmsclient.trigger.declaration import Declaration
from jmsclient.trigger.report import TriggerReport
from jmsclient.trigger.running import RunningTrigger
from jmsclient.trigger.stand_in import StandIn
from jmsclient.worker.control import Control
from jmsclient.worker.declaring import OF_THE_WORKER, Declaring, check_history
from jmsclient.worker.reaching import Reaching, StoppedEarly


@dataclass(frozen=True, slots=True)
class StopReport:
    """What became of every trigger's messages; `clean` when no handler outlasted the grace period and nothing failed."""

    triggers: tuple[TriggerReport, ...]
    errors: tuple[BaseException, ...] = ()

    @property
    def clean(self) -> bool:
        return not self.errors and not any(one.unfinished for one in self.triggers)

    def lines(self) -> list[str]:
        """One sentence a trigger, for people."""
        return [
            f"{one.trigger}: {one.finished} finished, {one.released} given back, {one.discarded} discarded, "
            f"{one.unfinished} unfinished"
            for one in self.triggers
        ]


class Triggers(dict[str, RunningTrigger]):
    """Those that run, by name; empty where the worker does not run."""

    def __missing__(self, name: str) -> RunningTrigger:
        there = f"there are {', '.join(map(repr, self))}" if self else "the worker does not run"
        raise KeyError(f"no trigger is called {name!r}: {there}; a trigger without a name= is called as its destination")


class Worker(Declaring):
    """Trigger-based processors on one connection.

    `url` as for `connect` (None: JMSCLIENT_URL, else `embedded:`); `name` is the namespace of the history's keys (TR-33);
    `history` a URL, an object, or None for no duplicate detection; `grace` seconds that running handlers have when it stops;
    `lifespan` a callable that takes the worker and returns a context manager entered around the run.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        history: str | DocumentHistory | None = None,
        grace: float = 30.0,
        lifespan: Callable[[Worker], AbstractContextManager[Any]] | None = None,
        options: WorkerOptions | None = None,
    ) -> None:
        super().__init__()
        seconds("grace", grace)
        if name is not None:
            key_part("name", name)
        check_history(history)
        if not isinstance(options, WorkerOptions | None):
            raise ConfigurationError(f"options={options!r}: expected WorkerOptions(…) or None")
        self.url = url
        self.name = name or "default"
        self.grace = grace
        self.options = options or WorkerOptions()
        self.triggers = Triggers()
        self._history = history
        self._lifespan = lifespan
        self._clock: Clock = SYSTEM_CLOCK
        self._opened: dict[tuple[str, float], DocumentHistory] = {}
        self._process = os.getpid()
        self._transport: Transport | None = None
        self._reaching: Reaching | None = None
        self._journal: SharedJournal | None = None
        self._control: Control | None = None
        self._living: AbstractContextManager[Any] | None = None
        self._bell = self._clock.bell()
        self._stand_in = StandIn(self.name, self._clock)
        self._stop_graces: list[float] = []  # appended to only, so that a signal on top of a stop cannot be overwritten
        self._lost: Exception | None = None

    def override(self, *, url: str | None = None, concurrency: int | None = None, control: str | None = None) -> None:
        """What the command line says wins over what the module says; None changes nothing. Before `start`."""
        if control is not None:
            self.options = replace(self.options, control=control)
        if url is not None:
            self.url = url
        if concurrency is not None:
            for settings in self._declared.values():
                settings["concurrency"] = concurrency

    # -- running ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, open the histories, start every trigger. Nothing is left open when it raises. Each place is tried once: who
        calls this waits for it; `run` goes on trying.

        Raises ConfigurationError, StoreError, ConnectionLostError, or what the lifespan raises.
        """
        self._start(patient=False)

    def _start(self, *, patient: bool, listening: Callable[[], object] | None = None) -> None:
        self._forget_if_forked()
        if self._transport is not None:
            raise IllegalStateError("the worker runs already")
        if not self._declared:
            raise ConfigurationError("the worker has no trigger: decorate a function with @worker.trigger(destination)")
        self._lost = None
        self._stopping = False
        self._stop_graces = []
        self._bell = self._clock.bell()
        self._stand_in = StandIn(self.name, self._clock)
        if listening is not None:
            listening()
        if self.options.journal is not None:
            self._journal = SharedJournal(self.options.journal)
            self._journal.start()
        try:
            declarations = [self._declaration(settings) for settings in self._declared.values()]
            self._transport = self._connect(patient=patient)
            if self._lifespan is not None:
                living = self._lifespan(self)
                if not hasattr(living, "__enter__"):
                    raise ConfigurationError(f"lifespan returned {living!r}: expected a context manager; add @contextmanager to it")
                living.__enter__()
                self._living = living
            for history in {id(one.history): one.history for one in declarations if one.history is not None}.values():
                if patient and self._stopping:  # each may wait for a server that does not answer
                    raise StoppedEarly
                self._look_at(history, strict=any(one.options.strict for one in declarations if one.history is history))
            for declaration in declarations:
                if patient and self._stopping:
                    raise StoppedEarly
                self.triggers[declaration.name] = RunningTrigger.start(
                    declaration,
                    self._transport,
                    worker=f"{socket.gethostname()}:{os.getpid()}",
                    clock=self._clock,
                    on_failed=self._bell.ring,
                    on_recovered=partial(self._recovered, declaration.monitor),
                    request_timeout=self.options.request_timeout,
                    stand_in=self._stand_in,
                )
            if self.options.control is not None:
                self._control = Control(self.options.control, self)
                self._control.start()
        except BaseException:
            self._close(0.0)
            self._stop_journal()
            raise
        emit("worker", "started", f"worker {self.name!r} runs {', '.join(self.triggers)}", worker=self.name)

    def stop(self, timeout: float | None = None) -> StopReport:
        """Stop gently: no new handler starts, running ones have `timeout` seconds (None: the worker's grace), what is buffered
        goes back, then everything is closed. Returns what became of it all. Stopping a stopped worker is silent.

        Raises IllegalStateError in a handler of its own, which it would wait for: that calls `request_stop`."""
        self._forget_if_forked()
        if any(running.inside for running in list(self.triggers.values())):
            raise IllegalStateError("stop() waits for the handlers that run, so none of them can call it: call request_stop()")
        try:
            report = self._close(self.grace if timeout is None else timeout)
            for line in report.lines():
                emit("worker", "stopped", line, level=logging.DEBUG, worker=self.name)
        finally:
            self._stop_journal()
        return report

    def run(self) -> StopReport:
        """Start, run until `request_stop` or until the provider is lost for good, stop. Raises ConnectionLostError in the latter
        case. A provider that is not there yet is waited for as one that is lost (`reconnect`), with one event `waiting`; what
        waiting does not mend, such as a wrong password, raises at once. An exception in it, such as KeyboardInterrupt, stops the
        worker gently, as one in `with worker:` does, and passes."""
        return self.run_listening(lambda: None)

    def run_listening(self, listening: Callable[[], object]) -> StopReport:
        """`run` (not for applications); calls `listening` once a `request_stop` counts: one that came before is forgotten."""
        try:
            self._start(patient=True, listening=listening)
        except StoppedEarly:
            return StopReport((), ())
        try:
            self.wait()
        except BaseException:  # such as Ctrl-C in a program of one's own
            self.stop(min(self._stop_graces, default=None))
            raise
        report = self.stop(min(self._stop_graces, default=None))
        if self._lost is not None:
            raise self._lost
        return report

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until a stop was requested or the provider was lost: True. False at the timeout (seconds)."""
        return self._bell.wait(timeout)

    def request_stop(self, grace: float | None = None) -> None:
        """Have `run` stop, with `grace` seconds for running handlers (None: the worker's). While it stops, a further call
        shortens the grace. From any thread, signal handlers included; returns at once."""
        self._stopping = True
        if grace is not None:
            self._stop_graces.append(grace)
        reaching = self._reaching
        if reaching is not None:
            reaching.stop()
        deadline = self._clock.deadline(self.grace if grace is None else grace)
        for running in list(self.triggers.values()):
            running.stop(deadline)
        self._bell.ring()

    def lost(self, error: Exception) -> None:
        """The transport's listener (not for applications): the provider is gone."""
        self._lost = error if isinstance(error, ConnectionLostError) else ConnectionLostError(str(error))
        self._bell.ring()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _declaration(self, settings: dict[str, Any]) -> Declaration:
        history = self._history if settings["history"] is OF_THE_WORKER else settings["history"]
        return Declaration(**{**settings, "history": self._open(history, settings["options"].operation_timeout)})

    def _open(self, history: str | DocumentHistory | None, operation_timeout: float) -> DocumentHistory | None:
        """One history object a URL and time limit; an object given is the caller's and is not closed."""
        if not isinstance(history, str):
            return history
        key = (history, 0.0 if history.startswith("memory:") else operation_timeout)  # one memory, whatever the limit
        if key not in self._opened:
            self._opened[key] = open_history(history, namespace=self.name, operation_timeout=operation_timeout)
        return self._opened[key]

    def _recovered(self, monitor: Callable[[], bool] | None) -> None:
        """A monitor said True, on some pipeline's thread: every trigger that shares it resumes (TR-60)."""
        for running in list(self.triggers.values()):
            if running.declaration.monitor == monitor:
                running.resume("monitor")

    def _stop_journal(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.stop()

    def _connect(self, *, patient: bool) -> Transport:
        options = self.options
        places = parse_places(
            self.url or default_url(),
            username=options.username,
            password=options.password,
            client_id=options.client_id,
            clock=self._clock,
        )
        self._reaching = Reaching(places, self, clock=self._clock, timeout=options.request_timeout, name=self.name)
        if self._stopping:
            raise StoppedEarly
        return self._reaching.patiently() if patient else self._reaching.once()

    def _look_at(self, history: DocumentHistory, *, strict: bool) -> None:
        """Tell at once what would else be found out with the first message, such as a wrong password. Once a history, however many
        triggers it has, for one that does not answer is waited for. `strict`: one of them is; then it has to know that."""
        try:
            history.lookup_many("probe", [("probe", "probe")])
        except HistoryUnavailableError as error:
            text = f"worker {self.name!r}: {error}; until it answers its messages wait, or go as history_unavailable says"
            emit("worker", "history_not_there", text, level=logging.WARNING, worker=self.name)
            if not strict:
                return  # it checks itself when it answers
        history.check(strict=strict)

    def _close(self, grace: float) -> StopReport:
        control, self._control = self._control, None
        if control is not None:
            control.stop()
        deadline = self._clock.deadline(grace)
        running = list(self.triggers.values())
        for one in running:
            one.stop(deadline)
        reports = tuple(one.join() for one in running)
        self._stand_in.stop()
        errors = tuple(error for one in running if (error := one.error) is not None)
        self.triggers = Triggers()
        with ExitStack() as left:  # the last first; what one raises keeps no other open
            opened, self._opened = self._opened, {}
            for history in opened.values():
                left.callback(history.close)
            transport, self._transport = self._transport, None
            if transport is not None:
                left.callback(transport.close, self._clock.monotonic() + 5.0)
            living, self._living = self._living, None
            if living is not None:
                left.callback(living.__exit__, None, None, None)
        return StopReport(reports, errors)

    def _forget_if_forked(self) -> None:
        """In a fork's child there is none of the parent's threads, which would be waited for without an end, and all that it has
        open is the parent's."""
        if self._process == os.getpid():
            return
        self._process = os.getpid()
        self.triggers = Triggers()
        self._transport = self._journal = self._control = self._living = None
        self._opened = {}
        self._stand_in = StandIn(self.name, self._clock)
