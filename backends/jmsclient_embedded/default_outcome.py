"""Owns what a consumer's default outcome means for deliveries that the broker sends settled (QPID-8345).

Pure. Must not know of queues. Source: rules DO-1, DO-3; AMQP 1.0 sections 3.4 and 4.5: which types are outcomes at all. A symbol is
given in short (`modified`) or in full (`amqp:modified:list`); `modified` takes its flags in brackets: `modified(failed)`,
`modified(failed, undeliverable-here)`.
"""

from __future__ import annotations

from dataclasses import dataclass

from jmsclient.errors import InvalidFieldError, JmsClientError, NotImplementedOutcomeError
from jmsclient.transport.contract import ACCEPT, RELEASE, RETRY, Outcome

_OUTCOMES_ELSEWHERE = frozenset(("declared",))
"""Outcomes of the specification that no delivery of ours can have."""
_MODIFIED = "modified"
_FLAGS = frozenset(("failed", "undeliverable-here"))


@dataclass(frozen=True, slots=True)
class DefaultOutcome:
    """What becomes of a message that was sent settled: `outcome`, or, where there is none, `error` for the consumer."""

    outcome: Outcome | None
    error: JmsClientError | None = None


ACCEPTED = DefaultOutcome(ACCEPT)


def default_outcome(symbol: str | None) -> DefaultOutcome:
    """What `symbol` (None: nothing was said) asks for."""
    if symbol is None:
        return ACCEPTED
    name, flags = _parts(symbol)
    if name == "accepted":
        return ACCEPTED
    if name in ("rejected", "released"):
        return DefaultOutcome(RELEASE)
    if name == _MODIFIED and flags is not None:
        return DefaultOutcome(RETRY if "failed" in flags else RELEASE)
    if name in _OUTCOMES_ELSEWHERE:
        return DefaultOutcome(
            None,
            NotImplementedOutcomeError(
                f"default_outcome={symbol!r}: the broker knows this outcome and does not offer it (amqp:not-implemented); "
                "use accepted, rejected, released or modified"
            ),
        )
    return DefaultOutcome(
        None,
        InvalidFieldError(
            f"default_outcome={symbol!r} is no outcome (amqp:invalid-field); use accepted, rejected, released or modified"
        ),
    )


def _parts(symbol: str) -> tuple[str, frozenset[str] | None]:
    """The short name and the flags; flags None: they are not understood."""
    name = symbol.strip()
    if name.startswith("amqp:") and name.endswith(":list"):
        name = name.removeprefix("amqp:").removesuffix(":list")
    name, bracket, rest = name.partition("(")
    if not bracket:
        return name, frozenset()
    flags = frozenset(one.strip() for one in rest.removesuffix(")").split(","))
    known = rest.endswith(")") and flags <= _FLAGS and name == _MODIFIED
    return (name, flags) if known else (symbol, None)
