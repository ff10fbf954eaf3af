"""Owns the copy that goes to an error destination: the message with the reason as properties. Must not know of queues.

Source: T15; IF-33 (a redirect drops the expiry); rule "say why it is there". The body is shared with the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jmsclient.message import Body, Content, PropertyValue

ORIGINAL_DESTINATION = "JMS_jmsclient_original_destination"
REASON = "JMS_jmsclient_reason"
DELIVERIES = "JMS_jmsclient_deliveries"
FAILED_AT = "JMS_jmsclient_failed_at"
_DROPPED = "delivery_time"


class DeadLetter(Content):
    """A content with properties added and without its expiry, or with another one: `expiration`, in seconds since 1970."""

    _content: Content

    __slots__ = ("_content", "_expiration", "_properties", "kind", "message_id")

    def __init__(self, content: Content, properties: Mapping[str, PropertyValue], expiration: float | None) -> None:
        self._content = content._content if isinstance(content, DeadLetter) else content
        self._expiration = expiration
        self._properties = {**content.properties(), **properties}
        self.kind = content.kind
        self.message_id = content.message_id

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return getattr(self._content, "size", 0)

    def header(self, name: str) -> Any:
        if name == "expiration":
            return self._expiration
        return None if name == _DROPPED else self._content.header(name)

    def properties(self) -> Mapping[str, PropertyValue]:
        return self._properties

    def body(self) -> Body:
        return self._content.body()


def dead_letter(
    content: Content,
    *,
    destination: str,
    reason: str,
    deliveries: int,
    time: float,
    properties: Mapping[str, PropertyValue],
    expiration: float | None = None,
) -> DeadLetter:
    """The copy of `content` that left `destination` (a URI) for `reason` at `time` (seconds since 1970) after `deliveries`
    hand-overs; `expiration` is what its new place says. One that failed before has these properties replaced (R09)."""
    why: dict[str, PropertyValue] = {ORIGINAL_DESTINATION: destination, REASON: reason, DELIVERIES: deliveries, FAILED_AT: time}
    return DeadLetter(content, {**why, **properties}, expiration)
