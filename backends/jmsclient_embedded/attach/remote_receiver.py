"""Owns a receiver of an attached process: what arrives is pushed to its sink, what is settled is told to the holder.

Must not know of sessions. The holder has to know what the application has seen, for it may be killed with its own journal as the
only trace (IF-11): a persistent message is announced and the holder's answer awaited before it is handed over; of a non-persistent
one, which outlives no holder, it is told.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from jmsclient import envelope
from jmsclient.destination import Destination
from jmsclient.events import emit
from jmsclient.options import DefaultReadAhead
from jmsclient.transport.contract import RELEASE, Arrival, Outcome, Receiver, ReceiverSpec, Sink
from jmsclient_embedded.attach.frames import Frame
from jmsclient_embedded.attach.link import Link
from jmsclient_embedded.attach.values import error_from_json, to_json

HAND_OVER_TIMEOUT = 30.0
"""Seconds after which a holder that does not answer a hand-over is taken not to answer any more."""


class RemoteArrival(Arrival):
    """A delivery of which the holder hears what becomes of it."""

    __slots__ = ("_handed_over",)

    @property
    def handed_over(self) -> bool:
        return self._handed_over

    @handed_over.setter
    def handed_over(self, seen: bool) -> None:
        before = getattr(self, "_handed_over", False)
        self._handed_over = seen
        if seen is not before and not self.settled and not (seen and self.persistent):
            receiver = self.receiver
            assert isinstance(receiver, RemoteReceiver)
            receiver.tell_seen(self, seen)


class RemoteReceiver(Receiver):
    """A receiver of the holder's broker. Thread-safe. `default_read_ahead`, `error_destination` and
    `redelivery_delay` as of an embedded one."""

    def __init__(self, link: Link, number: int, sink: Sink) -> None:
        self.number = number
        self.default_read_ahead = DefaultReadAhead.UNKNOWN
        self.error_destination: Destination | None = None
        self.redelivery_delay = 0.0
        self._link = link
        self._sink = sink
        self._ended = False

    def open(self, session: int, spec: ReceiverSpec, deadline: float | None) -> None:
        """Attach. Raises what the holder raises."""
        self._link.receivers[self.number] = self._pushed
        try:
            opened = self._link.ask("open_receiver", deadline, session=session, receiver=self.number, spec=spec)
        except BaseException:
            del self._link.receivers[self.number]
            raise
        self.default_read_ahead = opened["default_read_ahead"]
        self.error_destination = opened["error_destination"]
        self.redelivery_delay = opened["redelivery_delay"]

    def request(self, count: int) -> None:
        if count > 0 and not self._ended and not self._link.dead:
            self._link.tell("request", receiver=self.number, count=count)

    def settle(self, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        fresh = [arrival for arrival in arrivals if not arrival.settled]
        if not fresh:
            return
        if self._link.dead:
            text = f"{len(fresh)} settlements came after the link to the holder of the store was gone and did nothing"
            emit("embedded", "stale_settlement", text, level=logging.INFO, count=len(fresh))
        else:
            # Handed over before they are marked: an exception in between leads to a second settlement, which does nothing.
            self._link.tell("settle", receiver=self.number, tags=[one.tag for one in fresh], outcome=to_json(outcome))
        for arrival in fresh:
            arrival.settled = True

    def handing_over(self, arrivals: Sequence[Arrival]) -> None:
        tags = [arrival.tag for arrival in arrivals if arrival.persistent and not arrival.settled]
        if tags and not self._link.dead:
            deadline = self._link.clock.deadline(HAND_OVER_TIMEOUT)
            try:
                self._link.ask("handing_over", deadline, receiver=self.number, tags=tags)
            except BaseException:  # struck or refused: the application does not see them after all
                self._link.tell("seen", receiver=self.number, tags=tags, seen=False)
                raise

    def tell_seen(self, arrival: Arrival, seen: bool) -> None:
        """The application has seen it, or is not to see it after all."""
        if not self._link.dead:
            self._link.tell("seen", receiver=self.number, tags=[arrival.tag], seen=seen)

    def drain(self, deadline: float | None) -> None:
        self._link.ask("drain", deadline, in_order=True, receiver=self.number)

    def close(self, deadline: float | None) -> None:
        if self._link.dead:
            return
        self.end()
        self._link.ask("close_receiver", deadline, in_order=True, receiver=self.number)
        self._link.receivers.pop(self.number, None)

    def end(self) -> None:
        """Push no more: what comes now goes back unseen."""
        self._ended = True

    # -- on the pushing thread -------------------------------------------------------------------------------------------

    def _pushed(self, frame: Frame) -> None:
        what = frame.header["push"]
        if what == "delivered":
            self._deliver(frame)
        elif self._ended or self._link.dead:
            return
        elif what == "recall":
            self._sink.recall()
        elif what == "closed":
            self._ended = True
            error = frame.header.get("error")
            self._sink.closed(None if error is None else error_from_json(error))

    def _deliver(self, frame: Frame) -> None:
        if self._link.dead:
            return
        heads = frame.header["messages"]
        batch = [self._arrival(head, piece) for head, piece in zip(heads, frame.pieces, strict=True)]
        if self._ended:
            self.settle(batch, RELEASE)
        else:
            self._sink.delivered(batch)

    def _arrival(self, head: list[Any], piece: bytes) -> Arrival:
        tag, delivery_count, count_derived, persistent, size, expires_at, settled = head
        return RemoteArrival(
            self,
            tag,
            envelope.decode(piece),
            delivery_count=delivery_count,
            count_derived=count_derived,
            persistent=persistent,
            size=size,
            expires_at=expires_at,
            settled=settled,
        )
