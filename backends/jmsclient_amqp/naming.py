"""Destinations as addresses of a broker, and back: prefixes, and the byte by which JMS clients tell queue and topic apart.

Pure. Source: the JMS mapping of AMQP (annotations `x-opt-jms-dest`, `x-opt-jms-reply-to`); reference page of the brokers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from jmsclient.destination import Destination, Queue, Topic

QUEUE: Final = 0
TOPIC: Final = 1
TEMPORARY_QUEUE: Final = 2
TEMPORARY_TOPIC: Final = 3
CAPABILITIES: Final = ("queue", "topic", "temporary-queue", "temporary-topic")


@dataclass(frozen=True, kw_only=True, slots=True)
class Naming:
    """How one product writes addresses."""

    queue_prefix: str = ""
    topic_prefix: str = ""
    existing_prefix: str = ""
    """Of a queue that is there already and is of a kind that `queue_prefix` does not make."""

    def address(self, destination: Destination) -> str:
        """What goes into source, target, `to` and `reply-to`."""
        prefix = self.topic_prefix if isinstance(destination, Topic) else self.queue_prefix
        return destination.name if destination.name.startswith(prefix) else prefix + destination.name

    def existing(self, destination: Destination) -> str | None:
        """How to name it where naming it as usual is refused because it is of another kind; None: there is no other way."""
        if not self.existing_prefix or isinstance(destination, Topic):
            return None
        return self.existing_prefix + destination.name.removeprefix(self.queue_prefix)

    def uri(self, address: str, kind: int) -> str:
        """The destination of an address, as text. A prefix of the address says more than `kind`."""
        if self.topic_prefix and address.startswith(self.topic_prefix):
            return Topic(address[len(self.topic_prefix) :] or address).address
        for prefix in (self.queue_prefix, self.existing_prefix):
            if prefix and address.startswith(prefix):
                return Queue(address[len(prefix) :] or address).address
        return (Topic if kind in (TOPIC, TEMPORARY_TOPIC) else Queue)(address).address


def kind_of_uri(uri: str) -> int:
    """The byte of the annotations for a destination's URI as contents carry it."""
    return TOPIC if uri.startswith("topic:") else QUEUE


def capability(destination: Destination) -> Literal["queue", "topic"]:
    """What source and target say they are: without it a broker may make a queue where a topic was meant (IF-26)."""
    return "topic" if isinstance(destination, Topic) else "queue"
