"""How long a history has to remember: longer than a message may take to come for the last time (TR-54). Pure but for the warning.

An entry that ends before that makes a redelivered message New again.
"""

from __future__ import annotations

import logging

from jmsclient.events import emit


def needed_history_ttl(
    *, lease: float, max_deliveries: int, redelivery_delay: float, retry_budget: float, max_outage: float
) -> float:
    """Seconds: the last run's lease, each delivery's delay and retries in place, and an outage of the provider."""
    return lease + max_deliveries * (redelivery_delay + retry_budget) + max_outage


def warn_of_short_history_ttl(
    trigger: str,
    history_ttl: float,
    *,
    lease: float,
    max_deliveries: int,
    redelivery_delay: float,
    retry_budget: float,
    max_outage: float,
) -> None:
    """An event `history_ttl_short` with the numbers, where it is too short. All times are seconds; `retry_budget` is what the
    retries in place of one delivery may take."""
    needed = needed_history_ttl(
        lease=lease,
        max_deliveries=max_deliveries,
        redelivery_delay=redelivery_delay,
        retry_budget=retry_budget,
        max_outage=max_outage,
    )
    if history_ttl >= needed:
        return
    emit(
        "history",
        "history_ttl_short",
        f"trigger {trigger!r}: history_ttl={history_ttl:g} s is shorter than {needed:g} s = lease {lease:g} + max_deliveries "
        f"{max_deliveries} x (redelivery delay {redelivery_delay:g} + retries {retry_budget:g}) + max_outage {max_outage:g}: "
        "a message that comes again after that is New",
        level=logging.WARNING,
        trigger=trigger,
        history_ttl=history_ttl,
        needed=needed,
    )
