"""Settings refuse what cannot work, naming the setting, and hide secrets (RA-9, RA-10, O09)."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from jmsclient.errors import ConfigurationError
from jmsclient.options import ConnectionOptions, ConsumerOptions, DefaultReadAhead, TriggerOptions, WorkerOptions


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        (ConsumerOptions, "read_ahead_messages", -1),
        (ConsumerOptions, "read_ahead_messages", True),
        (ConsumerOptions, "read_ahead_messages", 1.5),
        (ConsumerOptions, "buffer_bytes", 0),
        (ConsumerOptions, "read_ahead_refill", 0),
        (ConsumerOptions, "read_ahead_refill", 101),
        (ConsumerOptions, "read_ahead_refill", "full"),
        (ConsumerOptions, "purge_after", -1.0),
        (ConsumerOptions, "idle_timeout", math.nan),
        (ConsumerOptions, "idle_timeout", None),
        (TriggerOptions, "abandoned", "run"),
        (TriggerOptions, "on_max_deliveries", "redeliver"),
        (TriggerOptions, "max_run_time", -0.5),
        (TriggerOptions, "operation_timeout", 0),
        (TriggerOptions, "resolver_timeout", "30"),
        (TriggerOptions, "in_progress_delay", 0.0),
        (WorkerOptions, "request_timeout", math.nan),
    ],
)
def test_a_wrong_value_is_refused_by_name(kind: Any, setting: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{setting}=") as caught:
        kind(**{setting: value})
    assert repr(value) in str(caught.value)


def test_ra_9_ra_10_ra_11_ra_13_defaults() -> None:
    options = ConsumerOptions()
    assert (options.read_ahead_messages, options.buffer_bytes, options.read_ahead_refill) == (1000, 8 * 1024 * 1024, 75)
    assert (options.purge_after, options.idle_timeout) == (0.0, 30.0)
    assert ConnectionOptions().default_read_ahead is DefaultReadAhead.UNKNOWN


def test_values_at_the_edge_are_taken() -> None:
    ConsumerOptions(read_ahead_messages=0, buffer_bytes=1, read_ahead_refill="empty", purge_after=math.inf, idle_timeout=10**400)
    ConsumerOptions(read_ahead_refill=100)
    TriggerOptions(max_run_time=None, operation_timeout=0.001)


def test_options_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        ConsumerOptions().purge_after = 1.0  # type: ignore[misc]


def test_o09_a_password_is_in_no_repr() -> None:
    assert "hush" not in repr(WorkerOptions(username="u", password="hush"))
