"""`jmsclient send DESTINATION BODY`: send one message, or the same one several times, and print the ids."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator

import click

from jmsclient.cli.reaching import reachable_url, url_option
from jmsclient.errors import ConfigurationError, MessageFormatError
from jmsclient.message import Body, Message, PropertyValue

BATCH = 500
"""Messages a `send_many`: enough to pipeline, few enough that an interrupted command has printed most ids."""

_BOOLEANS = {"true": True, "false": False}
_TYPES: dict[str, Callable[[str], PropertyValue]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": lambda text: _BOOLEANS[text.lower()],
}


def read_properties(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, PropertyValue]:
    """`NAME=VALUE`, a text, or `NAME:TYPE=VALUE`."""
    properties: dict[str, PropertyValue] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        name, colon, kind = name.partition(":")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r}: expected NAME=VALUE or NAME:TYPE=VALUE")
        if colon and kind not in _TYPES:
            raise click.BadParameter(f"{pair!r}: unknown type {kind!r}; expected one of {', '.join(_TYPES)}")
        try:
            properties[name] = _TYPES[kind or "str"](text)
        except (ValueError, KeyError):
            raise click.BadParameter(f"{pair!r}: {text!r} is no {kind}") from None
    return properties


def read_seconds(context: click.Context, parameter: click.Parameter, given: str | None) -> float | None:
    """A duration: a number >= 0 (NaN is none)."""
    if given is None:
        return None
    try:
        number = float(given)
    except ValueError:
        number = math.nan
    if math.isnan(number) or number < 0:
        raise click.BadParameter(f"{given!r}: expected seconds as a number >= 0")
    return number


@click.command(short_help="Send a message.")
@click.argument("destination")
@click.argument("body")
@url_option
@click.option(
    "--property",
    "properties",
    multiple=True,
    callback=read_properties,
    metavar="NAME[:TYPE]=VALUE",
    help="A property; TYPE is str, int, float or bool.",
)
@click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Send it so many times.")
@click.option(
    "--kind",
    type=click.Choice(("text", "bytes", "map", "stream")),
    default="text",
    show_default=True,
    help="What BODY is; map and stream are written as JSON.",
)
@click.option("--non-persistent", is_flag=True, help="A restart of the broker may lose it.")
@click.option("--priority", type=click.IntRange(0, 9), default=4, show_default=True, help="0 lowest to 9 highest.")
@click.option("--time-to-live", metavar="SECONDS", callback=read_seconds, help="Until it expires; without it never.")
@click.option("--delivery-delay", metavar="SECONDS", default="0", callback=read_seconds, help="Until it may be delivered.")
@click.option("--correlation-id", metavar="ID", help="JMSCorrelationID.")
@click.option("--reply-to", metavar="DESTINATION", help="JMSReplyTo.")
@click.option("--type", "jms_type", metavar="TYPE", help="JMSType.")
def send(
    destination: str,
    body: str,
    *,
    url: str | None,
    properties: dict[str, PropertyValue],
    count: int,
    kind: str,
    non_persistent: bool,
    priority: int,
    time_to_live: float | None,
    delivery_delay: float,
    correlation_id: str | None,
    reply_to: str | None,
    jms_type: str | None,
) -> None:
    """Send BODY to DESTINATION (queue:///orders, topic:///prices, or the bare name of a queue) and print the message id.

    BODY "-" is read from stdin.
    """
    from jmsclient import connect
    from jmsclient.destination import parse_destination

    where = parse_destination(destination)
    url = reachable_url(url, "send", make=True)
    content = read_body(body, kind)

    def messages(number: int) -> Iterator[Message]:
        for _ in range(number):
            yield Message(content, properties=properties, correlation_id=correlation_id, reply_to=reply_to, type=jms_type)

    try:
        list(messages(1))  # what cannot be sent is refused before anything is connected to
    except MessageFormatError as error:
        raise ConfigurationError(str(error)) from error
    with connect(url) as connection:
        producer = connection.create_session().create_producer(
            where,
            persistent=not non_persistent,
            priority=priority,
            time_to_live=time_to_live,
            delivery_delay=delivery_delay,
        )
        for start in range(0, count, BATCH):
            click.echo("\n".join(producer.send_many(messages(min(BATCH, count - start)))))


def read_body(given: str, kind: str) -> Body:
    """The body as its kind has it. Raises ConfigurationError."""
    data = sys.stdin.buffer.read() if given == "-" else given.encode("utf-8", "surrogateescape")
    if kind == "bytes":
        return data
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"BODY is no UTF-8 text ({error}); send it with --kind bytes") from error
    if kind == "text":
        return text
    wanted = dict if kind == "map" else list
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"BODY is no JSON ({error}); --kind {kind} takes it as JSON") from error
    if not isinstance(value, wanted):
        raise ConfigurationError(f"BODY is a JSON {type(value).__name__}; --kind {kind} takes a JSON {_JSON[kind]}")
    return value


_JSON = {"map": "object", "stream": "array"}
