"""What a history knows a message by: its id and where that came from (TR-32), and a hash of its body (TR-47)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from jmsclient.envelope import encode_body
from jmsclient.history.contract import LONGEST_ID, stored_id
from jmsclient.message import Content, Message


def history_id(content: Content) -> tuple[str, str] | None:
    """The id a history knows a message by, and where it came from (TR-32): the `uuid` property if it is a non-empty scalar,
    else JMSMessageID, else None. Raises MessageFormatError where the properties cannot be decoded."""
    uuid = content.properties().get("uuid")
    if type(uuid) is str and uuid.isascii() and len(uuid) <= LONGEST_ID and "!" <= uuid[:1] != "s":  # nearly every one: as it is
        return uuid, "uuid"
    if isinstance(uuid, str | int | float) and not isinstance(uuid, bool) and str(uuid).strip():
        return stored_id(str(uuid)), "uuid"
    return (stored_id(content.message_id), "JMSMessageID") if content.message_id else None


def body_hash(message: Message, parts: bool | Callable[[Message], bytes | str] = True) -> bytes:
    """What stands for the body in the history, or for the parts of the message that a function chooses (TR-47)."""
    if isinstance(parts, bool):
        return hashlib.sha256(message.kind.value.encode() + b"\0" + encode_body(message.body)).digest()
    chosen = parts(message)
    return hashlib.sha256(chosen.encode("utf-8", "surrogatepass") if isinstance(chosen, str) else chosen).digest()
