"""Against a real broker: an ActiveMQ Artemis of the bench's own, the client pinned to one core and the broker to the other.

Rates, and the client's CPU a message, to what other clients do with the same queue in the same breath. Needs python-qpid-proton,
Java and Maven; without them these lines are left out, each by its name. Source: docs/explanation/performance.md.
"""

from __future__ import annotations

from typing import Literal

import artemis_clients as clients
from artemis_clients import DUPS_OK, SHARES, TAKEN, WINDOW, Measured, Side
from bench_pairs import Ratio

try:
    import jmsclient_amqp.transport  # noqa: F401
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = True

CPU = "µs of CPU a message"
_KB10 = 10240


def pair(
    name: str,
    bytes_: int,
    ours: Measured,
    theirs: Measured,
    target: float | None,
    *,
    cpu: float | Literal[False] | None = False,
    mode: str = "AUTO",
) -> list[Ratio]:
    """The line about the rate, and unless `cpu` is False, that about the CPU of the same measurements; `cpu` is its target."""
    one, other = Side(ours), Side(theirs)
    about = {"bytes": bytes_, "window": WINDOW, "acknowledge": mode}
    named = f"Artemis {bytes_} B, {name}"
    found = [Ratio(name=named, ours=one.rate, theirs=other.rate, target=target, about=about)]
    if cpu is not False:
        found.append(Ratio(name=f"{named}, CPU", ours=one.cpu, theirs=other.cpu, target=cpu, better="lower", unit=CPU, about=about))
    return found


def _receiving(size: int) -> list[Ratio]:
    handler, qpid = (15.0, 2.0) if size == _KB10 else (8.0, 1.2)
    kept, dups = clients.ours(size), clients.ours(size, mode=DUPS_OK)
    return [
        *pair("kept, to proton's MessagingHandler", size, kept, clients.handler(size), handler, cpu=1 / 8),
        *pair("kept, to proton's BlockingReceiver", size, kept, clients.blocking_receiver(size), 8.0),
        *pair("kept, to qpid-jms", size, kept, clients.java_receiving(size, "qpid", "auto"), qpid, cpu=1 / 2),
        *pair("kept, to core-jms", size, dups, clients.java_receiving(size, "core", "dups"), 0.6, mode="DUPS_OK"),
        *pair("taken, to kept", size, clients.ours(size, flags=TAKEN), kept, 1.0, cpu=None),
    ]


def _sending(size: int) -> list[Ratio]:
    sending = clients.our_sending(size)
    return [
        *pair("send_many, to proton's BlockingSender", size, sending, clients.blocking_sender(size), 5.0, mode="confirmed"),
        *pair("send_many, to qpid-jms", size, sending, clients.java_sending(size, "qpid"), 1.5, cpu=None, mode="confirmed"),
    ]


def _ratios() -> list[Ratio]:
    found = [ratio for size in SHARES for ratio in _receiving(size)]
    pull = clients.ours(100, prefetch=0, most=2000)
    found += pair("kept, a window of 1,000, to prefetch=0", 100, clients.ours(100), pull, 10.0)
    return found + [ratio for size in SHARES for ratio in _sending(size)]


RATIOS = tuple(_ratios()) if AVAILABLE else ()
