"""Owns what a conformance check is, the list of all of them, and the steps that several share.

Must not know any backend. Source: transport/contract.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jmsclient.testing.trial import Trial
from jmsclient.transport.contract import Arrival, Receiver


@dataclass(frozen=True, slots=True)
class Check:
    """One check: the rule, a name for its test, the function."""

    rule: str
    name: str
    run: Callable[[Trial], None]

    def __str__(self) -> str:
        return f"{self.rule}-{self.name}"


CHECKS: list[Check] = []


def check(rule: str) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    """Add a function to the list, under the rule it comes from."""

    def register(run: Callable[[Trial], None]) -> Callable[[Trial], None]:
        CHECKS.append(Check(rule, run.__name__, run))
        return run

    return register


def received(trial: Trial, *bodies: str, persistent: bool = True) -> tuple[Receiver, list[Arrival]]:
    """Send these, and a receiver that got them all; nothing is settled or handed over."""
    trial.send(*bodies, persistent=persistent)
    receiver, sink = trial.open_receiver()
    receiver.request(len(bodies))
    return receiver, trial.wait_for_arrivals(sink, len(bodies))


def counts_after(trial: Trial, failures: int) -> list[int]:
    """What a delivery count may be after so many counted deliveries."""
    says = trial.capabilities.delivery_count
    if says == "none":
        return [-1]
    return [failures + 1] if says == "exact" else [min(failures + 1, 2), failures + 1]


def counts_of_unseen(trial: Trial) -> list[int]:
    """What the count of one that came back unseen may be: unchanged, where the provider can give back without counting."""
    return counts_after(trial, 0) + ([] if trial.capabilities.release_without_count else counts_after(trial, 1))


def assert_seen_counted_unseen_not(trial: Trial) -> None:
    """Both came back, and only the one that was handed over has a higher count (IF-9)."""
    left = trial.left()
    counts = dict(zip(left.bodies, left.counts, strict=True))
    assert counts.keys() == {"seen", "unseen"}
    assert counts["seen"] in counts_after(trial, 1)
    assert counts["unseen"] in counts_of_unseen(trial)
