"""Owns topics and their subscriptions: each subscription is a line of its own that gets a copy of what it selects.

Must not know of stores' tables or of sessions. All under the broker's lock. Source: Jakarta Messaging 3.1 sections 4.2 and 8.3
(durable, shared, no-local): a durable subscription is told by client identifier and name, a shared one likewise, any other lives
as long as its receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jmsclient.destination import Topic, is_nameable
from jmsclient.errors import IllegalStateError, InvalidDestinationError
from jmsclient.message import Content
from jmsclient.selector import Selector, compile_selector
from jmsclient.transport.contract import ReceiverSpec
from jmsclient_embedded.definitions import MARK, SubscriptionDefinition
from jmsclient_embedded.granting import Granting
from jmsclient_embedded.line import Line
from jmsclient_embedded.pauses import Flags
from jmsclient_embedded.quota import Quota
from jmsclient_embedded.settings import QueueSettings

DURABLE = ("durable", "shared_durable")
SHARED = ("shared", "shared_durable")


@dataclass(eq=False, slots=True)
class Subscription:
    """One subscription. `origin` is the connection whose own messages it does not get; None: it gets all."""

    line: Line
    topic: TopicRoute
    definition: SubscriptionDefinition
    durable: bool
    selector: Selector | None
    origin: object
    ending: bool = False
    """Nobody can receive from it any more; it goes when nothing of it is held."""

    def wants(self, content: Content, origin: object) -> bool:
        """Whether it gets a copy."""
        if self.origin is not None and self.origin == origin:
            return False
        return self.selector is None or self.selector(content, 1)


@dataclass(eq=False, slots=True)
class TopicRoute:
    """A topic as senders see it."""

    destination: Topic
    settings: QueueSettings
    above: tuple[Flags, ...]
    flags: Flags = field(default_factory=Flags)
    quota: Quota | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    @property
    def production_paused(self) -> bool:
        """Effectively: production or insertion, of its own or of those above."""
        return any(flags.production or flags.insertion for flags in (self.flags, *self.above))

    @property
    def insertion_paused(self) -> bool:
        """Effectively."""
        return any(flags.insertion for flags in (self.flags, *self.above))

    def lines_for(self, content: Content, origin: object) -> Sequence[Line]:
        """The lines of the subscriptions that want it."""
        return [one.line for one in self.subscriptions.values() if one.wants(content, origin)]

    @property
    def lines(self) -> list[Line]:
        """Those of all its subscriptions."""
        return [one.line for one in self.subscriptions.values()]


class Topics:
    """The topics of a broker and their subscriptions. `made` and `ended` are told of each durable subscription."""

    def __init__(self, granting: Granting) -> None:
        self.topics: dict[str, TopicRoute] = {}
        self.subscriptions: dict[str, Subscription] = {}
        """By the name of their line; those that are ending too."""
        self.topic_made: Callable[[TopicRoute], None] = _ignore_topic
        """Told of each new topic."""
        self.made: Callable[[Subscription], None] = _ignore
        self.ended: Callable[[Subscription], None] = _ignore
        self.discard: Callable[[Line], None] = _ignore_line
        """Takes away and forgets all that nobody holds of a line."""
        self._granting = granting

    def topic(self, name: str) -> TopicRoute:
        """The topic of a name, made on first use."""
        found = self.topics.get(name)
        if found is None:
            settings = self._granting.defaults
            found = self.topics[name] = TopicRoute(Topic(name), settings, (self._granting.server,))
            self.topic_made(found)
        return found

    # -- subscribing --------------------------------------------------------------------------------------------------

    def subscribe(self, spec: ReceiverSpec, client_id: str | None, origin: object) -> Line:
        """The line of the subscription that `spec` asks for, made if there is none. Raises IllegalStateError where it is in use in
        a way that excludes this one."""
        if spec.kind == "topic":
            name = f"{next(self._granting.numbers)}"
        else:
            if not spec.name or not spec.name.strip():
                raise InvalidDestinationError(f"{spec.destination.address}: a {spec.kind} subscription needs a name")
            for text in (spec.name, client_id or ""):
                if not is_nameable(text):
                    raise InvalidDestinationError(f"{text!r}: control characters and surrogates are not allowed in names")
            name = f"{spec.kind}{MARK}{client_id or ''}{MARK}{spec.name}"
        wanted = SubscriptionDefinition(
            topic=spec.destination.name,
            name=spec.name or name,
            client_id=client_id,
            selector=spec.selector,
            no_local=spec.no_local,
            shared=spec.kind in SHARED,
        )
        durable = spec.kind in DURABLE
        found = self._find(client_id, spec.name, durable=durable) if spec.name else None
        if found is not None and not self._may_join(found, wanted):
            self.end(found)
            found = None
        if found is None:
            found = self.add(wanted, self._line_name(wanted, name), durable=durable, origin=client_id or origin)
            if durable:
                self.made(found)
        return found.line

    def _line_name(self, wanted: SubscriptionDefinition, name: str) -> str:
        """One of its own, also where somebody still holds messages of one that ended."""
        line_name = f"{wanted.topic}{MARK}{name}"
        return f"{line_name}{MARK}{next(self._granting.numbers)}" if line_name in self._granting.lines else line_name

    def _find(self, client_id: str | None, name: str, *, durable: bool) -> Subscription | None:
        for one in self.subscriptions.values():
            told = one.definition
            if (told.client_id, told.name, one.durable) == (client_id, name, durable) and not one.ending:
                return one
        return None

    def _may_join(self, found: Subscription, wanted: SubscriptionDefinition) -> bool:
        """Whether another receiver may use it as it is; False: it is to be made anew (JM 8.3.3). Raises IllegalStateError."""
        name = f"subscription {wanted.name!r} of topic {found.definition.topic!r}"
        active = bool(found.line.outlets)
        if found.definition.shared is not wanted.shared:
            kind = "shared" if found.definition.shared else "unshared"
            raise IllegalStateError(f"{name} is {kind}; unsubscribe it first, or use another name")
        if active and not wanted.shared:
            raise IllegalStateError(f"{name} has a consumer already; close that first, or make it shared")
        if found.definition == wanted:
            return True
        if active:
            raise IllegalStateError(f"{name} is in use with another topic or selector; close its consumers first")
        if found.line.queue.is_held:
            raise IllegalStateError(f"{name} has messages that are not acknowledged; close their session first")
        return False

    def add(self, told: SubscriptionDefinition, line_name: str, *, durable: bool, origin: object = None) -> Subscription:
        """Make a subscription."""
        topic = self.topic(told.topic)
        line = Line(line_name, topic.settings, destination=topic.destination, above=(*topic.above, topic.flags), stored=durable)
        subscription = Subscription(
            line,
            topic,
            told,
            durable,
            compile_selector(told.selector),
            (told.client_id or origin) if told.no_local else None,
        )
        self._granting.lines[line_name] = line
        self._granting.made(line)
        line.queue.quota = topic.quota
        if topic.quota is not None:
            topic.quota.members.append(line.queue)
        line.refresh()
        topic.subscriptions[line_name] = self.subscriptions[line_name] = subscription
        return subscription

    # -- ending ---------------------------------------------------------------------------------------------------------

    def unsubscribe(self, client_id: str | None, name: str) -> None:
        """Delete a durable subscription. Raises IllegalStateError, InvalidDestinationError."""
        found = self._find(client_id, name, durable=True)
        if found is None:
            raise InvalidDestinationError(f"there is no durable subscription {name!r} of client identifier {client_id!r}")
        if found.line.outlets:
            raise IllegalStateError(f"durable subscription {name!r} has a consumer; close that first")
        if found.line.queue.is_held:
            raise IllegalStateError(
                f"durable subscription {name!r} has messages that are not acknowledged; close their session first"
            )
        self.end(found)

    def left(self, line: Line) -> None:
        """A receiver or an owner of this line is gone: a subscription that is not durable ends with its last receiver."""
        subscription = self.subscriptions.get(line.queue.name)
        if subscription is None or line.outlets or (subscription.durable and not subscription.ending):
            return
        self.end(subscription)

    def end(self, subscription: Subscription) -> None:
        """No copies any more; what waits is deleted; it is gone when nothing of it is held."""
        line = subscription.line
        name = line.queue.name
        first = not subscription.ending
        subscription.ending = True
        subscription.topic.subscriptions.pop(name, None)
        self.discard(line)
        if first and subscription.durable:
            self.ended(subscription)
        if not line.queue.is_held:
            line.gone = True
            self.subscriptions.pop(name, None)
            self._granting.lines.pop(name, None)
            self._granting.timed.discard(line)
            if line.queue.quota is not None and line.queue in line.queue.quota.members:
                line.queue.quota.members.remove(line.queue)


def _ignore(subscription: Subscription) -> None:
    pass


def _ignore_topic(topic: TopicRoute) -> None:
    pass


def _ignore_line(line: Line) -> None:
    pass
