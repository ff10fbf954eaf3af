"""`jmsclient browse QUEUE`: print what waits on a queue, head first. It takes nothing and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from jmsclient.cli.reaching import open_connection, url_option
from jmsclient.cli.showing import format_option, line_of, nobody_reads, write_line
from jmsclient.destination import Destination, Queue, parse_destination
from jmsclient.errors import MessageFormatError

if TYPE_CHECKING:
    from jmsclient.jms.connection import Connection

_FAILED = 1


@click.command(short_help="Look at the messages of a queue.")
@click.argument("queue")
@url_option
@click.option("--selector", metavar="TEXT", help="Only those that it selects.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Only the first N.")
@format_option
def browse(queue: str, *, url: str | None, selector: str | None, count: int | None, form: str) -> int:
    """Print the messages that wait on QUEUE, one a line, head first, and leave them there.

    What a consumer holds, what is delayed and what is not committed is not shown.
    """
    where = parse_destination(queue)
    with open_connection(url, "browse") as connection:
        if _is_unknown(connection, where):
            return 0
        browser = connection.create_session().create_browser(queue, selector)
        try:
            for number, message in enumerate(browser, 1):
                try:
                    write_line(line_of(message, form))
                except MessageFormatError as error:
                    raise click.ClickException(f"message {message.message_id}: {error}") from error
                if number == count:
                    break
        except BrokenPipeError:
            nobody_reads()
            return _FAILED
    return 0


def _is_unknown(connection: Connection, where: Destination) -> bool:
    """Nobody has used it yet: looking at it must not make it."""
    if not isinstance(where, Queue) or not connection.capabilities.administration:
        return False
    return all(one.address != where.address for one in connection.administration.destinations())
