"""A receiver in memory for the intake: it remembers what it was told and delivers on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jmsclient.clock import SYSTEM_CLOCK, Clock
from jmsclient.errors import UnsupportedFeatureError
from jmsclient.intake import Intake
from jmsclient.message import MessageKind, PlainContent
from jmsclient.transport.contract import Arrival, Outcome, Receiver, Sink


class FakeReceiver(Receiver):
    """Delivers `supply` under demand, in the calling thread, as the embedded broker does."""

    def __init__(self) -> None:
        self.sink: Sink | None = None
        self.requests: list[int] = []
        self.settled: list[tuple[list[str], str]] = []
        self.handed_over: list[str] = []
        self.withdrawn: list[int] = []
        self.demand = 0
        self.drains = 0
        self.can_drain = True
        self.closed = False
        self.supply: list[Arrival] = []
        self._number = 0

    def put(self, *, persistent: bool = True, size: int = 10, expires_at: float | None = None) -> Arrival:
        self._number += 1
        content = PlainContent(kind=MessageKind.TEXT, body=str(self._number), message_id=f"ID:{self._number}")
        arrival = Arrival(self, self._number, content, delivery_count=1, persistent=persistent, size=size, expires_at=expires_at)
        self.supply.append(arrival)
        self.push()
        return arrival

    def push(self) -> None:
        batch, self.supply = self.supply[: self.demand], self.supply[self.demand :]
        self.demand -= len(batch)
        if batch:
            assert self.sink is not None
            self.sink.delivered(batch)

    def request(self, count: int) -> None:
        self.requests.append(count)
        self.demand += count
        self.push()

    def withdraw(self) -> int:
        left, self.demand = self.demand, 0
        self.withdrawn.append(left)
        return left

    def settle(self, arrivals: Sequence[Arrival], outcome: Outcome) -> None:
        fresh = [arrival for arrival in arrivals if not arrival.settled]
        for arrival in fresh:
            arrival.settled = True
        if fresh:
            self.settled.append(([arrival.content.body() for arrival in fresh], outcome.verb.value))  # type: ignore[misc]

    def handing_over(self, arrivals: Sequence[Arrival]) -> None:
        self.handed_over += [arrival.content.body() for arrival in arrivals]  # type: ignore[misc]

    def drain(self, deadline: float | None) -> None:
        if not self.can_drain:
            raise UnsupportedFeatureError("no drain")
        self.drains += 1
        self.demand = 0

    def close(self, deadline: float | None) -> None:
        self.closed = True


@pytest.fixture
def receiver() -> FakeReceiver:
    return FakeReceiver()


@pytest.fixture
def attached(receiver: FakeReceiver) -> Callable[..., Intake]:
    """Make an intake on the receiver; it counts its rings in `rings`."""

    def make(*, window: int = 10, clock: Clock = SYSTEM_CLOCK, **settings: Any) -> Intake:
        intake = Intake(window=window, clock=clock, **{"on_arrival": lambda: None, **settings})
        receiver.sink = intake
        intake.attach(receiver)
        return intake

    return make
