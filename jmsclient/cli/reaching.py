"""From a command's `--url` to a broker that outlives the command: a store, held by another process or not, or a server.

A broker in memory would live and end with the command, so it is refused; a store that another process holds is attached to.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from jmsclient.errors import ConfigurationError

if TYPE_CHECKING:
    from jmsclient.jms.connection import Connection

url_option = click.option(
    "--url", metavar="URL", envvar="JMSCLIENT_URL", help="Where to connect to; without it JMSCLIENT_URL is used."
)


def reachable_url(url: str | None, command: str, *, make: bool = False) -> str:
    """The URL to connect to. Raises ConfigurationError where what it names lives in this process only, and, unless the command may
    `make` one, where there is no such store."""
    from jmsclient.transport.failover import is_failover
    from jmsclient.transport.registry import parse_places, parse_url

    if url is None:
        raise ConfigurationError(f"{command} needs to know where: give --url, such as embedded:?store=FILE, or set JMSCLIENT_URL")
    if is_failover(url):
        parse_places(url)  # wrong ones are told before anything is reached
        return url
    endpoint = parse_url(url)
    if endpoint.scheme != "embedded":
        return url
    store = endpoint.parameters.get("store")
    if not store:
        raise ConfigurationError(
            f"{url!r} is a broker in memory, which would live and end with this command; give it a store: embedded:?store=FILE"
        )
    if not make and not os.path.exists(store):
        raise ConfigurationError(f"there is no store {store!r}; give the file that the worker uses")
    return url if "attach" in endpoint.parameters else f"{url.strip()}&attach=yes"


def open_connection(url: str | None, command: str, **options: Any) -> Connection:
    """Connect for a command that looks or takes, not one that makes a store."""
    from jmsclient import connect

    return connect(reachable_url(url, command), **options)


def nobody_holds_it(connection: Connection) -> bool:
    """This very command holds the store: what is not stored ends with it."""
    return connection.transport.in_process
