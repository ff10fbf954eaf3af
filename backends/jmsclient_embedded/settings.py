"""Owns what can be set on a destination, checked, and what follows from it for one message: its delay and its headers.

Pure. Must not know of queues' states. Source: rules RA-1, IF-13, IF-14, IF-31 to IF-34; transport/administration.py says what
each setting means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from jmsclient.destination import Queue
from jmsclient.errors import ConfigurationError
from jmsclient.options import DefaultReadAhead, choice, count
from jmsclient.transport.administration import ExpirationPolicy

PRIORITIES = 10
ERROR_DESTINATION = "DLQ"
LONGEST_DELAY = 9_223_372_036.0
"""Seconds: what a growing redelivery delay ends at where nothing else bounds it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueSettings:
    """The keywords of `Administration.create_queue`. Raises ConfigurationError for values that cannot work."""

    redelivery_limit: int = -1
    redelivery_delay: float = -1.0
    redelivery_multiplier: float = 1.0
    redelivery_delay_maximum: float | None = None
    error_destination: str | None = ERROR_DESTINATION
    expiration_policy: ExpirationPolicy = "discard"
    bytes_maximum: int = -1
    messages_maximum: int = -1
    quota: str | None = None
    bytes_threshold_high: int = -1
    bytes_threshold_low: int = -1
    messages_threshold_high: int = -1
    messages_threshold_low: int = -1
    time_to_deliver_override: float = -1.0
    time_to_live_override: float = -1.0
    priority_override: int = -1
    delivery_mode_override: Literal["persistent", "non_persistent"] | None = None
    unit_of_order: str | None = None
    production_paused_at_startup: bool | None = None
    insertion_paused_at_startup: bool | None = None
    consumption_paused_at_startup: bool | None = None
    default_read_ahead: DefaultReadAhead = DefaultReadAhead.NO

    def __post_init__(self) -> None:
        for name in _COUNTS:
            count(name, getattr(self, name), least=-1)
        if self.priority_override >= PRIORITIES:
            raise ConfigurationError(f"priority_override={self.priority_override!r}: expected -1 (none) or 0 to 9")
        for name in _SECONDS:
            _seconds_or_none_of_it(name, getattr(self, name))
        if not _is_number(self.redelivery_multiplier) or not 1 <= self.redelivery_multiplier < math.inf:
            raise ConfigurationError(f"redelivery_multiplier={self.redelivery_multiplier!r}: expected a number >= 1")
        if self.redelivery_delay_maximum is not None:
            _seconds_or_none_of_it("redelivery_delay_maximum", self.redelivery_delay_maximum, least=0.0)
        for name in ("error_destination", "quota", "unit_of_order"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value.strip()):
                raise ConfigurationError(f"{name}={value!r}: expected a name or None")
        if self.error_destination is not None:
            Queue(self.error_destination)  # raises InvalidDestinationError, which is a ConfigurationError
        choice("expiration_policy", self.expiration_policy, ("discard", "log", "redirect"))
        if self.delivery_mode_override not in (None, "persistent", "non_persistent"):
            raise ConfigurationError(
                f"delivery_mode_override={self.delivery_mode_override!r}: expected 'persistent', 'non_persistent' or None"
            )
        for name in _FLAGS:
            if not any(getattr(self, name) is one for one in (True, False, None)):  # 1 is equal to True, and another thing
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: expected True, False or None")
        if not isinstance(self.default_read_ahead, DefaultReadAhead):
            raise ConfigurationError(f"default_read_ahead={self.default_read_ahead!r}: expected a DefaultReadAhead")
        if self.quota is not None and (self.bytes_maximum >= 0 or self.messages_maximum >= 0):
            raise ConfigurationError(f"quota={self.quota!r} and a maximum of its own: give one of the two")
        for what in ("bytes", "messages"):
            low, high = getattr(self, f"{what}_threshold_low"), getattr(self, f"{what}_threshold_high")
            if low >= 0 and (high < 0 or low > high):
                raise ConfigurationError(f"{what}_threshold_low={low}: needs a {what}_threshold_high that is at least as large")

    @property
    def overrides(self) -> bool:
        """Whether anything of what a producer says is changed."""
        return (
            self.time_to_deliver_override >= 0
            or self.time_to_live_override >= 0
            or self.priority_override >= 0
            or self.delivery_mode_override is not None
        )

    @property
    def thresholds(self) -> bool:
        """Whether crossing a number of messages or bytes is to be told."""
        return self.bytes_threshold_high >= 0 or self.messages_threshold_high >= 0

    def redelivery_delay_after(self, deliveries: int, wanted: float) -> float:
        """Seconds that a message waits that was given back after so many `deliveries`: a function of these settings, its own
        count and, where the destination overrides nothing, what the session `wanted` (IF-14)."""
        base = self.redelivery_delay if self.redelivery_delay >= 0 else wanted
        if base <= 0:
            return 0.0
        longest = LONGEST_DELAY if self.redelivery_delay_maximum is None else self.redelivery_delay_maximum
        if self.redelivery_multiplier == 1:
            return min(base, longest)
        try:
            return min(base * self.redelivery_multiplier ** max(0, deliveries - 1), longest)
        except OverflowError:
            return longest


_COUNTS = (
    "redelivery_limit",
    "bytes_maximum",
    "messages_maximum",
    "bytes_threshold_high",
    "bytes_threshold_low",
    "messages_threshold_high",
    "messages_threshold_low",
    "priority_override",
)
_SECONDS = ("redelivery_delay", "time_to_deliver_override", "time_to_live_override")
_FLAGS = ("production_paused_at_startup", "insertion_paused_at_startup", "consumption_paused_at_startup")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _seconds_or_none_of_it(name: str, value: float, least: float = -1.0) -> None:
    right = _is_number(value) and (value >= 0 or value == least) and value <= LONGEST_DELAY
    if not right:
        none = ", or -1 for none" if least < 0 else ""
        raise ConfigurationError(f"{name}={value!r}: expected seconds from 0 to {LONGEST_DELAY:.0f}{none}")
