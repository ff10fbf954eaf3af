"""What each broker really does, one row a product: found by the name and version in its open frame.

Owns every difference between brokers that this backend knows of; nobody else asks for a product. A row says what was observed,
then the capabilities that the peer offered narrow it, then the URL's `provider` overrides which row it is. Pure. Rules IF-11,
IF-29; the table "By product" of the settlement rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from jmsclient.errors import ConfigurationError
from jmsclient.transport.capabilities import Capabilities
from jmsclient.transport.contract import Peer
from jmsclient_amqp.naming import Naming

_COMMON: Final = Capabilities(
    take_on_arrival=True,
    release_without_count=True,
    delivery_count="exact",
    count_after_loss="unspecified",
    close_returns_unsettled="at_session_end",
    drain="yes",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """One row. `products` are how the names in the open frame begin, in lower case."""

    provider: str
    products: tuple[str, ...] = ()
    capabilities: Capabilities
    naming: Naming = field(default_factory=Naming)
    modified: bool = True
    """It takes the outcome modified; otherwise what failed is released."""
    first_acquirer: bool = False
    """It tells by that flag, not by a count, whether a message was delivered before."""
    counts: bool = True
    """The count in the header is to be believed."""
    answers_close: bool = True
    """A closed link is closed by it too; otherwise it only detaches."""
    end_patience: float | None = None
    """Seconds after which the end of a session or connection counts as answered; None: it is always answered."""
    session_per_receiver: bool = False
    """What was on its way when a link was closed comes back only when the session ends: so each receiver has its own."""
    refuses_by_end: bool = False
    """A link that it does not want, or a message, it refuses by ending the session."""
    durable_queues: bool = False
    """A queue lives on where the terminus says so, and is otherwise gone with a restart."""
    temporary: bool = True
    """It makes temporary destinations."""
    no_local: bool = True
    """It leaves out what the same connection published where it says so; otherwise it says so and does not."""
    delayed_by_offer: bool = False
    """It delivers later if it offers DELAYED_DELIVERY."""
    settles_what_arrives: bool = False
    """After a drain, all that it has settled on a pre-settled link has arrived: so closing one loses nothing on its way."""
    keeps_returned: bool = False
    """What is given back waits for demand of the same link, and goes to others only when that is closed."""


ARTEMIS: Final = Product(
    provider="artemis",
    products=("apache-activemq-artemis",),
    capabilities=replace(
        _COMMON,
        reject="dead_letter",
        transactions=True,
        browse=True,
        selectors=True,
        priorities=True,
        topics=True,
        durable_subscriptions=True,
        shared_subscriptions=True,
    ),
    delayed_by_offer=True,
    settles_what_arrives=True,
)
BROKER_J: Final = Product(
    provider="broker-j",
    products=("apache qpid broker-j",),
    capabilities=replace(
        _COMMON,
        count_after_loss="raised",
        reject="until_limit",
        order_of_mixed_persistence=False,  # what needs no store overtakes what does
        transactions=True,
        browse=True,
        selectors=True,
        topics=True,
        durable_subscriptions=True,
        shared_subscriptions=True,
    ),
    settles_what_arrives=True,
)
CLASSIC: Final = Product(
    provider="activemq",
    products=("activemq",),
    capabilities=replace(
        _COMMON,
        release_without_count=False,
        delivery_count="none",  # it counts what was released, and forgets what failed when its link is closed
        reject="dead_letter",
        drain="may_miss",
        order_of_mixed_persistence=False,
        transactions=True,
        browse=True,
        selectors=True,
        topics=True,
        durable_subscriptions=True,
    ),
    naming=Naming(topic_prefix="topic://"),
    counts=False,
    delayed_by_offer=True,
    keeps_returned=True,
)
RABBITMQ_3: Final = Product(
    provider="rabbitmq",
    products=("rabbitmq",),
    capabilities=replace(
        _COMMON,
        release_without_count=False,
        delivery_count="derived",
        count_after_loss="raised",
        reject="discard",
        drain="no",
        topics=True,
    ),
    naming=Naming(queue_prefix="/queue/", topic_prefix="/topic/", existing_prefix="/amq/queue/"),
    modified=False,
    first_acquirer=True,
    answers_close=False,
    end_patience=1.0,  # one end in a hundred is swallowed
    session_per_receiver=True,
    refuses_by_end=True,
    durable_queues=True,
    temporary=False,
    no_local=False,
)
GENERIC: Final = Product(
    provider="generic",
    capabilities=replace(_COMMON, reject="discard", order_of_mixed_persistence=False),
)
TABLE: Final = (ARTEMIS, BROKER_J, CLASSIC, RABBITMQ_3, GENERIC)


def product_of(peer: Peer, override: str | None) -> Product:
    """The row of a peer. Raises ConfigurationError for an override that names none."""
    if override is not None:
        for product in TABLE:
            if product.provider == override.lower():
                return product
        raise ConfigurationError(f"provider={override!r}: expected one of {', '.join(one.provider for one in TABLE)}")
    for product in TABLE:
        if product.products and peer.product.lower().startswith(product.products):
            return product
    return GENERIC


def capabilities_of(product: Product, offered: frozenset[str]) -> Capabilities:
    """What this connection can do."""
    capabilities = product.capabilities
    if product.delayed_by_offer and "DELAYED_DELIVERY" in offered:
        capabilities = replace(capabilities, delayed_delivery=True)
    if "SHARED-SUBS" not in offered:
        capabilities = replace(capabilities, shared_subscriptions=False)
    return capabilities
