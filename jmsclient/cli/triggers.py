"""`jmsclient triggers list|suspend|resume|disable|enable`: the triggers of a worker that runs, by its control socket.

Source: rules TR-59, TR-61, TR-65.
"""

from __future__ import annotations

import getpass
import json
import socket
from typing import Any

import click

from jmsclient.cli.printing import print_table

COUNTED = ("new", "duplicate", "in_doubt", "in_progress", "completed", "failed")

control_option = click.option(
    "--control", required=True, metavar="PATH", envvar="JMSCLIENT_CONTROL", help="The control socket of the worker (run --control)."
)
all_option = click.option("--all", "everything", is_flag=True, help="Every trigger of the worker.")
names_argument = click.argument("names", nargs=-1, metavar="NAME...")


@click.group()
def triggers() -> None:
    """What the triggers of a running worker do; suspend, resume, disable and enable them."""


@triggers.command("list")
@control_option
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True, help="For whom.")
def list_triggers(control: str, form: str) -> None:
    """List the worker's triggers: state, why it is so, and what they have counted."""
    shown = _ask(control, "list", ())
    if form == "json":
        click.echo(json.dumps(shown, indent=2))
    else:
        columns = ("trigger", "state", "reason", *(name.replace("_", " ") for name in COUNTED))
        print_table(columns, [_row(one) for one in shown])


@triggers.command("suspend")
@names_argument
@all_option
@control_option
def suspend(names: tuple[str, ...], *, everything: bool, control: str) -> None:
    """Fetch no more messages for trigger NAME; those that are buffered are still run. Until it is resumed or its worker ends."""
    _change("suspend", names, everything, control)


@triggers.command("resume")
@names_argument
@all_option
@control_option
def resume(names: tuple[str, ...], *, everything: bool, control: str) -> None:
    """Take messages again. A suspension because of the history ends by itself, and by nothing else."""
    _change("resume", names, everything, control)


@triggers.command("disable")
@names_argument
@all_option
@control_option
@click.option(
    "--grace", type=click.FloatRange(min=0), default=3.0, show_default=True, metavar="SECONDS", help="For running handlers."
)
def disable(names: tuple[str, ...], *, everything: bool, control: str, grace: float) -> None:
    """Close the receiver of trigger NAME: what is buffered or still runs goes back to the provider. Until it is enabled."""
    _change("disable", names, everything, control, grace)


@triggers.command("enable")
@names_argument
@all_option
@control_option
def enable(names: tuple[str, ...], *, everything: bool, control: str) -> None:
    """Open the receiver again."""
    _change("enable", names, everything, control)


def _change(verb: str, names: tuple[str, ...], everything: bool, control: str, grace: float = 3.0) -> None:
    if everything == bool(names):
        raise click.UsageError(f"{verb}: give one NAME or more, or --all")
    for one in _ask(control, verb, names, grace):
        because = f" ({one['reason']})" if one["reason"] else ""
        click.echo(f"{one['name']} is {one['state']}{because}")


def _ask(control: str, verb: str, names: tuple[str, ...], grace: float = 3.0) -> list[dict[str, Any]]:
    from jmsclient.worker.control import ask

    return ask(control, verb, list(names), by=f"{getpass.getuser()}@{socket.gethostname()}", grace=grace)


def _row(one: dict[str, Any]) -> list[str]:
    return [one["name"], one["state"], one["reason"] or "-", *(f"{one['counters'][name]:g}" for name in COUNTED)]
