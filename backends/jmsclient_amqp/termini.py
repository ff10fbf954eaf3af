"""Sources and targets: what a link of each kind asks of the broker when it attaches.

Pure. Outcomes are always named, queue or topic is always said (IF-26). Source: the JMS mapping of AMQP 1.0; rules DO-2, IF-26.
"""

from __future__ import annotations

from typing import Final

from jmsclient.destination import Destination
from jmsclient.transport.contract import ReceiverSpec
from jmsclient_amqp.engine.links import Terminus
from jmsclient_amqp.naming import capability
from jmsclient_amqp.primitives import mapped, symbol, symbols, text

SELECTOR: Final = "jms-selector"
NO_LOCAL: Final = "no-local"
_SELECTOR_FILTER: Final = b"\x00" + symbol("apache.org:selector-filter:string")
_NO_LOCAL_FILTER: Final = b"\x00" + symbol("apache.org:no-local-filter:list") + b"\x45"
OUTCOMES: Final = symbols(["amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"])


def source_of(
    spec: ReceiverSpec, address: str, *, modified: bool, global_share: bool = False, durable_queue: bool = False
) -> Terminus:
    """Of a receiver. `modified`: the broker knows that outcome. `global_share`: a shared subscription of no client id.
    `durable_queue`: the queue is to outlive the broker's restart, which this broker wants said."""
    durable = spec.kind in ("durable", "shared_durable")
    capabilities: list[str] = [capability(spec.destination)]
    if spec.kind in ("shared", "shared_durable"):
        capabilities.append("shared")
        if global_share:
            capabilities.append("global")
    return Terminus(
        address,
        capabilities=symbols(capabilities),
        filters=_filters(spec),
        outcomes=OUTCOMES if modified else symbols(["amqp:accepted:list", "amqp:rejected:list", "amqp:released:list"]),
        copy=spec.kind == "browse",
        durable=durable or (durable_queue and spec.kind == "queue"),
        never_expires=durable,
    )


def _filters(spec: ReceiverSpec) -> bytes | None:
    filters: list[bytes] = []
    if spec.selector is not None:
        filters += (symbol(SELECTOR), _SELECTOR_FILTER + text(spec.selector))
    if spec.no_local:
        filters += (symbol(NO_LOCAL), _NO_LOCAL_FILTER)
    return mapped(filters) if filters else None


def wanted_filters(spec: ReceiverSpec) -> frozenset[str]:
    """The names that the broker has to echo."""
    return frozenset(name for name, wanted in ((SELECTOR, spec.selector), (NO_LOCAL, spec.no_local)) if wanted)


def target_of(destination: Destination, address: str, *, durable_queue: bool = False) -> Terminus:
    """Of a sender; as `source_of`."""
    kind = capability(destination)
    return Terminus(address, capabilities=symbols([kind]), durable=durable_queue and kind == "queue")


def local(name: str, *, outcomes: bool = False) -> Terminus:
    """Our own end of a link."""
    return Terminus(name, outcomes=OUTCOMES if outcomes else None)
