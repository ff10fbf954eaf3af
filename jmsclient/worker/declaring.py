"""What a worker's module declares: `trigger` and `join`, each a decorator. What is declared waits until the worker starts.

Must not know how a worker connects or runs. Source: api.md "Triggers and workers"; rules TR-28, TR-63. One thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jmsclient.destination import Destination, parse_destination
from jmsclient.errors import ConfigurationError
from jmsclient.history.contract import DocumentHistory
from jmsclient.options import (
    HistoryUnavailablePolicy,
    InDoubtPolicy,
    InProgressPolicy,
    NonPersistentPolicy,
    OnError,
    OnRetryFailure,
    TriggerOptions,
    key_part,
)
from jmsclient.trigger.join_spec import Activation, JoinKind, JoinSpec
from jmsclient.trigger.lane import check_handler

Function = TypeVar("Function", bound=Callable[..., Any])


class _OfTheWorker:
    """The default of `trigger(history=…)`: whatever the worker has."""

    def __repr__(self) -> str:
        return "the worker's"


OF_THE_WORKER = _OfTheWorker()


def check_history(history: object) -> None:
    """Raises ConfigurationError for what is neither a URL nor a history. What a URL says is found out when it is opened."""
    if not isinstance(history, str | DocumentHistory | _OfTheWorker | None):
        raise ConfigurationError(
            f"history={history!r}: expected a URL such as 'sqlite:history.db', an open history (open_history, SqlHistory), or None"
        )


class Declaring:
    """See the module."""

    def __init__(self) -> None:
        self._declared: dict[str, dict[str, Any]] = {}

    def trigger(
        self,
        destination: str | Destination,
        *,
        name: str | None = None,
        selector: str | None = None,
        history: str | DocumentHistory | _OfTheWorker | None = OF_THE_WORKER,
        resolver: Callable[..., Any] | None = None,
        on_error: OnError = "dead_letter",
        error_destination: str | Destination | None = None,
        in_doubt: InDoubtPolicy | None = None,
        in_progress: InProgressPolicy = "redeliver",
        history_unavailable: HistoryUnavailablePolicy = "suspend",
        history_ttl: float = 86400.0,
        lease: float = 60.0,
        micro_batch: int = 1,
        max_retries: int = 0,
        retry_interval: float = 10.0,
        on_retry_failure: OnRetryFailure = "throw",
        max_deliveries: int = 100,
        non_persistent: NonPersistentPolicy = "check",
        concurrency: int = 1,
        prefetch: int | None = None,
        batch: int = 1,
        monitor: Callable[[], bool] | None = None,
        transacted: bool = False,
        options: TriggerOptions | None = None,
    ) -> Callable[[Function], Function]:
        """Declare that messages of `destination` are handled by the decorated function, which is returned unchanged.

        `name` is the trigger's id in the history and defaults to the destination; keep it when the function is renamed. Times
        are seconds. Settings are checked when the worker starts, together with the history they need; the destination and the
        function's annotations at once. Raises ConfigurationError.

        The function and the resolver may be `async def`: they run on one event loop a trigger, up to `concurrency` at once, and
        are cancelled when the grace period is over; what was cancelled is not acknowledged and is In Doubt when it comes back.

        A handler that raises TransientError is run again before its message is settled, at most `max_retries` times,
        `retry_interval` seconds later or after the error's own `retry_after`; meanwhile a serial trigger waits and a
        concurrent one runs other messages. Then, as for any other exception, `on_error` says what becomes of the message
        (TR-45, TR-57); or with `on_retry_failure="suspend"` it goes back, to be New, and the trigger takes nothing until
        `monitor()`, asked every `TriggerOptions.monitor_interval`, returns True (TR-60) or `worker.triggers[name].resume()` is
        called.

        With `batch` above 1 the function handles up to so many messages in one call and takes `list[…]` of what it would take
        for one: `list[Order]`, `list[Message]`, `list[Delivery]`. It is called with those that are there, at least one. Each
        message is checked, claimed, completed and acknowledged on its own; what the call raises counts for each of its messages,
        and one whose body does not fit fails alone (TR-48).

        With `transacted` each of the `concurrency` handlers has a transport session, a window and a transaction of its own: what it
        sends, through the `Session` it may ask for by annotation or through `Delivery.send`, and the acknowledge of its message
        are committed together when it has returned, and rolled back when it raised or called `session.rollback()` (TR-37, TR-62).

        While the history does not answer, `history_unavailable` says what becomes of messages (TR-49): "suspend" takes none
        and resumes by itself; "run" decides as without a history: what is delivered for the first time runs, without duplicate
        detection, what comes again is the resolver's or In Doubt; "in_doubt" treats them as In Doubt; "resolver" asks
        the resolver about each. An event `history_unavailable` marks each message that was not looked up.
        """
        parsed = parse_destination(destination)
        settings = self._settings(
            name if name is not None else parsed.address,
            parsed,
            selector=selector,
            history=history,
            resolver=resolver,
            on_error=on_error,
            error_destination=error_destination,
            in_doubt=in_doubt,
            in_progress=in_progress,
            history_unavailable=history_unavailable,
            history_ttl=history_ttl,
            lease=lease,
            micro_batch=micro_batch,
            max_retries=max_retries,
            retry_interval=retry_interval,
            on_retry_failure=on_retry_failure,
            max_deliveries=max_deliveries,
            non_persistent=non_persistent,
            concurrency=concurrency,
            prefetch=prefetch,
            batch=batch,
            monitor=monitor,
            transacted=transacted,
            join=None,
            options=options,
        )
        return self._declare(settings)

    def join(
        self,
        destinations: Sequence[str | Destination],
        kind: JoinKind,
        activation: Activation,
        expires: float = 86400.0,
        *,
        name: str | None = None,
        selector: str | None = None,
        history: str | DocumentHistory | _OfTheWorker | None = OF_THE_WORKER,
        resolver: Callable[..., Any] | None = None,
        on_error: OnError = "dead_letter",
        error_destination: str | Destination | None = None,
        in_doubt: InDoubtPolicy | None = None,
        in_progress: InProgressPolicy = "redeliver",
        history_unavailable: HistoryUnavailablePolicy = "suspend",
        history_ttl: float = 86400.0,
        lease: float = 60.0,
        micro_batch: int = 1,
        max_retries: int = 0,
        retry_interval: float = 10.0,
        on_retry_failure: OnRetryFailure = "throw",
        max_deliveries: int = 100,
        non_persistent: NonPersistentPolicy = "check",
        concurrency: int = 1,
        prefetch: int | None = None,
        batch: int = 1,
        monitor: Callable[[], bool] | None = None,
        transacted: bool = False,
        options: TriggerOptions | None = None,
    ) -> Callable[[Function], Function]:
        """Declare that messages of several destinations are handled by the decorated function, which is returned unchanged (TR-63).

        `kind` "or": each message is handled by itself. "and": once a message of each destination with one activation id is there,
        they are handled together: the function takes `list[…]` of what `trigger` knows, in the order of `destinations`, and the one
        `Delivery`. "xor": the first message of an activation id is handled, the others within `expires` seconds are not.
        `activation` names the property that holds the activation id, or is a function of a message; a message without one is
        refused, that is dead-lettered, by "and" and "xor".

        Those two need a durable history: each message is checked, kept there as `joined`, and acknowledged, so that sets survive a
        restart; a complete one is run by one worker. A set that is not complete `expires` seconds after its first message is
        parked with what it has (`join_expired`), and so is a second message for a place that is taken (`join_taken`).

        The other settings are those of `trigger`. Raises ConfigurationError.
        """
        spec = JoinSpec(
            kind=kind,
            destinations=tuple(parse_destination(one) for one in destinations),
            activation=activation,
            expires=expires,
        )
        first, addresses = spec.destinations[0], ",".join(one.address for one in spec.destinations)
        settings = self._settings(
            name or f"{kind}:{addresses}",
            first,
            selector=selector,
            history=history,
            resolver=resolver,
            on_error=on_error,
            error_destination=error_destination,
            in_doubt=in_doubt,
            in_progress=in_progress,
            history_unavailable=history_unavailable,
            history_ttl=max(history_ttl, expires) if kind == "xor" else history_ttl,
            lease=lease,
            micro_batch=micro_batch,
            max_retries=max_retries,
            retry_interval=retry_interval,
            on_retry_failure=on_retry_failure,
            max_deliveries=max_deliveries,
            non_persistent=non_persistent,
            concurrency=concurrency,
            prefetch=prefetch,
            batch=batch,
            monitor=monitor,
            transacted=transacted,
            join=spec,
            options=options,
        )
        return self._declare(settings)

    def _settings(
        self, name: str, destination: Destination, *, error_destination: str | Destination | None, **settings: Any
    ) -> dict[str, Any]:
        """What `Declaration` takes. Raises ConfigurationError where the name is taken."""
        if name in self._declared:
            raise ConfigurationError(f"trigger {name!r} is declared twice: give the second one a name=")
        key_part("name", name)
        if not isinstance(settings["options"], TriggerOptions | None):
            raise ConfigurationError(f"options={settings['options']!r}: expected TriggerOptions(…) or None")
        check_history(settings["history"])
        elsewhere = None if error_destination is None else parse_destination(error_destination)
        options = settings.pop("options") or TriggerOptions()
        return {**settings, "name": name, "destination": destination, "error_destination": elsewhere, "options": options}

    def _declare(self, settings: dict[str, Any]) -> Callable[[Function], Function]:
        def declare(function: Function) -> Function:
            check_handler(  # refuse what cannot be called before anything runs
                function, settings["batch"], settings["join"], transacted=settings["transacted"]
            )
            self._declared[settings["name"]] = {**settings, "function": function}
            return function

        return declare
