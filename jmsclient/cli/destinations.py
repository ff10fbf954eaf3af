"""`jmsclient destinations list|stats|pause|resume|move`: what a broker has, and what its keeper may do to it.

The store may be held by a worker or by nobody. A pause is a flag of the process that holds the store: on a store that nobody holds
it would end with this command, so it is refused. A move there needs none: this command is the only one at the store meanwhile.
Source: api.md "Administration"; rules IF-15, IF-35; "The three pauses".
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from jmsclient.cli.printing import print_table, printable
from jmsclient.cli.reaching import nobody_holds_it, open_connection, url_option
from jmsclient.errors import ConfigurationError, IllegalStateError

if TYPE_CHECKING:
    from jmsclient.destination import Destination
    from jmsclient.jms.connection import Connection
    from jmsclient.transport.administration import DestinationStatistics, ManagementResult

KINDS = ("production", "insertion", "consumption")
_FAILED = 1
table_option = click.option(
    "--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True, help="For whom."
)


@click.group()
def destinations() -> None:
    """What destinations there are, how much waits there; pause, resume and move."""


@destinations.command("list")
@url_option
@table_option
def list_destinations(url: str | None, form: str) -> None:
    """List the destinations, one URI a line."""
    with open_connection(url, "destinations list") as connection:
        found = [str(one) for one in connection.administration.destinations()]
    if form == "json":
        click.echo(json.dumps(found, indent=2))
    elif found:
        click.echo("\n".join(found))
    else:
        click.echo("there is no destination yet", err=True)


@destinations.command("stats")
@click.argument("destination", required=False)
@url_option
@table_option
def show_statistics(destination: str | None, url: str | None, form: str) -> None:
    """Show DESTINATION, or all, in numbers: messages, bytes, consumers, and what pending messages wait for."""
    from jmsclient.destination import parse_destination

    where = None if destination is None else parse_destination(destination)
    with open_connection(url, "destinations stats") as connection:
        administration = connection.administration
        chosen = administration.destinations() if where is None else [where]
        numbers = [(one, administration.statistics(one)) for one in chosen]
    if form == "json":
        click.echo(json.dumps([{"destination": one.address, **asdict(figures)} for one, figures in numbers], indent=2))
    else:
        print_table(_COLUMNS, [_cells(one, figures) for one, figures in numbers])


@destinations.command("pause")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("destination", required=False)
@click.option("--all", "everything", is_flag=True, help="Every destination, those to come included.")
@url_option
def pause(kind: str, destination: str | None, *, everything: bool, url: str | None) -> None:
    """Pause production, insertion or consumption of DESTINATION, until it is resumed or its worker ends."""
    _change("pause", kind, destination, everything, url)


@destinations.command("resume")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("destination", required=False)
@click.option("--all", "everything", is_flag=True, help="What `pause --all` paused; a destination's own pause stays.")
@url_option
def resume(kind: str, destination: str | None, *, everything: bool, url: str | None) -> None:
    """Resume production, insertion or consumption of DESTINATION."""
    _change("resume", kind, destination, everything, url)


@destinations.command("move")
@click.argument("source")
@click.argument("target")
@click.option("--selector", metavar="TEXT", help="Only those that it selects.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only the message with this id; may be repeated.")
@url_option
@table_option
def move(source: str, target: str, *, selector: str | None, ids: tuple[str, ...], url: str | None, form: str) -> int:
    """Move messages from SOURCE to TARGET, ids kept, while consumption of SOURCE is paused.

    Prints what was moved and what was not, and why. Exit code 1 where something was not.
    """
    from jmsclient.destination import parse_destination

    origin, goal = parse_destination(source), parse_destination(target)
    with open_connection(url, "destinations move") as connection:
        administration = connection.administration
        if nobody_holds_it(connection):
            administration.pause_consumption(origin)  # ends with this command
        try:
            result = administration.move(origin, goal, selector, message_ids=list(ids) or None)
        except IllegalStateError as error:
            if administration.statistics(origin).consumption_paused:
                raise
            raise click.ClickException(f"{error}: first run jmsclient destinations pause consumption {origin.address}") from error
    _tell_moved(result, form)
    return _FAILED if result.refused else 0


def _change(verb: str, kind: str, destination: str | None, everything: bool, url: str | None) -> None:
    from jmsclient.destination import parse_destination

    if everything == (destination is not None):
        raise ConfigurationError(f"{verb} {kind}: give one DESTINATION, or --all")
    where = None if destination is None else parse_destination(destination)
    with open_connection(url, f"destinations {verb}") as connection:
        _check_held(connection, verb)
        changed = getattr(connection.administration, f"{verb}_{kind}")(where)
    name = "every destination" if where is None else where.address
    state = {"pause": "paused", "resume": "not paused"}[verb]
    click.echo(f"{kind} of {name} is {state}{'' if changed else ', as it was before'}")


def _check_held(connection: Connection, verb: str) -> None:
    if nobody_holds_it(connection):
        raise click.ClickException(
            f"nobody holds this store, so there is nothing to {verb}: a pause lives in the process that holds the store, and ends "
            "with it. Start the worker first, or have it start paused: embedded:?store=FILE&consumption_paused=true"
        )


# -- how it looks --------------------------------------------------------------------------------------------------------


def _tell_moved(result: ManagementResult, form: str) -> None:
    if form == "json":
        refused = [{"id": one, "state": state} for one, state in result.refused]
        click.echo(json.dumps({"moved": list(result.done), "not_moved": refused}, indent=2))
        return
    for moved in result.done:
        click.echo(f"moved {printable(str(moved))}")
    for kept, state in result.refused:
        click.echo(f"not moved {printable(str(kept))}: {state}")
    click.echo(f"{len(result.done)} moved, {len(result.refused)} not moved", err=True)


_COUNTS = ("current", "pending", "high", "received")
_COLUMNS = ("destination", *_COUNTS, "bytes", "consumers", "blocked", "paused", "pending by kind")


def _cells(one: Destination, figures: DestinationStatistics) -> list[str]:
    kinds = {name: number for name, number in asdict(figures.pending_by_kind).items() if number}
    paused = [kind for kind in KINDS if getattr(figures, f"{kind}_paused")]
    return [
        one.address,
        *[str(getattr(figures, f"messages_{column}")) for column in _COUNTS],
        str(figures.bytes_current + figures.bytes_pending),
        str(figures.consumers_current),
        str(figures.blocked_senders),
        ", ".join(paused) or "-",
        ", ".join(f"{name} {number}" for name, number in kinds.items()) or "-",
    ]
