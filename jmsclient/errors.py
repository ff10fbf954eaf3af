"""Every error this library raises, in one tree.

An error says what was received, what was expected and what to do. All are picklable (constructor arguments are kept in
`args`), and none holds a secret. Sources: Jakarta Messaging 3.1 section 12 for the JMS names; rules RA-19, IF-1, IF-28, IF-30,
TR-39, TR-49, DO-1.
"""

from __future__ import annotations

from collections.abc import Sequence


class JmsClientError(Exception):
    """The root of the tree: `except JmsClientError` catches all that this library raises on purpose."""


# -- asked for something impossible -----------------------------------------------------------------------------------


class ConfigurationError(JmsClientError, ValueError):
    """A value given by the caller cannot work. The command line ends with exit code 2."""


class InvalidDestinationError(ConfigurationError):
    """A destination that cannot be parsed, or that the provider does not have."""


class InvalidSelectorError(ConfigurationError):
    """A selector that is not one, or that the provider did not accept."""


class UnsupportedFeatureError(JmsClientError):
    """The provider cannot do this; the call that needs it is refused, never quietly weakened."""


class IllegalStateError(JmsClientError):
    """The call is not allowed in this state: closed, inside another thread, wrong acknowledge mode."""


# -- messages ---------------------------------------------------------------------------------------------------------


class MessageFormatError(JmsClientError):
    """A body or property cannot be converted or decoded."""


class MessageNotWriteableError(JmsClientError):
    """A received message is read-only until it is cleared."""


# -- sending ----------------------------------------------------------------------------------------------------------


class ResourceAllocationError(JmsClientError):
    """No room (quota, credit) before the send timeout; nothing was sent."""


class DestinationPausedError(JmsClientError):
    """Production or insertion is paused on the destination; nothing was sent."""


class SendError(JmsClientError):
    """Some messages of a send were not confirmed.

    `confirmed`, `in_doubt` and `unsent` are message ids: safe at the provider; unknown (never repeated by itself);
    not sent at all.
    """

    def __init__(
        self,
        text: str,
        confirmed: Sequence[str] = (),
        in_doubt: Sequence[str] = (),
        unsent: Sequence[str] = (),
    ) -> None:
        super().__init__(text, tuple(confirmed), tuple(in_doubt), tuple(unsent))
        self.confirmed = tuple(confirmed)
        self.in_doubt = tuple(in_doubt)
        self.unsent = tuple(unsent)

    def __str__(self) -> str:
        counts = f"{len(self.confirmed)} confirmed, {len(self.in_doubt)} in doubt, {len(self.unsent)} unsent"
        return f"{self.args[0]} ({counts})"


# -- links and time ---------------------------------------------------------------------------------------------------


class ConnectionLostError(JmsClientError):
    """The provider cannot be reached, or the link to it broke."""


class RequestTimeoutError(JmsClientError):
    """The provider did not answer within the request timeout."""


class CloseTimeout(JmsClientError):  # noqa: N818  the name is part of rule RA-19
    """`close` reached its timeout. Nothing is lost, and close may be called again.

    `left` is the number of messages still to be delivered; `listener_running` says that a callback has not returned.
    """

    def __init__(self, text: str, left: int = 0, listener_running: bool = False) -> None:
        super().__init__(text, left, listener_running)
        self.left = left
        self.listener_running = listener_running

    def __str__(self) -> str:
        return str(self.args[0])


# -- transactions -----------------------------------------------------------------------------------------------------


class TransactionRolledBackError(JmsClientError):
    """The transaction was undone; nothing of it took effect."""


class TransactionInDoubtError(JmsClientError):
    """The outcome of a commit is unknown: it may have happened. Never sent again."""


# -- settlement of pre-settled deliveries (QPID-8345) ------------------------------------------------------------------


class NotImplementedOutcomeError(JmsClientError):
    """A default outcome that the broker knows and does not offer (amqp:not-implemented)."""


class InvalidFieldError(JmsClientError):
    """A default outcome that is no outcome at all (amqp:invalid-field)."""


# -- document history -------------------------------------------------------------------------------------------------


class HistoryError(JmsClientError):
    """Root of what a document history raises."""


class HistoryUnavailableError(HistoryError):
    """The history did not answer in time. Unknown is neither New nor Duplicate: nothing may run because of it."""


class LeaseLostError(HistoryError):
    """Another owner holds the entry: no `completed` is written and nothing is acknowledged (TR-39)."""


# -- stores -----------------------------------------------------------------------------------------------------------


class StoreError(JmsClientError):
    """A store file cannot be used as it is. The command line ends with exit code 2."""


class StoreInUseError(StoreError):
    """Another process holds the store file."""


class StoreFormatError(StoreError):
    """The file is no store of ours, or of a newer format. It is left untouched."""


# -- raised by application code ----------------------------------------------------------------------------------------


class TransientError(JmsClientError):
    """Raise it in a handler or resolver to say: the same work may succeed later. `retry_after` in seconds."""

    retry_after: float | None = None  # of an application's own kind that does not call this constructor

    def __init__(self, text: str = "", retry_after: float | None = None) -> None:
        super().__init__(text, retry_after)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


# -- in words ---------------------------------------------------------------------------------------------------------

LONGEST_TEXT = 2000


def in_words(error: BaseException, longest: int = LONGEST_TEXT) -> str:
    """What an application's exception says, as one line that any log and any header can carry; cut after so many characters. Never
    raises, whatever its `__str__` does."""
    try:
        text = str(error)
    except BaseException as failure:  # noqa: BLE001  the application's own code, and its exception has to be told all the same
        text = f"(no text: its __str__ raised {type(failure).__name__})"
    text = " ".join(text[: 2 * longest].split())
    if not text.isprintable():
        text = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return text if len(text) <= longest else text[: longest - 1] + "…"
