"""What the pure transitions say beyond what a store can be brought to: a store that lost what it knew (TR-53).

Among others: TR-41.
"""

from __future__ import annotations

import pytest

from jmsclient.history import Claim
from jmsclient.history.entries import Command, State, apply


@pytest.mark.parametrize(
    ("count", "despite_loss", "claims"),
    [(1, False, True), (2, False, False), (-1, False, False), (2, True, True), (-1, True, True)],
)
def test_tr53_a_cautious_store_claims_only_a_first_delivery(count: int, despite_loss: bool, claims: bool) -> None:
    # Whoever runs abandoned messages again (take_over) has not said that lost ones may run.
    command = Claim(trigger="t", id="1", token="a", delivery_count=count, take_over=True, despite_loss=despite_loss)
    after, reply = apply(None, command, 10.0, cautious=True)
    assert (reply.done, reply.cautious, reply.entry) == (claims, True, None)
    assert (after is not None) is claims


def test_tr39_the_fencing_number_is_the_larger_of_last_and_time() -> None:
    first, _ = apply(None, Claim(trigger="t", id="1", token="a", lease=-5.0), 10.0)
    assert first is not None
    assert first.fencing_token == 10_000_000
    second, _ = apply(first, Claim(trigger="t", id="1", token="b", take_over=True), 9.0)  # the store's clock was set back
    assert second is not None
    assert second.fencing_token == 10_000_001


def test_only_commands_are_applied() -> None:
    with pytest.raises(TypeError, match="not a history command"):
        apply(None, Command(trigger="t", id="1", token="a"), 0.0)


def test_tr41_a_missing_deadline_is_as_long_as_the_entry() -> None:
    stored, _ = apply(None, Claim(trigger="t", id="1", token="a", lease=None, history_ttl=50.0), 10.0)
    assert stored is not None
    assert (stored.state, stored.lease_until, stored.locked_until, stored.expires_at) == (State.PROCESSING, None, 60.0, 60.0)
