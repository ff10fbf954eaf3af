"""How a message looks on a terminal: its body on one line for people, all of it as one JSON object for programs.

What comes from others never steers the terminal, and never breaks a line in two.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from jmsclient.cli.printing import printable

if TYPE_CHECKING:
    from jmsclient.message import Message

FORMATS = ("text", "json")
format_option = click.option(
    "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="The bodies, or a JSON object a line."
)


def line_of(message: Message, form: str) -> str:
    """The message in a form. Raises MessageFormatError for a body that cannot be decoded."""
    if form == "json":
        return json.dumps(fields_of(message), default=_encoded)
    return printable(_text_of(message.body))


def fields_of(message: Message) -> dict[str, Any]:
    """Everything of it, as JSON has it; bytes are `{"$bytes": base64}`."""
    return {
        "message_id": message.message_id,
        "destination": None if message.destination is None else str(message.destination),
        "timestamp": message.timestamp,
        "expiration": message.expiration,
        "delivery_time": message.delivery_time,
        "persistent": message.persistent,
        "priority": message.priority,
        "delivery_count": message.delivery_count,
        "redelivered": message.redelivered,
        "correlation_id": message.correlation_id,
        "reply_to": None if message.reply_to is None else str(message.reply_to),
        "type": message.type,
        "properties": dict(message.properties),
        "kind": message.kind.name,
        "body": message.body,
    }


def write_line(text: str) -> None:
    """When it returns, the line has left this process. Raises BrokenPipeError where nobody reads any more."""
    sys.stdout.buffer.write(text.encode(sys.stdout.encoding, "backslashreplace") + b"\n")
    sys.stdout.buffer.flush()


def nobody_reads() -> None:
    """Stdout is closed at the other end: let the end of the process not stumble over it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _text_of(body: Any) -> str:
    if body is None:
        return ""
    if isinstance(body, bytes):
        return body.decode("utf-8", "backslashreplace")
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, default=_encoded)


def _encoded(value: Any) -> Any:
    return {"$bytes": base64.b64encode(value).decode("ascii")} if isinstance(value, bytes) else repr(value)
