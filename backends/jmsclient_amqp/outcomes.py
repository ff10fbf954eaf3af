"""From a verb of the contract to an outcome of AMQP, by product.

Pure. Flags of modified are always written (IF-23). A broker that takes no modified gets released instead, and rejected where
the message must not come back. Source: the settlement table of the rules; IF-22 to IF-24, IF-29.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from jmsclient.transport.contract import Outcome, Verb
from jmsclient_amqp.engine.library import ACCEPTED, MODIFIED, REJECTED, RELEASED, Condition
from jmsclient_amqp.engine.links import Disposition

ACCEPT: Final = Disposition(ACCEPTED)
RELEASE: Final = Disposition(RELEASED)
_FAILED: Final = Disposition(MODIFIED, failed=True)
_ELSEWHERE: Final = Disposition(MODIFIED, failed=True, undeliverable=True)
_REJECT: Final = "jmsclient:rejected"


def disposition_of(outcome: Outcome, *, modified: bool) -> Disposition:
    """How to settle so. `modified`: the broker takes that outcome."""
    match outcome.verb:
        case Verb.ACCEPT:
            return ACCEPT
        case Verb.RELEASE:
            return RELEASE
        case Verb.RETRY:
            return _FAILED if modified else RELEASE
        case Verb.RETRY_ELSEWHERE:
            return _ELSEWHERE if modified else RELEASE
        case Verb.DEAD_LETTER:
            return _rejected(outcome.reason or "")


def refused(*, modified: bool) -> Disposition:
    """For what is no message: not to come back to this link, where that can be said."""
    return _ELSEWHERE if modified else _rejected("this is no AMQP message")


@lru_cache(maxsize=64)
def _rejected(reason: str) -> Disposition:
    return Disposition(REJECTED, condition=Condition(_REJECT, reason[:1024]))
