"""The rooms of one pipeline, and how they know each other. It makes them; it knows nothing of turns, nor of how a trigger ends."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from jmsclient.clock import Bell, Clock
from jmsclient.destination import Destination
from jmsclient.intake import Intake
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Arrival
from jmsclient.trigger.carrying_out import CarryingOut
from jmsclient.trigger.copies import Copies, SendCopy
from jmsclient.trigger.counters import Counters
from jmsclient.trigger.deciding import Deciding
from jmsclient.trigger.declaration import Declaration
from jmsclient.trigger.desk import Desk
from jmsclient.trigger.handlers import Call, Handlers, Send
from jmsclient.trigger.holding import Held
from jmsclient.trigger.leases import Leases
from jmsclient.trigger.monitor import REASON as RETRY_FAILURE
from jmsclient.trigger.monitor import Monitor
from jmsclient.trigger.retry import Retries
from jmsclient.trigger.stand_in import StandIn
from jmsclient.trigger.suspension import APPLICATION, States, Suspension
from jmsclient.trigger.transaction import Transaction
from jmsclient.trigger.waiting import Waiting
from jmsclient.trigger.work import Work


def _nobody(_: str) -> None:
    """There is no other lane to tell."""


class Rooms(ABC):
    """What `Pipeline` is built on, with `Lifetime`. The names with one underscore are shared by these three, and by nobody else."""

    @abstractmethod
    def _run(self) -> None:
        """The pipeline's thread."""

    @abstractmethod
    def _go_on(self) -> bool:
        """The same for a thread that takes its place. True: it has ended; False: another one has taken its own place."""

    def __init__(
        self,
        declaration: Declaration,
        *,
        call: Call,
        send: Send,
        send_copy: SendCopy,
        capabilities: Callable[[], Capabilities],
        clock: Clock,
        worker: str,
        bell: Bell,
        intake: Intake,
        on_failed: Callable[[], None],
        on_recovered: Callable[[], None] | None = None,
        provider_error_destination: Destination | None = None,
        counters: Counters | None = None,
        transaction: Transaction | None = None,
        on_suspended: Callable[[str], None] = _nobody,
        on_set_completed: Callable[[], None] | None = None,
        carries_out: bool = True,
        stand_in: StandIn | None = None,
        idle_timeout: float = 0.0,
        states: States | None = None,
    ) -> None:
        """`call` runs the handler, `send` what it gathered, `send_copy` a dead-lettered copy; `capabilities` are those of the
        present provider, which after a failover may be another product; `bell` is rung by the intake;
        `on_failed` is called when the pipeline ended without being told to (`error` says why), `on_recovered` when the monitor
        said True (default: `resume`); `counters` go on from an earlier pipeline's; `transaction`
        is the lane's, `on_suspended` is told why where used-up retries suspend it,
        `on_set_completed` that a set of its join may be complete; `carries_out`: it looks for decided copies, and asks the monitor;
        `stand_in` stands in while a handler runs on its own thread (None: handlers have threads of their own); `idle_timeout` is
        RA-13's, 0 for never; `states` the trigger's, in whatever lane."""
        self.declaration = declaration
        self.error: BaseException | None = None
        self._clock = clock
        self._bell = bell
        self._intake = intake
        self._on_failed = on_failed
        self._ready: list[Work] = []
        self._desk = Desk(declaration, intake, clock, counters, worker)
        self._held = Held(self._desk, capabilities().hold_limit)
        self._carrying_out = CarryingOut(self._desk, looks=carries_out)
        self._waiting = Waiting(self._desk, capabilities, idle_timeout)
        self._leases = Leases(self._desk)
        self._suspension = Suspension(self._desk, states)
        self._desk.around_head = self._suspension.around
        self._desk.awaited = self._suspension.states.awaited
        self._held.ring = self._ring
        recovered = on_recovered or (lambda: self.resume("monitor"))
        self._monitor = Monitor(self._desk, self._suspension, bell, recovered=recovered, asks=carries_out)
        self._copies = Copies(declaration.name, clock, send_copy, self._ring)
        self._deciding = Deciding(
            self._desk,
            self._held,
            self._leases,
            self._suspension,
            start=self._ready.append,
            start_all=self._ready.extend,
            suspend=self._suspend,
            copies=self._copies,
            capabilities=capabilities,
            provider_error_destination=provider_error_destination,
            set_completed=on_set_completed or self.look,
        )
        self._claiming = self._deciding.claiming
        self._desk.awaited.join(self._desk.running, self._claiming)
        self._outage = self._deciding.outage
        self._failing = self._deciding.failing
        self._resolving = self._deciding.resolving
        self._retries = Retries(
            self._desk,
            self._leases,
            start=self._ready.append,
            redeliver=self._failing.redeliver,
            suspend=self._suspend,
        )
        self._stand_in = stand_in
        may_be_inline = stand_in is not None and transaction is None
        self._handlers = Handlers(declaration, call, send, bell, transaction, may_be_inline=may_be_inline, go_on=self._go_on)
        self._turn = threading.Lock()  # held by whoever takes a turn: the pipeline's thread, but for inline handlers; the stand-in
        self._in_handler = False
        self._over = False
        self._stopped = clock.bell()
        self._transacted = transaction is not None
        self._on_suspended = on_suspended
        if transaction is not None:
            self._desk.commit = transaction.settle_now
        self._thread = threading.Thread(target=self._run, name=f"jmsclient-{declaration.name}-pipeline", daemon=True)
        self._busy = 0
        self._late: list[Arrival] = []
        self._stopping = False
        self._lingers = False
        self._gone = clock.bell()
        self._asked: deque[tuple[str, str]] = deque()
        self._stop_deadline: float | None = None
        self._cancelled_at: float | None = None
        self._unfinished = 0
        self._finished = 0
        self._finished_at_stop = 0
        self._released_at_stop = 0
        self._discarded_at_stop = 0

    @property
    def counters(self) -> Counters:
        """TR-65."""
        return self._desk.counters

    @property
    def suspended(self) -> str | None:
        """Why it takes no messages now; None: it does."""
        return self._suspension.reason

    @property
    def busy(self) -> int:
        """Messages that handlers have now."""
        return len(self._desk.running)

    def deadline(self, timeout: float) -> float | None:
        """So many seconds from now, on this pipeline's clock."""
        return self._clock.deadline(timeout)

    # -- what is asked of it, from any thread -------------------------------------------------------------------------

    def _ring(self) -> None:
        """There is something to do, whoever does it now."""
        self._bell.ring()
        if self._in_handler and self._stand_in is not None:
            self._stand_in.ring()

    def suspend(self, actor: str) -> None:
        """Fetch nothing from now on; what is buffered is still run (TR-59)."""
        self._asked.append(("suspend", actor))
        self._ring()

    def look(self) -> None:
        """Look for decided copies at once."""
        self._asked.append(("look", ""))
        self._ring()

    def suspend_too(self, why: str) -> None:
        """Retries are used up in another lane of the trigger."""
        self._asked.append((RETRY_FAILURE, why))
        self._ring()

    def resume(self, actor: str) -> None:
        """End a suspension that used-up retries or the application began (TR-59); without one, nothing happens."""
        self._asked.append(("resume", actor))
        self._ring()

    def _do_what_is_asked(self) -> None:
        """On the thread whose turn it is."""
        while self._asked:
            what, actor = self._asked.popleft()
            if what == RETRY_FAILURE:
                self._suspension.begin(RETRY_FAILURE, f"retries are used up ({actor})")
            elif what == "look":
                self._carrying_out.look_now()
            elif what == "suspend":
                self._suspension.begin(APPLICATION, f"says the {actor}", actor=actor)
            else:
                for reason in (RETRY_FAILURE, APPLICATION):
                    self._suspension.end(reason, f"says the {actor}", actor=actor)

    def _suspend(self, why: str) -> None:
        self._on_suspended(why)  # before anybody can see the state and resume: what is asked of the others comes in that order
        self._suspension.begin(RETRY_FAILURE, f"retries are used up ({why})")
