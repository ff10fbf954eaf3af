"""Owns the administration of an embedded broker: the contract's calls, checked, as steps.

Must not know how a pause or a move works: it finds what is meant, asks the rooms, and says what was done. Thread-safe. Source:
transport/administration.py; api.md "Administration"; rules IF-15, IF-31 to IF-35; T17.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from jmsclient.destination import Destination, Queue, Topic, parse_destination
from jmsclient.errors import ConfigurationError, DestinationPausedError, IllegalStateError, InvalidDestinationError
from jmsclient.options import DefaultReadAhead, seconds
from jmsclient.selector import Selector, compile_selector
from jmsclient.transport.administration import (
    Administration,
    DestinationStatistics,
    ExpirationPolicy,
    ManagementResult,
    MessageInfo,
    PendingByKind,
    QuotaPolicy,
)
from jmsclient.transport.contract import Outcome, Verb
from jmsclient_embedded.catalogue import TEMPORARY
from jmsclient_embedded.definitions import QuotaDefinition
from jmsclient_embedded.entry import Entry, Holder
from jmsclient_embedded.line import Line
from jmsclient_embedded.pauses import Pause
from jmsclient_embedded.settings import QueueSettings
from jmsclient_embedded.states import MANAGEABLE, SHOWN_AS
from jmsclient_embedded.topics import TopicRoute

if TYPE_CHECKING:
    from jmsclient_embedded.broker import Broker

T = TypeVar("T")
Place = str | Destination
_STUCK = {verb.value: verb for verb in Verb}


class EmbeddedAdministration(Administration):
    """Of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # -- looking ----------------------------------------------------------------------------------------------------

    def destinations(self) -> list[Destination]:
        return self._ask(self._broker.catalogue.destinations)

    def statistics(self, destination: Place) -> DestinationStatistics:
        where = parse_destination(destination)
        return self._ask(lambda: self._statistics(where))

    def _statistics(self, where: Destination) -> DestinationStatistics:
        found = self._broker.catalogue.existing(where)
        blocked = self._broker.admission.blocked(found)
        if isinstance(found, Line):
            return replace(_of_line(found), blocked_senders=blocked)
        return replace(_of_topic(found), blocked_senders=blocked)

    def reset_statistics(self, destination: Place) -> None:
        where = parse_destination(destination)

        def reset() -> None:
            for line in self._broker.catalogue.lines(where):
                line.queue.reset_statistics()
                line.consumers_high = len(line.outlets)

        self._ask(reset)

    def messages(self, destination: Place, selector: str | None = None, state: str | None = None) -> list[MessageInfo]:
        where, selection = parse_destination(destination), compile_selector(selector)
        if state is not None and state not in SHOWN_AS:
            raise ConfigurationError(f"state={state!r}: expected one of {', '.join(SHOWN_AS)}")

        def look() -> list[MessageInfo]:
            wall = self._broker.clock.wall()
            return [
                _info(line, entry, wall)
                for line in self._broker.catalogue.lines(where)
                for entry in _everything(line)
                if (state is None or entry.shown_as == state) and _selected(entry, selection)
            ]

        return self._ask(look)

    # -- pausing ----------------------------------------------------------------------------------------------------

    def pause_production(self, destination: Place | None = None) -> bool:
        return self._pause(destination, Pause.PRODUCTION, paused=True)

    def resume_production(self, destination: Place | None = None) -> bool:
        return self._pause(destination, Pause.PRODUCTION, paused=False)

    def pause_insertion(self, destination: Place | None = None) -> bool:
        return self._pause(destination, Pause.INSERTION, paused=True)

    def resume_insertion(self, destination: Place | None = None) -> bool:
        return self._pause(destination, Pause.INSERTION, paused=False)

    def pause_consumption(self, destination: Place | None = None) -> bool:
        return self._pause(destination, Pause.CONSUMPTION, paused=True)

    def resume_consumption(self, destination: Place | None = None) -> bool:
        return self._pause(destination, Pause.CONSUMPTION, paused=False)

    def _pause(self, destination: Place | None, pause: Pause, *, paused: bool) -> bool:
        where = None if destination is None else parse_destination(destination)
        catalogue = self._broker.catalogue

        def change() -> bool:
            done = self._broker.pausing.change(catalogue.flags(where), catalogue.lines(where), where, pause, paused)
            for quota in catalogue.quotas_of(where):
                quota.freed()  # who waits for a topic without subscriptions hears of it from no queue
            return done

        changed = self._ask(change)
        self._ask(_nothing)  # what was called back is back when the step after that one is done
        return changed

    # -- changing messages ------------------------------------------------------------------------------------------

    def move(
        self,
        destination: Place,
        target: Place,
        selector: str | None = None,
        *,
        message_ids: Sequence[str] | None = None,
    ) -> ManagementResult:
        where, into, selection = parse_destination(destination), parse_destination(target), compile_selector(selector)
        if isinstance(into, Topic):
            raise InvalidDestinationError(f"{into.address}: messages move to a queue")
        if where.address == into.address:
            raise ConfigurationError(f"{into.address}: the target of a move is another queue")
        wanted = _checked_ids(message_ids)

        def move() -> ManagementResult:
            lines = self._consumption_paused(where, "move")
            goal = self._broker.catalogue.existing(into)
            assert isinstance(goal, Line)
            if goal.production_paused:
                raise DestinationPausedError(f"{into.address}: production or insertion is paused, so nothing can be moved into it")
            return self._take_away(lines, selection, wanted, lambda line, taken: self._broker.redirecting.move(line, goal, taken))

        return self._done(move)

    def delete(
        self, destination: Place, selector: str | None = None, *, message_ids: Sequence[str] | None = None
    ) -> ManagementResult:
        where, selection, wanted = parse_destination(destination), compile_selector(selector), _checked_ids(message_ids)
        if selection is None and wanted is None:
            raise ConfigurationError("delete: give a selector or message_ids; to delete everything, use drain")
        return self._done(
            lambda: self._take_away(self._consumption_paused(where, "delete"), selection, wanted, self._broker.discard)
        )

    def drain(self, destination: Place) -> ManagementResult:
        where = parse_destination(destination)
        return self._done(lambda: self._take_away(self._consumption_paused(where, "drain"), None, None, self._broker.discard))

    def _consumption_paused(self, where: Destination, what: str) -> list[Line]:
        catalogue = self._broker.catalogue
        found, lines = catalogue.existing(where), catalogue.lines(where)
        flags = (found.flags, *found.above)
        if not any(one.consumption for one in flags):
            raise IllegalStateError(f"{what}: consumption of {where.address} is not paused; call pause_consumption first")
        if any(one.production or one.insertion for one in flags):
            raise IllegalStateError(f"{what}: production or insertion of {where.address} is paused; resume it first")
        return lines

    def _take_away(
        self,
        lines: list[Line],
        selection: Selector | None,
        wanted: frozenset[str] | None,
        away: Callable[[Line, list[Entry]], None],
    ) -> ManagementResult:
        done: list[str | None] = []
        refused: list[tuple[str | None, str]] = []
        there: set[str | None] = set()
        for line in lines:
            named = [entry for entry in _everything(line) if wanted is None or entry.content.message_id in wanted]
            there.update(entry.content.message_id for entry in named)
            chosen = [entry for entry in named if _selected(entry, selection)]
            free = [entry for entry in chosen if entry.state in MANAGEABLE]
            free.sort(key=lambda entry: entry.sequence)  # whatever they wait for, they arrive in the order in which they were sent
            refused += [(entry.content.message_id, entry.shown_as) for entry in chosen if entry.state not in MANAGEABLE]
            if free:
                line.queue.take_away(free)
                away(line, free)
                self._broker.granting.grant(line)  # the next of a unit of order may have become visible by that (IF-34)
                done += [entry.content.message_id for entry in free]
        seen = {one for one, _ in refused} | set(done)
        refused += [(one, "not selected" if one in there else "not there") for one in sorted(wanted or ()) if one not in seen]
        return ManagementResult(done=tuple(done), refused=tuple(refused))

    def recover_stuck(self, owner_or_message: str, outcome: Outcome | str = "retry") -> int:
        if not isinstance(owner_or_message, str) or not owner_or_message:
            raise ConfigurationError(f"owner_or_message={owner_or_message!r}: expected an owner's name or a message id")
        if not isinstance(outcome, Outcome):
            verb = _STUCK.get(outcome) if isinstance(outcome, str) else None
            if verb is None:
                raise ConfigurationError(f"outcome={outcome!r}: expected one of {', '.join(_STUCK)}")
            outcome = Outcome(verb=verb)
        settlement = _checked_outcome(outcome)

        def recover() -> int:
            held = [(holder, entry) for holder in self._broker.granting.holders.values() for entry in holder.entries()]
            found = [pair for pair in held if owner_or_message in (pair[0].name, pair[1].content.message_id)]
            if not found:
                raise InvalidDestinationError(
                    f"nobody of the name {owner_or_message!r} holds a message, and no such message is held"
                )
            by_line = self._by_line(found)
            for holder, entry in found:
                if holder.transaction is not None:
                    line = self._broker.granting.lines[holder.queue.name]
                    holder.transaction.taken_out(line, entry, accepted=settlement.verb is Verb.ACCEPT)
            for line, entries in by_line.items():
                self._broker.settling.settle_entries(line, entries, settlement)
            return len(found)

        return self._done(recover)

    def _by_line(self, found: Sequence[tuple[Holder, Entry]]) -> dict[Line, list[Entry]]:
        by_line: dict[Line, list[Entry]] = {}
        for holder, entry in found:
            if holder.name.startswith("commit-"):
                raise IllegalStateError(f"message {entry.content.message_id}: its transaction is being committed")
            by_line.setdefault(self._broker.granting.lines[holder.queue.name], []).append(entry)
        return by_line

    # -- making -----------------------------------------------------------------------------------------------------

    def create_queue(
        self,
        name: str,
        *,
        bytes_maximum: int = -1,
        messages_maximum: int = -1,
        quota: str | None = None,
        bytes_threshold_high: int = -1,
        bytes_threshold_low: int = -1,
        messages_threshold_high: int = -1,
        messages_threshold_low: int = -1,
        redelivery_delay: float = -1.0,
        redelivery_multiplier: float = 1.0,
        redelivery_delay_maximum: float | None = None,
        redelivery_limit: int = -1,
        error_destination: str | None = "DLQ",
        expiration_policy: ExpirationPolicy = "discard",
        time_to_deliver_override: float = -1.0,
        time_to_live_override: float = -1.0,
        priority_override: int = -1,
        delivery_mode_override: Literal["persistent", "non_persistent"] | None = None,
        unit_of_order: str | None = None,
        production_paused_at_startup: bool | None = None,
        insertion_paused_at_startup: bool | None = None,
        consumption_paused_at_startup: bool | None = None,
        default_read_ahead: DefaultReadAhead | str = DefaultReadAhead.NO,
    ) -> None:
        given = {key: value for key, value in locals().items() if key not in ("self", "name")}
        where, settings = _queue_name(name), _settings(given)
        self._done(lambda: self._broker.catalogue.define_queue(where, settings))

    def create_topic(
        self,
        name: str,
        *,
        bytes_maximum: int = -1,
        messages_maximum: int = -1,
        quota: str | None = None,
        redelivery_delay: float = -1.0,
        redelivery_multiplier: float = 1.0,
        redelivery_delay_maximum: float | None = None,
        redelivery_limit: int = -1,
        error_destination: str | None = "DLQ",
        expiration_policy: ExpirationPolicy = "discard",
        time_to_deliver_override: float = -1.0,
        time_to_live_override: float = -1.0,
        priority_override: int = -1,
        delivery_mode_override: Literal["persistent", "non_persistent"] | None = None,
        default_read_ahead: DefaultReadAhead | str = DefaultReadAhead.NO,
    ) -> None:
        given = {key: value for key, value in locals().items() if key not in ("self", "name")}
        where, settings = _queue_name(name), _settings(given)
        self._done(lambda: self._broker.catalogue.define_topic(where, settings))

    def create_quota(self, name: str, *, bytes_maximum: int = -1, messages_maximum: int = -1, policy: QuotaPolicy = "fifo") -> None:
        if name is None:
            raise ConfigurationError("name=None: expected the name of a quota")
        QueueSettings(quota=name)  # the checks of a name, and of the maxima below, are those of a queue
        QueueSettings(bytes_maximum=bytes_maximum, messages_maximum=messages_maximum)
        if policy not in ("fifo", "preemptive"):
            raise ConfigurationError(f"policy={policy!r}: expected 'fifo' or 'preemptive'")
        told = QuotaDefinition(bytes_maximum=bytes_maximum, messages_maximum=messages_maximum, policy=policy)
        self._done(lambda: self._broker.catalogue.define_quota(name, told))

    def delete_destination(self, destination: Place) -> None:
        where = parse_destination(destination)
        self._done(lambda: self._broker.catalogue.delete(where, self._broker.discard_all))

    # -- steps ------------------------------------------------------------------------------------------------------

    def _ask(self, step: Callable[[], T]) -> T:
        self._broker.check_alive()
        return self._broker.steps.ask(step)

    def _done(self, step: Callable[[], T]) -> T:
        """As `_ask`; what it changed is stored when it returns."""
        result = self._ask(step)
        self._broker.flush(None)
        return result


def _nothing() -> None:
    pass


def _queue_name(name: str) -> str:
    where = Queue(name)  # raises InvalidDestinationError
    if name.startswith(TEMPORARY):
        raise InvalidDestinationError(f"{where.address}: names that begin with {TEMPORARY} are the broker's")
    return where.name


def _settings(given: dict[str, object]) -> QueueSettings:
    read_ahead = given["default_read_ahead"]
    if isinstance(read_ahead, str):
        try:
            given["default_read_ahead"] = DefaultReadAhead(read_ahead.lower())
        except ValueError:
            allowed = ", ".join(one.value for one in DefaultReadAhead)
            raise ConfigurationError(f"default_read_ahead={read_ahead!r}: expected one of {allowed}") from None
    return QueueSettings(**given)  # type: ignore[arg-type]  # checked by QueueSettings itself


def _checked_ids(message_ids: Sequence[str] | None) -> frozenset[str] | None:
    if message_ids is None:
        return None
    named = isinstance(message_ids, Iterable) and not isinstance(message_ids, str)
    if not named or not all(isinstance(one, str) for one in message_ids):
        raise ConfigurationError(f"message_ids={message_ids!r}: expected a list of message ids")
    return frozenset(message_ids)


def _checked_outcome(outcome: Outcome) -> Outcome:
    if not isinstance(outcome.verb, Verb):
        raise ConfigurationError(f"verb={outcome.verb!r}: expected a Verb")
    try:
        seconds("delay", outcome.delay)
    except ConfigurationError as error:
        raise ConfigurationError(f"outcome={outcome!r}: {error}") from error
    return outcome


def _selected(entry: Entry, selection: Selector | None) -> bool:
    return selection is None or selection(entry.content, entry.count + 1)


def _everything(line: Line) -> list[Entry]:
    held = [entry for holder in line.queue.holders.values() for entry in holder.entries()]
    return [*line.queue.unheld(), *held]


def _info(line: Line, entry: Entry, wall: float) -> MessageInfo:
    sent = entry.content.header("timestamp")
    handed_over = entry.delivery is not None and entry.delivery.handed_over
    return MessageInfo(
        message_id=entry.content.message_id,
        destination=line.destination.address,
        state=entry.shown_as,
        owner=None if entry.owner is None else entry.owner.name,
        age=0.0 if sent is None else max(0.0, wall - sent),
        delivery_count=entry.count + int(handed_over),
        priority=entry.priority,
        persistent=entry.persistent,
        size=entry.size,
    )


def _of_line(line: Line) -> DestinationStatistics:
    flags = (line.flags, *line.above)
    return replace(
        line.queue.statistics(),
        consumers_current=len(line.outlets),
        consumers_high=line.consumers_high,
        consumers_total=line.consumers_total,
        production_paused=any(one.production for one in flags),
        insertion_paused=any(one.insertion for one in flags),
        consumption_paused=any(one.consumption for one in flags),
    )


def _of_topic(topic: TopicRoute) -> DestinationStatistics:
    """The sum over its subscriptions: what each has is counted there; the flags are the topic's."""
    parts = [_of_line(line) for line in topic.lines]
    flags = (topic.flags, *topic.above)
    sums: dict[str, int] = {
        one.name: sum(getattr(part, one.name) for part in parts)
        for one in fields(DestinationStatistics)
        if one.name not in ("pending_by_kind", "production_paused", "insertion_paused", "consumption_paused")
    }
    kinds = {one.name: sum(getattr(part.pending_by_kind, one.name) for part in parts) for one in fields(PendingByKind)}
    return DestinationStatistics(
        **sums,
        pending_by_kind=PendingByKind(**kinds),
        production_paused=any(one.production for one in flags),
        insertion_paused=any(one.insertion for one in flags),
        consumption_paused=any(one.consumption for one in flags),
    )
