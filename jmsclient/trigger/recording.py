"""A handler inside its history's transaction: what it did and that it is completed commit together (TR-36).

Runs where the handler runs. Must not know which database it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jmsclient.errors import HistoryUnavailableError, JmsClientError, LeaseLostError
from jmsclient.history.contract import DocumentHistory
from jmsclient.history.entries import Complete
from jmsclient.trigger.delivery import Delivery
from jmsclient.trigger.work import Work


class UnrecordedError(JmsClientError):
    """The handler ended, and its transaction did not commit, or it is not known whether it did: the entry tells. `lease_lost`: it
    was rolled back, because another owner has the message."""

    def __init__(self, text: str, *, lease_lost: bool = False) -> None:
        super().__init__(text)
        self.lease_lost = lease_lost


@contextmanager
def recording(history: DocumentHistory, work: Work, delivery: Delivery, completion: Complete | None) -> Iterator[None]:
    """Around the handler. `completion` None: there is no claim, and only the effects commit. What the handler raises passes;
    raises UnrecordedError for what the history raises."""
    own: BaseException | None = None
    try:
        with history.transaction(completion) as transaction:
            delivery.transaction = transaction
            try:
                yield
            except BaseException as error:
                own = error
                raise
    except (LeaseLostError, HistoryUnavailableError) as error:
        if error is own:
            raise
        raise UnrecordedError(str(error), lease_lost=isinstance(error, LeaseLostError)) from error
    work.recorded = completion is not None
