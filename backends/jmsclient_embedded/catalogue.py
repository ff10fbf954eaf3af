"""Owns which destinations and quotas there are: found, made, given other settings, deleted; temporary ones and whose they are.

Must not know of messages' states or of receivers. All under the broker's lock. Source: api.md "Administration"; rules IF-31
(re-pointing fails the waiters); Jakarta Messaging 3.1 section 4.4.4 (temporary destinations).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Literal

from jmsclient.destination import Destination, Queue, Topic
from jmsclient.errors import ConfigurationError, IllegalStateError, InvalidDestinationError
from jmsclient_embedded.admission import Admission
from jmsclient_embedded.aftermath import Aftermath
from jmsclient_embedded.definitions import (
    Definitions,
    QuotaDefinition,
    SubscriptionDefinition,
    definition,
    quota_key,
    subscription_key,
    topic_key,
)
from jmsclient_embedded.granting import Granting
from jmsclient_embedded.line import Line
from jmsclient_embedded.pauses import Flags, Pause, at_start
from jmsclient_embedded.pausing import Pausing
from jmsclient_embedded.queue import MessageQueue
from jmsclient_embedded.quota import Quota
from jmsclient_embedded.settings import QueueSettings
from jmsclient_embedded.topics import Subscription, TopicRoute, Topics
from jmsclient_embedded.writing import Writing

TEMPORARY = "jmsclient-temporary-"
"""What names of temporary destinations begin with; nobody else's may."""


class Catalogue:
    """See the module. `startup` are the broker's own three pauses at start, None: as each destination says."""

    def __init__(
        self,
        granting: Granting,
        topics: Topics,
        admission: Admission,
        pausing: Pausing,
        writing: Writing,
        aftermath: Aftermath,
        startup: dict[Pause, bool | None],
    ) -> None:
        self.quotas: dict[str, Quota] = {}
        self.temporary: dict[str, object] = {}
        """Whose each temporary destination is, by address."""
        self._granting = granting
        self._topics = topics
        self._admission = admission
        self._pausing = pausing
        self._writing = writing
        self._aftermath = aftermath
        self._startup = startup
        self._loading = False
        for pause, paused in startup.items():
            granting.server.set(pause, bool(paused))
        granting.made = self._line_made
        topics.topic_made = self._topic_made
        topics.made = self._subscription_made
        topics.ended = self._subscription_ended

    # -- finding ----------------------------------------------------------------------------------------------------

    def route(self, destination: Destination) -> Line | TopicRoute:
        """Where a send to it goes; made on first use. Raises InvalidDestinationError for a temporary one that is gone."""
        if destination.name.startswith(TEMPORARY) and destination.address not in self.temporary:
            raise InvalidDestinationError(f"{destination.address}: this temporary destination is gone, or never was")
        if isinstance(destination, Topic):
            return self._topics.topic(destination.name)
        return self._granting.line(destination.name)

    def existing(self, destination: Destination) -> Line | TopicRoute:
        """As `route`, for one that is there. Raises InvalidDestinationError."""
        found = (
            self._topics.topics.get(destination.name)
            if isinstance(destination, Topic)
            else self._granting.lines.get(destination.name)
        )
        if found is None:
            raise InvalidDestinationError(f"{destination.address}: there is no such destination; make it, or send to it first")
        return found

    def lines(self, destination: Destination | None) -> list[Line]:
        """The lines of a destination that is there; None: of all."""
        if destination is None:
            return list(self._granting.lines.values())
        found = self.existing(destination)
        return [found] if isinstance(found, Line) else found.lines

    def quotas_of(self, destination: Destination | None) -> list[Quota]:
        """What bounds a topic that is there; None: all topics."""
        wanted = None if destination is None else self.existing(destination)
        return [one.quota for one in self._topics.topics.values() if one.quota is not None and wanted in (None, one)]

    def flags(self, destination: Destination | None) -> Flags:
        """The pauses of a destination that is there; None: of the whole broker."""
        return self._granting.server if destination is None else self.existing(destination).flags

    def destinations(self) -> list[Destination]:
        """All of them, sorted by URI."""
        queues = [line.destination for name, line in self._granting.lines.items() if name not in self._topics.subscriptions]
        topics = [topic.destination for topic in self._topics.topics.values()]
        return sorted((*queues, *topics), key=lambda one: one.address)

    # -- making and changing ----------------------------------------------------------------------------------------

    def define_queue(self, name: str, settings: QueueSettings) -> None:
        """Make a queue with these settings, or give them to the one there is. Raises ConfigurationError."""
        quota = self._quota_for(settings, self._granting.lines.get(name))
        line = self._granting.lines.get(name)
        if line is None:
            line = self._granting.lines[name] = Line(name, settings, above=(self._granting.server,))
            self._start_flags(line.flags, settings)
        self._give_settings(line, [line.queue], settings, quota)
        line.queue.on_crossing = self._crossed
        self._pausing.refresh(line)
        self._define(name, settings)

    def define_topic(self, name: str, settings: QueueSettings) -> None:
        """Make a topic with these settings, or give them to the one there is and its subscriptions."""
        quota = self._quota_for(settings, self._topics.topics.get(name))
        topic = self._topics.topic(name)
        self._give_settings(topic, [line.queue for line in topic.lines], settings, quota)
        topic.settings = settings
        topic.quota = quota
        for line in topic.lines:
            self._pausing.refresh(line)
        self._define(topic_key(name), settings)

    def define_quota(self, name: str, told: QuotaDefinition) -> None:
        """Make a quota, or change the one there is; whoever waits and fits now is admitted."""
        quota = self.quotas.get(name)
        if quota is None:
            quota = self.quotas[name] = Quota(name, bytes_maximum=-1, messages_maximum=-1, on_room=self._admission.freed)
        quota.bytes_maximum, quota.messages_maximum = told.bytes_maximum, told.messages_maximum
        quota.policy = "preemptive" if told.policy == "preemptive" else "fifo"
        quota.freed()
        self._define(quota_key(name), told)

    def _quota_for(self, settings: QueueSettings, route: Line | TopicRoute | None) -> Quota | None:
        if settings.quota is not None:
            found = self.quotas.get(settings.quota)
            if found is None:
                raise ConfigurationError(f"quota={settings.quota!r}: there is no such quota; make it first with create_quota")
            return found
        if settings.bytes_maximum < 0 and settings.messages_maximum < 0:
            return None
        own = None if route is None else route.quota
        if own is None or own.name is not None:
            own = Quota(None, bytes_maximum=-1, messages_maximum=-1, on_room=self._admission.freed)
        own.bytes_maximum, own.messages_maximum = settings.bytes_maximum, settings.messages_maximum
        return own

    def _give_settings(
        self, route: Line | TopicRoute, queues: Iterable[MessageQueue], settings: QueueSettings, quota: Quota | None
    ) -> None:
        old = route.quota
        for queue in queues:
            queue.settings = settings
            if queue.quota is not quota:
                if queue.quota is not None:
                    queue.quota.members.remove(queue)
                queue.quota = quota
                if quota is not None:
                    quota.members.append(queue)
        if old is not None and old is not quota:
            self._admission.fail_waiters(route, old)
            old.freed()
        if quota is not None:
            quota.freed()

    def _line_made(self, line: Line) -> None:
        """A queue made on first use, or a subscription."""
        line.queue.on_crossing = self._crossed
        if line.destination.scheme == "queue":
            self._start_flags(line.flags, line.settings)
            quota = self._quota_for(line.settings, None)
            if quota is not None:
                self._give_settings(line, [line.queue], line.settings, quota)
        line.refresh()

    def _topic_made(self, topic: TopicRoute) -> None:
        """As the template says, until it is given settings of its own."""
        self._start_flags(topic.flags, topic.settings)
        topic.quota = self._quota_for(topic.settings, None)

    def _start_flags(self, flags: Flags, settings: QueueSettings) -> None:
        template = self._granting.defaults
        for pause, server in self._startup.items():
            if server is None:
                name = f"{pause.value}_paused_at_startup"
                flags.set(pause, at_start(None, getattr(settings, name), getattr(template, name)))

    def _crossed(self, queue: MessageQueue, what: str, above: bool) -> None:
        where = self._granting.lines[queue.name].destination.address if queue.name in self._granting.lines else queue.name
        name, text = ("threshold_high", "rose to its high") if above else ("threshold_low", "fell to its low")
        count = queue.bytes_current if what == "bytes" else queue.current
        self._aftermath.tell(name, f"{what} on {where} {text} threshold", queue=queue.name, what=what, count=count)

    # -- loading ----------------------------------------------------------------------------------------------------

    def load(self, found: Definitions) -> None:
        """What the store defines; before its messages."""
        self._loading = True
        for name, quota in found.quotas.items():
            self.define_quota(name, quota)
        for name, settings in found.queues.items():
            self.define_queue(name, settings)
        for name, settings in found.topics.items():
            self.define_topic(name, settings)
        for line_name, told in found.subscriptions.items():
            self._topics.add(told, line_name, durable=True, origin=told.client_id)
        self._loading = False

    def _define(self, key: str, what: QueueSettings | QuotaDefinition | SubscriptionDefinition | None) -> None:
        if not self._loading:
            self._writing.define(key, None if what is None else definition(what))

    def _subscription_made(self, subscription: Subscription) -> None:
        self._define(subscription_key(subscription.line.queue.name), subscription.definition)

    def _subscription_ended(self, subscription: Subscription) -> None:
        self._define(subscription_key(subscription.line.queue.name), None)

    # -- deleting, and temporary ones ---------------------------------------------------------------------------------

    def delete(self, destination: Destination, discard: Callable[[Line], None]) -> None:
        """Remove a destination with all its messages. Raises IllegalStateError while somebody uses it."""
        self._check_unused(destination)
        if any(line.queue.uncommitted for line in self.lines(destination)):
            raise IllegalStateError(f"{destination.address} has messages of transactions that have not ended")
        self._remove(destination, discard)

    def delete_temporary(self, destination: Destination, discard: Callable[[Line], None], *, at_the_end: bool = False) -> None:
        """The same for a temporary one, whatever others are about to send to it: that is gone when they commit. `at_the_end` of
        its connection nobody else can use it."""
        if destination.address not in self.temporary:
            return
        if not at_the_end:
            self._check_unused(destination)
        self._remove(destination, discard)

    def _check_unused(self, destination: Destination) -> None:
        if any(line.outlets or line.queue.is_held for line in self.lines(destination)):
            raise IllegalStateError(f"{destination.address} has consumers, or messages that are not acknowledged; close them first")

    def _remove(self, destination: Destination, discard: Callable[[Line], None]) -> None:
        found, lines = self.existing(destination), self.lines(destination)
        self._give_settings(found, [line.queue for line in lines], QueueSettings(), None)
        if isinstance(found, TopicRoute):
            for subscription in tuple(found.subscriptions.values()):
                self._topics.end(subscription)
            del self._topics.topics[destination.name]
            self._define(topic_key(destination.name), None)
        else:
            discard(found)
            found.plain = False  # a send that found it just now sees that it is to look again
            found.gone = True
            del self._granting.lines[destination.name]
            self._granting.timed.discard(found)
            self._define(destination.name, None)
        self.temporary.pop(destination.address, None)

    def create_temporary(self, kind: Literal["queue", "topic"], origin: object) -> Destination:
        """A destination that only receivers of `origin` may use."""
        name = f"{TEMPORARY}{uuid.uuid4().hex}"
        destination: Destination = Topic(name) if kind == "topic" else Queue(name)
        self.temporary[destination.address] = origin
        route = self.route(destination)
        if isinstance(route, Line):
            route.stored = False
        return destination

    def temporary_of(self, origin: object) -> list[str]:
        """The addresses of those that a connection made."""
        return [address for address, whose in self.temporary.items() if whose == origin]

    def check_receiver(self, destination: Destination, origin: object) -> None:
        """Raises InvalidDestinationError for another connection's temporary destination, or one that is gone."""
        if destination.name.startswith(TEMPORARY) and self.temporary.get(destination.address, _NOBODY) != origin:
            raise InvalidDestinationError(
                f"{destination.address}: it is gone, or another connection's; only the one that made a temporary destination "
                "receives from it"
            )


_NOBODY = object()
