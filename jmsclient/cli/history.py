"""`jmsclient history show|stats|purge|check`: what a history knows, and what a journal proves.

The first three need the history only, not a broker and no running worker, and make no file; `check` needs the journals only.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from jmsclient.cli.in_doubt import _open, for_whom
from jmsclient.cli.printing import printable
from jmsclient.errors import ConfigurationError

if TYPE_CHECKING:
    from jmsclient.exporters.journal_check import Report
    from jmsclient.history import DocumentHistory, Entry

SOURCES = ("uuid", "JMSMessageID")


@click.group()
def history() -> None:
    """What a history knows of messages, and what a journal says happened."""


def of_a_history(command: Any) -> Any:
    """The options that name one."""
    for option in (
        click.option("--namespace", default="default", show_default=True, metavar="NAME", help="The worker's name."),
        click.option(
            "--history", "url", metavar="URL", envvar="JMSCLIENT_HISTORY", help="The worker's history, such as sqlite:history.db."
        ),
    ):
        command = option(command)
    return command


@history.command("show")
@click.argument("id")
@click.option("--trigger", metavar="NAME", required=True, help="The trigger's name; by default its destination.")
@for_whom
@of_a_history
def show(url: str | None, namespace: str, form: str, trigger: str, id: str) -> None:  # noqa: A002  the argument's name
    """Show what the history of a trigger knows of one message id."""
    from jmsclient.history.contract import as_listed, stored_id

    with _history(url, namespace) as store:
        asked = [(name, source) for name in dict.fromkeys((stored_id(id), as_listed(id))) for source in SOURCES]
        found = zip(asked, store.lookup_many(trigger, asked), strict=True)
    entries = [_summary(trigger, id, source, entry) for (_, source), entry in found if entry is not None]
    if form == "json":
        click.echo(json.dumps(entries, indent=2))
    elif not entries:
        click.echo(f"nothing is known of {printable(id)} in trigger {printable(trigger)}: it is New")
    else:
        for entry in entries:
            for name, value in entry.items():
                click.echo(f"{name:<15} {printable(str(value))}")
    if not entries:
        raise click.exceptions.Exit(1)


@history.command("stats")
@for_whom
@of_a_history
def stats(url: str | None, namespace: str, form: str) -> None:
    """Count a history's entries by state."""
    with _history(url, namespace) as store:
        states = store.statistics()
    if form == "json":
        click.echo(json.dumps(states, indent=2, sort_keys=True))
        return
    for state, number in sorted(states.items()):
        click.echo(f"{state:<15} {number}")
    if not states:
        click.echo("the history is empty")


@history.command("purge")
@of_a_history
def purge(url: str | None, namespace: str) -> None:
    """Remove what is past its history_ttl now. A history does so by itself; Redis needs nothing removed."""
    with _history(url, namespace) as store:
        click.echo(f"removed {store.purge_expired()}")


@history.command("check")
@click.argument("journals", metavar="JOURNAL...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--history-ttl",
    type=click.FloatRange(min=0.0),
    default=86400.0,
    show_default=True,
    metavar="SECONDS",
    help="The triggers' history_ttl: an id may run again after it.",
)
@for_whom
def check(journals: tuple[str, ...], history_ttl: float, form: str) -> int:
    """Find each id that was run twice, acknowledged without a record, or recorded and never acknowledged.

    Give all journals of the workers that share a history, rotated ones too. Exit code 0 when there is none, 1 when there is.
    """
    from jmsclient.exporters.journal_check import Check

    checking = Check(history_ttl=history_ttl)
    journals = tuple({os.path.realpath(name): name for name in journals}.values())  # each once, however often it is named
    for name in journals:
        with open(name, encoding="utf-8", errors="replace") as file:
            read = checking.read(file)
        if not read and os.path.getsize(name):  # nothing would be found in it, and that would be taken for clean
            raise ConfigurationError(f"{name!r} is no journal: not one of its lines can be read")
    report = checking.report()
    if form == "json":
        click.echo(json.dumps({**dataclasses.asdict(report), "clean": report.clean}, indent=2))
    else:
        for line in _lines(report, len(journals)):
            click.echo(printable(line))
    return 0 if report.clean else 1


def _lines(report: Report, journals: int) -> Iterable[str]:
    for one in report.findings:
        what = "" if one.id is None else f": trigger {one.trigger}, id {one.id}"
        yield f"{'' if one.certain else 'perhaps '}{one.kind}{what}: {one.text}"
    processes = f"{report.runs} processes ({report.cut} were killed or still run)"
    yield f"{journals} journals, {report.lines} lines, {processes}, {report.ids} ids"
    if report.unreadable:
        yield f"{report.unreadable} lines cannot be read"
    if report.unfinished:
        yield f"{report.unfinished} ids were started and have no known end: they are in progress or abandoned"
    certain = sum(one.certain for one in report.findings)
    perhaps = len(report.findings) - certain
    more = f", {perhaps} that may be no more than lines lost in a kill" if perhaps else ""
    yield f"{'clean' if report.clean else f'{certain} findings'}{more}"


def _summary(trigger: str, id_: str, source: str, entry: Entry) -> dict[str, Any]:
    known: dict[str, Any] = {
        "trigger": trigger,
        "id": id_,
        "id_source": source,
        "state": entry.state.value,
        "attempt": entry.attempt,
        "started": f"{entry.started:.3f} s ago",
        "updated": f"{entry.updated:.3f} s ago",
        "lease_left": f"{entry.lease_left:.3f} s",
        "owner": entry.owner,
        "outcome": entry.outcome,
        "reason": entry.reason,
        "copies": entry.copies or None,
        "decision": entry.decision,
        "decided_by": entry.decided_by,
        "version": entry.version,
    }
    return {name: value for name, value in known.items() if value is not None}


def _history(url: str | None, namespace: str) -> DocumentHistory:
    if not url:
        raise ConfigurationError("this needs the worker's history: give --history, such as sqlite:history.db")
    return _open(url, namespace)
