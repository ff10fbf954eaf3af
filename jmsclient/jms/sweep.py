"""What a keeper does now and then for a consumer whose buffer waits: purge what is too old, give back what nobody takes and what
the provider lets nobody hold any longer.

Owns when; how is the intake's. It holds the consumer weakly, so that a forgotten one can be collected (RA-25). "Nothing taken" is
seen by two looks that find the same number delivered, so that taking a message costs nothing here; what is due is done at most a
quarter of the shorter limit late. It must not know sockets or histories. Rules RA-11, RA-13, RA-15, IF-21.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING

from jmsclient.errors import JmsClientError
from jmsclient.events import emit
from jmsclient.options import ConsumerOptions

if TYPE_CHECKING:
    from jmsclient.jms.consumer import MessageConsumer
    from jmsclient.jms.session import Session


class Sweep:
    """Of one consumer; on the keeper only. `options` give the limits in seconds, 0 for never."""

    def __init__(self, consumer: MessageConsumer, session: Session, options: ConsumerOptions) -> None:
        self._transport = session.connection.transport  # not the connection: it may be forgotten
        self._consumer = weakref.ref(consumer)
        self._keeper = session.keeper
        self._clock = session.clock
        self._request_timeout = session.request_timeout
        self._purge_after = options.purge_after
        self._idle_timeout = options.idle_timeout
        self._delivered = -1
        self._quiet_since = 0.0
        limits = [limit for limit in (self._purge_after, self._idle_timeout, self._hold) if limit]
        self._interval = min(limits) / 4 if limits else 0.0

    @property
    def _releasable(self) -> bool:
        """A release is not counted by the present provider, which after a failover may be another product."""
        return self._transport.capabilities.release_without_count

    @property
    def _hold(self) -> float:
        hold_limit = self._transport.capabilities.hold_limit
        return 0.0 if hold_limit is None else hold_limit / 2

    def plan(self) -> None:
        """Look again later, where there is any limit."""
        if self._interval:
            self._keeper.at(self._clock.monotonic() + self._interval, self._look)

    def _look(self) -> None:
        consumer = self._consumer()
        if consumer is None or consumer.closed:
            return
        try:
            if self._purge_after:
                self._purge(consumer)
            if self._hold:
                self._release_held(consumer)
            if self._idle_timeout and self._releasable:  # RA-13: not done where a release counts
                self._give_back(consumer)
        finally:
            self.plan()

    def _purge(self, consumer: MessageConsumer) -> None:
        for arrival, age, kept in consumer.intake.purge(self._purge_after, releasable=self._releasable):
            emit(
                "consumer",
                "purged",
                f"{consumer!r}: {arrival.content.message_id} waited {age:.1f} s and was " + ("given back" if kept else "dropped"),
                level=logging.WARNING,
                destination=consumer.destination.address,
                message_id=arrival.content.message_id,
                age=age,
                kept=kept,
            )

    def _release_held(self, consumer: MessageConsumer) -> None:
        released = consumer.intake.release_held(self._hold)
        if released:
            emit(
                "consumer",
                "hold_limit",
                f"{consumer!r}: {len(released)} messages waited {self._hold:.0f} s, half of what the provider allows: given back",
                level=logging.WARNING,
                destination=consumer.destination.address,
                released=len(released),
            )

    def _give_back(self, consumer: MessageConsumer) -> None:
        intake = consumer.intake
        delivered = intake.buffer.delivered
        now = self._clock.monotonic()
        if delivered != self._delivered or not intake.buffered or intake.idle:
            self._delivered = delivered
            self._quiet_since = now
        elif now - self._quiet_since >= self._idle_timeout:
            try:
                released = intake.give_back_idle(self._clock.deadline(self._request_timeout))
            except JmsClientError as error:
                emit("consumer", "drain_failed", f"{consumer!r}: {error}", level=logging.WARNING)
                return
            if released is None:
                return
            emit(
                "consumer",
                "idle",
                f"{consumer!r} took nothing for {now - self._quiet_since:.0f} s: {released} given back, {intake.buffered} stay",
                level=logging.WARNING,
                destination=consumer.destination.address,
                consumer=repr(consumer),
                released=released,
                taken=intake.buffered,
            )
