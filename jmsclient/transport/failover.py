"""Where a connection may go and how hard it tries: taking `failover:(url,url)?parameters` apart, and the times between tries.

Must not know how places are reached; `link.py` does. Pure: chance is handed in. Source: api.md, "Connections".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from jmsclient.clock import Clock
from jmsclient.errors import ConfigurationError
from jmsclient.transport.contract import Endpoint

SCHEME = "failover"
ATTEMPTS = "max_reconnect_attempts"
FIRST = "initial_reconnect_delay"
LONGEST = "max_reconnect_delay"
RECONNECT = "reconnect"
NAMES = (RECONNECT, ATTEMPTS, FIRST, LONGEST)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tries:
    """How a lost connection is tried again. A try goes through all places once, in order. `first` seconds before the first one,
    doubled each time up to `longest`. As it stands that takes about an hour, the outage that a history is kept for (TR-54)."""

    attempts: int = 720
    first: float = 0.1
    longest: float = 5.0

    def delays(self, chance: Callable[[], float]) -> Iterator[float]:
        """Seconds to wait before each try; `chance` from 0 to 1 spreads each over its upper half, so that those who were cut off
        together do not come back together."""
        delay = self.first
        for _ in range(self.attempts):
            yield delay * (0.5 + chance() / 2)
            delay = min(self.longest, delay * 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """What a connection URL names. `tries` None: what is lost is lost."""

    endpoints: tuple[Endpoint, ...]
    tries: Tries | None

    @property
    def clock(self) -> Clock:
        return self.endpoints[0].clock

    @property
    def client_id(self) -> str | None:
        return self.endpoints[0].client_id

    @property
    def name(self) -> str:
        """For threads."""
        return self.endpoints[0].scheme if len(self.endpoints) == 1 else SCHEME

    def __str__(self) -> str:
        """For logs and errors: no user information."""
        texts = [str(one) for one in self.endpoints]
        return texts[0] if len(texts) == 1 else f"{SCHEME}:({','.join(texts)})"


def is_failover(url: object) -> bool:
    """Whether this is a list of URLs rather than one."""
    return isinstance(url, str) and url.strip().lower().startswith(f"{SCHEME}:")


def split_failover(url: str) -> tuple[list[str], str]:
    """The URLs and the text of the parameters behind `?`. Raises ConfigurationError, which repeats nothing of the URL: a password
    may be in it."""
    rest = url.strip()[len(SCHEME) + 1 :].removeprefix("//")
    inside, closed, query = rest.rpartition(")")
    if not rest.startswith("(") or not closed or (query and not query.startswith("?")):
        raise ConfigurationError("write a failover URL as failover:(url,url)?name=value&name=value")
    urls = [one.strip() for one in inside[1:].split(",")]
    if not all(urls):
        raise ConfigurationError("a failover URL names no place between two commas: write failover:(url,url)")
    if any(is_failover(one) for one in urls):
        raise ConfigurationError("a failover URL inside another: list all places in one")
    return urls, query.removeprefix("?")


def tries_of(parameters: Mapping[str, str], *, on: bool) -> Tries | None:
    """What a URL says about trying again; `on`: where it says nothing, it is tried. Raises ConfigurationError."""
    said = parameters.get(RECONNECT, "yes" if on or any(name in parameters for name in NAMES) else "no")
    if said not in ("yes", "no"):
        raise ConfigurationError(f"{RECONNECT}={said!r}: expected yes or no")
    usual = Tries()
    attempts = _number(parameters, ATTEMPTS, usual.attempts)
    if attempts != int(attempts) or attempts < 1:
        raise ConfigurationError(f"{ATTEMPTS}={parameters[ATTEMPTS]!r}: expected a whole number from 1 on")
    first = _number(parameters, FIRST, usual.first)
    tries = Tries(attempts=int(attempts), first=first, longest=max(first, _number(parameters, LONGEST, usual.longest)))
    return tries if said == "yes" else None


def _number(parameters: Mapping[str, str], name: str, usual: float) -> float:
    text = parameters.get(name)
    if text is None:
        return usual
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:  # NaN is neither
        raise ConfigurationError(f"{name}={text!r}: expected seconds or a number of tries, 0 or more")
    return number
