"""Owns which header fields a selector can name, and what their values are there.

Source: Jakarta Messaging 3.1 sections 3.4, 3.5.9 and 3.8.1.1: six header fields, and JMSXDeliveryCount, which whoever delivers
knows and no content holds. Times are milliseconds here, as JMS has them, and modes are words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jmsclient.message import DEFAULT_PRIORITY, Content

DELIVERY_COUNT = "JMSXDeliveryCount"


def _milliseconds(content: Content) -> int | None:
    seconds = content.header("timestamp")
    return None if seconds is None else round(seconds * 1000)


def _mode(content: Content) -> str:
    return "PERSISTENT" if content.header("persistent") else "NON_PERSISTENT"


def _priority(content: Content) -> int:
    priority = content.header("priority")
    return DEFAULT_PRIORITY if priority is None else int(priority)


HEADERS: dict[str, Callable[[Content], Any]] = {
    "JMSCorrelationID": lambda content: content.header("correlation_id"),
    "JMSDeliveryMode": _mode,
    "JMSMessageID": lambda content: content.message_id,
    "JMSPriority": _priority,
    "JMSTimestamp": _milliseconds,
    "JMSType": lambda content: content.header("type"),
}


def is_reserved(name: str) -> bool:
    """Whether a name is JMS's own and none that a selector can use."""
    return name.startswith("JMS") and not name.startswith(("JMSX", "JMS_")) and name not in HEADERS


def reader(content: Content, properties: Callable[[str], Any], delivery_count: int | None) -> Callable[[str], Any]:
    """How to read any identifier of one message: a header field first, then a property."""

    def read(name: str) -> Any:
        if name in HEADERS:
            return HEADERS[name](content)
        if name == DELIVERY_COUNT and delivery_count is not None:
            return delivery_count
        return properties(name)

    return read
