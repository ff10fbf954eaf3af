"""Taking a `failover:` URL apart: `failover:(url,url)?parameters` is a list of places to try, in order.

Must not know how they are reached; `link.py` does. Pure. Source: api.md, "Connections".
"""

from __future__ import annotations

from jmsclient.errors import ConfigurationError

SCHEME = "failover"


def is_failover(url: str) -> bool:
    """Whether this is a list of URLs rather than one."""
    return url.strip().lower().startswith(f"{SCHEME}:")


def split_failover(url: str) -> tuple[list[str], str]:
    """The URLs and the text of the parameters behind `?`. Raises ConfigurationError, which repeats nothing of the URL: a password
    may be in it."""
    rest = url.strip()[len(SCHEME) + 1 :].removeprefix("//")
    inside, closed, query = rest.partition(")")
    if not rest.startswith("(") or not closed or (query and not query.startswith("?")):
        raise ConfigurationError("write a failover URL as failover:(url,url)?name=value&name=value")
    urls = [one.strip() for one in inside[1:].split(",")]
    if not all(urls):
        raise ConfigurationError("a failover URL names no place between two commas: write failover:(url,url)")
    if any(is_failover(one) for one in urls):
        raise ConfigurationError("a failover URL inside another: list all places in one")
    return urls, query.removeprefix("?")
