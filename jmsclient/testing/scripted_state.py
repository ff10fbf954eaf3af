"""Owns what all links of one ScriptedBackend share: its queues, what the script asks for, and the logs a test reads.

Must not know links. Everything here is guarded by `lock`, which is never held while a sink, a listener or a waiter is called.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from jmsclient.clock import Bell
from jmsclient.errors import ConfigurationError
from jmsclient.message import PropertyValue
from jmsclient.testing.scripted_queue import Held, Queues
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Outcome, Verb

ERROR_DESTINATION = "queue:///scripted.error"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settlement:
    """One line of the settle log: which message got which outcome, and what its next delivery would have said."""

    destination: str
    message_id: str | None
    outcome: Outcome
    delivery_count: int
    handed_over: bool

    @property
    def verb(self) -> Verb:
        return self.outcome.verb


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A message that was rejected, and why."""

    destination: str
    message_id: str | None
    reason: str | None
    properties: Mapping[str, PropertyValue]


class Confirmation:
    """A send that was written and waits to be confirmed; `error` says that its link died first."""

    __slots__ = ("bell", "error")

    def __init__(self, bell: Bell) -> None:
        self.bell = bell
        self.error: Exception | None = None


@dataclass(slots=True)
class ScriptedState:
    """See the module."""

    capabilities: Capabilities
    lock: threading.Lock = field(default_factory=threading.Lock)
    queues: Queues = field(default_factory=Queues)
    settlements: list[Settlement] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    requests: list[tuple[str, int]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    stale: int = 0
    sent: int = 0
    refused_attach: Exception | None = None
    refused_connect: Exception | None = None
    refused_send: Exception | None = None
    refused_commit: tuple[Exception, bool] | None = None
    temporaries: dict[str, object] = field(default_factory=dict)  # address: the transport that made it
    holding: bool = False
    number: int = 0

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def settle(self, held: Held, outcome: Outcome, *, receiver: int, handed_over: bool, now: float) -> None:
        """Carry one outcome out and log it (under the lock)."""
        self.log(held, outcome, handed_over=handed_over)
        if outcome.delay and not self.capabilities.delayed_release:
            self.violations.append(f"{outcome} with a delay, though delayed_release is not declared")
        self._carry_out(held, outcome, receiver, now)

    def log(self, held: Held, outcome: Outcome, *, handed_over: bool) -> None:
        """One line of the settle log; an accept in a transaction gets no more than that until the commit."""
        self.settlements.append(
            Settlement(
                destination=held.address,
                message_id=held.content.message_id,
                outcome=outcome,
                delivery_count=held.delivery_count,
                handed_over=handed_over,
            )
        )

    def _carry_out(self, held: Held, outcome: Outcome, receiver: int, now: float) -> None:
        due = now + outcome.delay if outcome.delay else 0.0
        if outcome.verb is Verb.RELEASE:
            self.queues.give_back(held, counted=not self.capabilities.release_without_count, due=due)
        elif outcome.verb is Verb.RETRY:
            self.queues.give_back(held, counted=True, due=due)
        elif outcome.verb is Verb.RETRY_ELSEWHERE:
            self.queues.give_back(held, counted=True, due=due, barred=receiver)
        elif outcome.verb is Verb.DEAD_LETTER:
            self._reject(held, outcome)

    def _reject(self, held: Held, outcome: Outcome) -> None:
        if self.capabilities.reject == "requeue":
            self.queues.give_back(held, counted=True)
            return
        self.dead_letters.append(
            DeadLetter(
                destination=held.address,
                message_id=held.content.message_id,
                reason=outcome.reason,
                properties=outcome.properties,
            )
        )
        if self.capabilities.reject == "dead_letter":
            self.queues.put(ERROR_DESTINATION, held.content)


def check_capabilities(capabilities: Capabilities) -> None:
    """Refuse what this backend cannot imitate. Raises ConfigurationError."""
    cannot = (
        "records_hand_over",
        "selectors",
        "delayed_delivery",
        "administration",
        "priorities",
        "durable_subscriptions",
        "shared_subscriptions",
        "topics",
    )
    wrong = [name for name in cannot if getattr(capabilities, name)]
    if wrong:
        raise ConfigurationError(f"a ScriptedBackend cannot declare {', '.join(wrong)}")
    if capabilities.reject == "until_limit":
        raise ConfigurationError("a ScriptedBackend has no redelivery limit: reject is dead_letter, discard or requeue")
