"""Owns what an embedded: URL may say. Must not know of brokers. Source: api.md, "Connections"; RA-1, IF-13."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jmsclient.errors import ConfigurationError
from jmsclient.options import DefaultReadAhead
from jmsclient_embedded.queue import QueueSettings

ALLOWED = ("store", "redelivery_limit", "default_read_ahead", "private", "attach")
_YES_NO = {"yes": True, "no": False}
_READ_AHEAD = {one.value: one for one in DefaultReadAhead if one is not DefaultReadAhead.UNKNOWN}


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerParameters:
    """`store`: the absolute path of the store file, None: in memory; `defaults`: of queues made on first use; `private`: it ends
    with its last connection although it is in memory, as a test's broker should; `attach`: where another process holds the store,
    connect to that."""

    store: Path | None = None
    private: bool = False
    attach: bool = field(default=False, compare=False)
    defaults: QueueSettings = field(default_factory=QueueSettings)


def parse_parameters(parameters: Mapping[str, str]) -> BrokerParameters:
    """From the part behind `?`. Raises ConfigurationError that names the parameter and what is allowed."""
    for name in parameters:
        if name not in ALLOWED:
            raise ConfigurationError(f"unknown parameter {name!r} of an embedded: URL; allowed: {', '.join(ALLOWED)}")
    store = parameters.get("store")
    if store is not None and not store.strip():
        raise ConfigurationError("store='': expected the path of a file, such as embedded:?store=shop.db")
    return BrokerParameters(
        store=None if store is None else Path(store).absolute(),
        private=_yes_or_no("private", parameters.get("private", "no")),
        attach=_attach(parameters.get("attach", "no"), store),
        defaults=QueueSettings(
            redelivery_limit=_limit(parameters.get("redelivery_limit", "-1")),
            default_read_ahead=_read_ahead(parameters.get("default_read_ahead", "no")),
        ),
    )


def _yes_or_no(name: str, text: str) -> bool:
    found = _YES_NO.get(text.lower())
    if found is None:
        raise ConfigurationError(f"{name}={text!r}: expected yes or no")
    return found


def _attach(text: str, store: str | None) -> bool:
    attach = _yes_or_no("attach", text)
    if attach and store is None:
        raise ConfigurationError("attach=yes without a store: only a store is shared between processes; add store=FILE")
    return attach


def _limit(text: str) -> int:
    try:
        limit = int(text)
    except ValueError:
        limit = -2
    if limit < -1:
        raise ConfigurationError(f"redelivery_limit={text!r}: expected a whole number >= 0, or -1 for no limit")
    return limit


def _read_ahead(text: str) -> DefaultReadAhead:
    found = _READ_AHEAD.get(text.lower())
    if found is None:
        raise ConfigurationError(f"default_read_ahead={text!r}: expected one of {', '.join(_READ_AHEAD)}")
    return found
