"""`jmsclient in-doubt list|show`: the messages that a trigger parked because nobody could say whether they were done (TR-34).

It needs the history only, not a broker and no running worker. It reads; it never changes an entry, and makes no file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jmsclient.errors import ConfigurationError

if TYPE_CHECKING:
    from jmsclient.history import DocumentHistory
    from jmsclient.history.contract import ParkedMessage

WIDE = 10_000  # columns of a table that is not shown on a terminal: nothing is cut, so that grep finds it


@click.group()
def in_doubt() -> None:
    """What is parked as In Doubt and waits for a decision."""


def of_a_history(command: Any) -> Any:
    """The options that both commands have."""
    for option in (
        click.option(
            "--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True, help="For whom."
        ),
        click.option("--trigger", metavar="NAME", help="Only of this trigger."),
        click.option("--namespace", default="default", show_default=True, metavar="NAME", help="The worker's name."),
        click.option(
            "--history", metavar="URL", envvar="JMSCLIENT_HISTORY", help="The worker's history, such as sqlite:history.db."
        ),
    ):
        command = option(command)
    return command


@in_doubt.command("list")
@of_a_history
def list_parked(history: str | None, namespace: str, trigger: str | None, form: str) -> None:
    """List the parked messages, oldest first."""
    with _open(history, namespace) as store:
        parked = store.in_doubt(trigger)
    if form == "json":
        click.echo(json.dumps([_summary(one) for one in parked], indent=2))
    elif not parked:
        click.echo("nothing is In Doubt" + (f" of trigger {trigger}" if trigger else ""))
    else:
        _table(parked)


@in_doubt.command("show")
@click.argument("id")
@of_a_history
def show_parked(
    history: str | None,
    namespace: str,
    trigger: str | None,
    form: str,
    id: str,  # noqa: A002  the argument's name
) -> None:
    """Show one parked message whole: why it is In Doubt, its headers, properties and body."""
    with _open(history, namespace) as store:
        found = [one for one in store.in_doubt(trigger) if one.id == id]
    if not found:
        raise click.ClickException(f"no message {id!r} is In Doubt; see: jmsclient in-doubt list")
    if len(found) > 1:
        raise ConfigurationError(
            f"{id!r} is In Doubt of {len(found)} triggers ({', '.join(one.trigger for one in found)}); give --trigger"
        )
    whole = _whole(found[0])
    if form == "json":
        click.echo(json.dumps(whole, indent=2, default=_bytes_as_text))
        return
    for name, value in whole.items():
        click.echo(f"{name:<15} {printable(_shown(value))}")


def _open(url: str | None, namespace: str) -> DocumentHistory:
    """The history that is meant. Raises ConfigurationError where it cannot hold anything, and makes no file that is not there."""
    from jmsclient.history import open_history

    if not url:
        raise ConfigurationError("in-doubt needs the worker's history: give --history, such as sqlite:history.db")
    scheme, _, path = url.partition(":")
    if scheme == "memory":
        raise ConfigurationError(f"--history {url!r} lives in the worker's own process; only sqlite: and redis: can be looked into")
    path = path.removeprefix("//")
    if scheme == "sqlite" and path and not Path(path).is_file():
        raise ConfigurationError(f"--history {url!r}: there is no file {path!r}; give the worker's history")
    return open_history(url, namespace=namespace)


def _summary(one: ParkedMessage) -> dict[str, Any]:
    return {
        "trigger": one.trigger,
        "id": one.id,
        "id_source": one.source,
        "reason": one.reason,
        "delivery_count": one.delivery_count,
        "attempt": one.attempt,
        "age": round(one.age, 3),
        "copies": one.copies,
        "owner": one.owner,
    }


def _whole(one: ParkedMessage) -> dict[str, Any]:
    from jmsclient import envelope
    from jmsclient.message import Message

    message = Message.received(envelope.decode(one.envelope), one.delivery_count)
    return {
        **_summary(one),
        "message_id": message.message_id,
        "destination": None if message.destination is None else str(message.destination),
        "timestamp": message.timestamp,
        "persistent": message.persistent,
        "correlation_id": message.correlation_id,
        "reply_to": None if message.reply_to is None else str(message.reply_to),
        "type": message.type,
        "properties": dict(message.properties),
        "kind": message.kind.name,
        "body": message.body,
    }


def _table(parked: list[ParkedMessage]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    table = Table("trigger", "id", "reason", "count", "age", "copies", box=None, pad_edge=False)
    for one in parked:
        cells = (one.trigger, one.id, one.reason, str(one.delivery_count), f"{one.age:.0f} s", str(one.copies))
        table.add_row(*[Text(printable(cell)) for cell in cells])
    console.print(table)


def printable(text: str) -> str:
    """Without what could steer the terminal: messages come from others."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_bytes_as_text)


def _bytes_as_text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else repr(value)
