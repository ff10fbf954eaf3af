"""Why a message was dead-lettered, as properties that any broker can carry and any selector compare (R09)."""

from __future__ import annotations

from jmsclient.errors import in_words
from jmsclient.message import Message, PropertyValue

ORIGINAL_DESTINATION = "JMS_jmsclient_original_destination"
REASON = "JMS_jmsclient_reason"
ERROR_TYPE = "JMS_jmsclient_error_type"
ERROR_TEXT = "JMS_jmsclient_error_text"
DELIVERIES = "JMS_jmsclient_deliveries"
FAILED_AT = "JMS_jmsclient_failed_at"
LONGEST_TEXT = 500


def short_text(error: BaseException) -> str:
    """One line, at most 500 characters: a raw line feed would break a STOMP header."""
    return in_words(error, LONGEST_TEXT)


def failure_properties(
    message: Message, destination: str, reason: str, error: BaseException | None, now: float
) -> dict[str, PropertyValue]:
    """The properties of a dead-lettered copy; those of an earlier failure are replaced, not multiplied."""
    properties: dict[str, PropertyValue] = {
        ORIGINAL_DESTINATION: destination,
        REASON: reason,
        DELIVERIES: message.delivery_count,
        FAILED_AT: now,
    }
    if error is not None:
        properties[ERROR_TYPE] = type(error).__name__
        properties[ERROR_TEXT] = short_text(error)
    return properties
