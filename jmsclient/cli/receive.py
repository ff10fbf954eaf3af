"""`jmsclient receive DESTINATION`: take messages and print them. Each is acknowledged when its line is written, never before.

So nothing is lost, whenever the command is interrupted, killed, or its reader goes away: what was not written comes again, and
what was written comes again only if the command is killed before it could say so. Rules IF-7, IF-18, IF-39.
"""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING

import click

from jmsclient.cli.reaching import open_connection, url_option
from jmsclient.cli.send import read_seconds
from jmsclient.cli.showing import format_option, line_of, nobody_reads, write_line
from jmsclient.errors import ConfigurationError, InvalidDestinationError
from jmsclient.jms.acknowledgement import settle_by_receiver
from jmsclient.transport.contract import ACCEPT

if TYPE_CHECKING:
    from types import FrameType

    from jmsclient.destination import Destination
    from jmsclient.jms.connection import Connection
    from jmsclient.jms.consumer import MessageConsumer
    from jmsclient.jms.session import Session
    from jmsclient.message import Message

WINDOW = 10
"""Messages that wait for this command at most: others may be quicker than a terminal."""
GROUP = 100
"""Written lines after which their messages are acknowledged, at the latest; at once where none follows."""
_FAILED = 1


@click.command(short_help="Take messages and print them.")
@click.argument("destination")
@url_option
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Take so many; without it one.")
@click.option("--all", "everything", is_flag=True, help="Take all that are there.")
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--timeout", metavar="SECONDS", callback=read_seconds, help="Wait so long for the next one; without it not at all.")
@click.option("--selector", metavar="TEXT", help="Only those that it selects.")
@format_option
def receive(
    destination: str,
    *,
    url: str | None,
    count: int | None,
    everything: bool,
    follow: bool,
    timeout: float | None,
    selector: str | None,
    form: str,
) -> int:
    """Take messages from DESTINATION (queue:///orders, or the bare name of a queue) and print them, one a line.

    Each is acknowledged after its line is written. Exit code 1 where fewer came than were asked for.
    """
    from jmsclient import AcknowledgeMode
    from jmsclient.destination import parse_destination

    where = parse_destination(destination)
    wanted, wait = _checked(count, everything, follow, timeout)
    with open_connection(url, "receive") as connection:
        session = connection.create_session(AcknowledgeMode.INDIVIDUAL)
        consumer = session.create_consumer(where, selector, prefetch=min(WINDOW, wanted or WINDOW))
        _end_on_terminate()
        try:
            taken = _Taking(session, consumer, form).take(wanted, wait)
        except BrokenPipeError:
            nobody_reads()
            return _FAILED
        why = "; its consumption is paused" if _is_paused(connection, where) else ""
    if wanted is not None and taken < wanted:
        missing = f"{taken} of {wanted} messages" if taken else "no message"
        raise click.ClickException(f"{missing} came from {where.address} within {wait or 0.0:g} s{why}")
    return 0


def _checked(count: int | None, everything: bool, follow: bool, timeout: float | None) -> tuple[int | None, float | None]:
    """How many (None: no limit), and how long each is waited for (None: for ever). Raises ConfigurationError."""
    if everything and (count is not None or follow):
        raise ConfigurationError("--all takes what is there; leave out --count and --follow")
    if follow:
        if timeout is not None:
            raise ConfigurationError("--follow waits until Ctrl-C; leave out --timeout")
        return count, None
    wait = 0.0 if timeout is None else timeout
    return (None if everything else count or 1), (None if math.isinf(wait) else wait)


def _is_paused(connection: Connection, where: Destination) -> bool:
    if not connection.capabilities.administration:
        return False
    try:
        return connection.administration.statistics(where).consumption_paused
    except InvalidDestinationError:  # a topic that nobody has used
        return False


def _end_on_terminate() -> None:
    """SIGTERM ends the command as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


class _Taking:
    """What was written and is not acknowledged yet."""

    def __init__(self, session: Session, consumer: MessageConsumer, form: str) -> None:
        self._session = session
        self._consumer = consumer
        self._form = form
        self._written: list[Message] = []

    def take(self, wanted: int | None, wait: float | None) -> int:
        """Take so many, waiting so long for each; returns how many there were."""
        taken = 0
        try:
            while wanted is None or taken < wanted:
                message = self._next(wait)
                if message is None:
                    break
                write_line(line_of(message, self._form))
                self._written.append(message)
                taken += 1
                if len(self._written) >= GROUP:
                    self._acknowledge()
        finally:
            self._acknowledge()
        return taken

    def _next(self, wait: float | None) -> Message | None:
        if self._written:
            message = self._consumer.receive(0.0)
            if message is not None or wait == 0:
                return message
            self._acknowledge()
        return self._consumer.receive(wait)

    def _acknowledge(self) -> None:
        """Those that were written, and not the one that may just be in hand."""
        written, self._written = self._written, []
        if written:
            settle_by_receiver([message.arrival for message in written[:-1]], ACCEPT)
            written[-1].acknowledge()  # returns when all of them are as safe as the provider makes it
