"""What a trigger was declared to be: every setting, checked when it is declared. Source: api.md's `worker.trigger`, TR-34
to TR-58.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jmsclient.destination import Destination, Topic
from jmsclient.errors import ConfigurationError, InvalidSelectorError
from jmsclient.history.contract import DocumentHistory
from jmsclient.options import (
    HistoryUnavailablePolicy,
    InDoubtPolicy,
    InProgressPolicy,
    NonPersistentPolicy,
    OnError,
    OnRetryFailure,
    TriggerOptions,
    choice,
    count,
    seconds,
)
from jmsclient.selector import compile_selector
from jmsclient.trigger.binding import is_async, takes_transaction
from jmsclient.trigger.join_spec import JoinSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Declaration:
    """One trigger as declared; `name` is its id in the history."""

    name: str
    destination: Destination
    function: Callable[..., Any]
    selector: str | None = None
    history: DocumentHistory | None = None
    resolver: Callable[..., Any] | None = None
    on_error: OnError = "dead_letter"
    error_destination: Destination | None = None
    in_doubt: InDoubtPolicy | None = None
    in_progress: InProgressPolicy = "redeliver"
    history_unavailable: HistoryUnavailablePolicy = "suspend"
    history_ttl: float = 86400.0
    lease: float = 60.0
    micro_batch: int = 1
    max_retries: int = 0
    retry_interval: float = 10.0
    on_retry_failure: OnRetryFailure = "throw"
    max_deliveries: int = 100
    non_persistent: NonPersistentPolicy = "check"
    concurrency: int = 1
    prefetch: int | None = None
    batch: int = 1
    monitor: Callable[[], bool] | None = None
    transacted: bool = False
    join: JoinSpec | None = None
    options: TriggerOptions = field(default_factory=TriggerOptions)
    one_of: int = 1
    """It is what one lane is to be, of so many that handle messages of one destination at once."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigurationError("name='': a trigger's name is its id in the history and cannot be empty")
        try:
            compile_selector(self.selector)
        except InvalidSelectorError as error:
            raise InvalidSelectorError(f"trigger {self.name!r}: {error}") from None
        choice("on_error", self.on_error, ("dead_letter", "redeliver", "acknowledge"))
        if self.in_doubt is not None:
            choice("in_doubt", self.in_doubt, ("park", "dead_letter", "acknowledge", "redeliver", "run"))
        choice("in_progress", self.in_progress, ("redeliver", "in_doubt"))
        choice("history_unavailable", self.history_unavailable, ("suspend", "resolver", "in_doubt", "run"))
        choice("on_retry_failure", self.on_retry_failure, ("throw", "suspend"))
        choice("non_persistent", self.non_persistent, ("check", "bypass"))
        if not isinstance(self.transacted, bool):
            raise ConfigurationError(f"transacted={self.transacted!r}: expected True or False")
        seconds("history_ttl", self.history_ttl, least=0.001)
        seconds("lease", self.lease, least=0.001)
        seconds("retry_interval", self.retry_interval)
        count("micro_batch", self.micro_batch, least=1)
        count("max_retries", self.max_retries)
        count("max_deliveries", self.max_deliveries, least=1)
        count("concurrency", self.concurrency, least=1)
        count("prefetch", self.prefetch, least=1, none=True)
        count("batch", self.batch, least=1)
        if self.lease >= self.history_ttl:
            raise ConfigurationError(
                f"lease={self.lease:g} and history_ttl={self.history_ttl:g}: the lease must be shorter, or an entry would "
                "disappear while its handler still runs"
            )
        if self.history_unavailable == "resolver" and self.resolver is None:
            raise ConfigurationError(f"trigger {self.name!r}: history_unavailable='resolver' needs a resolver=")
        if self.monitor is not None and self.on_retry_failure != "suspend":
            raise ConfigurationError(f"trigger {self.name!r}: monitor= is asked only with on_retry_failure='suspend'")
        self._check_functions()
        self._check_transaction()
        self._check_join()
        self._check_topic()
        if self.policy == "park" and not self.durable:
            raise ConfigurationError(
                f"trigger {self.name!r}: in_doubt='park' keeps a full copy in the history, which must be durable; "
                "use history='sqlite:FILE' or 'redis://…', or in_doubt='dead_letter'"
            )

    def _check_functions(self) -> None:
        """What is called long after the start, when something is wrong already, must not be wrong itself."""
        if self.resolver is not None:
            _check_call("resolver", self.resolver, "the ResolverRequest", ("request",))
        if self.monitor is not None:
            _check_call("monitor", self.monitor, "nothing", ())
            if is_async(self.monitor):
                raise ConfigurationError(
                    f"monitor={self.monitor!r}: expected a plain function; an `async def` would always be true"
                )

    def _check_join(self) -> None:
        """TR-63: what gathers messages needs a place that outlives the process."""
        if self.join is None or not self.join.gathers:
            return
        if not self.durable:
            raise ConfigurationError(
                f"trigger {self.name!r}: a join of kind {self.join.kind!r} keeps messages in the history, which must be durable; "
                "use history='sqlite:FILE' or 'redis://…'"
            )
        if self.transacted or self.batch > 1:
            raise ConfigurationError(f"trigger {self.name!r}: a join of kind {self.join.kind!r} cannot be transacted or a batch")

    def _check_topic(self) -> None:
        """Each handler of a transacted trigger has a receiver of its own, and each receiver of a topic gets every message."""
        destinations = (self.destination,) if self.join is None else self.join.destinations
        if self.transacted and self.concurrency > 1 and any(isinstance(one, Topic) for one in destinations):
            raise ConfigurationError(
                f"trigger {self.name!r}: transacted with concurrency={self.concurrency} on a topic runs each message as often; "
                "use concurrency=1, or a queue"
            )

    def _check_transaction(self) -> None:
        """A handler that asks for its history's transaction has to be given one (TR-36)."""
        if not takes_transaction(self.function):
            return
        if self.history is None or not self.history.transactional:
            raise ConfigurationError(
                f"trigger {self.name!r}: its handler takes a HistoryTransaction; give history=SqlHistory(…), which has one"
            )
        if inspect.iscoroutinefunction(self.function) or self.batch > 1 or self.transacted:
            raise ConfigurationError(
                f"trigger {self.name!r}: a HistoryTransaction is for a plain function and one message: no async, batch, transacted"
            )

    @property
    def same_transaction(self) -> bool:
        """The history commits with the handler's effects (TR-36)."""
        return self.history is not None and self.history.transactional and takes_transaction(self.function)

    @property
    def runs_abandoned(self) -> bool:
        """An abandoned message is New: it left no effects, or the trigger takes that risk (TR-36)."""
        return self.options.abandoned == "retry" or self.same_transaction

    @property
    def durable(self) -> bool:
        """A history that outlives the process is there to park in."""
        return self.history is not None and self.history.durable

    @property
    def policy(self) -> InDoubtPolicy:
        """What is done with an In Doubt message (TR-34)."""
        return self.in_doubt or ("park" if self.durable else "dead_letter")

    @property
    def window(self) -> int:
        """Messages held at once, buffered and running together (IF-17)."""
        return self.prefetch or max(10, 2 * self.concurrency * max(self.batch, self.micro_batch))

    @property
    def serial(self) -> bool:
        """One message at a time, in order (TR-62)."""
        return self.concurrency == self.micro_batch == self.one_of == 1


def _check_call(setting: str, function: Any, takes: str, arguments: tuple[str, ...]) -> None:
    """Raises ConfigurationError where it is no function, or cannot be called with these."""
    if not callable(function):
        raise ConfigurationError(f"{setting}={function!r}: expected a function")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some of those written in C do not say
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise ConfigurationError(f"{setting}={function!r}: it is called with {takes}, and takes {signature}: {error}") from error
