"""`jmsclient in-doubt list|show|decide`: what a trigger parked because nobody could say whether it was done (TR-34).

It needs the history only, not a broker and no running worker, and makes no file. `decide` writes down what somebody decided; a
worker of the trigger carries it out.
"""

from __future__ import annotations

import getpass
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jmsclient.cli.printing import print_table, printable
from jmsclient.errors import ConfigurationError

if TYPE_CHECKING:
    from jmsclient.history import DocumentHistory
    from jmsclient.history.contract import ParkedMessage

MANY = 1_000_000_000


@click.group()
def in_doubt() -> None:
    """What is parked as In Doubt and waits for a decision."""


def of_a_history(command: Any) -> Any:
    """The options that all of them have."""
    for option in (
        click.option("--trigger", metavar="NAME", help="Only of this trigger."),
        click.option("--namespace", default="default", show_default=True, metavar="NAME", help="The worker's name."),
        click.option(
            "--history", metavar="URL", envvar="JMSCLIENT_HISTORY", help="The worker's history, such as sqlite:history.db."
        ),
    ):
        command = option(command)
    return command


for_whom = click.option(
    "--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True, help="For whom."
)


of_source = click.option(
    "--source", metavar="NAME", help="Where its id comes from, if two messages have one id: uuid, JMSMessageID, …"
)


@in_doubt.command("list")
@click.option("--decided", is_flag=True, help="Those that are decided and wait for a worker, instead of the undecided.")
@for_whom
@of_a_history
def list_parked(history: str | None, namespace: str, trigger: str | None, form: str, *, decided: bool) -> None:
    """List the parked messages, oldest first."""
    with _open(history, namespace) as store:
        parked = store.decided(trigger, limit=MANY) if decided else store.in_doubt(trigger)
    if form == "json":
        click.echo(json.dumps([_summary(one) for one in parked], indent=2))
    elif not parked:
        said = "nothing decided waits" if decided else "nothing is In Doubt"
        click.echo(said + (f" of trigger {trigger}" if trigger else ""))
    else:
        _table(parked, decided=decided)


@in_doubt.command("show")
@click.argument("id")
@for_whom
@of_source
@of_a_history
def show_parked(
    history: str | None,
    namespace: str,
    trigger: str | None,
    source: str | None,
    form: str,
    id: str,  # noqa: A002  the argument's name
) -> None:
    """Show one parked message whole: why it is In Doubt, its headers, properties and body."""
    with _open(history, namespace) as store:
        found = _find(store, trigger, source, id)
    whole = _whole(found)
    if form == "json":
        click.echo(json.dumps(whole, indent=2, default=_bytes_as_text))
        return
    for name, value in whole.items():
        click.echo(f"{name:<15} {printable(_shown(value))}")


@in_doubt.command("decide")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--new", is_flag=True, help="Nothing of it was done: have a worker run it.")
@click.option("--duplicate", is_flag=True, help="It was done: settle it, do not run it.")
@click.option("--by", metavar="WHO", help="Who decides, kept with the message.  [default: the user that runs this]")
@of_source
@of_a_history
def decide_parked(
    history: str | None,
    namespace: str,
    trigger: str | None,
    source: str | None,
    *,
    ids: tuple[str, ...],
    new: bool,
    duplicate: bool,
    by: str | None,
) -> None:
    """Decide about parked messages. A worker of the trigger looks for decisions every 5 s and carries them out."""
    if new == duplicate:
        raise click.UsageError("say what it is, one of the two: --new has it run, --duplicate has it settled")
    decision = "new" if new else "duplicate"
    who = by if by is not None else f"{getpass.getuser()}@{socket.gethostname()}"
    with _open(history, namespace) as store:
        found = [_find(store, trigger, source, id_) for id_ in ids]  # all or, where one cannot be found, none
        for one in found:
            store.decide(one.trigger, one.id, decision, who, source=one.source)
            click.echo(f"{printable(one.trigger)} {printable(one.id)}: {decision}, decided by {printable(who)}")


def _find(store: DocumentHistory, trigger: str | None, source: str | None, id_: str) -> ParkedMessage:
    """The one parked message that is meant, undecided or decided. Raises where there is none, or more than one."""
    from jmsclient.history.contract import stored_id

    names = (id_, stored_id(id_))
    listed = [one for one in (*store.in_doubt(trigger), *store.decided(trigger, limit=MANY)) if source in (None, one.source)]
    meant = [one for one in listed if one.id in names] or [one for one in listed if printable(one.id) == id_]  # as it was shown
    of_that_id = {(one.trigger, one.source): one for one in meant}
    found = list(of_that_id.values())
    if not found:
        raise click.ClickException(f"no message {id_!r} is In Doubt; see: jmsclient in-doubt list")
    triggers = {one.trigger for one in found}
    if len(triggers) > 1:
        raise ConfigurationError(f"{id_!r} is In Doubt of {len(triggers)} triggers ({', '.join(sorted(triggers))}); give --trigger")
    if len(found) > 1:
        sources = ", ".join(sorted(one.source for one in found))
        raise ConfigurationError(f"{id_!r} is parked with several sources of ids ({sources}); give --source")
    return found[0]


def _open(url: str | None, namespace: str) -> DocumentHistory:
    """The history that is meant. Raises ConfigurationError where it cannot hold anything, and makes no file that is not there."""
    from jmsclient.history import open_history

    if not url:
        raise ConfigurationError("in-doubt needs the worker's history: give --history, such as sqlite:history.db")
    scheme, _, path = url.partition(":")
    if scheme == "memory":
        raise ConfigurationError(f"--history {url!r} lives in the worker's own process: only the worker can look into it")
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
        "decision": one.decision,
        "decided_by": one.decided_by,
        "decided": None if one.decision is None else round(one.decided, 3),
    }


def _whole(one: ParkedMessage) -> dict[str, Any]:
    from jmsclient import envelope
    from jmsclient.message import Message
    from jmsclient.trigger.joins import SOURCE, SetContent

    content = SetContent(one.id, one.envelope) if one.source == SOURCE else envelope.decode(one.envelope)
    message = Message.received(content, one.delivery_count)
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


def _table(parked: list[ParkedMessage], *, decided: bool) -> None:
    more = ("decision", "by", "decided") if decided else ()
    print_table(("trigger", "id", "reason", "count", "age", "copies", *more), [_cells(one, decided) for one in parked])


def _cells(one: ParkedMessage, decided: bool) -> list[str]:
    cells = [one.trigger, one.id, one.reason, str(one.delivery_count), f"{one.age:.0f} s", str(one.copies)]
    return cells + ([one.decision or "", one.decided_by or "", f"{one.decided:.0f} s"] if decided else [])


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_bytes_as_text)


def _bytes_as_text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else repr(value)
