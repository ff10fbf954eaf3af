"""Who acts in the state machine: sinks, and receivers, sessions and waiting senders, each with its part of the model."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from jmsclient.transport.contract import RELEASE, Arrival
from jmsclient_embedded.receiver import EmbeddedReceiver
from jmsclient_embedded.session import EmbeddedSession
from jmsclient_embedded.transport import EmbeddedTransport

from .reference_broker import Waiter
from .reference_place import Message, Session, Taker


class ModelSink:
    """Keeps what arrives, and gives back what no application has seen when it is asked to, as the core does (IF-20)."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.receiver: EmbeddedReceiver | None = None

    def delivered(self, batch: list[Arrival]) -> None:
        self.arrivals += batch

    def recall(self) -> None:
        assert self.receiver is not None
        unseen = [one for one in self.arrivals if not (one.settled or one.handed_over) and one.tag.delivery is one]
        self.receiver.settle(unseen, RELEASE)
        self.receiver.request(len(unseen))

    def closed(self, error: Exception | None) -> None:
        raise AssertionError(f"the broker closed a receiver by itself: {error}")


@dataclass(eq=False)
class Reader:
    """One receiver, real and in the model."""

    real: EmbeddedReceiver
    sink: ModelSink
    taker: Taker

    def held(self) -> list[Message]:
        """What it was given and nobody settled, as it came."""
        mine = [one for one in self.taker.place.in_state("receive") if one.owner is self.taker]
        accepted = self.taker.session.accepted
        return sorted((one for one in mine if one not in accepted), key=lambda one: self.sink.arrivals.index(one.arrival))  # type: ignore[arg-type]


@dataclass(eq=False)
class Actor:
    """One session, real and in the model. `busy`: one of its sends waits for room."""

    real: EmbeddedSession
    model: Session
    busy: bool = False


@dataclass(eq=False)
class Blocked:
    """A send that waits for room, on a thread of its own."""

    waiter: Waiter
    actor: Actor
    result: Future[None]


@dataclass(eq=False)
class Cast:
    """Who is there until the process ends."""

    transports: list[EmbeddedTransport] = field(default_factory=list)
    actors: list[Actor] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)


class LookingSink:
    """Of a receiver that only looks, or is refused."""

    def __init__(self) -> None:
        self.ids: list[str | None] = []

    def delivered(self, batch: list[Arrival]) -> None:
        self.ids += [one.content.message_id for one in batch]

    def recall(self) -> None:
        pass

    def closed(self, error: Exception | None) -> None:
        raise AssertionError(f"closed by the broker: {error}")
